#!/usr/bin/env python3
"""Several other machines at once (B-04, B-07 for driver ssh): runs side by side on each, one that goes away holds up no other, and
`airlock ps` says where each is and how the last try to go there went.

usage: test_ssh_fleet.py AIRLOCK [unittest arguments]
"""
import os, signal, subprocess, sys, unittest

from run_box import DEADLINE
from ssh_box import Remote, SSHD, Sshd

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)


class Fleet(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, {"a": b"one\n"})
        self.addCleanup(self.r.remove)
        self.words = [list(self.r.words)]
        self.sshds = [self.r.sshd]
        for i in 1, 2:
            top = self.r.top + "/sshd%d" % i
            os.mkdir(top)
            s = Sshd(top)
            self.addCleanup(lambda s=s: s.proc.poll() is None and s.stop())
            self.sshds.append(s)
            os.mkdir(self.r.top + "/there%d" % i)
            self.words.append(["--ssh", "127.0.0.1:%d:%s/there%d" % (s.port, self.r.top, i), "--ssh-key", s.top + "/id",
                               "--ssh-known-hosts", s.top + "/known", "--ssh-config", "/dev/null"])

    def on(self, i, *words, **kw):
        self.r.words[:] = self.words[i]
        return self.r.start(*words, **kw)

    def there(self, i):
        return self.r.there if i == 0 else self.r.top + "/there%d" % i

    def test_runs_on_several_machines_and_several_on_one_do_not_meet(self):
        # More at once on one machine than its connection may carry.
        with open(self.sshds[2].top + "/config", "a", encoding="ascii") as f:
            f.write("MaxSessions 1\n")
        self.sshds[2].stop()
        self.sshds[2].start()
        started = [(i, k, self.on(i, "-q", "--", "echo up; read x; echo %d.%d >made.%d.%d; ls" % (i, k, i, k), stdin=subprocess.PIPE))
                   for i in range(3) for k in range(2)]
        for i, k, p in started:
            self.assertEqual(p.stdout.readline(), b"up\n", (i, k))
        # All of them live at the same time.
        for i, k, p in started:
            out, err = p.communicate(b"\n", timeout=DEADLINE)
            self.assertEqual(p.returncode, 0, err)
            self.assertEqual([n for n in out.split() if n.startswith(b"made")], [b"made.%d.%d" % (i, k)])
            self.assertEqual(self.r.read("made.%d.%d" % (i, k)), b"%d.%d\n" % (i, k))
        for i in range(3):
            self.assertEqual(self.r.left_there(self.there(i)), [])

    def test_a_limit_for_a_machine_makes_further_runs_wait(self):
        few = ["--ssh-max-runs", "2"]
        first, second = [self.on(0, "-q", *few, "--", "echo up; read x", stdin=subprocess.PIPE) for _ in range(2)]
        for p in first, second:
            self.assertEqual(p.stdout.readline(), b"up\n")
        third = self.on(0, *few, "--", "echo up; test ! -e go || echo late")
        self.assertIn(b"waits for room: 2 going on already on 127.0.0.1:%d:%s, which" % (self.sshds[0].port, self.r.there.encode()), third.stderr.readline())
        self.assertEqual([row["remote"]["max_runs"] for row in self.r.rows()], [2, 2])
        self.assertIn(b"where at most 2 go on at once", self.r.airlock("ps").stdout)
        # Another machine, and who has no such limit, does not wait; nor does it take the place of who waits.
        self.assertEqual(self.on(1, "-q", *few, "--", "true").wait(DEADLINE), 0)
        self.assertIsNone(third.poll())
        # Given up.
        fourth = self.on(0, *few, "--", "true")
        fourth.stderr.readline()
        fourth.send_signal(signal.SIGINT)
        _, err = fourth.communicate(timeout=DEADLINE)
        self.assertEqual(fourth.returncode, 130, err)
        # A killed one goes on nowhere.
        first.kill()
        out, err = third.communicate(timeout=DEADLINE)
        self.assertEqual((third.returncode, out), (0, b"up\n"), err)
        second.communicate(b"\n", timeout=DEADLINE)
        first.communicate(timeout=DEADLINE)
        self.assertEqual(self.r.airlock("run", "--ssh", "h:/d", "--ssh-max-runs", "0", "--", "true").returncode, 2)

    def ps(self):
        return {row["remote"]["target"]: row for row in self.r.rows() if row["remote"]}

    def test_ps_says_where_each_is_and_whether_it_was_reached(self):
        for i in 0, 1:
            p = self.on(i, "-q", "--keep", "--", "true")
            _, err = p.communicate(timeout=DEADLINE)
            self.assertEqual(p.returncode, 0, err)
        rows = self.ps()
        self.assertEqual({t: r["remote"]["reached"] for t, r in rows.items()}, {self.words[i][1]: True for i in (0, 1)})
        runs = [rows[self.words[i][1]]["run"] for i in (0, 1)]
        self.r.disconnect()
        self.sshds[1].stop()
        q = self.r.airlock("exec", runs[1], "--", "true")
        self.assertEqual(q.returncode, 125)
        gone = self.ps()[self.words[1][1]]["remote"]
        self.assertEqual((gone["reached"], self.ps()[self.words[0][1]]["remote"]["reached"]), (False, True))
        self.assertIn("connection refused", gone["why"])
        table = self.r.airlock("ps").stdout
        self.assertRegex(table, b"on 127.0.0.1:%d:.*NOT REACHED .* ago: .*connection refused" % self.sshds[1].port)
        # The other one is as it was.
        self.assertEqual(self.r.airlock("exec", runs[0], "--", "true").returncode, 0)
        self.sshds[1].start()
        self.assertEqual(self.r.airlock("exec", runs[1], "--", "true").returncode, 0)
        self.assertTrue(self.ps()[self.words[1][1]]["remote"]["reached"])
        for run in runs:
            self.assertEqual(self.r.airlock("rm", run).returncode, 0)


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    unittest.main(verbosity=1)
