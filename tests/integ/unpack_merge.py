"""Door 1 over real trees: the merge table of DESIGN section 3 (cases B, C, D, G of the sync specification)."""
import os
import subprocess
import tarfile
import threading
import time

from unpack_box import Box, Stream, main, tree


def sig(path):
    """What changes when a file is written; reading it is allowed."""
    st = os.stat(path)
    return st.st_ino, st.st_size, st.st_mode, st.st_mtime_ns, st.st_ctime_ns


class Merge(Box):
    """S1-04: only what the sandbox changed, never over what the host changed."""

    def conflict(self, name):
        with open(os.path.join(self.run_dir, "conflicts", name), "rb") as f:
            return f.read().decode()

    def lost_link(self, name):
        return os.readlink(os.path.join(self.run_dir, "conflicts", name))

    def between(self, act, stream, *args):
        """Publishes with act() done to the host after staging and before the lock."""
        fifo = os.path.join(self.top, "fifo%d" % self.runs)
        os.mkfifo(fifo)

        def other():
            fd = os.open(fifo, os.O_WRONLY)
            try:
                act()
            finally:
                os.close(fd)
        t = threading.Thread(target=other)
        t.start()
        try:
            return self.unpack(stream, "--pause", fifo, *args)
        finally:
            t.join()

    def test_simple_end_to_end(self):
        self.write("a.txt", "one\n")
        self.write("gone.txt", "bye\n")
        self.write("same/x", "x\n")
        self.sync_in()
        res = self.unpack(Stream().file("a.txt", "two\n").delete("gone.txt").dir("new").file("new/n", "n\n", 0o755))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a.txt": "change", "gone.txt": "delete", "new": "add:dir", "new/n": "add"})
        self.assertEqual(tree(self.root), {
            "a.txt": ("f", 0o644, b"two\n"), "same": ("d", 0o755), "same/x": ("f", 0o644, b"x\n"),
            "new": ("d", 0o755), "new/n": ("f", 0o755, b"n\n")})

    def test_FR_B009_B098_untouched_paths_keep_the_host_edit(self):
        self.write("a.txt", "a\n")
        self.write("b.txt", "b\n")
        self.sync_in()
        self.write("b.txt", "host\n")
        st = sig(self.path("b.txt"))
        res = self.unpack(Stream().file("a.txt", "A\n").file("b.txt", "b\n"))
        self.assert_ok(res)
        self.assertEqual((self.read("a.txt"), self.read("b.txt")), ("A\n", "host\n"))
        self.assertEqual(sig(self.path("b.txt")), st)

    def test_G1_same_change_is_not_written(self):
        self.write("a", "1\n")
        self.sync_in()
        self.write("a", "2\n")
        st = sig(self.path("a"))
        res = self.unpack(Stream().file("a", "2\n"))
        self.assert_ok(res)
        self.assertEqual((res["changes"], sig(self.path("a"))), ([], st))

    def test_G1_the_host_made_the_same_tree_meanwhile(self):
        """What was staged as a whole tree is compared file by file, also where a hard link stands for it."""
        self.write("a", "1\n")
        self.sync_in()
        here = {"new/same": "same\n", "new/deep/same": "2\n", "new/other": "host\n", "again": "same\n"}

        def act():
            for p, text in here.items():
                self.write(p, text)
            os.chmod(self.path("new"), 0o755)
            self.st = {p: sig(self.path(p)) for p in here}
        s = Stream().dir("new").file("new/same", "same\n").dir("new/deep").file("new/deep/same", "2\n")
        s.file("new/other", "sandbox\n").file("new/more", "m\n").hard("again", "new/same").hard("third", "new/more")
        res = self.between(act, s)
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"new/other": "conflict:both_added", "new/more": "add", "third": "add"})
        self.assertEqual({p: sig(self.path(p)) for p in here}, self.st)
        self.assertEqual((self.read("new/more"), self.read("third")), ("m\n", "m\n"))
        self.assertEqual(self.conflict("sandbox/new/other"), "sandbox\n")

    def test_G3_conflict_keeps_host_and_saves_sandbox(self):
        self.write("a", b"1\0\n")
        self.write("n", "x")
        self.sync_in()
        self.write("a", "host\n")
        self.write("new", "host\n")
        res = self.unpack(Stream().file("a", "sandbox\n").file("new", "sandbox\n"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "conflict:both_changed", "new": "conflict:both_added"})
        self.assertEqual((self.read("a"), self.read("new")), ("host\n", "host\n"))
        self.assertEqual(self.conflict("sandbox/a"), "sandbox\n")
        self.assertEqual([c["detail"] for c in res["changes"]], ["conflicts/sandbox/a", "conflicts/sandbox/new"])

    def test_G3_take_sandbox_saves_host(self):
        self.write("a", b"1\0\n")
        self.sync_in()
        self.write("a", "host\n")
        res = self.unpack(Stream().file("a", "sandbox\n"), "--take")
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "conflict:both_changed"})
        self.assertEqual((self.read("a"), self.conflict("host/a")), ("sandbox\n", "host\n"))

    def test_G3_text_merge(self):
        lines = ["line %d\n" % i for i in range(40)]
        self.write("a", "".join(lines))
        self.sync_in()
        self.write("a", "".join(["host\n"] + lines[1:]), 0o600)
        res = self.unpack(Stream().file("a", "".join(lines[:-1] + ["sandbox\n"])))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "merge"})
        self.assertEqual(self.read("a"), "".join(["host\n"] + lines[1:-1] + ["sandbox\n"]))
        self.assertEqual(os.stat(self.path("a")).st_mode & 0o777, 0o600)

    def test_G4_G5_deletion_against_edit(self):
        for n in "edited-here", "deleted-here", "deleted-both", "deleted-untouched":
            self.write(n, "1\n")
        self.sync_in()
        self.write("edited-here", "host\n")
        for n in "deleted-here", "deleted-both", "deleted-untouched":
            os.unlink(self.path(n))
        res = self.unpack(Stream().delete("edited-here").file("deleted-here", "sandbox\n").delete("deleted-both"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"edited-here": "conflict:deleted_in_sandbox", "deleted-here": "change"})
        self.assertEqual(set(tree(self.root)), {"edited-here", "deleted-here"})

    def test_FR_B022_unknown_host_files_are_never_deleted(self):
        self.write("d/sent", "1\n")
        self.write("d/secret", "kept at home\n")
        self.sync_in(without=["d/secret"])
        self.write("d/later", "host\n")
        for s in (Stream().delete("d"), Stream().dir("d", op="opaque")):
            self.write("d/sent", "1\n")
            res = self.unpack(s)
            self.assert_ok(res)
            self.assertEqual(set(tree(self.root)), {"d", "d/secret", "d/later"}, res)

    def test_FR_B088_deletions_and_renames(self):
        for n in "old.c", "a", "folder/x", "folder/sub/y":
            self.write(n, n)
        os.symlink("a", self.path("folder/l"))
        self.sync_in()
        res = self.unpack(Stream().delete("old.c").delete("a").file("b", "a").delete("folder"))
        self.assert_ok(res)
        self.assertEqual(set(tree(self.root)), {"b"})
        self.assertEqual(self.did(res), {
            "old.c": "delete", "a": "delete", "b": "add", "folder": "delete:dir", "folder/x": "delete",
            "folder/l": "delete", "folder/sub": "delete:dir", "folder/sub/y": "delete"})
        with open(os.path.join(self.run_dir, "trash/folder/sub/y"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "folder/sub/y")

    def test_opaque_directory_with_new_contents(self):
        for n in "d/a", "d/b", "d/s/c", "d-x", "e":
            self.write(n, n)
        self.sync_in()
        res = self.unpack(Stream().dir("d", op="opaque").file("d/b", "d/b").file("d/s", "now a file").file("d/new", "n"))
        self.assert_ok(res)
        self.assertEqual({p: w for p, w in tree(self.root).items() if w[0] == "f"}, {
            "d/b": ("f", 0o644, b"d/b"), "d/s": ("f", 0o644, b"now a file"), "d/new": ("f", 0o644, b"n"),
            "d-x": ("f", 0o644, b"d-x"), "e": ("f", 0o644, b"e")})

    def test_G7_dir_to_file(self):
        for n in "d/a", "d/s/b":
            self.write(n, n)
        self.sync_in()
        res = self.unpack(Stream().file("d", "file\n"))
        self.assert_ok(res)
        self.assertEqual(tree(self.root), {"d": ("f", 0o644, b"file\n")})

    def test_G7_what_a_file_replaces_is_listed_as_deleted(self):
        for n in "d/a", "d/sub/b", "d-x":
            self.write(n, n)
        self.write("d/gone", "g")
        self.sync_in()
        os.unlink(self.path("d/gone"))
        for args in ["--dry-run"], []:
            res = self.unpack(Stream().file("d", "file"), *args)
            self.assert_ok(res)
            self.assertEqual(self.did(res), {"d": "change", "d/a": "delete", "d/sub": "delete:dir", "d/sub/b": "delete"})
            self.assertEqual(res["counts"]["delete"], 3)

    def test_FR_B036_one_file_too_large_is_refused_alone(self):
        self.write("img", "small")
        self.sync_in()
        s = Stream().file("a", "a").file("img", b"x" * 4097).file("big", b"x" * 4097).file("z", "z")
        res = self.unpack(s, "--total", "4096")
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "add", "big": "refuse:too_large", "img": "refuse:too_large", "z": "add"})
        self.assertEqual((self.read("img"), self.read("z")), ("small", "z"))
        self.assertIn("4.0 KiB", [c["detail"] for c in res["changes"] if c["path"] == "big"][0])
        res = self.unpack(Stream().file("big", b"x" * 4097), "--total", "4096", "--strict")
        self.assertEqual((res["rejected"], res["rule"]), (True, "too_large"))
        res = self.unpack(Stream().file("p", b"x" * 3000).file("q", b"x" * 3000), "--total", "4096")
        self.assertEqual((res["rejected"], res["rule"]), (True, "limit"))
        self.assertIn("q: with this file the results are over 4.0 KiB", res["text"])

    def test_G7_dir_with_host_changes_is_kept_whole(self):
        def ignored():
            self.write("d/.env", "secret")

        def edited():
            self.write("d/s/b", "edited")

        def special():
            os.mkfifo(self.path("d/s/fifo"))
        for i, change in enumerate((ignored, edited, special)):
            self.tearDown()
            self.setUp()
            for n in "d/a", "d/s/b":
                self.write(n, n)
            self.sync_in()
            change()
            before = set(os.listdir(self.path("d"))), set(os.listdir(self.path("d/s")))
            for s, loser in (Stream().file("d", "file\n"), self.conflict), (Stream().link("d", "file\n"), self.lost_link):
                res = self.unpack(s)
                self.assert_ok(res)
                self.assertEqual(self.did(res), {"d": "conflict:dir_has_changes"}, i)
                self.assertEqual((set(os.listdir(self.path("d"))), set(os.listdir(self.path("d/s")))), before)
                self.assertEqual(loser("sandbox/d"), "file\n")

    def test_G8_file_to_dir(self):
        self.write("f", "1\n")
        self.write("g", "1\n")
        self.sync_in()
        self.write("g", "host\n")
        res = self.unpack(Stream().dir("f").file("f/x", "x").dir("g").file("g/x", "x"))
        self.assert_ok(res)
        self.assertEqual(self.read("f/x"), "x")
        self.assertEqual(self.read("g"), "host\n")
        self.assertEqual(self.conflict("sandbox/g/x"), "x")
        res = self.unpack(Stream().dir("g").file("g/x", "x"), "--take")
        self.assert_ok(res)
        self.assertEqual((self.read("g/x"), self.conflict("host/g")), ("x", "host\n"))
        self.assertEqual(self.did(res)["g"], "conflict:type_changed")

    def test_G9_links(self):
        self.write("f", "1\n")
        self.write("t/x", "x")
        os.symlink("f", self.path("l"))
        os.symlink("f", self.path("m"))
        self.sync_in()
        res = self.unpack(Stream().link("f", "t/x").file("l", "file").dir("m").file("m/y", "y").link("n", "../ws"))
        self.assert_ok(res)
        self.assertEqual(os.readlink(self.path("f")), "t/x")
        self.assertEqual((self.read("l"), self.read("m/y")), ("file", "y"))
        self.assertEqual(self.did(res)["n"], "refuse:link_escape")

    def test_G11_times(self):
        self.write("a", "1\n")
        self.write("b", "1\n")
        self.sync_in()
        b = sig(self.path("b"))
        res = self.unpack(Stream().file("a", "2\n", mtime=1_234_567_890).file("b", "1\n", mtime=5)
                          .file("c", "", mtime=-5).file("d", "", mtime=10**15))
        self.assert_ok(res)
        self.assertEqual(os.stat(self.path("a")).st_mtime_ns, 1_234_567_890 * 10**9)
        self.assertEqual(sig(self.path("b")), b)
        self.assertEqual(os.stat(self.path("c")).st_mtime, 0)

    def test_G12_filtered_paths_stay_behind(self):
        self.sync_in()
        res = self.unpack(Stream().dir("dist").file("dist/x", "x").file("keep", "k"), "--skip-prefix", "dist")
        self.assert_ok(res)
        self.assertEqual(set(tree(self.root)), {"keep"})
        self.assertEqual((res["counts"]["ignore"], res["counts"]["add"]), (2, 1))

    def test_G13_two_runs_from_one_baseline(self):
        self.sync_in()
        self.assert_ok(self.unpack(Stream().dir("d").file("d/one", "1")))
        self.assert_ok(self.unpack(Stream().dir("d").file("d/two", "2")))
        self.assertEqual(set(tree(self.root)), {"d", "d/one", "d/two"})

    def test_B_07_unreadable_freezes_deletions(self):
        for n in "d/a", "d/s/b", "e/c":
            self.write(n, n)
        self.sync_in()
        res = self.unpack(Stream().unreadable("d").delete("e"), "--full")
        self.assert_ok(res)
        self.assertEqual(set(tree(self.root)), {"d", "d/a", "d/s", "d/s/b"})
        self.assertEqual(self.did(res)["d"], "refuse:unreadable")

    def test_G15_git_and_reserved_names_stay_out_and_alive(self):
        self.write("sub/.git/config", "host")
        self.sync_in()
        res = self.unpack(Stream().dir("sub", op="opaque").file("sub/.git/config", "evil").file(".airlock-staging/x", "x")
                          .file(".GIT/config", "evil"))
        self.assert_ok(res)
        self.assertEqual(self.read("sub/.git/config"), "host")
        self.assertEqual({r.split(":")[0] for r in self.did(res).values()}, {"refuse"})

    # --- links and swaps on the host side -----------------------------------------------------

    def test_S1_05_FR_B185_git_directories_by_layout(self):
        def layout(s, top):
            return s.file(top + "HEAD", "ref: refs/heads/x\n").dir(top + "objects").dir(top + "refs")
        self.write("mine/HEAD", "ref: refs/heads/x\n")
        self.write("mine/config", "[core]\n\tbare = true\n")
        for d in "objects", "refs":
            os.makedirs(self.path("mine/" + d))
        self.write("half/config", "[core]\n\tfsmonitor = x\n")
        self.write("half2/config", "[core]\n\tfsmonitor = x\n")
        self.write("half2/HEAD", "ref: refs/heads/x\n")
        self.write("plain/config", "1")
        self.sync_in()
        before = tree(self.root)
        s = layout(Stream(), "docs/").file("docs/config", "[core]\n\tfsmonitor = x\n").file("docs/hooks/post-checkout", "x", 0o755)
        s.file("mine/config", "[core]\n\tfsmonitor = x\n").file("mine/config.worktree", "x").link("mine/hooks", "../docs")
        layout(s, "half/")
        s.dir("half2/objects").file("half2/objects/x", "x").dir("half2/refs").dir("half2/refs/heads")
        s.file("far/HEAD", "ref: refs/heads/x\n").file("far/commondir", "../plain\n")
        s.file("plain/config", "2").file("plain/hooks/x", "x").file("plain/HEAD", "x")
        res = self.unpack(s, "--strict")
        self.assertEqual((res["rejected"], res["rule"], tree(self.root)), (True, "git_metadata", before))
        self.assert_clean()
        res = self.unpack(s)
        self.assert_ok(res)
        after = tree(self.root)
        for p in ("docs/config", "docs/hooks", "docs/hooks/post-checkout", "mine/config.worktree", "mine/hooks", "half/HEAD",
                  "half2/refs", "far/commondir"):
            self.assertNotIn(p, after)
        self.assertEqual(after["mine/config"], before["mine/config"])
        self.assertEqual((self.read("plain/config"), self.read("plain/hooks/x"), self.read("docs/HEAD")), ("2", "x", "ref: refs/heads/x\n"))
        did = self.did(res)
        for p in "docs/config", "docs/hooks/post-checkout", "mine/config", "half/HEAD", "half2/refs", "far/commondir":
            self.assertEqual(did[p], "refuse:git_metadata")

    def test_B13_two_runs_through_a_planted_link(self):
        self.write("d/x", "x")
        self.sync_in()
        res = self.unpack(Stream().link("d", "../out"))
        self.assertEqual(self.did(res), {"d": "refuse:link_escape"})
        os.rename(self.path("d"), self.path("was"))
        os.symlink("../out", self.path("d"))
        res = self.unpack(Stream().file("d/authorized_keys", "evil").file("d/x", "evil"))
        self.assert_ok(res)
        self.assertEqual(os.listdir(self.outside), [])
        self.assertEqual(self.did(res)["d/authorized_keys"], "conflict:parent_link")
        self.assertEqual(self.conflict("sandbox/d/authorized_keys"), "evil")

    def test_B14_FR_B176_directory_swapped_for_a_link_meanwhile(self):
        self.write("d/x", "x")
        with open(os.path.join(self.outside, "x"), "w", encoding="utf-8") as f:
            f.write("outside")
        self.sync_in()

        def swap():
            os.rename(self.path("d"), self.path("was"))
            os.symlink("../out", self.path("d"))
        res = self.between(swap, Stream().file("d/x", "evil").file("d/new", "evil").file("d/s/t", "evil"))
        self.assert_ok(res)
        self.assertEqual(set(self.did(res).values()), {"conflict:parent_link"})
        self.assertEqual(tree(self.outside), {"x": ("f", 0o644, b"outside")})

    def test_B15_root_swapped_aborts(self):
        self.write("a", "1")
        self.sync_in()

        def swap():
            os.rename(self.root, self.root + ".was")
            os.symlink("out", self.root)
        res = self.between(swap, Stream().file("a", "2").file("new", "n"))
        self.assertEqual(res["code"], "conflict")
        self.assertEqual(os.listdir(self.outside), [])
        os.unlink(self.root)
        os.rename(self.root + ".was", self.root)
        self.assertEqual(self.read("a"), "1")
        self.assert_clean()

    def test_I7_host_edit_during_the_transfer(self):
        self.write("a", b"1\0")
        self.write("b", "1")
        self.sync_in()
        res = self.between(lambda: (self.write("a", "host"), os.unlink(self.path("b"))),
                           Stream().file("a", "sandbox").file("b", "sandbox").file("new", "n"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "conflict:both_changed", "b": "change", "new": "add"})
        self.assertEqual(self.read("a"), "host")

    def test_I7_FR_B176_edits_race_every_rename(self):
        """A writer saves by rename as fast as it can: whatever it saved last is on the host or kept."""
        names = ["f%02d" % i for i in range(30)]
        for n in names:
            self.write(n, "base\n\0")
        self.sync_in()
        stop, last = threading.Event(), {}

        def save():
            k = 0
            while not stop.is_set():
                for n in names:
                    k += 1
                    tmp = self.path(".tmp")
                    with open(tmp, "w", encoding="utf-8") as f:
                        f.write("host %d\0" % k)
                    os.rename(tmp, self.path(n))
                    last[n] = "host %d\0" % k
        t = threading.Thread(target=save)
        s = Stream()
        for n in names:
            s.file(n, "sandbox\0")
        t.start()
        while len(last) < 3:
            time.sleep(0)
        res = self.unpack(s)
        stop.set()
        t.join()
        self.assert_ok(res)
        for n in names:
            got = self.read(n)
            self.assertEqual(got, last[n], n)
            kept = self.did(res).get(n, "")
            if kept.startswith("conflict"):
                self.assertEqual(self.conflict("sandbox/" + n), "sandbox\0")

    # --- kinds, modes, names ------------------------------------------------------------------

    def test_C1_special_files(self):
        self.sync_in()
        res = self.unpack(Stream().add("p", tarfile.FIFOTYPE).add("c", tarfile.CHRTYPE).add("b", tarfile.BLKTYPE)
                          .file("ok", "ok"))
        self.assert_ok(res)
        self.assertEqual(set(tree(self.root)), {"ok"})
        self.assertEqual(res["counts"]["refuse"], 3)

    def test_C2_C4_C5_C6_C9_modes(self):
        self.write("x", "x")
        self.write("closed/a", "a")
        self.sync_in()
        before = os.stat(self.path("x"))
        os.chmod(self.root, 0o751)
        res = self.unpack(Stream().dir(".", 0o000).file("suid", "s", 0o6755).file("x", "x", 0o755)
                          .dir("closed", 0o000).file("closed/b", "b").dir("d", 0o700).dir("e", 0o555).file("e/f", "f")
                          .file("none", "n", 0o000))
        self.assert_ok(res)
        mode = {p: oct(os.lstat(self.path(p)).st_mode & 0o7777) for p in
                ("suid", "x", "closed", "d", "e", "none", ".")}
        self.assertEqual(mode, {"suid": "0o755", "x": "0o755", "closed": "0o700", "d": "0o700", "e": "0o755",
                                "none": "0o0", ".": "0o751"})
        self.assertEqual((self.read("closed/a"), self.read("closed/b"), self.read("e/f")), ("a", "b", "f"))
        after = os.stat(self.path("x"))
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        self.assertEqual(self.did(res)["x"], "mode")

    def test_C2_umask_of_the_caller(self):
        """New entries obey it; a file saved anew inside opens nothing here; an explicit mode is obeyed."""
        for n, mode in (("private", 0o600), ("group", 0o664), ("script", 0o755), ("to-x", 0o600), ("chmod", 0o600)):
            self.write(n, "1", mode)
        self.sync_in()
        s = Stream().file("n", "n").file("x", "x", 0o755).dir("d").file("d/f", "f", 0o666).file("private", "2").file("group", "2")
        s.file("script", "2").file("to-x", "2", 0o755).file("chmod", "1", 0o644)
        self.assert_ok(self.unpack(s, umask=0o077))
        mode = {n: oct(os.stat(self.path(n)).st_mode & 0o777) for n in os.listdir(self.root) if n != ".git"}
        self.assertEqual(mode, {"n": "0o600", "x": "0o700", "d": "0o700", "private": "0o600", "group": "0o664", "script": "0o644",
                                "to-x": "0o755", "chmod": "0o644"})
        self.assertEqual(os.stat(self.path("d/f")).st_mode & 0o777, 0o600)

    def test_C8_owner_of_the_replaced_file_stays(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make files of another user")
        self.write("a", "1")
        self.write("b", "1", 0o4755)
        os.chown(self.path("a"), 4321, 4322)
        os.chown(self.root, 4323, 4324)
        self.sync_in()
        res = self.unpack(Stream().file("a", "2").dir("d").file("d/n", "n"))
        self.assert_ok(res)
        owner = [(os.stat(self.path(p)).st_uid, os.stat(self.path(p)).st_gid) for p in ("a", "d", "d/n")]
        self.assertEqual(owner, [(4321, 4322), (4323, 4324), (4323, 4324)])

    def test_D1_D3_D4_names_are_bytes(self):
        names = ["-rf", "--exclude=x", "--checkpoint-action=exec=sh x", "a\nb", "t\tt", "b\\s", "'q'", '"q"', "$(id)",
                 "`id`", ";", " lead", "trail ", "\udce9", "caf\u00e9", "%41", "\x01\x1b[2J"]
        for n in names:
            self.write("old/" + n, "1")
        self.sync_in()
        s = Stream()
        for n in names:
            s.file("old/" + n, "2").file(n, "new")
        res = self.unpack(s)
        self.assert_ok(res)
        for n in names:
            self.assertEqual((self.read("old/" + n), self.read(n)), ("2", "new"))
        self.assertEqual(len(res["changes"]), 2 * len(names))
        self.assertIn("6Q==", self.did(res))

    def test_A1_formats(self):
        self.sync_in()
        for fmt in tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT:
            name = "d%d" % fmt
            self.assert_ok(self.unpack(Stream(fmt).dir(name).file(name + "/" + "x" * 90, "x").link(name + "/l", "t")))
        self.assertEqual(len(tree(self.root)), 9)

    def test_hard_links_become_files_of_their_own(self):
        self.write("same", "same")
        self.sync_in()
        res = self.unpack(Stream().file("a", "data").hard("b", "a").file("same", "same").hard("c", "same"))
        self.assert_ok(res)
        self.assertEqual((self.read("b"), self.read("c")), ("data", "same"))
        self.assertNotEqual(os.stat(self.path("a")).st_ino, os.stat(self.path("b")).st_ino)
        self.assertEqual(os.stat(self.path("a")).st_nlink, 1)

    def test_hard_links_of_the_host_are_no_change_to_each_other(self):
        """Taking one name away changes the ctime of the others; their bytes say that nobody wrote."""
        for n in "ab", "cd", "ef":
            self.write(n[0], b"1\0")
            os.link(self.path(n[0]), self.path(n[1]))
        self.sync_in()
        self.write("e", b"2\0")
        res = self.unpack(Stream().file("a", "2").file("b", "3").delete("c").delete("d").file("e", "4").file("f", "5"), "--take")
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "change", "b": "change", "c": "delete", "d": "delete",
                                         "e": "conflict:both_changed", "f": "conflict:both_changed"})
        self.assertEqual({n: self.read(n) for n in "abef"}, {"a": "2", "b": "3", "e": "4", "f": "5"})

    def test_host_hard_link_is_not_written_through(self):
        self.write("a", "1")
        os.link(self.path("a"), os.path.join(self.outside, "a"))
        self.sync_in()
        self.assert_ok(self.unpack(Stream().file("a", "2")))
        with open(os.path.join(self.outside, "a"), encoding="utf-8") as f:
            self.assertEqual((f.read(), self.read("a")), ("1", "2"))

    def as_nobody(self, stream):
        state = os.path.join(self.top, "nobody")
        os.makedirs(state, exist_ok=True)
        cmd = self.command("--state", state)
        for d in state, self.run_dir:
            os.chown(d, 65534, 65534)
        return self.unpack(stream, cmd=cmd, user=65534, group=65534, extra_groups=[])

    def test_workspace_of_another_user(self):
        """Where nothing is to be written, nothing needs to be writable."""
        if os.geteuid() != 0:
            self.skipTest("needs root to make files of another user")
        self.write("a", "1")
        os.symlink("a", self.path("l"))
        self.sync_in()
        before = sig(self.root)
        for s in Stream(), Stream().file("a", "1").link("l", "a").delete("never-sent"):
            res = self.as_nobody(s)
            self.assert_ok(res)
            self.assertEqual(res["changes"], [])
        for s in (Stream().file("a", "2"), Stream().link("l2", "a"), Stream().file("a", "1", 0o755), Stream().delete("a"),
                  Stream().dir("d"), Stream().file("a", "1").hard("h", "a")):
            res = self.as_nobody(s)
            self.assertLess(res["ret"], 0)
            self.assertIn("cannot be written", res["text"])
        self.assertEqual(sig(self.root), before)

    # --- ways to run --------------------------------------------------------------------------

    def test_dry_run_writes_nothing(self):
        self.write("a", "1")
        self.write("b", "1")
        self.sync_in()
        before = tree(self.root)
        res = self.unpack(Stream().file("a", "2").delete("b").dir("n").file("n/x", "x"), "--dry-run")
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "change", "b": "delete", "n": "add:dir", "n/x": "add"})
        self.assertEqual(tree(self.root), before)

    def test_review_then_apply(self):
        self.write("a", "1")
        self.write("b", "1")
        self.write("c", "1\0")
        self.sync_in()
        before = tree(self.root)
        res = self.unpack(Stream().file("a", "2", 0o755).delete("b").file("c", "2\0").link("l", "a").dir("d")
                          .hard("h", "a").file("skip", "s"), "--review", "--skip-prefix", "skip")
        self.assert_ok(res)
        self.assertEqual(tree(self.root), before)
        self.assertEqual(self.did(res)["a"], "change")
        self.write("c", "host\0")
        cmd = self.command("--apply")
        cmd[cmd.index("--run-dir") + 1] = self.run_dir = os.path.join(self.top, "run0")
        res = self.unpack(b"", cmd=cmd)
        self.assert_ok(res)
        self.assertEqual((self.read("a"), self.read("h"), self.read("c")), ("2", "2", "host\0"))
        self.assertEqual(os.readlink(self.path("l")), "a")
        self.assertEqual(set(tree(self.root)), {"a", "c", "l", "d", "h"})
        self.assertEqual(self.did(res)["c"], "conflict:both_changed")

    def test_apply_of_a_damaged_change_set(self):
        self.write("a", "1")
        self.sync_in()
        self.assert_ok(self.unpack(Stream().file("a", "2"), "--review"))
        with open(os.path.join(self.run_dir, "pending/list"), "r+b") as f:
            f.seek(40)
            f.write(b"\xff")
        cmd = self.command("--apply")
        cmd[cmd.index("--run-dir") + 1] = os.path.join(self.top, "run0")
        res = self.unpack(b"", cmd=cmd)
        self.assertEqual((res["code"], self.read("a")), ("invalid", "1"))
        self.assert_clean()

    def test_A22_empty_tree_is_a_mass_deletion_through_trash(self):
        for i in range(120):
            self.write("d/%d" % i, "x")
        self.sync_in()
        res = self.unpack(b"\0" * 1024, "--full")
        self.assert_ok(res)
        self.assertTrue(res["mass_delete"])
        self.assertEqual(len(os.listdir(os.path.join(self.run_dir, "trash/d"))), 120)

    def test_an_empty_list_of_changes_changes_nothing(self):
        self.write("a", "1")
        self.sync_in()
        res = self.unpack(b"\0" * 1024)
        self.assert_ok(res)
        self.assertEqual((res["changes"], res["mass_delete"], self.read("a")), ([], False, "1"))

    def test_full_tree_from_plain_tar(self):
        for n in "a", "d/b", "d/c", "e/f":
            self.write(n, n)
        self.sync_in()
        work = os.path.join(self.top, "sandbox")
        subprocess.run(["cp", "-a", self.root, work], check=True)
        os.unlink(os.path.join(work, "d/b"))
        with open(os.path.join(work, "d/c"), "w", encoding="utf-8") as f:
            f.write("changed")
        self.write("mine", "host")
        data = subprocess.run(["tar", "-C", work, "--exclude=./.git", "-cf", "-", "."], check=True, stdout=subprocess.PIPE).stdout
        before = {p: os.lstat(self.path(p)).st_ino for p in ("a", "e/f")}
        res = self.unpack(data, "--full")
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"d/b": "delete", "d/c": "change"})
        self.assertEqual({p: os.lstat(self.path(p)).st_ino for p in before}, before)
        self.assertEqual(self.read("mine"), "host")

    def test_FR_B016_cut_streams(self):
        self.write("a", "1")
        self.sync_in()
        data = Stream().file("a", "2" * 5000).file("b", "b").bytes()
        end = len(data.rstrip(b"\0"))
        before = tree(self.root)
        for n in (0, 1, 511, 512, 700, 3000, end, end + 512):
            res = self.unpack(data[:n])
            self.assertTrue(res["rejected"], n)
            self.assertEqual(tree(self.root), before)
            self.assert_clean()
        self.assert_ok(self.unpack(data))

    def test_I10_twice_is_once(self):
        self.write("a", "1")
        self.write("b", "1")
        self.sync_in()
        data = Stream().file("a", "2").delete("b").dir("d").file("d/x", "x").bytes()
        self.assert_ok(self.unpack(data))
        after = tree(self.root)
        st = sig(self.path("a"))
        res = self.unpack(data)
        self.assert_ok(res)
        self.assertEqual((res["changes"], tree(self.root), sig(self.path("a"))), ([], after, st))

    def test_I2_symlinked_root(self):
        self.write("a", "1")
        self.sync_in()
        os.symlink("ws", os.path.join(self.top, "alias"))
        self.assert_ok(self.unpack(Stream().file("a", "2"), root=os.path.join(self.top, "alias")))
        self.assertEqual(self.read("a"), "2")


class MergeInGit(Merge):
    """The same with a .git directory: staging happens inside it."""
    git = True

    def test_staging_is_invisible_to_git(self):
        subprocess.run(["rm", "-rf", self.path(".git")], check=True)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write("a", "1")
        self.sync_in()
        seen = []

        def look():
            seen.append(subprocess.run(["git", "-C", self.root, "status", "--porcelain"], check=True,
                                       stdout=subprocess.PIPE).stdout)
            seen.append(os.listdir(self.path(".git/airlock-staging")))
        self.assert_ok(self.between(look, Stream().file("a", "2").file("n", "n")))
        self.assertEqual(seen[0], b"?? a\n")
        self.assertEqual(len(seen[1]), 1)


if __name__ == "__main__":
    main()
