"""Journals that others wrote or moved, and repairs without a place (B-01, S1-07, S1-10; case I3).

What lies below the staging place of a workspace may come from a checkout, a clone, another user. Only what this
state directory's key proves is carried out; everything else is left as it is, and told.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import time

from unpack_box import Box, Stream, main, tree

ID = "0123456789abcdef"
HOOK = "#!/bin/sh\necho planted\n"


def record(op, path=b"", ino=0, size=0):
    n = 126 + len(path)
    b = struct.pack("<IBBIQQQQQqq", n, op, 255, 0, 0, ino, size, 0, 0, 0, 0)
    b += struct.pack("<I", 32) + bytes(32) + struct.pack("<I", len(path)) + path
    return b + hashlib.blake2b(b, digest_size=16).digest() + struct.pack("<I", n)


def tree_name(path):
    return "t" + hashlib.blake2b(path.encode(), digest_size=16).hexdigest()


class Journals(Box):
    def steps(self, call, n, how="signal=KILL", more=()):
        return ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2,linkat,unlinkat,renameat,openat2"] + \
            ["-e", "inject=%s:%s:when=%d" % (call, how, n)] + list(more)

    def cut(self, call="renameat2", n=1, stream=None, args=(), more=()):
        """A publish of which the helper is killed before the nth call; what lies there is as after a power cut."""
        data = (stream or self.changes()).bytes()
        out = subprocess.run(self.steps(call, n, more=more) + self.command("--no-recover", *args), input=data,
                             stdout=subprocess.PIPE, timeout=60, check=False)
        return self.result(out.stdout)

    def changes(self):
        s = Stream().file("f1", "new 1")
        for i in range(2, 6):
            s.delete("f%d" % i)
        return s.dir("new").file("new/n", "n")

    def before(self):
        for i in range(1, 6):
            self.write("f%d" % i, "old %d" % i)
        self.sync_in()

    def staged(self):
        top = ".git/airlock-staging" if self.git else ".airlock-staging"
        names = os.listdir(self.path(top))
        self.assertEqual(len(names), 1, names)
        return self.path(top + "/" + names[0])

    def everywhere(self, data):
        """Files below the top with these bytes, but for the layer."""
        return [p for p, w in tree(self.top, skip=("layer",)).items() if w[0] == "f" and w[2] == data.encode()]

    def told(self, text):
        for word in "not written by this Airlock", "XDG_STATE_HOME", "airlock recover", "remove it":
            self.assertIn(word, text)


class Planted(Journals):
    git = True

    def plant(self, top):
        d = self.path(top + "/" + ID)
        t = os.path.join(d, "c", tree_name(".git/hooks"))
        os.makedirs(t)
        os.makedirs(d + "/t")
        with open(d + "/t/keep", "w", encoding="ascii") as f:
            f.write("x")
        with open(t + "/pre-commit", "w", encoding="ascii") as f:
            f.write(HOOK)
        os.chmod(t + "/pre-commit", 0o755)
        rs = [record(1, ino=os.stat(self.root).st_ino), record(9, b".git/hooks", ino=os.stat(t).st_ino)]
        with open(d + "/journal", "wb") as f:
            f.write(b"".join(rs) + record(8, size=len(rs)))

    def test_B01_I3_a_planted_journal_writes_no_hook(self):
        for top in ".airlock-staging", ".git/airlock-staging":
            with self.subTest(top):
                self.plant(top)
                was = tree(self.path(top))
                rec = self.recover()
                self.assertEqual(rec["ret"], 0, rec)
                self.told(rec["text"])
                res = self.unpack(Stream().file("f", "x"), "--tell-left")
                self.assertEqual((res["ret"], res["counts"]["add"], res["counts"]["refuse"]), (0, 1, 1), res)
                self.assertEqual(self.did(res)[top + "/" + ID], "refuse:foreign_journal")
                self.assertFalse(os.path.lexists(self.path(".git/hooks")))
                self.assertEqual(tree(self.path(top)), was)
                shutil.rmtree(self.path(top))
                os.unlink(self.path("f"))

    def test_I3_what_is_no_file_is_no_journal(self):
        for make in os.mkdir, os.mkfifo, lambda p: os.symlink("/etc/passwd", p):
            place = self.path(".airlock-staging/" + ID)
            os.makedirs(place)
            make(place + "/journal")
            rec = self.recover()
            self.assertEqual((rec["ret"], rec["text"]), (0, ""), rec)
            self.assertEqual(self.unpack(Stream().file("f", "x"))["ret"], 0)
            shutil.rmtree(self.path(".airlock-staging"), ignore_errors=True)


class Moved(Journals):
    """Real journals of publishes that were cut, in another place or with something put into them."""

    def test_B01_another_state_directory_keeps_and_tells(self):
        self.before()
        self.cut()
        was = tree(self.root)
        other = os.path.join(self.top, "other")
        os.mkdir(other)
        rec = self.recover(other)
        self.assertEqual(rec["ret"], 0, rec)
        self.told(rec["text"])
        self.assertEqual(tree(self.root), was)
        self.assertEqual(self.recover()["text"], "")
        self.assertEqual((self.read("f1"), self.read("new/n")), ("new 1", "n"))
        self.assert_clean()

    def test_B01_a_journal_is_good_in_its_place_only(self):
        self.before()
        self.cut()
        here = self.root
        self.root = os.path.join(self.top, "copy")
        subprocess.run(["cp", "-a", here, self.root], check=True)
        was = tree(self.root)
        self.told(self.recover()["text"])
        self.assertEqual(tree(self.root), was)
        self.root = here
        place = self.staged()
        os.rename(place, os.path.join(os.path.dirname(place), ID))
        was = tree(self.root)
        self.told(self.recover()["text"])
        self.assertEqual(tree(self.root), was)
        os.rename(os.path.join(os.path.dirname(place), ID), place)
        # A workspace that was moved is the same directory still.
        self.root = os.path.join(self.top, "moved")
        os.rename(here, self.root)
        self.assertEqual(self.recover()["text"], "")
        self.assertEqual(self.read("f1"), "new 1")
        self.assert_clean()

    def test_B01_another_root_of_the_same_inode(self):
        """Each file system has a root, of the same inode in all of a kind: device and path tell them apart."""
        if os.geteuid() != 0:
            self.skipTest("needs root to mount")
        tops = [os.path.join(self.top, n) for n in ("one", "two")]
        with contextlib.ExitStack() as stack:
            for t in tops:
                os.mkdir(t)
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "none", t], check=True)
                stack.callback(subprocess.run, ["umount", t], check=True)
            self.assertEqual(len({os.stat(t).st_ino for t in tops}), 1)
            self.root = tops[0]
            self.before()
            self.cut()
            subprocess.run(["cp", "-a", tops[0] + "/.", tops[1]], check=True)
            self.root = tops[1]
            was = tree(self.root)
            self.told(self.recover()["text"])
            self.assertEqual(tree(self.root), was)
            self.root = tops[0]
            self.assertEqual((self.recover()["text"], self.read("f1")), ("", "new 1"))

    def test_B01_names_put_into_a_staged_tree_stay_out(self):
        self.before()
        self.cut()
        t = os.path.join(self.staged(), "c", tree_name("new"))
        for d in ".git/hooks", "sub/.GIT":
            os.makedirs(os.path.join(t, d))
        with open(os.path.join(t, ".git/hooks/pre-commit"), "w", encoding="ascii") as f:
            f.write(HOOK)
        rec = self.recover()
        self.assertEqual(rec["ret"], 1, rec)
        self.assertIn("new/.git", rec["text"])
        self.assertEqual(self.read("new/n"), "n")
        self.assertEqual(sorted(os.listdir(self.path("new"))), ["n", "sub"])
        self.assertEqual(os.listdir(self.path("new/sub")), [])

    def test_B01_another_tree_under_the_name_of_a_staged_one(self):
        self.before()
        self.cut()
        t = os.path.join(self.staged(), "c", tree_name("new"))
        os.rename(t, t + "x")
        os.mkdir(t)
        with open(t + "/evil", "w", encoding="ascii") as f:
            f.write("x")
        rec = self.recover()
        self.assertIn("new", rec["text"])
        self.assertFalse(os.path.lexists(self.path("new")))
        self.assertEqual((self.read("f1"), os.path.exists(self.path("f2"))), ("new 1", False))

    def test_B01_the_key_is_private_and_a_wrong_one_is_named(self):
        self.before()
        self.assertEqual(self.unpack(self.changes())["ret"], 0)
        key = os.path.join(self.top, "journal.key")
        self.assertEqual((os.stat(key).st_mode & 0o7777, os.stat(key).st_size), (0o600, 32))
        self.assertEqual([n for n in os.listdir(self.top) if n.startswith("journal.key")], ["journal.key"])
        os.chmod(key, 0o640)
        res = self.unpack(Stream().file("g", "x"))
        self.assertEqual(res["ret"] < 0, True, res)
        self.assertIn("journal.key", res["text"])
        self.assertFalse(os.path.lexists(self.path("g")))


class NoPlace(Journals):
    """The directory of the run is gone, or cannot be opened: what went must be somewhere."""

    def lost(self):
        return [n for n in range(1, 6) if not self.everywhere("old %d" % n)]

    def test_S1_10_a_repair_without_the_run_keeps_what_went(self):
        self.before()
        self.cut(n=3, args=["--keep-trash"])
        gone = self.run_dir + "-away"
        os.rename(self.run_dir, gone)
        rec = self.recover()
        self.assertEqual(rec["ret"], 1, rec)
        for word in "old version", "and of others", "airlock recover":
            self.assertIn(word, rec["text"])
        self.assertEqual((self.read("f1"), [n for n in range(2, 6) if os.path.exists(self.path("f%d" % n))]), ("new 1", []))
        self.assertEqual(self.lost(), [])
        # Not carried out once more: only what was kept waits.
        self.write("f1", "edited")
        self.write("f3", "made again")
        rec = self.recover()
        self.assertEqual(rec["ret"], 0, rec)
        self.assertIn("airlock recover", rec["text"])
        os.rename(gone, self.run_dir)
        self.assertEqual(self.recover()["text"], "")
        self.assertEqual((self.read("f1"), self.read("f3")), ("edited", "made again"))
        self.assert_clean()
        for n in range(1, 6):
            with open(os.path.join(self.run_dir, "trash", "f%d" % n), encoding="ascii") as f:
                self.assertEqual(f.read(), "old %d" % n)

    def test_S1_10_the_time_of_a_place_begins_when_something_came(self):
        """What a month ago was put there goes; the only copies, moved below what was there already, came today."""
        self.write("d/f", "old f")
        self.before()
        self.cut(stream=self.changes().delete("d/f"), args=["--keep-trash"])
        os.makedirs(os.path.join(self.run_dir, "trash/d"))
        for p in self.run_dir, os.path.join(self.run_dir, "trash"):
            os.utime(p, (0, 1_700_000_000))
        self.assertEqual(self.recover()["ret"], 1)
        self.assertTrue(os.path.exists(os.path.join(self.run_dir, "trash/d/f")))
        self.assertGreater(os.stat(self.run_dir).st_mtime, 1_700_000_000)

    def blocked(self, path):
        """Waits until somebody waits for the lock of a directory."""
        ino, deadline = os.stat(path).st_ino, time.monotonic() + 60
        while True:
            with open("/proc/locks", encoding="ascii") as f:
                if any("-> FLOCK" in line and ":%d " % ino in line for line in f):
                    return
            self.assertLess(time.monotonic(), deadline)

    def test_S1_10_a_run_directory_that_goes_meanwhile_takes_nothing_along(self):
        """It was opened, and is removed before anything is moved there: that is no sign that nothing is here."""
        for apart in False, True:
            self.before()
            self.cut(n=3, args=["--keep-trash"])
            fd = os.open(self.root, os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            # As from another file system: by copies.
            cmd = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e",
                   "inject=renameat2:error=EXDEV:when=%d+" % (1 if apart else 1000)]
            with subprocess.Popen(cmd + [self.driver, "recover", self.root, self.top], stdout=subprocess.PIPE) as p:
                try:
                    self.blocked(self.root)
                    shutil.rmtree(self.run_dir)
                finally:
                    os.close(fd)
                rec = self.result(p.stdout.read())
            self.assertEqual(self.lost(), [], (apart, rec))
            self.assertIn("No such file", rec["text"])
            # With a place it is moved there.
            os.mkdir(self.run_dir)
            self.recover()
            self.assertEqual([len(self.everywhere("old %d" % n)) for n in range(1, 6)], [1] * 5)
            self.assert_clean()
            for d in self.root, self.run_dir, self.layer:
                shutil.rmtree(d)
            os.mkdir(self.root)

    def cut_in(self, *parts):
        """A publish cut in a run of this place below the state directory."""
        self.before()
        cmd = self.steps("renameat2", 3) + self.command("--no-recover", "--keep-trash")
        self.run_dir = cmd[cmd.index("--run-dir") + 1] = os.path.join(self.top, *parts)
        os.makedirs(self.run_dir)
        subprocess.run(cmd, input=self.changes().bytes(), stdout=subprocess.PIPE, timeout=60, check=False)

    def in_trash(self):
        d = os.path.join(self.run_dir, "trash")
        return sorted(os.listdir(d)) if os.path.exists(d) else []

    ALL = ["f%d" % n for n in range(1, 6)]

    def test_S1_10_nobody_removes_a_run_during_its_repair(self):
        """Whoever removes runs takes their lock first: that of the run, also where the place is that of a map."""
        for parts in ["runs", "x"], ["runs", "x", "maps", "0"]:
            self.cut_in(*parts)
            fd, run = os.open(self.root, os.O_RDONLY), os.open(os.path.join(self.top, "runs/x"), os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            with subprocess.Popen([self.driver, "recover", self.root, self.top], stdout=subprocess.PIPE) as p:
                try:
                    self.blocked(self.root)
                    fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free = True
                except BlockingIOError:
                    free = False
                finally:
                    os.close(fd)
                self.assertEqual(self.result(p.stdout.read())["ret"], 1)
            self.assertFalse(free, parts)
            fcntl.flock(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(run)
            self.assertEqual(self.in_trash(), self.ALL)
            self.assert_clean()
            for d in self.root, self.run_dir, self.layer:
                shutil.rmtree(d)
            os.mkdir(self.root)

    def test_S1_10_what_went_does_not_go_into_a_run_that_is_being_removed(self):
        self.cut_in("runs", "x")
        run = os.open(self.run_dir, os.O_RDONLY)
        fcntl.flock(run, fcntl.LOCK_EX)
        self.recover()
        self.assertEqual((self.in_trash(), self.lost()), ([], []))
        # An apply of this run holds the lock itself.
        own = self.run_dir
        cmd = self.command("--tell-left")
        self.run_dir = cmd[cmd.index("--run-dir") + 1] = own
        self.assert_ok(self.unpack(Stream().file("more", "more"), cmd=cmd))
        self.assertEqual(self.in_trash(), self.ALL)
        os.close(run)

    def test_S1_10_a_run_directory_that_cannot_be_opened_stops_the_repair(self):
        stopped = 0
        for n in range(1, 9):
            self.before()
            self.cut(n=3, args=["--keep-trash"])
            was = tree(self.root)
            cmd = self.steps("openat2", n, "error=EMFILE")
            cmd.remove("-f")  # the client only
            out = subprocess.run(cmd + [self.driver, "recover", self.root, self.top], stdout=subprocess.PIPE, timeout=60, check=False)
            rec = self.result(out.stdout)
            self.assertEqual(self.lost(), [], (n, rec))
            if rec["ret"] < 0:
                stopped += 1
                self.assertEqual(tree(self.root), was)
                self.assertIn("oo many open files", rec["text"])
                self.assertEqual(self.recover()["ret"], 1)
            self.recover()
            self.assertEqual(self.lost(), [], n)
            for d in self.root, self.run_dir, self.layer:
                shutil.rmtree(d)
            os.mkdir(self.root)
        self.assertGreaterEqual(stopped, 2)

    def test_S1_07_what_a_repair_finished_is_reported_as_published(self):
        """The helper is killed, and its client has the rest done at once: one report, of all of it."""
        self.before()
        want = self.unpack(self.changes())
        self.assertEqual(want["counts"]["delete"], 4)
        for n in 6, 7, 9:  # late enough for the repair to make fewer of these calls
            shutil.rmtree(self.root)
            shutil.rmtree(self.layer)
            os.mkdir(self.root)
            self.before()
            out = subprocess.run(self.steps("renameat2", n) + self.command(), input=self.changes().bytes(),
                                 stdout=subprocess.PIPE, timeout=60, check=False)
            res = self.result(out.stdout)
            self.assertLess(res["ret"], 0)
            for word in "signal 9", "all of it is there":
                self.assertIn(word, res["text"])
            for word in "next run", "nothing was", "unchanged":
                self.assertNotIn(word, res["text"])
            self.assertEqual((res["counts"], res["bytes"]), (want["counts"], want["bytes"]), n)
            self.assertEqual(self.did(res), self.did(want))
            self.assert_clean()

    def test_S1_07_a_kill_in_the_sweep_takes_nothing_back(self):
        """All was published before: that is what is said, by a driver that lets another helper finish and by one that does not."""
        self.before()
        want = self.unpack(self.changes())
        for call, n, *args in ("ftruncate", 1), ("unlinkat", 3), ("unlinkat", 5), ("unlinkat", 4, "--no-recover"):
            shutil.rmtree(self.root)
            shutil.rmtree(self.layer)
            os.mkdir(self.root)
            self.before()
            report = os.path.join(self.top, "report")
            # The first helper only.
            cut = [os.environ["FAULT_AT"], "-s", "-i", "1", "-r", report, "-f", "%s:%d=kill" % (call, n), "--"]
            out = subprocess.run(cut + self.command(*args), input=self.changes().bytes(), stdout=subprocess.PIPE, timeout=60,
                                 check=False)
            with open(report, encoding="ascii") as f:
                self.assertTrue(f.read(), "nobody was killed")
            res = self.result(out.stdout)
            self.assertEqual((res["ret"], res["text"]), (0, ""), (call, n))
            self.assertEqual((res["counts"], res["bytes"]), (want["counts"], want["bytes"]), (call, n))
            self.assertEqual(self.did(res), self.did(want))
            self.assertEqual(bool(args), os.path.lexists(self.path(".airlock-staging")))
            self.recover()
            self.assert_clean()

    def raced(self):
        """Cut before the first step; then a person writes what the first and the tree would write."""
        self.before()
        self.cut(stream=Stream().file("f1", "new 1", 0o400).dir("new").file("new/a", "sandbox a").file("new/b", "sandbox b"))
        self.write("f1", "person's")
        self.write("new/a", "person's a")

    def test_S1_10_a_conflict_of_a_repair_is_told_with_its_place(self):
        self.raced()
        rec = self.recover()
        self.assertEqual(rec["ret"], 1, rec)
        self.assertIn(os.path.join(self.run_dir, "conflicts/sandbox/"), rec["text"])
        self.assertIn("and of others", rec["text"])
        self.kept_by_the_run()

    def kept_by_the_run(self):
        self.assertEqual((self.read("f1"), self.read("new/a"), self.read("new/b")), ("person's", "person's a", "sandbox b"))
        self.assert_clean()
        self.assertEqual((len(self.everywhere("new 1")), len(self.everywhere("sandbox a"))), (1, 1))
        for p in self.everywhere("new 1") + self.everywhere("sandbox a"):
            self.assertTrue(p.startswith(os.path.basename(self.run_dir) + "/conflicts/sandbox/"), p)

    def test_S1_10_a_conflict_without_a_place_waits_for_one(self):
        self.raced()
        gone = self.run_dir + "-away"
        os.rename(self.run_dir, gone)
        rec = self.recover()
        self.assertEqual(rec["ret"], 1, rec)
        self.assertIn("changed here meanwhile", rec["text"])
        self.assertFalse(os.path.lexists(self.path(".airlock-staging/conflicts")))
        self.assertEqual((len(self.everywhere("new 1")), len(self.everywhere("sandbox a"))), (1, 1))
        self.assertIn("airlock recover", self.recover()["text"])
        os.rename(gone, self.run_dir)
        self.assertIn(self.run_dir, self.recover()["text"])
        self.kept_by_the_run()
        self.assertEqual(self.recover()["text"], "")


class Tidied(Journals):
    """Our own place after something else was at it: empty directories tidied away, restored from a copy, moved."""

    def test_S1_10_an_empty_part_that_is_gone_hides_nothing(self):
        for part, stream, new in (("t", Stream().file("f1", "new 1"), "new 1"), ("c", Stream().delete("f2").delete("f3"), None)):
            with self.subTest(part):
                self.before()
                self.cut(n=2 if part == "c" else 1, args=["--keep-trash"], stream=stream)
                os.rmdir(os.path.join(self.staged(), part))
                self.assertEqual(self.recover()["ret"], 1)
                self.assert_clean()
                if new:
                    self.assertEqual(self.read("f1"), new)
                    self.assertEqual(len(self.everywhere("old 1")), 1)
                else:
                    self.assertFalse(os.path.exists(self.path("f2")) or os.path.exists(self.path("f3")))
                    self.assertEqual((len(self.everywhere("old 2")), len(self.everywhere("old 3"))), (1, 1))
                for d in self.root, self.run_dir, self.layer:
                    shutil.rmtree(d)
                os.mkdir(self.root)

    def test_S1_10_staged_bytes_under_another_inode_are_kept(self):
        self.before()
        self.cut(stream=Stream().file("f9", "new 9"))
        c = os.path.join(self.staged(), "c")
        one = os.path.join(c, os.listdir(c)[0])
        shutil.copy2(one, one + "x")
        os.rename(one + "x", one)
        rec = self.recover()
        self.assertIn("f9", rec["text"])
        self.assertEqual(len(self.everywhere("new 9")), 1)

    def test_S1_10_the_runs_may_lie_on_another_disk(self):
        self.before()
        self.cut(n=3, args=["--keep-trash"])
        away = os.path.join(self.top, "away")
        os.rename(self.run_dir, away)
        os.symlink(away, self.run_dir)
        rec = self.recover()
        self.assertEqual((rec["ret"], rec["text"]), (1, ""), rec)
        for n in range(1, 6):
            with open(os.path.join(away, "trash", "f%d" % n), encoding="ascii") as f:
                self.assertEqual(f.read(), "old %d" % n)


class Hidden(Journals):
    """What is staged beside the files is nothing that git shows, or takes along with `git add -A`."""
    git = False

    def looks(self, repo):
        self.before()
        subprocess.run(["git", "-C", repo, "add", "-A"], check=True)
        self.cut(n=2)
        self.assertTrue(os.path.isdir(self.staged() + "/c"))
        for cmd in ["status", "--porcelain", "-uall"], ["add", "-An"]:
            out = subprocess.run(["git", "-C", repo, *cmd], stdout=subprocess.PIPE, check=True).stdout.decode()
            self.assertNotIn("airlock-staging", out)
        self.recover()
        self.assert_clean()

    def repo(self, path):
        subprocess.run(["git", "init", "-q", path], check=True)
        return path

    def test_S1_07_in_a_linked_work_tree(self):
        repo = self.repo(self.top + "/repo")
        subprocess.run(["git", "-C", repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
                       check=True)
        subprocess.run(["git", "-C", repo, "worktree", "add", "-q", "--detach", self.root], check=True)
        self.looks(self.root)

    def test_H1_in_a_part_of_a_checkout(self):
        self.looks(self.repo(self.top))


class Plain(Journals):
    """File systems whose rename takes no flags (NFS, 9p, sshfs): EINVAL, as there."""
    flags = ["-e", "inject=renameat2:error=EINVAL"]

    def setUp(self):
        super().setUp()
        self.assertEqual(self.unpack(Stream())["ret"], 0)  # makes the key: not what is cut here

    def strace(self, *more):
        return ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2,linkat,unlinkat,renameat"] + list(self.flags) + list(more)

    def go(self, cmd, data=b""):
        return self.result(subprocess.run(cmd, input=data, stdout=subprocess.PIPE, timeout=60, check=False).stdout)

    deleted = 2, 3

    def stream(self):
        s = Stream().file("f1", "new 1").dir("new").file("new/n", "n")
        for n in self.deleted:
            s.delete("f%d" % n)
        return s.link("link", "f1").file("add", "added", 0o755).bytes()

    def check(self, run_dir):
        self.assertEqual((self.read("f1"), self.read("new/n"), self.read("add"), os.readlink(self.path("link"))),
                         ("new 1", "n", "added", "f1"))
        self.assertEqual(os.stat(self.path("add")).st_mode & 0o777, 0o755)
        self.assertEqual([n for n in self.deleted if os.path.exists(self.path("f%d" % n))], [])
        for n in (1,) + self.deleted:
            with open(os.path.join(run_dir, "trash", "f%d" % n), encoding="ascii") as f:
                self.assertEqual(f.read(), "old %d" % n)
        self.assertFalse(os.path.exists(os.path.join(run_dir, "conflicts")), run_dir)
        self.assert_clean()

    def test_S1_10_what_is_replaced_is_kept(self):
        self.before()
        res = self.go(self.strace() + self.command("--keep-trash"), self.stream())
        self.assertEqual((res["ret"], res["counts"]["conflict"], res["counts"]["fail"]), (0, 0, 0), res)
        self.check(self.run_dir)

    def test_S1_10_where_there_are_no_hard_links_either(self):
        self.before()
        res = self.go(self.strace("-e", "inject=linkat:error=EPERM") + self.command("--keep-trash"),
                      Stream().file("f1", "new 1").bytes())
        self.assertEqual(self.read("f1"), "new 1", res)
        with open(os.path.join(self.run_dir, "trash", "f1"), encoding="ascii") as f:
            self.assertEqual(f.read(), "old 1")

    def test_S1_07_killed_between_two_names_and_repaired(self):
        killed = 0
        for call, step in ("linkat", 1), ("unlinkat", 2), ("renameat", 1):
            for n in range(1, 20, step):
                shutil.rmtree(self.root)
                shutil.rmtree(os.path.join(self.top, "layer"), ignore_errors=True)
                os.mkdir(self.root)
                self.before()
                res = self.go(self.strace("-e", "inject=%s:signal=KILL:when=%d" % (call, n)) +
                              self.command("--keep-trash", "--no-recover"), self.stream())
                if res["ret"] == 0:
                    break
                with self.subTest("%s %d" % (call, n)):
                    killed += 1
                    run_dir = self.run_dir
                    rec = self.go(self.strace() + [self.driver, "recover", self.root, self.top])
                    self.assertEqual(rec["text"], "")
                    if self.read("f1") == "old 1":  # killed before the commit
                        self.assertEqual(self.unpack(self.stream(), "--keep-trash")["ret"], 0)
                        run_dir = self.run_dir
                    self.check(run_dir)
        self.assertGreaterEqual(killed, 12)


if __name__ == "__main__":
    main()
