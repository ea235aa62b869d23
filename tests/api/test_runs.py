"""Runs through the API: a command in a sandbox with a workspace of this host, as root and as an ordinary user.

usage: test_runs.py PROGRAMS root|user [TEST...]
"""
import base64
import hashlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import sqlite3
import socket
import subprocess
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import verdicts  # noqa: E402
from daemon_box import DEADLINE, NATIVE, NOBODY, Daemon, Fixture, Watcher, programs, wait_for  # noqa: E402
import scratch  # noqa: E402

PROGRAMS = programs()
UID = 1001 if sys.argv[2:3] == ["user"] and os.geteuid() == 0 else None
d = f = None
top = None


def setUpModule():
    global d, f, top
    top = scratch.directory(prefix="airlock-runs-", dir="/tmp")
    os.chmod(top, 0o755)
    for name in ("all", "one", "outside"):
        os.makedirs(f"{top}/{name}/w")
        with open(f"{top}/{name}/w/file", "w", encoding="ascii") as out:
            out.write("before\n")
    os.symlink(f"{top}/outside", f"{top}/all/link")
    os.symlink("w", f"{top}/all/inner")
    if UID:
        for where, dirs, files in os.walk(top):
            for name in [".", *dirs, *files]:
                os.lchown(f"{where}/{name}", UID, UID)
    d = Daemon(PROGRAMS, "--no-recover", "--workspace-root", f"all={top}/all", start=False, uid=UID)
    d.env["XDG_CONFIG_HOME"] = d.dir + "/config"
    d.env["THINK_KEY"] = "of-the-daemon"
    d.start()
    f = Fixture(d)
    d.options += ["--workspace-root", f"{f.c2}/one={top}/one", "--workspace-root", f"state={d.dir}"]
    d.stop()
    d.start()


def tearDownModule():
    if d:
        d.close()
    shutil.rmtree(top, ignore_errors=True)


class Runs(unittest.TestCase):
    def setUp(self):
        self.env = f.make(self.id().rsplit(".", 1)[1], "sandbox", NATIVE)

    def post(self, body, who="I", env=None):
        return f.ask(who, "POST", f"/api/environments/{(env or self.env)['id']}/runs",
                     {"companyId": f.c1, "workspaceRoot": "all", "workspacePath": "w", **body})

    def start(self, command, **body):
        r = self.post({"command": command, **body})
        self.assertEqual(r.status, 202, r)
        self.assertEqual(r.json["status"], "queued")
        return r.json["id"]

    def get(self, run, who="I"):
        return f.ask(who, "GET", "/api/runs/" + run)

    def end(self, run):
        return wait_for("its end", lambda: (lambda r: r if r["endedAt"] else None)(self.get(run).json))

    def running(self, run):
        return wait_for("its begin", lambda: self.get(run).json["status"] == "running")

    def log(self, run, query="", who="I"):
        """Every event of its log, to the end."""
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=DEADLINE)
        try:
            c.request("GET", f"/api/runs/{run}/log{query}", headers={"Authorization": "Bearer " + f.token[who]})
            r = c.getresponse()
            if r.status != 200:
                return r.status
            got, kind, at = [], None, None
            for line in r:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"id: "):
                    at = line[4:].strip().decode()
                    at = int(at) if at.isdigit() else at  # a member's ids carry a mark
                elif line.startswith(b"data: "):
                    v = json.loads(line[6:])
                    got.append((kind, v["text"].encode() if "text" in v else base64.b64decode(v["base64"]) if "base64" in v else v, at))
            return got
        finally:
            c.close()

    def printed(self, run, word):
        """Waits until its log has that word; it goes on."""
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=DEADLINE)
        try:
            c.request("GET", f"/api/runs/{run}/log", headers={"Authorization": "Bearer " + f.token["I"]})
            r, lines = c.getresponse(), [b""]
            while word not in lines[-1]:
                lines.append(r.readline())
                self.assertTrue(lines[-1], lines)
        finally:
            c.close()

    @staticmethod
    def text(got, kind):
        return b"".join(x for k, x, _ in got if k == kind)

    def content(self, name, where="all/w"):
        try:
            with open(f"{top}/{where}/{name}", "rb") as got:
                return got.read()
        except FileNotFoundError:
            return None

    def test_a_run(self):
        """Out and back: results through door 1, the log byte for byte and in order, events, the record, the same id on the command line."""
        w = Watcher(d, f.token["M"])
        try:
            run = self.start("cat file; printf 'a\\377b'; head -c 100000 /dev/zero | tr '\\0' x; echo err >&2; echo made >new; exit 3")
            got = self.log(run)
            self.assertEqual(got[-1][0], "end")
            self.assertEqual(got[-1][1]["exitStatus"], 3)
            self.assertEqual(self.text(got, "stdout"), b"before\na\xffb" + b"x" * 100000)
            self.assertEqual(self.text(got, "stderr"), b"err\n")
            # From where one was: what is behind it, and no more.
            self.assertEqual(self.log(run, f"?after={got[-2][2]}"), got[-1:])
            end = self.end(run)
            self.assertEqual((end["status"], end["exitStatus"], end["workKept"], end["companyId"]), ("failed", 3, False, f.c1))
            self.assertEqual(self.content("new"), b"made\n")
            self.assertEqual([w.next()["status"] for _ in range(3)], ["queued", "running", "failed"])
        finally:
            w.close()
        self.assertEqual(f.ask("I", "GET", f"/api/runs/{run}/report").json["run"], run)
        self.assertIn(run, d.cli("runs"))
        listed = f.ask("M", "GET", f"/api/environments/{self.env['id']}/runs").json
        self.assertEqual([x["id"] for x in listed], [run])
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, 409)

    def test_limits_and_variables_are_the_environments(self):
        env = f.make("r-vars", "sandbox", {**NATIVE, "pids": 64}, envVars={"SHOWN": "v 1"})
        r = self.post({"command": "echo \"$SHOWN\"; ls /sys/class/net; cat /proc/self/cgroup >/dev/null; ulimit -u"}, env=env)
        self.assertEqual(r.status, 202, r)
        out = self.text(self.log(r.json["id"]), "stdout")
        self.assertTrue(out.startswith(b"v 1\n"), out)
        self.assertNotIn(b"eth", out)
        self.end(r.json["id"])

    def test_a_run_is_told_its_own_place(self):
        """CP-02: its context was chosen by the server; the listing of what there is does not reach it."""
        run = self.start("env | sort; ls -A /; cat /proc/net/tcp /proc/net/unix 2>/dev/null | wc -l")
        out = self.text(self.log(run), "stdout").decode()
        self.end(run)
        v = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        self.assertEqual((v["PAPERCLIP_RUN_ID"], v["PWD"], v["HOME"]), (run, "/workspace", "/home/agent"))
        for word in (self.env["id"], self.env["name"], f.c1, f.c2, d.dir, top, *(t for t in f.token.values() if t), str(d.port)):
            self.assertNotIn(word, out)
        r = d.ask("GET", f"/api/companies/{f.c1}/environments/capabilities", token=f.token["J"])
        self.assertEqual(r.status, 403)

    def test_secrets_reach_the_command_alone(self):
        """Opened when the run starts; in no answer, log, row or argument; who used what is written down. api.md 2.6, 7.4."""
        value = "only-the-command-5f1c\nsecond line"
        path = f"/api/companies/{f.c1}/secrets"
        secret, pinned = (f.ask("I", "POST", path, {"name": n, "value": v}).json["id"] for n, v in (("r-one", "old"), ("r-two", "first-9a")))
        env = f.make("r-secret", "sandbox", NATIVE)
        ref = {"ONE": {"type": "secret_ref", "secretId": secret}, "TWO": {"type": "secret_ref", "secretId": pinned, "version": 1}}
        self.assertEqual(f.patch(env["id"], {"envVars": {"PLAIN": "p", **ref}}).status, 200)
        for i, v in ((secret, value), (pinned, "second-9a")):
            self.assertEqual(f.ask("I", "POST", f"/api/secrets/{i}/versions", {"value": v}).status, 200)
        # The latest, or the one that is pinned; the command shows a digest, so that no value is in its output.
        run = self.post({"command": 'printf "%s|%s|%s" "$PLAIN" "$ONE" "$TWO" | sha256sum; sleep 600'}, env=env).json["id"]
        want = hashlib.sha256(f"p|{value}|first-9a".encode()).hexdigest().encode()
        self.printed(run, want)
        seen = b""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    seen += file.read()
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("airlock"):
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        seen += file.read()
            except OSError:
                continue  # gone meanwhile
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, 200)
        self.end(run)
        seen += repr(self.log(run)).encode() + "".join(d.log).encode()
        for where in (f"runs/{run}", f"runs/{run}/report", f"runs/{run}/changes", f"environments/{env['id']}", f"companies/{f.c1}/activity"):
            seen += f.ask("I", "GET", "/api/" + where).body
        for where, _, names in os.walk(d.dir + "/airlock"):
            for name in names:
                if os.path.isfile(f"{where}/{name}"):
                    with open(f"{where}/{name}", "rb") as file:
                        seen += file.read()
        for word in (b"only-the-command", b"second line", b"first-9a"):
            self.assertNotIn(word, seen)
        con = sqlite3.connect(d.dir + "/airlock/server.db", timeout=DEADLINE)
        used = con.execute("select secret_id,path,version,outcome from secret_events where consumer=? order by path", ("run:" + run,))
        self.assertEqual(used.fetchall(), [(secret, "env.ONE", "2", "resolved"), (pinned, "env.TWO", "1", "resolved")])

    def test_case_93_warm_needs_a_reusable_lease(self):
        """Refused before there is a row; per turn, or with a lease that can be used again, it is a run like others."""
        path = f"/api/environments/{self.env['id']}?companyId={f.c1}"
        self.assertEqual(f.ask("I", "PATCH", path, {"config": {"runnerLifecycleMode": "warm"}}).status, 200)
        r = self.post({"command": "true"})
        self.assertEqual((r.status, r.json["code"]), (422, "runner_warm_lifecycle_requires_reusable_provider_lease"))
        self.assertEqual(f.ask("I", "GET", f"/api/environments/{self.env['id']}/runs").json, [])
        self.assertEqual(f.ask("I", "PATCH", path, {"config": {"reuseLease": True}}).status, 200)
        self.assertEqual(self.end(self.start("true"))["status"], "succeeded")

    def test_secrets_that_are_not_bound(self):
        """Refused before it waits; when its turn comes, before the first one is opened."""
        a, b = (f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": n, "value": "v"}).json["id"] for n in ("r-bound", "r-gone"))
        env = f.make("r-unbound", "sandbox", NATIVE)
        refs = {n: {"type": "secret_ref", "secretId": i} for n, i in (("A", a), ("B", b))}
        self.assertEqual(f.patch(env["id"], {"envVars": refs}).status, 200)
        r = self.post({"command": "true", "workspaceRoot": "one", "companyId": f.c2}, env=env)
        self.assertEqual((r.status, r.json["code"], r.json["details"]["variable"]), (422, "secret_binding_missing", "A"))
        r = self.post({"command": "echo ran >>ran"}, env=env)
        self.assertEqual(self.end(r.json["id"])["status"], "succeeded", r)
        con = sqlite3.connect(d.dir + "/airlock/server.db", timeout=DEADLINE)
        self.assertEqual(f.ask("I", "DELETE", "/api/secrets/" + b).status, 200)
        r2 = self.post({"command": "true"}, env=env)
        self.assertEqual((r2.status, r2.json["details"]["variable"]), (422, "B"))
        # The same run again, as a job finds one that waited while the secret went.
        run = r.json["id"]
        con.execute("update env_runs set status='queued', started_ns=0, ended_ns=0 where id=?", (run,))
        con.execute("delete from secret_events")
        con.commit()
        with d.job({"op": "run", "runId": run, "companyId": f.c1, "environmentId": env["id"], "actor": "user:x", "driver": "sandbox",
                    "root": top + "/all", "path": "w", "command": "echo again >>ran", "timeoutSeconds": 60, "review": False,
                    "config": NATIVE, "envVars": refs}) as p:
            self.assertEqual(json.load(p.stdout), {"ok": True})
        row = self.get(run).json
        self.assertEqual((row["status"], row["reason"], row["exitStatus"]), ("failed", "secret_binding_missing", None))
        self.assertEqual(con.execute("select count(*) from secret_events").fetchone(), (0,))
        self.assertEqual(self.content("ran"), b"ran\n")
        os.unlink(f"{top}/all/w/ran")

    def test_local_is_said_aloud(self):
        """B-09: commands on this host only where the daemon was told so; in place, and its record says that nothing isolates it."""
        env = f.ask("I", "GET", f"/api/companies/{f.c1}/environments?driver=local").json[0]
        r = self.post({"command": "echo never >local"}, env=env)
        self.assertEqual(r.status, 422)
        self.assertIn("--local-runs", r.json["error"])
        box = Daemon(PROGRAMS, "--local-runs", "--workspace-root", f"all={top}/all", uid=UID)
        try:
            g = Fixture(box)
            env = g.ask("I", "GET", f"/api/companies/{g.c1}/environments?driver=local").json[0]
            path, body = f"/api/environments/{env['id']}/runs", {"companyId": g.c1, "workspaceRoot": "all", "workspacePath": "w"}
            for who in "NAJMVU":
                self.assertEqual(g.ask(who, "POST", path, {**body, "command": "echo never >local"}).status, 403)
            self.assertEqual(g.ask("I", "POST", path, {**body, "command": "true", "review": True}).status, 422)
            run = g.ask("I", "POST", path, {**body, "command": "pwd >local; id -u >>local; exit 3"}).json["id"]
            row = wait_for("its end", lambda: (lambda r: r if r["endedAt"] else None)(g.ask("I", "GET", "/api/runs/" + run).json))
            self.assertEqual((row["status"], row["exitStatus"]), ("failed", 3))
            self.assertEqual(self.content("local").decode().split(), [top + "/all/w", str(UID or os.geteuid())])
            self.assertIs(g.ask("I", "GET", f"/api/runs/{run}/report").json["isolation"]["isolated"], False)
            # A cancel ends its whole tree.
            run = g.ask("I", "POST", path, {**body, "command": "sleep 600 & echo $! >local; wait"}).json["id"]
            pid = wait_for("its child", lambda: self.content("local").strip().isdigit() and int(self.content("local")))
            self.assertEqual(g.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, 200)
            row = wait_for("its end", lambda: (lambda r: r if r["endedAt"] else None)(g.ask("I", "GET", "/api/runs/" + run).json))
            self.assertEqual(row["status"], "cancelled")
            wait_for("no child", lambda: not os.path.exists(f"/proc/{pid}"))
        finally:
            box.close()
            os.unlink(f"{top}/all/w/local")

    def test_presets(self):
        """An agent CLI by its preset: the key of its model is a secret of the company and stays outside, in every sense. B-05, S2-03."""
        asked = []

        class Model(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append((self.path, self.headers.get("x-api-key") or self.headers.get("Authorization"), body))
                self.send_response(200)
                self.send_header("Content-Length", "7")
                self.end_headers()
                self.wfile.write(b"thought")

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        agents = d.env["XDG_CONFIG_HOME"] + "/airlock/agents"
        os.makedirs(agents, exist_ok=True)
        with open(d.dir + "/thinker", "w", encoding="ascii") as out:
            out.write("#!/bin/sh\necho \"words: $*\"\nexec python3 -c '\nimport os, urllib.request\nr = urllib.request.Request("
                      "os.environ[\"THINK_URL\"] + \"/v1/messages\", b\"{}\", {\"Authorization\": \"Bearer \" + os.environ[\"THINK_KEY\"], "
                      "\"x-api-key\": os.environ[\"THINK_KEY\"], \"Content-Type\": \"application/json\"})\n"
                      "print(urllib.request.urlopen(r, timeout=60).read().decode())'\n")
        os.chmod(d.dir + "/thinker", 0o755)

        def preset(**more):
            with open(agents + "/think.json", "w", encoding="ascii") as out:
                json.dump({"version": 1, "name": "think", "program": "thinker", "places": [d.dir + "/thinker"], "args": ["it's", "--deep"],
                           "prepare": "prepared=yes", "install": "exit 1", "install_allow": ["example.com"],
                           "upstream": {"url": f"http://127.0.0.1:{server.server_port}", "policy": "anthropic", "url_env": "THINK_URL",
                                        "key_env": ["THINK_KEY", "THINK_OTHER_KEY"], "token_env": ["THINK_KEY"]}, **more}, out)

        preset()
        key = "the-companys-own-key-77"
        secret = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "r-model", "value": key}).json["id"]
        body = {"preset": "think", "command": "think a 'b c' | tee told; echo \"$prepared\"; env; curl -sS -m 5 http://example.com"}
        for name, status in (("absent", 422), ("../think", 422), ("", 400), ("x" * 61, 400)):
            self.assertEqual(self.post({**body, "preset": name}).status, status, name)
        # Without a key of its own: not the daemon's, which may be anybody's.
        r = self.post(body)
        row = self.end(r.json["id"])
        self.assertEqual((row["status"], row["reason"]), ("failed", "preset_failed"))
        self.assertEqual(asked, [])
        self.assertEqual(f.patch(self.env["id"], {"envVars": {"THINK_OTHER_KEY": {"type": "secret_ref", "secretId": secret}, "PLAIN": "p"}}).status, 200)
        run = self.post(body).json["id"]
        got = self.log(run)
        out = self.text(got, "stdout").decode()
        self.assertEqual(self.end(run)["status"], "failed")  # of the curl: presets open no network that the environment does not give
        self.assertTrue(out.startswith("words: it's --deep a b c\nthought\nyes\n"), got)
        self.assertEqual(asked, [("/v1/messages", key, b"{}")])
        v = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        self.assertEqual((v["PLAIN"], "THINK_OTHER_KEY" in v), ("p", False))
        seen = repr(got).encode() + f.ask("I", "GET", f"/api/runs/{run}/report").body + "".join(d.log).encode()
        for where, _, names in os.walk(d.dir + "/airlock"):
            for name in names:
                if os.path.isfile(f"{where}/{name}"):
                    with open(f"{where}/{name}", "rb") as file:
                        seen += file.read()
        self.assertNotIn(key.encode(), seen)
        self.assertEqual(self.content("told"), b"words: it's --deep a b c\nthought\n")
        os.unlink(f"{top}/all/w/told")
        # The same from a shell, by its first word.
        asked.clear()
        d.env |= {"AIRLOCK_TOKEN": f.token["I"], "AIRLOCK_COMPANY": "C1"}
        try:
            r = d.cli("run", "-q", "--env", self.env["name"], "--workspace", f"{top}/all/w", "think", "a", "b c", ok=False)
        finally:
            del d.env["AIRLOCK_TOKEN"], d.env["AIRLOCK_COMPANY"]
        self.assertEqual((r.returncode, r.stdout), (0, "words: it's --deep a b c\nthought\n"), r.stderr)
        self.assertEqual(asked, [("/v1/messages", key, b"{}")])
        # The network is the environment's.
        preset(allow=["example.com"])
        self.assertEqual(self.end(self.post(body).json["id"])["reason"], "preset_failed")

    def test_log_as_it_comes(self):
        """A lone watcher gets what is printed when it is, not when something else happens."""
        run = self.start("echo first; while [ ! -e seen ]; do sleep 0.1; done; echo second")
        lines = []
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
        try:
            c.request("GET", f"/api/runs/{run}/log", headers={"Authorization": "Bearer " + f.token["I"]})
            r = c.getresponse()
            while b"first" not in (lines or [b""])[-1]:
                lines.append(r.readline())
        finally:
            c.close()
            f.ask("I", "POST", f"/api/runs/{run}/cancel", {})
        # Before the sign of life that comes every 15 seconds anyway.
        self.assertNotIn(b":\n", lines)
        self.end(run)

    def test_time_out_and_cancel(self):
        run = self.start("echo kept >timed; sleep 600", timeoutSeconds=3)
        self.assertEqual(self.end(run)["status"], "timed_out")
        self.assertEqual(self.content("timed"), b"kept\n", f.ask("I", "GET", f"/api/runs/{run}/report").body)
        run = self.start("echo kept >cancelled; echo rea''dy; sleep 600")
        wait_for("it to speak", lambda: b"ready" in self.raw_log(run))
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, 200)
        end = self.end(run)
        self.assertEqual((end["status"], end["reason"]), ("cancelled", "cancelled"))
        self.assertEqual(self.content("cancelled"), b"kept\n", f.ask("I", "GET", f"/api/runs/{run}/report").body)

    def test_cancelled_twice(self):
        """Who says it again says the same: what was made comes back all the same."""
        run = self.start("trap '' TERM; mkdir two; i=0; while [ $i -lt 200 ]; do echo $i >two/$i; i=$((i+1)); done; echo rea''dy; sleep 600")
        wait_for("it to speak", lambda: b"ready" in self.raw_log(run))
        for _ in range(3):
            self.assertIn(f.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, (200, 409))
        os.kill(self.owner(run), signal.SIGTERM)
        end = self.end(run)
        self.assertEqual((end["status"], end["workKept"]), ("cancelled", False), d.log[-5:])
        self.assertEqual(self.content("two/199"), b"199\n")

    def owner(self, run):
        con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
        try:
            return con.execute("select owner_pid from env_runs where id=?", (run,)).fetchone()[0]
        finally:
            con.close()

    def test_much_in_an_environment(self):
        """What an environment may hold, a run of it may have."""
        env = f.make("r-much", "sandbox", NATIVE, envVars={f"V{i}": chr(1) * 700 + "x" * 100 if i % 2 else "y" * 800 for i in range(40)})
        r = self.post({"command": "echo ${#V0} ${#V1}"}, env=env)
        self.assertEqual(r.status, 202, r)
        self.assertEqual(self.text(self.log(r.json["id"]), "stdout"), b"800 800\n")
        self.end(r.json["id"])

    def test_deleting_an_environment(self):
        """CF-01: open runs are part of what a deletion hits; it needs consent, which is for them alone, and cancels them first."""
        run, path = self.start("echo kept >deleted; echo rea''dy; sleep 600"), f"/api/environments/{self.env['id']}"
        wait_for("it to speak", lambda: b"ready" in self.raw_log(run))
        blast = f.ask("I", "GET", path + "/delete-blast-radius").json
        self.assertEqual((blast["canDelete"], blast["deleteBlockedReasons"], blast["activeRuntimeUse"]["openRunCount"]), (False, ["open_runs"], 1))
        for query in ("", "?cancelOpenRuns=yes", "?destroyReusableSandboxLeases=true"):
            r = f.ask("I", "DELETE", path + query)
            self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["open_runs"]), query)
        lease = f.ask("I", "POST", path + "/leases", {"companyId": f.c1, "leasePolicy": "reuse_by_environment"})
        self.assertEqual(lease.status, 201, lease)
        r = f.ask("I", "DELETE", path + "?cancelOpenRuns=true")
        self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["reusable_sandbox_lease", "open_runs"]))
        self.assertEqual(self.get(run).json["status"], "running")
        r = f.ask("I", "DELETE", path + "?cancelOpenRuns=true&destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json["destroyedReusableSandboxLeaseCount"]), (200, 1), r)
        end = self.end(run)
        self.assertEqual((end["status"], end["environmentId"]), ("cancelled", None))
        self.assertEqual(self.content("deleted"), b"kept\n")

    def raw_log(self, run):
        try:
            with open(f"{d.dir}/airlock/runs/{run}/log", "rb") as got:
                return got.read()
        except FileNotFoundError:
            return b""

    def test_review_waits(self):
        run = self.start("echo reviewed >waits", review=True)
        self.assertEqual(self.end(run)["status"], "succeeded")
        self.assertIsNone(self.content("waits"))
        self.assertIn("waits", d.cli("diff", run))
        d.cli("apply", run)
        self.assertEqual(self.content("waits"), b"reviewed\n")

    def results(self, run, what, body=None, who="I", query=""):
        return f.ask(who, "GET" if body is None else "POST", f"/api/runs/{run}/{what}{query}", body)

    def test_results_over_http(self):
        """List, diff, apply by paths, apply of the rest, discard: what waits, and what the activity log says of it."""
        run = self.start("mkdir sub; echo 1 >sub/one; echo 2 >sub/two; echo changed >>file; printf 'a\\033[31mb\\n' >red; "
                         "printf '#!/bin/sh\\n' >.envrc", review=True)
        before = self.content("file")
        self.assertEqual(self.results(run, "changes").status, 409)
        self.assertEqual(self.results(run, "apply", {}).status, 409)
        self.assertEqual(self.end(run)["status"], "succeeded")
        got = self.results(run, "changes")
        self.assertEqual(got.status, 200, got)
        self.assertEqual(got.json["runId"], run)
        self.assertTrue(got.json["waiting"])
        files = {x["path"]: x for x in got.json["changes"]}
        self.assertLessEqual({"file", "sub/one", "sub/two", "red", ".envrc"}, set(files))
        self.assertEqual((files["file"]["status"], files["sub/one"]["status"], files["file"]["added_lines"]), ("M", "A", 1))
        self.assertTrue(files[".envrc"]["host_executable"])
        self.assertNotIn(top.encode(), got.body)
        page = self.results(run, "changes", query="?limit=1&offset=1")
        self.assertEqual([x["path"] for x in page.json["changes"]], [got.json["changes"][1]["path"]])
        self.assertEqual(page.headers["x-total-count"], str(len(got.json["changes"])))
        below = self.results(run, "changes", query="?path=sub").json["changes"]
        self.assertEqual({x["path"] for x in below if x["new_mode"] != "040000"}, {"sub/one", "sub/two"})
        diff = self.results(run, "diff")
        self.assertTrue(diff.headers["content-type"].startswith("text/plain"))
        self.assertIn(b"+changed\n", diff.body)
        self.assertNotIn(b"\033", diff.body)
        self.assertIn(b"^[[31m", diff.body)
        self.assertIn(b"the host runs this file by itself", diff.body)
        self.assertNotIn(b"sub/one", self.results(run, "diff", query="?path=file").body)
        # Nothing is written by a dry run, nor where a path names nothing; no path leaves the workspace.
        r = self.results(run, "apply", {"dryRun": True})
        self.assertEqual((r.status, r.json["done"]), (200, True), r)
        self.assertEqual(self.results(run, "apply", {"paths": ["sub/one", "absent"]}).status, 422)
        for bad in (["../outside/w/file"], ["/etc/passwd"], ["sub/../file"], [""], [1], [], "sub", ["x"] * 1001):
            self.assertEqual(self.results(run, "apply", {"paths": bad}).status, 400, bad)
        for query in ("?path=../w", "?path=/", "?limit=0"):
            self.assertEqual(self.results(run, "changes", query=query).status, 400, query)
        self.assertEqual((self.content("sub/one"), self.content("file")), (None, before))
        # In parts: one directory, then all that is left; a conflict stays.
        r = self.results(run, "apply", {"paths": ["sub"]})
        self.assertEqual(r.status, 200, r)
        self.assertEqual((self.content("sub/one"), self.content("file")), (b"1\n", before))
        with open(f"{top}/all/w/file", "wb") as out:
            out.write(b"theirs\n")
        r = self.results(run, "apply", {})
        self.assertEqual((r.status, r.json["left"]), (200, 1), r)
        self.assertEqual((self.content("red"), self.content("file")), (b"a\033[31mb\n", b"theirs\n"))
        left = self.results(run, "changes").json["changes"]
        self.assertEqual([(x["path"], x["conflict"]) for x in left], [("file", True)])
        r = self.results(run, "apply", {"onConflict": "take-sandbox"})
        self.assertEqual((r.status, r.json["left"]), (200, 0), r)
        self.assertEqual(self.content("file"), b"before\nchanged\n")
        got = self.results(run, "changes").json
        self.assertEqual((got["waiting"], got["decided"]), (False, "applied"))
        self.assertFalse(self.results(run, "discard", {}).json["done"])
        with open(f"{top}/all/w/file", "wb") as out:
            out.write(b"before\n")
        said = [x["action"] for x in f.ask("I", "GET", f"/api/companies/{f.c1}/activity?limit=50").json if x["entityId"] == run]
        self.assertEqual(said, ["environment.run_changes_applied"] * 3 + ["environment.run_started"])

    def test_results_whose_names_are_no_text(self):
        """Names are bytes: listed, shown and taken as base64, alone or with others; what is no member path is refused."""
        run = self.start(r"""printf 'odd\n' >"$(printf 'odd-\377')"; mkdir "$(printf 'd\376')"; echo in >"$(printf 'd\376/x')"; echo 1 >plain""", review=True)
        self.assertEqual(self.end(run)["status"], "succeeded")
        where = os.fsencode(f"{top}/all/w/")

        def b64(name):
            return base64.b64encode(name).decode()

        waits = {x.get("path_b64") or x["path"] for x in self.results(run, "changes").json["changes"]}
        self.assertLessEqual({b64(b"odd-\xff"), b64(b"d\xfe/x"), "plain"}, waits)
        ask = "?pathBase64=" + urllib.parse.quote(b64(b"d\xfe"), safe="")
        self.assertEqual({x["path_b64"] for x in self.results(run, "changes", query=ask).json["changes"] if x["new_mode"] != "040000"},
                         {b64(b"d\xfe/x")})
        self.assertIn(b"+in\n", self.results(run, "diff", query=ask).body)
        for bad in (b"../outside/w/file", b"/etc/passwd", b"", b"a\0b", b"\xff/../../file"):
            self.assertEqual(self.results(run, "apply", {"pathsBase64": [b64(bad)]}).status, 400, bad)
        for bad in ("x", "%%%", b64(b"odd-\xff") + "!", b64(b"odd-\xff") + "\n"):
            self.assertEqual(self.results(run, "apply", {"pathsBase64": [bad]}).status, 400, bad)
        self.assertEqual(self.results(run, "changes", query=ask + "&path=d").status, 400)
        r = self.results(run, "apply", {"paths": ["plain"], "pathsBase64": [b64(b"odd-\xff"), b64(b"odd-\xfe")]})
        self.assertEqual((r.status, r.json["error"]), (422, "pathsBase64[1] names nothing that waits"))
        self.assertFalse(os.path.exists(where + b"plain"))
        self.assertEqual(self.results(run, "apply", {"paths": ["plain"], "pathsBase64": [b64(b"odd-\xff")]}).status, 200)
        with open(where + b"odd-\xff", "rb") as got:
            self.assertEqual(got.read(), b"odd\n")
        self.assertTrue(os.path.exists(where + b"plain"))
        self.assertFalse(os.path.exists(where + b"d\xfe"))
        self.assertEqual(self.results(run, "apply", {}).json["left"], 0)
        self.assertTrue(os.path.exists(where + b"d\xfe/x"))
        for name in (b"odd-\xff", b"plain"):
            os.unlink(where + name)
        shutil.rmtree(where + b"d\xfe")

    def test_results_that_are_dropped_or_out_of_reach(self):
        run = self.start("echo x >dropped", review=True)
        self.end(run)
        for who in "NAJMVU":
            for what, body in (("changes", None), ("diff", None), ("apply", {}), ("discard", {})):
                r = self.results(run, what, body, who)
                self.assertEqual((r.status, r.body), (403, self.results("0" * 16, what, body, who).body), (who, what))
        # A directory that is not the one any more is as good as none; what is put back is there again.
        os.rename(f"{top}/all/w", f"{top}/all/away")
        os.symlink("away", f"{top}/all/w")
        try:
            for what, body in (("changes", None), ("diff", None), ("apply", {})):
                self.assertEqual(self.results(run, what, body).status, 404, what)
        finally:
            os.unlink(f"{top}/all/w")
            os.rename(f"{top}/all/away", f"{top}/all/w")
        self.assertEqual([x["path"] for x in self.results(run, "changes").json["changes"]], ["dropped"])
        r = self.results(run, "discard", {})
        self.assertEqual((r.status, r.json), (200, {"runId": run, "done": True}))
        self.assertEqual(self.results(run, "apply", {}).json["done"], False)
        self.assertIsNone(self.content("dropped"))
        # What was published is shown too.
        run = self.start("echo x >published")
        self.end(run)
        got = self.results(run, "changes").json
        self.assertEqual((got["waiting"], [x["path"] for x in got["changes"]]), (False, ["published"]))

    def test_which_directories(self):
        """B-05: a root that the operator named and what lies below it; one answer for all else, and nothing of the daemon's own."""
        said = set()
        for body in ({"workspaceRoot": "none"}, {"workspacePath": "absent"}, {"workspacePath": "w/file"}, {"workspacePath": "link"},
                     {"workspacePath": "link/w"}, {"workspacePath": "inner"}, {"workspacePath": "../outside"}, {"workspacePath": "/etc"},
                     {"workspacePath": "w/../w"}, {"workspacePath": "."}, {"workspacePath": "w//"}, {"workspaceRoot": "one"},
                     {"workspaceRoot": f"{f.c2}/one"}, {"workspaceRoot": "state", "workspacePath": "airlock"},
                     {"workspaceRoot": "state", "workspacePath": ""}, {"workspaceRoot": "state", "workspacePath": "airlock/runs"}):
            r = self.post({"command": "true", **body})
            self.assertEqual(r.status, 404, body)
            said.add(r.body)
        self.assertEqual(len(said), 1)
        r = self.post({"command": "true", "workspaceRoot": "one", "companyId": f.c2})
        self.assertEqual(r.status, 202, r)
        self.assertEqual(self.end(r.json["id"])["status"], "succeeded")
        # And again by the job: what changed in between is not followed.
        os.mkdir(f"{top}/all/swap")
        job = d.job({"op": "run", "runId": self.row("swap"), "root": f"{top}/all", "path": "link", "command": "echo x >bad",
                     "timeoutSeconds": 60, "review": False, "config": NATIVE, "envVars": {}})
        job.stdout.read()
        job.wait(timeout=DEADLINE)
        job.stdout.close()
        self.assertIsNone(self.content("bad", "outside"))

    def row(self, path):
        """A queued run that no daemon has started."""
        run = "0123456789abcdef"
        con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
        con.execute("insert into env_runs(id,company_id,environment_id,root,path,command,review,timeout_s,status,owner_pid,created_ns) "
                    "values(?,?,?,'all',?,'true',0,60,'queued',0,1)", (run, f.c1, self.env["id"], path))
        con.commit()
        con.close()
        return run

    def test_who_may_and_what_for(self):
        run = self.start("true")
        self.end(run)
        for who, status in (("N", 403), ("A", 403), ("J", 403), ("M", 403), ("V", 403), ("U", 403)):
            self.assertEqual(self.post({"command": "true"}, who).status, status, who)
            self.assertEqual(f.ask(who, "POST", f"/api/runs/{run}/cancel", {}).status, status, who)
            self.assertEqual(f.ask(who, "GET", f"/api/runs/{run}/report").status, status, who)
        r = self.post({"command": "true", "workspaceRoot": "one", "companyId": f.c2})
        theirs = r.json["id"]
        self.end(theirs)
        # Another company's is as one that is not there.
        for path in ("", "/log"):
            self.assertEqual(f.ask("M", "GET", f"/api/runs/{theirs}{path}").body, f.ask("M", "GET", f"/api/runs/{'0' * 16}{path}").body)
            self.assertEqual(f.ask("M", "GET", f"/api/runs/{theirs}{path}").status, 404)
        for bad in ("x", "0" * 17, "%2e%2e", "..%2f", NOBODY):
            self.assertIn(self.get(bad).status, (400, 404), bad)
        for body, status in (({"command": ""}, 400), ({"command": "x", "bogus": 1}, 400), ({"command": "x", "timeoutSeconds": 0}, 400),
                             ({"command": "x" * 16385}, 400), ({"command": 1}, 400), ({"command": "true", "companyId": NOBODY}, 404)):
            self.assertEqual(self.post(body).status, status, body)
        self.assertEqual(self.log(run, "?after=x"), 400)
        archived = f.make("r-arch", "sandbox", NATIVE, status="archived")
        self.assertEqual(self.post({"command": "true"}, env=archived).status, 409)

    def test_turns(self):
        """Eight at once; what waits is cancelled without having begun, and leases are not held up by runs."""
        many = [self.start("sleep 600") for _ in range(10)]
        try:
            wait_for("eight", lambda: sum(self.get(x).json["status"] == "running" for x in many) == 8)
            self.assertEqual([self.get(x).json["status"] for x in many[8:]], ["queued"] * 2)
            self.assertEqual(f.ask("I", "POST", f"/api/runs/{many[9]}/cancel", {}).json["status"], "cancelled")
            lease = f.ask("I", "POST", f"/api/environments/{self.env['id']}/leases", {"companyId": f.c1})
            self.assertEqual(lease.status, 201, lease)
            self.assertEqual(f.ask("I", "DELETE", "/api/environment-leases/" + lease.json["id"]).status, 200)
        finally:
            for x in many:
                f.ask("I", "POST", f"/api/runs/{x}/cancel", {})
        self.assertEqual({self.end(x)["status"] for x in many}, {"cancelled"})
        self.assertEqual(self.log(many[9]), [])

    def test_what_waits_meets_the_environment_of_now(self):
        """api.md 7.4: archived meanwhile, it does not begin; edited, it gets what there is now; with another driver it was asked for something else."""
        other = [f.make(f"wait {i}", "sandbox", NATIVE, envVars={"WORD": "then"}) for i in range(3)]
        busy = [self.start("sleep 31337.3") for _ in range(8)]
        for run in busy:
            self.running(run)
        waits = []
        for env in other:
            r = self.post({"command": "printenv WORD >word-of-now"}, env=env)
            self.assertEqual(r.status, 202, r)
            waits.append(r.json["id"])
        path = [f"/api/environments/{env['id']}?companyId={f.c1}" for env in other]
        self.assertEqual(f.ask("I", "PATCH", path[0], {"status": "archived"}).status, 200)
        self.assertEqual(f.ask("I", "PATCH", path[1], {"driver": "ssh", "config": {"host": "h", "username": "u", "remoteWorkspacePath": "/w"}}).status, 200)
        self.assertEqual(f.ask("I", "PATCH", path[2], {"envVars": {"WORD": "now"}}).status, 200)
        for run in busy:
            f.ask("I", "POST", f"/api/runs/{run}/cancel")
        got = [self.end(run) for run in waits]
        self.assertEqual([(r["status"], r["reason"]) for r in got],
                         [("failed", "environment_inactive"), ("failed", "environment_changed"), ("succeeded", None)])
        self.assertEqual(self.content("word-of-now"), b"now\n")
        for run in busy:
            self.end(run)

    def test_a_member_comes_back_to_ids_that_were_given(self):
        """B-08: no place in the middle of what a command printed, whose bytes would be read as records of Airlock's own."""
        run = self.start("echo one; echo two >&2")
        self.end(run)
        for who in "MI":
            got = self.log(run, who=who)
            at = [x[0] for x in got].index("stdout")
            self.assertEqual(self.log(run, f"?after={got[at][2]}", who=who), got[at + 1:])
        n, mark = str([x[2] for x in self.log(run, who="M")][0]).split(".")
        for bad in (n, n + ".", f"{n}.{mark[:-1]}", f"{int(n) + 1}.{mark}", f"{n}.{'0' * 32}", "9" * 30):
            self.assertEqual(self.log(run, "?after=" + bad, who="M"), 400, bad)
        self.assertEqual(self.log(run, "?after=0", who="M"), self.log(run, who="M"))

    def test_a_watcher_who_leaves_the_company(self):
        """Its log ends for him, as the run does not exist for him any more; another company's member he may be."""
        run = self.start("echo rea''dy; sleep 600")
        d.cli("user", "join", "viewer", "--company", "C2")
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=DEADLINE)
        try:
            c.request("GET", f"/api/runs/{run}/log", headers={"Authorization": "Bearer " + f.token["V"]})
            r = c.getresponse()
            self.assertEqual(r.status, 200)
            d.cli("user", "leave", "viewer", "--company", "C1")
            self.assertNotIn(b"event: end", r.read())
            self.assertEqual(self.get(run).json["status"], "running")
            self.assertEqual(self.get(run, "V").status, 404)
        finally:
            c.close()
            d.cli("user", "join", "viewer", "--company", "C1", "--role", "viewer")
            d.cli("user", "leave", "viewer", "--company", "C2")
            f.ask("I", "POST", f"/api/runs/{run}/cancel", {})
        self.end(run)

    def test_places_of_adopted_runs(self):
        """Runs that a daemon before this one started take their places of the eight."""
        many = [self.start("sleep 600") for _ in range(3)]
        for x in many:
            self.running(x)
        d.process.kill()
        d.process.wait(timeout=DEADLINE)
        d.start()
        try:
            # Their owner is the next daemon's to know: turns are fair.
            con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
            admin = con.execute("select id from users where name='admin'").fetchone()[0]
            self.assertEqual({con.execute("select user_id from env_runs where id=?", (x,)).fetchone()[0] for x in many}, {admin})
            con.close()
            many += [self.start("sleep 600") for _ in range(6)]
            wait_for("eight", lambda: sum(self.get(x).json["status"] == "running" for x in many) == 8)
            self.assertEqual(self.get(many[8]).json["status"], "queued")
            # An adopted one that ends makes room.
            f.ask("I", "POST", f"/api/runs/{many[0]}/cancel", {})
            self.running(many[8])
        finally:
            for x in many:
                f.ask("I", "POST", f"/api/runs/{x}/cancel", {})
        self.assertEqual({self.end(x)["status"] for x in many}, {"cancelled"})

    def test_one_broken_lease(self):
        """A lease that cannot be dealt with holds up no other: it is told, and the next one is recovered."""
        broken, lost = (self.start("echo rescued >broke; echo rea''dy; sleep 600") for _ in range(2))
        for run in (broken, lost):
            wait_for("it to speak", lambda run=run: b"ready" in self.raw_log(run))
        pids = [self.owner(broken), self.owner(lost)]
        con = sqlite3.connect(f"{d.dir}/airlock/airlock.db", timeout=DEADLINE)
        spec = con.execute("select spec from leases where id=(select lease_id from runs where id=?)", (broken,)).fetchone()[0]

        def put(text):
            con.execute("update leases set spec=? where id=(select lease_id from runs where id=?)", (text, broken))
            con.commit()
        put("{")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        try:
            end = self.end(lost)
            self.assertEqual((end["status"], end["workKept"]), ("interrupted", True))
            self.assertEqual(self.get(broken).json["status"], "running")
            wait_for("it to be told", lambda: any("could not be dealt with" in line for line in d.log))
        finally:
            put(spec)
            con.close()
        d.stop()
        d.start()
        end = self.end(broken)
        self.assertEqual((end["status"], end["workKept"]), ("interrupted", True))
        d.cli("recover", broken)
        self.assertEqual(self.content("broke"), b"rescued\n")

    def test_a_daemon_that_is_killed(self):
        """It goes on without the daemon, and the next one shows its end; one whose process is killed too is kept, and said so."""
        run = self.start("echo survived >after; while [ ! -e go ]; do sleep 0.1; done")
        lost = self.start("echo rescued >found; echo rea''dy; sleep 600")
        self.running(run)
        wait_for("the other to speak", lambda: b"ready" in self.raw_log(lost))
        con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
        pids = dict(con.execute("select id, owner_pid from env_runs where status='running'").fetchall())
        con.close()
        # Its log stays open as long as a run has it.
        d.process.kill()
        d.process.wait(timeout=DEADLINE)
        os.kill(pids[lost], signal.SIGKILL)
        d.start()
        end = self.end(lost)
        self.assertEqual((end["status"], end["reason"], end["workKept"]), ("interrupted", "owner_died", True))
        self.assertEqual(self.get(run).json["status"], "running")
        d.cli("recover", lost)
        self.assertEqual(self.content("found"), b"rescued\n")
        # The daemon hears of that when it is asked for the same.
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{lost}/recover", {}).status, 404)
        self.assertFalse(self.get(lost).json["workKept"])
        self.assertTrue(any(lost in line and "airlock recover" in line for line in d.log), d.log)
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/cancel", {}).status, 200)
        self.assertEqual(self.end(run)["status"], "cancelled")
        self.assertEqual(self.content("after"), b"survived\n")

    def test_commits_that_wait_are_shown_S1_04(self):
        """An apply brings what commits have, also where no file shows it: the list and the patch name them, as `airlock diff` does."""
        where = f"{top}/all/committed"
        os.makedirs(where)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", where]
        for words in (["init", "-q"], ["commit", "-qm", "1", "--allow-empty"]):
            subprocess.run(git + words, check=True)
        if UID:
            for at, dirs, files in os.walk(where):
                for name in [".", *dirs, *files]:
                    os.lchown(f"{at}/{name}", UID, UID)
        end = self.end(self.start("echo evil >hidden && git add hidden && git -c user.name=t -c user.email=t@t commit -qm 'only docs' && rm hidden",
                                  workspacePath="committed", review=True))
        self.assertEqual(end["status"], "succeeded", d.log[-3:])
        got = self.results(end["id"], "changes").json
        self.assertEqual((got["total"], got["commitsWait"]), (0, True), got)
        self.assertRegex("\n".join(got["commits"]), r"^commit [0-9a-f]+ only docs\nmissing hidden$")
        shown = [line[len("# airlock: "):] for line in self.results(end["id"], "diff").body.decode().splitlines()]
        self.assertEqual(shown[1:], got["commits"])
        self.assertIn("an apply of all of it brings them too", shown[0])
        self.assertEqual(d.cli("diff", end["id"]).splitlines()[1:], ["# airlock: " + x for x in got["commits"]])
        self.assertEqual(self.results(end["id"], "changes", query="?path=x").json["commits"], [])
        self.assertEqual(self.results(end["id"], "apply", {}).json["commitsWait"], False)
        got = self.results(end["id"], "changes").json
        self.assertEqual((got["commitsWait"], got["commits"]), (False, []))

    def test_how_a_workspace_is_copied(self):
        """S1-04: exclude, strict, onConflict, git and syncOut of a run are those of `airlock run`; a recovery may be less strict."""
        where = f"{top}/all/copied"
        os.makedirs(where)

        def put(name, text):
            with open(f"{where}/{name}", "w", encoding="ascii") as out:
                out.write(text)
        put("a.held", "host\n")
        put("both", "base\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", where]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "1"], ["commit", "-qm", "2", "--allow-empty"]):
            subprocess.run(git + words, check=True)
        if UID:
            for at, dirs, files in os.walk(where):
                for name in [".", *dirs, *files]:
                    os.lchown(f"{at}/{name}", UID, UID)

        def run(command, **body):
            return self.end(self.start(command, workspacePath="copied", **body))
        for body, commits in (({}, "1"), ({"git": "shallow"}, "1"), ({"git": "full"}, "2"), ({"git": "none"}, "0")):
            end = run("git log --oneline 2>/dev/null | wc -l", **body)
            self.assertEqual(self.text(self.log(end["id"]), "stdout").strip(), commits.encode(), body)
        for out in ("changes", "tar"):
            end = run(f"test ! -e a.held && echo no >b.held && echo yes >c-{out}", exclude=["*.held"], syncOut=out)
            self.assertEqual((end["status"], self.content("b.held", "all/copied"), self.content("a.held", "all/copied"),
                              self.content("c-" + out, "all/copied")), ("succeeded", None, b"host\n", b"yes\n"), (out, d.log[-3:]))
        for how, result in ((None, b"host-1\n"), ("keep-host", b"host-2\n"), ("take-sandbox", b"inside\n")):
            x = self.start("echo inside >both; echo rea''dy; sleep 600", workspacePath="copied", **({"onConflict": how} if how else {}))
            wait_for("it to speak", lambda x=x: b"ready" in self.raw_log(x))
            put("both", "host-2\n" if how else "host-1\n")
            # What a cancelled run did comes back all the same.
            f.ask("I", "POST", f"/api/runs/{x}/cancel", {})
            self.end(x)
            self.assertEqual(self.content("both", "all/copied"), result, how)
        # A refused member rejects everything, and a recovery takes the rest.
        end = run("ln -s /etc/passwd leads-out; echo good >good", strict=True)
        self.assertEqual((end["status"], end["workKept"], self.content("good", "all/copied")), ("failed", True, None))
        path = f"/api/runs/{end['id']}/recover"
        self.assertEqual(f.ask("I", "POST", path, {"exclude": ["nothing"]}).status, 422)
        for bad in ({"noStrict": "yes"}, {"exclude": []}, {"exclude": [1]}, {"strict": False}):
            self.assertEqual(f.ask("I", "POST", path, bad).status, 400, bad)
        self.assertTrue(self.get(end["id"]).json["workKept"])
        self.assertEqual(f.ask("I", "POST", path, {"noStrict": True}).status, 200)
        self.assertEqual((self.content("good", "all/copied"), os.path.lexists(where + "/leads-out")), (b"good\n", False))
        end = run("ln -s /etc/passwd leads-out; echo good >good-2; echo x >skip-2", strict=True)
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{end['id']}/recover", {"noStrict": True, "exclude": ["skip-*"]}).status, 200)
        self.assertEqual((self.content("good-2", "all/copied"), self.content("skip-2", "all/copied")), (b"good\n", None))
        for bad in ({"git": "all"}, {"syncOut": "rsync"}, {"onConflict": "host"}, {"exclude": []}, {"exclude": ["x"] * 1001}, {"exclude": "x"},
                    {"strict": 1}, {"include": [".env"]}, {"noStrict": True}):
            self.assertEqual(self.post({"command": "true", **bad}).status, 400, bad)

    def test_what_prune_takes_of_runs(self):
        """Log, record and rows of the state go; the daemon goes on knowing the run, and says what is not there any more. Work that waits stays."""
        over = self.end(self.start("echo printed; echo x >pruned"))
        waits = self.end(self.start("echo x >pruned-review", review=True))
        lost = self.start("echo ours >pruned-lost; echo rea''dy; sleep 600")
        wait_for("it to speak", lambda: b"ready" in self.raw_log(lost))
        os.kill(self.owner(lost), signal.SIGKILL)
        lost = self.end(lost)
        self.assertTrue(lost["workKept"])
        con = sqlite3.connect(f"{d.dir}/airlock/airlock.db", timeout=DEADLINE)

        def rows(run):
            return [con.execute(f"select count(*) from {table} where {key}=?", (run["id"],)).fetchone()[0]
                    for table, key in (("runs", "id"), ("phases", "run_id"), ("reports", "run_id"))]
        self.assertTrue(all(rows(over)), rows(over))
        d.cli("prune", "--older-than", "30d")
        self.assertTrue(all(rows(over)), rows(over))
        self.assertEqual(f.ask("I", "GET", f"/api/runs/{over['id']}/report").status, 200)
        d.cli("prune", "--older-than", "0")
        self.assertEqual(rows(over), [0, 0, 0])
        self.assertFalse(os.path.exists(f"{d.dir}/airlock/runs/{over['id']}"))
        self.assertEqual(self.get(over["id"]).json, over)
        r = f.ask("I", "GET", f"/api/runs/{over['id']}/report")
        self.assertEqual((r.status, "prune" in r.json["error"]), (404, True))
        self.assertEqual(self.log(over["id"]), [])
        self.assertEqual(f.ask("I", "GET", f"/api/runs/{over['id']}/changes").status, 404)
        # What waits for a decision, or is nowhere else, is not taken.
        self.assertTrue(all(rows(waits)[:2]) and rows(lost)[0], (rows(waits), rows(lost)))
        con.close()
        self.assertEqual(len(f.ask("I", "GET", f"/api/runs/{waits['id']}/changes").json["changes"]), 1)
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{lost['id']}/recover", {}).status, 200)
        self.assertEqual(self.content("pruned-lost"), b"ours\n")

    def restart(self, *drop):
        """Without those options, and with them again at the end."""
        d.options, was = [x for x in d.options if x not in drop], d.options
        d.stop()
        d.log.clear()
        d.start()
        d.options = was

    def test_a_daemon_that_starts_recovers_what_was_left(self):
        """S1-10: nobody has to ask for it; what fails is told and stays; what was asked to wait waits."""
        os.makedirs(f"{top}/all/gone")
        if UID:
            os.chown(f"{top}/all/gone", UID, UID)
        runs = {"back": self.start("echo ours >auto; echo rea''dy; sleep 600"),
                "review": self.start("echo ours >auto-review; echo rea''dy; sleep 600", review=True),
                "shell": self.start("echo ours >auto-shell; echo rea''dy; sleep 600"),
                "gone": self.start("echo ours >auto-gone; echo rea''dy; sleep 600", workspacePath="gone")}
        for run in runs.values():
            wait_for("it to speak", lambda run=run: b"ready" in self.raw_log(run))
        for pid in [self.owner(run) for run in runs.values()]:
            os.kill(pid, signal.SIGKILL)
        for run in runs.values():
            end = self.end(run)
            self.assertEqual((end["status"], end["workKept"]), ("interrupted", True))
        d.cli("recover", runs["shell"])
        # Another directory under its name is not the one that it was.
        os.rename(f"{top}/all/gone", f"{top}/all/moved")
        os.makedirs(f"{top}/all/other")
        os.symlink("other", f"{top}/all/gone")
        # With the option nobody touches it; what was recovered at a shell is known after a sweep.
        self.restart()
        wait_for("a sweep that sees it", lambda: not self.get(runs["shell"]).json["workKept"])
        self.assertEqual([self.get(runs[k]).json["workKept"] for k in ("back", "review", "gone")], [True] * 3)
        self.assertIsNone(self.content("auto"))
        self.restart("--no-recover")
        watcher = Watcher(d, f.token["I"], "?after=0")
        ends = {}
        while len(ends) < 3:
            v = watcher.next()
            if v["type"] == "run" and v["status"].startswith("recover"):
                ends[v["id"]] = v["status"]
        watcher.close()
        self.assertEqual(ends, {runs["back"]: "recovered", runs["review"]: "recovered", runs["gone"]: "recover_failed"})
        self.assertEqual([self.get(runs[k]).json["workKept"] for k in ("back", "review", "gone")], [False, False, True])
        self.assertEqual(self.content("auto"), b"ours\n")
        self.assertIsNone(self.content("auto-review"))
        self.assertEqual([x["path"] for x in f.ask("I", "GET", f"/api/runs/{runs['review']}/changes").json["changes"]], ["auto-review"])
        self.assertTrue(any(runs["gone"] in x and "stays where it is" in x for x in d.log), d.log)
        os.unlink(f"{top}/all/gone")
        os.rename(f"{top}/all/moved", f"{top}/all/gone")
        self.restart("--no-recover")
        wait_for("its turn", lambda: not self.get(runs["gone"]).json["workKept"])
        self.assertEqual(self.content("auto-gone", "all/gone"), b"ours\n")
        self.restart()

    def test_what_somebody_else_recovers_is_no_failure(self):
        """Neither while they are at it, nor afterwards; given up by them, it gets its turn behind a later sweep."""
        runs = [self.start(f"echo ours >auto-turn{i}; echo rea''dy; sleep 600") for i in range(2)]

        def cut(run):
            wait_for("it to speak", lambda: b"ready" in self.raw_log(run))
            os.kill(self.owner(run), signal.SIGKILL)
            self.assertTrue(self.end(run)["workKept"])
        for run in runs:
            cut(run)
        con = sqlite3.connect(f"{d.dir}/airlock/airlock.db", timeout=DEADLINE, isolation_level=None)
        self.addCleanup(con.close)
        with open("/proc/self/stat", encoding="ascii") as stat, open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            me = (os.getpid(), int(stat.read().rsplit(")", 1)[1].split()[19]), boot.read().strip())
        of = " where id in (select lease_id from runs where id in (?,?))"
        con.execute("update leases set state='recovering', owner_pid=?, owner_start=?, owner_boot=?" + of, (*me, *runs))
        self.restart("--no-recover")
        # Both are looked at, and somebody is at them.
        def figure(name):
            return int(re.search(rf"^airlockd_{name} (\d+)$", f.ask("I", "GET", "/metrics").body.decode(), re.M).group(1))
        wait_for("both", lambda: figure("jobs_total") >= 3 and not figure("jobs_running"))
        later = self.start("echo rea''dy; sleep 600")
        con.execute("update leases set state='recoverable', owner_pid=0, owner_start=0, owner_boot=''" + of, (*runs,))
        d.cli("recover", runs[0])
        cut(later)
        wait_for("their turn", lambda: not any(self.get(r).json["workKept"] for r in runs))
        self.assertEqual([self.content(f"auto-turn{i}") for i in range(2)], [b"ours\n"] * 2)
        self.assertTrue(self.get(later).json["workKept"])
        self.assertEqual([x for x in d.log if "stays where it is" in x], [])
        r = f.ask("I", "POST", f"/api/runs/{later}/recover", {})
        self.assertEqual(r.status, 200, (r, d.log[-6:]))
        self.restart()


class CommandLine(unittest.TestCase):
    """`airlock run --env NAME` where a daemon of the same state directory has that environment."""

    @classmethod
    def setUpClass(cls):
        cls.env = f.make("cli env", "sandbox", NATIVE)

    def airlock(self, *words, cwd="all/w", token=True, start=False, **env):
        more = {"AIRLOCK_COMPANY": "C1"} | ({"AIRLOCK_TOKEN": f.token["I"]} if token else {}) | env
        p = subprocess.Popen([f"{d.programs}/airlock", *words], env=d.env | more, cwd=f"{top}/{cwd}", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=d.become)
        if start:
            return p
        out, err = p.communicate(timeout=DEADLINE)
        return p.returncode, out, err.decode()

    def runs(self):
        return f.ask("I", "GET", f"/api/environments/{self.env['id']}/runs").json

    def test_too_many_watch(self):
        """Whoever gets no stream of the log waits for the run all the same, and prints it when there is room."""
        many = [Watcher(d, f.token["I"]) for _ in range(8)]
        try:
            p = self.airlock("run", "-q", "--env", "cli env", "--", "sh", "-c", "echo seen; exit 5", start=True)
            wait_for("its end", lambda: self.runs() and self.runs()[0]["endedAt"] and "echo seen" in self.runs()[0]["command"])
        finally:
            for w in many:
                w.close()
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual((p.returncode, out), (5, b"seen\n"), err)

    def test_run(self):
        """Output byte for byte, exit status, results, summary and record of a run of the daemon; arguments and directory as here."""
        os.makedirs(f"{top}/all/w/deep er", exist_ok=True)
        if UID:
            os.chown(f"{top}/all/w/deep er", UID, UID)
        with open(f"{top}/all/w/deep er/f", "w", encoding="ascii") as out:
            out.write("x\n")
        rc, out, err = self.airlock("run", "--env", "cli env", "--workspace", f"{top}/all/w", "--json=" + d.dir + "/record", "--", "sh", "-c",
                                    'printf "%s|" "$@"; printf "a\\377"; echo e >&2; echo new >made; exit 7', "0", "it's", "", "two  words",
                                    cwd="all/w/deep er")
        self.assertEqual((rc, out), (7, b"it's||two  words|a\xff"), err)
        run = self.runs()[0]
        self.assertEqual((run["status"], run["workspacePath"], run["companyId"]), ("failed", "w", f.c1))
        self.assertIn(f"run {run['id']} in environment cli env of the daemon at http://127.0.0.1:{d.port}", err)
        self.assertIn("e\n", err)
        self.assertIn("results: 1 added", err)
        with open(f"{top}/all/w/deep er/made", encoding="ascii") as got:
            self.assertEqual(got.read(), "new\n")
        with open(d.dir + "/record", encoding="utf-8") as got:
            self.assertEqual(json.load(got)["run"], run["id"])
        rc, out, err = self.airlock("run", "-q", "--env", "cli env", "--timeout", "2", "sleep", "600")
        self.assertEqual(rc, 124, err)

    def test_refusals_are_not_run_here(self):
        """A daemon that refuses, an option or a workspace that it has no place for: an error, and nothing is done here."""
        before = len(self.runs())
        for words, env, text in (
                (("--env", "cli env", "true"), {"AIRLOCK_TOKEN": f.token["M"]}, "refuses"),
                (("--env", "cli env", "true"), {"AIRLOCK_TOKEN": "nonsense"}, "refuses"),
                (("--env", "cli env", "--setenv", "A=b", "true"), {}, "has no --setenv"),
                (("--env", "cli env", "--memory", "1G", "true"), {}, "has no --memory"),
                (("--env", "cli env", "--workspace", f"{top}/outside/w", "true"), {}, "below no --workspace-root"),
                # The copy of the programs for an ordinary user has no presets beside it.
                *([] if UID else [(("--env", "cli env", "--agent", "nobody-has-this", "x"), {}, "refuses")]),
                (("--env", "nowhere", "true"), {}, "neither the daemon"),
                (("--env", "cli env", "true"), {"AIRLOCK_COMPANY": "C9"}, "has no company"),
                (("--env", "cli env", "true"), {"AIRLOCK_DAEMON": "http://127.0.0.1:1"}, "reach the daemon"),
                (("--env", "cli env", "true"), {"AIRLOCK_DAEMON": "http://example.org"}, "a daemon is reached at"),
                (("--env", "cli env", "true"), {"AIRLOCK_DAEMON": "none"}, "cli env")):
            rc, out, err = self.airlock("run", *words, **env)
            self.assertIn(rc, (2, 125), (words, err))
            self.assertIn(text, err, words)
        self.assertEqual(len(self.runs()), before)

    def test_every_option_is_carried_or_refused(self):
        """None of `airlock run` is dropped without a word where the daemon runs the command."""
        carried = {"workspace", "env", "timeout", "review", "quiet", "json", "help", "no-preset", "agent", "strict", "exclude", "on-conflict",
                   "git", "sync-out"}
        values = {"provider": "native", "image": "x", "ssh": "h:/d", "ssh-key": "/etc/passwd", "ssh-known-hosts": "/etc/passwd", "ssh-config": "/etc/passwd", "ssh-jump": "h",
                  "ssh-guest": "auto", "net": "none", "resolve": "h:1:1.1.1.1", "map": "a:/b", "include": "x", "bind-ro": "/usr", "memory": "1G",
                  "pids": "100", "cpus": "1", "without": "seccomp", "shell": "sh", "setenv": "A=b", "env-file": "/etc/passwd", "cli": "ls", "install": "true",
                  "api": "http://127.0.0.1:1", "api-key-file": "/etc/passwd", "api-run-id": "x", "api-transport": "http2", "policy": "paperclip",
                  "upstream": "m=http://127.0.0.1:1,policy=paperclip", "log-limit": "1M",
                  "ssh-grace": "1m", "ssh-max-runs": "2"}
        said = self.airlock("help", "run")[1].decode()
        options = re.findall(r"^ {2,6}(?:-\w, )?--([a-z-]+)", said, re.M)
        self.assertGreater(len(options), 40)
        self.assertEqual(carried - set(options), set())
        before = len(self.runs())
        for name in sorted(set(options) - carried):
            words = [f"--{name}"] + ([values[name]] if name in values else [])
            rc, _, err = self.airlock("run", "--env", "cli env", *words, "--", "true")
            self.assertIn(rc, (2, 125), name)
            self.assertIn(f"has no --{name}", err)
        self.assertEqual(len(self.runs()), before)
        with open(f"{top}/all/w/x.held", "w", encoding="ascii") as out:
            out.write("host\n")
        for more in ([], ["--strict", "--on-conflict", "take-sandbox", "--git", "none", "--sync-out", "tar"]):
            rc, out, err = self.airlock("run", "--env", "cli env", "--exclude", "*.held", "--exclude", "y.*", *more, "--",
                                        "ls x.held; echo 1 >y.z; echo 2 >carried")
            self.assertEqual((rc, out), (0, b""), err)
            self.assertEqual([os.path.exists(f"{top}/all/w/{n}") for n in ("y.z", "carried")], [False, True])
            os.unlink(f"{top}/all/w/carried")
        rc, out, err = self.airlock("run", "--env", "cli env", "--strict", "--", "ln -s /etc/passwd away; echo 3 >with-strict")
        self.assertEqual((rc, os.path.exists(f"{top}/all/w/with-strict")), (125, False), err)
        self.airlock("recover", "--no-strict", self.runs()[0]["id"])
        self.assertTrue(os.path.exists(f"{top}/all/w/with-strict"))
        rc, out, err = self.airlock("run", "--env", "cli env", "--exclude", "\udcff", "--", "true")
        self.assertIn("UTF-8", err)

    def test_without_a_daemon(self):
        """What only the command line has is run here, and that is said; --quiet does not say it, and none asks for no daemon."""
        self.assertEqual(self.airlock("env", "create", "mine")[0], 0)
        rc, out, err = self.airlock("run", "--env", "mine", "echo", "here")
        self.assertEqual((rc, out), (0, b"here\n"), err)
        self.assertIn("has no environment mine: run here", err)
        self.assertNotIn("run here", self.airlock("run", "-q", "--env", "mine", "true")[2])
        self.assertNotIn("daemon", self.airlock("run", "--env", "mine", "true", AIRLOCK_DAEMON="none")[2])
        where = f"{d.dir}/airlock/daemon"
        with open(where, encoding="ascii") as got:
            place, who = got.read().splitlines()
        self.assertEqual((place, int(who.split()[0])), (f"http://127.0.0.1:{d.port}", d.process.pid))
        d.stop()
        try:
            self.assertFalse(os.path.exists(where))
            # The file of one that was killed stays. Who has its port by then hears nothing, least of all a key.
            with socket.create_server(("127.0.0.1", 0)) as stranger, open(where, "w", encoding="ascii") as left:
                left.write(f"http://127.0.0.1:{stranger.getsockname()[1]}\n{who}\n")
                left.flush()
                os.chown(where, UID or 0, UID or 0)
                rc, out, err = self.airlock("run", "--env", "mine", "echo", "here", AIRLOCK_TOKEN="sesame")
                stranger.setblocking(False)
                with self.assertRaises(BlockingIOError):
                    stranger.accept()
            self.assertEqual((rc, out), (0, b"here\n"), err)
            self.assertIn("no daemon runs here", err)
        finally:
            d.start()

    def test_interrupt(self):
        """Ctrl-C cancels: what was done comes back, 130. A second one leaves at once, and the run goes on to its end without us."""
        p = self.airlock("run", "--env", "cli env", "sh", "-c", "echo kept >stopped; echo ready; exec sleep 600", start=True)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(self.runs()[0]["status"], "cancelled")
        with open(f"{top}/all/w/stopped", encoding="ascii") as got:
            self.assertEqual(got.read(), "kept\n")
        p = self.airlock("run", "--env", "cli env", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done", start=True)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.send_signal(signal.SIGINT)
        self.assertIn(b"in environment cli env", p.stderr.readline())
        self.assertIn(b"cancelled", p.stderr.readline())
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 130, err)
        self.assertIn(b"goes on without us", err)
        wait_for("its end", lambda: self.runs()[0]["status"] == "cancelled")

    def test_a_port_that_somebody_took(self):
        """B-05: while the daemon is away its port is anybody's, who hears no key; the run is followed to its end where the daemon is again."""
        p = self.airlock("run", "--env", "cli env", "sh", "-c", "echo one; sleep 3; echo two", start=True, AIRLOCK_TOKEN=f.token["I"])
        self.assertEqual(p.stdout.readline(), b"one\n")
        port = d.port
        d.process.kill()
        d.process.wait(timeout=DEADLINE)
        with socket.create_server(("127.0.0.1", port)) as stranger:
            d.start()
            out, err = p.stdout.read(), p.stderr.read()
            stranger.setblocking(False)
            with self.assertRaises(BlockingIOError):
                stranger.accept()
        self.assertEqual((p.wait(timeout=DEADLINE), out), (0, b"two\n"), err)
        p.stdout.close()
        p.stderr.close()
        # From the moment that it is to stop, whatever is still under way.
        half = socket.create_connection(("127.0.0.1", d.port))
        half.sendall(b"POST /api/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + f.token["I"].encode() + b"\r\nContent-Length: 9\r\n\r\n{")
        d.process.send_signal(signal.SIGTERM)
        wait_for("its word", lambda: not os.path.exists(f"{d.dir}/airlock/daemon") and not os.path.exists(f"{d.dir}/airlock/airlockd.sock"))
        half.close()
        d.stop()
        d.start()

    def test_a_daemon_that_is_started_again(self):
        """The log goes on where it was, nothing is missing and nothing comes twice."""
        p = self.airlock("run", "--env", "cli env", "sh", "-c", "echo one; sleep 3; echo two", start=True, AIRLOCK_DAEMON=f"http://127.0.0.1:{d.port}")
        self.assertEqual(p.stdout.readline(), b"one\n")
        port = d.port
        d.process.kill()
        d.process.wait(timeout=DEADLINE)
        d.start(f"127.0.0.1:{port}")
        out, err = p.stdout.read(), p.stderr.read()
        self.assertEqual((p.wait(timeout=DEADLINE), out), (0, b"two\n"), (err, self.runs()[0]["id"], f.ask("I", "GET", "/api/runs/" + self.runs()[0]["id"] + "/log").body))
        p.stdout.close()
        p.stderr.close()


if __name__ == "__main__":
    verdicts.main([sys.argv[0], *sys.argv[3:]], "test_runs/" + sys.argv[2], PROGRAMS)
