"""Environments of driver ssh: the daemon and a real sshd on loopback (api.md 4.2, 6.1, 7.1; K1 K2 K3; FR-B101, FR-B046).

usage: test_ssh_env.py PROGRAMS root|user [TEST...]
"""
import getpass
import glob
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, HERE + "/../integ"]
from daemon_box import DEADLINE, Daemon, Fixture, programs, wait_for  # noqa: E402
import scratch  # noqa: E402
from run_box import look, parent, pids  # noqa: E402
from ssh_box import SSHD, Sshd, key  # noqa: E402

PROGRAMS = programs()
WHO = getpass.getuser()
# ssh starts for nobody without an account.
UID = pwd.getpwnam("nobody").pw_uid if sys.argv[2:3] == ["user"] and os.geteuid() == 0 else None
d = f = sshd = top = None


def own(path):
    if UID:
        for where, dirs, files in os.walk(path):
            for name in [".", *dirs, *files]:
                os.lchown(f"{where}/{name}", UID, UID)


def setUpModule():
    global d, f, sshd, top
    top = scratch.directory(prefix="airlock-sshenv-", dir="/tmp")
    os.chmod(top, 0o755)
    os.makedirs(f"{top}/all/w")
    with open(f"{top}/all/w/file", "w", encoding="ascii") as out:
        out.write("before\n")
    os.mkdir(top + "/sshd")
    sshd = Sshd(top + "/sshd")
    own(top + "/all")
    d = Daemon(PROGRAMS, "--no-recover", "--workspace-root", f"all={top}/all", start=False, uid=UID)
    d.start()
    f = Fixture(d)


def tearDownModule():
    if sshd:
        for d_, _, names in os.walk(d.dir + "/airlock/ssh") if d else ():
            for n in names:
                subprocess.run(["ssh", "-F", "/dev/null", "-o", f"ControlPath={d_}/{n}", "-O", "exit", "x"], check=False,
                               stderr=subprocess.DEVNULL)
    if d:
        d.close()
    if sshd:
        sshd.stop()
    shutil.rmtree(top, ignore_errors=True)


def text(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def config(**more):
    # The test's sshd takes whoever has the key as its own account: root's, or that of the test.
    return {"host": "127.0.0.1", "port": sshd.port, "username": WHO, "remoteWorkspacePath": top + "/there/work",
            "knownHosts": text(sshd.top + "/known"), **more}


class SshEnv(unittest.TestCase):
    def make(self, **more):
        return f.make(self.id().rsplit(".", 1)[1], "ssh", config(**{"privateKey": text(sshd.top + "/id"), **more}))

    def probe(self, env, company=True):
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe" + (f"?companyId={f.c1}" if company else ""))
        self.assertEqual(r.status, 200, r)
        return r.json

    def draft(self, **more):
        r = f.ask("I", "POST", f"/api/companies/{f.c1}/environments/probe-config", {"driver": "ssh", "config": config(**more)})
        self.assertEqual(r.status, 200, r)
        return r.json

    def nothing_told(self):
        """No line of the key is anywhere that a person or another process can read."""
        lines = [line for line in text(sshd.top + "/id").split("\n") if len(line) > 30 and "-----" not in line]
        for path in glob.glob(d.dir + "/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    data = file.read()
                for line in lines:
                    self.assertNotIn(line.encode(), data, path)

    def test_a_saved_probe_reaches_the_machine_PR_01_PR_02(self):
        shutil.rmtree(top + "/there", ignore_errors=True)
        env = self.make()
        p = self.probe(env)
        self.assertEqual(p, {"ok": True, "driver": "ssh",
                             "summary": f"Connected to {WHO}@127.0.0.1 and verified the remote workspace path.",
                             "details": {"host": "127.0.0.1", "port": sshd.port, "username": WHO,
                                         "remoteWorkspacePath": top + "/there/work", "remoteCwd": top + "/there/work"}})
        self.assertTrue(os.path.isdir(top + "/there/work"))
        self.nothing_told()
        # Whoever has several companies says for which one.
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c2}")
        self.assertEqual((r.status, r.json["code"]), (403, "environment_company_mismatch"), r)

    def test_where_it_is_is_told_to_administrators_alone_CF_05(self):
        """CF-05: neither the log that every company reads nor a lease names host, port, user or directory."""
        env = self.make()
        self.probe(env)
        self.draft(privateKey=text(sshd.top + "/id"))
        secret = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "name-of-a-secret", "value": "v"}).json["id"]
        f.ask("I", "DELETE", "/api/secrets/" + secret)
        lease = self.lease(env).json
        self.assertTrue(lease["providerLeaseId"])
        for who in "MV":
            for path in (f"/api/companies/{f.c1}/activity", f"/api/environments/{env['id']}/leases", "/api/environment-leases/" + lease["id"]):
                r = f.ask(who, "GET", path)
                self.assertEqual(r.status, 200, r)
                for word in ("127.0.0.1", f":{sshd.port}", WHO + "@", "there/work", "name-of-a-secret"):
                    self.assertNotIn(word.encode(), r.body, path)
        self.assertIn(b"SSH probe passed.", f.ask("V", "GET", f"/api/companies/{f.c1}/activity").body)
        f.ask("I", "DELETE", "/api/environment-leases/" + lease["id"])

    def test_a_probe_is_of_a_company_that_has_a_secret_of_it_PR_02(self):
        """Case 47 for a machine: variables alone bind it too, and secrets of two companies open it to no third."""
        secret = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "v47", "value": "v"}).json["id"]
        env = f.make("bound by a variable", "ssh", config(port=1), envVars={"A": {"type": "secret_ref", "secretId": secret}})
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c2}")
        self.assertEqual((r.status, r.json["code"]), (403, "environment_company_mismatch"), r)

    def test_what_fails_is_ok_false_and_says_why_K2_K3_FR_B101(self):
        other = key(top + "/another") + "\n"
        for more, word in (({"knownHosts": "[127.0.0.1]:%d %s" % (sshd.port, other)}, "NOT the one in known_hosts"),
                           ({"knownHosts": "else " + other}, "not known yet"),
                           ({"privateKey": text(sshd.top + "/other")}, "login was refused"),
                           ({"privateKey": "no key"}, "none that ssh knows"),
                           ({"remoteWorkspacePath": "/dev/null/x"}, "cannot be made or entered"),
                           ({"port": 1}, "connection refused")):
            with self.subTest(word):
                for p in self.draft(**{"privateKey": text(sshd.top + "/id"), **more}), \
                        self.probe(f.make("fails " + word, "ssh", config(**{"privateKey": text(sshd.top + "/id"), **more}))):
                    self.assertEqual((p["ok"], p["driver"], p["summary"]), (False, "ssh", f"SSH probe failed for {WHO}@127.0.0.1."), p)
                    self.assertIn(word, p["details"]["error"])
                    self.assertIn("code", p["details"])

    def test_a_draft_has_its_own_key_or_none(self):
        self.assertTrue(self.draft(privateKey=text(sshd.top + "/id"))["ok"])
        # Windows line ends, none at the end.
        self.assertTrue(self.draft(privateKey=text(sshd.top + "/id").strip().replace("\n", "\r\n"))["ok"])
        ref = self.make()["config"]["privateKeySecretRef"]
        p = self.draft(privateKeySecretRef=ref)
        self.assertIn("login was refused", p["details"]["error"])
        self.nothing_told()

    def test_a_key_with_a_passphrase_is_told_K3(self):
        os.system(f"ssh-keygen -q -t ed25519 -N secret -f {top}/sealed")
        self.assertIn("has a passphrase", self.draft(privateKey=text(top + "/sealed"))["details"]["error"])

    def test_without_host_key_checks_it_says_so_FR_B101(self):
        p = self.draft(privateKey=text(sshd.top + "/id"), knownHosts=None, strictHostKeyChecking=False)
        self.assertEqual((p["ok"], "not checked" in p["details"].get("warning", "")), (True, True), p)

    def lease(self, env, **more):
        return f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1, **more})

    def test_leases_are_rows_about_a_machine_that_was_reached(self):
        env = self.make()
        r = self.lease(env)
        self.assertEqual(r.status, 201, r)
        at = top + "/there/work"
        self.assertEqual((r.json["status"], r.json["provider"], r.json["providerLeaseId"], r.json["metadata"]["remoteCwd"]),
                         ("active", "ssh", f"ssh://{WHO}@127.0.0.1:{sshd.port}{at}", at))
        self.assertEqual(f.ask("I", "POST", f"/api/environment-leases/{r.json['id']}/resume").status, 409)
        q = f.ask("I", "POST", f"/api/environment-leases/{r.json['id']}/release", {})
        self.assertEqual((q.status, q.json["status"], q.json["cleanupStatus"]), (200, "released", "success"), q)
        q = self.lease(env)
        q = f.ask("I", "DELETE", f"/api/environment-leases/{q.json['id']}")
        self.assertEqual((q.status, q.json["status"]), (200, "released"), q)
        self.assertEqual(self.lease(env, leasePolicy="reuse_by_environment").status, 422)
        # One that cannot be reached gives no lease, and leaves none open.
        away = f.make("away", "ssh", config(privateKey=text(sshd.top + "/id"), port=1))
        self.assertEqual(self.lease(away).status, 502)
        rows = f.ask("I", "GET", f"/api/environments/{away['id']}/leases").json
        self.assertEqual([x["status"] for x in rows], ["expired"])
        self.nothing_told()

    def acquire_while_it_ends(self, signo):
        """The machine answers only once the daemon is gone, or has said that it stops."""
        env, gate = f.make(f"ends {int(signo)}", "ssh", config(privateKey=text(sshd.top + "/id"))), f"{top}/gate-{int(signo)}"
        sshd.shell(f"touch {gate}.begun; while ! test -e {gate}; do sleep 0.05; done; exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"")
        got = []

        def ask():
            try:
                got.append(self.lease(env).status)
            except OSError:
                got.append(None)
        t = threading.Thread(target=ask)
        try:
            t.start()
            wait_for("the session", lambda: os.path.exists(gate + ".begun"))
            jobs = [p for p in pids() if parent(p) == d.process.pid]
            d.process.send_signal(signo)
            d.process.wait(timeout=60)
            t.join()
            # What makes nothing for a caller any more ends, whatever the machine says now.
            with open(gate, "w", encoding="ascii"):
                pass
            wait_for("the end of its job", lambda: not any(b"--job" in look(p, "cmdline") for p in jobs))
            d.stop(0)
        finally:
            with open(gate, "w", encoding="ascii"):
                pass
            sshd.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
            d.start()
        at = f"/api/environments/{env['id']}/leases"
        wait_for("its end", lambda: [x["status"] for x in f.ask("I", "GET", at).json] == ["expired"])
        return got[0]

    def test_a_lease_that_was_not_told_to_its_caller_is_none(self):
        self.assertEqual(self.acquire_while_it_ends(signal.SIGTERM), 502)
        self.assertNotEqual(self.acquire_while_it_ends(signal.SIGKILL), 201)

    def start(self, env, command, **body):
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/runs",
                  {"companyId": f.c1, "workspaceRoot": "all", "workspacePath": "w", "command": command, **body})
        self.assertEqual(r.status, 202, r)
        return r.json["id"]

    def end(self, run):
        return wait_for("its end", lambda: (lambda r: r if r["endedAt"] else None)(f.ask("I", "GET", "/api/runs/" + run).json))

    def runs_there(self):
        return glob.glob(top + "/there/work/.airlock-runtime/runs/*")

    def test_runs_bring_their_results_back(self):
        e = self.end(self.start(self.make(), "cat file; echo after >file; echo new >new-ssh"))
        self.assertEqual((e["status"], e["exitStatus"]), ("succeeded", 0), (e, d.log[-3:]))
        self.assertEqual((text(f"{top}/all/w/file"), text(f"{top}/all/w/new-ssh")), ("after\n", "new\n"))
        self.assertEqual(self.runs_there(), [])
        self.nothing_told()

    def test_a_limit_of_the_environment_makes_runs_wait(self):
        env = self.make(remoteWorkspacePath=top + "/there/few", maxConcurrentRuns=1, connectionGraceSec=90)
        self.assertEqual((env["config"]["maxConcurrentRuns"], env["config"]["connectionGraceSec"]), (1, 90))
        os.makedirs(top + "/there/few", exist_ok=True)
        first = self.start(env, "echo x >first-up; while ! test -e %s/go-on; do sleep 0.05; done" % top)
        wait_for("the first", lambda: glob.glob(top + "/there/few/.airlock-runtime/runs/*/workspace/first-up"))
        second = self.start(env, "test -e %s/go-on" % top)
        self.assertIsNone(f.ask("I", "GET", "/api/runs/" + second).json["endedAt"])
        self.assertEqual(len(glob.glob(top + "/there/few/.airlock-runtime/runs/*")), 1)
        with open(top + "/go-on", "w", encoding="ascii"):
            pass
        self.assertEqual([self.end(r)["status"] for r in (first, second)], ["succeeded"] * 2)

    def test_runs_that_wait_for_room_leave_the_places_to_others(self):
        """More of them than the daemon has places: those of another environment begin all the same; a cancel and a new limit are seen."""
        few = self.make(remoteWorkspacePath=top + "/there/narrow", maxConcurrentRuns=1)
        wide = f.make("wide", "ssh", config(privateKey=text(sshd.top + "/id"), remoteWorkspacePath=top + "/there/wide"))
        gate = top + "/go-narrow"
        runs = [self.start(few, f"while ! test -e {gate}; do sleep 0.05; done") for _ in range(10)]
        status = lambda run: f.ask("I", "GET", "/api/runs/" + run).json["status"]  # noqa: E731
        try:
            wait_for("the first", lambda: status(runs[0]) == "running")
            self.assertEqual(self.end(self.start(wide, "true"))["status"], "succeeded")
            self.assertEqual([status(r) for r in runs[1:]], ["queued"] * 9)
            self.assertEqual(f.ask("I", "POST", f"/api/runs/{runs[9]}/cancel").status, 200)
            self.assertEqual(f.patch(few["id"], {"config": {"maxConcurrentRuns": 2}}).status, 200)
            wait_for("the second", lambda: status(runs[1]) == "running")
            self.assertEqual([status(r) for r in runs[2:]], ["queued"] * 7 + ["cancelled"])
        finally:
            with open(gate, "w", encoding="ascii"):
                pass
        self.assertEqual([self.end(r)["status"] for r in runs], ["succeeded"] * 9 + ["cancelled"])

    def test_no_tree_stays_there_where_none_is_wanted_FR_B172(self):
        env = self.make(remoteWorkspacePath=top + "/there/bare", keepRemoteBase=False)
        self.assertIs(env["config"]["keepRemoteBase"], False)
        os.makedirs(top + "/there/bare")
        self.assertEqual(self.end(self.start(env, "true"))["status"], "succeeded")
        self.assertEqual(os.listdir(top + "/there/bare"), [])

    def test_a_cancelled_run_ends_there(self):
        run = self.start(self.make(), "echo x >begun; sleep 31337.8")
        wait_for("its begin", lambda: glob.glob(top + "/there/work/.airlock-runtime/runs/*/workspace/begun"))
        f.ask("I", "POST", f"/api/runs/{run}/cancel")
        self.assertEqual(self.end(run)["status"], "cancelled")
        wait_for("its end there", lambda: not self.runs_there())

    def test_kill_9_of_the_daemon_and_its_job_leaves_no_key_and_no_row_open(self):
        run = self.start(self.make(remoteWorkspacePath=top + "/there/killed"), "echo x >begun-9; sleep 31337.6")
        wait_for("its begin", lambda: glob.glob(top + "/there/killed/.airlock-runtime/runs/*/workspace/begun-9"))
        jobs = [p for p in pids() if parent(p) == d.process.pid]
        os.kill(d.process.pid, signal.SIGKILL)
        for job in jobs:
            os.kill(job, signal.SIGKILL)
        d.stop(signal.SIGKILL)
        self.nothing_told()
        d.start()
        e = self.end(run)
        self.assertEqual((e["status"], e["workKept"]), ("interrupted", True), e)

    def test_what_a_run_left_holds_an_environment_without_a_key_too(self):
        """Where the daemon's user logs in with a key of its own, no row names a secret: the run's row names the environment."""
        env = self.make(remoteWorkspacePath=top + "/there/keyless")
        run, path = self.killed(env, "precious-0"), "/api/environments/" + env["id"]

        def words(name, old, new, *more):
            con = sqlite3.connect(f"{d.dir}/airlock/{name}.db", timeout=DEADLINE, isolation_level=None)
            try:
                return con.execute(old, (new, *more)).rowcount
            finally:
                con.close()
        lease, key = f'"secret={env["id"]}"', json.dumps(env["config"]["privateKeySecretRef"])
        self.assertEqual(words("airlock", "update leases set spec=replace(spec, ',' || ?1, '') where spec like '%' || ?1 || '%'", lease), 1)
        self.assertEqual(words("server", "update envs set config=json_remove(config,'$.privateKeySecretRef') where id=?", env["id"]), 1)
        r = f.ask("I", "PATCH", f"{path}?companyId={f.c1}", {"config": {"host": "localhost"}})
        self.assertEqual((r.status, r.json.get("code")), (409, "environment_pending_sandbox_cleanup"), r)
        self.assertEqual(r.json["details"]["runsWithWorkLeft"], [run])
        blast = f.ask("I", "GET", path + "/delete-blast-radius").json
        self.assertEqual((blast["deleteBlockedReasons"], blast["workElsewhereCount"]), (["work_elsewhere"], 1))
        words("airlock", "update leases set spec=replace(spec, '\"config=/dev/null\"', '\"config=/dev/null\",' || ?1) where id=(select lease_id from runs where id=?2)", lease, run)
        words("server", "update envs set config=json_set(config,'$.privateKeySecretRef',json(?)) where id=?", key, env["id"])
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/recover", {}).status, 200)

    def killed(self, env, name):
        """A run whose job is killed when it has written a file: its work is there, and nowhere else."""
        run = self.start(env, f"echo precious >{name}; echo x >precious-3; sleep 31337.4" if name == "precious-2" else
                         f"echo precious >{name}; sleep 31337.4")
        at = env["config"]["remoteWorkspacePath"]
        wait_for("its begin", lambda: glob.glob(f"{at}/.airlock-runtime/runs/*/workspace/{name}"))
        for job in [p for p in pids() if parent(p) == d.process.pid]:
            os.kill(job, signal.SIGKILL)
        self.assertTrue(self.end(run)["workKept"])
        return run

    def test_kept_work_is_recovered_by_the_daemon_S1_10(self):
        """Only the daemon has the key: it brings the work back, by HTTP or for `airlock recover`; until then nothing takes the key away."""
        env = self.make(remoteWorkspacePath=top + "/there/kept")
        path, secret = "/api/environments/" + env["id"], env["config"]["privateKeySecretRef"]["secretId"]
        runs = [self.killed(env, "precious-1"), self.killed(env, "precious-2")]
        blast = f.ask("I", "GET", path + "/delete-blast-radius").json
        self.assertEqual((blast["deleteBlockedReasons"], blast["workElsewhereCount"]), (["work_elsewhere"], 2))
        for method, where, body in (("DELETE", path, None), ("DELETE", "/api/secrets/" + secret, None),
                                    ("PATCH", f"{path}?companyId={f.c1}", {"driver": "sandbox", "config": {"provider": "native"}}),
                                    ("PATCH", f"{path}?companyId={f.c1}", {"config": {"privateKey": "another"}})):
            r = f.ask("I", method, where, body)
            self.assertEqual(r.status, 409, r)
        self.assertEqual(f.patch(env["id"], {"name": "renamed", "config": {"strictHostKeyChecking": True}}).status, 200)
        self.assertIn("left work", d.cli("company", "rm", "C1", ok=False).stderr)
        # Who may not, hears nothing and does nothing.
        self.assertEqual(f.ask("M", "POST", f"/api/runs/{runs[0]}/recover", {}).status, 403)
        self.assertFalse(os.path.exists(f"{top}/all/w/precious-1"))
        r = f.ask("I", "POST", f"/api/runs/{runs[0]}/recover", {})
        self.assertEqual((r.status, r.json["done"]), (200, True), (r, d.log[-4:]))
        self.assertEqual(text(f"{top}/all/w/precious-1"), "precious\n")
        self.assertFalse(f.ask("I", "GET", "/api/runs/" + runs[0]).json["workKept"])
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{runs[0]}/recover", {}).status, 404)
        # At a shell, by the daemon; without one it says so.
        r = d.cli("recover", runs[1], ok=False)
        self.assertIn("refuses to recover it", r.stderr)
        d.env["AIRLOCK_TOKEN"] = f.token["I"]
        try:
            d.stop()
            self.assertIn("start airlockd", d.cli("recover", runs[1], ok=False).stderr)
            d.start()
            # Its options reach the daemon: what is left out is not brought back.
            d.cli("recover", "--no-strict", "--exclude", "precious-[3]", runs[1])
        finally:
            del d.env["AIRLOCK_TOKEN"]
        self.assertEqual(text(f"{top}/all/w/precious-2"), "precious\n")
        self.assertFalse(os.path.exists(f"{top}/all/w/precious-3"))
        self.assertEqual(glob.glob(top + "/there/kept/.airlock-runtime/runs/*"), [])
        self.assertEqual(f.ask("I", "DELETE", path).status, 200)

    def test_a_daemon_that_starts_recovers_from_the_machine_S1_10(self):
        env = self.make(remoteWorkspacePath=top + "/there/auto")
        run = self.killed(env, "auto-ssh")
        d.options.remove("--no-recover")
        try:
            d.stop(signal.SIGKILL)
            d.start()
            wait_for("its work", lambda: not f.ask("I", "GET", "/api/runs/" + run).json["workKept"])
            self.assertEqual(text(f"{top}/all/w/auto-ssh"), "precious\n")
            wait_for("nothing there", lambda: not glob.glob(top + "/there/auto/.airlock-runtime/runs/*"))
        finally:
            d.options.insert(0, "--no-recover")
            d.stop()
            d.start()

    def changes(self, env):
        """What makes it another machine, another account on it, or takes its key."""
        path, secret = f"/api/environments/{env['id']}?companyId={f.c1}", env["config"]["privateKeySecretRef"]["secretId"]
        key_ = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": os.urandom(8).hex(), "value": "v"}).json["id"]
        return [("PATCH", path, body) for body in (
            {"driver": "sandbox", "config": {"provider": "native"}}, {"config": {"privateKey": text(sshd.top + "/other")}},
            {"config": {"privateKeySecretRef": {"type": "secret_ref", "secretId": key_, "version": "latest"}}},
            {"config": {"host": "127.0.0.2"}}, {"config": {"port": sshd.port + 1}}, {"config": {"username": WHO + "x"}},
            {"config": {"remoteWorkspacePath": top + "/there/elsewhere"}})] + [("DELETE", "/api/secrets/" + secret, None)]

    def test_what_goes_on_keeps_its_machine_and_key(self):
        """S1-10: a run that dies must be found again, with the key that reaches it."""
        env = self.make(remoteWorkspacePath=top + "/there/live")
        stored = env["config"]
        run = self.start(env, "echo x >begun-live; sleep 31337.2")
        wait_for("its begin", lambda: glob.glob(top + "/there/live/.airlock-runtime/runs/*/workspace/begun-live"))
        for method, path, body in self.changes(env):
            r = f.ask("I", method, path, body)
            self.assertEqual((r.status, r.json.get("code")), (409, "environment_in_use"), (body, r))
            self.assertIn(f"run {run} (going on)", r.json["error"])
            self.assertIn("/cancel", r.json["error"])
            self.assertEqual(r.json["details"]["runsGoingOn"], [run])
        # What is not another machine may change, and what is said again is no change.
        for body in ({"name": "renamed live"}, {"driver": "ssh"}, {"config": {k: stored[k] for k in ("host", "port", "privateKeySecretRef")}},
                     {"envVars": {"A": {"type": "plain", "value": "1"}}}):
            self.assertEqual(f.patch(env["id"], body).status, 200, body)
        f.ask("I", "POST", f"/api/runs/{run}/cancel")
        self.end(run)
        wait_for("its end there", lambda: not glob.glob(top + "/there/live/.airlock-runtime/runs/*"))
        lease = self.lease(env).json["id"]
        for method, path, body in self.changes(env):
            r = f.ask("I", method, path, body)
            self.assertEqual((r.status, r.json.get("code")), (409, "environment_in_use"), (body, r))
            self.assertIn(f"lease {lease} (active)", r.json["error"])
            self.assertIn("/release", r.json["error"])
        self.assertEqual(f.ask("I", "POST", f"/api/environment-leases/{lease}/release", {}).status, 200)
        dead = self.killed(env, "left-here")
        for method, path, body in self.changes(env):
            r = f.ask("I", method, path, body)
            self.assertEqual((r.status, r.json.get("code")), (409, "environment_pending_sandbox_cleanup"), (body, r))
            self.assertIn(f"run {dead} (it left work", r.json["error"])
            self.assertIn("/recover", r.json["error"])
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{dead}/recover", {}).status, 200)
        for method, path, body in self.changes(env)[-2:]:
            self.assertEqual(f.ask("I", method, path, body).status, 200)

    def sweep_uses(self, secret):
        con = sqlite3.connect(d.dir + "/airlock/server.db", timeout=DEADLINE)
        try:
            return con.execute("select count(*) from secret_events where secret_id=? and consumer='sweep'", (secret,)).fetchone()[0]
        finally:
            con.close()

    def state_db(self, sql, *values):
        con = sqlite3.connect(d.dir + "/airlock/airlock.db", timeout=DEADLINE)
        try:
            with con:
                return con.execute(sql, values).fetchall()
        finally:
            con.close()

    def sweep(self):
        """A daemon that starts sweeps; when it says so, it is over."""
        d.stop()
        d.start()
        wait_for("a sweep", lambda: re.search(rb"^\w*sweeps_total [1-9]", f.ask("I", "GET", "/metrics").body, re.M))

    def test_a_sweep_opens_the_keys_that_it_uses(self):
        """B-05: what nobody is about to use stays sealed; each use is written down."""
        env = self.make(remoteWorkspacePath=top + "/there/sweeps")
        secret = env["config"]["privateKeySecretRef"]["secretId"]
        run = self.killed(env, "swept")
        self.sweep()
        # Its work is kept where it is: nothing is done about it.
        self.assertEqual(self.sweep_uses(secret), 0)
        # Something to remove, on a machine that was tried just now.
        lease = self.state_db("select lease_id from runs where id=?", run)[0][0]
        self.state_db("update leases set state='cleanup' where id=?", lease)
        tried = f"{d.dir}/airlock/leases/{lease}/tried"
        with open(tried, "w", encoding="ascii"):
            pass
        self.sweep()
        self.assertEqual(self.sweep_uses(secret), 0)
        os.unlink(tried)
        self.sweep()
        self.assertEqual(self.sweep_uses(secret), 1)
        self.assertEqual(self.state_db("select state from leases where id=?", lease), [("released",)])
        self.assertEqual(glob.glob(top + "/there/sweeps/.airlock-runtime/runs/*"), [])

    def test_files_of_host_keys_are_not_kept_for_ever(self):
        env = self.make(remoteWorkspacePath=top + "/there/hosts")
        known, old = d.dir + "/airlock/ssh-known", time.time() - 100000
        run = self.killed(env, "known")
        used = [w.split("/")[-1] for w in json.loads(self.state_db(
            "select spec from leases where id=(select lease_id from runs where id=?)", run)[0][0])["remote"] if w.startswith("known-hosts=")]
        self.assertEqual(len(used), 1)
        names = {"0" * 32: old, "1" * 32 + ".4711": old, "2" * 32: time.time(), "notes": old, used[0]: old}
        for name, when in names.items():
            with open(f"{known}/{name}", "a", encoding="ascii"):
                pass
            os.utime(f"{known}/{name}", (when, when))
        own(known)
        self.sweep()
        self.assertEqual([n for n in names if os.path.exists(f"{known}/{n}")], ["2" * 32, "notes", used[0]])
        for name in "2" * 32, "notes":
            os.unlink(f"{known}/{name}")
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/recover", {}).status, 200)

    def test_work_that_nobody_wants(self):
        """A machine that never comes back keeps no environment for ever: whoever says so leaves there what is there."""
        env = self.make(remoteWorkspacePath=top + "/there/left")
        run = self.killed(env, "unwanted")
        path = "/api/environments/" + env["id"]
        self.assertEqual(f.ask("I", "DELETE", path + "?abandonRemoteWork=yes").status, 409)
        self.assertEqual(f.ask("I", "DELETE", path + "?abandonRemoteWork=true").status, 200)
        self.assertEqual(f.ask("I", "POST", f"/api/runs/{run}/recover", {}).status, 502)
        self.assertTrue(f.ask("I", "GET", "/api/runs/" + run).json["workKept"])

    def test_a_key_that_is_not_bound_runs_nothing(self):
        env = self.make()
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/runs",
                  {"companyId": f.c2, "workspaceRoot": "all", "workspacePath": "w", "command": "true"})
        self.assertEqual((r.status, r.json["code"]), (422, "secret_binding_missing"), r)


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
