#!/usr/bin/env python3
"""Whole runs on file systems that are small, that fold names or that forbid things, and against a command that changes its tree
while the packer walks it (S1-01, S1-02, S1-09, B-04; cases E6, E7, E14, A27, B14; FR-B016, FR-B033, FR-B176).

usage: test_filesystems.py AIRLOCK [unittest arguments]
"""
import glob, json, os, re, shutil, subprocess, sys, tempfile, unittest

from run_box import Host, snapshot
import scratch

AIRLOCK = os.path.realpath(sys.argv[1])
PROGS = os.path.dirname(AIRLOCK)


def mounted(test, *options, what="tmpfs", kind="tmpfs"):
    if os.geteuid() != 0:
        test.skipTest("mounting a file system needs root")
    place = scratch.directory(prefix="airlock-fs-")
    r = subprocess.run(["mount", "-t", kind, "-o", ",".join(options), what, place], stderr=subprocess.PIPE, check=False)
    if r.returncode:
        os.rmdir(place)
        test.skipTest("this kernel does not mount %s: %s" % (kind, r.stderr.decode().strip().splitlines()[0]))
    test.addCleanup(os.rmdir, place)
    test.addCleanup(subprocess.run, ["umount", "-l", place], check=True)
    return place


def grow(place, *options):
    subprocess.run(["mount", "-o", ",".join(("remount",) + options), place], check=True)


def plain(snap):
    """Without inodes and times of what a failed try may touch."""
    return {p: (v[0], v[1][0] if isinstance(v[1], tuple) else v[1]) for p, v in snap.items()}


class FileSystems(unittest.TestCase):
    def setUp(self):
        self.host = Host(PROGS, "airlock-fs-host-", {"a": b"a\n", "d/b": b"b\n"})
        self.addCleanup(self.host.remove)

    def workspace_on(self, place):
        # The last word on the host is said when the place has gone.
        self.addCleanup(setattr, self.host, "ws", self.host.top)
        self.host.ws = place + "/ws"
        os.mkdir(self.host.ws)
        for name, data in (("a", b"a\n"), ("d/b", b"b\n")):
            self.host.write(name, data)

    def state_on(self, place):
        self.host.env["XDG_STATE_HOME"] = place
        self.host.state = place + "/airlock"

    def run_it(self, script, *opts, status=0):
        r = self.host.airlock("run", *opts, "--", "sh", "-c", script)
        self.assertEqual(r.returncode, status, r.stderr.decode())
        return r

    def failed_whole(self, script, limit):
        """The run fails for want of `limit`, says so, and the workspace is as it was. Gives back the run's name."""
        before = snapshot(self.host.ws)
        r = self.host.airlock("run", "--", "sh", "-c", script)
        text = r.stderr.decode()
        self.assertEqual(r.returncode, 125, text)
        self.assertRegex(text, limit)
        self.assertEqual(snapshot(self.host.ws), before)
        left = [n for n in os.listdir(self.host.ws) if n.startswith(".airlock")]
        self.assertEqual(left, [])
        m = re.search(r"airlock recover (\S+?)['\s]", text)
        self.assertTrue(m, "what to do is not said: " + text)
        return m[1]

    def test_E6_no_space_for_the_results_then_recovered(self):
        place = mounted(self, "size=2m", "mode=755")
        self.workspace_on(place)
        name = self.failed_whole("echo changed >a; head -c 3000000 /dev/urandom >big; rm d/b", r"[Ss]pace")
        grow(place, "size=80m")
        r = self.host.airlock("recover", name)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        self.assertEqual((self.host.read("a"), os.stat(self.host.ws + "/big").st_size), (b"changed\n", 3000000))
        self.assertFalse(os.path.exists(self.host.ws + "/d/b"))

    def test_E6_reserve_is_left_alone(self):
        """Room for the results, but not for the DISK_RESERVE_BYTES beside them."""
        place = mounted(self, "size=20m", "mode=755")
        self.workspace_on(place)
        self.failed_whole("head -c 1000000 /dev/zero >new", r"[Ss]pace")

    def test_E7_no_inodes_for_the_results_then_recovered(self):
        place = mounted(self, "size=100m", "nr_inodes=40", "mode=755")
        self.workspace_on(place)
        name = self.failed_whole("echo changed >a; for i in $(seq 100); do echo $i >n$i; done", r"No space left|inode")
        grow(place, "nr_inodes=4000")
        r = self.host.airlock("recover", name)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        self.assertEqual((self.host.read("a"), self.host.read("n100")), (b"changed\n", b"100\n"))

    def test_E6_state_directory_too_small_for_the_copy(self):
        place = mounted(self, "size=2m", "mode=700")
        self.state_on(place)
        self.host.write("big", os.urandom(3000000))
        before = snapshot(self.host.ws)
        r = self.host.airlock("run", "--", "true")
        text = r.stderr.decode()
        self.assertEqual(r.returncode, 125, text)
        self.assertIn("No space left", text)
        self.assertIn("big", text)
        self.assertEqual(snapshot(self.host.ws), before)
        grow(place, "size=80m")
        self.run_it("echo changed >a")
        self.assertEqual(self.host.read("a"), b"changed\n")

    def test_E6_state_directory_without_inodes(self):
        place = mounted(self, "size=80m", "nr_inodes=60", "mode=700")
        self.state_on(place)
        for i in range(100):
            self.host.write("n%d" % i, b"x")
        r = self.host.airlock("run", "--", "true")
        self.assertEqual(r.returncode, 125, r.stderr.decode())
        self.assertIn(b"No space left", r.stderr)
        grow(place, "nr_inodes=6000")
        self.run_it("echo changed >a")
        self.assertEqual(self.host.read("a"), b"changed\n")

    def test_E6_state_directory_fills_up_in_the_sandbox(self):
        """Its own writes fail, as on any full disk; what it could write comes back."""
        place = mounted(self, "size=4m", "mode=700")
        self.state_on(place)
        r = self.host.airlock("run", "--", "sh", "-c", "echo changed >a; head -c 9000000 /dev/zero >big; echo $? >status; rm big")
        self.assertIn(r.returncode, (0, 1), r.stderr.decode())
        self.assertEqual(self.host.read("a"), b"changed\n")
        self.assertFalse(os.path.exists(self.host.ws + "/big"))

    def test_E6_no_space_for_the_trash(self):
        """Of what was deleted nothing lies in the trash under its name that is not whole; the run says where it is."""
        place = mounted(self, "size=160m", "mode=755")
        self.state_on(place)
        self.host.write("big", os.urandom(12 << 20))
        self.run_it("echo changed >a", "--review")
        waits = self.host.rows()[0]["run"]
        free = os.statvfs(place)
        with open(place + "/filler", "wb") as f:
            f.write(bytes(max(0, free.f_bavail * free.f_bsize - (5 << 20))))
        data = self.host.read("big")
        r = self.host.airlock("run", "--", "sh", "-c", "rm big")
        text = r.stderr.decode()
        self.assertEqual(r.returncode, 0, text)
        self.assertRegex(text, r"NOT IN THE TRASH[^\n]*\n[^\n]*big: the disk or the quota is full \(\.airlock-staging/")
        self.assertFalse(os.path.exists(self.host.ws + "/big"))
        trash = lambda: {n: os.path.getsize(os.path.join(d, n)) for top in glob.glob(self.host.state + "/runs/*/trash")
                         for d, _, names in os.walk(top) for n in names}
        self.assertEqual(trash(), {})
        # Who brings in a change set meanwhile is told as well.
        r = self.host.airlock("apply", waits)
        self.assertEqual((r.returncode, self.host.read("a")), (1, b"changed\n"), r.stderr.decode())
        self.assertRegex(r.stderr.decode(), r"NOT IN THE TRASH[^\n]*\n[^\n]*big: the disk or the quota is full \(\.airlock-staging/")
        os.unlink(place + "/filler")
        r = self.host.airlock("run", "--", "true")
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        self.assertEqual(trash(), {"big": len(data)})

    def trash_without_room(self, names, before=()):
        """A publish by `airlock unpack` whose trash lies on a file system that has no room for "mid"; what is not there."""
        self.place = mounted(self, "size=64m", "mode=700")
        self.state_on(self.place)
        for name in names:
            self.host.write(name, os.urandom(12 << 20 if name == "mid" else 1 << 20))
        self.data = {n: self.host.read(n) for n in names}
        self.base = self.host.top + "/base"
        r = self.host.airlock("manifest", self.host.ws, "-o", self.base)
        self.assertEqual(r.returncode, 0, r.stderr)
        free = os.statvfs(self.place)
        with open(self.place + "/filler", "wb") as f:
            f.write(bytes(max(0, free.f_bavail * free.f_bsize - (8 << 20))))
        self.tar = self.host.top + "/tar"
        subprocess.run(["tar", "-cf", self.tar, "-C", self.host.ws, "a", "d"], check=True)
        lines = self.unpack(1, before)
        return sorted(c["path"] for c in lines if c["action"] == "not_trashed")

    def do(self, *words, before=(), **kw):
        return subprocess.run([*before, self.host.bin + "/airlock", *words], env=self.host.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120, check=False, **kw)

    def unpack(self, status, before=()):
        with open(self.tar, "rb") as f:
            r = self.do("unpack", "--into", self.host.ws, "--baseline", self.base, before=before, stdin=f)
        self.assertEqual(r.returncode, status, (r.stdout, r.stderr))
        return [json.loads(line) for line in r.stdout.splitlines()]

    def in_trash(self):
        return {os.path.relpath(os.path.join(d, n), top): self.size(os.path.join(d, n))
                for top in glob.glob(self.host.state + "/unpacks/*/trash") for d, _, names in os.walk(top) for n in names}

    def size(self, name):
        return os.stat(os.path.join(self.host.ws, name)).st_size

    def staged_trash(self):
        return sorted(self.size(f) for f in glob.glob(self.host.ws + "/.airlock-staging/*/t/*"))

    def test_S1_10_what_lies_in_the_trash_of_another_file_system_is_not_copied_again(self):
        """One of three finds no room: the other two are copied once, however often a recovery comes by."""
        self.assertEqual(self.trash_without_room(["first", "mid", "z"]), ["mid"])
        small = {"first": 1 << 20, "z": 1 << 20}
        self.assertEqual((self.in_trash(), self.staged_trash()), (small, [12 << 20]))
        for _ in range(2):
            r = self.do("recover", self.host.ws)
            self.assertEqual(r.returncode, 125, r.stderr)
            self.assertIn(b"the old version of mid could not be moved", r.stderr)
            self.assertEqual((self.in_trash(), self.staged_trash()), (small, [12 << 20]))
        # The next unpack tells it as its own: where that waits which an earlier one took away.
        lines = self.unpack(1)
        end = lines.pop()
        self.assertEqual([(c["action"], c["path"], c["rule"]) for c in lines], [("not_trashed", "mid", "no_space")])
        self.assertEqual((end["outcome"], end["counts"]["not_trashed"], end["counts"]["delete"]), ("partial", 1, 0))
        with open(lines[0]["saved"], "rb") as f:
            self.assertEqual(f.read(), self.data["mid"])
        os.unlink(self.place + "/filler")
        r = self.do("recover", self.host.ws)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.in_trash(), {**small, "mid": 12 << 20})
        self.assertEqual(glob.glob(self.host.ws + "/.airlock-staging"), [])
        self.assertEqual(self.unpack(0)[-1]["counts"]["not_trashed"], 0)

    def test_S1_10_copies_that_are_not_known_to_be_on_disk_replace_nothing(self):
        """The flush of the trash fails: every original stays, and each is said. Where it succeeds they go, after it."""
        if not shutil.which("strace"):
            self.skipTest("strace is not installed")
        log = self.host.top + "/log"
        trace = ["strace", "-f", "-o", log, "-e", "trace=syncfs,renameat2"]
        told = self.trash_without_room(["first", "mid", "z"], [*trace, "-e", "inject=syncfs:error=EIO"])
        self.assertEqual((told, self.staged_trash()), (["first", "mid", "z"], [1 << 20, 1 << 20, 12 << 20]))
        r = self.do("recover", self.host.ws, before=trace)
        self.assertEqual((r.returncode, self.staged_trash()), (125, [12 << 20]), r.stderr)
        with open(log, encoding="utf-8") as f:
            calls = ["going" if re.search(r'"[0-9a-f]+-"', line) else "copied" if "EXDEV" in line else "flushed"
                     for line in f if re.search(r'"[0-9a-f]+-"|EXDEV|syncfs\(\d+\) += 0', line)]
        self.assertEqual(calls[:6], ["copied", "copied", "copied", "flushed", "going", "going"], calls)

    def test_history_comes_from_another_file_system_that_nobody_writes_to(self):
        """The store lies elsewhere, the repository cannot be written, and its name has what separates git's directories."""
        place = mounted(self, "size=20m", "mode=755")
        self.workspace_on(place)
        odd = place + '/ws/a:b"c\\d'
        os.rename(place + "/ws/d", odd)
        self.host.ws = odd
        git = lambda *words: subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b.invalid", "-C", odd, *words],
                                            check=True, env=self.host.env, stdout=subprocess.PIPE).stdout
        git("init", "-q")
        for words in (["add", "b"], ["commit", "-q", "-m", "one"], ["commit", "-q", "--allow-empty", "-m", "two"]):
            git(*words)
        before = snapshot(odd)
        grow(place, "ro")
        for policy, commits in (("shallow", 1), ("full", 2)):
            r = self.run_it("git status --short && git fsck --no-progress && git log --format=%H", "--git", policy)
            self.assertEqual(r.stdout, b"".join(git("log", "--format=%H").splitlines(True)[:commits]), r.stderr.decode())
        self.assertEqual(snapshot(odd), before)

    def test_noexec_nosuid_nodev_workspace(self):
        """What the workspace's file system forbids here is no matter inside: the base is a copy."""
        place = mounted(self, "size=80m", "mode=755", "noexec", "nosuid", "nodev")
        self.workspace_on(place)
        self.host.write("tool", b"#!/bin/sh\necho ran >out\n")
        os.chmod(self.host.ws + "/tool", 0o755)
        grow(place, "size=100m", "noexec", "nosuid", "nodev")
        self.run_it("./tool; chmod 4755 tool")
        self.assertEqual(self.host.read("out"), b"ran\n")
        self.assertEqual(os.stat(self.host.ws + "/tool").st_mode & 0o7777, 0o755)

    def test_noexec_state_directory(self):
        place = mounted(self, "size=80m", "mode=700", "noexec", "nosuid", "nodev")
        self.state_on(place)
        self.run_it("echo changed >a; printf '#!/bin/sh\\n:\\n' >t; chmod 755 t")
        self.assertEqual(self.host.read("a"), b"changed\n")

    def test_A27_names_that_fold_together(self):
        image = tempfile.NamedTemporaryFile(prefix="airlock-fs-image-")
        self.addCleanup(image.close)
        image.truncate(200 << 20)
        if subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "casefold", image.name], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("mkfs.ext4 makes no folding file system")
        place = mounted(self, "loop", what=image.name, kind="ext4")
        self.addCleanup(setattr, self.host, "ws", self.host.top)
        self.host.ws = place + "/ws"
        os.mkdir(self.host.ws)
        subprocess.run(["chattr", "+F", self.host.ws], check=True)
        self.host.write("Makefile", b"old\n")
        r = self.run_it("echo 1 >Readme; echo 2 >README; echo 3 >makefile", status=1)
        self.assertEqual(sorted(os.listdir(self.host.ws)), ["Makefile", "README"], r.stderr)
        self.assertEqual((self.host.read("README"), self.host.read("Makefile")), (b"2\n", b"old\n"))


# Changes everything under the packer's feet, until the sandbox ends. Whatever is read must be a state of the file, of
# this file, and in this tree. Prints a line once it is under way.
HOSTILE = r"""
import os, sys
os.makedirs("d/e"); open("d/e/f", "w").write("inside\n"); os.makedirs("links")
def put(name, data):
    with open(name, "w") as f: f.write(data)
def quietly(f, *a):
    try: f(*a)
    except OSError: pass
put("one", "1" * 5000); put("two", "2" * 5000)
put("links/f", "inside\n"); os.symlink("../keep", "links/l")
if os.fork() == 0:
    # One name that is a file or a link to another, as fast as can be: the moment between a look and an open.
    while True:
        os.rename("links/f", "flip"); os.rename("flip", "links/f"); os.rename("links/l", "flip"); os.rename("flip", "links/l")
n = 0
while True:
    n += 1
    quietly(os.rename, "d", "d.aside"); quietly(os.symlink, "/etc", "d")
    quietly(os.unlink, "d"); quietly(os.rename, "d.aside", "d")
    quietly(os.rename, "d/e", "d/e.aside"); quietly(os.symlink, "../../outside", "d/e")
    quietly(os.unlink, "d/e"); quietly(os.rename, "d/e.aside", "d/e")
    put("grow", "g" * (n % 7 * 40000 + 5000)); quietly(os.truncate, "grow", n % 3 * 1000)
    with open("grow", "a") as f: f.write("g" * 70000)
    quietly(os.rename, "one", "swap"); quietly(os.rename, "two", "one"); quietly(os.rename, "swap", "two")
    quietly(os.unlink, "kind"); quietly([os.mkfifo, os.mkdir, lambda p: os.symlink("one", p), lambda p: put(p, "k")][n % 4], "kind")
    quietly(os.rmdir, "kind")
    quietly(os.rename, "d", "moved"); quietly(os.rename, "moved", "d")
    quietly(os.symlink, "/etc/passwd", "links/p"); quietly(os.unlink, "links/p"); quietly(os.link, "one", "links/p")
    quietly(os.unlink, "links/p")
    if n == 3: print("under way", flush=True)
"""


class Hostile(unittest.TestCase):
    ROUNDS = 20

    def test_B14_FR_B176_E14_tree_changes_while_it_is_packed(self):
        self.attack()

    def test_B14_FR_B176_E14_the_same_without_an_overlay(self):
        self.attack("--without", "overlay")

    def attack(self, *opts):
        host = Host(PROGS, "airlock-race-", {"keep": b"keep\n"})
        self.addCleanup(host.remove)
        outside = host.top + "/outside"
        os.mkdir(outside)
        with open(outside + "/f", "wb") as f:
            f.write(b"canary\n")
        before = snapshot(outside)
        r = host.airlock("run", "-q", "--json", "--keep", *opts, "--", "true")
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        run = json.loads(r.stdout)["run"]
        loop = subprocess.Popen([host.bin + "/airlock", "exec", run, "--", "python3", "-c", HOSTILE], cwd=host.ws, env=host.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(loop.wait)
        self.addCleanup(loop.kill)
        self.addCleanup(loop.stdout.close)
        self.assertEqual(loop.stdout.readline(), b"under way\n")
        came = 0
        for _ in range(self.ROUNDS):
            r = host.airlock("exec", "-q", "--json", run, "--", "true")
            # Never rejected: everything that a race makes of an honest packer's stream is still a valid one.
            self.assertIn(r.returncode, (0, 1), r.stderr.decode())
            came += len(json.loads(r.stdout)["sync_out"]["changes"])
            self.look(host, outside, before)
        # It did get to see something.
        self.assertGreater(came, self.ROUNDS // 2)
        self.assertIsNone(loop.poll())

    def look(self, host, outside, before):
        self.assertEqual(snapshot(outside), before)
        self.assertEqual(host.read("keep"), b"keep\n")
        for path, (data, what) in snapshot(host.ws).items():
            if isinstance(data, str):
                self.assertIn(data, ("one", "../keep"), "a link that leads out: " + path)
                continue
            base = os.path.basename(path)
            allowed = {"keep": rb"keep\n", "f": rb"inside\n", "flip": rb"inside\n", "one": rb"(1*|2*)", "two": rb"(1*|2*)", "swap": rb"(1*|2*)", "p": rb"(1*|2*)",
                       "grow": rb"g*", "kind": rb"k?"}
            self.assertIn(base, allowed, path)
            self.assertTrue(re.fullmatch(allowed[base], data), "%s holds %r" % (path, data[:100]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
