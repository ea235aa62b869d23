"""A publish that does everything a publish can, one fault in it, and what must be true afterwards."""
import json
import os
import shutil
import stat
import subprocess
import tarfile
import time

from unpack_box import Box, Stream, tree
import scratch

DISK_TEXT = "ENOSPC", "EDQUOT"
# What each fault is put into. EINTR only where Linux says it: a call that may wait.
ERRORS = {
    "ENOSPC": ("openat", "mkdirat", "symlinkat", "renameat2", "pwrite64", "write", "ftruncate", "fsync", "fchmod",
               "sync_file_range", "syncfs", "utimensat", "linkat", "unlinkat"),
    "EDQUOT": ("openat", "mkdirat", "renameat2", "pwrite64", "write", "fchownat"),
    "EIO": ("openat", "openat2", "mkdirat", "symlinkat", "renameat2", "pwrite64", "write", "read", "pread64", "fsync",
            "sync_file_range", "syncfs", "newfstatat", "fstat", "getdents64", "unlinkat", "readlinkat", "fchmod",
            "fchmodat", "utimensat", "ftruncate", "flock", "faccessat", "fstatfs"),
    "EINTR": ("read", "pread64", "pwrite64", "write", "poll", "recvmsg", "sendmsg", "openat2", "flock"),
    "ENOMEM": ("mmap", "brk", "openat", "openat2", "getdents64", "newfstatat"),
    "EMFILE": ("openat", "openat2"),
}


# With FAULT_EVERY=1 no point is left out as equal to another (hours).
EVERY = "FAULT_EVERY" in os.environ


class Call(tuple):
    """(name, occurrence) of a system call; whether it can change what outlives the process; from where it was made."""
    lasts, site = True, ""


def read_calls(log):
    """What `fault-at -l` wrote."""
    calls = []
    with open(log, encoding="ascii") as f:
        for line in f:
            _, name, n, lasts, site = line.split()
            calls.append(Call((name, int(n))))
            calls[-1].lasts, calls[-1].site = lasts == "1", site
    return calls


# What neither changes nor looks at anything that somebody else could change meanwhile.
UNSEEN = {"brk", "close", "fcntl", "fsync", "futex", "getrandom", "lseek", "madvise", "mmap", "mprotect", "munmap", "poll", "prctl",
          "rt_sigaction", "rt_sigprocmask", "seccomp", "syncfs", "sync_file_range", "recvmsg", "sendmsg"}


def edges(items, key, middle=False):
    """Of each group the first two and the last one (and the one in the middle): where a loop's steps are alike."""
    groups = {}
    for i in items:
        groups.setdefault(key(i), []).append(i)
    kept = set()
    for g in groups.values():
        kept.update(g[:2] + g[-1:] + ([g[len(g) // 2]] if middle else []))
    return kept


def kills(calls, alike=False):
    """A kill before each call that can change what outlives the process, the last of which is its end: every state that
    a kill can leave, since all calls between two of them leave the same. Where files are alike, some of each place."""
    kept = [c for c in calls if c.lasts or EVERY]
    if alike and not EVERY:
        some = edges(kept, lambda c: (c[0], c.site), True)
        kept = [c for c in kept if c in some]
    return [("%s:%d=kill" % c, "kill") for c in kept]


def failures(calls, errors, alike=False):
    """Every call fails in one way, by turns; from each place in the program, the first two and the last one in every
    way that there is. Where files are alike the latter only."""
    all_of = [(c, err) for err, names in errors.items() for c in calls if c[0] in names]
    if not EVERY:
        kept = edges(all_of, lambda p: (p[0][0], p[0].site, p[1]))
        for i, c in enumerate(() if alike else calls):
            ways = [err for err, names in errors.items() if c[0] in names]
            kept.update([(c, ways[i % len(ways)])] if ways else [])
        all_of = [p for p in all_of if p in kept]
    return [("%s:%d=%s" % (*c, err), err) for c, err in all_of]


def copy_tree(src, dst):
    """As cp -a, without a process for each of thousands of copies. Links between files stay links."""
    seen = {}

    def copy(a, b):
        st = os.lstat(a)
        if stat.S_ISLNK(st.st_mode):
            os.symlink(os.readlink(a), b)
        elif stat.S_ISDIR(st.st_mode):
            os.mkdir(b, 0o700)
            for n in os.listdir(a):
                copy(os.path.join(a, n), os.path.join(b, n))
            os.chmod(b, st.st_mode & 0o7777)
        elif stat.S_ISREG(st.st_mode):
            if st.st_ino in seen:
                os.link(seen[st.st_ino], b)
                return
            seen[st.st_ino] = b
            shutil.copyfile(a, b)
            os.chmod(b, st.st_mode & 0o7777)
        else:
            raise ValueError("%s is of a kind that no workspace here has" % a)
        os.utime(b, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)
    copy(src, dst)


def remove_tree(top):
    if os.path.islink(top):
        os.unlink(top)
    elif os.path.lexists(top):
        shutil.rmtree(top)


def flat(t):
    """Without directories and their modes: whether those are made or gone is no loss."""
    return {p: w for p, w in t.items() if w[0] != "d" and not p.startswith(".airlock-staging/")}


def spread(items, n):
    """n of them, evenly, always the same ones; None: all."""
    if n is None or len(items) <= n:
        return items
    return [items[i * (len(items) - 1) // (n - 1)] for i in range(n)]


def slice_named(word):
    """(K, N) of "K/N"."""
    k, of = map(int, word.split("/"))
    if not 1 <= k <= of:
        raise ValueError("FAULT_SLICE=%s: give K/N with K from 1 to N" % word)
    return k, of


SLICE = slice_named(os.environ.get("FAULT_SLICE", "1/1"))


def chosen(points, n, of=SLICE):
    """Of fault points, each of which is looked at alone: n of them, or all in the slice K/N that FAULT_SLICE names. What one
    test needs together is never parted."""
    return points[of[0] - 1::of[1]] if n is None else spread(points, n)


def at_least(n):
    """How many of n that a whole class has must be in a slice."""
    return n // SLICE[1]


class FaultBox(Box):
    """The workspace is made once and copied for each point; so are manifest and base layer."""
    git = True
    state = None  # directory of another file system for the run, or None
    mode = ()     # options of the driver
    keeps_trash = False
    alike = False # the publish does the same to many files: what is done to one of the middle is done to each
    points = 0

    def before(self):
        for n in "repl", "gone", "d/gone", "d/kept", "dir/x", "dir/deep/y", "file", "tolink", "kept", "owner":
            self.write(n, "old %s\n" % n)
        self.write("big", "old" * 370000)
        self.write("mode", "m")
        self.write("both", "base\0\n")
        self.write("text", "".join("line %d\n" % i for i in range(40)))
        os.symlink("kept", self.path("link"))
        os.link(self.path("owner"), self.path("other-name"))

    def meanwhile(self):
        """The host's own edits after the workspace was sent in."""
        self.write("both", "host\0\n")
        self.write("text", "".join("line %d\n" % i for i in range(40)).replace("line 2\n", "host 2\n"))
        self.write("mine", "not the sandbox's\n")

    def stream(self):
        s = Stream()
        s.file("repl", "new repl\n").delete("gone").delete("d/gone").file("dir", "now a file")
        s.dir("file").file("file/y", "y").file("mode", "m", 0o755).dir("new").dir("new/tree")
        s.file("new/tree/n", "n" * 100000).link("new/l", "tree/n").file("big", "new" * 370000)
        s.file("both", "sandbox\0\n").file("text", "".join("line %d\n" % i for i in range(40)).replace("line 38", "box 38"))
        return s.file("link", "no link").link("tolink", "kept").file("owner", "new owner\n").hard("again", "repl").bytes()

    def setUp(self):
        super().setUp()
        self.before()
        self.sync_in()
        self.meanwhile()
        self.data = self.stream()
        self.stream_file = os.path.join(self.top, "stream")
        with open(self.stream_file, "wb") as f:
            f.write(self.data)
        self.first = os.path.join(self.top, "first")
        os.rename(self.root, self.first)
        self.old = flat(tree(self.first))
        self.runs_top = scratch.directory(prefix="airlock-faults-", dir=self.state) if self.state else self.top
        self.fresh()
        res = self.go()
        self.assertEqual(res["ret"], 0, res["text"])
        self.new = flat(tree(self.root))
        self.assertNotEqual(self.new, self.old)
        self.counts = res["counts"]

    def tearDown(self):
        if self.state:
            shutil.rmtree(self.runs_top)
        super().tearDown()

    def fresh(self):
        remove_tree(self.root)
        copy_tree(self.first, self.root)

    def command(self, *args, root=None):
        cmd = super().command(*(list(args) + list(self.mode)), root=root)
        if self.state:
            self.run_dir = os.path.join(self.runs_top, "run%d" % self.runs)
            os.makedirs(self.run_dir)
            cmd[cmd.index("--run-dir") + 1] = self.run_dir
        return cmd + ["--state", self.runs_top]

    def go(self, *wrap, args=(), again=False):
        """The publish, with the stream from a file: the number of reads is always the same."""
        cmd = list(wrap) + self.command(*args)
        with open(self.stream_file, "rb") as f:
            out = subprocess.run(cmd, stdin=f, stdout=subprocess.PIPE, timeout=120, check=False)
        if not out.stdout:
            self.fail("%s: no result, status %d" % (cmd, out.returncode))
        return self.result(out.stdout)

    def fault(self, spec, program=1):
        self.report = os.path.join(self.top, "report")
        named = [] if spec.startswith(("any:", "full:")) else ["-s"]
        return [os.environ["FAULT_AT"], *named, "-i", str(program), "-r", self.report, "-f", spec, "--"]

    def hits(self):
        with open(self.report, encoding="ascii") as f:
            return [line.split() for line in f]

    def calls(self, program=1, args=(), cmd=None):
        """The system calls of a publish without fault: [(name, occurrence)]."""
        if not cmd:
            self.fresh()
        log = os.path.join(self.top, "calls")
        wrap = [os.environ["FAULT_AT"], "-i", str(program), "-l", log, "--"]
        if cmd:
            subprocess.run(wrap + cmd, stdout=subprocess.DEVNULL, timeout=120, check=True)
        else:
            self.go(*wrap, args=args)
        return read_calls(log)

    # What must be true. ---------------------------------------------------------------------------

    def bytes_below(self, top):
        return [w[2] for w in tree(top, skip=()).values() if w[0] == "f"] if os.path.isdir(top) else []

    def assert_nothing_lost(self, now, run_dirs):
        """Every byte string of the host before is in the tree now, or in the trash or the conflicts of a run."""
        kept = {w[2] for w in now.values() if w[0] == "f"}
        for d in run_dirs:
            kept.update(self.bytes_below(os.path.join(d, "trash")))
            kept.update(self.bytes_below(os.path.join(d, "conflicts")))
        for p, w in self.old.items():
            if w[0] == "f" and p not in self.replaced:
                self.assertTrue(w[2] in kept, "%s is lost" % p)

    # Replaced by the sandbox where the host had not touched them: their bytes are in the base layer.
    replaced = {"repl", "big", "owner", "other-name", "text", "tolink"}

    def assert_each_old_or_new(self, now, allow=()):
        for p in self.old.keys() | self.new.keys() | now.keys():
            if now.get(p) not in (self.old.get(p), self.new.get(p)) and p not in allow:
                self.fail("%s is neither old nor new: %.100r" % (p, now.get(p)))

    def assert_text(self, res, fault):
        """A failed publish says what it was doing, why, and what helps."""
        self.assertNotEqual(res["text"], "")
        if fault in DISK_TEXT:
            self.assertEqual(res["code"], "no_space", res["text"])
            self.assertRegex(res["text"], "free some space|raise the quota")
        if fault == "EMFILE":
            self.assertRegex(res["text"], "open files|EMFILE|Too many")
        self.assertRegex(res["text"], r"unchanged|nothing was (changed|published)|bring the results back|airlock recover")

    def point(self, spec, fault):
        """One fault; then recovery; then the same results once more. Thousands of points must not fill the memory."""
        start = self.runs
        try:
            return self.one_point(spec, fault, start)
        finally:
            for d in self.run_dirs(start):
                remove_tree(d)

    def one_point(self, spec, fault, start):
        self.fresh()
        self.points += 1
        res = self.go(*self.fault(spec), args=["--no-recover"] if fault == "kill" else [])
        hits = self.hits()
        if not hits:
            return None
        between = flat(tree(self.root))
        self.assert_each_old_or_new(between)
        if fault == "kill":  # 0: after its last word
            self.assertIn("signal 9" if res["ret"] else "", res["text"])
        elif fault == "EINTR":
            self.assertEqual(res["ret"], 0, res["text"])
        if res["ret"] == 0:
            failed = {c["path"] for c in res["changes"] if c["action"] in ("fail", "conflict", "refuse")}
            for p in between:
                if between.get(p) != self.new.get(p) and not any(p == f or p.startswith(f + "/") for f in failed):
                    self.fail("%s was not published and not reported" % p)
        else:
            self.assert_text(res, fault)
        rec = self.recover() if res["ret"] < 0 or self.staging_left() else {"ret": 0, "text": ""}
        self.assertIn(rec["ret"], (0, 1), rec["text"])
        now = flat(tree(self.root))
        self.assert_clean()
        self.assert_each_old_or_new(now)
        if res["ret"] < 0:
            self.assertTrue(now in (self.old, self.new), "a mixture is left")
        if self.keeps_trash:
            self.assert_nothing_lost(now, self.run_dirs(start))
        if self.points % 4 and (now == self.new or fault != "kill"):
            return res, now == self.new, hits  # not each time: it costs as much as the rest
        again = self.go()
        self.assertEqual(again["ret"], 0, again["text"])
        self.assertTrue(flat(tree(self.root)) == self.new, "brought back again, it is not the new state")
        self.assert_clean()
        return res, now == self.new, hits

    def staging_left(self):
        return any(os.path.lexists(self.path(n)) for n in (".git/airlock-staging", ".airlock-staging"))

    def run_dirs(self, start):
        return [os.path.join(self.runs_top, "run%d" % (i + (1 if self.state else 0))) for i in range(start, self.runs)]

    def sweep(self, points, least=0):
        """Every point on its own; all failures are told, with the point that shows each. No point at all shows nothing."""
        self.assertTrue(points, "no call to put a fault into")
        made = published = 0
        begin = time.monotonic()
        for spec, fault in points:
            with self.subTest(spec):
                try:
                    got = self.point(spec, fault)
                except AssertionError as e:
                    # Now, not at the end of a thousand points.
                    print("%s: %s: %.300s" % (self.id(), spec, e), flush=True)
                    raise
                if got:
                    made += 1
                    published += got[1]
        print("%s: %d of %d points hit, %d published, %.1f s" % (self.id(), made, len(points), published,
                                                              time.monotonic() - begin), flush=True)
        self.assertGreaterEqual(made, max(least, 1))
        return made

    def kill_points(self, calls, n=None):
        return chosen(kills(calls, self.alike), n)

    def error_points(self, calls, n=None, errors=ERRORS):
        """From main() on: what the loader says of its own troubles is not ours."""
        return chosen(failures(calls[[name for name, _ in calls].index("recvmsg"):], errors, self.alike), n)

    def recover(self, *wrap):
        out = subprocess.run(list(wrap) + [self.driver, "recover", self.root, self.runs_top], stdout=subprocess.PIPE, timeout=60,
                             check=False)
        return json.loads(out.stdout)


# New trees and what is special in them: names that sort between a directory and its inside, directories that no
# member declares, a member that comes twice or is taken back, a file whose owner may not read it, links of both kinds.
TREES = {"nt/a": b"a", "nt/deep/b": b"second b", "nt/deep/er/c": b"c" * 70000, "nt/implied/by/d": b"d", "nt-x/e": b"e",
         "nt.d/f": b"f", "nt/odd": b"owner may not write", "nt/hard": b"a", "nt/z/hard": b"r" * 100, "taken/g": b"g",
         "taken/in/h": b"h", "d/nt/i": b"i", "nt/r": b"r" * 100, "lone/only/way/j": b"j"}
TREE_LINKS = {"nt/l": b"deep/b", "nt/deep/up": b"../a"}


def tree_stream():
    s = Stream()
    s.dir("nt", 0o750).file("nt/a", TREES["nt/a"]).dir("nt/deep").file("nt/deep/b", "first b")
    s.file("nt/deep/er/c", TREES["nt/deep/er/c"]).file("nt/deep/b", TREES["nt/deep/b"])
    s.file("nt/implied/by/d", TREES["nt/implied/by/d"]).link("nt/l", TREE_LINKS["nt/l"].decode())
    s.link("nt/deep/up", TREE_LINKS["nt/deep/up"].decode()).dir("nt-x").file("nt-x/e", "e").dir("nt.d", 0o700).file("nt.d/f", "f")
    s.file("nt/odd", TREES["nt/odd"], 0o444).hard("nt/hard", "nt/a").file("nt/r", TREES["nt/r"]).hard("nt/z/hard", "nt/r")
    s.dir("taken").file("taken/g", "g").dir("taken/in").file("taken/in/h", "h").file("d/nt/i", "i")
    s.file("nt/unsure", "u").unreadable("nt/unsure").add("nt/fifo", tarfile.FIFOTYPE)
    return s.file("lone/only/way/j", "j")
