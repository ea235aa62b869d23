#!/usr/bin/env python3
"""airlock policy, airlock audit and airlock bridge as a user types them: output, errors, exit statuses.

usage: test_bridge_verbs.py AIRLOCK [TEST...]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from api_box import KEY, Client, request  # noqa: E402
from run_box import DEADLINE, Host  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])


class Verbs(unittest.TestCase):
    def setUp(self):
        d = tempfile.TemporaryDirectory(prefix="airlock-verbs.")
        self.addCleanup(d.cleanup)
        self.dir = d.name
        self.env = dict(os.environ, XDG_STATE_HOME=self.dir + "/state")

    def file(self, name, text):
        path = self.dir + "/" + name
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def airlock(self, *words, status=0):
        """(standard output, standard error)"""
        r = subprocess.run([AIRLOCK, *words], capture_output=True, text=True, timeout=DEADLINE, env=self.env, check=False)
        self.assertEqual(r.returncode, status, (words, r.stdout, r.stderr))
        return r.stdout, r.stderr


class Policy(Verbs):
    def test_list_show_and_check_agree(self):
        out, err = self.airlock("policy", "list")
        self.assertEqual((out.split()[0], err), ("paperclip", ""))
        self.assertEqual(self.airlock("policy")[0], out)
        text, _ = self.airlock("policy", "show", "paperclip")
        routes = len(json.loads(text)["routes"])
        # What is shown is a file that is read as the same policy.
        path = self.file("mine.json", text)
        out, _ = self.airlock("policy", "check", path)
        self.assertIn("%d routes" % routes, out)
        self.assertEqual(json.loads(self.airlock("policy", "show", path)[0]), json.loads(text))

    def test_explain_says_what_the_guard_would_do(self):
        out, _ = self.airlock("policy", "explain", "GET", "/api/agents/me", "--header", "cookie: a=b", "--header", "accept: text/plain")
        self.assertIn("by route GET /api/agents/me of policy paperclip", out)
        self.assertIn("header   accept: text/plain", out)
        self.assertIn("dropped  cookie", out)
        for words, rule in ((("GET", "/api/nothing"), "route.path"), (("PATCH", "/api/agents/me"), "route.method"), (("GET", "/api/../x"), "target.segment"),
                            (("get", "/api/agents/me"), "method.syntax"), (("POST", "/api/issues/i/comments", "--body-size", "11M"), "body.size"),
                            (("GET", "/api/agents/me", "--body-size", "1"), "body.method"),
                            (("GET", "/api/agents/me", "--header", "accept: a", "--header", "accept: b"), "headers.duplicate")):
            out, err = self.airlock("policy", "explain", *words, status=1)
            self.assertIn("by rule %s of policy paperclip" % rule, out)
            self.assertEqual(err, "")
        mine = self.file("mine.json", '{"version":1,"name":"mine","routes":["GET /notes/{id}"]}')
        self.assertIn("by route GET /notes/{id} of policy mine", self.airlock("policy", "explain", "--policy", mine, "GET", "/notes/7")[0])

    def test_mistakes_are_named(self):
        for text, want in (("{", "line 1"), ('{"version":1,"name":"x"}', "routes"), ('{"version":2,"name":"x","routes":[]}', "version"),
                           ('{"version":1,"name":"x","routes":["GET x"]}', "routes[0]"), ('{"version":1,"name":"x","routes":[],"more":1}', "more"),
                           ('{"version":1,"name":"x","name":"y","routes":[]}', "name"),
                           ('{"version":1,"name":"x","routes":[],"request_headers":["cookie"]}', "cookie")):
            path = self.file("bad.json", text)
            for words in ("check", path), ("show", path), ("explain", "--policy", path, "GET", "/x"):
                out, err = self.airlock("policy", *words, status=125)
                self.assertEqual(out, "")
                self.assertIn(want, err)
                self.assertTrue(err.startswith("airlock: ") and err.count("\n") == 1, err)
        for words, want in (("check", self.dir), "not a regular file"), (("check", self.dir + "/none"), "No such file"), (("show", "none"), "none"), \
                (("check", "/dev/zero"), "not a regular file"):
            self.assertIn(want, self.airlock("policy", *words, status=125)[1])
        os.chmod(self.file("open.json", '{"version":1,"name":"x","routes":[]}'), 0o666)
        self.assertIn("open.json", self.airlock("policy", "check", self.dir + "/open.json", status=125)[1])

    def test_wrong_usage_is_2(self):
        for words in (["show"], ["check"], ["explain"], ["explain", "GET"], ["list", "x"], ["nothing"], ["explain", "GET", "/x", "y"], ["--none"],
                      ["explain", "GET", "/x", "--header", "nocolon"], ["explain", "GET", "/x", "--body-size", "many"]):
            self.assertIn("airlock help policy" if "--he" not in str(words) and "--bo" not in str(words) else "wants",
                          self.airlock("policy", *words, status=2)[1])


class Audit(unittest.TestCase):
    def test_audit_shows_what_was_decided_and_counts_it(self):
        api = api_box.Server()
        self.addCleanup(api.server_close)
        self.addCleanup(api.shutdown)
        host = Host(os.path.dirname(AIRLOCK), "airlock-audit.", {"a.txt": b"a\n"})
        self.addCleanup(host.remove)
        with open(host.top + "/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        ask = ('python3 -c \'import os,sys,urllib.request as u\nfor p in sys.argv[1:]:\n try: u.urlopen(u.Request(os.environ["PAPERCLIP_API_URL"]+p,'
               'headers={"authorization":"Bearer "+os.environ["PAPERCLIP_API_KEY"]}),timeout=60).read()\n except u.HTTPError as e: print(e.code)\' ')
        r = host.airlock("run", "--json=" + host.top + "/rec", "--api", api.url, "--api-key-file", host.top + "/key", "--",
                         ask + "/api/agents/me /api/nothing?secret-word /api/issues/i")
        self.assertEqual((r.returncode, r.stdout), (0, b"403\n"), r.stderr)
        self.assertNotIn(b"in no audit line", r.stderr)
        with open(host.top + "/rec", encoding="utf-8") as f:
            rec = json.load(f)
        self.assertEqual((rec["bridge"]["requests"], rec["bridge"]["audit_lost"]), (3, 0))
        r = host.airlock("audit", rec["run"])
        self.assertEqual(r.returncode, 0, r.stderr)
        rows = r.stdout.decode().splitlines()
        self.assertEqual([row.split()[1:3] for row in rows], [["ST", "RULE"], ["200", "allow"], ["403", "route.path"], ["200", "allow"]])
        self.assertIn("GET (no route)", rows[2])
        self.assertIn(b"3 requests, 1 of them refused or failed", r.stderr)
        self.assertNotIn(b"secret-word", r.stdout)
        lines = host.airlock("audit", "--json", "last").stdout
        self.assertEqual([json.loads(l)["status"] for l in lines.splitlines()], [200, 403, 200])
        # Lines that stand for many, and one that a crash cut short.
        path = "%s/runs/%s/audit.jsonl" % (host.state, rec["run"])
        with open(path, "a", encoding="ascii") as f:
            f.write(json.dumps(dict(json.loads(lines.splitlines()[1]), count=70)) + '\n{"time":"20')
        r = host.airlock("audit", rec["run"])
        self.assertTrue(r.stdout.decode().splitlines()[-1].endswith("  x 70"), r.stdout)
        self.assertIn(b"73 requests, 71 of them refused or failed", r.stderr)
        self.assertEqual(len(host.airlock("audit", "--json", rec["run"]).stdout.splitlines()), 4)
        # A link in its place is somebody's doing.
        os.rename(path, path + ".was")
        os.symlink("/etc/passwd", path)
        r = host.airlock("audit", rec["run"])
        self.assertEqual((r.returncode, b"root" in r.stdout), (125, False))
        r = host.airlock("run", "--quiet", "--", "true")
        r = host.airlock("audit", "last")
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"has no audit file", r.stderr)
        for words, status in ([], 2), (["a", "b"], 2), (["--none"], 2), (["nosuchrun"], 125), (["--json", "nosuchrun"], 125):
            r = host.airlock("audit", *words)
            self.assertEqual((r.returncode, r.stdout), (status, b""), words)
            self.assertTrue(r.stderr.startswith(b"airlock: "), words)


class BridgeVerb(Verbs):
    def test_what_is_wrong_is_said_before_anything_starts(self):
        up, at = ["--upstream", "http://127.0.0.1:1"], ["--listen", "127.0.0.1:39999"]
        self.file("short", "short\n")
        self.file("space", "a" * 40 + " b\n")
        self.file("empty", "\n")
        for words, status, want in (
                ([], 2, "--upstream"), (up, 2, "--listen"), (at, 2, "--upstream"), (up + at + ["word"], 2, "word"),
                (up + ["--listen", "1.2.3"], 2, "ADDRESS:PORT"), (up + ["--listen", "localhost:1"], 2, "numeric"), (up + ["--listen", "127.0.0.1:0"], 2, "65535"),
                (up + ["--listen", "127.0.0.1:70000"], 2, "65535"), (up + at + ["--transport", "pigeon"], 2, "pigeon"),
                (at + ["--upstream", "ftp://x"], 125, "ftp://x"), (at + ["--upstream", "http://no-such-name.invalid"], 125, "resolved"),
                (up + at + ["--policy", "none"], 125, "none"), (up + at + ["--credential-file", self.dir + "/none"], 125, "No such file"),
                (up + at + ["--credential-file", self.dir + "/space"], 125, "byte 40"), (up + at + ["--credential-file", self.dir + "/empty"], 125, "empty"),
                (up + at + ["--token-file", self.dir + "/short"], 125, "32")):
            out, err = self.airlock("bridge", *words, status=status)
            self.assertEqual(out, "")
            self.assertIn(want, err)
        # https without authorities to verify it with is no https.
        env = self.env
        self.env = dict(env, SSL_CERT_FILE=self.file("ca.pem", "no certificate\n"))
        self.assertIn("no certificate authorities", self.airlock("bridge", *at, "--upstream", "https://127.0.0.1:1", status=125)[1])
        self.env = env

    def test_a_newcomer_follows_the_document(self):
        """docs/bridge.md, "On its own"."""
        api = api_box.Server()
        self.addCleanup(api.server_close)
        self.addCleanup(api.shutdown)
        key, token, port = self.file("key", KEY + "\n"), self.dir + "/token", api_box.free_port()
        words = [AIRLOCK, "bridge", "--upstream", api.url, "--credential-file", key, "--token-file", token, "--listen", "127.0.0.1:%d" % port]
        for again in range(2):
            p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, text=True)
            self.assertEqual(p.stdout.readline(), "PAPERCLIP_API_URL=http://127.0.0.1:%d\n" % port)
            self.assertEqual(os.stat(token).st_mode & 0o777, 0o600)
            with open(token, encoding="ascii") as f:
                t = f.read().strip()
            c = Client(port)
            for target, want in ("/api/agents/me", 200), ("/api/nothing", 403):
                c.send(request("GET", target, t))
                self.assertEqual(c.answer()[0], want)
            c.close()
            p.send_signal(signal.SIGTERM if again else signal.SIGINT)
            out, err = p.communicate(timeout=DEADLINE)
            self.assertEqual((p.returncode, out), (0, ""), err)
            self.assertIn("2 requests, 1 forwarded, 1 refused, 0 failed", err)
            self.assertNotIn(KEY, err)
            self.assertNotIn(t, err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
