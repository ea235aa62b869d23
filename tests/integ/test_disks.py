#!/usr/bin/env python3
"""Door 1 on real file systems, each in an image of its own: what their kernel code answers, not what a test injects
(S1-07, S1-10; cases E6, E7). What has no kernel code on the machines where this is built (vfat) is in unpack_faults.py.

usage: test_disks.py AIRLOCK FAULT_AT [unittest arguments]
"""
import io, os, shutil, subprocess, sys, tarfile, tempfile, unittest

from run_box import Host

AIRLOCK, FAULT_AT = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
USER = 20001
FILES = {"keep": b"keep\n", "change": b"old\n", "gone": b"gone\n", "d/x": b"x\n", "d/y": b"y\n", "mode": b"#!/bin/sh\n", "tree/a/b": b"b\n"}
SCRIPT = ("set -e; echo new >change; rm gone; rm -r d; echo file >d; chmod 755 mode; rm -r tree; mkdir -p new/deep/er; "
          "head -c 3000000 /dev/urandom >new/deep/er/big; cp new/deep/er/big copy; echo n >new/n; touch empty; "
          "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i >new/f$i; done; "
          "ln -s deep/er/big new/l; ln new/n new/hard")


class Disk:
    kind = None
    options = ()
    one_log = False

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("mounting an image needs root")
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-disk-", {})
        self.addCleanup(self.host.remove)
        self.disk = self.mount()
        self.addCleanup(setattr, self.host, "ws", self.host.top)
        self.host.ws = self.disk + "/ws"
        os.mkdir(self.host.ws)
        for n, b in FILES.items():
            self.host.write(n, b)

    def mount(self, size=400 << 20):
        place = self.host.top + "/disk"
        image = self.host.top + "/image"
        if not shutil.which("mkfs." + self.kind, path="/usr/sbin:/sbin:/usr/bin:/bin"):
            self.skipTest("there is no mkfs.%s" % self.kind)
        with open(image, "wb") as f:
            f.truncate(size)
        subprocess.run(["mkfs." + self.kind, *self.options, image], check=True, capture_output=True)
        os.mkdir(place)
        r = subprocess.run(["mount", "-t", self.kind, "-o", "loop", image, place], capture_output=True, check=False)
        if r.returncode:
            self.skipTest("this kernel does not mount %s images: %s" % (self.kind, r.stderr.decode().strip().splitlines()[0]))
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=True)
        return place

    def owned(self):
        """All of it is an ordinary user's, who runs airlock from here on."""
        for d in self.host.top, self.host.ws:
            subprocess.run(["chown", "-R", "%d:%d" % (USER, USER), d], check=True)
        airlock = self.host.airlock
        self.host.airlock = lambda *words, **kw: airlock(*words, user=USER, group=USER, extra_groups=[], **kw)
        return self

    def run_it(self, script, *opts, status=(0,)):
        r = self.host.airlock("run", *opts, "--", "sh", "-c", script)
        self.said = r.stderr.decode(errors="replace")
        self.assertIn(r.returncode, status, self.said)
        return r.returncode

    def recover(self):
        r = self.host.airlock("recover", "last")
        self.assertEqual(r.returncode, 0, r.stderr)

    def names(self):
        return {os.path.relpath(os.path.join(d, n), self.host.ws) for d, _, names in os.walk(self.host.ws) for n in names}

    def assert_done(self):
        """All that SCRIPT made is there, and nothing else."""
        more = {"new/f%d" % i for i in range(1, 301)}
        self.assertEqual(self.names(), {"keep", "change", "d", "mode", "new/n", "new/deep/er/big", "copy", "empty", "new/l", "new/hard"} | more, self.said)
        self.assertEqual((self.host.read("change"), self.host.read("d"), self.host.read("keep")), (b"new\n", b"file\n", b"keep\n"))
        self.assertEqual(self.host.read("new/f300"), b"300\n")
        self.assertEqual(len(self.host.read("copy")), 3000000)
        self.assertEqual(self.host.read("copy"), self.host.read("new/deep/er/big"))
        self.assertEqual(os.readlink(self.host.ws + "/new/l"), "deep/er/big")
        self.assertEqual(os.stat(self.host.ws + "/mode").st_mode & 0o777, 0o755)

    def assert_unchanged(self):
        self.assertEqual({n: self.host.read(n) for n in self.names()}, FILES)

    def fill(self, leave):
        """Until so many bytes are left for whom the file system lets write."""
        free = os.statvfs(self.disk)
        with open(self.disk + "/filler", "wb") as f:
            left = free.f_bavail * free.f_bsize - leave
            while left > 0:
                try:
                    left -= f.write(bytes(min(left, 1 << 20)))
                except OSError:
                    break
            try:
                os.fsync(f.fileno())
            except OSError:
                pass

    def test_S1_07_every_kind_of_change_comes_back(self):
        self.run_it(SCRIPT)
        self.assert_done()

    def test_S1_10_a_full_disk_changes_nothing_and_a_recovery_brings_it(self):
        self.fill(1 << 20)
        self.assertEqual(self.run_it(SCRIPT, status=(125,)), 125)
        self.assertRegex(self.said, r"[Nn]o space|disk|quota")
        self.assert_unchanged()
        os.unlink(self.disk + "/filler")
        os.sync()
        self.recover()
        self.assert_done()

    def test_S1_10_workspace_and_state_on_the_disk(self):
        """Trash and staging by rename, the sandbox's layer beside the workspace."""
        self.host.env["XDG_STATE_HOME"] = self.disk + "/state"
        self.host.state = self.disk + "/state/airlock"
        self.run_it(SCRIPT)
        self.assert_done()
        self.run_it("rm -r new copy", "--review")
        r = self.host.airlock("apply", "last")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.names(), {"keep", "change", "d", "mode", "empty"})

    def test_S1_10_directories_that_an_ordinary_user_may_not_write(self):
        """0555: what the sandbox did in one after a chmod comes, or is told path by path; nothing of the rest waits for it."""
        for n in "d", "tree/a":
            os.chmod(self.host.ws + "/" + n, 0o555)
        self.owned()
        self.run_it("echo other >keep; chmod 755 d; echo new >d/x; echo z >d/z; rm d/y; chmod 555 d; echo q >change", status=(0, 1))
        self.assertEqual((self.host.read("keep"), self.host.read("change")), (b"other\n", b"q\n"))
        now = {n: self.host.read(n) if os.path.exists(self.host.ws + "/" + n) else None for n in ("d/x", "d/y", "d/z")}
        want = {"d/x": (b"x\n", b"new\n"), "d/y": (b"y\n", None), "d/z": (None, b"z\n")}
        for n, (old, new) in want.items():
            self.assertIn(now[n], (old, new))
            if now[n] == old:
                self.assertRegex(self.said, r"NOT WRITTEN(.*\n)*.*%s: you may not write it here" % n)
        self.assertEqual(os.stat(self.host.ws + "/d").st_mode & 0o777, 0o555)
        # Untouched ones are no trouble at all.
        self.assertEqual(os.stat(self.host.ws + "/tree/a").st_mode & 0o777, 0o555)
        self.assertEqual(self.host.read("tree/a/b"), b"b\n")
        self.assertFalse([n for n in os.listdir(self.host.ws) if n.startswith(".airlock")])


    def test_S1_07_each_file_is_on_the_disk_before_the_commit(self):
        """By one fsync where the file system has one log, elsewhere by one for each file and each directory."""
        stream, log = io.BytesIO(), self.host.top + "/calls"
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as t:
            for i in range(9):
                m = tarfile.TarInfo("tree/a/n%d" % i)
                m.size = 2
                t.addfile(m, io.BytesIO(b"n\n"))
        subprocess.run([FAULT_AT, "-l", log, "--", AIRLOCK, "unpack", "--into", self.host.ws], input=stream.getvalue(), env=self.host.env,
                       stdout=subprocess.DEVNULL, check=True, timeout=60)
        self.assertEqual(self.host.read("tree/a/n8"), b"n\n")
        with open(log, encoding="ascii") as f:
            calls = [line.split()[1] for line in f]
        synced, pushed = calls.count("fsync"), calls.count("sync_file_range")
        if self.one_log:
            self.assertLess(synced, 9)
            self.assertGreaterEqual(pushed, 9)
        else:
            self.assertGreaterEqual(synced, 9 + 3, "nine files, the two directories of the staging place, that of the files")


class Ext4(Disk, unittest.TestCase):
    kind = "ext4"
    one_log = True


class Ext4WithoutJournal(Disk, unittest.TestCase):
    kind = "ext4"
    options = ("-O", "^has_journal")


class Xfs(Disk, unittest.TestCase):
    kind = "xfs"
    one_log = True


class Btrfs(Disk, unittest.TestCase):
    kind = "btrfs"

    def test_E6_a_quota_changes_nothing_and_a_recovery_brings_it(self):
        def btrfs(*words):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)
        shutil.rmtree(self.host.ws)
        btrfs("quota", "enable", self.disk)
        btrfs("subvolume", "create", self.host.ws)
        for n, b in FILES.items():
            self.host.write(n, b)
        btrfs("qgroup", "limit", "2M", self.host.ws)
        self.assertEqual(self.run_it(SCRIPT, status=(125,)), 125)
        self.assertRegex(self.said, r"quota")
        self.assert_unchanged()
        btrfs("qgroup", "limit", "none", self.host.ws)
        self.recover()
        self.assert_done()


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main()
