"""Door 1 killed at every step (S1-07; cases I5, I6, I10, I11): each file is old or new, nothing is lost."""
import os
import shutil
import signal
import subprocess
import threading
import time

from unpack_box import Box, Stream, main, tree

# Steps at which the helper is killed: before the Nth call of each of these. The client makes none of them.
STEPS = {"openat2": 40, "mkdirat": 8, "symlinkat": 2, "renameat2": 12, "fsync": 12, "fchmod": 8, "unlinkat": 12,
         "flock": 3, "fchownat": 4, "pwrite64": 8, "sync_file_range": 6}


class Crash(Box):
    git = True

    def before(self):
        for i in range(4):
            self.write("change%d" % i, "old %d\n" % i)
        for n in "gone", "d/gone", "d/kept", "dir/x", "file":
            self.write(n, "old " + n)
        self.write("mode", "m")
        self.sync_in()

    def stream(self):
        s = Stream()
        for i in range(4):
            s.file("change%d" % i, "new %d\n" % i)
        return (s.delete("gone").delete("d/gone").file("dir", "now a file").dir("file").file("file/y", "y")
                .file("mode", "m", 0o755).dir("new").file("new/n", "n" * 100000).link("new/l", "n")).bytes()

    @staticmethod
    def flat(t):
        return {p: w for p, w in t.items() if w[0] != "d"}

    def clean_slate(self):
        subprocess.run(["rm", "-rf", self.root, os.path.join(self.top, "layer")], check=True)
        os.makedirs(self.path(".git"))
        self.before()

    def strace(self, call, n, cmd):
        return ["strace", "-f", "-o", "/dev/null", "-e", "trace=%s" % call,
                "-e", "inject=%s:signal=KILL:when=%d" % (call, n)] + cmd

    def test_kill_at_every_step_then_recover(self):
        self.before()
        old, data = self.flat(tree(self.root)), self.stream()
        self.assertEqual(self.unpack(data)["ret"], 0)
        new = self.flat(tree(self.root))
        self.assertNotEqual(old, new)
        killed = published = 0
        for call, count in STEPS.items():
            for n in range(1, count + 1):
                self.clean_slate()
                # strace would hit the repair by the client as well, so that one is done apart
                out = subprocess.run(self.strace(call, n, self.command("--no-recover")), input=data,
                                     stdout=subprocess.PIPE, timeout=60, check=False)
                if not out.stdout:
                    self.fail("the client was hit by %s" % call)
                res = self.result(out.stdout)
                with self.subTest("%s %d" % (call, n)):
                    if res["ret"] == 0:
                        break
                    killed += 1
                    self.assertIn("signal 9", res["text"])
                    self.assertIn(self.recover()["ret"], (0, 1))
                    now = self.flat(tree(self.root))
                    self.assertIn(now, (old, new))
                    published += now == new
                    self.assert_clean()
                    # and the same results brought back again end in the new state
                    self.assertEqual(self.unpack(data)["ret"], 0)
                    self.assertEqual(self.flat(tree(self.root)), new)
        self.assertGreaterEqual(killed, 60)
        self.assertGreaterEqual(published, 10)

    def kill_mid_publish(self, call, n):
        """Kills the helper; what is there afterwards is what a dead machine would leave."""
        self.clean_slate()
        out = subprocess.run(self.strace(call, n, self.command("--no-recover")), input=self.stream(),
                             stdout=subprocess.PIPE, timeout=60, check=False)
        return out.returncode

    def test_states_before_recovery(self):
        self.before()
        old, data = self.flat(tree(self.root)), self.stream()
        self.assertEqual(self.unpack(data)["ret"], 0)
        new = self.flat(tree(self.root))
        mixed = 0
        for n in range(1, 11):
            self.kill_mid_publish("renameat2", n)
            now = self.flat(tree(self.root))
            for p in old.keys() | new.keys() | now.keys():
                self.assertIn(now.get(p), (old.get(p), new.get(p)), (n, p))
            mixed += now not in (old, new)
            self.assertTrue(os.path.isdir(self.path(".git/airlock-staging")) or now == new)
            # I6: the person edits meanwhile; recovery does not run over it
            self.write("change3", "edited after the crash\n")
            self.assertIn(self.recover()["ret"], (0, 1))
            self.assertEqual(self.read("change3"), "edited after the crash\n")
            now = self.flat(tree(self.root))
            now["change3"] = new["change3"]
            self.assertEqual(now, new)
        self.assertGreaterEqual(mixed, 5)

    def test_I11_a_live_publish_is_left_alone_by_recovery(self):
        self.before()
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        seen = []

        def meddle():
            fd = os.open(fifo, os.O_WRONLY)
            seen.append(self.recover()["ret"])
            seen.append(len(os.listdir(self.path(".git/airlock-staging"))))
            os.close(fd)
        t = threading.Thread(target=meddle)
        t.start()
        res = self.unpack(self.stream(), "--pause", fifo)
        t.join()
        self.assert_ok(res)
        self.assertEqual(seen, [0, 1])

    def test_S1_10_a_trash_without_place_waits_and_undoes_no_edit(self):
        self.before()
        cmd = self.command("--state", self.top)
        # Where the trash belongs is a file: nothing can be moved there, by anybody.
        with open(os.path.join(self.run_dir, "trash"), "w", encoding="ascii"):
            pass
        res = self.unpack(self.stream(), cmd=cmd)
        self.assertEqual((res["ret"], res["counts"]["not_trashed"], res["counts"]["delete"]), (0, 4, 3), res)
        self.assertEqual(self.read("change0"), "new 0\n")
        kept = {c["path"]: c["detail"].split(": ")[0] for c in res["changes"] if c["action"] == "not_trashed"}
        self.assertEqual((set(kept), self.read(kept["gone"])), ({"gone", "d/gone", "dir", "file"}, "old gone"))
        # A person goes on working: none of it may be done again by whoever looks for the trash.
        os.chmod(self.path("mode"), 0o600)
        shutil.rmtree(self.path("new"))
        os.unlink(self.path("change1"))
        os.unlink(self.path("dir"))
        rec = self.recover(self.top)
        self.assertEqual(rec["ret"], 0, rec)
        self.assertIn("gone", rec["text"])
        self.assertIn("airlock recover", rec["text"])
        # Nor does it hold up the next run, whose own staging place comes and goes.
        res = self.unpack(Stream().file("next", "n"), "--state", self.top)
        self.assertEqual((res["ret"], self.read("next"), self.read(kept["gone"])), (0, "n", "old gone"), res)
        os.unlink(os.path.join(os.path.dirname(self.run_dir), "run0", "trash"))
        self.assertEqual(self.recover(self.top)["text"], "")
        self.assert_clean()
        for p in "gone", "d/gone", "dir/x":
            with open(os.path.join(self.top, "run0", "trash", p), encoding="ascii") as f:
                self.assertEqual(f.read(), "old " + p)
        now = tree(self.root)
        self.assertEqual((now["mode"][1], {"new", "change1", "dir"} & set(now)), (0o600, set()))

    def test_helper_killed_from_outside(self):
        self.before()
        old = tree(self.root)
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)

        def kill():
            fd = os.open(fifo, os.O_WRONLY)
            for pid in os.listdir("/proc"):
                try:
                    if os.readlink("/proc/%s/exe" % pid) == os.path.join(self.bin, "airlock-unpack"):
                        os.kill(int(pid), signal.SIGKILL)
                except OSError:
                    pass
            os.close(fd)
        t = threading.Thread(target=kill)
        t.start()
        res = self.unpack(self.stream(), "--pause", fifo)
        t.join()
        self.assertEqual(res["code"], "io")
        self.assertIn("signal 9", res["text"])
        self.assertEqual(tree(self.root), old)
        self.assert_clean()

    def test_client_killed_leaves_nothing(self):
        self.before()
        old = tree(self.root)
        fifo = os.path.join(self.top, "fifo")
        os.mkfifo(fifo)
        p = subprocess.Popen(self.command("--pause", fifo), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        p.stdin.write(self.stream())
        p.stdin.close()
        fd = os.open(fifo, os.O_WRONLY)
        p.kill()
        os.close(fd)
        p.stdout.read()  # ends when the helper, which inherited nothing of it, is gone or never had it
        p.wait()
        p.stdout.close()
        self.assertIn(self.recover()["ret"], (0, 1))
        self.assertEqual(tree(self.root), old)
        # The helper may still be on its way to the end of its input, and removes its own staging place there.
        until = time.monotonic() + 60
        while os.path.lexists(self.path(".git/airlock-staging")) and time.monotonic() < until:
            time.sleep(0.05)
        self.assert_clean()

    def test_I1_two_publishes_at_once(self):
        self.before()
        fifos, out = [], {}
        for i in range(2):
            fifos.append(os.path.join(self.top, "fifo%d" % i))
            os.mkfifo(fifos[i])

        def run(i, cmd, data):
            out[i] = subprocess.run(cmd, input=data, stdout=subprocess.PIPE, timeout=60, check=False).stdout
        ts = []
        for i in range(2):
            s = Stream().file("change%d" % i, "run %d\n" % i).file("change3", "run %d\0" % i).dir("both")
            s.file("both/%d" % i, "x")
            ts.append(threading.Thread(target=run, args=(i, self.command("--pause", fifos[i]), s.bytes())))
            ts[i].start()
        fds = [os.open(f, os.O_WRONLY) for f in fifos]  # both are staged now
        for fd in fds:
            os.close(fd)
        for t in ts:
            t.join()
        conflicts = sum(__import__("json").loads(out[i])["counts"]["conflict"] for i in range(2))
        self.assertEqual(conflicts, 1)
        self.assertEqual((self.read("change0"), self.read("change1")), ("run 0\n", "run 1\n"))
        self.assertEqual((self.read("both/0"), self.read("both/1")), ("x", "x"))
        self.assertIn(self.read("change3"), ("run 0\0", "run 1\0"))
        self.assert_clean()

    def test_I9_lock_wait_ends_with_a_reason(self):
        import fcntl
        self.before()
        fd = os.open(self.root, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        res = self.unpack(self.stream(), "--lock-wait", "50")
        os.close(fd)
        self.assertEqual(res["code"], "timeout")
        self.assert_clean()
        self.assertEqual(self.unpack(self.stream())["ret"], 0)


if __name__ == "__main__":
    main()
