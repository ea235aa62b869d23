#!/usr/bin/env python3
"""run --review, runs, diff, apply, discard with the real programs (S1-04, S1-07, S1-10, B-07).

usage: test_review.py AIRLOCK root|user [unittest arguments]

Names carry requirement and case ids. "user", started by root, is an ordinary user without a name.
"""
import fcntl, glob, json, os, pty, re, resource, select, shutil, signal, sqlite3, stat, subprocess, sys, time, unittest

import scratch

AIRLOCK, WHO = os.path.abspath(sys.argv[1]), sys.argv[2]
DEADLINE = 120
LINES = "".join("line %d\n" % i for i in range(1, 21))
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C",
         "GIT_AUTHOR_NAME": "Host", "GIT_AUTHOR_EMAIL": "h@example.org",
         "GIT_COMMITTER_NAME": "Host", "GIT_COMMITTER_EMAIL": "h@example.org"}


def become():
    """As root the programs are run where they are; an ordinary user gets copies that it can reach."""
    global AIRLOCK
    if WHO == "root" and os.geteuid() != 0:
        print("needs root")
        sys.exit(77)
    if WHO == "user" and os.geteuid() == 0:
        place = scratch.directory(prefix="airlock-review-bin-")
        for p in glob.glob(AIRLOCK + "*"):
            if os.path.isfile(p) and os.access(p, os.X_OK):
                shutil.copy(p, place)
        shutil.copy(os.path.abspath(__file__), place + "/test.py")
        shutil.copy(scratch.__file__, place)
        os.chmod(place, 0o755)
        env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_RUNTIME_DIR")}
        r = subprocess.run(["setpriv", "--reuid", "20001", "--regid", "20001", "--clear-groups", "--", sys.executable,
                            "-B", place + "/test.py", place + "/airlock", "user", *sys.argv[3:]], env=env)
        shutil.rmtree(place)
        sys.exit(r.returncode)


class Case(unittest.TestCase):
    def setUp(self):
        self.top = scratch.directory(prefix="airlock-review-")
        self.ws, self.state = self.top + "/ws", self.top + "/state/airlock"
        os.mkdir(self.ws)
        os.mkdir(self.top + "/home")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "LD_", "GIT_", "LESS", "PAGER"))}
        self.env.update(PLAIN, XDG_STATE_HOME=self.top + "/state", HOME=self.top + "/home")
        self.repo()

    def repo(self):
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Inside")
        self.git("config", "user.email", "i@example.org")
        for name, data in (("file", LINES), ("other", "other\n"), ("d/deep", "deep\n"), ("d/e/f", "f\n")):
            self.write(name, data)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")

    def tearDown(self):
        subprocess.run([AIRLOCK, "rm", "--all", "--force"], env=self.env, cwd=self.top, capture_output=True)
        scratch.remove(self.top)

    def write(self, name, data):
        p = os.path.join(os.fsencode(self.ws), os.fsencode(name))
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())

    def read(self, name):
        with open(os.path.join(self.ws, name)) as f:
            return f.read()

    def has(self, name):
        return os.path.lexists(os.path.join(self.ws, name))

    def git(self, *a, cwd=None, code=0, **kw):
        r = subprocess.run(["git", *a], cwd=cwd or self.ws, env=self.env, capture_output=True, **kw)
        self.assertEqual(r.returncode, code, r.stderr)
        return r.stdout.decode(errors="surrogateescape")

    def status(self):
        return self.git("status", "--porcelain", "--untracked-files=all")

    def airlock(self, *words, code=0, cwd=None, **kw):
        kw = {"stdin": subprocess.DEVNULL, "timeout": DEADLINE, "env": self.env, **kw}
        r = subprocess.run([AIRLOCK, *words], cwd=cwd or self.ws, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        self.err = r.stderr.decode(errors="replace")
        self.assertEqual(r.returncode, code, (words, self.err, r.stdout[-500:]))
        return r.stdout

    def review(self, script, *opts):
        before = self.tree()
        self.airlock("run", "--review", *opts, "--", "sh", "-ec", script)
        self.said = self.err
        self.assertEqual(self.tree(), before, "a review writes nothing")
        self.run_id = self.runs()[0]["run"]
        self.dir = self.state + "/runs/" + self.run_id

    def runs(self, *a):
        return json.loads(self.airlock("runs", "--json", *a))

    def diff(self, *a):
        return self.airlock("diff", self.run_id, *a)

    def apply(self, *a, code=0):
        return self.airlock("apply", self.run_id, *a, code=code)

    def letters(self, *a):
        return dict(reversed(line.split("\t")[:2]) for line in self.diff("--name-status", *a).decode().splitlines())

    def tree(self, top=None):
        found = {}
        top = os.fsencode(top or self.ws)
        for here, dirs, files in os.walk(top):
            if here == top and b".git" in dirs:
                dirs.remove(b".git")
            for n in dirs + files:
                p = os.path.join(here, n)
                st = os.lstat(p)
                rel = os.path.relpath(p, top)
                if stat.S_ISLNK(st.st_mode):
                    found[rel] = os.readlink(p)
                elif stat.S_ISDIR(st.st_mode):
                    found[rel] = "dir"
                else:
                    with open(p, "rb") as f:
                        found[rel] = (f.read(), st.st_mode & 0o100)
        return found

    def pins(self):
        return [os.path.basename(p) for p in glob.glob(self.state + "/workspaces/*/pins/*")]

    def on_tty(self, words, keys=b"", env=None, meanwhile=None):
        """What a terminal gets to see, and the exit status. meanwhile: is done when there is a question."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.ws)
            os.execve(AIRLOCK, [AIRLOCK, *words], {**self.env, "TERM": "xterm", **(env or {})})
        out, end = b"", time.monotonic() + DEADLINE
        if keys and not meanwhile:
            os.write(fd, keys)
        while time.monotonic() < end:
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                part = os.read(fd, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
            if meanwhile and b"[y/N]" in out:
                meanwhile()
                meanwhile = os.write(fd, keys) and None
        os.close(fd)
        return out, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


EVERYTHING = r"""sed -i 's/line 7$/LINE 7/' file; rm -r d/e; printf 'no end' >other; ln -s file l; chmod +x d/deep
mkdir -p n/m; echo new >n/m/x; printf '\ttab' >"t	ab"; echo q >'q"uote'; touch zero"""


class ReadOnly(Case):
    """Bad input: a workspace that cannot be written is known before the work, and the work waits for an apply."""

    def test_S1_04_a_read_only_workspace_is_told_first_and_its_results_wait(self):
        if os.geteuid():
            os.chmod(self.ws, 0o555)
            words, lock, back = ["sh"], "", "chmod 755 ."
        else:
            # Root writes wherever the file system lets it.
            words = ["unshare", "--mount", "sh"]
            lock, back = "mount -o bind . . && cd \"$PWD\" && mount -o remount,bind,ro .", "mount -o remount,bind,rw ."
        said = self.top + "/said"
        script = "set -e\n%s\n%s run -- sh -c 'echo agent at work >&2; echo new >added; echo x >>file' 2>%s\n" \
            "! test -e added\n%s\n%s apply last >&2\ncat added" % (lock or ":", AIRLOCK, said, back, AIRLOCK)
        r = subprocess.run([*words, "-c", script], cwd=self.ws, env=self.env, capture_output=True, timeout=DEADLINE)
        with open(said, encoding="utf-8", errors="replace") as f:
            text = f.read()
        self.assertEqual((r.returncode, r.stdout), (0, b"new\n"), (text, r.stderr))
        self.assertRegex(text, r"the workspace .* cannot be written \((Read-only file system|Permission denied)\).*airlock apply")
        self.assertLess(text.index("cannot be written"), text.index("agent at work"))
        self.assertTrue(self.read("file").endswith("line 20\nx\n"))

    def test_S1_04_a_kept_sandbox_only_warns(self):
        if os.geteuid() == 0:
            return  # the file system does not stop root, and a mount does not outlive the test
        os.chmod(self.ws, 0o555)
        self.airlock("run", "--keep", "--", "echo new >added")
        self.assertIn("comes back only once the workspace is writable", self.err)
        os.chmod(self.ws, 0o755)
        self.airlock("exec", "last", "--", "true")
        self.assertEqual(self.read("added"), "new\n")


class Shown(Case):
    def test_S1_04_diff_is_the_patch_that_apply_carries_out(self):
        self.review(EVERYTHING)
        patch = self.diff()
        clone = self.top + "/clone"
        self.git("clone", "-q", self.ws, clone)
        self.git("apply", "-", cwd=clone, input=patch)
        self.assertEqual(self.runs()[0]["results"], "12 wait")
        self.apply()
        there, here = self.tree(), self.tree(clone)
        self.assertEqual(there, here)
        self.assertEqual(here[b"file"][0], LINES.replace("line 7\n", "LINE 7\n").encode())
        self.assertEqual(self.runs()[0]["results"], "applied")

    def test_S1_04_forms_look_as_git_prints_them(self):
        self.review(EVERYTHING + "; git mv file moved || mv file moved")
        ours = {f: self.diff(f) for f in ("--stat", "--name-status", "--name-only")}
        self.apply()
        self.git("add", "-A")
        for form, text in ours.items():
            git = self.git("diff", "--cached", "-M", form).encode()
            if form == "--name-status":  # likeness is measured by chunks there, by lines here
                text, git = (re.sub(rb"R0\d\d", b"R", t) for t in (text, git))
            if form == "--stat":
                text, git = (re.sub(rb" +", b" ", re.sub(rb"\{?file => moved\}?", b"moved", t)) for t in (text, git))
            self.assertEqual(sorted(text.splitlines()), sorted(git.splitlines()), form)

    def test_S1_04_json(self):
        self.review("echo x >>file; rm other; printf 'a\\0b' >bin; printf x >$(printf 'b\\351')")
        got = json.loads(self.diff("--json"))
        by = {c.get("path") or c["path_b64"]: c for c in got}
        self.assertEqual((by["file"]["status"], by["file"]["added_lines"], by["file"]["old_mode"]), ("M", 1, "100644"))
        self.assertEqual((by["other"]["status"], by["other"]["new_mode"]), ("D", None))
        self.assertTrue(by["bin"]["binary"])
        self.assertIn("Yuk=", by)

    def test_S1_04_marks(self):
        self.write("bin", b"\0one")
        self.git("add", "-A")
        self.git("commit", "-qm", "bin")
        self.review("sed -i 's/line 2$/TWO/' file; printf '\\0two' >bin; echo s >other; echo export X=1 >.envrc;"
                    "ln -s /etc/passwd esc; echo same >same")
        self.write("file", LINES.replace("line 18", "eighteen"))
        self.write("bin", b"\0host")
        self.write("same", "same\n")
        text = self.diff().decode()
        self.assertIn("# airlock: changed here too: an apply merges the two\ndiff --git a/file", text)
        self.assertRegex(text, "# airlock: CONFLICT: [^\n]*\ndiff --git a/bin b/bin\nBinary files a/bin and b/bin differ\n")
        self.assertRegex(text, "# airlock: the host runs this file[^\n]*\ndiff --git a/.envrc")
        self.assertIn("# airlock: esc: refused: a link that points outside the workspace", text)
        self.assertIn("# airlock: it is so here already\ndiff --git a/same", text)
        self.assertEqual(self.letters(), {"file": "M", "bin": "U", "other": "M", ".envrc": "A", "esc": "!", "same": "A"})
        self.apply(code=1)
        self.assertIn("TWO\n", self.read("file"))
        self.assertIn("eighteen\n", self.read("file"))
        with open(self.ws + "/bin", "rb") as f:
            self.assertEqual(f.read(), b"\0host")
        self.assertFalse(self.has("esc"))
        self.assertEqual(self.letters(), {"bin": "U", "esc": "!"})

    def test_B_04_no_sandbox_byte_commands_the_terminal(self):
        self.review(r"""printf 'a\033]0;owned\007b\033[2Jc\302\233d\342\200\256e\rf\n' >file
printf x >"$(printf 'n\033[31m')"; echo y >other""")
        for pager in "", "cat":
            out, code = self.on_tty(["diff", self.run_id], env={"AIRLOCK_PAGER": pager})
            self.assertEqual(code, 0)
            bare = re.sub(rb"\x1b\[\d*m", b"", out)
            self.assertNotRegex(bare, rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2\x9b|\xe2\x80\xae")
            self.assertIn(rb"+a^[]0;owned^Gb^[[2Jc<C2><9B>d<E2><80><AE>e^Mf", bare)
            self.assertIn(rb'"b/n\033[31m"', bare)
            self.assertIn(b"\x1b[32m+", out)
        # A pipe gets the bytes, unless it asks for colour.
        self.assertIn(b"\x1b]0;owned", self.diff())
        self.assertNotIn(b"\x1b]0;owned", self.diff("--color"))
        for words in ["runs"], ["apply", self.run_id]:
            out, code = self.on_tty(words)
            self.assertNotRegex(re.sub(rb"\x1b\[[Km]|\r", b"", out), rb"\x1b")

    def test_pager_as_git_has_it(self):
        self.review("seq 1 3000 >file")
        out, code = self.on_tty(["diff", self.run_id], env={"PAGER": "head -n 3; echo paged; echo $LESS"})
        self.assertEqual(code, 0)
        self.assertIn(b"paged", out)
        self.assertIn(b"FRX", out)
        self.assertNotIn(b"2999", out)
        out, _ = self.on_tty(["diff", "--no-pager", self.run_id], env={"PAGER": "echo paged"})
        self.assertIn(b"2999", out)

    def test_B_07_nothing_of_the_user_or_the_sandbox_is_run_to_show_it(self):
        mark = self.top + "/ran"
        for k in "diff.external", "diff.evil.textconv", "diff.evil.command", "core.fsmonitor", "filter.evil.clean":
            self.git("config", k, "touch %s; cat" % mark)
        self.env.update(GIT_EXTERNAL_DIFF="touch %s" % mark, GIT_PAGER="touch %s" % mark)
        self.review("echo '* diff=evil filter=evil' >.gitattributes; echo x >>file")
        self.assertIn(b"+x\n", self.diff())
        self.assertIn(b" file           | 1 +\n", self.diff("--stat"))
        self.assertFalse(os.path.exists(mark))

    def test_S1_04_a_run_that_is_over(self):
        self.write("bin", b"\0one")
        self.git("add", "-A")
        self.git("commit", "-qm", "bin")
        self.airlock("run", "--", "sh", "-ec", "echo more >>file; rm other; echo n >new; ln -s /etc/x esc")
        self.run_id = self.runs()[0]["run"]
        self.assertEqual(self.runs()[0]["results"], "published")
        text = self.diff().decode()
        self.assertIn("is over", text.splitlines()[0])
        self.assertIn("+more\n", text)
        self.assertIn("-other\n", text)
        self.assertIn("+n\n", text)
        self.assertIn("# airlock: esc: refused", text)
        self.assertIn(b"nothing of run", self.apply() + self.err.encode())
        # Without the copy that was sent it says so and shows what the trash has.
        shutil.rmtree(self.state + "/workspaces")
        text = self.diff().decode()
        self.assertIn("not kept any more", text)
        self.assertIn("-other\n", text)

    def test_words(self):
        self.review("echo x >>file")
        self.airlock("diff", code=2)
        self.airlock("diff", self.run_id, "nonsense", code=2)
        self.assertIn("nonsense matches nothing", self.err)
        self.airlock("diff", "zzzz", code=125)
        self.airlock("diff", self.run_id, "--color=mauve", code=2)
        self.airlock("diff", self.run_id, "--exit-code", code=1)
        self.airlock("run", "--provider", "local", "--review", "--", "true", code=2)
        self.assertEqual(self.airlock("diff", self.run_id, "deep", cwd=self.ws + "/d", code=2), b"")
        self.assertIn(b"+x\n", self.airlock("diff", self.run_id, "../file", cwd=self.ws + "/d"))
        self.assertIn(b"+x\n", self.airlock("diff", self.run_id, ":/f*", cwd=self.ws + "/d"))


class Applied(Case):
    def test_S1_07_a_part_leaves_the_rest(self):
        self.review("echo 1 >>file; echo 2 >>other; rm -r d; mkdir -p n/m; echo 3 >n/m/x; echo 4 >n/y; echo 5 >n2")
        self.apply("file")
        self.assertEqual(self.status(), " M file\n")
        self.apply("n/m")
        self.assertEqual(self.status(), " M file\n?? n/m/x\n")
        self.apply("d/e", "n?")
        self.assertEqual(self.status(), " D d/e/f\n M file\n?? n/m/x\n?? n2\n")
        self.assertEqual(set(self.letters()), {"other", "d/deep", "n/y"})
        self.assertEqual(self.runs("--waiting")[0]["waiting"], len(self.letters()) + 2, "d and n themselves")
        self.apply("nonsense", "other", code=2)
        self.assertEqual(self.read("other"), "other\n", "one wrong word and nothing is done")
        self.apply("-n")
        self.assertEqual(self.read("other"), "other\n")
        self.apply()
        self.assertEqual(self.status(), " D d/deep\n D d/e/f\n M file\n M other\n?? n/m/x\n?? n/y\n?? n2\n")
        self.assertFalse(self.has("d"))
        self.assertEqual(self.runs()[0]["results"], "applied")
        self.assertEqual(self.pins(), [])
        before = self.tree()
        self.apply()
        self.assertEqual(self.tree(), before)

    def test_S1_07_parts_that_depend_on_others(self):
        self.write("was-dir/a", "a\n")
        self.write("was-dir/b", "b\n")
        self.write("was-file", "x\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "more")
        self.review("rm -r was-dir; echo f >was-dir; rm was-file; mkdir was-file; echo in >was-file/in; echo h >one;"
                    "ln one two; ln one three; chmod 700 d")
        self.apply("was-dir/a")
        self.assertEqual(os.listdir(self.ws + "/was-dir"), ["b"])
        self.apply("was-file/in", "two")
        self.assertEqual((self.read("was-file/in"), self.read("two")), ("in\n", "h\n"))
        self.assertFalse(self.has("one"))
        self.apply()
        self.assertEqual((self.read("was-dir"), self.read("one"), self.read("three")), ("f\n", "h\n", "h\n"))

    def test_S1_07_hard_links_in_parts(self):
        """Plain tar has them as links to each other; each must come without the others."""
        self.review("echo h >one; ln one two; ln one zwei; cp file copy; ln file same", "--sync-out", "tar")
        self.apply("two", "same")
        self.assertEqual((self.read("two"), self.read("same"), self.status()), ("h\n", LINES, "?? same\n?? two\n"))
        self.apply()
        self.assertEqual((self.read("one"), self.read("zwei"), self.read("copy")), ("h\n", "h\n", LINES))

    def test_S1_07_opaque_directory_in_parts(self):
        self.review("rm -r d; mkdir d; echo deep >d/deep; echo new >d/new")
        self.apply("d/new")
        self.assertEqual(self.status(), "?? d/new\n")
        self.apply()
        self.assertEqual(self.status(), " D d/e/f\n?? d/new\n")

    def test_G3_conflicts_wait_until_they_are_decided(self):
        self.write("bin", b"\0one")
        self.git("add", "-A")
        self.git("commit", "-qm", "bin")
        self.review("printf '\\0two' >bin; rm other; echo 1 >new")
        self.write("bin", b"\0host")
        self.write("other", "edited\n")
        for _ in range(2):
            self.apply(code=1)
            self.assertEqual((self.read("other"), self.read("bin"), self.read("new")), ("edited\n", "\0host", "1\n"))
            self.assertEqual(self.letters(), {"bin": "U", "other": "U"})
        self.assertFalse(os.path.exists(self.dir + "/conflicts"), "nothing is copied again and again")
        self.apply("--on-conflict", "take-sandbox", "bin")
        self.assertEqual(self.read("bin"), "\0two")
        with open(self.dir + "/conflicts/host/bin") as f:
            self.assertEqual(f.read(), "\0host")

    def test_G7_G8_what_a_directory_becomes_is_foretold_as_an_apply_decides(self):
        """A directory that became a file or a link, and the reverse: conflicts below it are those that an apply meets."""
        self.write("k/k", "k\n")
        self.write("turn", "turn\n")
        self.review("rm -r d k turn; echo file >d; ln -s file k; mkdir -p turn/in; echo x >turn/in/x; echo 1 >>file")
        every = {"d": "A", "d/deep": "D", "d/e/f": "D", "k": "A", "k/k": "D", "turn": "D", "turn/in/x": "A", "file": "M"}

        def foretold(*conflicts):
            self.assertEqual(self.letters(), {p: "U" if p in conflicts else w for p, w in every.items()})
            out = json.loads(self.airlock("apply", "-n", "--json", self.run_id, code=1 if conflicts else 0))
            # An apply speaks of a directory's place once, and of a new directory too.
            once = {p for p in conflicts if not p.startswith(("d/", "k/"))}
            self.assertEqual(out["counts"]["conflict"], len(once) + ("turn" in conflicts))

        foretold()
        self.write("d/deep", "host\n")
        foretold("d", "d/deep", "d/e/f")
        self.write("d/deep", "deep\n")
        self.write("k/new/mine", "mine\n")
        foretold("k", "k/k")
        self.assertIn(b"until what is yours is moved out of it", self.diff())
        self.write("turn", "host\n")
        foretold("k", "k/k", "turn", "turn/in/x")
        before = self.tree()
        self.apply(code=1)
        self.assertEqual((self.read("d"), self.read("turn"), self.read("k/new/mine")), ("file\n", "host\n", "mine\n"))
        self.assertEqual({p for p in before if p.startswith((b"k", b"turn"))}, {p for p in self.tree() if p.startswith((b"k", b"turn"))})
        self.assertEqual(set(self.letters()), {"k", "k/k", "turn", "turn/in/x"})
        self.assertEqual(self.runs()[0]["waiting"], 5)  # with turn/in
        shutil.rmtree(self.ws + "/k/new")
        self.apply("--on-conflict", "take-sandbox")
        self.assertEqual((os.readlink(self.ws + "/k"), self.read("turn/in/x")), ("file", "x\n"))
        self.assertEqual(self.runs()[0]["results"], "applied")

    def test_exit_statuses(self):
        self.review("echo 1 >>file; echo 2 >>other")
        self.apply("file")
        self.airlock("apply", code=2)
        with open(self.dir + "/pending/list", "r+b") as f:
            good = f.read()
            f.seek(len(good) // 2)
            f.write(bytes([good[len(good) // 2] ^ 1]))
        self.apply(code=3)
        self.assertIn("damaged", self.err)
        self.assertEqual(self.runs()[0]["results"], "damaged")
        with open(self.dir + "/pending/list", "wb") as f:
            f.write(good)
        os.rename(self.ws, self.ws + ".away")
        shutil.copytree(self.ws + ".away", self.ws)
        self.airlock("apply", self.run_id, code=3, cwd=self.top)
        self.assertIn("another directory", self.err)
        self.assertEqual(self.read("other"), "other\n")
        shutil.rmtree(self.ws)
        os.rename(self.ws + ".away", self.ws)
        os.rename(self.dir + "/pending/c", self.dir + "/pending/x")
        self.apply(code=4)
        os.rename(self.dir + "/pending/x", self.dir + "/pending/c")
        self.airlock("apply", "zzzz", code=4)
        self.apply()
        self.assertEqual(self.read("other"), "other\n2\n")

    def test_S1_07_only_what_was_reviewed_is_applied(self):
        self.review("echo 1 >>file; ln -s file l")
        kept = self.dir + "/pending/c"
        was = {n: os.readlink(p) if os.path.islink(p) else None for n in os.listdir(kept) for p in [kept + "/" + n]}
        file, link = sorted(was, key=lambda n: was[n] is not None)
        with open(kept + "/" + file) as f:
            good = f.read()
        with open(kept + "/" + file, "w") as f:
            f.write(good.upper())
        # Nor shown as if it would be.
        text = self.diff("file").decode()
        self.assertIn("not what was kept", text)
        self.assertNotIn(good.upper().splitlines()[-1], text)
        self.apply(code=3)
        self.assertIn("damaged", self.err)
        os.unlink(kept + "/" + file)
        os.symlink("/etc/passwd", kept + "/" + file)
        self.apply(code=3)
        os.unlink(kept + "/" + file)
        with open(kept + "/" + file, "w") as f:
            f.write(good)
        os.unlink(kept + "/" + link)
        os.symlink("other", kept + "/" + link)
        self.assertIn("not what was kept", self.diff("l").decode())
        self.apply(code=3)
        self.assertEqual(self.status(), "")
        os.unlink(kept + "/" + link)
        os.symlink("file", kept + "/" + link)
        self.apply()
        self.assertEqual((self.read("file"), os.readlink(self.ws + "/l")), (good, "file"))

    def test_a_set_without_its_description_can_only_be_dropped(self):
        self.review("echo 1 >>file")
        for junk in "", "{", "[]", "x" * 100:
            with open(self.dir + "/review.json", "w") as f:
                f.write(junk)
            self.assertEqual(self.runs()[0]["results"], "damaged")
            self.apply(code=3)
        self.airlock("diff", self.run_id, code=125)
        self.airlock("discard", "-y", self.run_id)
        self.assertEqual((self.runs()[0]["results"], self.status()), ("discarded", ""))

    def test_empty_review_waits_for_nothing(self):
        self.review("true")
        self.assertEqual((self.runs()[0]["results"], self.pins()), ("none", []))
        self.apply()
        self.assertIn("nothing of run", self.err)

    def test_by_plain_tar_what_is_missing_is_deleted_by_the_apply(self):
        self.review("rm -r d; rm other; echo 1 >>file; echo n >new", "--sync-out", "tar")
        self.assertEqual(self.letters(), {"d/deep": "D", "d/e/f": "D", "other": "D", "file": "M", "new": "A"})
        self.apply("d/e")
        self.assertEqual(self.status(), " D d/e/f\n")
        self.apply()
        self.assertEqual(self.status(), " D d/deep\n D d/e/f\n M file\n D other\n?? new\n")

    def test_S1_10_a_review_that_is_cut_is_recovered_as_a_review(self):
        p = subprocess.Popen([AIRLOCK, "run", "--review", "--", "sh", "-c", "echo 1 >>file; echo ready; sleep 600"],
                             cwd=self.ws, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.kill()
        p.communicate()
        self.airlock("recover", "last")
        self.assertEqual(self.status(), "")
        self.run_id = self.runs()[0]["run"]
        self.assertEqual(self.letters(), {"file": "M"})
        self.airlock("recover", "last", code=125)
        self.assertIn("airlock apply", self.err)
        self.apply()
        self.assertEqual(self.read("file"), LINES + "1\n")

    DEEP = "p=z; for i in $(seq 140); do p=$p/d; done; mkdir -p $p"

    def withheld(self, script):
        """A set waits, and the storage is kept: not all of it could be read."""
        self.airlock("run", "--review", "--", "sh", "-ec", script + "; " + self.DEEP)
        self.assertIn("could NOT be brought back", self.err)
        self.run_id = self.runs()[0]["run"]
        self.dir = self.state + "/runs/" + self.run_id

    def come(self):
        """The letters of what came."""
        return {p: c for p, c in self.letters().items() if c != "!"}

    def test_S1_10_a_recovery_that_fails_leaves_the_set_that_waits(self):
        """It is a copy that was judged, and the storage may be gone when it is tried again."""
        self.withheld("echo 1 >>file; git commit -qam one")
        os.rename(self.ws, self.ws + ".first")
        shutil.copytree(self.ws + ".first", self.ws, symlinks=True)
        self.airlock("recover", self.run_id, code=125)
        self.assertIn("another directory", self.err)
        shutil.rmtree(self.ws)
        os.rename(self.ws + ".first", self.ws)
        self.assertTrue(os.path.exists(self.dir + "/pending/list"))
        self.assertTrue(os.path.exists(self.dir + "/commits.bundle"))
        self.assertEqual(self.come(), {"file": "M"})
        # Nor does one that cannot read all of it either.
        self.airlock("recover", self.run_id, code=125)
        self.airlock("recover", "--exclude", "z", self.run_id)
        self.assertEqual(self.come(), {"file": "M"})
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".new")], [])
        self.apply()
        self.assertEqual((self.status(), self.git("log", "--format=%s")), ("", "one\nfirst\n"))

    def test_I1_a_recovery_waits_for_whoever_decides_about_the_run(self):
        self.withheld("echo 1 >>file")
        fd = os.open(self.dir, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.airlock("rm", "--force", self.run_id, code=125)
        self.assertIn("is at the results", self.err)
        p = subprocess.Popen([AIRLOCK, "recover", "--exclude", "z", self.run_id], cwd=self.ws, env=self.env,
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertIn(b"waiting for it", p.stderr.readline())
        self.assertIsNone(p.poll())
        os.close(fd)
        self.assertEqual((p.wait(DEADLINE), p.stderr.close()), (0, None))
        self.assertEqual(self.come(), {"file": "M"})

    def test_S1_04_who_may_read_and_write_is_shown(self):
        """git's two modes tell of the owner's x only: a file that is opened to everybody must not look like no change."""
        self.review("chmod 666 file; chmod 600 other; chmod 755 d/deep; chmod 700 d/e")
        patch = self.diff().decode()
        self.assertIn("# airlock: mode 0644 -> 0666\ndiff --git a/file b/file\n", patch)
        self.assertIn("# airlock: mode 0644 -> 0600\ndiff --git a/other b/other\n", patch)
        self.assertIn("diff --git a/d/deep b/d/deep\nold mode 100644\nnew mode 100755\n", patch)
        self.assertEqual(patch.count("# airlock: mode"), 2)
        by = {c["path"]: (c["old_perm"], c["new_perm"]) for c in json.loads(self.diff("--json"))}
        self.assertEqual(by, {"file": ("0644", "0666"), "other": ("0644", "0600"), "d/deep": ("0644", "0755"),
                              "d/e": ("0755", "0700")})

    def test_S1_04_a_part_changes_no_directory_that_nobody_named(self):
        self.review("chmod 700 d; echo new >d/new; echo 1 >>d/deep; mkdir -m 700 n; echo x >n/x")
        self.apply("d/new", "n/x")
        self.assertEqual([stat.S_IMODE(os.stat(self.ws + "/" + p).st_mode) for p in ("d", "n")], [0o755, 0o700])
        self.assertEqual({c["path"]: c["change"] for c in json.loads(self.diff("--json"))}, {"d": "M", "d/deep": "M", "n": "A"})

    def test_S1_09_a_deep_set_is_shown_without_a_walk_to_the_root_for_each_path(self):
        """One path turned from a directory into a file, and thousands that lie deep: each was looked for at every level."""
        took = {}
        for turn in "true", "rm -r d; echo file >d":
            self.review("%s; p=z; for i in $(seq 100); do p=$p/d; done; mkdir -p $p; cd $p; "
                        "for i in $(seq 1500); do : >$i; done" % turn)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertGreater(len(self.diff("--name-only").splitlines()), 1499)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took[turn] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            self.airlock("discard", "--yes", self.run_id)
        self.assertLess(took["rm -r d; echo file >d"], 4 * took["true"] + 0.5)

    def test_S1_10_runs_on_another_disk(self):
        """A link of the user's: there is no trash on that file system, and what is decided goes all the same."""
        if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(self.top).st_dev:
            self.skipTest("one file system only")
        away = scratch.directory(prefix="airlock-review-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, away)
        os.makedirs(self.state, 0o700)
        os.symlink(away, self.state + "/runs")
        for how in ["apply"], ["discard", "--yes"]:
            self.review("echo %s >>file" % how[0])
            self.airlock(*how, self.run_id)
            self.assertEqual((self.runs()[0]["results"], self.pins()), ({"apply": "applied"}.get(how[0], "discarded"), []))
            self.airlock("rm", self.run_id)
            self.assertEqual(os.listdir(away), [])

    def test_S1_04_only_what_was_asked_about_is_dropped(self):
        self.review("echo 1 >>file; echo 2 >>other")
        out, code = self.on_tty(["discard", self.run_id], b"y\n", meanwhile=lambda: self.apply("file"))
        self.assertIn(b"nothing was dropped", out)
        self.assertNotEqual(code, 0)
        self.assertEqual((self.letters(), self.read("file")), ({"other": "M"}, LINES + "1\n"))

    def test_discard(self):
        self.review("echo 1 >>file")
        self.assertEqual(self.pins(), ["%d.%s" % (1, self.run_id)])
        self.airlock("rm", self.run_id, code=125)
        self.assertIn("airlock discard", self.err)
        self.airlock("discard", self.run_id, code=2)
        out, code = self.on_tty(["discard", self.run_id], b"n\n")
        self.assertNotEqual(code, 0)
        self.assertEqual(self.letters(), {"file": "M"})
        out, code = self.on_tty(["discard", self.run_id], b"y\n")
        self.assertIn(b"1 changed path", out)
        self.assertEqual((code, self.runs()[0]["results"], self.pins()), (0, "discarded", []))
        self.airlock("discard", "--yes", self.run_id)
        self.apply()
        self.assertEqual(self.status(), "")
        self.airlock("rm", self.run_id)
        self.assertEqual(self.runs(), [])

    def test_a_waiting_set_outlives_later_runs_of_the_workspace(self):
        self.review("chmod +x file; sed -i s/deep/DEEP/ d/deep")
        first = self.run_id
        for i in range(3):
            self.write("file", LINES + "%d\n" % i)
            self.airlock("run", "-q", "--", "sh", "-c", "echo %d >>other" % i)
        self.write("d/deep", "deep\nhost\n")
        self.run_id = first
        self.assertIn(b"-deep\n+DEEP\n", self.diff("d/deep"))
        self.apply(code=1)
        self.assertTrue(os.stat(self.ws + "/file").st_mode & 0o100)

    def test_retention(self):
        self.review("echo 1 >>file; rm other; rm d/deep")
        self.apply("other")
        self.assertTrue(os.path.exists(self.dir + "/trash/other"))
        with sqlite3.connect(self.state + "/airlock.db") as db:
            db.execute("UPDATE runs SET ended_ns=ended_ns-31*86400*1000000000")
        db.close()
        month = time.time() - 31 * 86400

        def later_run():
            for f in glob.glob(self.state + "/expired"):
                os.utime(f, (0, 0))
            self.airlock("run", "-q", "--", "true")
            return os.path.exists(self.dir + "/trash")
        self.assertTrue(later_run(), "the run is old, what an apply took away is not")
        for new in "", "/trash":
            for old in {"", "/trash"} - {new}:
                os.utime(self.dir + old, (month, month))
            os.utime(self.dir + new)
            self.assertTrue(later_run(), "something was put there since")
        for old in "", "/trash":
            os.utime(self.dir + old, (month, month))
        lock = os.open(self.dir, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        self.assertTrue(later_run(), "a recovery is at it")
        os.close(lock)
        self.assertFalse(later_run(), "copies run out")
        self.assertEqual(self.letters(), {"file": "M", "d/deep": "D"}, "what waits does not")

    def test_kept_sandbox_each_command_has_its_own_set(self):
        self.review("echo 1 >>file", "--keep")
        first = self.run_id
        self.airlock("exec", first, "--", "sh", "-c", "echo 2 >>other")
        second = self.runs()[0]["run"]
        self.assertEqual(self.status(), "")
        self.run_id = second
        self.assertEqual(self.letters(), {"file": "M", "other": "M"})
        self.apply()
        self.run_id = first
        self.apply()
        self.assertEqual((self.read("file"), self.read("other")), (LINES + "1\n", "other\n2\n"))


class History(Case):
    def test_S1_10_commits_come_with_the_last_of_the_files(self):
        self.review("echo 1 >>file; git commit -qam one; echo 2 >>other; git commit -qam two; echo 3 >loose")
        base = self.git("rev-parse", "main")
        self.assertEqual(self.runs()[0]["results"], "3 wait + commits")
        self.assertNotIn("refs/airlock", self.git("for-each-ref"))
        self.apply("file")
        self.assertEqual(self.git("rev-parse", "main"), base)
        self.apply("other")
        self.assertEqual(self.git("rev-parse", "main"), base, "a commit must not claim files that are not there")
        self.apply("loose")
        self.assertEqual(self.git("log", "--format=%s"), "two\none\nfirst\n")
        self.assertEqual(self.status(), "?? loose\n")
        self.assertEqual(self.runs()[0]["results"], "applied")

    def commit_lines(self, *a):
        return [l[len("# airlock: "):] for l in self.diff(*a).decode().splitlines()
                if l.startswith(("# airlock: commit", "# airlock: missing", "# airlock: differs", "# airlock: mode",
                                 "# airlock: converted", "# airlock: ..."))]

    def test_S1_10_diff_shows_the_commits_and_what_only_they_have(self):
        self.write(".gitignore", "*.log\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "ignore")
        base = self.git("rev-parse", "main").strip()
        self.review("echo 1 >>file; echo k >gone; echo l >kept.log; git add -Af; git commit -qm 'one\t\033[2Jred'; rm gone;"
                    " rm other; echo 2 >>file; git commit -qm two file; git log -2 --format=%h --abbrev=10 >ids")
        two, one = self.diff("ids").decode().split("\n+")[2:4]
        want = ["commits wait with this set; 'airlock apply' of all of it brings them too",
                "commit %s two" % two, "commit %s one\\x1b[2Jred" % one.strip(), "missing gone", "missing kept.log"]
        lines = self.commit_lines()
        self.assertEqual([l.replace("\\t", "") for l in lines], want)
        self.assertEqual(self.commit_lines("--stat"), lines)
        self.assertEqual(self.commit_lines("file"), want[:1], "of a path only that there are some")
        self.assertNotIn(b"commit", self.diff("--name-status"))
        self.airlock("diff", "--exit-code", self.run_id, code=1)
        subprocess.run(["git", "apply", "--check"], cwd=self.ws, env=self.env, input=self.diff(), check=True)
        said = "; the commits have files that the workspace would not have: gone, kept.log"
        self.assertIn("2 commits for main wait for 'airlock apply'" + said, self.said)
        with open(self.dir + "/record.json") as f:
            self.assertEqual(json.load(f)["history"]["missing"], "gone, kept.log")
        self.apply()
        self.assertIn("fast-forwarded 2 commits on main; the commits have files that the workspace has not: gone, kept.log", self.err)
        self.assertEqual(self.status(), " D gone\n D kept.log\n D other\n?? ids\n")
        self.assertFalse(os.path.exists(self.dir + "/commits.lines"))
        self.assertEqual(self.commit_lines(), [])
        self.assertEqual(self.git("rev-parse", "main~2").strip(), base)

    def test_S1_10_diff_of_a_set_of_commits_alone(self):
        self.review("cp file f; echo 1 >>file; git commit -qam one; mv f file")
        self.assertEqual([l.split(" ")[-1] for l in self.commit_lines()], ["too", "one", "file"])
        self.airlock("diff", "--exit-code", self.run_id, code=1)

    def test_S1_10_diff_shows_files_of_which_only_the_commits_have_the_bytes(self):
        """The branch moves to what no diff of the files shows."""
        self.write("b.sh", "good\n")
        os.symlink("file", self.ws + "/l")
        self.git("add", "-A")
        self.git("commit", "-qm", "b")
        self.review("echo evil >b.sh; echo two >>other; echo n >new; ln -sf other l; git add -A; git commit -qm docs; git show HEAD~1:b.sh >b.sh;"
                    " echo again >>new; ln -sf file l")
        self.assertEqual([l for l in self.commit_lines() if l.startswith("differs")], ["differs b.sh", "differs l", "differs new"])
        self.assertIn("; the commits have other bytes or modes than the workspace would have in: b.sh, l, new", self.said)
        with open(self.dir + "/record.json") as f:
            self.assertEqual(json.load(f)["history"]["differs"], "b.sh, l, new")
        self.apply()
        self.assertIn("; the commits have other bytes or modes than the workspace in: b.sh, l, new", self.err)
        self.assertEqual((self.git("show", "HEAD:b.sh"), self.read("b.sh")), ("evil\n", "good\n"))

    def differs(self):
        self.run_id = self.runs()[0]["run"]
        with open(self.state + "/runs/" + self.run_id + "/record.json") as f:
            return json.load(f)["history"]["differs"]

    def test_S1_10_lines_that_git_converts_are_no_difference(self):
        """By attributes of the work tree or core.autocrlf; without either they are one, and so is anything else beside them."""
        script = (r"printf 'a\r\nb\r\n' >crlf.txt; printf 'a\r\nb\r\n' >raw.dat; printf 'a\r\nb\r\n' >more.txt; git add -A; git commit -qm c;"
                  r" printf 'a\r\nb\r\nc\r\n' >more.txt; printf 'a\nb\n' >raw.dat")
        self.write(".gitattributes", "*.txt text\n*.dat -text\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "attributes")
        self.airlock("run", "--", "sh", "-ec", script)
        self.assertEqual(self.git("show", "HEAD:crlf.txt"), "a\nb\n")
        self.assertEqual(self.differs(), "more.txt, raw.dat")
        self.assertEqual(self.status(), " M more.txt\n M raw.dat\n")

    def test_S1_10_autocrlf_is_no_difference_and_without_it_line_ends_are_one(self):
        self.git("config", "core.autocrlf", "input")
        self.airlock("run", "--", "sh", "-ec", r"printf 'a\r\nb\r\n' >new; git add -A; git commit -qm c")
        self.assertEqual((self.git("show", "HEAD:new"), self.differs()), ("a\nb\n", ""))
        self.git("config", "core.autocrlf", "false")
        self.airlock("run", "--", "sh", "-ec", r"printf 'x\ny\n' >again; git add -A; git commit -qm d; printf 'x\r\ny\r\n' >again")
        self.assertEqual(self.differs(), "again")

    def test_S1_05_files_that_a_filter_converts_are_said_not_to_be_compared(self):
        """No filter runs for that, whichever configuration names it; what has the commit's bytes is not named."""
        self.write(".gitattributes", "*.bin filter=x\n*.id ident\n*.u working-tree-encoding=UTF-16LE\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "attributes")
        ran = self.top + "/ran"
        for word in ("clean", "smudge", "process"):
            self.git("config", "filter.x." + word, "touch %s; cat" % ran)
        note = " (converted by git, not compared)"
        self.review(r"git config filter.x.clean 'tr a-z A-Z'; echo big >a.bin; echo same >b.bin; echo '$Id$' >c.id; printf 'h\0' >d.u; echo 1 >>file;"
                    r" git add -A; git commit -qm c; git show HEAD:b.bin >b.bin; echo '$Id: 1 $' >c.id; echo 2 >>file")
        self.assertEqual([l for l in self.commit_lines() if l.split()[0] in ("differs", "converted", "mode")],
                         ["converted a.bin", "converted c.id", "converted d.u", "differs file"])
        # The set waits: the attributes that count are those of the workspace.
        self.assertEqual(self.differs(), "a.bin%s, c.id%s, d.u%s, file" % (note, note, note))
        self.assertFalse(os.path.exists(ran))

    def test_S1_10_a_mode_that_only_the_commits_have_is_named(self):
        script = "echo x >x; echo y >y; chmod 755 x; chmod 644 y; chmod +x other; git add -A; git commit -qm c; chmod 644 x other; chmod 755 y"
        self.review(script)
        self.assertEqual([l for l in self.commit_lines() if l.startswith("mode")], ["mode other", "mode x", "mode y"])
        self.assertEqual(self.differs(), "other (mode), x (mode), y (mode)")
        self.apply()
        self.assertEqual(self.status(), " M other\n M x\n M y\n")
        self.assertIn("; the commits have other bytes or modes than the workspace in: other (mode), x (mode), y (mode)", self.err)

    def test_S1_10_a_mode_is_nothing_where_the_host_does_not_keep_it(self):
        self.git("config", "core.fileMode", "false")
        self.review("chmod +x other; git add -A; git commit -qm c; chmod 644 other; echo 1 >>file")
        self.assertEqual(self.commit_lines()[1:][0].split()[-1], "c")
        self.assertEqual(self.differs(), "")

    def test_S1_10_diff_of_many_files_that_differ_is_bounded(self):
        self.review("n=0; while [ $n -lt 600 ]; do n=$((n+1)); echo $n >f$n; done; git add -A; git commit -qm c; for f in f*; do echo x >$f; done;"
                    " git checkout -q file")
        lines = self.commit_lines()
        self.assertEqual((len([l for l in lines if l.startswith("differs ")]), lines[-1]), (200, "... and 400 more files that differ"))

    def test_S1_10_diff_of_many_commits_is_bounded(self):
        self.review("n=0; while [ $n -lt 210 ]; do n=$((n+1)); echo $n >f$n; git add -A; git commit -qm c$n; done; rm f*; git checkout -q file")
        lines = self.commit_lines()
        self.assertEqual((lines[1].split()[-1], lines[200].split()[-1], lines[201]), ("c210", "c11", "... and 10 more commits"))
        self.assertEqual((len([l for l in lines if l.startswith("missing ")]), lines[-1]), (200, "... and 10 more files"))
        self.assertIn("f1, f10, f100, f101, f102, f103, f104, f105, ...", self.said)

    def test_S1_10_branch_that_moved_meanwhile_is_merged(self):
        self.review("sed -i 's/line 2$/TWO/' file; git commit -qam inside")
        self.write("file", LINES.replace("line 18", "eighteen"))
        self.git("commit", "-qam", "host")
        self.apply()
        self.assertIn("merged 1 commit into main", self.err)
        self.assertEqual(self.status(), "")
        self.assertEqual(self.read("file"), LINES.replace("line 18", "eighteen").replace("line 2\n", "TWO\n"))

    def test_F13_history_that_conflicts_is_kept_and_said(self):
        self.review("sed -i 's/line 2$/TWO/' file; git commit -qam inside; echo x >>other")
        self.write("file", LINES.replace("line 2\n", "HOST\n"))
        self.git("commit", "-qam", "host")
        self.apply(code=1)
        ref = "refs/airlock/imported/" + self.run_id
        self.assertIn(ref, self.err)
        self.assertIn("git merge", self.err)
        self.assertEqual(self.git("log", "-1", "--format=%s", ref), "inside\n")
        self.assertEqual(self.git("log", "-1", "--format=%s"), "host\n")
        self.assertEqual(self.letters(), {"file": "U"})
        self.assertEqual(self.read("other"), "other\nx\n")

    def test_F9_hostile_commits_do_not_hold_the_files(self):
        self.review("mkdir -p ~/.local/bin; printf '#!/bin/sh\\ncase $1 in bundle) echo junk;; *) echo 2222222222222222222222222222222222222222;; esac\\n'"
                    ">~/.local/bin/git; chmod +x ~/.local/bin/git; touch .git/x; echo 1 >>file")
        self.assertIn("history: FAILED", self.said)
        self.apply()
        self.assertEqual((self.read("file"), self.runs()[0]["results"]), (LINES + "1\n", "applied"))

    def test_S1_10_discard_of_what_is_left_takes_its_bytes_and_nothing_else(self):
        self.review("echo precious-left-bytes >n; echo taken >other; rm d/deep; git add n; git commit -qm inside")
        self.apply("other")
        before, head = self.tree(), self.git("rev-parse", "main")

        def mark():
            found = set()
            for d, _, files in os.walk(self.state):
                for name in files:
                    if os.path.islink(os.path.join(d, name)):
                        continue
                    with open(os.path.join(d, name), "rb") as f:
                        if b"precious-left-bytes" in f.read():
                            found.add(os.path.relpath(f.name, self.state))
            return found
        self.assertTrue(any("pending" in p for p in mark()))
        for words in (["discard"], ["discard", self.run_id], ["discard", "--yes", self.run_id, self.run_id]):
            self.airlock(*words, code=2)
        self.airlock("discard", "--yes", "nosuchrun", code=125)
        self.assertTrue(any("pending" in p for p in mark()), "dropped by a command that failed")
        self.airlock("discard", "--yes", self.run_id)
        self.assertRegex(self.err, r"waiting: \d+ changed paths? and commits")
        self.assertEqual((self.tree(), self.git("rev-parse", "main")), (before, head))
        # What is left of them is what the run itself recorded: its command line, which had them.
        self.assertEqual({p for p in mark() if not re.search(r"airlock\.db|record\.json|log$", p)}, set())
        self.assertEqual((self.runs()[0]["results"], self.pins()), ("discarded", []))
        self.airlock("discard", "--yes", self.run_id)
        self.assertIn("nothing of run", self.err)
        self.apply()
        self.assertEqual((self.tree(), self.git("rev-parse", "main")), (before, head))

    def test_S1_05_commits_of_files_that_were_rejected(self):
        """They wait alone, and an apply brings them in beside the branch; there was no verb that did, and discard drops the only copy."""
        base = self.git("rev-parse", "main")
        self.airlock("run", "--review", "--strict", "--", "sh", "-c", "echo 1 >>file; git commit -qam one; ln -s /etc/shadow bad", code=125)
        self.assertIn("1 commit for main wait for 'airlock apply'", self.err)
        run = self.runs()[0]
        self.airlock("apply", "--dry-run", run["run"])
        self.assertIn("a dry run", self.err)
        self.airlock("apply", run["run"])
        self.assertIn("refs/airlock/imported/", self.err)
        self.assertEqual(self.git("rev-parse", "main"), base, "a commit must not claim files that are not there")
        self.assertEqual(self.git("for-each-ref", "--format=%(contents:subject)", "refs/airlock/imported").strip(), "one")
        self.airlock("apply", run["run"])
        self.assertIn("nothing of run", self.err)
        # The files are where they were: in the sandbox's storage.
        self.airlock("recover", "--no-strict", run["run"])
        self.airlock("apply", run["run"])
        self.assertEqual(self.read("file"), LINES + "1\n")

    def test_discard_drops_the_commits(self):
        self.review("echo 1 >>file; git commit -qam one")
        self.airlock("discard", "-y", self.run_id)
        self.assertEqual(glob.glob(self.dir + "/*.bundle"), [])
        self.assertEqual((self.status(), self.git("log", "--format=%s")), ("", "first\n"))


class Together(Case):
    def start(self, *words):
        return subprocess.Popen([AIRLOCK, *words], cwd=self.ws, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, p, code=0):
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, code, err)
        return err.decode()

    def lock(self):
        """The lock that every publish takes: the workspace itself."""
        fd = os.open(self.ws, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def waiters(self, n):
        """Until n processes wait for a lock on the workspace."""
        ino, end = os.stat(self.ws).st_ino, time.monotonic() + DEADLINE
        while True:
            with open("/proc/locks") as f:
                if sum("->" in line and (":%d " % ino) in line for line in f) >= n:
                    return
            self.assertLess(time.monotonic(), end, "nobody waits for the lock")
            select.select([], [], [], 0.02)

    def test_I1_two_runs_publish_to_one_workspace_at_once(self):
        fd = self.lock()
        ps = [self.start("run", "-q", "--", "sh", "-c", "echo %d >new%d; sed -i 's/line %d$/L%d/' file" % (i, i, 4 * i, i))
              for i in (1, 2, 3, 4)]
        self.waiters(4)
        self.assertEqual(self.status(), "", "nothing while another holds the lock")
        os.close(fd)
        for p in ps:
            self.end(p)
        want = LINES
        for i in (1, 2, 3, 4):
            self.assertEqual(self.read("new%d" % i), "%d\n" % i)
            want = want.replace("line %d\n" % (4 * i), "L%d\n" % i)
        self.assertEqual(self.read("file"), want)

    def test_I1_two_runs_in_conflict_lose_nothing(self):
        fd = self.lock()
        ps = [self.start("run", "-q", "--", "sh", "-c", "echo %d >other" % i) for i in (1, 2)]
        self.waiters(2)
        os.close(fd)
        errs = [self.end(p) for p in ps]
        here = self.read("other").strip()
        kept = []
        for name in glob.glob(self.state + "/runs/*/conflicts/sandbox/other"):
            with open(name) as f:
                kept.append(f.read().strip())
        self.assertEqual({here, *kept}, {"1", "2"}, errs)

    def test_I1_two_applies_of_one_run_at_once(self):
        self.review("echo 1 >>file; rm other; echo n >n; git commit -qam inside")
        fd = self.lock()
        a = self.start("apply", self.run_id)
        self.waiters(1)
        b = self.start("apply", self.run_id)
        os.close(fd)
        errs = [self.end(p) for p in (a, b)]
        self.assertEqual((self.read("file"), self.read("n"), self.has("other")), (LINES + "1\n", "n\n", False))
        self.assertEqual(self.git("log", "--format=%s"), "inside\nfirst\n", errs)
        self.assertEqual(self.runs()[0]["results"], "applied")

    def test_I1_two_applies_of_two_runs_and_a_run_at_once(self):
        self.review("sed -i 's/line 2$/TWO/' file; echo a >a")
        one = self.run_id
        self.review("sed -i 's/line 10$/TEN/' file; echo b >b")
        two = self.run_id
        fd = self.lock()
        ps = [self.start("apply", one), self.start("apply", two),
              self.start("run", "-q", "--", "sh", "-c", "sed -i 's/line 18$/END/' file; echo c >c")]
        self.waiters(3)
        os.close(fd)
        for p in ps:
            self.end(p)
        self.assertEqual(self.read("file"), LINES.replace("line 2\n", "TWO\n").replace("line 10", "TEN").replace("line 18", "END"))
        self.assertEqual([self.read(n) for n in "abc"], ["a\n", "b\n", "c\n"])
        self.assertEqual([r["results"] for r in self.runs()], ["published", "applied", "applied"])

    @staticmethod
    def kill(p):
        """With its helper, which would finish, and which it would start anew."""
        p.send_signal(signal.SIGSTOP)
        with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
            for child in f.read().split():
                os.kill(int(child), signal.SIGKILL)
        p.kill()
        p.communicate()

    def cut_apply(self):
        """Killed when it has published some of many-*."""
        end = time.monotonic() + DEADLINE
        p = self.start("apply", self.run_id)
        while p.poll() is None and not os.path.exists(self.ws + "/many-1"):
            self.assertLess(time.monotonic(), end)
            select.select([], [], [], 0.001)
        self.kill(p)

    def test_I6_S1_06_an_apply_that_is_killed_is_finished_by_the_next(self):
        self.review("for i in $(seq 1 400); do echo $i >many-$i; done; echo 1 >>file; git add -A; git commit -qm all")
        self.cut_apply()
        self.apply()
        self.assertEqual(len(glob.glob(self.ws + "/many-*")), 400)
        self.assertEqual((self.status(), self.runs()[0]["results"]), ("", "applied"))
        self.assertEqual(self.git("log", "-1", "--format=%s"), "all\n")
        self.assertEqual(self.staged(), [])

    def staged(self):
        return glob.glob(self.ws + "/.git/airlock-staging*")

    def test_I6_S1_10_discard_clears_what_a_killed_apply_staged(self):
        self.review("echo 1 >>file; echo new >new")
        fd = self.lock()
        p = self.start("apply", self.run_id)
        self.waiters(1)
        self.kill(p)
        os.close(fd)
        self.assertEqual(len(self.staged()), 1)
        self.airlock("discard", "--yes", self.run_id)
        self.assertEqual((self.staged(), self.status(), self.runs()[0]["results"]), ([], "", "discarded"))

    def test_I6_S1_10_discard_finishes_what_a_killed_apply_had_promised(self):
        self.review("for i in $(seq 1 3000); do echo $i >many-$i; done; echo 1 >>file")
        self.cut_apply()
        self.assertEqual(len(self.staged()), 1)
        self.airlock("discard", "--yes", self.run_id, code=125)
        self.assertIn("was finished first: nothing was dropped", self.err)
        self.assertEqual((self.staged(), len(glob.glob(self.ws + "/many-*"))), ([], 3000))
        self.assertEqual(self.read("file"), LINES + "1\n")
        self.airlock("discard", "--yes", self.run_id)
        self.assertEqual((len(glob.glob(self.ws + "/many-*")), self.runs()[0]["results"]), (3000, "discarded"))


if __name__ == "__main__":
    become()
    del sys.argv[1:3]
    unittest.main()
