#!/usr/bin/env python3
"""--map with runs on another machine: files and directories besides the workspace, at a place that is made there and goes with the run
(S1-08 for driver ssh; cases B1, J3, J4).

usage: test_ssh_maps.py AIRLOCK [unittest arguments]
"""
import glob, os, shutil, signal, subprocess, sys, unittest

from run_box import DEADLINE, alive, look, pids, until
from ssh_box import Remote, SSHD

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)


class Maps(unittest.TestCase):
    guest = []

    def setUp(self):
        self.r = Remote(PROGS, {"a": b"one\n"})
        self.addCleanup(self.r.remove)
        self.r.words += self.guest
        self.at = "/tmp/am-%d-%s" % (os.getpid(), type(self).__name__)
        self.addCleanup(self.away)
        self.dir, self.file = self.r.top + "/assets", self.r.top + "/one.json"
        os.makedirs(self.dir + "/d")
        self.put(self.dir + "/x", "old x\n")
        self.put(self.dir + "/d/y", "old y\n")
        self.put(self.file, "{}\n", 0o600)
        self.maps = ["--map", "%s:%s-dir" % (self.dir, self.at), "--map", "%s:%s-file:file" % (self.file, self.at)]

    def away(self):
        for n in "/tmp/.airlock-map.", "/tmp/.airlock-put.":
            for f in glob.glob(n + os.path.basename(self.at) + "*"):
                shutil.rmtree(f, ignore_errors=True)
                if os.path.lexists(f):
                    os.unlink(f)
        for n in "-dir", "-file", "-file-old", "-old":
            shutil.rmtree(self.at + n, ignore_errors=True)
            if os.path.lexists(self.at + n):
                os.unlink(self.at + n)

    def put(self, path, text, mode=0o644):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)

    def get(self, path):
        with open(path, encoding="ascii") as f:
            return f.read()

    def ok(self, *words, status=0):
        p = self.r.run(*words)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def gone(self):
        self.assertEqual([n for n in os.listdir("/tmp") if os.path.basename(self.at) in n], [])
        self.assertEqual(self.r.runs_there(), [])

    def test_a_place_that_became_another_runs_stays_S1_08(self):
        place, mark = self.at + "-dir", "/tmp/.airlock-map.%s-dir" % os.path.basename(self.at)
        # Cleared away, and made again by a run that goes on: its directory is there.
        other = self.r.top + "/another-run"
        os.mkdir(other)
        self.ok(*self.maps, "--", "rm -r {0}; mkdir -m 500 {0}; ln -sfn 1:{1} {2}".format(place, other, mark))
        self.assertEqual((os.readlink(mark), os.stat(place).st_mode & 0o777), ("1:" + other, 0o500))
        self.assertFalse(os.path.lexists(self.at + "-file"))
        os.rmdir(place)
        os.unlink(mark)
        self.gone()

    def test_they_go_there_and_come_back_S1_08(self):
        d, f = self.at + "-dir", self.at + "-file"
        p = self.ok("-q", *self.maps, "--", "cat %s/x %s; stat -c %%a %s %s; echo new >%s/x; rm -r %s/d; echo z >%s/z; echo '{1}' >%s; echo w >w"
                    % (d, f, d, f, d, d, d, f))
        self.assertEqual(p.stdout, b"old x\n{}\n700\n600\n")
        self.assertEqual((self.get(self.dir + "/x"), self.get(self.dir + "/z"), os.path.exists(self.dir + "/d"), self.get(self.file)),
                         ("new\n", "z\n", False, "{1}\n"))
        self.assertEqual((self.r.read("w"), os.stat(self.file).st_mode & 0o777), (b"w\n", 0o600))
        self.gone()

    def test_door_1_judges_them_too_B1_J4(self):
        d, f = self.at + "-dir", self.at + "-file"
        self.ok("-q", *self.maps, "--", "ln -s /etc/passwd %s/evil; mkdir -p %s/.git/hooks; echo x >%s/.git/hooks/h; ln -s x %s/fine" % (d, d, d, d))
        self.assertEqual(sorted(os.listdir(self.dir)), ["d", "fine", "x"])
        p = self.r.run("-q", *self.maps, "--", "rm %s; mkdir %s; echo x >%s/x" % (f, f, f))
        self.assertIn(b"is not a file any more", p.stderr)
        self.assertEqual((p.returncode, self.get(self.file), os.path.isfile(self.file)), (125, "{}\n", True))

    def test_what_is_there_is_somebodys_J4(self):
        self.put(self.at + "-file", "somebody's\n")
        p = self.ok(*self.maps, "--", "touch ran", status=125)
        self.assertIn(b"is there already: it is not overwritten", p.stderr)
        self.assertEqual((self.get(self.at + "-file"), os.path.exists(self.at + "-dir"), os.path.exists(self.r.ws + "/ran")),
                         ("somebody's\n", False, False))
        os.unlink(self.at + "-file")
        os.symlink(self.r.top, self.at + "-dir")
        p = self.ok(*self.maps, "--", "touch ran", status=125)
        self.assertEqual((os.readlink(self.at + "-dir"), os.path.exists(self.r.top + "/x")), (self.r.top, False), p.stderr)
        p = self.ok("--map", self.dir + ":/home/agent/x", "--", "true", status=2)
        self.assertIn(b"below /tmp", p.stderr)
        p = self.ok("--keep", *self.maps, "--", "true", status=125)
        self.assertIn(b"--map with --keep", p.stderr)

    def killed(self):
        """A run that is killed while it works."""
        p = self.r.start("-q", *self.maps, "--", "echo up; sleep 31342.2")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGKILL)
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not [q for q in pids() if b"31342.2" in look(q, "cmdline") and alive(q)])

    def left(self):
        """Such a run, given up while nobody gets there, whose directory somebody has removed."""
        self.killed()
        self.r.disconnect()
        self.r.sshd.shell("exit 3")
        q = self.r.airlock("rm", "--force", self.r.rows()[0]["run"])
        self.assertEqual(q.returncode, 0, q.stderr)
        self.r.sshd.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        for run in self.r.runs_there():
            shutil.rmtree(self.r.there + "/.airlock-runtime/runs/" + run)

    def test_who_removes_a_run_removes_its_places_J4(self):
        d, f = self.at + "-dir", self.at + "-file"
        deep = self.at + "-old"
        os.mkdir(deep)
        self.put(self.r.top + "/two", "2\n")
        self.maps += ["--map", "%s/two:%s/in" % (self.r.top, deep)]
        self.killed()
        os.chmod(d + "/d", 0o500)
        # Not what somebody else has put in the place of one.
        os.rename(f, f + "-old")
        self.put(f, "somebody's\n")
        run = self.r.rows()[0]["run"]
        q = self.r.airlock("rm", "--force", run)
        self.assertEqual((q.returncode, self.r.runs_there(), os.path.exists(d), self.get(f), os.listdir(deep)), (0, [], False, "somebody's\n", []), q.stderr)
        self.assertEqual(glob.glob("/tmp/.airlock-map.%s*" % os.path.basename(self.at)), [])

    def test_env_clean_removes_the_places_of_runs_that_are_gone_J4(self):
        d = self.at + "-dir"
        self.killed()
        clean = ["env", "clean", *self.r.words]
        # The work of one waits.
        q = self.r.airlock(*clean)
        self.assertEqual((q.returncode, os.path.exists(d)), (0, True), q.stderr)
        self.r.airlock("rm", "--all", "--force")
        self.left()
        self.assertTrue(os.path.exists(d))
        q = self.r.airlock(*clean)
        self.assertEqual(q.returncode, 0, q.stderr)
        self.gone()

    def test_the_place_of_a_run_that_is_over_is_taken_J4(self):
        d, f = self.at + "-dir", self.at + "-file"
        self.left()
        self.assertTrue(os.path.exists(d) and os.path.exists(f))
        os.chmod(d + "/d", 0o500)
        p = self.ok("-q", *self.maps, "--", "cat %s/x %s" % (d, f))
        self.assertEqual(p.stdout, b"old x\n{}\n")
        self.gone()
        # Not one whose work still waits, and not what somebody put in its place.
        self.killed()
        p = self.ok(*self.maps, "--", "touch ran", status=125)
        self.assertIn(b"is there already: it is not overwritten", p.stderr)
        self.r.airlock("rm", "--all", "--force")
        self.gone()
        self.left()
        os.rename(f, f + "-old")
        self.put(f, "somebody's\n")
        p = self.ok(*self.maps, "--", "touch ran", status=125)
        self.assertEqual(self.get(f), "somebody's\n", p.stderr)

    def test_a_cut_while_they_are_sent_blocks_nothing_and_deletes_nothing_J4(self):
        names = ["f%02d" % i for i in range(40)]
        for n in names:
            self.put(self.dir + "/" + n, n * 100000)
        for end in "-dir/f03", "-dir":
            p = self.r.start("-q", *self.maps, "--", "echo up; sleep 31342.3")
            until("it is being sent", lambda: os.path.exists(self.at + end) or p.poll() is not None)
            p.send_signal(signal.SIGKILL)
            p.communicate(timeout=DEADLINE)
            q = self.r.airlock("recover", self.r.rows()[0]["run"])
            self.assertEqual([os.path.getsize(self.dir + "/" + n) for n in names], [300000] * 40, q.stderr)
            self.ok("-q", *self.maps, "--", "test -s %s-dir/f39" % self.at)
            self.gone()

    def test_what_is_cleared_away_there_was_not_deleted_J4(self):
        d = self.at + "-dir"
        mark = "/tmp/.airlock-map." + os.path.basename(d)
        p = self.r.run(*self.maps, "--", "rm -r %s %s/d; echo new >%s/x" % (mark, d, d))
        self.assertIn(b"may have been cleared away", p.stderr)
        self.assertEqual((self.get(self.dir + "/x"), self.get(self.dir + "/d/y")), ("new\n", "old y\n"))
        p = self.r.run(*self.maps[2:], "--", "rm %s-file" % self.at)
        self.assertEqual(self.get(self.file), "{}\n", p.stderr)

    def test_a_program_that_is_missing_starts_nothing_and_leaves_nothing(self):
        self.ok(*self.maps, "--cli", "no-such-program-anywhere", "--", "touch ran", status=125)
        self.gone()

    def test_kill_9_loses_nothing(self):
        p = self.r.start("-q", *self.maps, "--", "echo new >%s-dir/x; echo '{2}' >%s-file; echo up; sleep 31342.1" % (self.at, self.at))
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGKILL)
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not [q for q in pids() if b"31342.1" in look(q, "cmdline") and alive(q)])
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.get(self.dir + "/x"), self.get(self.file)), (0, "new\n", "{2}\n"), q.stderr)
        self.gone()


class WithoutGuest(Maps):
    guest = ["--ssh-guest", "never"]
    # Cleaning up is the guest's.
    test_env_clean_removes_the_places_of_runs_that_are_gone_J4 = None


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    unittest.main(verbosity=1)
