"""`airlock unpack`, `airlock manifest` and `airlock recover DIR`: door 1 as a command in a pipe (S1-01, S1-03, S1-04, S1-07).

Runs as whoever started it; with `user` as an ordinary user even under root (an id that no account has).
"""
import fcntl
import gzip
import io
import json
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import unittest

from unpack_box import Stream, tree
import scratch

OTHER_ID = 43210


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bin = scratch.directory(prefix="unpack-cli-bin-")
        os.chmod(cls.bin, 0o755)
        for var in "AIRLOCK", "AIRLOCK_UNPACK", "FAULT_AT":
            shutil.copy(os.environ[var], cls.bin)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.bin)

    def setUp(self):
        self.top = scratch.directory(prefix="unpack-cli-")
        self.root = self.sub("ws")
        self.box = self.sub("box")
        self.env = dict(os.environ, XDG_STATE_HOME=os.path.join(self.top, "state"), HOME=self.top)

    def tearDown(self):
        for here, dirs, _ in os.walk(self.top):
            for d in dirs:
                if not os.path.islink(os.path.join(here, d)):
                    os.chmod(os.path.join(here, d), 0o700)
        shutil.rmtree(self.top)

    def sub(self, name):
        path = os.path.join(self.top, name)
        os.mkdir(path)
        return path

    @staticmethod
    def write(top, name, data, mode=0o644):
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(path, mode)

    def airlock(self, *args, data=b"", before=(), **kw):
        return subprocess.run([*before, os.path.join(self.bin, "airlock"), *args], input=data, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False, **kw)

    def unpack(self, data, *args, status=0, into=None, **kw):
        r = self.airlock("unpack", "--into", into or self.root, *args,
                         data=data.bytes() if isinstance(data, Stream) else data, **kw)
        self.assertEqual(r.returncode, status, (r.stdout, r.stderr))
        lines = [json.loads(x) for x in r.stdout.splitlines()]
        end = lines.pop()
        self.assertEqual((end["action"], end["exit_status"]), ("end", status))
        for place in ".airlock-staging", ".git/airlock-staging":
            self.assertFalse(os.path.lexists(os.path.join(into or self.root, place)))
        return lines, end

    def manifest(self, top=None):
        path = os.path.join(self.top, "base")
        r = self.airlock("manifest", top or self.root, "-o", path)
        self.assertEqual((r.returncode, r.stdout), (0, b""), r.stderr)
        return path

    def read(self, path):
        with open(path, "rb") as f:
            return f.read()

    def sample(self, top):
        self.write(top, "a", "a\n")
        self.write(top, "d/run.sh", "#!/bin/sh\n", 0o755)
        self.write(top, "d/" + "n" * 90 + "/" + "m" * 90, "long name")
        self.write(top, "sp ace\n-q\"'", b"\x00\xff")
        self.write(top, "d/big", b"0123456789abcdef" * 20000)
        os.symlink("../a", os.path.join(top, "d/up"))
        os.link(os.path.join(top, "d/big"), os.path.join(top, "d/hard"))
        os.mkdir(os.path.join(top, "empty"))
        # Sub-second times differ between formats; contents, modes and links do not.
        return tree(top)

    # --- every writer -----------------------------------------------------------------------

    def test_A1_every_tar_program_in_a_pipe(self):
        want = self.sample(self.box)
        writers = [["tar", "-cf", "-", "--format=" + f, "."] for f in ("ustar", "oldgnu", "gnu", "pax", "posix")]
        writers += [["tar", "-cf", "-", "--sparse", "--format=" + f, "."] for f in ("gnu", "pax")]
        writers += [["bsdtar", "-cf", "-", "--format=" + f, "."] for f in ("ustar", "pax", "gnutar")]
        writers += [["busybox", "tar", "-cf", "-", "."],
                    [sys.executable, "-c", "import tarfile,sys\n"
                     "with tarfile.open(fileobj=sys.stdout.buffer,mode='w|') as t: t.add('.')"]]
        tried = 0
        for i, w in enumerate(writers):
            if not shutil.which(w[0]):
                continue
            out = subprocess.run(w, cwd=self.box, stdout=subprocess.PIPE, check=True).stdout
            into = self.sub("into%d" % i)
            lines, end = self.unpack(out, into=into)
            self.assertEqual((lines, end["outcome"]), ([], "applied"), w)
            self.assertEqual(tree(into), want, w)
            # Another reader sees the same in it.
            other = self.sub("other%d" % i)
            subprocess.run(["tar", "-C", other, "-xpf", "-"], input=out, check=True)
            self.assertEqual(tree(other), want, w)
            tried += 1
        self.assertGreaterEqual(tried, 8)

    def test_A1_git_archive(self):
        self.write(self.box, "a", "a\n")
        self.write(self.box, "d/x", "x", 0o755)
        git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", self.box]
        for words in ["init", "-q"], ["add", "."], ["commit", "-qm", "c"]:
            subprocess.run(git + words, check=True, env=self.env)
        out = subprocess.run(git + ["archive", "HEAD"], stdout=subprocess.PIPE, check=True, env=self.env).stdout
        self.unpack(out)
        self.assertEqual(sorted(tree(self.root)), ["a", "d", "d/x"])
        self.assertEqual(self.read(os.path.join(self.root, "d/x")), b"x")
        self.assertTrue(os.stat(os.path.join(self.root, "d/x")).st_mode & stat.S_IXUSR)

    # --- without a baseline -------------------------------------------------------------------

    def test_G_without_a_baseline_nothing_is_deleted_or_overwritten(self):
        for n in "same", "other", "mine":
            self.write(self.root, n, n)
        before = tree(self.root)
        lines, end = self.unpack(Stream().file("same", "same").file("other", "theirs").file("new", "n"), status=1)
        self.assertEqual([(x["action"], x["path"], x["rule"]) for x in lines], [("conflict", "other", "both_added")])
        self.assertEqual(self.read(lines[0]["saved"]), b"theirs")
        self.assertTrue(lines[0]["saved"].startswith(self.env["XDG_STATE_HOME"]))
        self.assertEqual(end["outcome"], "partial")
        self.assertEqual(tree(self.root), dict(before, new=("f", 0o644, b"n")))
        lines, end = self.unpack(Stream().file("other", "theirs"), "--on-conflict", "take-sandbox", status=1)
        self.assertEqual(self.read(os.path.join(self.root, "other")), b"theirs")
        self.assertEqual(self.read(lines[0]["saved"]), b"other")

    def test_A22_an_empty_archive_without_a_baseline_changes_nothing(self):
        self.write(self.root, "a", "a")
        lines, end = self.unpack(bytes(1024))
        self.assertEqual((lines, end["counts"]["delete"]), ([], 0))
        self.assertEqual(sorted(tree(self.root)), ["a"])

    # --- with one -----------------------------------------------------------------------------

    def changed_tree(self):
        for n in "keep", "change", "gone", "d/gone", "edited", "both", "dir/x", "h1":
            self.write(self.root, n, "old " + n)
        os.link(os.path.join(self.root, "h1"), os.path.join(self.root, "h2"))
        # Makes the state directory, by renames and links that are not those of a publish.
        self.assertEqual(self.airlock("recover", self.root).returncode, 0)
        base = self.manifest()
        shutil.copytree(self.root, self.box, dirs_exist_ok=True)
        os.unlink(os.path.join(self.box, "h2"))
        os.link(os.path.join(self.box, "h1"), os.path.join(self.box, "h2"))
        for n in "gone", "d/gone", "edited":
            os.unlink(os.path.join(self.box, n))
        shutil.rmtree(os.path.join(self.box, "dir"))
        for n in "change", "both", "new", "dir":
            self.write(self.box, n, "sandbox " + n)
        for n in "edited", "both", "hostnew":
            self.write(self.root, n, "host " + n)
        return base, subprocess.run(["tar", "-C", self.box, "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout

    def test_G_with_a_baseline_the_stream_is_the_whole_tree(self):
        base, data = self.changed_tree()
        lines, end = self.unpack(data, "--baseline", base, "-v", status=1)
        did = {x["path"]: x["action"] + ":" + x.get("rule", "") for x in lines}
        self.assertEqual(did, {"change": "change:", "gone": "delete:", "d/gone": "delete:", "new": "add:",
                               "edited": "conflict:deleted_in_sandbox", "both": "conflict:both_changed",
                               "dir": "change:", "dir/x": "delete:"})
        saved = {x["path"]: self.read(x["saved"]) for x in lines if "saved" in x and x["path"] != "dir"}
        self.assertEqual(saved, {"change": b"old change", "gone": b"old gone", "d/gone": b"old d/gone",
                                 "dir/x": b"old dir/x", "both": b"sandbox both"})
        now = {p: w[2] for p, w in tree(self.root).items() if w[0] == "f"}
        self.assertEqual(now, {"keep": b"old keep", "change": b"sandbox change", "edited": b"host edited", "h1": b"old h1",
                               "h2": b"old h1", "both": b"host both", "hostnew": b"host hostnew", "new": b"sandbox new",
                               "dir": b"sandbox dir"})
        self.assertTrue(os.path.isdir(end["trash"]) and os.path.isdir(end["conflicts"]))
        self.assertEqual(json.loads(self.read(os.path.join(os.path.dirname(end["trash"]), "record.json"))), end)

    def test_C6_only_the_mode_changed_of_a_file_that_the_host_deleted(self):
        self.write(self.root, "f", "bytes")
        base = self.manifest()
        os.unlink(os.path.join(self.root, "f"))
        self.unpack(Stream().file("f", "bytes", mode=0o755), "--baseline", base)
        self.assertEqual(tree(self.root)["f"], ("f", 0o755, b"bytes"))

    def test_what_the_archiver_left_out_is_not_deleted_with_no_delete(self):
        base, data = self.changed_tree()
        before = {p for p, w in tree(self.root).items() if w[0] == "f"}
        lines, _ = self.unpack(data, "--baseline", base, "--no-delete", "-v", status=1)
        self.assertEqual({x["path"] for x in lines if x["action"] == "delete"}, {"dir/x"})  # a file took its place
        self.assertLessEqual(before - {"dir/x"}, set(tree(self.root)))
        self.assertEqual(self.read(os.path.join(self.root, "change")), b"sandbox change")

    def test_A22_an_empty_tree_goes_through_the_trash_with_a_flag(self):
        for i in range(3):
            self.write(self.root, "d/f%d" % i, "f%d" % i)
        lines, end = self.unpack(bytes(1024), "--baseline", self.manifest(), "--verbose")
        self.assertTrue(end["mass_delete"])
        self.assertEqual({self.read(x["saved"]) for x in lines if x.get("rule") != "dir"}, {b"f0", b"f1", b"f2"})

    def test_mass_delete_crosses_file_systems(self):
        self.env["XDG_STATE_HOME"] = scratch.directory(prefix="unpack-cli-", dir="/dev/shm")
        try:
            base, data = self.changed_tree()
            lines, _ = self.unpack(data, "--baseline", base, "-v", status=1)
            saved = {x["path"]: self.read(x["saved"]) for x in lines if x["action"] == "delete"}
            self.assertEqual(saved, {"gone": b"old gone", "d/gone": b"old d/gone", "dir/x": b"old dir/x"})
        finally:
            shutil.rmtree(self.env["XDG_STATE_HOME"])

    def test_S1_10_who_could_not_print_the_report_says_what_was_done_and_where_it_is(self):
        stream = os.path.join(self.top, "stream")
        ok, some = Stream().file("a", "a"), Stream().file("a", "a").link("esc", "/etc/passwd")
        lot = Stream().file("a", "a")
        for i in range(3000):  # more than stdio holds: an earlier write fails
            lot.link("l%d" % i, "/etc/passwd")
        for data, done, refused in (ok, "all was applied", 0), (some, "what may come was applied", 1), (lot, "what may come was applied", 3000):
            with open(stream, "wb") as f:
                f.write(data.bytes())
            reader, deaf = os.pipe()
            os.close(reader)
            self.addCleanup(os.close, deaf)
            for n, to in enumerate((">/dev/full", ">&-", ">&%d" % deaf)):
                with self.subTest(to=to, refused=refused):
                    into = self.sub("into%d-%d" % (refused, n))
                    r = subprocess.run(["sh", "-c", "exec \"$0\" unpack --into \"$1\" <\"$2\" " + to, os.path.join(self.bin, "airlock"), into, stream],
                                       env=self.env, timeout=120, stderr=subprocess.PIPE, pass_fds=(deaf,), check=False)
                    said = r.stderr.decode()
                    self.assertEqual(r.returncode, 4, said)
                    self.assertRegex(said, "the report could not be printed: [A-Z].*; %s" % done)
                    self.assertEqual(self.read(os.path.join(into, "a")), b"a")
                    kept = said.split("the report is in ")[1].splitlines()[0]
                    end = json.loads(self.read(os.path.join(kept, "record.json")))
                    self.assertEqual((end["outcome"], end["counts"]["refuse"]), ("partial" if refused else "applied", refused))
                    lines = [json.loads(x) for x in self.read(os.path.join(kept, "changes.jsonl")).splitlines()]
                    self.assertEqual(sorted(c["action"] for c in lines), ["add"] + ["refuse"] * refused)

    def test_S1_10_a_helper_that_is_killed_in_its_publish_is_told_with_what_is_there(self):
        base, data = self.changed_tree()
        # The first helper alone dies, before its third rename; the next one finishes it.
        r = self.airlock("unpack", "--into", self.root, "--baseline", base, data=data, before=[
            os.path.join(self.bin, "fault-at"), "-f", "renameat2:3=kill", "--"])
        self.assertEqual(r.returncode, 4, r.stderr)
        self.assertRegex(r.stderr, rb"what it had begun to publish was finished: all of it is there")
        self.assertEqual(self.read(os.path.join(self.root, "change")), b"sandbox change")
        self.assertEqual(json.loads(r.stdout.splitlines()[-1])["outcome"], "failed")

    def test_dry_run_writes_nothing(self):
        base, data = self.changed_tree()
        before = tree(self.root)
        lines, end = self.unpack(data, "--baseline", base, "-n", "-v", status=1)
        self.assertTrue(end["dry_run"])
        self.assertEqual(len(lines), 8)
        self.assertEqual(tree(self.root), before)
        self.assertEqual(os.listdir(os.path.join(self.env["XDG_STATE_HOME"], "airlock/unpacks")), [])

    def test_the_manifest_is_that_of_a_plain_tar(self):
        self.sample(self.root)
        os.mkdir(os.path.join(self.root, ".git"))
        self.write(self.root, ".git/config", "x")
        os.mkfifo(os.path.join(self.root, "fifo"))
        inside = os.path.join(self.root, "base")
        r = self.airlock("manifest", self.root, "--output", inside)
        os.unlink(os.path.join(self.root, "fifo"))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"left out: fifo (fifo)", r.stderr)
        lines = self.read(inside).split(b"\n")
        self.assertEqual(lines[0], b"airlock-manifest 1")
        paths = sorted(x.split(b" ")[-1] for x in lines[1:-2])
        want = sorted(p.replace(" ", "%20").replace("\n", "%0A").encode() for p in tree(self.root)
                      if p != "base")
        self.assertEqual(paths, want)
        # Nothing changed: nothing is done, though .git is not in it.
        data = subprocess.run(["tar", "-C", self.root, "--exclude=.git", "--exclude=./base", "-cf", "-", "."],
                              stdout=subprocess.PIPE, check=True).stdout
        before = tree(self.root, skip=())
        lines, _ = self.unpack(data, "--baseline", inside, "-v")
        self.assertEqual((lines, tree(self.root, skip=())), ([], before))

    # --- verdicts -----------------------------------------------------------------------------

    def test_A2_A3_hostile_exits_3_and_nothing_is_written(self):
        hostile = {"absolute": Stream().file("ok", "x").file("/etc/x", "x"),
                   "dotdot": Stream().file("ok", "x").file("d/../../x", "x"),
                   "through_link": Stream().link("l", "d").file("ok", "x").file("l/x", "x"),
                   "hardlink_target": Stream().file("ok", "x").hard("h", "/etc/hostname")}
        for rule, s in hostile.items():
            with self.subTest(rule):
                lines, end = self.unpack(s, status=3)
                self.assertEqual([(x["action"], x["rule"]) for x in lines if x["action"] == "hostile"], [("hostile", rule)])
                self.assertIn(lines[-1]["path"], ("/etc/x", "d/../../x", "l/x", "h"))
                self.assertEqual((end["outcome"], end["error"]["code"]), ("rejected", "hostile"))
                self.assertEqual(os.listdir(self.root), [])
                self.assertTrue(os.path.isfile(end["rejected"]))

    def test_refused_exits_1_and_strict_makes_it_3(self):
        def stream():
            return (Stream().file("ok", "x").link("esc", "/etc/passwd").file(".git/config", "x").file(b"\xe9".decode(
                "utf-8", "surrogateescape") + ".git~1/.GIT/x", "x").add("dev", tarfile.FIFOTYPE))
        lines, end = self.unpack(stream(), status=1)
        self.assertEqual({x.get("path", x.get("path_b64")): x["rule"] for x in lines},
                         {"esc": "link_escape", ".git/config": "git_metadata", "dev": "special_file",
                          "6S5naXR+MS8uR0lUL3g=": "git_metadata"})
        self.assertEqual(os.listdir(self.root), ["ok"])
        lines, _ = self.unpack(stream(), "--strict", status=3, into=self.sub("strict"))
        self.assertEqual(os.listdir(os.path.join(self.top, "strict")), [])
        # Where it leads, as the refusal says.
        self.assertEqual((lines[-1]["path"], lines[-1]["rule"]), ("esc", "link_escape"))
        self.assertIn("leads to /etc/passwd", lines[-1]["detail"])
        chain = Stream()
        for n in range(60):
            chain.link("l%d" % n, "l%d" % (n + 1))
        lines, _ = self.unpack(chain, "--strict", status=3, into=self.sub("bent"))
        self.assertIn("a boundary rule is broken, with a link that came after it", lines[-1]["detail"])

    def test_S1_09_the_limit_of_what_does_not_count_names_file_and_limit(self):
        for s, at, what in ((Stream().file("ok", "x").file("b1", "x" * 2500).file("b2", "x" * 2500), "b2", "refused or sent again"),
                            (Stream().file("ok", "x" * 900).file("ok", "x" * 900).file("ok", "x" * 900).file("ok", "x" * 900)
                             .file("ok", "x" * 900), "ok", "refused or sent again")):
            lines, _ = self.unpack(s, "--limits", "bytes=1000", status=3)
            self.assertEqual((lines[-1]["path"], lines[-1]["rule"], os.listdir(self.root)), (at, "limit", []))
            self.assertIn("1000 B, the limit of all results together", lines[-1]["detail"])
            self.assertIn(what, lines[-1]["detail"])

    def test_A18_compressed_streams_name_the_remedy(self):
        plain = Stream().file("a", "a").bytes()
        packed = {b"gzip -dc": gzip.compress(plain), b"xz -dc": lzma.compress(plain), b"zstd -dc": b"\x28\xb5\x2f\xfd" + bytes(600)}
        for remedy, data in packed.items():
            r = self.airlock("unpack", "--into", self.root, data=data)
            self.assertEqual(r.returncode, 3)
            self.assertIn(remedy, r.stdout)
            self.assertIn(b'"rule":"not_tar"', r.stdout)
        self.assertEqual(os.listdir(self.root), [])

    def test_A10_A21_cut_and_empty_streams(self):
        whole = Stream().file("a", b"x" * 5000).bytes()
        for data in b"", whole[:300], whole[:3000], whole[:5632]:
            lines, _ = self.unpack(data, status=3)
            self.assertEqual(lines[-1]["rule"], "truncated")
            self.assertEqual(os.listdir(self.root), [])

    def test_A11_E13_the_copies_that_hard_links_become_count(self):
        def s():
            s = Stream().file("big", b"x" * 4000)
            for i in range(10):
                s.hard("h%d" % i, "big")
            return s
        lines, end = self.unpack(s(), "--limits", "bytes=40000", status=3)
        self.assertEqual((lines[-1]["rule"], lines[-1]["path"], os.listdir(self.root)), ("limit", "h9", []), end)
        lines, _ = self.unpack(s(), "--dry-run", "--limits", "bytes=8000", status=3)
        self.assertEqual(lines[-1]["rule"], "limit", lines)
        self.unpack(s(), "--limits", "bytes=44000")
        self.assertEqual(len(os.listdir(self.root)), 11)

    def test_limits(self):
        def three():
            return Stream().file("a", b"x" * 1000).file("b", b"x" * 3000).file("c", b"x" * 1000)
        self.assertEqual(self.unpack(three(), "--limits", "members=2", status=3)[0][-1]["rule"], "limit")
        self.assertEqual(self.unpack(three(), "--limits", "bytes=4000", status=3)[0][-1]["path"], "c")
        self.assertEqual(os.listdir(self.root), [])
        lines, _ = self.unpack(three(), "--limits", "file=2K,members=3,bytes=5000", status=1)
        self.assertEqual([(x["path"], x["rule"]) for x in lines], [("b", "too_large")])
        self.assertIn("one file", lines[0]["detail"])
        self.assertEqual(sorted(os.listdir(self.root)), ["a", "c"])

    # --- usage and failure --------------------------------------------------------------------

    def test_usage_exits_2(self):
        self.write(self.top, "file", "x")
        for args in ([], ["--into", os.path.join(self.top, "nowhere")], ["--into", os.path.join(self.top, "file")],
                     ["--into", "/"], ["--into", self.root, "extra"], ["--into", self.root, "--limits", "x=1"],
                     ["--into", self.root, "--limits", "members=0"], ["--into", self.root, "--on-conflict", "ask"],
                     ["--into", self.root, "--baseline", os.path.join(self.top, "nowhere")], ["--wrong"]):
            r = self.airlock("unpack", *args, data=Stream().file("a", "a").bytes())
            self.assertEqual((r.returncode, r.stdout), (2, b""), args)
        for args in [], [self.root, self.root], [os.path.join(self.top, "nowhere")]:
            self.assertEqual(self.airlock("manifest", *args).returncode, 2, args)
        self.assertEqual(os.listdir(self.root), [])

    def test_other_failures_exit_4_and_change_nothing(self):
        self.write(self.root, "a", "a")
        base = self.manifest()
        data = Stream().file("a", "b")
        with open(base, "r+b") as f:
            f.truncate(40)
        _, end = self.unpack(data.bytes(), "--baseline", base, status=4)
        self.assertEqual(end["outcome"], "failed")
        self.assertIn("make it anew ('airlock manifest'", end["error"]["text"])
        self.assertEqual(self.read(os.path.join(self.root, "a")), b"a")
        # Records and trash are trusted: a stream may not be pointed at them.
        r = self.airlock("unpack", "--into", self.top, data=data.bytes())
        self.assertEqual(r.returncode, 4)
        self.assertIn(b"XDG_STATE_HOME", r.stderr)

    def test_I11_recover_says_that_it_removed_what_was_staged(self):
        self.assertIn(b"nothing was cut", self.airlock("recover", self.root).stderr)
        self.unpack(Stream().file("a", "a"), into=self.sub("first"))  # makes the state's key
        # Each process below ends before it makes anything last, or removes anything: staged, not promised.
        r = self.airlock("unpack", "--into", self.root, data=Stream().file("a", "a").bytes(), before=[
            "strace", "-f", "-o", "/dev/null", "-e", "trace=fsync,unlinkat", "-e", "inject=fsync:signal=KILL", "-e", "inject=unlinkat:signal=KILL"])
        self.assertEqual(os.listdir(self.root), [".airlock-staging"], r.stderr)
        r = self.airlock("recover", self.root)
        self.assertEqual((r.returncode, os.listdir(self.root)), (0, []), r.stderr)
        self.assertRegex(r.stderr, b"nothing was half published in .*; what a killed transfer had staged there is removed")
        self.assertIn(b"nothing was cut", self.airlock("recover", self.root).stderr)

    def test_recover_with_a_name_that_a_directory_has_says_how_to_name_it(self):
        for word in "ws", "1zz":  # as of a run, or not
            os.makedirs(os.path.join(self.top, word), exist_ok=True)
            r = self.airlock("recover", word, cwd=self.top)
            self.assertEqual(r.returncode, 125)
            self.assertIn(b"for the directory say './%s'" % word.encode(), r.stderr)
        self.assertNotIn(b"directory", self.airlock("recover", "1zy", cwd=self.top).stderr)

    def test_S1_07_after_a_kill_the_next_unpack_or_recover_repairs(self):
        for repair in "unpack", "recover":
            self.tearDown()
            self.setUp()
            base, data = self.changed_tree()
            # The third rename of any process below is its last: a publish that is half done, and so is its repair.
            r = self.airlock("unpack", "--into", self.root, "--baseline", base, data=data, before=[
                "strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", "inject=renameat2:signal=KILL:when=3+"])
            self.assertEqual(r.returncode, 4, r.stderr)
            self.assertTrue(os.path.lexists(os.path.join(self.root, ".airlock-staging")))
            if repair == "unpack":
                _, end = self.unpack(data, "--baseline", base, status=1)
                self.assertTrue(end["repaired"])
            else:
                r = self.airlock("recover", self.root)
                self.assertEqual(r.returncode, 0, r.stderr)
                self.assertFalse(os.path.lexists(os.path.join(self.root, ".airlock-staging")))
                self.assertIn(b"nothing was cut", self.airlock("recover", self.root + "/").stderr)
            now = {p: w[2] for p, w in tree(self.root).items() if w[0] == "f"}
            self.assertEqual(now["change"], b"sandbox change")
            self.assertEqual(now["dir"], b"sandbox dir")
            self.assertNotIn("gone", now)
            # What went is still there, wherever the blow fell.
            kept = set()
            for here, _, files in os.walk(os.path.join(self.env["XDG_STATE_HOME"], "airlock/unpacks")):
                kept |= {self.read(os.path.join(here, f)) for f in files}
            self.assertLessEqual({b"old gone", b"old d/gone", b"old dir/x", b"old change", b"sandbox both"}, kept)

    def test_S1_10_a_trash_that_takes_nothing_is_said_and_waits(self):
        """Everything is published and reported; what was there before is named with its place, and no step is done twice."""
        log = os.path.join(self.top, "log")
        strace = ["strace", "-f", "-e", "trace=renameat2", "-o"]
        base, data = self.changed_tree()
        self.unpack(data, "--baseline", base, status=1, before=[*strace, log])
        renames = self.read(log).count(b"renameat2(")
        self.tearDown()
        self.setUp()
        base, data = self.changed_tree()
        # The last four move the trash. The name that says "only the trash is left" cannot be given either.
        r = self.airlock("unpack", "--into", self.root, "--baseline", base, "-v", data=data,
                         before=[*strace, "/dev/null", "-e", "inject=renameat2:error=EIO:when=%d+" % (renames - 3)])
        self.assertEqual(r.returncode, 1, r.stderr)
        lines = [json.loads(x) for x in r.stdout.splitlines()]
        end = lines.pop()
        self.assertEqual((end["outcome"], end["counts"]["not_trashed"], end["counts"]["change"]), ("partial", 4, 2))
        kept = {x["path"]: x["saved"] for x in lines if x["action"] == "not_trashed"}
        self.assertEqual({p: self.read(f) for p, f in kept.items() if p != "dir"},
                         {"change": b"old change", "gone": b"old gone", "d/gone": b"old d/gone"})
        self.assertEqual(self.read(os.path.join(kept["dir"], "x")), b"old dir/x")
        where = os.path.join(self.env["XDG_STATE_HOME"], "airlock/unpacks", end["unpack"])
        self.assertEqual([json.loads(x) for x in self.read(os.path.join(where, "changes.jsonl")).splitlines()],
                         [{k: v for k, v in x.items() if k != "saved"} for x in lines])
        r = self.airlock("recover", self.root)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertFalse(os.path.lexists(os.path.join(self.root, ".airlock-staging")))
        for p in "change", "gone", "d/gone", "dir/x":
            self.assertEqual(self.read(os.path.join(where, "trash", p)), b"old " + p.encode())

    def test_S1_10_what_was_put_there_late_is_kept_as_long(self):
        """A recovery may put the only copy of something into a place that was made a month ago."""
        unpacks = os.path.join(self.env["XDG_STATE_HOME"], "airlock/unpacks")
        self.unpack(Stream().file("a", "a"))
        old, late, later = [os.path.join(unpacks, c * 16) for c in "123"]
        for d in old, late, later:
            self.write(d, "trash/x", "x")
            self.write(d, "conflicts/host/x", "x")
            for p in d, d + "/trash", d + "/conflicts":
                os.utime(p, (0, 1_700_000_000))
        os.utime(late + "/trash")
        os.utime(later + "/conflicts")
        self.unpack(Stream().file("b", "b"))
        self.assertEqual([os.path.exists(d) for d in (old, late, later)], [False, True, True])
        # Nor what a recovery holds.
        os.utime(late + "/trash", (0, 1_700_000_000))
        fd = os.open(late, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        self.unpack(Stream().file("c", "c"))
        self.assertTrue(os.path.exists(late))
        os.close(fd)
        self.unpack(Stream().file("d", "d"))
        self.assertFalse(os.path.exists(late))

    def test_two_streams_at_once_both_arrive(self):
        def stream(k):
            s = Stream()
            for i in range(50):
                s.file("d/%s%d" % (k, i), "%s %d" % (k, i))
            return s.bytes()
        ps = [subprocess.Popen([os.path.join(self.bin, "airlock"), "unpack", "--into", self.root], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=self.env) for _ in "ab"]
        for p, k in zip(ps, "ab"):
            p.stdin.write(stream(k))
            p.stdin.close()
        for p in ps:
            p.stdout.read()
            self.assertEqual(p.wait(120), 0)
            p.stdout.close()
        self.assertEqual(len(os.listdir(os.path.join(self.root, "d"))), 100)


def main():
    if sys.argv[1:2] == ["user"] and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(OTHER_ID, OTHER_ID, OTHER_ID)
        os.setresuid(OTHER_ID, OTHER_ID, OTHER_ID)
    unittest.main(verbosity=1, argv=sys.argv[:1] + sys.argv[2:])


main()
