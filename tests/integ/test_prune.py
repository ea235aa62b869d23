#!/usr/bin/env python3
"""prune: what goes, what stays, and that nothing goes under somebody's feet (B-07, FR-B023).

usage: test_prune.py AIRLOCK root|user [unittest arguments]
"""
import fcntl, glob, json, os, sqlite3, subprocess, sys, time, unittest

from run_box import DEADLINE, UserHost, link, pids, until

AIRLOCK, WHO = os.path.realpath(sys.argv[1]), sys.argv[2]
DAY = 86400
NOW = "--older-than", "0"


def Box():
    return UserHost(os.path.dirname(AIRLOCK), "airlock-prune-", {"f": b"a\n", "d/g": b"g\n"}, WHO)


class Prune(unittest.TestCase):
    def setUp(self):
        self.box = Box()

    def tearDown(self):
        self.box.remove()

    def ok(self, *words):
        r = self.box.airlock(*words)
        self.assertEqual(r.returncode, 0, (words, r.stderr.decode()))
        return r.stdout

    def run_cmd(self, script, *opts):
        r = json.loads(self.ok("run", "-q", "--json", *opts, "--", script))
        return r["run"], self.box.state + "/runs/" + r["run"]

    def prune(self, *words):
        return json.loads(self.ok("prune", "--json", *words))

    def copies(self):
        return os.listdir(self.box.state + "/workspaces")

    def store(self):
        (key,) = self.copies()
        return self.box.state + "/workspaces/" + key

    def names(self):
        """Every name of the state directory with its time; sqlite's own files come and go."""
        return {p: os.lstat(p).st_mtime_ns for here, dirs, files in os.walk(self.box.state)
                for p in [os.path.join(here, n) for n in dirs + files] if "airlock.db" not in p}

    def litter(self):
        """What a killed rm left: deeper than descriptors reach, and with modes that a sandbox chose."""
        top = self.box.state + "/trash/leases-x"
        os.makedirs(top + "/a" * 300)
        with open(top + "/a/file", "wb") as f:
            f.write(b"x" * 100000)
        os.mkdir(top + "/closed")
        open(top + "/closed/file", "wb").close()
        if self.box.uid:
            self.box.give(top)
        os.chmod(top + "/closed", 0)

    def conflict(self, *opts):
        p = self.box.start("run", "-q", "--json", *opts, "--", "echo ready >&2; read go; echo s >f")
        self.assertEqual(p.stderr.readline(), b"ready\n")
        self.box.write("f", b"mine\n")
        out, err = p.communicate(b"go\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0, err)
        run = json.loads(out)["run"]
        self.assertTrue(glob.glob(self.box.state + "/runs/" + run + "/conflicts/*/f"))
        return run

    def test_dry_run_prints_the_same_and_changes_nothing(self):
        self.run_cmd("echo b >new")
        self.litter()
        before = self.names()
        dry = self.ok("prune", *NOW, "--dry-run")
        self.assertEqual(self.names(), before)
        self.assertEqual(len(self.box.rows()), 1)
        for what in b"trash  ", b"workspaces ", b"over ":
            self.assertRegex(dry, what + rb" +1  .*B\n")
        self.assertEqual(self.ok("prune", *NOW), dry)
        self.assertEqual(self.copies(), [])
        self.assertEqual(self.box.rows(), [])
        for kind in "trash", "runs":
            self.assertEqual(os.listdir(self.box.state + "/" + kind), [])
        self.run_cmd("[ $(cat f) = a ]")

    def test_thirty_days_unless_told(self):
        run, where = self.run_cmd("true")
        got = self.prune()
        self.assertEqual([got[k]["count"] for k in ("trash", "workspaces", "runs")], [0, 0, 0])
        self.assertEqual(got["older_than_s"], 30 * DAY)
        then = time.time() - 30 * DAY - 60
        store = self.store()
        for n in ".", "lock", "stack", "layers", "pins":
            os.utime(os.path.join(store, n), (then, then))
        db = sqlite3.connect(self.box.state + "/airlock.db")
        db.execute("UPDATE runs SET ended_ns=?", (int(then * 1e9),))
        db.commit()
        db.close()
        self.assertEqual(self.prune("--older-than", "31d", "--dry-run")["runs"]["count"], 0)
        self.assertEqual(self.prune("--older-than=31d")["workspaces"]["count"], 0)
        got = self.prune()
        self.assertEqual([got[k]["count"] for k in ("workspaces", "runs")], [1, 1])
        self.assertGreater(got["workspaces"]["bytes"], 0)
        self.assertEqual((self.copies(), os.path.exists(where)), ([], False))

    def test_use_makes_a_copy_young_though_nothing_changed(self):
        self.run_cmd("true")
        store = self.store()
        for n in ".", "lock", "stack", "layers", "pins":
            os.utime(os.path.join(store, n), (1, 1))
        self.run_cmd("true")
        os.utime(store + "/pins", (1, 1))
        self.assertEqual(self.prune()["workspaces"]["count"], 0)

    def test_roots_that_no_sandbox_uses(self):
        """FR-B023: those of 7 days whatever the time, what a killed start left, and none under a sandbox."""
        self.run_cmd("true", "--keep")
        roots = self.box.state + "/roots"
        used = until("a kept root", lambda: self.run_cmd("true", "--keep") and os.listdir(roots))
        idle, fresh, killed, begun = ["0" * 32, "1" * 32, ".new-killed", ".new-begun"]
        for n in idle, fresh, killed, begun:
            os.makedirs(roots + "/" + n + "/root/etc")
            with open(roots + "/" + n + "/root/etc/passwd", "wb") as f:
                f.write(b"x" * 10000)
        if self.box.uid:
            self.box.give(roots)
        for n, age in ((used[0], 40 * DAY), (idle, 8 * DAY), (killed, 100)):
            os.utime(roots + "/" + n, (time.time() - age,) * 2)
        names = self.names()
        for opts in ("--dry-run",), ():
            self.assertEqual(self.names(), names)
            got = self.prune(*opts)["roots"]
            self.assertEqual((got["count"], got["in_use"]), (2, 1))
            self.assertGreaterEqual(got["bytes"], 20000)
        self.assertEqual(set(os.listdir(roots)), {*used, fresh, begun})
        self.assertEqual(self.prune(*NOW)["roots"]["count"], 1)
        self.assertEqual(set(os.listdir(roots)), {*used, begun})
        self.ok("rm", "--all", "--force")
        self.prune(*NOW)
        self.assertEqual(os.listdir(roots), [begun])

    def test_a_sandbox_keeps_its_copy_and_its_run(self):
        run, where = self.run_cmd("true", "--keep")
        for pin in (True, False):
            if not pin:
                for p in glob.glob(self.store() + "/pins/*"):
                    os.unlink(p)
            got = self.prune(*NOW, "--yes")
            self.assertEqual((got["workspaces"]["count"], got["workspaces"]["in_use"], got["runs"]["count"]), (0, 1, 0))
        self.ok("exec", "-q", run, "--", "cat f >copy")
        self.assertEqual(self.box.read("copy"), b"a\n")
        self.ok("rm", "--force", run)
        self.assertEqual(self.prune(*NOW)["workspaces"]["count"], 1)

    def test_locks_of_a_sync_in_and_of_a_run_are_honoured(self):
        self.run_cmd("true")
        (layer,) = glob.glob(self.store() + "/layers/*.lock")
        for path, how in ((self.store() + "/lock", fcntl.LOCK_EX), (layer, fcntl.LOCK_SH)):
            with open(path, "rb") as f:
                fcntl.flock(f, how)
                got = self.prune(*NOW, "--dry-run")["workspaces"]
                self.assertEqual((got["count"], got["in_use"]), (0, 1), path)
                self.prune(*NOW)
                self.assertEqual(len(self.copies()), 1, path)
        self.assertEqual(self.prune(*NOW)["workspaces"]["count"], 1)

    def test_a_run_that_waited_for_the_lock_does_not_use_what_was_taken_away(self):
        self.run_cmd("true")
        store = self.store()
        with open(store + "/lock", "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            p = self.box.start("run", "-q", "--", "cat f d/g >both")
            until("the run to wait for the lock", lambda: any(
                link(x, "fd/%s" % n) == store + "/lock" for x in pids() if x != os.getpid()
                and link(x, "exe") == self.box.bin + "/airlock" for n in fds(x)))
            os.rename(store, self.box.state + "/trash/workspaces-x")
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(self.box.read("both"), b"a\ng\n")
        self.assertTrue(os.path.exists(self.store() + "/stack"))

    def test_what_may_be_the_only_copy_stays_without_yes(self):
        run = self.conflict()
        mapped, where = self.run_cmd("true")
        os.makedirs(where + "/maps/0/trash")
        open(where + "/maps/0/trash/deleted", "wb").close()
        if self.box.uid:
            self.box.give(where)
        plain, _ = self.run_cmd("true")
        got = self.prune(*NOW)
        self.assertEqual(got["runs"]["count"], 1)
        self.assertEqual({(k["run"], k["why"], k["files"]) for k in got["kept"]},
                         {(run, "only_copies", 1), (mapped, "only_copies", 1)})
        self.assertEqual({r["run"] for r in self.box.rows()}, {run, mapped})
        self.assertIn(b"run %s stays: 1 files" % run.encode(), self.ok("prune", *NOW))
        got = self.prune(*NOW, "--yes")
        self.assertEqual((got["runs"]["count"], got["kept"]), (2, []))
        self.assertEqual(os.listdir(self.box.state + "/runs"), [])

    def test_results_that_wait_stay_even_with_yes(self):
        run, where = self.run_cmd("echo b >f", "--review")
        got = self.prune(*NOW, "--yes")
        self.assertEqual([(k["run"], k["why"]) for k in got["kept"]], [(run, "results_wait")])
        self.assertEqual((got["runs"]["count"], got["workspaces"]["count"], got["workspaces"]["in_use"]), (0, 0, 1))
        self.ok("apply", run)
        self.assertEqual(self.box.read("f"), b"b\n")
        got = self.prune(*NOW, "--yes")
        self.assertEqual((got["runs"]["count"], got["workspaces"]["count"]), (1, 1))

    def test_wrong_words(self):
        for words in (("--older-than", "x"), ("--older-than",), ("--older-than=-1",), ("word",), ("--force",)):
            r = self.box.airlock("prune", *words)
            self.assertEqual((r.returncode, r.stdout), (2, b""), words)


def fds(pid):
    try:
        return os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return []


if __name__ == "__main__":
    if WHO == "root" and os.geteuid() != 0:
        print("needs root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
