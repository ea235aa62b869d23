"""--map: files and directories besides the workspace (S1-08, S1-03, S1-10; cases J2, J3, J4, B1, B15)."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import unittest

from unpack_box import tree
import scratch

AIRLOCK = os.path.abspath(sys.argv[1])
DEADLINE = 60


def stopped(words):
    """A process whose command line has these bytes, stopped now. None: there is none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                line = f.read()
            if words in line and line.startswith(b"tar\0"):
                os.kill(int(pid), signal.SIGSTOP)
                return int(pid)
        except OSError:
            pass
    return None


class Maps(unittest.TestCase):
    def setUp(self):
        self.top = scratch.directory(prefix="maps-")
        self.env = dict(os.environ, HOME=os.path.join(self.top, "home"), XDG_STATE_HOME=os.path.join(self.top, "state"))
        for d in "home", "ws", "assets":
            os.mkdir(os.path.join(self.top, d))
        self.ws, self.assets = os.path.join(self.top, "ws"), os.path.join(self.top, "assets")
        self.write("ws/a", "a")

    def tearDown(self):
        subprocess.run([AIRLOCK, "rm", "--all", "--force"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=DEADLINE, check=False)
        scratch.remove(self.top)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def read(self, name):
        with open(os.path.join(self.top, name), encoding="utf-8") as f:
            return f.read()

    def run_in(self, script, *opts, status=0, **kw):
        r = subprocess.run([AIRLOCK, "run", *opts, "--", script], cwd=self.ws, env=self.env, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE, check=False, **kw)
        self.assertEqual(r.returncode, status, r.stderr)
        return r

    def report(self, n=0):
        runs = os.path.join(self.top, "state/airlock/runs")
        with open(os.path.join(runs, sorted(os.listdir(runs))[-1], "maps/%d/changes.jsonl" % n), encoding="utf-8") as f:
            return {c["path"]: c["action"] + (":" + c["rule"] if c.get("rule") else "") for c in map(json.loads, f)}

    def airlock(self, *words):
        return subprocess.run([AIRLOCK, *words], cwd=self.ws, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=DEADLINE, check=False)

    def cut_on_the_way_in(self, files):
        """Kills airlock while the sandbox's tar has the stream in its pipe and not on its disk. False: it was faster."""
        shutil.rmtree(self.assets)
        if os.path.exists(self.ws + "/ran"):
            os.unlink(self.ws + "/ran")
        for i in range(files):
            self.write("assets/f%03d" % i, "x" * 400)
        p = subprocess.Popen([AIRLOCK, "run", "--map", self.assets + ":/home/agent/as", "--", "touch ran"], cwd=self.ws, env=self.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        tar = None
        while tar is None and p.poll() is None:
            tar = stopped(b"/home/agent/as\0-xpf")
        manifest = os.path.join(self.top, "state/airlock/leases")
        until = time.monotonic() + 1
        while p.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
            found = [os.path.join(manifest, d, "map-0") for d in os.listdir(manifest)]
            if any(os.path.exists(f) and os.path.getsize(f) for f in found):
                break
        caught = p.poll() is None
        p.kill()
        p.wait()
        if tar:
            try:
                os.kill(tar, signal.SIGCONT)
            except ProcessLookupError:
                pass
        return caught

    def test_J4_a_kill_on_the_way_in_takes_nothing_back(self):
        """A mapping that is not there whole has no deletions: no command ran (case J4)."""
        for files in 30, 60:
            for _ in range(20):
                if self.cut_on_the_way_in(files):
                    break
                self.airlock("rm", "--all", "--force")
            else:
                self.skipTest("the archiver was always faster")
            r = self.airlock("recover", "last")
            self.assertEqual(len(os.listdir(self.assets)), files, r.stderr)
            self.assertTrue(all(os.path.getsize(os.path.join(self.assets, n)) == 400 for n in os.listdir(self.assets)))
            # Nothing ran: there is no work, and nobody waits for it.
            self.assertIn(b"keeps no work", r.stderr)
            self.assertNotIn(b"recover", self.airlock("runs", "--waiting").stdout)
            self.assertFalse(os.path.exists(os.path.join(self.ws, "ran")))

    def test_S1_10_runs_on_another_disk_than_leases(self):
        """What was sent cannot be linked there; without it a review could not be decided, and nothing would come back."""
        other = scratch.directory(prefix="maps-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, other, True)
        if os.stat(other).st_dev == os.stat(self.top).st_dev:
            self.skipTest("no second file system: /dev/shm is the one of %s" % self.top)
        os.makedirs(os.path.join(self.top, "state/airlock"), 0o700)
        os.symlink(other, os.path.join(self.top, "state/airlock/runs"))
        self.write("assets/d/x", "x")
        f, d = self.write("assets/f", "old"), os.path.join(self.assets, "d")
        maps = "--map", f + ":/home/agent/f", "--map", d + ":/home/agent/d"
        self.run_in("echo -n new >~/f; echo -n y >~/d/x", *maps)
        self.assertEqual((self.read("assets/f"), self.read("assets/d/x")), ("new", "y"))
        self.run_in("echo -n later >~/f; rm ~/d/x", *maps, "--review")
        self.assertEqual((self.read("assets/f"), self.read("assets/d/x")), ("new", "y"))
        subprocess.run([AIRLOCK, "apply", "last"], cwd=self.ws, env=self.env, check=True, timeout=DEADLINE, capture_output=True)
        self.assertEqual(self.read("assets/f"), "later")
        self.assertFalse(os.path.exists(d + "/x"))

    def test_S1_10_a_directory_that_nobody_may_write_stays_one(self):
        """Every directory comes with such a stream, as its owner may write in it: that is nothing the sandbox did."""
        self.write("assets/ro/x", "x")
        self.write("assets/shut/y", "y")
        modes = {"ro": 0o555, "shut": 0o500}
        for d, mode in modes.items():
            os.chmod(os.path.join(self.assets, d), mode)
        self.run_in("echo n >~/assets/new; chmod 750 ~/assets/shut", "--map", self.assets + ":/home/agent/assets")
        self.assertEqual(self.report(), {"new": "add", "shut": "mode"})
        self.assertEqual([stat.S_IMODE(os.stat(os.path.join(self.assets, d)).st_mode) for d in modes], [0o555, 0o750])

    def test_S1_03_what_is_no_longer_the_mapped_kind_does_not_come_back(self):
        for script, opt, kind in (("rm -f ~/f; mkfifo ~/f", "%s/f:/home/agent/f" % self.assets, "file"),
                                  ("rm -f ~/f; ln -s /etc/passwd ~/f", "%s/f:/home/agent/f" % self.assets, "file"),
                                  ("rm -f ~/f", "%s/f:/home/agent/f" % self.assets, "file"),
                                  ("rm -rf ~/d; ln -s /etc ~/d", "%s/d:/home/agent/d" % self.assets, "directory")):
            with self.subTest(script):
                self.write("assets/f", "f")
                self.write("assets/d/x", "x")
                before = tree(self.assets)
                r = self.run_in(script, "--map", opt, status=125)
                self.assertIn(b"is not a %s any more" % kind.encode(), r.stderr)
                self.assertEqual(tree(self.assets), before)
                # Nobody can bring it back: who tries is told how the run ends.
                r = self.airlock("recover", "last")
                self.assertEqual(r.returncode, 125)
                self.assertIn(b"'airlock rm --force' of the run gives this up", r.stderr)
                self.assertEqual(self.airlock("rm", "--force", "last").returncode, 0)

    def test_a_directory_goes_in_and_its_changes_come_back(self):
        for n in "keep", "change", "gone", "d/x":
            self.write("assets/" + n, "old " + n)
        self.write("assets/tool", "#!/bin/sh\necho ran\n", 0o755)
        os.symlink("keep", os.path.join(self.assets, "link"))
        r = self.run_in("cd ~/assets && ./tool && cat link && echo -n new > change && rm gone && echo -n n > d/new && chmod 600 keep"
                        " && ln -s /etc/passwd esc && ln -s d in", "--map", self.assets + ":/home/agent/assets")
        self.assertEqual(r.stdout, b"ran\nold keep")
        self.assertEqual(self.report(), {"change": "change", "gone": "delete", "d/new": "add", "keep": "mode", "in": "add",
                                         "esc": "refuse:link_escape"})
        self.assertEqual({p: w[-1] for p, w in tree(self.assets).items() if w[0] == "f"},
                         {"keep": b"old keep", "change": b"new", "d/x": b"old d/x", "d/new": b"n",
                          "tool": b"#!/bin/sh\necho ran\n"})
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.assets, "keep")).st_mode), 0o600)
        self.assertIn(b"mapping %s: what came back:" % os.fsencode(self.assets), r.stderr)
        self.assertIn(b"refused: 1\n", r.stderr)
        self.assertEqual(os.listdir(self.ws), ["a"])

    def test_S1_08_a_file_comes_back_whole_with_its_mode_from_the_start(self):
        path = self.write("conf/settings.json", "old", 0o600)
        self.write("conf/other", "other", 0o600)
        big = 4 << 20
        seen, stop = set(), threading.Event()

        def watch():  # every state that another user could meet under that name, or beside it
            while not stop.is_set():
                for here, _, files in os.walk(os.path.join(self.top, "conf")):
                    for f in files:
                        try:
                            st = os.lstat(os.path.join(here, f))
                            private = stat.S_IMODE(os.lstat(here).st_mode) if here != os.path.dirname(path) else 0o755
                        except OSError:
                            continue
                        if st.st_mode & 0o077 and private & 0o077:
                            seen.add((f, oct(st.st_mode)))
                        if f == "settings.json":
                            seen.add(("size", st.st_size))
        t = threading.Thread(target=watch)
        t.start()
        try:
            self.run_in("head -c %d /dev/zero > /tmp/m/s && chmod 600 /tmp/m/s" % big, "--map", path + ":/tmp/m/s:file")
        finally:
            stop.set()
            t.join()
        self.assertIn(("size", 3), seen, "nobody watched")
        self.assertLessEqual(seen, {("size", 3), ("size", big)})
        self.assertEqual((os.stat(path).st_size, stat.S_IMODE(os.stat(path).st_mode)), (big, 0o600))
        self.assertEqual(self.read("conf/other"), "other")
        self.assertEqual(sorted(os.listdir(os.path.join(self.top, "conf"))), ["other", "settings.json"])

    def test_S1_08_a_file_gets_no_wider_mode(self):
        """Made anew inside it has what the umask there left; what the owner may, and less for the others, is taken."""
        anew = "umask 022; echo -n %s >/tmp/new; chmod %s /tmp/new; mv /tmp/new ~/f"
        for was, inside, now in (0o600, 0o644, 0o600), (0o640, 0o777, 0o740), (0o644, 0o600, 0o600), (0o664, 0o444, 0o444):
            with self.subTest("%o %o" % (was, inside)):
                scratch.remove(os.path.join(self.top, "conf"))
                path = self.write("conf/f", "old", was)
                self.run_in(anew % ("new", "%o" % inside), "--map", path + ":/home/agent/f")
                self.assertEqual((self.read("conf/f"), stat.S_IMODE(os.stat(path).st_mode)), ("new", now))
                # The mode alone, too: the host's went in.
                self.run_in("chmod a+r ~/f", "--map", path + ":/home/agent/f")
                self.assertEqual((self.read("conf/f"), stat.S_IMODE(os.stat(path).st_mode)), ("new", now))

    def test_S1_08_only_that_file_may_come(self):
        path = self.write("conf/f", "old")
        # What inside stands for the archiver may send what it likes; the door knows one name.
        evil = self.run_in("mkdir -p /tmp/e && cd /tmp/e && echo x > f && echo y > g && tar -cf - f g").stdout
        r = subprocess.run([AIRLOCK, "unpack", "--file", path, "--on-conflict", "take-sandbox"], input=evil, env=self.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
        self.assertEqual(r.returncode, 3)
        self.assertIn(b'"path":"g","rule":"not_mapped"', r.stdout)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["f"])
        self.assertEqual(self.read("conf/f"), "old")

    def test_J4_deleted_or_no_file_inside_leaves_the_host_file(self):
        path = self.write("conf/f", "old")
        for script in "rm /tmp/m/f", "rm /tmp/m/f; mkdir /tmp/m/f":
            self.run_in(script, "--map", path + ":/tmp/m/f", status=125)
            self.assertEqual(self.read("conf/f"), "old")

    def test_a_host_edit_meanwhile_is_a_conflict(self):
        path = self.write("conf/f", "old")
        p = subprocess.Popen([AIRLOCK, "run", "--map", path + ":/tmp/m/f", "--", "echo ready; read x; echo s > /tmp/m/f"],
                             cwd=self.ws, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        self.write("conf/f", "host")
        _, err = p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual((self.read("conf/f"), self.report()), ("host", {"f": "conflict:both_changed"}))

    def test_J2_places_that_are_refused(self):
        self.write("assets/d/x", "x")
        f = self.write("conf/f", "f")
        os.symlink(self.assets, os.path.join(self.top, "link"))
        git = os.path.dirname(self.write("repo/.git/hooks/x", "x"))
        ok = self.assets + ":/tmp/a"
        for maps in (["nowhere:/tmp/a"], [self.assets], [self.assets + ":tmp/a"], [self.assets + ":/tmp/../etc"],
                     [self.assets + ":/tmp"], [self.assets + ":/home/agent"], [self.assets + ":/workspace/x"],
                     [self.assets + ":/usr/lib/x"], [self.assets + ":/tmp/a:file"], [f + ":/tmp/a:dir"],
                     [os.path.join(self.top, "link") + ":/tmp/a"], [git + ":/tmp/a"], [self.assets + ":/tmp/.git/x"],
                     [self.ws + ":/tmp/a"], [self.top + ":/tmp/a"], [os.path.join(self.ws, "a") + ":/tmp/a"],
                     [os.path.join(self.top, "state/airlock/runs") + ":/tmp/a"],
                     [ok, self.assets + "/d:/tmp/b"], [ok, f + ":/tmp/a/b"], [ok, f + ":/tmp/a"]):
            subprocess.run([AIRLOCK, "ps"], env=self.env, stdout=subprocess.DEVNULL, check=True)
            r = self.run_in("true", *[w for m in maps for w in ("--map", m)], status=2)
            self.assertTrue(r.stderr.startswith(b"airlock: --map "), r.stderr)
        self.assertIn(b"--map does not go with a provider", self.run_in("true", "--provider", "local", "--map", ok, status=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=sys.argv[:1] + sys.argv[2:])
