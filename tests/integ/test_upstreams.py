#!/usr/bin/env python3
"""--upstream: further APIs of a run, each behind a bridge of its own; model APIs that stream (S2-01, S2-03, B-04, B-05).

usage: test_upstreams.py AIRLOCK [TEST...]
"""
import http.server
import json
import os
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from run_box import DEADLINE, Host  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])
KEY = "sk-real-key-0123456789-do-not-leak"


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def say(self, data, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.heard.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        self.server.more.set()
        self.say(b'{"data":[]}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.heard.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        if b'"stream":true' not in body:
            return self.say(b'{"bytes":%d}' % len(body))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # The second event leaves only when the client has shown that it has the first.
        for i in range(2):
            data = b"data: %d\n\n" % i
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            if i == 0 and not self.server.more.wait(DEADLINE):
                return None
        self.wfile.write(b"0\r\n\r\n")
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Model)
        self.heard, self.more = [], threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Box(unittest.TestCase):
    def setUp(self):
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-upstream-test.", {"a.txt": b"a\n"})
        self.addCleanup(self.host.remove)
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        with open(self.host.top + "/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        self.model = "model=%s,policy=anthropic,credential-file=%s/key,env=ANTHROPIC_BASE_URL,env=OTHER=/v1,token-env=ANTHROPIC_API_KEY" % (
            self.url, self.host.top)

    def run_in(self, words, script, status=0):
        r = self.host.airlock("run", *words, "--timeout", "50", "--json=" + self.host.top + "/record", "--", script)
        self.assertEqual(r.returncode, status, r.stderr.decode() + r.stdout.decode())
        with open(self.host.top + "/record", encoding="utf-8") as f:
            return json.load(f), r.stdout.decode(), r.stderr.decode()


class Upstreams(Box):
    def test_a_model_streams_and_its_key_stays_outside(self):
        script = """env; cat /proc/self/environ | tr '\\0' '\\n'; python3 - <<'E'
import http.client, os, urllib.parse
u = urllib.parse.urlparse(os.environ['ANTHROPIC_BASE_URL'])
head = {'x-api-key': os.environ['ANTHROPIC_API_KEY'], 'content-type': 'application/json', 'anthropic-version': '2023-06-01', 'cookie': 'a=b'}
c = http.client.HTTPConnection(u.hostname, u.port)
c.request('POST', '/v1/messages?beta=true', b'{"stream":true}', head)
r = c.getresponse()
print('EVENT', r.status, r.getheader('content-type'), r.fp.readline() if False else r.read1(64))
d = http.client.HTTPConnection(u.hostname, u.port)
d.request('GET', '/v1/models', headers=head)
print('MODELS', d.getresponse().status)
print('REST', r.read())
for m, p in ('POST', '/v1/messages/batches'), ('GET', '/v1/files'), ('GET', '/v1/organizations/api_keys'), ('DELETE', '/v1/models/x'):
    e = http.client.HTTPConnection(u.hostname, u.port)
    e.request(m, p, b'{}' if m == 'POST' else None, head)
    print('REFUSED', e.getresponse().status)
E"""
        rec, out, err = self.run_in(["--upstream", self.model], script)
        self.assertIn("EVENT 200 text/event-stream b'data: 0\\n\\n'", out)
        self.assertIn("MODELS 200", out)
        self.assertIn("REST b'data: 1\\n\\n'", out)
        self.assertEqual(out.count("REFUSED 403"), 4)
        self.assertNotIn(KEY, out)
        self.assertEqual([(m, p) for m, p, _ in self.server.heard], [("POST", "/v1/messages?beta=true"), ("GET", "/v1/models")])
        for _, _, h in self.server.heard:
            self.assertEqual(h["x-api-key"], KEY)
            self.assertNotIn("authorization", h)
            self.assertNotIn("cookie", h)
        self.assertEqual(self.server.heard[0][2]["anthropic-version"], "2023-06-01")
        self.assertIn("OTHER=http://127.0.0.1:", out)
        self.assertIn("/v1\n", out)
        self.assertIn("AIRLOCK_UPSTREAM_MODEL_URL=http://127.0.0.1:", out)
        up = rec["upstreams"]
        self.assertEqual([(u["name"], u["policy"], u["requests"], u["forwarded"], u["refused"]) for u in up], [("model", "anthropic", 6, 2, 4)])
        self.assertIn("upstream model: policy anthropic; 6 requests, 2 forwarded, 4 refused", err)
        lines = [json.loads(x) for x in self.host.airlock("audit", "--json", rec["run"]).stdout.splitlines()]
        self.assertEqual({x["upstream"] for x in lines}, {"model"})
        self.assertEqual(subprocess.run(["grep", "-rqs", KEY, self.host.top + "/state"], check=False).returncode, 1)

    def test_two_upstreams_have_tokens_and_policies_of_their_own(self):
        other = "other=%s,policy=openai,credential-file=%s/key,header=x-custom" % (self.url, self.host.top)
        _, out, _ = self.run_in(["--upstream", self.model, "--upstream", other], """
            a() { curl -sS -m 40 -o /dev/null -w '%{http_code}\\n' "$@"; }
            M=$AIRLOCK_UPSTREAM_MODEL_URL O=$AIRLOCK_UPSTREAM_OTHER_URL
            MT=$AIRLOCK_UPSTREAM_MODEL_TOKEN OT=$AIRLOCK_UPSTREAM_OTHER_TOKEN
            a -H "authorization: Bearer $MT" $M/v1/models
            a -H "authorization: Bearer $OT" $M/v1/models
            a -H "authorization: Bearer $OT" $O/v1/models
            a -H "authorization: Bearer $MT" $O/v1/models
            a -H "authorization: Bearer $OT" -H 'content-type: application/json' -d '{}' $O/v1/messages
            a -H "authorization: Bearer $OT" -H 'content-type: application/json' -d '{}' $O/v1/responses""")
        self.assertEqual(out.split(), ["200", "401", "200", "401", "403", "200"])
        self.assertEqual([h.get("x-api-key", h.get("x-custom")) for _, _, h in self.server.heard], [KEY] * 3)
        self.assertNotIn("authorization", self.server.heard[1][2])

    def test_S2_10_they_follow_the_transport_of_the_run(self):
        """--api-transport is every bridge's: both have a queue of their own, and neither reads the other's."""
        other = "other=%s,policy=openai,credential-file=%s/key" % (self.url, self.host.top)
        rec, out, _ = self.run_in(["--api-transport", "queue", "--upstream", self.model, "--upstream", other], """
            a() { curl -sS -m 40 -o /dev/null -w '%{http_code}\n' "$@"; }
            a -H "authorization: Bearer $AIRLOCK_UPSTREAM_MODEL_TOKEN" $AIRLOCK_UPSTREAM_MODEL_URL/v1/models
            a -H "authorization: Bearer $AIRLOCK_UPSTREAM_OTHER_TOKEN" $AIRLOCK_UPSTREAM_OTHER_URL/v1/models
            a -H "authorization: Bearer $AIRLOCK_UPSTREAM_MODEL_TOKEN" $AIRLOCK_UPSTREAM_OTHER_URL/v1/models""")
        self.assertEqual(out.split(), ["200", "200", "401"])
        self.assertEqual([h.get("x-api-key", h.get("authorization")) for _, _, h in self.server.heard], [KEY, "Bearer " + KEY])
        lines = [json.loads(x) for x in self.host.airlock("audit", "--json", rec["run"]).stdout.splitlines()]
        self.assertEqual({(x["upstream"], x["transport"]) for x in lines}, {("model", "queue"), ("other", "queue")})

    def test_a_key_from_the_caller_s_variable(self):
        self.host.env["MY_KEY"] = KEY
        word = "g=%s,policy=google,credential-env=MY_KEY,env=GOOGLE_GEMINI_BASE_URL,token-env=GEMINI_API_KEY" % self.url
        _, out, _ = self.run_in(["--upstream", word], "env; curl -sS -H \"x-goog-api-key: $GEMINI_API_KEY\" -H 'content-type: application/json' -d '{}' "
                                "\"$GOOGLE_GEMINI_BASE_URL/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse\"")
        self.assertIn('{"bytes":2}', out)
        self.assertNotIn(KEY, out)
        self.assertEqual(self.server.heard[0][2]["x-goog-api-key"], KEY)

    def test_words_that_do_not_do(self):
        good = "a=http://h.test,policy=openai"
        for word in ("a", "A=http://h.test,policy=openai", "a=http://h.test", "a=ftp://h.test,policy=openai", "a=http://h.test/v1,policy=openai",
                     good + ",what=1", good + ",env=1X", good + ",env=X=y", good + ",token-env=X=/y", good + ",credential-env=NOT_SET_HERE"):
            r = self.host.airlock("run", "--upstream", word, "--", "true")
            self.assertIn(r.returncode, (2, 125), word + r.stderr.decode())
        r = self.host.airlock("run", "--upstream", good, "--upstream", good, "--", "true")
        self.assertEqual(r.returncode, 2)
        self.assertEqual(self.host.rows(), [])


PRESET = {"version": 1, "name": "probot", "program": "probot", "places": ["~/odd/probot"], "install": "mkdir -p ~/.local/bin && echo 'echo installed' >~/.local/bin/probot && chmod +x ~/.local/bin/probot",
          "install_allow": ["registry.test"], "args": ["--first"], "setenv": ["PRESET_SAID=yes"], "prepare": "touch $HOME/prepared; echo \"$AIRLOCK_UPSTREAM_MODEL_URL\" >$HOME/url",
          "upstream": {"url": "http://127.0.0.1:1", "policy": "openai", "url_env": "BOT_URL", "path": "/v1", "key_env": ["BOT_KEY"], "token_env": ["BOT_KEY"]}}
BOT = """#!/bin/sh
echo "args:$*"; echo "url:$BOT_URL"; echo "said:$PRESET_SAID"; ls $HOME; cat $HOME/url; echo "zero:$0"
curl -sS -o /dev/null -w '%{http_code}\\n' -H "authorization: Bearer $BOT_KEY" $BOT_URL/models
"""


class Presets(Box):
    """An agent of our own: found, bound, wired (docs/agents.md)."""

    def setUp(self):
        super().setUp()
        os.makedirs(self.host.top + "/config/airlock/agents")
        self.host.env.update(XDG_CONFIG_HOME=self.host.top + "/config", BOT_URL=self.url + "/v1", BOT_KEY=KEY)
        self.preset(PRESET)

    def preset(self, p):
        with open(self.host.top + "/config/airlock/agents/probot.json", "w", encoding="utf-8") as f:
            json.dump(p, f)

    def program(self, where):
        os.makedirs(where)
        with open(where + "/probot", "w", encoding="ascii") as f:
            f.write(BOT)
        os.chmod(where + "/probot", 0o755)
        for d in self.host.top, self.host.top + "/home":
            os.chmod(d, 0o755)

    def cli(self, *words, status=0):
        r = self.host.airlock("run", "--timeout", "50", *words)
        self.assertEqual(r.returncode, status, r.stderr.decode() + r.stdout.decode())
        return r.stdout.decode(), r.stderr.decode()

    def test_found_bound_wired_and_said(self):
        self.program(self.host.top + "/home/odd")
        out, err = self.cli("probot", "-p", "two words", "--keep")
        self.assertIn("args:--first -p two words --keep\n", out)
        self.assertIn("said:yes\n", out)
        self.assertIn("prepared\n", out)
        self.assertRegex(out, r"url:http://127\.0\.0\.1:\d+/v1\n")
        self.assertTrue(out.endswith("\n200\n"), out)
        self.assertEqual(self.server.heard[0][2]["authorization"], "Bearer " + KEY)
        self.assertIn("agent: read-only inside: " + self.host.top + "/home/odd/probot", err)
        self.assertIn("agent: model: calls to %s (openai)" % self.url, err)
        self.assertNotIn(KEY, out + err)
        self.assertNotIn(self.host.top, out)
        self.assertEqual(self.host.airlock("run", "--quiet", "probot").stderr, b"")

    def test_a_package_with_a_key_file(self):
        """A package: what lies beside the program comes with it, and its key may lie in a file."""
        deep = self.host.top + "/npm/lib/node_modules/@x/bot/bin"
        self.program(deep)
        os.mkdir(self.host.top + "/npm/bin")
        os.symlink("../lib/node_modules/@x/bot/bin/probot", self.host.top + "/npm/bin/probot")
        self.host.env["PATH"] = self.host.top + "/npm/bin:" + self.host.env["PATH"]
        del self.host.env["BOT_KEY"]
        out, err = self.cli("probot", status=125)
        self.assertIn("set BOT_KEY, or write it to %s/config/airlock/keys/probot" % self.host.top, err)
        os.mkdir(self.host.top + "/config/airlock/keys")
        with open(self.host.top + "/config/airlock/keys/probot", "w", encoding="ascii") as f:
            f.write(KEY)
        out, err = self.cli("--agent", "probot", "whatever", "-x")
        self.assertIn("args:--first -x\n", out)
        self.assertIn("zero:/opt/airlock-agent/node_modules/@x/bot/bin/probot\n", out)
        self.assertTrue(out.endswith("\n200\n"), out)

    def test_absent_is_installed_inside(self):
        """Not on this host: installed inside, with the network that takes, and said."""
        out, err = self.cli("probot")
        self.assertEqual(out, "installed\n")
        self.assertIn("agent: network: registry.test", err)
        self.assertIn("installed inside by: mkdir", err)

    def test_what_is_no_preset(self):
        self.program(self.host.top + "/home/odd")
        self.cli("--no-preset", "probot", status=127)
        self.cli("--agent", "nobody", "x", status=125)
        self.cli("--provider", "local", "--agent", "probot", "x", status=2)
        r = self.host.airlock("shell", "--agent", "probot")
        self.assertEqual(r.returncode, 2)
        self.assertIn(b"--agent probot", r.stderr)
        for change in {"what": 1}, {"version": 2}, {"name": "x"}, {"args": "x"}, {"args": [1]}, {"program": "a/b"}, {"upstream": {}}, {"setenv": ["1=2"]}, {"allow": ["*"]}:
            self.preset(dict(PRESET, **change))
            _, err = self.cli("probot", status=2 if "allow" in change else 125)
            self.assertTrue("probot.json" in err or "network rule" in err, err)
        r = self.host.airlock("preset", "list")
        self.assertIn(b"probot", r.stdout)
        self.preset(PRESET)
        r = self.host.airlock("preset", "show", "probot")
        self.assertIn(b"key from BOT_KEY", r.stdout)
        self.assertNotIn(KEY.encode(), r.stdout)
        self.assertEqual(self.host.airlock("preset", "show", "nobody").returncode, 125)
        self.assertEqual(self.host.airlock("preset", "what").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
