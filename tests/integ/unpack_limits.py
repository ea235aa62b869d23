"""Door 1 and what runs out: disk, memory, permissions, counts (cases E, J3, J4; S1-09; FR-B033)."""
import os
import resource
import shutil
import subprocess
import tarfile
import threading
import time

from unpack_box import Box, Stream, main, tree
import scratch


def tmpfs(test, size):
    if os.geteuid() != 0:
        test.skipTest("mounting a small file system needs root")
    place = scratch.directory(prefix="unpack-tmpfs-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%s,mode=755" % size, "tmpfs", place], check=True)
    test.addCleanup(os.rmdir, place)
    test.addCleanup(subprocess.run, ["umount", place], check=True)
    return place


class Many(Box):
    def place(self):
        return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

    def test_F3_S1_09_a_repository_is_looked_for_once_in_a_directory(self):
        """Not once for each of the names below it: the workspace is locked meanwhile."""
        took = {}
        for name in "hoks", "hooks":
            s = Stream()
            for i in range(12000):
                s.add("d/a%05d" % i).add("d/%s/b%05d" % (name, i))
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            res = self.unpack(s, "--dry-run")
            took[name] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            self.assertEqual((res["ret"], res["counts"]["add"]), (0, 24000), res["text"])
        self.assertLess(took["hooks"], 5 * took["hoks"] + 0.5)


class Copies(Box):
    """--review: each entry has bytes of its own, which for hard links to what did not change are those of the base."""

    def test_S1_09_links_to_an_unchanged_file_are_one_copy(self):
        self.write("big", b"b" * 1000000)
        self.sync_in()
        s = Stream().file("big", b"b" * 1000000)
        for i in range(50):
            s.hard("h%02d" % i, "big")
        res = self.unpack(s, "--review")
        self.assertEqual(res["ret"], 0, res["text"])
        content = os.path.join(self.run_dir, "pending/c")
        files = {os.lstat(os.path.join(content, n)).st_ino: os.lstat(os.path.join(content, n)).st_size for n in os.listdir(content)}
        self.assertLessEqual(sum(files.values()), 2100000)
        res = self.unpack(b"", "--apply", cmd=self.again())
        self.assertEqual((res["ret"], {self.read("h%02d" % i) for i in range(50)}), (0, {"b" * 1000000}), res["text"])

    def again(self):
        first = self.run_dir
        cmd = self.command("--apply")
        os.rename(os.path.join(first, "pending"), os.path.join(self.run_dir, "pending"))
        return cmd


class Limits(Box):
    def as_user(self, stream, *args):
        """The same run by an ordinary user, for whom permissions mean something."""
        if os.geteuid() != 0:
            return self.unpack(stream, *args)
        cmd = self.command(*args)
        subprocess.run(["chown", "-R", "65534:65534", self.top], check=True)
        return self.unpack(stream, cmd=cmd, user=65534, group=65534, extra_groups=[])

    def test_E11_read_only_directory(self):
        self.write("ro/a", "1")
        self.write("ok", "1")
        self.sync_in()
        os.chmod(self.path("ro"), 0o555)
        res = self.as_user(Stream().file("ro/a", "2").file("ro/new", "n").file("ok", "2"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"ro/a": "fail:permission_denied", "ro/new": "fail:permission_denied",
                                         "ok": "change"})
        self.assertEqual((self.read("ro/a"), self.read("ok")), ("1", "2"))
        with open(os.path.join(self.run_dir, "conflicts/sandbox/ro/a"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "2")

    def test_F3_a_layout_is_one_wherever_its_parts_come(self):
        """Before, behind and below the names that give orders; of each directory its own answer."""
        s = Stream()
        for d in "a", "a/b/c", "plain", "a/b/c/d":
            for n in ("HEAD", "config", "hooks/x", "objects/o", "refs/r") if d != "plain" else ("config", "hooks/x", "refs/r"):
                s.file(d + "/" + n, "x")
        s.file("a/b/config", "x").file("a.d/config", "x").file("a/b/hooks/y", "x")
        res = self.unpack(s)
        self.assert_ok(res)
        refused = {c["path"] for c in res["changes"] if c["action"] == "refuse"}
        self.assertEqual(refused, {d + n for d in ("a/", "a/b/c/", "a/b/c/d/") for n in ("config", "hooks/x")})
        self.assertEqual({p for p, w in tree(self.root).items() if w[0] == "f"},
                         {d + n for d in ("a/", "a/b/c/", "a/b/c/d/") for n in ("HEAD", "objects/o", "refs/r")} |
                         {"plain/config", "plain/hooks/x", "plain/refs/r", "a/b/config", "a.d/config", "a/b/hooks/y"})

    def test_trickle_is_given_up(self):
        """A byte now and then is no silence: less than STREAM_SLOW_BYTES in STREAM_SLOW_MS ends the transfer."""
        self.write("a", "1")
        self.sync_in()
        p = subprocess.Popen(self.command("--slow", "300"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        end = time.monotonic() + 60
        try:
            for byte in bytes(512 * 100):
                p.stdin.write(bytes([byte]))
                p.stdin.flush()
                if p.poll() is not None or time.monotonic() > end:
                    break
                threading.Event().wait(0.02)
        except BrokenPipeError:
            pass
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass
        out = p.stdout.read()
        p.wait(60)
        p.stdout.close()
        self.assertIn(b"timeout", out)
        self.assertIn(b"STREAM_SLOW_BYTES", out)
        self.assertEqual(self.read("a"), "1")

    def test_ordinary_user_whole_round(self):
        self.write("a", "1")
        self.write("closed", "1", 0o000)
        self.write("gone/x", "1")
        self.sync_in()
        res = self.as_user(Stream().file("a", "2").file("closed", "2", 0o000).delete("gone").dir("n", 0o000)
                           .file("n/m", "m", 0o400))
        self.assert_ok(res)
        self.assertEqual((self.read("a"), self.read("n/m")), ("2", "m"))
        self.assertEqual(self.did(res)["gone/x"], "delete")

    def test_unsearchable_directory(self):
        self.write("shut/a", "1")
        self.write("ok", "1")
        self.sync_in()
        os.chmod(self.path("shut"), 0)
        res = self.as_user(Stream().file("shut/a", "2").delete("shut/b").file("ok", "2"))
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"shut/a": "fail:permission_denied", "ok": "change"})

    def test_read_only_workspace(self):
        self.write("a", "1")
        self.sync_in()
        os.chmod(self.root, 0o555)
        res = self.as_user(Stream().file("a", "2"))
        self.assertEqual(res["code"], "permission")
        self.assertIn("make it writable", res["text"])
        res = self.as_user(Stream().file("a", "2"), "--review")
        self.assertEqual((res["ret"], self.read("a")), (0, "1"))

    def test_E10_immutable_file(self):
        self.write("a", "1")
        self.write("b", "1")
        self.write("c", "1")
        self.sync_in()
        if subprocess.run(["chattr", "+i", self.path("a"), self.path("c")], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest("this file system has no immutable flag, or we may not set it")
        try:
            res = self.unpack(Stream().file("a", "2").file("b", "2").delete("c"))
        finally:
            subprocess.run(["chattr", "-i", self.path("a"), self.path("c")], check=True)
        self.assert_ok(res)
        self.assertEqual(self.did(res), {"a": "fail:permission_denied", "b": "change", "c": "fail:permission_denied"})
        self.assertEqual((self.read("a"), self.read("b"), self.read("c")), ("1", "2", "1"))

    def test_E7_other_file_system_inside(self):
        self.write("m/a", "1")
        self.write("b", "1")
        self.sync_in()
        place = tmpfs(self, "1m")
        shutil.copy(self.path("m/a"), place)
        subprocess.run(["mount", "--bind", place, self.path("m")], check=True)
        try:
            res = self.unpack(Stream().file("m/a", "2").file("b", "2"))
            self.assertEqual(self.did(res), {"m/a": "fail:other_filesystem", "b": "change"})
            self.assertEqual(self.read("m/a"), "1")
        finally:
            subprocess.run(["umount", self.path("m")], check=True)

    def test_J4_target_is_a_link_or_directory(self):
        self.write("f", "1")
        self.sync_in()
        os.unlink(self.path("f"))
        os.symlink("../out/victim", self.path("f"))
        res = self.unpack(Stream().file("f", "2"), "--take")
        self.assert_ok(res)
        self.assertEqual(self.read("f"), "2")
        self.assertFalse(os.path.islink(self.path("f")))
        self.assertEqual(os.listdir(self.outside), [])
        os.unlink(self.path("f"))
        os.mkdir(self.path("f"))
        res = self.unpack(Stream().file("f", "3"), "--take")
        self.assert_ok(res)
        self.assertTrue(os.path.isdir(self.path("f")))

    def test_A11_a_review_counts_a_hard_link_once(self):
        """As a publish does: of a file that was sent and is unchanged, and becomes one more."""
        self.write("big", "b" * 600000)
        self.sync_in()
        s = Stream().file("big", "b" * 600000).hard("again", "big")
        res = self.unpack(s, "--total", "1500000", "--review")
        self.assertEqual((res["rejected"], self.did(res)), (False, {"again": "add"}), res)
        res = self.unpack(s, "--total", "1500000")
        self.assertEqual((res["rejected"], self.did(res)), (False, {"again": "add"}), res)
        self.assertTrue(self.unpack(s, "--total", "1100000", "--review")["rejected"])

    def test_A11_E13_limits_are_rejections(self):
        self.write("a", "1")
        self.sync_in()
        res = self.unpack(Stream().file("x", "x" * 3000).file("y", "y" * 3000), "--total", "5000")
        self.assertTrue(res["rejected"])
        self.assertEqual((res["rule"], set(tree(self.root))), ("limit", {"a"}))
        self.assert_clean()

    def test_S1_04_a_copy_sent_again_takes_the_place_of_the_former(self):
        """A file that changes while it is packed comes again, and again: only its last copy counts, and only that one lies anywhere."""
        self.write("log", "old")
        self.sync_in()
        mib = 1 << 20
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        for name in "log", "new", "tree/new":  # one of the manifest, a new one, one in a new tree
            with self.subTest(name):
                s = Stream()
                for i in range(7):
                    s.file(name, bytes([65 + i]) * mib)
                s.file("other-" + os.path.basename(name), b"o" * mib)
                cmd = self.command("--total", str(2 * mib), "--pause", fifo)
                p = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                p.stdin.write(s.bytes())
                p.stdin.close()
                with open(fifo, "wb"):  # opens once all is staged
                    staged = sum(os.lstat(os.path.join(here, f)).st_size
                                 for here, _, files in os.walk(self.path(".airlock-staging")) for f in files
                                 if os.lstat(os.path.join(here, f)).st_size >= mib)
                res = self.result(p.stdout.read())
                p.stdout.close()
                self.assertEqual(p.wait(60), 0)
                self.assert_ok(res)
                self.assertEqual((staged, self.read(name)), (2 * mib, "G" * mib))

    def test_S1_04_copies_sent_again_without_end_meet_a_bound(self):
        self.write("log", "old")
        self.sync_in()
        s = Stream()
        for i in range(9):
            s.file("log", bytes([65 + i]) * (1 << 19))
        res = self.unpack(s, "--total", str(1 << 20))
        self.assertEqual((res["rejected"], res["rule"], self.read("log")), (True, "limit", "old"))

    def test_S1_04_sparse_copies_sent_again_meet_a_bound_of_their_logical_size(self):
        """They bring next to no bytes, but all their zeros are hashed."""
        self.sync_in()
        work = os.path.join(self.top, "w")
        os.mkdir(work)
        with open(os.path.join(work, "s"), "wb") as f:
            f.truncate(1 << 20)
        for copies, rejected in ((4, False), (9, True)):
            data = subprocess.run(["tar", "-C", work, "--sparse", "--hard-dereference", "--format=posix", "-cf", "-"] + ["s"] * copies,
                                  check=True, stdout=subprocess.PIPE).stdout
            self.assertLess(len(data), 1 << 16)
            res = self.unpack(data, "--total", str(1 << 20))
            self.assertEqual((res["rejected"], res["rule"] if rejected else None), (rejected, "limit" if rejected else None), res)

    def test_S1_04_a_copy_that_could_not_be_read_to_its_end_is_unknown(self):
        self.write("log", "old")
        self.sync_in()
        res = self.unpack(Stream().file("log", "half").file("log", "hal").unreadable("log").file("z", "z" * 100),
                          "--total", "100")
        self.assertEqual((res["ret"], self.read("log"), self.read("z")), (0, "old", "z" * 100), res)

    def test_A19_sparse_file_keeps_its_holes(self):
        self.sync_in()
        work = os.path.join(self.top, "w")
        os.mkdir(work)
        with open(os.path.join(work, "s"), "wb") as f:
            f.seek(200 << 20)
            f.write(b"end")
        data = subprocess.run(["tar", "-C", work, "--sparse", "--format=posix", "-cf", "-", "s"], check=True,
                              stdout=subprocess.PIPE).stdout
        self.assertLess(len(data), 1 << 20)
        res = self.unpack(data)
        self.assert_ok(res)
        st = os.stat(self.path("s"))
        self.assertEqual(st.st_size, (200 << 20) + 3)
        self.assertLess(st.st_blocks * 512, 1 << 20)
        with open(self.path("s"), "rb") as f:
            f.seek(200 << 20)
            self.assertEqual(f.read(), b"end")

    def feed(self, size, *args, **kw):
        """A stream with one file of `size` zero bytes that is never in memory whole."""
        p = subprocess.Popen(self.command(*args), stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kw)

        def write():
            info = tarfile.TarInfo("big")
            info.size = size
            block = b"\0" * (1 << 20)
            try:
                p.stdin.write(info.tobuf(tarfile.PAX_FORMAT))
                for _ in range(size >> 20):
                    p.stdin.write(block)
                p.stdin.write(b"\0" * 1024)
                p.stdin.close()
            except BrokenPipeError:
                pass
        t = threading.Thread(target=write)
        t.start()
        out = p.stdout.read()
        p.wait()
        t.join()
        p.stdout.close()
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass
        return self.result(out)

    def test_E1_memory_does_not_grow_with_a_file(self):
        self.sync_in()
        res = self.feed(2 << 30)
        self.assert_ok(res)
        self.assertEqual(os.stat(self.path("big")).st_size, 2 << 30)
        self.assertLessEqual(res["maxrss_kib"], 8 << 10)
        print("2 GiB file: peak RSS %d KiB" % res["maxrss_kib"])

    def test_E2_memory_with_many_members(self):
        for i in range(300):
            self.write("d%d/f" % i, "x")
        self.sync_in()
        s = Stream(tarfile.USTAR_FORMAT)
        for i in range(20000):
            s.file("d%d/new-%05d" % (i % 300, i), "x")
        res = self.unpack(s)
        self.assert_ok(res)
        self.assertEqual(res["counts"]["add"], 20000)
        self.assertLessEqual(res["maxrss_kib"], 8 << 10)
        print("20,000 new files: peak RSS %d KiB" % res["maxrss_kib"])


class SmallDisk(Box):
    """E6, FR-B033: a workspace on a file system that fills up."""

    def place(self):
        return tmpfs(self, "80m")

    def test_no_space_leaves_the_host_as_it_was(self):
        self.write("a", "1")
        self.sync_in()
        before = tree(self.root)
        res = self.unpack(Stream().file("a", "2").file("big", b"x" * (30 << 20)))
        self.assertEqual(res["code"], "no_space")
        self.assertRegex(res["text"], r"[0-9.]+ [KM]iB missing")
        self.assertEqual(tree(self.root), before)
        self.assert_clean()
        self.assert_ok(self.unpack(Stream().file("a", "2")))

    def test_ENOSPC_while_staging(self):
        """Sparse sizes are not reserved ahead, so the disk fills under the writer's hands."""
        self.write("a", "1")
        self.sync_in()
        work = scratch.directory(prefix="unpack-sparse-")
        self.addCleanup(shutil.rmtree, work)
        with open(os.path.join(work, "s"), "wb") as f:
            f.write(b"\1" * (100 << 20))
            f.seek(200 << 20)
            f.write(b"end")
        data = subprocess.run(["tar", "-C", work, "--sparse", "--format=posix", "-cf", "-", "s"], check=True,
                              stdout=subprocess.PIPE).stdout
        before = tree(self.root)
        res = self.unpack(data)
        self.assertEqual(res["code"], "no_space")
        self.assertEqual(tree(self.root), before)
        self.assert_clean()


class FullTemp(Box):
    """E9, FR-B033: the temporary directory is tiny; staging happens beside the workspace."""

    def test_tmpdir_is_not_used(self):
        place = tmpfs(self, "1m")
        self.write("a", "1")
        self.sync_in()
        res = self.unpack(Stream().file("big", b"x" * (20 << 20)), env=dict(os.environ, TMPDIR=place))
        self.assert_ok(res)
        self.assertEqual(os.listdir(place), [])


if __name__ == "__main__":
    main()
