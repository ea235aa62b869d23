"""Door 1 stopped at its system calls: kill -9, full disk, quota, bad disk (S1-07; cases E6, E7, I5, I6)."""
import os
import subprocess
import sys
import unittest

from fault_box import (TREE_LINKS, TREES, FaultBox, at_least, chosen, copy_tree, flat, remove_tree, slice_named, spread,
                       tree_stream)
from unpack_box import Stream, main, tree

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")


def some(n):
    return None if LONG else n


SHM = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


class Publish(FaultBox):
    """Workspace, staging (below .git) and state on one file system: where TMPDIR is, a disk; for all points in memory,
    since what a killed process leaves does not depend on when the disk has it, and each point waits for five fsyncs."""

    def place(self):
        return SHM if LONG else None

    def test_E7_kill_at_system_calls(self):
        points = self.kill_points(self.calls(), some(40))
        self.sweep(points, len(points) * 9 // 10)

    def test_E7_errors_at_system_calls(self):
        points = self.error_points(self.calls(), some(25))
        self.sweep(points, len(points) * 9 // 10)


class Slices(unittest.TestCase):
    """FAULT_SLICE parts the points of a class between machines, and nothing else."""

    def test_every_point_is_in_one_slice(self):
        points = [("openat:%d=EIO" % i, "EIO") for i in range(17)]
        parts = [chosen(points, None, slice_named("%d/5" % k)) for k in range(1, 6)]
        self.assertEqual(sorted(sum(parts, [])), sorted(points))
        self.assertEqual(len(chosen(points, 4, slice_named("2/5"))), 4, "some points are the same on each machine")

    def test_what_a_test_needs_together_is_whole(self):
        script = ("from fault_box import spread; assert spread(range(9), None) == range(9); assert len(spread(range(9), 4)) == 4")
        env = dict(os.environ, FAULT_SLICE="3/4", PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
        subprocess.run([sys.executable, "-c", script], env=env, check=True)

    def test_a_slice_that_is_none_is_told(self):
        for word in "0/4", "5/4":
            with self.assertRaisesRegex(ValueError, "K/N with K from 1 to N"):
                slice_named(word)


class Looks(FaultBox):
    """The look at what a rename brought out fails: the rename is taken back, and no mode of a file with other names changes."""
    git = False

    def place(self):
        return SHM

    def before(self):
        self.write("owner", "old owner\n")
        os.link(self.path("owner"), self.path("other-name"))
        self.write("gone", "old gone\n")

    def meanwhile(self):
        pass

    def stream(self):
        return Stream().file("owner", "new owner\n").delete("gone").bytes()

    def test_E7_no_look_after_a_rename(self):
        calls = self.calls()
        after = [b for a, b in zip(calls, calls[1:]) if a[0] == "renameat2" and b[0] == "newfstatat"]
        self.assertGreaterEqual(len(after), 2)
        for name, k in after:
            with self.subTest("%s:%d" % (name, k)):
                self.fresh()
                res = self.go(*self.fault("%s:%d=EIO" % (name, k)))
                self.assertEqual((res["ret"], res["counts"]["fail"]), (0, 1), res)
                now, (failed,) = flat(tree(self.root)), [c["path"] for c in res["changes"] if c["action"] == "fail"]
                self.assertEqual(now.get(failed), self.old[failed])
                self.assertEqual(now["other-name"], self.old["other-name"])
                self.assertEqual({p for p in self.old if p != failed and now.get(p) != self.new.get(p)}, set())

    def test_E7_a_signal_while_the_journal_is_being_locked(self):
        self.fresh()
        res = self.go(*self.fault("flock:1=EINTR"))
        self.assertTrue(self.hits())
        self.assertEqual(res["ret"], 0, res["text"])
        self.assertTrue(flat(tree(self.root)) == self.new)


class Plain(FaultBox):
    """What a file system cannot do at all (vfat, drvfs, a network mount with other owners) is no failure of the publish."""
    git = False

    def place(self):
        return SHM

    def test_S1_07_a_file_system_without_modes(self):
        for spec in "fchmodat:1=EPERM+", "fchmod:1=EPERM+":
            with self.subTest(spec):
                self.fresh()
                res = self.go(*self.fault(spec))
                self.assertTrue(self.hits())
                self.assertEqual(res["ret"], 0, res["text"])
                failed = [(c["path"], c["action"], c["rule"]) for c in res["changes"] if c["action"] == "fail"]
                # A file of one's own that gets another mode and nothing else.
                self.assertEqual(failed, [("mode", "fail", "not_supported")] if spec.startswith("fchmod:") else [])
                now = flat(tree(self.root))
                self.assertEqual({p: (w[0], w[2:]) for p, w in now.items()}, {p: (w[0], w[2:]) for p, w in self.new.items()})
                self.assert_clean()

    def test_S1_07_a_file_system_without_links(self):
        self.fresh()
        res = self.go(*self.fault("symlinkat:1=EPERM+"))
        self.assertEqual(len(self.hits()), 1)
        self.assertEqual(res["ret"], 0, res["text"])
        refused = {c["path"]: c["rule"] for c in res["changes"] if c["action"] == "refuse"}
        self.assertEqual(refused, {p: "no_links" for p in ("new/l", "tolink", "again")})
        now = flat(tree(self.root))
        for p in self.new:
            self.assertEqual(now.get(p), self.old.get(p) if p in refused else self.new[p], p)
        self.assert_clean()

    def test_S1_07_a_repair_on_a_file_system_without_modes(self):
        self.fresh()
        self.assertLess(self.go(*self.fault("renameat2:1=kill"), args=["--no-recover"])["ret"], 0)
        self.write("repl", "a person's\n")
        rec = self.recover(*self.fault("fchmodat:1=EPERM+"))
        self.assertTrue(self.hits())
        self.assertEqual(rec["ret"], 1, rec)
        self.assertEqual(self.read("repl"), "a person's\n")
        self.assertIn(b"new repl\n", self.bytes_below(os.path.join(self.run_dir, "conflicts", "sandbox")))
        self.assert_clean()

    def test_S1_07_a_file_system_that_syncs_no_directory(self):
        self.data = Stream().link("to", "kept").bytes()
        with open(self.stream_file, "wb") as f:
            f.write(self.data)
        for n in 1, 2, 3:
            with self.subTest(n):
                self.fresh()
                res = self.go(*self.fault("fsync:%d=EINVAL" % n))
                self.assertTrue(self.hits())
                # The third is the journal: a promise that the disk does not have is none.
                self.assertEqual(res["ret"] == 0, n < 3, res["text"])
                self.assertEqual(os.path.lexists(self.path("to")), n < 3)
                self.assert_clean()


class Apart(FaultBox):
    """The workspace has no .git and lies in memory, the state directory on another file system: the trash is copied there."""
    git = False
    keeps_trash = True

    def place(self):
        self.__class__.state = os.environ.get("TMPDIR", "/tmp") if SHM else None
        return SHM

    def test_E7_kill_at_system_calls(self):
        points = self.kill_points(self.calls(), some(30))
        self.sweep(points, len(points) * 9 // 10)

    def test_E7_errors_at_system_calls(self):
        points = self.error_points(self.calls(), some(30))
        self.sweep(points, len(points) * 9 // 10)

    def test_S1_10_what_is_deleted_lies_in_the_trash_of_another_file_system(self):
        self.fresh()
        start = self.runs
        self.assertEqual(self.go()["ret"], 0)
        self.assert_nothing_lost(flat(tree(self.root)), self.run_dirs(start))
        with open(os.path.join(self.run_dir, "trash/d/gone"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "old d/gone\n")

    def test_E7_disk_full_from_here_on(self):
        """Once full it stays full: clean-up and recovery's own bookkeeping have no room either."""
        n = sum(1 for name, _ in self.calls() if name in ("write", "pwrite64", "mkdirat", "symlinkat", "ftruncate", "fsync"))
        points = [("full:%d=ENOSPC+" % (i + 1), "ENOSPC") for i in chosen(range(n), some(10))]
        self.sweep(points, len(points) // 2)


class Mass(FaultBox):
    """More than half of the workspace deleted: the trash is part of the promise, whoever finishes the publish."""
    git = False
    keeps_trash = True
    alike = True

    def place(self):
        self.__class__.state = os.environ.get("TMPDIR", "/tmp") if SHM else None
        return SHM

    def before(self):
        for i in range(120):
            self.write("m/%d" % i, "precious %d" % i)
        self.write("repl", "old")

    def meanwhile(self):
        pass

    def stream(self):
        s = Stream().file("repl", "new")
        return s.delete("m").bytes()

    def test_E7_kill_during_a_mass_deletion(self):
        points = self.kill_points(self.calls(), some(7))
        self.sweep(points, len(points) * 9 // 10)

    def test_E7_errors_during_a_mass_deletion(self):
        points = self.error_points(self.calls(), some(7))
        self.sweep(points, len(points) * 9 // 10)


class Apply(FaultBox):
    """A change set that was reviewed, brought in later; and the review that keeps it."""
    kept = None

    def setUp(self):
        super().setUp()
        self.fresh()
        self.mode = ("--review",)
        res = self.go()
        self.assertEqual(res["ret"], 0, res["text"])
        self.assertTrue(flat(tree(self.root)) == self.old)
        self.kept, self.mode = self.run_dir, ("--apply",)

    def command(self, *args, root=None):
        cmd = super().command(*args, root=root)
        if "--apply" in cmd:
            copy_tree(os.path.join(self.kept, "pending"), os.path.join(self.run_dir, "pending"))
        return cmd

    def test_S1_07_apply_of_a_link_where_there_are_none(self):
        self.fresh()
        res = self.go(*self.fault("symlinkat:1=EPERM+"))
        self.assertTrue(self.hits())
        self.assertLess(res["ret"], 0)
        self.assertRegex(res["text"], "came as a link.*apply the other paths.*nothing was changed")
        self.assertTrue(flat(tree(self.root)) == self.old)
        self.assert_clean()

    def test_S1_07_apply_killed(self):
        points = self.kill_points(self.calls(), some(12))
        self.sweep(points, len(points) * 9 // 10)

    def test_S1_07_apply_with_errors(self):
        points = self.error_points(self.calls(), some(10))
        self.sweep(points, len(points) * 9 // 10)

    def test_S1_07_review_killed_or_failed(self):
        self.mode = ("--review",)
        calls = self.calls()
        whole = broken = 0
        # The first openat2 look where the stream's links lead: failing there is no verdict about a link.
        judging = [("openat2:%d=ENOMEM" % i, "ENOMEM") for i in range(3, 9)]
        for spec, fault in self.kill_points(calls, some(6)) + self.error_points(calls, some(6)) + judging:
            with self.subTest(spec):
                self.fresh()
                self.mode = ("--review",)
                res = self.go(*self.fault(spec))
                self.assertTrue(flat(tree(self.root)) == self.old, "a review changed the workspace")
                self.assert_clean()
                if res["ret"] < 0 and fault != "kill":
                    self.assert_text(res, fault)
                # What waits is whole: it has its name only then.
                kept, self.kept = self.kept, self.run_dir
                self.mode = ("--apply",)
                if os.path.isdir(os.path.join(self.kept, "pending")):
                    res = self.go()
                    now = flat(tree(self.root))
                    want = self.new if res["ret"] == 0 else self.old
                    self.assertTrue(now == want, (set(now.items()) ^ set(want.items()), res))
                    whole += res["ret"] == 0
                    broken += res["ret"] < 0
                    self.assert_clean()
                self.kept = kept
        self.assertEqual(broken, 0)
        self.assertGreaterEqual(whole, at_least(1))


class Trees(FaultBox):
    """New directories, which are published by one rename each; one of them is on the host by then."""
    git = False

    def place(self):
        return SHM

    def before(self):
        self.write("d/kept", "old")

    def meanwhile(self):
        self.write("taken/mine", "not the sandbox's\n")

    def stream(self):
        return tree_stream().bytes()

    def setUp(self):
        super().setUp()
        want = {p: b for p, b in TREES.items()}
        self.assertEqual({p: w[2] for p, w in self.new.items() if w[0] == "f" and p not in self.old}, want)
        self.assertEqual({p: w[1] for p, w in self.new.items() if w[0] == "l"}, TREE_LINKS)
        made = tree(self.root)
        self.assertEqual([made[p][1] for p in ("nt", "nt.d", "nt/implied", "nt/odd", "nt/deep/er")],
                         [0o750, 0o700, 0o755, 0o444, 0o755])
        self.assertEqual(self.counts["add"], len(TREES) + len(TREE_LINKS) + 5)
        self.assertEqual(self.counts["refuse"], 2)

    def test_E7_new_trees_killed(self):
        points = self.kill_points(self.calls(), some(20))
        self.sweep(points, len(points) * 9 // 10)

    def test_E7_new_trees_with_errors(self):
        calls = self.calls()
        points = self.error_points(calls, some(14))
        # The rename of each tree in any case: then its entries go one by one.
        n = sum(name == "renameat2" for name, _ in calls)
        points += [("renameat2:%d=%s" % (i + 1, f), f) for i in range(n) for f in ("EIO", "ENOSPC")]
        self.sweep(points, len(points) * 9 // 10)

    def test_E7_new_trees_on_a_full_disk(self):
        n = sum(1 for name, _ in self.calls() if name in ("write", "pwrite64", "mkdirat", "symlinkat", "ftruncate", "fsync"))
        points = [("full:%d=ENOSPC+" % (i + 1), "ENOSPC") for i in chosen(range(n), some(8))]
        self.sweep(points, len(points) // 2)

    def test_E7_host_takes_the_name_after_the_kill(self):
        """Promised and not yet put: recovery finds the directory taken and puts what has its name free."""
        n = sum(name == "renameat2" for name, _ in self.calls())
        seen = 0
        for k in spread(range(1, n + 1), some(6)):
            self.fresh()
            res = self.go(*self.fault("renameat2:%d=kill" % k), args=["--no-recover"])
            if res["ret"] == 0 or os.path.lexists(self.path("nt")):
                continue
            with self.subTest("rename %d" % k):
                self.write("nt/a", "the host's a")
                self.write("nt/deep", "the host's file")
                rec = self.recover()
                now = flat(tree(self.root))
                self.assertEqual((now["nt/a"][2], now["nt/deep"][2]), (b"the host's a", b"the host's file"))
                if rec["ret"] == 1:
                    seen += 1
                    self.assertEqual(now["nt/implied/by/d"][2], b"d")
                    kept = self.bytes_below(os.path.join(self.run_dir, "conflicts"))
                    for p in "nt/a", "nt/deep/b", "nt/deep/er/c":
                        self.assertIn(TREES[p], kept, "%s is lost" % p)
        self.assertGreater(seen, 0)


class Twice(FaultBox):
    """The recovery of a cut publish is itself cut."""
    git = False

    def place(self):
        return SHM

    def crashed(self, spec):
        self.fresh()
        self.go(*self.fault(spec), args=["--no-recover"])
        self.assertTrue(self.hits())

    def test_I5_recovery_killed_and_failed_at_system_calls(self):
        made = 0
        # Right after the promise; half way; when all is there and only swept.
        for first in "renameat2:1=kill", "renameat2:8=kill", "unlinkat:12=kill":
            self.crashed(first)
            calls = self.calls(cmd=[self.driver, "recover", self.root, self.runs_top])
            for spec, fault in self.kill_points(calls, some(6)) + self.error_points(calls, some(3)):
                with self.subTest(first + " then " + spec):
                    self.crashed(first)
                    res = self.recover(*self.fault(spec))
                    made += bool(self.hits())
                    self.assert_each_old_or_new(flat(tree(self.root)))
                    if res["ret"] < 0 and fault != "kill":
                        self.assert_text(res, fault)
                    res = self.recover()
                    self.assertIn(res["ret"], (0, 1), res["text"])
                    self.assertTrue(flat(tree(self.root)) == self.new, "not the new state after two crashes")
                    self.assert_clean()
        self.assertGreaterEqual(made, at_least(24))

    def test_I5_a_staging_place_that_cannot_be_opened_is_kept(self):
        """It may hold the only copy: who cannot look into it says so, changes nothing and throws nothing away."""
        self.crashed("renameat2:3=kill")
        calls = self.calls(cmd=[self.driver, "recover", self.root, self.runs_top])
        begin = [name for name, _ in calls].index("flock")
        opens = [(name, n) for name, n in calls[begin:] if name == "openat"][:3]
        told = 0
        for call, n in opens:
            for fault in "EIO", "EMFILE":
                with self.subTest("%s:%d=%s" % (call, n, fault)):
                    self.crashed("renameat2:3=kill")
                    before = tree(self.root)
                    res = self.recover(*self.fault("%s:%d=%s" % (call, n, fault)))
                    self.assertTrue(self.hits())
                    if "it stays there" in res["text"]:
                        told += 1
                        self.assertLess(res["ret"], 0)
                        self.assertTrue(tree(self.root) == before)
                    self.recover()
                    self.assertTrue(flat(tree(self.root)) == self.new, "not the new state")
                    self.assert_clean()
        self.assertEqual(told, 4, "contents and trash, two ways each")

    def test_I5_a_recovery_that_meets_a_passing_error_waits(self):
        """No step is given up, unseen, for an error that says nothing of its path: the next try ends in the new state."""
        first, waited = "renameat2:1=kill", 0
        self.crashed(first)
        calls = self.calls(cmd=[self.driver, "recover", self.root, self.runs_top])
        calls = calls[[name for name, _ in calls].index("flock"):]
        points = []
        for name, fault in ("renameat2", "ENOSPC"), ("openat", "EMFILE"), ("newfstatat", "EIO"):
            of = [c for c in calls if c[0] == name]
            points += ["%s:%d=%s" % (*c, fault) for c in spread(of, None if LONG else 5)]
        for spec in points:
            with self.subTest(spec):
                self.crashed(first)
                res = self.recover(*self.fault(spec))
                waited += "it waits in" in res["text"]
                self.assertIn(self.recover()["ret"], (0, 1))
                self.assertTrue(flat(tree(self.root)) == self.new, "not the new state")
                self.assert_clean()
        self.assertGreaterEqual(waited, 3)


class Waits(FaultBox):
    """A publish that is carried out but for its trash; its recovery sweeps the place and is killed there."""
    git = False
    keeps_trash = True

    def place(self):
        return SHM

    def published(self):
        """Then the person goes on, against what the journal says."""
        self.fresh()
        self.start = self.runs
        cmd = self.command()
        with open(os.path.join(self.run_dir, "trash"), "w", encoding="ascii"), open(self.stream_file, "rb") as f:
            out = subprocess.run(cmd, stdin=f, stdout=subprocess.PIPE, timeout=120, check=False)
        res = self.result(out.stdout)
        self.assertEqual((res["ret"], res["counts"]["not_trashed"] > 0), (0, True), res)
        os.unlink(os.path.join(self.run_dir, "trash"))
        self.write("repl", "edited by hand\n")
        remove_tree(self.path("new"))
        os.unlink(self.path("mine"))
        self.write("gone", "made again by hand\n")
        return flat(tree(self.root))

    def test_I6_kill_in_the_sweep_of_a_place_that_waited_for_its_trash(self):
        """Also between the removal of k/ and that of the journal, and where the journal could not be emptied first."""
        want = self.published()
        calls = self.calls(cmd=[self.driver, "recover", self.root, self.runs_top])
        begin = [name for name, _ in calls].index("ftruncate")
        cut = calls[begin][1]
        sweep = [(name, n) for name, n in calls[begin:] if name == "unlinkat"]
        if not LONG:  # from the last of k/ on
            sweep = sweep[-6:]
        without = whole = 0
        for name, n in sweep:
            for first in (), ("-f", "ftruncate:%d=EIO" % cut):
                with self.subTest("%s:%d %s" % (name, n, first)):
                    self.assertEqual(self.published(), want)
                    fault = self.fault("%s:%d=kill" % (name, n))
                    self.recover(*fault[:-1], *first, "--")
                    self.assertEqual(len(self.hits()), 1 + bool(first))
                    left = [(d, f) for d, _, f in os.walk(self.path(".airlock-staging")) if "journal" in f]
                    for d, _ in left:
                        without += not os.path.lexists(os.path.join(d, "k"))
                        whole += os.path.getsize(os.path.join(d, "journal")) > 0
                    self.assertEqual(flat(tree(self.root)), want)
                    self.assertIn(self.recover()["ret"], (0, 1))
                    self.assertEqual(flat(tree(self.root)), want, "what was edited is undone")
                    self.assert_clean()
                    kept = self.bytes_below(os.path.join(self.run_dir, "trash"))
                    for p in "gone", "d/gone", "dir/x", "dir/deep/y", "file":
                        self.assertIn(self.old[p][2], kept, "%s is lost" % p)
        self.assertGreaterEqual(without, 4)
        self.assertGreaterEqual(whole, 2)


if __name__ == "__main__":
    main()
