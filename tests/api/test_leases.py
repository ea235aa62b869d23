#!/usr/bin/env python3
"""Leases and probes of the daemon, with real sandboxes. Numbers are those of specs/api.md section 12.

usage: test_leases.py DIRECTORY_OF_PROGRAMS [root|user]
"""
import http.client
import io
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import verdicts  # noqa: E402
from daemon_box import DEADLINE, NATIVE, NOBODY, SSH, Daemon, Fixture, Watcher, programs, wait_for  # noqa: E402

PROGRAMS = programs()
STRESS = float(os.environ.get("AIRLOCK_STRESS", "6"))
KILLS = int(os.environ.get("AIRLOCK_KILLS", "8"))
UID = 54321 if sys.argv[2:3] == ["user"] and os.geteuid() == 0 else None  # of nobody
d = f = None


def setUpModule():
    global d, f
    d = Daemon(PROGRAMS, uid=UID)
    f = Fixture(d)


def tearDownModule():
    for row in rows("status in ('active','retained')"):
        f.ask("I", "DELETE", "/api/environment-leases/" + row["id"])
    d.close()


def db():
    con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
    con.row_factory = sqlite3.Row
    return con


def rows(where="1", *args):
    return db().execute("select * from env_leases where " + where, args).fetchall()


def storage():
    """Sandboxes that have storage."""
    try:
        return sorted(os.listdir(d.dir + "/airlock/served"))
    except FileNotFoundError:
        return []


def launches():
    """Processes airlock-launch that belong to this daemon's sandboxes: their control sockets answer."""
    found = []
    for name in storage():
        s = socket.socket(socket.AF_UNIX)
        try:
            fd = os.open(f"{d.dir}/airlock/served/{name}", os.O_PATH)
            try:
                s.connect(f"/proc/self/fd/{fd}/control.sock")
                found.append(name)
            finally:
                os.close(fd)
        except OSError:
            pass
        finally:
            s.close()
    return found


class Case(unittest.TestCase):
    def acquire(self, env, **body):
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1, **body})
        self.assertEqual(r.status, 201, r)
        return r.json

    def post(self, lease, verb, body=None):
        return f.ask("I", "POST", f"/api/environment-leases/{lease['id']}/{verb}", body or {})

    def destroy(self, lease):
        return f.ask("I", "DELETE", "/api/environment-leases/" + lease["id"])

    def state(self, lease):
        r = f.ask("I", "GET", "/api/environment-leases/" + lease["id"]).json
        return r["status"], r["cleanupStatus"], r["failureReason"]


class Leases(Case):
    def test_ephemeral(self):
        env = f.make("l-eph", "sandbox", NATIVE)
        lease = self.acquire(env)
        self.assertEqual((lease["status"], lease["leasePolicy"], lease["provider"], lease["companyId"]),
                         ("active", "ephemeral", "native", f.c1))
        self.assertIn(lease["providerLeaseId"], launches())
        self.assertEqual(self.post(lease, "resume").status, 409)
        r = self.post(lease, "release", {"result": "failed"})
        self.assertEqual((r.json["status"], r.json["cleanupStatus"]), ("failed", "success"))
        self.assertNotIn(lease["providerLeaseId"], storage())
        for verb in ("release", "resume"):
            self.assertEqual(self.post(lease, verb).status, 409)
        self.assertEqual(self.destroy(lease).status, 409)
        for result, status in (("succeeded", "released"), ("timed_out", "failed"), ("cancelled", "expired")):
            lease = self.acquire(env)
            self.assertEqual(self.post(lease, "release", {"result": result}).json["status"], status)

    def test_more_at_once_than_can_be_made(self):
        """What is told to come again leaves no row behind that nobody takes up."""
        env = f.make("l-burst", "sandbox", NATIVE)
        got = []

        def one():
            got.append(f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1}))

        threads = [threading.Thread(target=one) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        made = [r.json["id"] for r in got if r.status == 201]
        # Eight at a time, the others when their turn comes.
        self.assertEqual({r.status for r in got}, {201}, got)
        self.assertEqual(sorted(r["id"] for r in rows("environment_id=?", env["id"])), sorted(made))
        for lease in made:
            self.assertEqual(f.ask("I", "DELETE", "/api/environment-leases/" + lease).status, 200)

    def test_turns(self):
        """One who wants many does not hold up one who wants one; beyond the bound there is a 503 and no row."""
        env = f.make("l-turns", "sandbox", NATIVE)
        d.cli("user", "add", "second", "--admin")
        key, done = d.cli("token", "create", "--user", "second"), []

        def one(token):
            r = d.ask("POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1}, token)
            done.append((token, r))

        many = [threading.Thread(target=one, args=(f.token["I"],)) for _ in range(60)]
        for t in many:
            t.start()
        wait_for("a queue", lambda: len(done) + len(rows("environment_id=?", env["id"])) >= 40)
        made_by = lambda: [token for token, r in list(done) if r.status == 201]
        before = len(made_by())
        one(key)
        # Those that ran, and perhaps some that ended at the same moment; who was told 503 was not served.
        self.assertIn(key, made_by())
        self.assertLessEqual(made_by().index(key), before + 20)
        for t in many:
            t.join()
        self.assertEqual({r.status for _, r in done} - {201, 503}, set())
        made = [r.json["id"] for _, r in done if r.status == 201]
        self.assertEqual(sorted(r["id"] for r in rows("environment_id=?", env["id"])), sorted(made))
        for lease in made:
            self.assertEqual(f.ask("I", "DELETE", "/api/environment-leases/" + lease).status, 200)

    def test_reusable(self):
        env = f.make("l-reuse", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        name = lease["providerLeaseId"]
        # Warm: the sandbox stays and is the same one afterwards.
        pid = rows("id=?", lease["id"])[0]["monitor_pid"]
        r = self.post(lease, "release", {"disposition": "keep_running"})
        self.assertEqual((r.json["status"], r.json["cleanupStatus"], r.json["releasedAt"]), ("retained", "success", None))
        self.assertIn(name, launches())
        self.assertEqual(self.post(lease, "resume").json["status"], "active")
        self.assertEqual(rows("id=?", lease["id"])[0]["monitor_pid"], pid)
        # Staying warm is earned by success.
        self.assertEqual(self.post(lease, "release", {"disposition": "keep_running", "result": "failed"}).status, 409)
        # Stopped: no process, but its storage, and a new process later.
        r = self.post(lease, "release", {"disposition": "stop_and_retain", "result": "failed"})
        self.assertEqual(r.json["status"], "released")
        self.assertNotIn(name, launches())
        self.assertIn(name, storage())
        self.assertEqual(self.post(lease, "resume").json["status"], "active")
        self.assertIn(name, launches())
        r = self.destroy(lease)
        self.assertEqual((r.json["status"], r.json["cleanupStatus"], r.json["failureReason"]), ("expired", "success", "lease_destroyed"))
        self.assertNotIn(name, storage())
        self.assertEqual(self.post(lease, "resume").status, 409)

    def test_case_54_reads(self):
        env = f.make("l-read", "sandbox", NATIVE)
        lease = self.acquire(env)
        theirs = f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c2}).json
        self.assertEqual(len(f.ask("I", "GET", f"/api/environments/{env['id']}/leases").json), 2)
        # A member sees the own company's, without metadata; the other is as good as none.
        mine = f.ask("M", "GET", f"/api/environments/{env['id']}/leases").json
        self.assertEqual([(x["id"], x["metadata"]) for x in mine], [(lease["id"], None)])
        self.assertIsNotNone(f.ask("I", "GET", "/api/environment-leases/" + lease["id"]).json["metadata"])
        gone = [f.ask("M", "GET", "/api/environment-leases/" + x) for x in (theirs["id"], NOBODY)]
        self.assertEqual([(r.status, r.json) for r in gone], [(404, {"error": "Environment lease not found"})] * 2)
        self.assertEqual(len(f.ask("I", "GET", f"/api/environments/{env['id']}/leases?status=active&limit=1&offset=1").json), 1)
        self.assertEqual(f.ask("I", "GET", f"/api/environments/{env['id']}/leases?status=bogus").json, [])
        for x in (lease, theirs):
            self.assertEqual(self.destroy(x).status, 200)

    def test_who_gets_none(self):
        env = f.make("l-none", "ssh", SSH)
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/leases",
                               {"companyId": f.c1, "leasePolicy": "reuse_by_environment"}).status, 422)
        env = f.make("l-arch", "sandbox", NATIVE, status="archived")
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1}).status, 409)
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": NOBODY}).status, 409)
        env = f.make("l-co", "sandbox", NATIVE)
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": NOBODY}).status, 404)
        # Two companies, no hint: nobody guesses.
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {}).status, 422)
        self.assertEqual(rows("environment_id=?", env["id"]), [])

    def test_local_leases_are_rows(self):
        env = f.ask("I", "GET", f"/api/companies/{f.c1}/environments?driver=local").json[0]
        lease = self.acquire(env)
        self.assertEqual((lease["provider"], lease["status"]), ("local", "active"))
        self.assertEqual(self.post(lease, "release").json["status"], "released")

    def test_time_is_over(self):
        env = f.make("l-ttl", "sandbox", NATIVE)
        lease = self.acquire(env, ttlSeconds=60)
        self.assertIsNotNone(lease["expiresAt"])
        con = db()
        con.execute("update env_leases set expires_ns=1 where id=?", (lease["id"],))
        con.commit()
        d.stop()
        d.start()  # the first sweep is at the start
        wait_for("the sweep", lambda: self.state(lease) == ("expired", "success", "lease_expired"))
        self.assertNotIn(lease["providerLeaseId"], storage())

    def test_time_of_a_kept_lease_is_over(self):
        """Kept warm or stopped, it is not resumed any more and goes with the next sweep; a release then destroys."""
        env = f.make("l-ttl-kept", "sandbox", NATIVE)
        kept = [self.acquire(env, leasePolicy="reuse_by_environment", ttlSeconds=60) for _ in range(3)]
        self.assertEqual(self.post(kept[0], "release", {"disposition": "keep_running"}).json["status"], "retained")
        self.assertEqual(self.post(kept[1], "release", {"disposition": "stop_and_retain"}).json["status"], "released")
        con = db()
        con.execute("update env_leases set expires_ns=1 where environment_id=?", (env["id"],))
        con.commit()
        r = self.post(kept[2], "release", {"disposition": "keep_running"})
        self.assertEqual((r.json["status"], r.json["failureReason"]), ("expired", "lease_expired"))
        for lease in kept:
            self.assertEqual(self.post(lease, "resume").status, 409)
        d.stop()
        d.start()  # the first sweep is at the start
        for lease in kept:
            wait_for("the sweep", lambda: self.state(lease) == ("expired", "success", "lease_expired"))  # pylint: disable=cell-var-from-loop
            self.assertNotIn(lease["providerLeaseId"], storage())

    def test_company_with_open_runs_stays(self):
        """A company's rows go with it, and a run without a row can be cancelled by nobody; leases that are not over likewise."""
        company = d.cli("company", "add", "C to go")
        con = db()
        con.execute("insert into env_runs(id,company_id,root,path,command,review,timeout_s,status,created_ns) values(?,?,'r','','true',0,1,'queued',1)",
                    (str(uuid.uuid4()), company.split()[0]))
        con.commit()
        r = d.cli("company", "rm", "C to go", ok=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("runs that are not over", r.stderr)
        con.execute("update env_runs set status='cancelled' where company_id=?", (company.split()[0],))
        con.commit()
        d.cli("company", "rm", "C to go")

    def test_destroyed_by_a_release(self):
        """Nothing is left of it: not to be resumed, and nothing that keeps the environment from being deleted."""
        env = f.make("l-release-destroy", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        r = self.post(lease, "release", {"disposition": "destroy"})
        self.assertEqual((r.json["status"], r.json["failureReason"]), ("expired", "lease_destroyed"))
        self.assertNotIn(lease["providerLeaseId"], storage())
        self.assertEqual(self.post(lease, "resume").status, 409)
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + env["id"]).status, 200)

    def test_resume_needs_its_environment(self):
        """Archived, changed or gone: what was stopped before does not start with what the environment is no more."""
        env = f.make("l-resume-env", "sandbox", NATIVE)
        path = "/api/environments/" + env["id"]
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        self.assertEqual(f.ask("I", "PATCH", path, {"status": "archived"}).status, 200)
        self.assertEqual(self.post(lease, "resume").status, 409)
        self.assertEqual(f.ask("I", "PATCH", path, {"status": "active"}).status, 200)
        self.assertEqual(self.post(lease, "resume").status, 200)
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        r = f.ask("I", "PATCH", f"{path}?companyId={f.c1}", {"config": {"network": "host"}})
        self.assertEqual(r.status, 200, r)
        r = self.post(lease, "resume")
        self.assertEqual((r.status, r.json["code"]), (409, "lease_fingerprint_mismatch"), r)
        self.assertEqual(self.destroy(lease).status, 200)

    def test_what_was_kept_and_is_gone_is_told(self):
        """No empty sandbox takes its place; a row behind which nothing is left (who destroyed it died) ends with the next sweep."""
        env = f.make("l-gone", "sandbox", NATIVE)
        stopped, destroyed = (self.acquire(env, leasePolicy="reuse_by_environment") for _ in range(2))
        self.assertEqual(self.post(stopped, "release", {"disposition": "stop_and_retain"}).status, 200)
        shutil.rmtree(f"{d.dir}/airlock/served/{stopped['providerLeaseId']}")
        r = self.post(stopped, "resume")
        self.assertEqual((r.status, r.json.get("code")), (409, "lease_not_found"), r)
        self.assertEqual(self.state(stopped)[0::2], ("expired", "not_found"))
        self.assertNotIn(stopped["providerLeaseId"], storage())
        # As a release that destroys leaves it when it dies behind the removal.
        monitor = rows("id=?", destroyed["id"])[0]["monitor_pid"]
        os.kill(monitor, signal.SIGKILL)
        wait_for("its end", lambda: destroyed["providerLeaseId"] not in launches())
        shutil.rmtree(f"{d.dir}/airlock/served/{destroyed['providerLeaseId']}")
        p = d.job({"op": "sweep", "backoffSeconds": 0})
        p.stdout.read()
        p.wait(timeout=DEADLINE)
        p.stdout.close()
        wait_for("its end", lambda: self.state(destroyed)[0::2] == ("expired", "not_found"))
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + env["id"]).status, 200)

    def waited(self, env):
        """A lease that waited for its turn for an hour; what its job says."""
        con, ident, hour, pid = db(), str(uuid.uuid4()), 3600 * 10**9, d.process.pid
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat, open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            owner = {"owner_pid": pid, "owner_start": int(stat.read().rsplit(")", 1)[1].split()[19]), "owner_boot": boot.read().strip()}
        row = {"id": ident, "company_id": f.c1, "environment_id": env["id"], "status": "pending_cleanup", "policy": "ephemeral",
               "provider": "native", "provider_lease_id": uuid.uuid4().hex[:16], "failure_reason": "acquire_in_progress", "cleanup": "pending",
               "metadata": json.dumps({"driver": "sandbox", "config": NATIVE}), "acquired_ns": time.time_ns() - hour,
               "expires_ns": time.time_ns() - hour + 60 * 10**9, "used_ns": 1, "created_ns": 1, "updated_ns": time.time_ns(), **owner}
        con.execute(f"insert into env_leases({','.join(row)}) values({','.join('?' * len(row))})", tuple(row.values()))
        con.commit()
        p = d.job({"op": "acquire", "leaseId": ident})
        got = json.loads(p.stdout.read())
        p.wait(timeout=DEADLINE)
        p.stdout.close()
        return {"id": ident}, got

    def test_a_lease_that_waited(self):
        """Its time begins when it is acquired; and what was archived meanwhile gives none."""
        env = f.make("l-waited", "sandbox", NATIVE)
        lease, got = self.waited(env)
        self.assertTrue(got["ok"], got)
        self.assertGreater(rows("id=?", lease["id"])[0]["expires_ns"], time.time_ns())
        self.assertEqual(self.destroy(lease).status, 200)
        self.assertEqual(f.ask("I", "PATCH", "/api/environments/" + env["id"], {"status": "archived"}).status, 200)
        lease, got = self.waited(env)
        self.assertFalse(got["ok"], got)
        self.assertEqual(self.state(lease)[0], "expired")

    def test_nobody_hurries_away_the_last_try(self):
        """A start (and whatever fails) sweeps at once, but what was tried twice waits for its turn: five tries are five turns."""
        env = f.make("l-hurry", "sandbox", NATIVE)
        con = db()

        def pending(attempts):
            ident = str(uuid.uuid4())
            con.execute("insert into env_leases(id,company_id,environment_id,status,policy,provider,provider_lease_id,acquired_ns,used_ns,created_ns,"
                        "updated_ns,attempts) values(?,?,?,'pending_cleanup','ephemeral','native',?,1,1,1,?,?)",
                        (ident, f.c1, env["id"], uuid.uuid4().hex[:16], time.time_ns(), attempts))
            con.commit()
            return ident

        tried, fresh = pending(2), pending(0)
        d.stop()
        d.start()
        wait_for("the sweep", lambda: self.state({"id": fresh})[0] == "expired")
        self.assertEqual(self.state({"id": tried})[0], "pending_cleanup")
        con.execute("delete from env_leases where id=?", (tried,))
        con.commit()

    def test_many_rows_of_an_environment(self):
        """A history of any length hides no reusable lease from who deletes its environment; kept ones count against the limit."""
        env = f.make("l-many", "sandbox", NATIVE)
        path = "/api/environments/" + env["id"]
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        con = db()
        names = [c[1] for c in con.execute("pragma table_info(env_leases)")]
        con.row_factory = None
        row = dict(zip(names, con.execute("select * from env_leases where id=?", (lease["id"],)).fetchone()))

        def fill(n, policy):
            con.executemany(f"insert into env_leases({','.join(names)}) values({','.join('?' * len(names))})",
                            [tuple({**row, "id": str(uuid.uuid4()), "provider_lease_id": None, "policy": policy, "used_ns": row["used_ns"] + i + 1}[k]
                                   for k in names) for i in range(n)])
            con.commit()

        fill(1100, "ephemeral")
        blast = f.ask("I", "GET", path + "/delete-blast-radius").json
        self.assertEqual([h["leaseId"] for h in blast["reusableSandboxLeaseHolders"]], [lease["id"]], blast)
        fill(256, "reuse_by_environment")
        self.assertEqual(f.ask("I", "POST", path + "/leases", {"companyId": f.c1}).status, 409)
        con.execute("delete from env_leases where environment_id=? and policy='reuse_by_environment' and id<>?", (env["id"], lease["id"]))
        con.commit()
        r = f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json.get("destroyedReusableSandboxLeaseCount")), (200, 1), r)
        self.assertNotIn(lease["providerLeaseId"], storage())

    def test_case_35_37_39_deleting_an_environment(self):
        env = f.make("l-del", "sandbox", NATIVE)
        path = "/api/environments/" + env["id"]
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        r = f.ask("I", "DELETE", path)
        self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["reusable_sandbox_lease"]))
        self.assertEqual(self.state(lease)[0], "active")
        self.assertIn(lease["providerLeaseId"], launches())
        # 37: a run holds it.
        con = db()
        con.execute("update env_leases set run_id=? where id=?", (NOBODY, lease["id"]))
        con.commit()
        r = f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["reusable_sandbox_lease"]))
        self.assertEqual(self.state(lease)[0], "active")
        con.execute("update env_leases set run_id=null where id=?", (lease["id"],))
        con.commit()
        self.assertEqual(f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=yes").status, 409)
        r = f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json["destroyedReusableSandboxLeaseCount"]), (200, 1))
        self.assertEqual(self.state(lease), ("expired", "success", "environment_deleted"))
        self.assertIsNone(f.ask("I", "GET", "/api/environment-leases/" + lease["id"]).json["environmentId"])
        self.assertNotIn(lease["providerLeaseId"], storage())

    def test_case_38_consent_for_leases_alone(self):
        """Whoever consents to the end of leases consents to no more: while something else blocks, none of them is ended."""
        env = f.make("l-default", "sandbox", NATIVE)
        path = "/api/environments/" + env["id"]
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(f.ask("I", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": env["id"]}).status, 200)
        r = f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["instance_default", "reusable_sandbox_lease"]))
        self.assertEqual(self.state(lease)[0], "active")
        self.assertIn(lease["providerLeaseId"], launches())
        self.assertEqual(f.ask("I", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": None}).status, 200)
        self.assertEqual(f.ask("I", "DELETE", path + "?destroyReusableSandboxLeases=true").status, 200)

    def test_case_39_destroy_fails(self):
        env = f.make("l-stuck", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        # A plain file where the trash would be: storage cannot be moved away.
        trash = f"{d.dir}/airlock/trash/served-{lease['providerLeaseId']}"
        with open(trash, "w", encoding="ascii"):
            pass
        r = f.ask("I", "DELETE", f"/api/environments/{env['id']}?destroyReusableSandboxLeases=true")
        self.assertEqual((r.status, r.json["details"]["deleteBlockedReasons"]), (409, ["pending_sandbox_cleanup"]))
        self.assertEqual(self.state(lease)[:2], ("pending_cleanup", "failed"))
        os.unlink(trash)
        self.assertEqual(self.destroy(lease).json["status"], "expired")
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + env["id"]).status, 200)


class Races(Case):
    """Two who want the same lease, and writes that fail at the worst point: never a sandbox that no row speaks for."""

    def setUp(self):
        self.con = db()

    def tearDown(self):
        self.con.execute("drop trigger if exists refuse")
        self.con.commit()
        self.con.close()

    def refuse(self, when):
        self.con.execute(f"create trigger refuse before update on env_leases when {when} begin select raise(abort,'refused'); end")
        self.con.commit()

    def sweep(self):
        p = d.job({"op": "sweep", "backoffSeconds": 0})
        answer = json.loads(p.stdout.read())
        p.wait(timeout=DEADLINE)
        p.stdout.close()
        return answer

    def test_sweep_takes_what_a_killed_import_left(self):
        left = f"{d.dir}/airlock/images/.incoming-{'0' * 26}"
        os.makedirs(left + "/tree")
        if d.uid:
            for path in os.path.dirname(left), left, left + "/tree":
                os.chown(path, d.uid, d.uid)
        self.assertTrue(self.sweep()["ok"])
        self.assertFalse(os.path.exists(left))

    def test_acquired_but_not_written_down(self):
        env = f.make("r-last", "sandbox", NATIVE)
        self.refuse("new.status='active' and old.status='pending_cleanup'")
        before = storage()
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1})
        self.assertEqual(r.status, 502, r)
        row = rows("environment_id=?", env["id"])[0]
        self.assertEqual((row["status"], row["failure_reason"]), ("expired", "acquire_rejected_teardown_succeeded"))
        self.assertEqual(storage(), before)

    def test_resumed_but_not_written_down(self):
        env = f.make("r-resume", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        name = lease["providerLeaseId"]
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        self.refuse("new.status='active' and old.status='released'")
        self.assertEqual(self.post(lease, "resume").status, 502)
        self.assertEqual((self.state(lease)[0], name in launches(), name in storage()), ("released", False, True))
        self.assertEqual(rows("id=?", lease["id"])[0]["owner_pid"], 0)
        self.con.execute("drop trigger refuse")
        self.con.commit()
        self.assertEqual(self.post(lease, "resume").json["status"], "active")
        # One that ran before goes on running if its row cannot be written.
        self.refuse("new.status='active' and old.status='active' and new.owner_pid=0")
        self.assertEqual(self.post(lease, "resume").status, 502)
        self.assertIn(name, launches())
        self.con.execute("drop trigger refuse")
        self.con.commit()
        self.assertEqual(self.destroy(lease).status, 200)

    def test_one_that_waits_is_not_ended_by_who_fails(self):
        """Its row is the daemon's until its job takes it: a DELETE that comes before is refused and takes it from nobody."""
        env = f.make("r-waits", "sandbox", NATIVE)
        lease = self.acquire(env)
        was = dict(rows("id=?", lease["id"])[0])
        with open(f"/proc/{d.process.pid}/stat", encoding="ascii") as stat:
            start = int(stat.read().rsplit(")", 1)[1].split()[19])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            mine = (d.process.pid, start, boot.read().strip())
        put = "update env_leases set status=?, failure_reason=?, cleanup=?, owner_pid=?, owner_start=?, owner_boot=? where id=?"
        self.con.execute(put, ("pending_cleanup", "acquire_in_progress", "pending", *mine, lease["id"]))
        self.con.commit()
        self.assertEqual(self.destroy(lease).status, 409)
        row = rows("id=?", lease["id"])[0]
        self.assertEqual((row["owner_pid"], row["failure_reason"]), (mine[0], "acquire_in_progress"))
        self.con.execute(put, ("active", None, None, 0, 0, was["owner_boot"], lease["id"]))
        self.con.commit()
        self.assertEqual(self.destroy(lease).status, 200)

    def test_destroyed_while_it_is_made(self):
        """The job that makes it has the row: whoever else wants it is told so, and gets it afterwards."""
        env = f.make("r-made", "sandbox", NATIVE)
        for _ in range(400):  # a start is short, and two processes must be caught in it
            got = []
            t = threading.Thread(target=lambda got=got: got.append(self.acquire(env)))
            t.start()
            row = wait_for("the row", lambda: rows("environment_id=? and status!='expired'", env["id"]))[0]
            pid = wait_for("its job", lambda row=row: self.job_of(row["id"]))
            stop(pid)
            caught = rows("id=? and status='pending_cleanup' and owner_pid=?", row["id"], pid)
            if caught:
                self.assertEqual(self.destroy(row).status, 409)
                self.assertEqual(self.sweep()["swept"], 0)
            kill(pid, signal.SIGCONT)
            t.join(timeout=DEADLINE)
            self.assertEqual((got[0]["id"], got[0]["status"]), (row["id"], "active"))
            self.assertEqual(self.destroy(got[0]).status, 200)
            self.assertNotIn(row["provider_lease_id"], storage())
            if caught:
                return
        self.fail("never caught while it was made")

    @staticmethod
    def job_of(ident):
        """The process that works on a row: a job, or whoever was last if it is done."""
        row = rows("id=?", ident)[0]
        if row["status"] == "active":
            return row["monitor_pid"]
        return row["owner_pid"] if row["owner_pid"] != d.process.pid else None

    def test_row_taken_away_from_a_job(self):
        """Somebody else's now, whoever that may be: what the job started is ended."""
        env = f.make("r-away", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        name = lease["providerLeaseId"]
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).status, 200)
        self.con.execute("create trigger refuse after update on env_leases when new.owner_pid>1 and old.owner_pid=0"
                         " begin update env_leases set owner_pid=1 where id=new.id; end")
        self.con.commit()
        self.assertEqual(self.post(lease, "resume").status, 409)
        # It is killed before the answer, and gone soon after.
        wait_for("its end", lambda: name not in launches())
        self.con.execute("drop trigger refuse")
        self.con.execute("update env_leases set owner_pid=0 where id=?", (lease["id"],))
        self.con.commit()
        self.assertEqual(self.destroy(lease).status, 200)

    def test_states_are_judged_again_by_the_job(self):
        """The daemon looked before: by the time a job has the row it may be another."""
        env = f.make("r-late", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(self.destroy(lease).status, 200)
        was = tuple(rows("id=?", lease["id"])[0])
        for request in ({"op": "resume", "leaseId": lease["id"]}, {"op": "acquire", "leaseId": lease["id"]},
                        {"op": "probe", "leaseId": lease["id"]}, {"op": "destroy", "reason": "x", "leaseIds": [lease["id"]]},
                        {"op": "release", "leaseId": lease["id"], "status": "released", "cause": 2, "disposition": "destroy"}):
            p = d.job(request)
            answer = json.loads(p.stdout.read())
            self.assertEqual((answer["ok"], answer["conflict"]), (False, True), request)
            p.wait(timeout=DEADLINE)
            p.stdout.close()
        self.assertEqual(tuple(rows("id=?", lease["id"])[0]), was)
        self.assertNotIn(lease["providerLeaseId"], storage())

    def test_stranded(self):
        """Under served/ and no row may have it: the sweep finds it there. What api.md 7.8 spools the storage itself says."""
        env = f.make("r-lost", "sandbox", NATIVE)
        lost, ended, kept = (self.acquire(env, leasePolicy="reuse_by_environment") for _ in range(3))
        self.con.execute("delete from env_leases where id=?", (lost["id"],))
        self.con.execute("update env_leases set status='expired' where id=?", (ended["id"],))
        # Resumed by somebody who died before he could say so.
        self.con.execute("update env_leases set status='released' where id=?", (kept["id"],))
        self.con.commit()
        self.assertEqual(self.sweep()["destroyed"], 3)
        names = [x["providerLeaseId"] for x in (lost, ended, kept)]
        self.assertEqual([x for x in names if x in launches()], [])
        self.assertEqual([x for x in names if x in storage()], names[2:])
        self.assertEqual(self.sweep()["destroyed"], 0)
        self.assertEqual(self.post(kept, "resume").json["status"], "active")
        self.assertEqual(self.sweep()["destroyed"], 0)
        self.assertEqual(self.destroy(kept).status, 200)

    def test_job_that_never_took_its_row(self):
        """The daemon lives, so nobody else could: it lets go itself, and the sweep ends the row without a restart."""
        env = f.make("r-never", "sandbox", NATIVE)
        self.refuse(f"old.owner_pid={d.process.pid} and new.owner_pid not in (0,{d.process.pid})")
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c1})
        self.assertEqual(r.status, 502)
        wait_for("the sweep", lambda: rows("environment_id=? and status='expired'", env["id"]))

    def test_everybody_at_once(self):
        """Acquire, resume, release, destroy of the same leases by six clients."""
        env = f.make("r-stress", "sandbox", NATIVE)
        path, end, odd = f"/api/environments/{env['id']}/leases", time.monotonic() + STRESS, []

        def one(n):
            rnd = random.Random(n)
            while time.monotonic() < end:
                all_ = [r["id"] for r in rows("environment_id=? and status not in ('expired','failed')", env["id"])]
                if len(all_) < 3:
                    r = f.ask("I", "POST", path, {"companyId": f.c1, "leasePolicy": "reuse_by_environment"})
                else:
                    lease = {"id": rnd.choice(all_)}
                    r = (self.destroy(lease) if rnd.random() < 0.3 else self.post(lease, "resume") if rnd.random() < 0.5 else
                         self.post(lease, "release", {"disposition": rnd.choice(["keep_running", "stop_and_retain", "destroy"])}))
                if r.status not in (200, 201, 409, 503):
                    odd.append(r)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(odd, [])
        self.assertEqual(rows("environment_id=? and (status='pending_cleanup' or owner_pid!=0)", env["id"]), [])
        mine = {r["provider_lease_id"]: r["status"] for r in rows("environment_id=?", env["id"])}
        runs = {n for n, s in mine.items() if s in ("active", "retained")}
        self.assertEqual({x for x in launches() if x in mine}, runs)
        self.assertLessEqual({x for x in storage() if x in mine}, runs | {n for n, s in mine.items() if s == "released"})
        for row in rows("environment_id=? and status in ('active','retained','released')", env["id"]):
            self.assertEqual(self.destroy(row).status, 200)


class Deaths(Case):
    """Kill -9 of the daemon and of its jobs: no sandbox without a row, no row that nobody ends."""

    def settle(self):
        """Restarts the daemon: its first sweep deals with whatever was left."""
        if d.process:
            d.stop(signal.SIGKILL)
        d.start()
        wait_for("no lease in work", lambda: not rows("status='pending_cleanup'"))
        alive = {r["provider_lease_id"] for r in rows("status in ('active','retained') or policy!='ephemeral'")}
        self.assertLessEqual(set(storage()), alive)

    def test_leases_survive_a_kill(self):
        env = f.make("k-live", "sandbox", NATIVE)
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.settle()
        self.assertEqual(self.state(lease)[0], "active")
        self.assertIn(lease["providerLeaseId"], launches())
        self.assertEqual(self.post(lease, "resume").json["status"], "active")
        self.assertEqual(self.destroy(lease).json["status"], "expired")

    def test_kills_while_acquiring_and_releasing(self):
        """At many points: the daemon, its jobs and both die while leases are made and ended."""
        env = f.make("k-many", "sandbox", NATIVE)
        path = f"/api/environments/{env['id']}/leases"
        for i in range(KILLS):
            def work():
                try:
                    r = f.ask("I", "POST", path, {"companyId": f.c1})
                    f.ask("I", "POST", f"/api/environment-leases/{r.json['id']}/release", {})
                except (OSError, ValueError, KeyError, http.client.HTTPException):  # the daemon died under it
                    pass
            before = len(rows())
            t = threading.Thread(target=work)
            t.start()
            wait_for("a row", lambda before=before: len(rows()) > before)
            end = time.monotonic() + i % 40 * 0.006
            while time.monotonic() < end:
                pass
            if i % 2:
                for pid in jobs(d.process.pid):
                    kill(pid)
            d.stop(signal.SIGKILL)
            t.join(timeout=DEADLINE)
            self.settle_one()
        self.settle()

    def settle_one(self):
        d.start()
        wait_for("the sweep", lambda: not rows("status='pending_cleanup'"))

        def ended(row):
            # 409 while a job that outlived its daemon works on it.
            r = f.ask("I", "DELETE", "/api/environment-leases/" + row["id"])
            self.assertIn(r.status, (200, 409))
            return not rows("id=? and status in ('active','pending_cleanup')", row["id"])
        for row in rows("status='active' and provider='native'"):
            wait_for("its end", lambda row=row: ended(row))
        self.assertEqual(storage(), [r["provider_lease_id"] for r in rows("status in ('released','retained') and policy!='ephemeral'")
                                     if r["provider_lease_id"] in storage()])

    def test_sandbox_that_died(self):
        """Adopted after a restart if it lives; if not, its row says so and its storage is gone."""
        env = f.make("k-dead", "sandbox", NATIVE)
        lease = self.acquire(env)
        kill(rows("id=?", lease["id"])[0]["monitor_pid"])
        d.stop(signal.SIGKILL)
        d.start()
        wait_for("the sweep", lambda: self.state(lease) == ("expired", "success", "not_found"))
        self.assertNotIn(lease["providerLeaseId"], storage())

    def test_sandbox_that_cannot_be_reached(self):
        """Its socket is gone: it is ended through its monitor, and counts as ended only when that is gone."""
        env = f.make("k-mute", "sandbox", NATIVE)
        lease = self.acquire(env)
        pid = rows("id=?", lease["id"])[0]["monitor_pid"]
        os.unlink(f"{d.dir}/airlock/served/{lease['providerLeaseId']}/control.sock")
        self.assertTrue(alive(pid))
        self.assertEqual(self.post(lease, "release").json["status"], "released")
        self.assertFalse(alive(pid))

    def test_case_90_two_sweeps(self):
        env = f.make("k-two", "sandbox", NATIVE)
        lease = self.acquire(env)
        con = db()
        con.execute("update env_leases set status='pending_cleanup', updated_ns=1 where id=?", (lease["id"],))
        con.commit()
        both = [d.job({"op": "sweep", "backoffSeconds": 0}) for _ in range(2)]
        got = [json.loads(p.stdout.read())["destroyed"] for p in both]
        for p in both:
            p.wait(timeout=DEADLINE)
            p.stdout.close()
        self.assertEqual(sum(got), 1)
        self.assertEqual(self.state(lease), ("expired", "success", "pending_cleanup_retry"))

    def test_case_89_attempts_end(self):
        env = f.make("k-cap", "sandbox", NATIVE)
        con = db()
        con.execute("insert into env_leases(id,company_id,environment_id,status,policy,provider,provider_lease_id,acquired_ns,used_ns,created_ns,"
                    "updated_ns,attempts) values(?,?,?,'pending_cleanup','ephemeral','native','0000000000000001',1,1,1,1,5)",
                    ("89000000-0000-4000-8000-000000000000", f.c1, env["id"]))
        con.commit()
        p = d.job({"op": "sweep", "backoffSeconds": 0})
        self.assertEqual(json.loads(p.stdout.read())["swept"], 0)
        p.wait(timeout=DEADLINE)
        p.stdout.close()
        con.execute("delete from env_leases where id='89000000-0000-4000-8000-000000000000'")
        con.commit()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(x) for x in file.read().split()]


def jobs(pid):
    try:
        return children(pid)
    except FileNotFoundError:
        return []


def alive(pid):
    """Lives, and is no zombie that waits for somebody to look."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stop(pid):
    """Stopped, or gone."""
    kill(pid, signal.SIGSTOP)

    def is_so():
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in "TZ"
        except FileNotFoundError:
            return True
    wait_for("a stop", is_so)


def kill(pid, signo=signal.SIGKILL):
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


def system(marker=b""):
    """A root file system of busybox and what a probe looks for, as a tar archive; None without a static busybox."""
    path = "/bin/busybox"
    if not os.path.exists(path) or b"not a dynamic" not in subprocess.run(["ldd", path], capture_output=True, check=False).stderr:
        return None
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        def add(name, data, mode=0o755):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            t.addfile(info, io.BytesIO(data))
        with open(path, "rb") as file:
            add("bin/busybox", file.read())
        for name in "sh", "tar", "uname", "mkdir", "cat", "sleep":
            link = tarfile.TarInfo("bin/" + name)
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            t.addfile(link)
        add("bin/node", b"#!/bin/sh\n")
        add("bin/getconf", b"#!/bin/sh\necho glibc 2.36\n")
        add("etc/marker", marker, 0o644)
    return out.getvalue()


class Qualification(Case):
    """PR-02 to PR-09: what is recorded of a saved probe, and for how long it holds. api.md 6.4."""

    @classmethod
    def setUpClass(cls):
        cls.images = []
        for i in range(2):
            data = system(b"%d" % i)
            if data is None:
                raise unittest.SkipTest("no static busybox")
            path = f"{d.dir}/image.tar"
            with open(path, "wb") as file:
                file.write(data)
            cls.images.append(d.cli("image", "import", "--name", f"q{i}", path))

    def probe(self, env, company=None):
        return f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={company or f.c1}", {})

    def read(self, env, company=None, actor="I"):
        r = f.ask(actor, "GET", f"/api/environments/{env['id']}/qualification?companyId={company or f.c1}")
        self.assertEqual(r.status, 200, r)
        return r.json

    def patch(self, env, body):
        r = f.ask("I", "PATCH", f"/api/environments/{env['id']}?companyId={f.c1}", body)
        self.assertEqual(r.status, 200, r)
        return r

    def proof(self, env):
        return db().execute("select proof from envs where id=?", (env["id"],)).fetchone()[0]

    def qualified(self, name):
        env = f.make(name, "sandbox", {**NATIVE, "image": "q0"})
        self.assertEqual(env["config"]["image"], self.images[0])
        self.assertEqual(self.read(env), {"state": "unqualified", "reason": "never_measured"})
        r = self.probe(env)
        self.assertTrue(r.json["ok"], r)
        self.assertEqual(self.read(env)["state"], "qualified", r)
        return env, r

    def unqualified(self, env, reason, company=None):
        self.assertEqual(self.read(env, company), {"state": "unqualified", "reason": reason})

    def test_case_43_23_25_49_recorded_and_invalidated(self):
        """PR-03, PR-06, PR-08, CF-03: bound to all it was measured with; reading makes nothing."""
        env, r = self.qualified("q-one")
        self.assertNotIn(b"measured", r.body)
        self.assertEqual(r.json["details"]["metadata"]["imageMutable"], False)
        proof = json.loads(self.proof(env))
        self.assertEqual((proof["companyId"], proof["environmentId"], proof["target"]["value"], proof["platform"]["libcVersion"]),
                         (f.c1, env["id"], self.images[0], "2.36"))
        self.assertEqual(proof["probe"]["leaseId"], r.json["details"]["leaseId"])
        before = len(rows())
        # PR-06: reading makes nothing, and shows the record to nobody.
        self.assertEqual(self.read(env, actor="M")["platform"], proof["platform"])
        for path in ("", "/leases"):
            self.assertNotIn(b"Fingerprint", f.ask("I", "GET", f"/api/environments/{env['id']}{path}").body)
        self.assertEqual(len(rows()), before)
        self.unqualified(env, "company_mismatch", f.c2)
        # CF-03, PR-09: an edit of something else keeps it as it is; the same configuration again too.
        self.patch(env, {"metadata": {"note": 1}, "name": "q-one-b"})
        self.patch(env, {"config": {"image": self.images[0]}})
        self.assertEqual(json.loads(self.proof(env)), proof)
        self.patch(env, {"status": "archived"})
        self.unqualified(env, "archived")
        self.patch(env, {"status": "active"})
        self.assertEqual(self.read(env)["state"], "qualified")
        self.patch(env, {"config": {"image": "q1"}})
        self.assertIsNone(self.proof(env))
        self.unqualified(env, "never_measured")
        self.patch(env, {"config": {"image": ""}})
        self.unqualified(env, "mutable_target")
        # A record that somebody put back is compared all the same.
        self.patch(env, {"config": {"image": "q0", "pids": 77}})
        con = db()
        con.execute("update envs set proof=? where id=?", (json.dumps(proof), env["id"]))
        con.commit()
        self.unqualified(env, "config_changed")

    def test_host_image_and_draft_never(self):
        """PR-05, PR-08; as case 45: what can change is not what was measured."""
        env = f.make("q-host", "sandbox", NATIVE)
        self.probe(env)
        self.unqualified(env, "mutable_target")
        self.assertIsNone(self.proof(env))
        env = f.make("q-draft", "sandbox", {**NATIVE, "image": "q0"})
        r = f.ask("I", "POST", f"/api/companies/{f.c1}/environments/probe-config", {"driver": "sandbox", "config": {**NATIVE, "image": "q0"}})
        self.assertEqual(r.status, 200)
        self.unqualified(env, "never_measured")

    def test_case_50_47_accounts_and_companies(self):
        """PR-02, PR-03, PR-08."""
        secret = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "q-secret", "value": "one"}).json
        env = f.make("q-acc", "sandbox", {**NATIVE, "image": "q0"},
                     envVars={"TOKEN": {"type": "secret_ref", "secretId": secret["id"], "version": "latest"}})
        before = len(rows())
        r = self.probe(env, f.c2)
        self.assertEqual((r.status, r.json.get("code")), (403, "environment_company_mismatch"))
        self.assertEqual(len(rows()), before)
        # Secrets of two companies do not open it to a third, and nobody guesses which one is meant.
        other, con = d.cli("company", "add", "q-third").split()[0], db()
        con.execute("insert into secret_bindings(company_id,secret_id,target_type,target_id,path,version) values(?,?,'environment',?,'x','latest')",
                    (other, secret["id"], env["id"]))
        con.commit()
        r = self.probe(env, f.c2)
        self.assertEqual((r.status, r.json.get("code")), (403, "environment_company_mismatch"))
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/probe", {}).status, 409)
        self.assertEqual(len(rows()), before)
        con.execute("delete from secret_bindings where company_id=?", (other,))
        con.commit()
        self.assertTrue(self.probe(env).json["ok"])
        self.assertEqual(self.read(env)["state"], "qualified")
        self.assertEqual(f.ask("I", "POST", f"/api/secrets/{secret['id']}/versions", {"value": "two"}).status, 200)
        self.unqualified(env, "account_changed")

    def test_case_46_cleanup_must_be_proved(self):
        """PR-04: the row of the lease says otherwise: nothing is recorded."""
        env = f.make("q-clean", "sandbox", {**NATIVE, "image": "q0"})
        con = db()
        con.execute("create trigger q_clean after update of status on env_leases when new.status='released' and new.environment_id='%s' "
                    "begin update env_leases set cleanup='failed' where id=new.id; end" % env["id"])
        con.commit()
        try:
            self.assertTrue(self.probe(env).json["ok"])
        finally:
            con.execute("drop trigger q_clean")
            con.commit()
        self.assertIsNone(self.proof(env))
        self.unqualified(env, "never_measured")

    def test_changed_image_fails_the_probe(self):
        """PR-08."""
        env, _ = self.qualified("q-bad")
        marker = f"{d.dir}/airlock/images/{self.images[0][7:]}/tree/etc/marker"
        with open(marker, "wb") as file:
            file.write(b"!")
        try:
            r = self.probe(env).json
            self.assertEqual(r["ok"], False, r)
        finally:
            with open(marker, "wb") as file:
                file.write(b"0")
        self.assertTrue(self.probe(env).json["ok"])
        r = f.ask("I", "POST", f"/api/companies/{f.c1}/environments", {"name": "q-none", "driver": "sandbox", "config": {**NATIVE, "image": "nobody"}})
        self.assertEqual(r.status, 422)
        self.assertIn("is needed by environment", d.cli("image", "rm", "q0", ok=False).stderr)

    def test_stopped_lease_keeps_its_image(self):
        """IM, case 94: one that can be resumed needs it, and stays when it is not; and a lease whose image is lost all the same can be ended."""
        path = f"{d.dir}/image.tar"
        with open(path, "wb") as file:
            file.write(system(b"kept"))
        digest = d.cli("image", "import", "--name", "q-kept", path)
        env = f.make("q-stop", "sandbox", {**NATIVE, "image": "q-kept"})
        lost = self.acquire(env, leasePolicy="reuse_by_environment")
        lease = self.acquire(env, leasePolicy="reuse_by_environment")
        self.assertEqual(self.post(lease, "release", {"disposition": "stop_and_retain"}).json["status"], "released")
        con = db()
        con.execute("update envs set config='{}' where id=?", (env["id"],))
        con.commit()
        self.assertEqual(self.destroy(lost).status, 200)
        self.assertIn("is needed by lease " + lease["id"], d.cli("image", "rm", "q-kept", ok=False).stderr)
        self.assertEqual(self.post(lease, "resume").json["status"], "active")
        os.rename(f"{d.dir}/airlock/images/{digest[7:]}", d.dir + "/aside")
        r = self.post(lease, "release", {"disposition": "stop_and_retain"})
        self.assertEqual((r.json["status"], lease["providerLeaseId"] in launches()), ("released", False), r)
        self.assertNotEqual(self.post(lease, "resume").status, 200)
        self.assertEqual(rows("id=?", lease["id"])[0]["status"], "released")
        self.assertEqual(self.destroy(lease).json["status"], "expired")
        self.assertNotIn(lease["providerLeaseId"], storage())
        os.rename(d.dir + "/aside", f"{d.dir}/airlock/images/{digest[7:]}")
        d.cli("image", "rm", "q-kept")

    def test_PR_09_edits_during_probes(self):
        """Under load: whatever an edit and a probe do to one another, what is qualified was measured with the image that is configured."""
        env = f.make("q-race", "sandbox", {**NATIVE, "image": "q0"})
        for i in range(4):
            answers = []
            t = threading.Thread(target=lambda: answers.append(self.probe(env)))
            t.start()
            want = self.images[(i + 1) % 2]
            # Once its lease is there, the probe has taken what it measures.
            wait_for("a lease", lambda n=i: len(rows("environment_id=?", env["id"])) > n)
            r = f.ask("I", "PATCH", f"/api/environments/{env['id']}?companyId={f.c1}", {"config": {"image": want}})
            edited = r.status == 200
            if not edited:
                self.assertEqual((r.status, r.json["code"]), (409, "environment_pending_sandbox_cleanup"))
            f.ask("I", "PATCH", f"/api/environments/{env['id']}?companyId={f.c1}", {"metadata": {"round": i}})
            t.join(DEADLINE)
            self.assertEqual(answers[0].status, 200)
            now = f.ask("I", "GET", f"/api/environments/{env['id']}").json
            self.assertEqual(now["metadata"], {"round": i})
            proof = self.proof(env)
            if proof:
                self.assertEqual(json.loads(proof)["target"]["value"], now["config"]["image"])
            elif not edited:
                self.fail("a probe that nothing disturbed was not recorded")
            self.assertEqual(self.read(env)["state"] == "qualified", bool(proof))
            if not edited:
                self.patch(env, {"config": {"image": want}})


class Probes(Case):
    """PR-01, PR-02, PR-05, PR-08, RT-02, B-09."""

    def test_saved(self):
        """PR-01, PR-02, PR-08, RT-02, B-09."""
        env = f.make("p-saved", "sandbox", NATIVE)
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c1}", {}).json
        self.assertEqual((r["ok"], r["driver"], r["details"]["provider"]), (True, "sandbox", "native"), r)
        self.assertEqual(r["details"]["metadata"]["os"], "Linux")
        lease = self.lease(r["details"]["leaseId"])
        self.assertEqual((lease["status"], lease["cleanupStatus"], lease["leasePolicy"]), ("released", "success", "ephemeral"))
        self.assertNotIn(r["details"]["providerLeaseId"], storage())
        # PR-08: the host's own image can change, so nothing is recorded.
        self.assertIsNone(db().execute("select proof from envs where id=?", (env["id"],)).fetchone()[0])
        log = f.ask("I", "GET", f"/api/companies/{f.c1}/activity").json
        self.assertEqual([x["details"]["ok"] for x in log if x["action"] == "environment.probed" and x["entityId"] == env["id"]], [True])

    def lease(self, ident):
        return f.ask("I", "GET", "/api/environment-leases/" + ident).json

    def test_company_first(self):
        """PR-02: two companies and no hint, or one that is not there: nothing is allocated."""
        env = f.make("p-co", "sandbox", NATIVE)
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/probe", {}).status, 422)
        self.assertEqual(f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={NOBODY}", {}).status, 404)
        self.assertEqual(rows("environment_id=?", env["id"]), [])

    def test_archived_and_others(self):
        env = f.make("p-arch", "sandbox", NATIVE, status="archived")
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c1}", {})
        self.assertEqual((r.status, r.json["ok"], r.json["details"]["error"]), (200, False, 'Environment "p-arch" is not active.'))
        local = f.ask("I", "GET", f"/api/companies/{f.c1}/environments?driver=local").json[0]
        r = f.ask("I", "POST", f"/api/environments/{local['id']}/probe?companyId={f.c1}", {}).json
        self.assertEqual((r["ok"], r["details"]["isolated"]), (True, False))
        env = f.make("p-ssh", "ssh", SSH)
        r = f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c1}", {}).json
        self.assertEqual((r["ok"], r["summary"]), (False, "SSH probe failed for u@h."))

    def test_case_48_draft(self):
        """PR-01, PR-05."""
        path = f"/api/companies/{f.c1}/environments/probe-config"
        before = len(rows()), len(f.ask("I", "GET", f"/api/companies/{f.c1}/environments").json)
        r = f.ask("I", "POST", path, {"driver": "sandbox", "config": NATIVE})
        self.assertEqual((r.status, r.json["ok"]), (200, True), r)
        key = "draft key 5150"
        r = f.ask("I", "POST", path, {"driver": "ssh", "config": {**SSH, "privateKey": key}})
        self.assertEqual((r.status, r.json["ok"]), (200, False))
        self.assertNotIn(b"5150", r.body)
        self.assertEqual(f.ask("I", "POST", path, {"driver": "ssh", "config": {}}).status, 422)
        self.assertEqual(f.ask("I", "POST", path, {"driver": "sandbox", "config": {"provider": "nope"}}).status, 422)
        self.assertEqual((len(rows()), len(f.ask("I", "GET", f"/api/companies/{f.c1}/environments").json)), before)
        log = f.ask("I", "GET", f"/api/companies/{f.c1}/activity").json
        mine = [x for x in log if x["action"] == "environment.probed_unsaved"]
        self.assertIn(("unsaved", 1), [(x["entityId"], x["details"]["configTopLevelKeyCount"]) for x in mine])


class Events(Case):
    """The event stream."""

    def test_leases_and_probes(self):
        """Whatever process moves a lease; members see their companies', administrators all."""
        env = f.make("e-see", "sandbox", NATIVE)
        admin, member = Watcher(d, f.token["I"]), Watcher(d, f.token["M"])
        try:
            theirs = f.ask("I", "POST", f"/api/environments/{env['id']}/leases", {"companyId": f.c2}).json
            mine = self.acquire(env)
            for lease in (theirs, mine):
                self.assertEqual(self.destroy(lease).status, 200)
            f.ask("I", "POST", f"/api/environments/{env['id']}/probe?companyId={f.c1}", {})
            want = [(mine["id"], x) for x in ("pending_cleanup", "active", "pending_cleanup", "expired")]
            got = []
            while not got or got[-1][0] != env["id"]:
                v = member.next()
                self.assertIn(v["companyId"], (f.c1, None))
                got.append((v["id"], v["status"]))
            self.assertEqual([x for x in got if x[0] == mine["id"]], want)
            self.assertEqual(got[-1], (env["id"], "ok"))
            got = []
            while not got or got[-1][0] != env["id"]:
                v = admin.next()
                self.assertEqual(v["environmentId"], env["id"])
                got.append((v["id"], v["status"]))
            self.assertEqual([x for x in got if x[0] in (mine["id"], theirs["id"])], [(theirs["id"], x) for _, x in want[:2]] + want[:2] +
                             [(theirs["id"], x) for _, x in want[2:]] + want[2:])
            # One that comes back misses nothing.
            last = admin.last
            local = f.ask("I", "GET", f"/api/companies/{f.c1}/environments?driver=local").json[0]
            lease = self.acquire(local)
            for query, headers in ((f"?after={last}", {}), ("", {"Last-Event-ID": str(last)})):
                again = Watcher(d, f.token["I"], query, headers)
                self.assertEqual(again.next()["id"], lease["id"])
                again.close()
            self.assertEqual(self.post(lease, "release").status, 200)
        finally:
            admin.close()
            member.close()

    def test_what_was_dropped(self):
        con = db()
        con.execute("delete from events")
        con.executemany("insert into events(at_ns,kind,entity_id,status) values(1,'x',?,'y')", [(str(i),) for i in range(10050)])
        con.commit()
        self.assertEqual(con.execute("select count(*) from events").fetchone()[0], 10000)
        w = Watcher(d, f.token["I"], "?after=1")
        try:
            self.assertEqual(w.next(), {})  # a gap
            self.assertEqual([w.next()["id"] for _ in range(10000)], [str(i) for i in range(50, 10050)])
        finally:
            w.close()

    def test_who_may_not(self):
        for who, query, status in (("A", "", 403), ("U", "", 403), ("N", "", 403), ("I", "?after=x", 400)):
            w = Watcher(d, f.token[who] or "", query) if who != "N" else None
            self.assertEqual(w.status if w else d.ask("GET", "/api/events").status, status)
            if w:
                w.close()

    @staticmethod
    def keys_of(*names):
        for name in names:
            d.cli("user", "add", name, "--company", "C1")
            yield d.cli("token", "create", "--user", name)

    def test_bound_revocation_and_stop(self):
        """So many, no more; a key that is revoked ends its stream; a daemon that stops ends all."""
        key = d.cli("token", "create", "--user", "member", "--label", "watcher")
        one = Watcher(d, key)
        wait_for("the others to be gone", lambda: "airlockd_streams 1\n" in f.ask("I", "GET", "/metrics").body.decode())
        # Of one user eight, by whatever key; who else watches is not held up by that.
        many, tokens = [], [f.token["I"], f.token["V"], *self.keys_of("watcher 1", "watcher 2")]
        try:
            for token in tokens:
                many += [Watcher(d, token) for _ in range(8 if len(many) < 24 else 7)]
            self.assertEqual({w.status for w in many}, {200})
            for token in (tokens[0], d.cli("token", "create", "--user", "admin", "--label", "second"), key):
                one_more = Watcher(d, token)
                self.assertEqual(one_more.status, 503)
                one_more.close()
            many.pop().close()
            many.pop().close()
            wait_for("two to be gone", lambda: "airlockd_streams 30\n" in f.ask("I", "GET", "/metrics").body.decode())
            one_more = Watcher(d, tokens[0])
            self.assertEqual(one_more.status, 503)
            self.assertIn(b"You have 8 streams", one_more.r.read())
            one_more.close()
            self.assertEqual(d.ask("GET", "/api/health").status, 200)
            d.cli("token", "revoke", key.split("_")[1])
            self.assertIsNone(one.next())
            self.assertEqual(d.stop(), 0)
            for w in many:
                self.assertIsNone(w.next())
        finally:
            for w in [one, *many]:
                w.close()
            if not d.process:
                d.start()


class Clients(Case):
    def test_slow_ones_do_not_stop_others(self):
        """Headers that drip, bodies that never come: others are served meanwhile."""
        slow = []
        try:
            for i in range(64):
                s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
                s.sendall(b"GET /api/health HTTP/1.1\r\nHost: loc" if i % 2 else
                          b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
                slow.append(s)
            for _ in range(20):
                self.assertEqual(d.ask("GET", "/api/health").status, 200)
        finally:
            for s in slow:
                s.close()

    def test_others_are_served_while_a_sandbox_is_made(self):
        env = f.make("c-wait", "sandbox", NATIVE)
        done = []
        t = threading.Thread(target=lambda: done.append(self.acquire(env)))
        t.start()
        while not done:
            self.assertEqual(d.ask("GET", "/api/health").status, 200)
        t.join()
        self.assertEqual(self.destroy(done[0]).status, 200)

    def test_client_that_leaves(self):
        """Whoever asked is gone before the answer: the lease is there, and the daemon too."""
        env = f.make("c-gone", "sandbox", NATIVE)
        body = json.dumps({"companyId": f.c1}).encode()
        s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
        s.sendall(f"POST /api/environments/{env['id']}/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {f.token['I']}\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for("the row", lambda: rows("environment_id=?", env["id"]))
        s.close()
        wait_for("the lease", lambda: rows("environment_id=? and status='active'", env["id"]))
        self.assertEqual(self.destroy({"id": rows("environment_id=?", env["id"])[0]["id"]}).status, 200)
        wait_for("no request under way", lambda: "airlockd_requests_active 1\n" in f.ask("I", "GET", "/metrics").body.decode())

    def test_stop_answers_what_is_under_way(self):
        env = f.make("c-stop", "sandbox", NATIVE)
        done = []
        t = threading.Thread(target=lambda: done.append(self.acquire(env)))
        t.start()
        wait_for("the row", lambda: rows("environment_id=?", env["id"]))
        self.assertEqual(d.stop(), 0)
        t.join(timeout=DEADLINE)
        self.assertEqual(done[0]["status"], "active")
        d.start()
        self.assertEqual(self.state(done[0])[0], "active")
        self.assertEqual(self.destroy(done[0]).status, 200)


if __name__ == "__main__":
    verdicts.main([sys.argv[0], *sys.argv[3:]], "test_leases/" + sys.argv[2], PROGRAMS)
