"""Door 1, case by case: what the rows of the specification say beyond a verdict (the table is docs/cases.md).

unpack_hostile.py sends the whole corpus and looks at verdict, rule and the host. Here: what lies on the
host afterwards where a stream is accepted, what a refusal leaves alone, and what is planted beside the stream.
"""
import os
import shutil
import subprocess
import tarfile

from unpack_box import Box, Stream, main, tree


class Cases(Box):
    def case(self, name):
        """One archive of the corpus, by the start of its name."""
        corpus = os.path.join(self.top, "corpus")
        if not os.path.exists(corpus):
            os.mkdir(corpus)
            subprocess.run([os.environ["MKHOSTILE"], corpus], check=True, stdout=subprocess.DEVNULL)
        found = [n for n in os.listdir(corpus) if n.startswith(name + ".")]
        self.assertEqual(len(found), 1, name)
        with open(os.path.join(corpus, found[0]), "rb") as f:
            return f.read()

    def inode(self, name):
        st = os.lstat(self.path(name))
        return st.st_ino, st.st_mtime_ns, st.st_ctime_ns

    def rejected(self, data, rule):
        before = tree(self.root)
        res = self.unpack(data)
        self.assertEqual((res["rejected"], res["rule"]), (True, rule), res)
        self.assertEqual(tree(self.root), before)
        self.assertEqual(os.listdir(self.outside), [])
        self.assert_clean()
        return res

    # --- A: the archive -----------------------------------------------------------------------

    def test_A9_A10_rejected_then_sent_again(self):
        self.write("a", "1")
        self.sync_in()
        good = Stream(tarfile.USTAR_FORMAT).file("a", "2").file("b", "b").bytes()
        bad = bytearray(good)
        bad[1024 + 150] ^= 1  # the second header
        res = self.rejected(bytes(bad), "bad_checksum")
        self.assertRegex(res["text"], r"at byte \d+ by rule bad_checksum.*last member: a")
        self.rejected(good[:1024 + 512], "truncated")
        self.assert_ok(self.unpack(good))
        self.assertEqual((self.read("a"), self.read("b")), ("2", "b"))

    def test_A11_A13_sizes_that_lie_cost_nothing(self):
        self.sync_in()
        for name, rule in ("A11-size-octal", "truncated"), ("A13-over-2-53", "limit"), ("A13-over-2-64", "limit"):
            res = self.rejected(self.case(name), rule)
            self.assertLessEqual(res["maxrss_kib"], 8 << 10)

    def test_A17_the_longest_names_are_made(self):
        self.sync_in()
        self.assert_ok(self.unpack(self.case("A17-long-names")))
        self.assertEqual(self.read("s" * 255), "x")
        at = os.open(self.root, os.O_RDONLY)
        path = ("p" * 199 + "/") * 20
        path = path[:3999] + "p"
        for seg in path.split("/")[:-1]:
            deeper = os.open(seg, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = deeper
        with os.fdopen(os.open(path.split("/")[-1], os.O_RDONLY, dir_fd=at)) as f:
            self.assertEqual(f.read(), "x")
        os.close(at)
        subprocess.run(["rm", "-rf", self.root], check=True)  # too deep for a walk by path
        os.mkdir(self.root)

    def test_A18_compressed_bytes_are_no_archive(self):
        self.write("a", "1")
        self.sync_in()
        raw = Stream().file("a", b"x" * 100000).bytes()
        there = [c for c in (["gzip", "-c"], ["xz", "-c"], ["bzip2", "-c"], ["zstd", "-qc"]) if shutil.which(c[0])]
        self.assertTrue(there, "no compressor")
        for cmd in there:
            data = subprocess.run(cmd, input=raw, stdout=subprocess.PIPE, check=True).stdout
            self.rejected(data + b"\0" * (-len(data) % 512) + b"\0" * 1024, "not_tar")

    def test_A19_five_gigabytes_of_holes(self):
        """Counted as what they say they are. Below the limit they are written with their holes: unpack_hostile.py."""
        self.sync_in()
        for name in "A19-gnu-5g", "A19-pax1-5g":
            data = self.case(name)
            self.assertLess(len(data), 10 << 10)
            before = tree(self.root)
            res = self.unpack(data, "--total", str(4 << 30))
            # One file over the limit is refused alone (FR-B036); strictly, the stream is rejected.
            self.assertEqual((res["ret"], list(self.did(res).values()), tree(self.root)), (0, ["refuse:too_large"], before))
            res = self.unpack(data, "--strict", "--total", str(4 << 30))
            self.assertEqual((res["rejected"], res["rule"], tree(self.root)), (True, "too_large", before))

    def test_A23_what_follows_the_end_is_no_archive(self):
        self.sync_in()
        two = Stream().file("a", "1").bytes() + Stream().file(".ssh/x", "evil").file("a", "evil").bytes()
        for data in two, self.case("A23-second-archive"):
            self.assert_ok(self.unpack(data))
            self.assertEqual(set(tree(self.root)), {"a"})
        self.assertEqual(sorted(os.listdir(self.top)), sorted(set(os.listdir(self.top)) - {".ssh"}))

    def test_A26_A27_which_of_two_names_wins(self):
        self.sync_in()
        self.assert_ok(self.unpack(self.case("A26-twice")))
        self.assertEqual(self.read("a"), "two\n")
        self.assert_ok(self.unpack(Stream().file("Readme", "1").file("README", "2")))
        self.assertEqual((self.read("Readme"), self.read("README")), ("1", "2"))

    # --- B: links -----------------------------------------------------------------------------

    def test_B5_B9_FR_B110_links_stand_byte_for_byte(self):
        self.sync_in()
        s = Stream().dir("a").link("a/ln", "../b").link("x -> a", "b -> c").file("b", "b").link("dangling", "nowhere/at all")
        self.assert_ok(self.unpack(s))
        self.assertEqual([os.readlink(self.path(n)) for n in ("a/ln", "x -> a", "dangling")],
                         ["../b", "b -> c", "nowhere/at all"])

    def test_B3_S1_04_a_link_that_leads_out_where_another_stays_out(self):
        """The host keeps its own directory at a/up: through that, ".." after a name goes elsewhere."""
        self.write("a/up/mine", "host")
        self.sync_in(without=("a/up", "a/up/mine"))
        s = Stream().dir("b").dir("b/c").dir("b/c/d").link("a/up", "../b/c/d").link("x", "a/up/../../../outside")
        res = self.unpack(s)
        self.assertEqual(self.did(res)["x"], "refuse:link_escape")
        self.assertFalse(os.path.lexists(self.path("x")))

    def test_B6_B7_absolute_links_of_the_host(self):
        os.symlink("/opt/tool", self.path("same"))
        os.symlink("/opt/tool", self.path("turned"))
        self.sync_in()
        before = {n: self.inode(n) for n in ("same", "turned")}
        res = self.unpack(Stream().link("same", "/opt/tool").link("turned", "/etc/shadow"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"turned": "refuse:link_escape"})
        self.assertEqual({n: self.inode(n) for n in before}, before)
        self.assertEqual(os.readlink(self.path("turned")), "/opt/tool")

    def test_B10_no_byte_of_the_host_by_a_hard_link(self):
        secret = os.path.join(self.top, "secret")
        with open(secret, "w", encoding="utf-8") as f:
            f.write("sesame")
        self.write("mine", "host")
        self.sync_in()
        for target in secret, "../secret", "mine", "a/../../secret":
            self.rejected(Stream().hard("h", target), "hardlink_target")
        self.assertEqual(os.stat(secret).st_nlink, 1)

    def test_B11_FR_B180_the_link_that_comes_late(self):
        self.sync_in()
        self.rejected(self.case("B11-late-door"), "hardlink_target")
        self.rejected(self.case("B11-late-door-after"), "type_change")

    def test_B1_FR_B131_through_a_link_and_a_link_alone(self):
        self.write("a", "1")
        self.sync_in()
        self.rejected(Stream().file("a", "2").link("d", "../../outside").file("d/x", "x"), "through_link")
        res = self.unpack(Stream().file("a", "2").dir("venv").dir("venv/bin").link("venv/bin/python", "/usr/bin/python3"))
        self.assert_ok(res)
        self.assertEqual(self.did(res)["venv/bin/python"], "refuse:link_escape")
        self.assertEqual((self.read("a"), os.listdir(self.path("venv/bin"))), ("2", []))

    def test_B11_FR_B201_from_the_folder_and_from_the_top(self):
        self.sync_in()
        honest = Stream().dir("a").file("a/x", "x").dir("a/b").link("a/b/l", "../x").hard("a/h", "a/x").link("a/b/l", "../x")
        res = self.unpack(honest)
        self.assert_ok(res)
        self.assertEqual((os.readlink(self.path("a/b/l")), self.read("a/h")), ("../x", "x"))
        self.assertNotIn("refuse", "".join(self.did(res).values()))
        for name, target in ("h", "../../etc/passwd"), ("h", "/etc/passwd"):
            res = self.rejected(Stream().hard(name, target), "hardlink_target")
            self.assertIn(name, res["text"])
        self.rejected(self.case("B17-empty"), "empty_target")

    # --- D: names -----------------------------------------------------------------------------

    def test_D5_D9_names_that_mean_something_elsewhere(self):
        names = "*", "[a]", "?", "a\\b", "host:file", "c:d/e:f", "-C", "@a", "%2e%2e", "~", "~root", "con", "..x", "...", " "
        for n in names:
            self.write(n, "1")
        self.write("plain", "1")
        self.sync_in()
        s = Stream()
        for n in names:
            s.file(n, "2 " + n)
        res = self.unpack(s)
        self.assert_ok(res)
        self.assertEqual(len(res["changes"]), len(names))
        for n in names:
            self.assertEqual(self.read(n), "2 " + n)
        self.assertEqual(self.read("plain"), "1")

    def test_D8_files_of_the_user_with_our_names(self):
        mine = "deep/.paperclip-upload-x", "deep/er/.paperclip-runtime/x", ".paperclip-upload-y"
        for n in mine:
            self.write(n, "mine")
        self.write("deep/z", "1")
        self.sync_in(without=mine + ("deep/er/.paperclip-runtime",))
        res = self.unpack(Stream().dir("deep", op="opaque").file("deep/z", "2").file(mine[0], "evil").delete(mine[2]))
        self.assert_ok(res)
        self.assertEqual([self.read(n) for n in mine], ["mine"] * 3)
        self.assertEqual((self.did(res)[mine[0]], self.read("deep/z")), ("refuse:reserved_name", "2"))

    # --- E: sizes -----------------------------------------------------------------------------

    def test_E3_E5_many_entries_in_one_directory(self):
        for i in range(2000):
            self.write("old-%04d" % i, "x")
        self.sync_in()
        s = Stream()
        for i in range(2000):
            s.delete("old-%04d" % i) if i % 2 else s.file("old-%04d" % i, "y")
        for i in range(2000):
            s.file("new-%04d" % i, "n")
        res = self.unpack(s)
        self.assert_ok(res)
        self.assertEqual((res["counts"]["add"], res["counts"]["change"], res["counts"]["delete"]), (2000, 1000, 1000))
        self.assertEqual(len(os.listdir(self.root)), 3000)

    def test_E14_a_member_taken_back_is_not_published(self):
        """What the packer sends when a file lost bytes under its hands: the host's file stays."""
        self.write("a", "host")
        self.sync_in()
        res = self.unpack(Stream().file("a", b"half\0\0\0\0").unreadable("a").file("new", b"ha\0\0").unreadable("new"))
        self.assert_ok(res)
        self.assertEqual((self.read("a"), os.path.exists(self.path("new"))), ("host", False))
        self.assertEqual(self.did(res), {"a": "refuse:unreadable", "new": "refuse:unreadable"})

    def test_E14_FR_B195_cut_and_sent_again_from_the_start(self):
        self.write("a", "1")
        self.sync_in()
        first = Stream().file("a", "2" * 10000).file("b", "b" * 10000).bytes()
        second = Stream().file("a", "2" * 20000).file("b", "b" * 10000).bytes()
        cut = len(first) * 6 // 10
        self.rejected(first[:cut], "truncated")
        self.rejected(first[:cut] + second[cut:], self.unpack(first[:cut] + second[cut:])["rule"])
        self.assert_ok(self.unpack(second))
        self.assertEqual(len(self.read("a")), 20000)

    # --- F: git -------------------------------------------------------------------------------

    def test_F3_F4_git_by_every_spelling(self):
        for n in ".git/config", "sub/.git/config":
            self.write(n, "host")
        self.write("sub/code", "1")
        self.sync_in(without=("sub/.git",))
        before = self.read(".git/config"), self.read("sub/.git/config")
        bad = (".git/config", ".GIT/config", ".git /x", ".git./x", "git~1/config", ".g\u200cit/config", "\ufeff.git/config",
               "sub/.git/hooks/x", "sub/.git", ".git::$INDEX_ALLOCATION/config", "deep/er/.gIt/HEAD")
        for n in bad:
            res = self.unpack(Stream().file(n, "gitdir: ../evil\n").file("sub/code", "2"))
            self.assert_ok(res)
            self.assertEqual(self.did(res).get(n), "refuse:git_metadata", n)
        res = self.unpack(Stream().link("sub/.git", "../evil").link("x", ".git/hooks").link("sub/y", "../.Git"))
        self.assert_ok(res)
        self.assertEqual(set(self.did(res).values()), {"refuse:git_metadata"})
        self.assertEqual((self.read(".git/config"), self.read("sub/.git/config")), before)
        self.assertEqual({n for n in tree(self.root, skip=()) if "it" in n.lower()},
                         {".git", ".git/config", "sub/.git", "sub/.git/config"})

    def test_F5_a_repository_by_its_layout(self):
        """As plain files, but for what would make git enter it: config, hooks (see test_S1_05_FR_B185)."""
        self.sync_in()
        s = Stream().dir("b").file("b/HEAD", "ref: refs/heads/x\n").dir("b/objects").dir("b/refs").file("b/config", "[core]\n")
        res = self.unpack(s)
        self.assert_ok(res)
        self.assertEqual(self.did(res)["b/config"], "refuse:git_metadata")
        self.assertFalse(os.path.exists(self.path("b/config")))
        self.assertEqual(self.read("b/HEAD"), "ref: refs/heads/x\n")

    def test_F5_S1_05_a_layout_whose_directories_are_only_implied(self):
        """objects/ and refs/ need no member of their own: a file below is enough for git."""
        self.sync_in()
        for at, mode in ("b", ()), ("c", ("--strict",)), ("d", ()):
            if at == "d":  # for a file system without case
                s = Stream().file("d/config", "[core]\n").file("d/head", "ref: refs/heads/x\n").file("d/OBJECTS/x", "").dir("d/reFs")
                self.assertEqual(self.did(self.unpack(s))["d/config"], "refuse:git_metadata")
                continue
            s = Stream().file(at + "/config", '[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "false"\n')
            s.file(at + "/HEAD", "ref: refs/heads/x\n").file(at + "/objects/x", "").file(at + "/refs/x", "")
            if mode:
                res = self.unpack(s, *mode)
                self.assertEqual((res["rejected"], res["rule"]), (True, "git_metadata"), res)
            else:
                res = self.unpack(s)
                self.assert_ok(res)
                self.assertEqual(self.did(res)[at + "/config"], "refuse:git_metadata")
            self.assertFalse(os.path.exists(self.path(at + "/config")))

    def test_F28_managed_repositories_stay_a_directory(self):
        self.write(".paperclip-repositories/r/f", "1")
        self.write(".paperclip-repositories/r/.git/config", "host")
        self.sync_in(without=(".paperclip-repositories/r/.git",))
        for s in (Stream().file(".paperclip-repositories", "x"), Stream().link(".paperclip-repositories", "elsewhere"),
                  Stream().delete(".paperclip-repositories"), Stream().add(".paperclip-repositories", tarfile.FIFOTYPE)):
            self.rejected(s, "reserved_kind")
        res = self.unpack(Stream().file(".paperclip-repositories/r/f", "2").file(".paperclip-repositories/q/g", "new"))
        self.assert_ok(res)
        self.assertEqual(self.read(".paperclip-repositories/r/.git/config"), "host")
        self.assertEqual(self.read(".paperclip-repositories/r/f"), "2")

    def test_F24_empty_directories_stay(self):
        os.makedirs(self.path("empty/inner"))
        self.write("a", "1")
        self.sync_in(without=("empty", "empty/inner"))  # git does not know them
        work = Stream().file("a", "2").bytes()
        for mode in (), ("--full",):
            self.assert_ok(self.unpack(work, *mode))
            self.assertTrue(os.path.isdir(self.path("empty/inner")))

    # --- G ------------------------------------------------------------------------------------

    def test_D7_G12_G15_an_excluded_path_in_the_stream(self):
        """It was not sent in, so the stream has no say about it: the host's stays, whatever the sandbox sends or omits."""
        for n in "config/secret", "src/config/a.txt", "dist/app.js":
            self.write(n, "1")
        self.sync_in(without=("config", "config/secret", "dist", "dist/app.js"))
        s = Stream().dir("src").dir("src/config").file("src/config/a.txt", "1").file("config/secret", "evil").file("dist/new.js", "n")
        res = self.unpack(s, "--full", "--skip-prefix", "dist")
        self.assert_ok(res)
        self.assertEqual((self.read("config/secret"), self.read("dist/app.js"), self.read("src/config/a.txt")), ("1", "1", "1"))
        self.assertEqual(self.did(res), {"config/secret": "conflict:both_added", "dist/new.js": "ignore:ignored"})

    def test_G9_FR_B141_nothing_is_inferred_from_what_is_offered(self):
        """A neighbour of a known file is a new file of this root, whatever its name; the rest of the host has no part."""
        self.write("app/config.yaml", "1")
        self.sync_in()
        res = self.unpack(Stream().file("skills/evil/run.sh", "x", 0o755).file(".env", "x").file("app/Config.YAML", "x"))
        self.assert_ok(res)
        self.assertEqual({p: w for p, w in self.did(res).items() if not w.endswith(":dir")},
                         {"skills/evil/run.sh": "add", ".env": "add", "app/Config.YAML": "add"})
        self.assertEqual(self.read("app/config.yaml"), "1")
        self.assertEqual(os.listdir(self.outside), [])

    # --- I: what is planted beside the stream ---------------------------------------------------

    def test_I3_a_planted_staging_place(self):
        """The lock is the root itself, which nobody can plant; the staging place is made, never followed."""
        self.write("a", "1")
        self.sync_in()
        for kind in "link", "file":
            place = self.path(".airlock-staging")
            if kind == "link":
                os.symlink("../out", place)
            else:
                self.write(".airlock-staging", "mine")
            before = tree(self.root)
            res = self.unpack(Stream().file("a", "2"))
            self.assertNotEqual(res["ret"], 0, kind)
            self.assertIn(".airlock-staging", res["text"])
            self.assertEqual(tree(self.root), before)
            self.assertEqual(os.listdir(self.outside), [])
            self.recover()
            self.assertEqual((tree(self.root), os.listdir(self.outside)), (before, []))
            os.unlink(place)
            self.assert_ok(self.unpack(Stream().file("a", "2")))
            self.write("a", "1")

    def test_I3_a_planted_journal(self):
        """Anybody who writes in the workspace can put one there; what it orders stays below the root."""
        self.write("a", "1")
        self.sync_in()
        place = self.path(".airlock-staging/0123456789abcdef")
        os.makedirs(place)
        os.symlink("../../../out", os.path.join(place, "c"))
        os.symlink("../../../out", os.path.join(place, "t"))
        for data in b"", b"\x7f" * 4096, b"\xff" * 64:
            with open(os.path.join(place, "journal"), "wb") as f:
                f.write(data)
            self.assertEqual(self.recover()["ret"], 0)
            self.assertEqual((set(tree(self.root)), os.listdir(self.outside)), ({"a"}, []))
            self.assert_ok(self.unpack(Stream().file("a", "1")))
            os.makedirs(place)

    def test_I2_the_same_root_by_a_bind_mount(self):
        """One lock for every alias: a publish by one name waits for that by the other."""
        if os.geteuid() != 0:
            self.skipTest("mounting needs root")
        self.write("a", "1")
        self.sync_in()
        alias = os.path.join(self.top, "alias")
        os.mkdir(alias)
        subprocess.run(["mount", "--bind", self.root, alias], check=True)
        fd = os.open(alias, os.O_RDONLY)
        try:
            subprocess.run(["flock", "-x", str(fd)], pass_fds=[fd], check=True)
            res = self.unpack(Stream().file("a", "2"), "--lock-wait", "50")
            self.assertIn("another run", res["text"])
            self.assertEqual(self.read("a"), "1")
        finally:
            os.close(fd)
            subprocess.run(["umount", alias], check=True)
        self.assert_ok(self.unpack(Stream().file("a", "2")))


if __name__ == "__main__":
    main()
