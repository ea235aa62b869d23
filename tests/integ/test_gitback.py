#!/usr/bin/env python3
"""Commits made in a sandbox come back (S1-05, S1-10, section F of the sync cases), with the real programs.

usage: test_gitback.py AIRLOCK [--long] [unittest arguments]

Names carry the case ids. Where the host must act while the command runs, the command waits for a line.
"""
import glob, hashlib, json, os, shutil, signal, struct, subprocess, sys, threading, unittest, zlib

import scratch

LONG = "--long" in sys.argv
AIRLOCK = os.path.abspath(sys.argv[1])
# Of what is tried at each of git's calls, each third one; all of them in the long suite.
STEP = 1 if LONG else 3
DEADLINE = 120
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C",
         "GIT_AUTHOR_NAME": "Host", "GIT_AUTHOR_EMAIL": "h@example.org",
         "GIT_COMMITTER_NAME": "Host", "GIT_COMMITTER_EMAIL": "h@example.org"}
LINES = "".join("line %d\n" % i for i in range(1, 21))
WAIT = "echo ready; read go; "
# A git of the sandbox's own: what it answers is the attack.
FAKE = """mkdir -p ~/.local/bin; cat >~/.local/bin/git <<'END'
#!/bin/sh
case $1 in
bundle) cat /workspace/evil ;;
rev-parse|rev-list) echo 2222222222222222222222222222222222222222 ;;
esac
END
chmod +x ~/.local/bin/git; touch .git/touched; echo new >file
"""


def sh(*lines):
    return "set -e; " + "; ".join(lines)


class Case(unittest.TestCase):
    policy = None

    def setUp(self):
        signal.signal(signal.SIGALRM, self.late)
        signal.alarm(5 * DEADLINE)
        self.top = scratch.directory(prefix="airlock-gitback-")
        os.chmod(self.top, 0o755)
        self.ws = os.path.join(self.top, "ws")
        os.mkdir(self.ws)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "LD_", "GIT_"))}
        self.env.update(PLAIN)
        self.env["XDG_STATE_HOME"] = os.path.join(self.top, "state")
        self.env["HOME"] = os.path.join(self.top, "home")
        os.mkdir(self.env["HOME"])
        self.repo()

    def repo(self):
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Inside")
        self.git("config", "user.email", "i@example.org")
        self.write("file", LINES)
        self.write("other", "other\n")
        self.write("d/deep", "deep\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        self.base = self.rev("HEAD")

    def late(self, signo, frame):
        raise AssertionError("the test did not end in time")

    def tearDown(self):
        signal.alarm(0)
        subprocess.run([AIRLOCK, "rm", "--all", "--force"], env=self.env, cwd=self.top, capture_output=True)
        shutil.rmtree(self.top, ignore_errors=True)

    def write(self, name, text):
        p = os.path.join(os.fsencode(self.ws), os.fsencode(name))
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())

    def read(self, name):
        with open(os.path.join(self.ws, name)) as f:
            return f.read()

    def git(self, *a, cwd=None, ok=True, **kw):
        r = subprocess.run(["git", *a], cwd=cwd or self.ws, env=self.env, capture_output=True, **kw)
        if ok:
            self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout.decode(errors="surrogateescape").strip()

    def rev(self, name):
        return self.git("rev-parse", "--verify", "-q", name, ok=False)

    def refs(self):
        return dict(reversed(line.split(" ")) for line in
                    self.git("for-each-ref", "--format=%(objectname) %(refname)").split("\n") if line)

    def status(self):
        return self.git("status", "--porcelain", "--untracked-files=all")

    def sandbox(self, script, host=None, opts=(), code=0, env=None):
        """Runs it; host() is called when the command says it is ready. Returns the record."""
        record = os.path.join(self.top, "record")
        cmd = [AIRLOCK, "run", "--provider", "native", "--json=" + record, *opts, "--", "sh", "-c", script]
        p = subprocess.Popen(cmd, cwd=self.ws, env=env or self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        try:
            if host:
                self.assertEqual(p.stdout.readline(), b"ready\n", "the command did not begin")
                host()
            out, self.err = p.communicate(b"go\n", timeout=DEADLINE)
        finally:
            p.kill()
            p.wait()
        self.err = self.err.decode(errors="replace")
        self.assertEqual(p.returncode, code, self.err)
        with open(record) as f:
            self.record = json.load(f)
        return self.record

    def history(self, outcome, **fields):
        h = self.record["history"]
        self.assertIsNotNone(h, self.err)
        self.assertEqual(h["outcome"], outcome, (h, self.err))
        # Silence where nothing happened and there is no reason to tell.
        self.assertEqual("history: " in self.err, outcome != "none" or h["why"] != "", (h, self.err))
        for k, v in fields.items():
            self.assertEqual(h[k], v, h)
        return h

    def imported(self, outcome, commits=None):
        """The imported ref is there, holds what the sandbox had, and main did not move by us."""
        h = self.history(outcome)
        self.assertEqual(h["ref"], "refs/airlock/imported/" + self.record["run"])
        self.assertEqual(self.rev(h["ref"]), h["head"])
        if commits is not None:
            self.assertEqual(h["commits"], commits)
        self.assertIn(h["ref"], self.err)
        self.git("fsck", "--strict", "--connectivity-only", h["ref"])
        return h

    def nothing_left(self):
        self.assertFalse([r for r in self.refs() if r.startswith("refs/airlock")])
        run = os.path.join(self.env["XDG_STATE_HOME"], "airlock/runs", self.record["run"])
        self.assertFalse({"quarantine", "commits.bundle"} & set(os.listdir(run)))
        self.git("fsck", "--strict")

    def commit_on_host(self, text, name="file", message="host"):
        self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)


class Forward(Case):
    def test_F11_linear_commits_fast_forward(self):
        self.sandbox(sh("sed -i 's/line 3$/LINE 3/' file", "git commit -qam two", "rm other", "mkdir n; echo n >n/n",
                        "chmod +x d/deep", "git add -A", "git commit -qm three", "echo dirty >>file"))
        self.history("fast_forwarded", commits=2, branch="refs/heads/main", ref="", head=self.rev("main"))
        self.assertEqual(self.git("log", "--format=%s %an"), "three Inside\ntwo Inside\nfirst Host")
        self.assertEqual(self.status(), "M file")
        self.assertIn("history: fast-forwarded 2 commits on main", self.err)
        self.assertIn("airlock: run " + self.record["run"], self.git("reflog", "-1", "main"))
        self.assertIn("history", [p["name"] for p in self.record["phases"]])
        self.nothing_left()

    def test_files_that_only_the_commits_have_are_named(self):
        self.write(".gitignore", "*.log\n")
        self.sandbox("echo k >gone; echo l >kept.log; echo s >stays; git add -Af; git commit -qm two; rm gone d/deep")
        self.history("fast_forwarded", commits=1, missing="gone, kept.log")
        self.assertIn("on main; the commits have files that the workspace has not: gone, kept.log\n", self.err)
        self.assertEqual(self.status(), "D d/deep\n D gone\n D kept.log")

    def racy(self):
        """Files as young as the index: git opens them when it writes that. Their time."""
        at = 1700000000
        for name in "/file", "/other", "/d/deep":
            os.utime(self.ws + name, (at, at))
        self.git("update-index", "--refresh")
        os.utime(self.ws + "/.git/index", (at, at))
        return at

    def test_S1_05_no_filter_runs_when_the_index_follows(self):
        ran = self.top + "/ran"
        self.git("config", "filter.rot.clean", "touch %s; cat" % ran)
        at = self.racy()
        self.sandbox("echo '* filter=rot' >.gitattributes; git config filter.rot.clean cat; echo 1 >>d/deep; git add -A; git commit -qm two")
        self.history("fast_forwarded", commits=1)
        self.assertFalse(os.path.exists(ran))
        # What git would have looked at then it looks at later: an edit of that second is no less seen.
        self.git("config", "--unset", "filter.rot.clean")
        self.write("file", LINES.replace("line 3", "LINE 3"))
        os.utime(self.ws + "/file", (at, at))
        self.assertEqual(self.status(), "M file")

    def test_no_git_waits_in_a_FIFO_where_attributes_belong(self):
        self.racy()
        os.mkfifo(self.ws + "/.gitattributes")
        os.mkfifo(self.ws + "/d/.gitattributes")
        self.sandbox("echo 1 >>d/deep; git commit -qam two; echo 2 >>d/deep")
        self.history("fast_forwarded", commits=1, differs="d/deep")
        self.assertEqual([c["reason"] for c in self.record["sync_in"]["held_back"]], ["fifo", "fifo"])

    def test_nothing_is_asked_when_git_was_not_touched(self):
        self.sandbox("echo 1 >>file")
        self.assertIsNone(self.record["history"])
        self.assertNotIn("history", self.err)

    def test_head_that_did_not_move_is_none(self):
        self.sandbox("touch file; git add file; git update-index --refresh; touch .git/x")
        self.history("none", commits=0, ref="", head="")
        self.assertEqual(self.rev("main"), self.base)

    def test_edit_of_the_same_length_in_the_second_of_the_index_is_seen(self):
        at = self.racy()
        self.sandbox("sed -i 's/line 3$/inside/' file; touch -d @%d file; git commit -qam two" % at)
        self.history("fast_forwarded")
        self.assertIn("inside", self.git("show", "main:file"))

    def test_many_objects_come_as_one_pack(self):
        self.sandbox(sh("for i in $(seq 150); do echo $i >n$i; done", "git add .", "git commit -qm many"))
        self.history("fast_forwarded")
        self.assertTrue([f for f in os.listdir(self.ws + "/.git/objects/pack") if f.endswith(".pack")])
        self.assertEqual(self.status(), "")
        self.nothing_left()

    def test_git_none_sends_none_and_asks_none(self):
        self.sandbox("git init -q . && touch .git/x", opts=["--git", "none"])
        self.assertIsNone(self.record["history"])

    def test_kept_sandbox_gives_each_commit_once(self):
        self.sandbox("echo 1 >>file; git commit -qam two", opts=["--keep"])
        self.history("fast_forwarded", commits=1)
        run = self.record["run"]
        for n, word in ((2, "three"), (3, "four")):
            r = subprocess.run([AIRLOCK, "exec", run, "--", "sh", "-c", "echo %d >new%d; git add .; git commit -qam %s" % (n, n, word)],
                               cwd=self.ws, env=self.env, capture_output=True, timeout=DEADLINE)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn(b"history: fast-forwarded 1 commit on main", r.stderr)
            self.assertEqual(self.git("log", "-1", "--format=%s"), word)
            self.assertEqual(self.status(), "")

    def test_F19_first_commit_of_an_empty_repository(self):
        shutil.rmtree(self.ws + "/.git")
        self.git("init", "-q", "-b", "trunk")
        self.git("config", "user.name", "Inside")
        self.git("config", "user.email", "i@example.org")
        self.sandbox("git add -A; git commit -qm first")
        self.history("fast_forwarded", commits=1, branch="refs/heads/trunk")
        self.assertEqual(self.git("log", "--format=%s", "trunk"), "first")
        self.assertEqual(self.status(), "")
        self.nothing_left()

    def test_F19_not_over_a_first_commit_of_the_host(self):
        shutil.rmtree(self.ws + "/.git")
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Inside")
        self.git("config", "user.email", "i@example.org")
        self.sandbox(WAIT + "git add -A; git commit -qm inside", host=lambda: self.commit_on_host("x\n"))
        self.imported("conflict", 1)
        self.assertEqual(self.git("log", "--format=%s", "main"), "host")

    def test_F20_linked_work_tree(self):
        tree = self.top + "/linked"
        self.git("worktree", "add", "-q", "-b", "side", tree)
        home, self.ws = self.ws, tree
        self.sandbox("echo 1 >>file; git commit -qam two")
        self.history("fast_forwarded", branch="refs/heads/side")
        self.assertEqual(self.status(), "")
        self.assertEqual(self.rev("main"), self.base)
        self.ws = home
        self.assertEqual(self.status(), "")

    def test_F20_sparse_checkout_keeps_what_it_leaves_out(self):
        self.git("update-index", "--skip-worktree", "d/deep")
        os.unlink(self.ws + "/d/deep")
        self.sandbox("echo 1 >>file; git commit -qam two", opts=[])
        self.history("fast_forwarded")
        self.assertEqual(self.git("ls-tree", "--name-only", "-r", "main"), "d/deep\nfile\nother")
        self.assertEqual(self.git("ls-files", "-t", "d/deep"), "S d/deep")
        self.assertEqual(self.status(), "")

    def test_F20_entry_that_history_changed_stays_left_out(self):
        def host():
            self.git("update-index", "--skip-worktree", "d/deep")
            os.unlink(self.ws + "/d/deep")
        self.sandbox(WAIT + "echo 2 >d/deep; git commit -qam two; rm d/deep", host=host)
        self.history("fast_forwarded")
        self.assertEqual(self.git("ls-files", "-t", "d/deep"), "S d/deep")
        self.assertEqual(self.git("ls-files", "-s", "d/deep").split()[1], self.rev("main:d/deep"))

    def test_F23_what_is_staged_stays_staged(self):
        self.write("other", "staged\n")
        self.git("add", "other")
        self.write("added", "a\n")
        self.git("add", "added")
        before = self.git("ls-files", "-s", "other", "added")
        self.sandbox("echo 1 >>file; git commit -qm two file")
        self.history("fast_forwarded")
        self.assertEqual(self.git("ls-files", "-s", "other", "added"), before)
        self.assertEqual(self.status(), "A  added\nM  other")

    def test_F23_path_that_both_touched_keeps_the_staged_state(self):
        self.write("other", "staged\n")
        self.git("add", "other")
        staged = self.git("ls-files", "-s", "other")
        self.sandbox("git checkout -q -- other; echo inside >other; echo 1 >>file; git commit -qam two")
        self.history("fast_forwarded")
        self.assertEqual(self.git("ls-files", "-s", "other"), staged)
        self.assertNotIn("file", self.status())

    def test_F23_staged_file_in_the_way_of_a_directory_stays(self):
        def host():
            self.write("name", "staged\n")
            self.git("add", "name")
        self.sandbox(WAIT + "mkdir name; echo 1 >name/x; git add -A; git commit -qm two", host=host)
        self.history("fast_forwarded")
        self.assertEqual(self.git("ls-files", "name"), "name")

    def test_file_to_directory_and_back(self):
        self.sandbox(sh("rm other", "mkdir other", "echo 1 >other/x", "rm -r d", "echo 2 >d", "git add -A",
                        "git commit -qm swap"))
        self.history("fast_forwarded")
        self.assertEqual(self.status(), "")
        self.assertEqual(self.git("ls-files"), "d\nfile\nother/x")

    def test_FRB052_repository_of_another_owner(self):
        if os.geteuid() != 0:
            self.skipTest("giving a file away needs root")
        subprocess.run(["chown", "-R", "20001:20001", self.ws], check=True)
        self.sandbox("echo 1 >>file; git commit -qam two")
        self.history("fast_forwarded", commits=1)
        self.assertFalse(os.path.exists(self.env["HOME"] + "/.gitconfig"))

    def test_sha256_repository(self):
        shutil.rmtree(self.ws + "/.git")
        self.git("init", "-q", "-b", "main", "--object-format=sha256")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        self.sandbox("git -c user.name=I -c user.email=i@x commit -q --allow-empty -m two; echo 1 >>file; "
                     "git -c user.name=I -c user.email=i@x commit -qam three")
        self.history("fast_forwarded", commits=2)
        self.assertEqual(len(self.rev("main")), 64)
        self.assertEqual(self.status(), "")


class Others(Case):
    def kept(self):
        f = os.path.join(self.env["XDG_STATE_HOME"], "airlock/runs", self.record["run"], "others.bundle")
        self.assertEqual(self.record["history"]["others"], "kept", self.err)
        self.assertIn(f, self.err)
        self.assertEqual(os.stat(f).st_mode & 0o777, 0o600)
        return f

    def test_other_branch_and_stash_are_kept_beside_the_run(self):
        self.sandbox(sh("git checkout -q -b topic", "echo 1 >>file", "git commit -qam topic", "git checkout -q main",
                        "echo 2 >>other", "git stash -q", "echo 3 >>d/deep", "git commit -qam inside"))
        self.history("fast_forwarded", commits=1)
        f = self.kept()
        self.assertEqual(set(self.refs()), {"refs/heads/main"})
        self.git("-c", "fetch.fsckObjects=true", "fetch", "-q", f, "refs/heads/topic:refs/heads/got", "refs/stash:refs/kept/stash")
        self.assertEqual(self.git("show", "got:file") + "\n", LINES + "1\n")
        self.assertEqual(self.git("show", "refs/kept/stash:other"), "other\n2")

    def test_head_that_did_not_move_still_gives_the_others(self):
        self.sandbox(sh("git checkout -q -b topic", "echo 1 >>file", "git commit -qam topic", "git checkout -q main"))
        self.history("none")
        self.kept()

    def test_others_of_a_full_history_are_what_is_new(self):
        """The host's own branches, tags and remotes are inside too: they do not come back as if they were made there."""
        self.git("checkout", "-q", "-b", "mine")
        self.commit_on_host("mine\n", "mine")
        self.git("update-ref", "refs/remotes/origin/far", self.git("commit-tree", "-p", "main", "-m", "far", "main^{tree}"))
        self.git("tag", "-a", "-m", "t", "v1", "mine")
        self.git("checkout", "-q", "main")
        self.sandbox("git branch far origin/far; git checkout -q mine; git checkout -q main; echo 1 >>file; git commit -qam inside",
                     opts=["--git", "full"])
        self.assertEqual(self.history("fast_forwarded", commits=1)["others"], "none")
        self.sandbox(sh("git checkout -q mine", "echo 2 >>mine", "git commit -qam more", "git checkout -q main",
                        "echo 2 >>other", "git stash -q"), opts=["--git", "full"])
        self.history("none")
        f = self.kept()
        heads = self.git("bundle", "list-heads", f)
        self.assertEqual({line.split(" ")[1] for line in heads.split("\n")}, {"refs/heads/mine", "refs/stash"})
        self.assertIn("requires", self.git("bundle", "verify", f))
        self.git("-c", "fetch.fsckObjects=true", "fetch", "-q", f, "refs/heads/mine:refs/heads/got")
        self.assertEqual(self.git("show", "got:mine"), "mine\n2")

    def test_F17_others_that_cannot_be_packed_are_told_with_gits_words(self):
        self.sandbox(sh("git checkout -q -b topic", "echo lost >>file", "git commit -qam topic", "b=$(git rev-parse HEAD:file)",
                        "git checkout -q main", "cd .git/objects/${b%${b#??}}", "rm -f ${b#??}"))
        h = self.history("none")
        self.assertEqual(h["others"], "failed")
        self.assertRegex(h["others_why"], r"^git inside failed \(status \d+\): (fatal|error): ")
        self.assertIn("could not be packed: " + h["others_why"], self.err)

    def test_F17_a_host_repository_that_cannot_be_packed_is_told_with_gits_words(self):
        """They quote what git met, in one line that is safe for a terminal; the files are sent all the same."""
        blob = self.rev("HEAD:file")
        odd = os.path.join(self.top, "ws\x1b[31m\n2")
        os.rename(self.ws, odd)
        self.ws = odd
        path = os.path.join(odd, ".git/objects", blob[:2], blob[2:])
        os.chmod(path, 0o644)
        with open(path, "wb") as f:
            f.write(b"junk")
        self.sandbox("echo 1 >>file")
        note, = self.record["sync_in"]["held_back"]
        self.assertEqual((note["path"], note["reason"]), (".git", "git_failed"))
        self.assertRegex(note["detail"], r"^git pack-objects in .* failed \(status \d+\): fatal: .*%s" % blob[2:])
        line, = [x for x in self.err.split("\n") if "history was not" in x]
        self.assertRegex(line, r"history was not \(git pack-objects in .*fatal: .*%s.*\)$" % blob[2:])
        self.assertNotIn("\x1b", self.err)
        self.assertEqual(self.read("file"), LINES + "1\n")

    def test_branches_that_head_contains_are_no_others(self):
        self.sandbox("git checkout -q -b topic; echo 1 >>file; git commit -qam topic; git tag t")
        self.assertEqual(self.history("fast_forwarded")["others"], "none")


class HostMovedOn(Case):
    def test_F12_different_hunks_are_merged(self):
        self.sandbox(WAIT + "sed -i 's/line 3$/inside/' file; echo n >new; git add -A; git commit -qm inside",
                     host=lambda: self.commit_on_host(LINES.replace("line 18\n", "host\n")))
        self.history("merged", commits=1, ref="")
        text = LINES.replace("line 18\n", "host\n").replace("line 3\n", "inside\n")
        self.assertEqual(self.read("file"), text)
        self.assertEqual(self.git("show", "main:file") + "\n", text)
        self.assertEqual(self.status(), "")
        self.assertEqual(self.git("log", "--first-parent", "--format=%s %an", "-2").split("\n")[1], "host Host")
        self.assertEqual(self.git("log", "-1", "--format=%an <%ae>"), "Airlock <airlock@localhost>")
        self.assertEqual(self.git("log", "-1", "--format=%s", "main^2"), "inside")
        self.nothing_left()

    def test_F12_path_of_the_host_alone_keeps_its_bytes(self):
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside",
                     host=lambda: self.commit_on_host("host\n", name="other"))
        self.history("merged")
        self.assertEqual((self.read("other"), self.git("show", "main:other")), ("host\n", "host"))
        self.assertEqual(self.status(), "")

    def test_F13_same_hunk_is_a_conflict_and_nothing_is_lost(self):
        self.sandbox(WAIT + "sed -i 's/line 3$/inside/' file; git commit -qam inside",
                     host=lambda: self.commit_on_host(LINES.replace("line 3\n", "host\n")))
        h = self.imported("conflict", 1)
        self.assertIn("both sides changed", h["why"])
        self.assertEqual(self.git("log", "--format=%s", "main"), "host\nfirst")
        self.assertIn("host\n", self.read("file"))
        self.assertIn("inside", self.git("show", h["ref"] + ":file"))
        self.assertEqual(self.record["sync_out"]["counts"]["conflict"], 1)
        self.assertEqual(self.status(), "")

    def test_F15_amended_boundary_is_only_imported(self):
        self.sandbox(WAIT + "echo 1 >>file; git commit -qa --amend -m amended",
                     host=lambda: self.commit_on_host("host\n", name="hostfile"))
        h = self.imported("imported", 1)
        self.assertIn("rewritten inside", h["why"])
        self.assertEqual(self.git("show", "main:hostfile"), "host")
        self.assertEqual(self.git("log", "--format=%s", "main"), "host\nfirst")
        self.assertEqual(self.git("log", "-1", "--format=%s", h["ref"]), "amended")

    def test_F15_amended_boundary_of_a_full_history(self):
        self.commit_on_host("2\n", name="second")
        base = self.rev("main")
        self.sandbox("echo 1 >>file; git commit -qa --amend -m amended", opts=["--git", "full"])
        self.imported("imported", 1)
        self.assertEqual(self.rev("main"), base)

    def test_F15_host_amended_meanwhile(self):
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside",
                     host=lambda: self.git("commit", "-q", "--amend", "-m", "amended"))
        h = self.imported("conflict", 1)
        self.assertIn("rewritten here", h["why"])
        self.assertEqual(self.git("log", "--format=%s", "main"), "amended")

    def test_F16_rewound_head_moves_nothing(self):
        self.commit_on_host("2\n", name="second")
        base = self.rev("main")
        self.sandbox("git reset -q --hard HEAD^", opts=["--git", "full"])
        self.assertIn("moved back", self.history("none", ref="")["why"])
        self.assertEqual(self.rev("main"), base)

    def test_F16_orphan_branch_is_only_imported(self):
        self.sandbox("git checkout -q --orphan new; echo 1 >>file; git add -A; git commit -qm orphan")
        self.imported("imported", 1)
        self.assertEqual(self.rev("main"), self.base)

    def test_F16_head_deleted(self):
        self.sandbox("git update-ref -d HEAD; echo 1 >>file")
        self.assertIn("names no commit", self.history("failed")["why"])
        self.assertEqual(self.rev("main"), self.base)
        self.assertEqual(self.read("file"), LINES + "1\n")

    def test_F16_new_repository_inside_is_only_imported(self):
        self.sandbox("rm -rf .git; git init -q -b main; git add -A; git -c user.name=I -c user.email=i@x commit -qm new")
        self.imported("imported")
        self.assertEqual(self.rev("main"), self.base)

    def test_detached_head_is_only_imported(self):
        self.git("checkout", "-q", "--detach")
        self.sandbox("echo 1 >>file; git commit -qam inside")
        self.assertIn("detached", self.imported("imported", 1)["why"])
        self.assertEqual(self.rev("HEAD"), self.base)

    def test_other_branch_checked_out_only_the_recorded_ref_moves(self):
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside", host=lambda: self.git("checkout", "-q", "-b", "work"))
        self.history("fast_forwarded", branch="refs/heads/main")
        self.assertEqual(self.git("log", "-1", "--format=%s", "main"), "inside")
        self.assertEqual(self.rev("work"), self.base)
        self.assertEqual(self.git("ls-files", "-s", "file").split()[1], self.rev("work:file"))
        self.assertEqual(self.status(), "M file")

    def test_branch_of_another_work_tree_is_left(self):
        def host():
            self.git("checkout", "-q", "-b", "work")
            self.git("worktree", "add", "-q", self.top + "/second", "main")
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside", host=host)
        self.assertIn("another work tree", self.imported("conflict", 1)["why"])
        self.assertEqual(self.git("status", "--porcelain", cwd=self.top + "/second"), "")

    def test_merge_in_progress_is_left(self):
        def host():
            self.git("checkout", "-q", "-b", "side")
            self.commit_on_host("side\n", name="sidefile")
            self.git("checkout", "-q", "main")
            self.git("merge", "-q", "--no-ff", "--no-commit", "side")
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside", host=host)
        self.assertIn("in progress", self.imported("conflict", 1)["why"])
        self.git("commit", "-q", "--no-edit")
        self.assertEqual(self.git("show", "main:sidefile"), "side")

    def test_index_in_use_moves_nothing(self):
        for text in "", "air":
            with open(self.ws + "/.git/index.lock", "w") as f:
                f.write(text)
            self.sandbox("echo 1 >>file; git commit -qam inside")
            why = self.imported("conflict", 1)["why"]
            self.assertIn(".git/index.lock is held by another git", why)
            self.assertIn("within 5 s", why)
            self.assertEqual(self.rev("main"), self.base)
            with open(self.ws + "/.git/index.lock") as f:
                self.assertEqual(f.read(), text)
            self.git("checkout", "-q", "--", "file", ok=False)

    def test_a_lock_that_a_killed_one_left_goes_with_the_next_word(self):
        lock = self.ws + "/.git/index.lock"
        left = "airlock brings commits back and holds the index; after a crash 'airlock recover' lets go of it\n"

        def airlock(*words, code=0):
            r = subprocess.run([AIRLOCK, *words], cwd=self.ws, env=self.env, capture_output=True, stdin=subprocess.DEVNULL, timeout=DEADLINE)
            self.assertEqual(r.returncode, code, r.stderr)

        def review():
            self.sandbox("echo 1 >>file", opts=["--review"])
            return self.record["run"]
        for say, text in ("ours", left), ("git's", ""), ("git's", "air"):
            for n, (words, code) in enumerate(((lambda: ("recover", "./"), 0), (lambda: ("recover", review()), 125), (lambda: ("discard", "--yes", review()), 0),
                                               (lambda: ("apply", review()), 0), (lambda: ("run", "--", "true"), 0),
                                               (lambda: ("rm", "--force", review()), 0))):
                with self.subTest(whose=say, n=n):
                    words = words()
                    with open(lock, "w") as f:
                        f.write(text)
                    airlock(*words, code=code)
                    there = os.path.exists(lock)
                    if there:
                        os.unlink(lock)
                    self.assertEqual(there, text != left)

    def test_index_in_use_for_a_moment_is_waited_for(self):
        lock = self.ws + "/.git/index.lock"

        def host():
            open(lock, "w").close()
            late = threading.Timer(2, os.unlink, [lock])
            late.start()
            self.addCleanup(late.join)
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside", host=host)
        self.history("fast_forwarded", commits=1)
        self.assertEqual(self.status(), "")
        self.nothing_left()

    def test_index_that_is_a_link_is_locked_where_it_lies(self):
        os.rename(self.ws + "/.git/index", self.top + "/index")
        os.symlink(self.top + "/index", self.ws + "/.git/index")
        self.sandbox("echo 1 >>file; git commit -qam inside")
        self.history("fast_forwarded", commits=1)
        self.assertEqual(self.status(), "")
        self.assertTrue(os.path.islink(self.ws + "/.git/index"))
        self.assertFalse(glob.glob(self.top + "/index.*"))

    def test_branch_deleted_here_stays_deleted(self):
        def host():
            self.git("checkout", "-q", "-b", "work")
            self.git("branch", "-q", "-D", "main")
        self.sandbox(WAIT + "echo 1 >>file; git commit -qam inside", host=host)
        self.imported("imported", 1)
        self.assertNotIn("refs/heads/main", self.refs())

    def test_commits_that_are_here_already_are_none(self):
        self.sandbox("echo 1 >>file; git commit -qam two", opts=["--keep"])
        self.commit_on_host("host\n", name="later")
        tip = self.rev("main")
        r = subprocess.run([AIRLOCK, "exec", self.record["run"], "--", "sh", "-c", "true"], cwd=self.ws, env=self.env,
                           capture_output=True, timeout=DEADLINE)
        self.assertIn(b"history: none: the branch has the commits already", r.stderr)
        self.assertEqual(self.rev("main"), tip)


class Names(Case):
    def test_F27_odd_branch_names(self):
        for name in ("-x", "a b$(touch pwned)".replace(" ", "_"), "\udcff\udcfe", "x;y", "\u00e4/\u00f6"):
            with self.subTest(name=name):
                ref = "refs/heads/" + name
                self.git("update-ref", ref, self.base)
                self.git("symbolic-ref", "HEAD", ref)
                self.git("reset", "-q", "--hard")
                self.sandbox("echo 1 >>file; git commit -qam inside")
                self.history("fast_forwarded", commits=1)
                self.assertEqual(self.git("log", "-1", "--format=%s"), "inside")
                self.assertEqual(self.git("symbolic-ref", "HEAD"), ref)
                self.assertEqual(self.status(), "")

    def test_F27_branch_names_of_the_sandbox_never_come(self):
        self.sandbox("git checkout -q -b evil; git update-ref refs/heads/-evil HEAD; git tag v9; echo 1 >>file; "
                     "git commit -qam inside; git update-ref refs/airlock/imported/x HEAD")
        self.history("fast_forwarded", branch="refs/heads/main")
        self.assertEqual(set(self.refs()), {"refs/heads/main"})

    def test_F27_huge_message_and_foreign_author(self):
        self.sandbox(sh("head -c 65536 /dev/zero | tr '\\0' x >/tmp/m", "printf '\\n\\n\\033[31m\\377' >>/tmp/m",
                        "echo 1 >>file", "git add -A",
                        "GIT_AUTHOR_NAME=$(printf '\\377-x') git -c i18n.commitEncoding=latin1 commit -q -F /tmp/m",
                        "echo 2 >>file", "git commit -qam next"))
        self.history("fast_forwarded", commits=2)
        self.assertGreater(len(self.git("log", "--format=%B", "-1", "main^")), 65536)
        self.nothing_left()


def pack(*objects):
    """A pack of (type, bytes)."""
    kinds = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
    out = b"PACK" + struct.pack(">II", 2, len(objects))
    for kind, data in objects:
        n, first = len(data), True
        byte = kinds[kind] << 4 | n & 15
        n >>= 4
        while n:
            out += bytes([byte | 0x80])
            byte, n = n & 0x7f, n >> 7
        out += bytes([byte]) + zlib.compress(data)
    return out + hashlib.sha1(out).digest()


def oid(kind, data):
    return hashlib.sha1(("%s %d" % (kind, len(data))).encode() + b"\0" + data).hexdigest()


class Hostile(Case):
    def bundle(self, text, packed):
        self.write("evil", text.encode() + packed)

    def commit(self, tree, parent=None, extra=b""):
        parent = self.base if parent is None else parent
        who = b"E <e@example.org> 1700000000 +0000"
        return (b"tree " + tree.encode() + b"\n" + (b"parent " + parent.encode() + b"\n" if parent else b"") +
                b"author " + who + b"\ncommitter " + who + b"\n" + extra + b"\nevil\n")

    def refused(self, word):
        refs = self.refs()
        before = self.objects()
        self.sandbox(FAKE)
        h = self.history("failed", ref="")
        self.assertIn(word, h["why"])
        self.assertEqual(self.refs(), refs)
        self.assertEqual(self.objects(), before)
        self.assertEqual(self.read("file"), "new\n", "files do not depend on history")
        # What was refused is kept for a look.
        run = os.path.join(self.env["XDG_STATE_HOME"], "airlock/runs", self.record["run"])
        self.assertEqual(os.stat(run + "/commits.bundle").st_mode & 0o777, 0o600)
        self.assertFalse(os.path.exists(run + "/quarantine"))
        self.assertEqual(self.record["lease_state"], "released")
        self.git("checkout", "-q", "file")

    def objects(self):
        return sorted(os.path.join(d, f) for d, _, files in os.walk(self.ws + "/.git/objects") for f in files)

    def good(self):
        tree = self.rev("main^{tree}")
        c = self.commit(tree)
        return oid("commit", c), pack(("commit", c))

    def test_the_fake_git_can_deliver(self):
        """The control of the tests below: the same way with an honest bundle works."""
        c, p = self.good()
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, c), p)
        self.sandbox(FAKE)
        self.history("fast_forwarded", commits=1)
        self.assertEqual(self.rev("main"), c)

    def test_F8_extra_references(self):
        c, p = self.good()
        for extra in ("refs/tags/v9", "refs/heads/main", "HEAD"):
            with self.subTest(extra=extra):
                self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n%s %s\n\n" % (self.base, c, c, extra), p)
                self.refused("more than one reference")
        self.bundle("# v2 git bundle\n-%s x\n%s refs/heads/main\n\n" % (self.base, c), p)
        self.refused("another name")

    def test_F9_malformed_trees(self):
        blob = oid("blob", b"x\n")
        entry = lambda mode, name: mode + b" " + name + b"\0" + bytes.fromhex(blob)
        rows = {"hasDotgit": entry(b"100644", b".git"), "hasDotdot": entry(b"100644", b".."),
                "duplicateEntries": entry(b"100644", b"a") * 2, "fullPathname": entry(b"100644", b"a/b"),
                "treeNotSorted": entry(b"100644", b"b") + entry(b"100644", b"a"),
                "hasDot": entry(b"100644", b"."), "emptyName": entry(b"100644", b"")}
        for word, tree in rows.items():
            with self.subTest(word=word):
                c = self.commit(oid("tree", tree))
                self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)),
                            pack(("blob", b"x\n"), ("tree", tree), ("commit", c)))
                self.refused("refused")

    def test_B01_names_that_only_airlock_and_git_may_use(self):
        """A checkout of such a commit would put files where journals, or git's own, lie."""
        blob = b"x\n"
        entry = lambda mode, name, of: mode + b" " + name + b"\0" + bytes.fromhex(of)
        sub = entry(b"100644", b"journal", oid("blob", blob))
        clean = self.rev("main^{tree}")
        rows = [(n, w) for n, w in ((b".airlock-staging", "only Airlock may use"), (b".Airlock-STAGING", "only Airlock may use"),
                                    (b".airlock-\xe2\x80\x8cstaging", "only Airlock may use"), (b".GIT", "refused"),
                                    (b"git~1", "refused"), (b".g\xe2\x80\x8cit", "refused"))]
        for name, word in rows:
            for nested, gone in ((False, False), (True, False), (False, True)):
                if (nested or gone) and name != b".airlock-staging":
                    continue
                with self.subTest(name=name, nested=nested, gone=gone):
                    tree = entry(b"40000", name, oid("tree", sub))
                    above = entry(b"40000", b"d", oid("tree", tree)) if nested else b""
                    objects = [("blob", blob), ("tree", sub), ("tree", tree)] + ([("tree", above)] if nested else [])
                    c = self.commit(oid("tree", above or tree))
                    objects.append(("commit", c))
                    if gone:  # not in the last commit any more
                        c = self.commit(clean, parent=oid("commit", c))
                        objects.append(("commit", c))
                    self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(*objects))
                    self.refused(word)

    def test_B01_commits_with_names_that_no_member_may_have(self):
        blob = oid("blob", b"x\n")
        entry = lambda mode, name, of: mode + b" " + name + b"\0" + bytes.fromhex(of)
        rows = {b".paperclip-runtime": "only Airlock may use", b".airlock-x": "only Airlock may use",
                b".Paperclip-Repositories": "only Airlock may use", b"n" * 300: "longer or deeper"}
        for name, word in rows.items():
            with self.subTest(name=name):
                tree = entry(b"100644", name, blob)
                c = self.commit(oid("tree", tree))
                self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)),
                            pack(("blob", b"x\n"), ("tree", tree), ("commit", c)))
                self.refused(word)
        objects, tree = [("blob", b"x\n")], entry(b"100644", b"x", blob)
        for _ in range(130):
            objects.append(("tree", tree))
            tree = entry(b"40000", b"d", oid("tree", tree))
        c = self.commit(oid("tree", tree))
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(*objects, ("tree", tree), ("commit", c)))
        self.refused("longer or deeper")

        # git takes a link at a path of 23,000 bytes.
        objects, tree = [("blob", b"x")], entry(b"120000", b"x", oid("blob", b"x"))
        for _ in range(90):
            objects.append(("tree", tree))
            tree = entry(b"40000", b"d" * 255, oid("tree", tree))
        c = self.commit(oid("tree", tree))
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(*objects, ("tree", tree), ("commit", c)))
        self.refused("longer or deeper")

    def test_F5_commits_bring_no_orders_of_the_work_tree_to_life(self):
        """What lies here untracked, which no commit has, makes a repository of what the commits bring."""
        self.write("x/config", "[core]\n")
        with open(self.ws + "/.git/info/exclude", "a") as f:
            f.write("/x/\n")
        self.sandbox(sh("mkdir -p x/refs x/objects", "echo h >x/HEAD", "echo k >x/refs/k", "echo k >x/objects/k", "git add -Af x/HEAD x/refs x/objects",
                        "git commit -qm half", "rm -r x"))
        self.assertIn("its commits make x a repository", self.history("failed")["why"])

    def test_F5_a_merge_with_an_old_commit_brings_no_orders_to_life(self):
        """What the merge takes from there none of the new commits brings, and the commit that was sent has it no more."""
        self.sandbox(sh("mkdir x", "echo '[core]' >x/config", "echo evil >.envrc", "git add -A", "git commit -qm one", "git rm -qr x .envrc",
                        "git commit -qm two"))
        self.history("fast_forwarded", commits=2)
        sent, full = self.rev("main"), ["--git", "full"]
        half = "mkdir -p x/refs x/objects; echo h >x/HEAD; echo k >x/refs/k; echo k >x/objects/k; git add -A; git commit -qm half"
        self.sandbox(sh(half, "git checkout -q HEAD~2 -- x/config", "m=$(git commit-tree -p HEAD -p HEAD~2 -m m $(git write-tree))",
                        "git reset -q --hard $m"), opts=full)
        self.assertIn("its commits make x a repository", self.history("failed")["why"])
        # Without a merge: the second parent of a later one stands on the old commit.
        self.sandbox(sh("git checkout -q --detach HEAD~1", half, "git checkout -q main", "git merge -q -s ours -m m HEAD@{1}"), opts=full)
        self.assertIn("its commits make x a repository", self.history("failed")["why"])
        self.assertEqual(self.rev("main"), sent)
        self.sandbox(sh("echo 1 >one", "git add -A", "git commit -qm side", "git checkout -q HEAD~2 -- .envrc",
                        "m=$(git commit-tree -p HEAD -p HEAD~2 -m m $(git write-tree))", "git reset -q --hard $m"), opts=full)
        self.assertEqual(self.history("fast_forwarded", commits=2)["flagged"], ".envrc")

    def test_B01_what_the_user_has_may_go_and_come_back(self):
        """A link that leads out, a fixture with a config: the user's own, also in a merge, which has them over its second parent."""
        os.symlink("/etc/passwd", self.ws + "/mine")
        self.write("x/config", "[core]\n")
        self.write("x/HEAD", "ref: refs/heads/m\n")
        self.write("x/objects/k", "k")
        self.write("x/refs/k", "k")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "fixture")
        self.base = self.rev("HEAD")
        self.sandbox(sh("git rm -qr --cached mine x", "git commit -qm away", "git add -A", "git commit -qm back",
                        "echo 1 >x/refs/heads", "git add -A", "git commit -qm ref", "git checkout -q --orphan o", "git rm -qrf .",
                        "echo o >o", "git add o", "git commit -qm o", "git checkout -q main",
                        "git merge -q --allow-unrelated-histories -m m o"))
        self.history("fast_forwarded", commits=5)
        self.sandbox(sh("git checkout -qb side", "echo 1 >s", "git add s", "git commit -qm s", "git checkout -q main",
                        "git merge -q --no-ff --no-commit side", "ln -s /etc bad", "git add bad", "git commit -qm evil"))
        self.assertIn("the link bad -> /etc", self.imported("imported", 2)["why"])
        self.sandbox(sh("echo >>x/config", "git add -A", "git commit -qm bad"))
        self.assertIn("its commits make x a repository", self.history("failed")["why"])

    def test_F9_links_of_commits_over_the_users_own(self):
        """A link that leads over a link of the user's that leads out, and one whose target no link can have."""
        os.symlink("/etc", self.ws + "/mine")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "link")
        self.base = self.rev("HEAD")
        self.sandbox(sh("ln -s mine/passwd l", "git add -A", "git commit -qm links"))
        self.assertIn("the link l -> mine/passwd", self.imported("imported", 1)["why"])
        self.sandbox(sh("b=$(head -c 5000 /dev/zero | tr '\\0' a | git hash-object -w --stdin)",
                        "git update-index --add --cacheinfo 120000,$b,long", "git commit -qm long"))
        self.assertIn("the link long -> (too long)", self.imported("imported", 1)["why"])

    def bomb(self, *levels):
        """Trees of so many entries each, of which all are the same: the last one's id, and the objects."""
        objects, of, mode = [("blob", b"x\n")], oid("blob", b"x\n"), b"100644"
        for n in levels:
            tree = b"".join(mode + b" %03d\0" % i + bytes.fromhex(of) for i in range(n))
            objects.append(("tree", tree))
            of, mode = oid("tree", tree), b"40000"
        return of, objects

    def test_F9_few_objects_that_are_millions_of_paths(self):
        """A tree bomb: each directory is the same one, many times. Its checkout would fill the disk, its index the memory."""
        of, objects = self.bomb(130, 130, 130)
        c = self.commit(of)
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(*objects, ("commit", c)))
        self.refused("more than 2000000")

    def test_F9_a_tree_bomb_of_any_size_is_refused_for_good(self):
        """Also where git cannot list the paths, and where no commit has many but all together: no recover tries again."""
        of, objects = self.bomb(130, 130, 130, 20)
        c = self.commit(of)
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(*objects, ("commit", c)))
        self.refused("change more than 10000000 paths")
        if not LONG:
            return
        of, objects = self.bomb(130, 130, 110)
        head = self.base
        for i in range(6):
            tree = b"40000 d%d\0" % i + bytes.fromhex(of) if i < 5 else b"100644 f\0" + bytes.fromhex(oid("blob", b"x\n"))
            objects.append(("tree", tree))
            objects.append(("commit", self.commit(oid("tree", tree), head)))
            head = oid(*objects[-1])
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, head), pack(*objects))
        self.refused("change more than 10000000 paths")

    def test_F9_objects_that_are_missing(self):
        c = self.commit("1" * 40)
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("commit", c)), pack(("commit", c)))
        self.refused("refused")
        c, p = self.good()
        self.bundle("# v2 git bundle\n%s HEAD\n\n" % ("3" * 40), p)
        self.refused("git cat-file")
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % ("3" * 40, c), p)
        self.refused("no commit of this repository")
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.rev("main:file"), c), p)
        self.refused("no commit of this repository")

    def test_F9_head_that_is_no_commit(self):
        self.bundle("# v2 git bundle\n%s HEAD\n\n" % oid("blob", b"x\n"), pack(("blob", b"x\n")))
        self.refused("no commit")
        tag = b"object " + self.base.encode() + b"\ntype commit\ntag t\ntagger E <e@e> 1 +0000\n\nx\n"
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, oid("tag", tag)), pack(("tag", tag)))
        self.refused("no commit")

    def test_broken_packs(self):
        c, p = self.good()
        head = "# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, c)
        for what, bad in (("cut", p[:-25]), ("sum", p[:-1] + b"\0"), ("more", p[:8] + b"\xff" * 4 + p[12:])):
            with self.subTest(what=what):
                self.bundle(head, bad)
                self.refused("refused")
        for what, text in (("none", "fatal: no\n"), ("nothing but text", head[:30])):
            with self.subTest(what=what):
                self.bundle(text, b"")
                self.refused("refused")

    def test_objects_that_head_does_not_reach_stay_outside(self):
        c, p = self.good()
        tree = self.rev("main^{tree}")
        commit = self.commit(tree)
        self.bundle("# v2 git bundle\n-%s x\n%s HEAD\n\n" % (self.base, c), pack(("blob", b"stowaway"), ("commit", commit)))
        self.sandbox(FAKE)
        self.history("fast_forwarded")
        self.assertEqual(self.git("cat-file", "-t", oid("blob", b"stowaway"), ok=False), "")

    def test_F17_repository_removed_or_broken(self):
        for script in ("rm -rf .git", "echo garbage >.git/HEAD", "rm -rf .git; ln -s /etc .git", "rm -rf .git; echo x >.git",
                       "rm -rf .git; mkdir .git; mkfifo .git/HEAD"):
            with self.subTest(script=script):
                self.write("file", LINES)
                self.sandbox(script + "; echo 1 >>file")
                self.history("failed")
                self.assertEqual(self.read("file"), LINES + "1\n")
                self.assertEqual(self.rev("main"), self.base)
                self.assertEqual(self.record["lease_state"], "released")
                self.git("status")

    def test_F17_broken_objects_keep_the_sandbox(self):
        """Commits may be there and could not be had: the storage stays, recover tries again."""
        self.sandbox("echo 1 >>file; git commit -qam two; o=$(git rev-parse HEAD:file); "
                     "rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)")
        self.history("failed")
        self.assertEqual(self.read("file"), LINES + "1\n")
        self.assertEqual(self.record["lease_state"], "recoverable")

    def test_F1_F7_nothing_planted_runs_here(self):
        """Hooks, fsmonitor, filters, merge drivers: planted inside and present in the host's own repository."""
        marker, fetched = self.top + "/marker", self.top + "/fetched"
        tool = self.top + "/tool"
        with open(tool, "w") as f:
            f.write("#!/bin/sh\necho \"$0 $*\" >>%s\ncat\n" % marker)
        os.chmod(tool, 0o755)
        self.write(".gitattributes", "* filter=x merge=x diff=x\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "attributes")
        # Older than the index: git reads a file that is as young as its index again, through the filters of the
        # user's own configuration, whenever it writes the index (gitindex.h says so).
        for name in filter(None, self.git("ls-files", "-z").split("\0")):
            os.utime(os.path.join(self.ws, name), (1600000000, 1600000000), follow_symlinks=False)
        self.git("update-index", "-q", "--refresh")
        hooks = self.ws + "/.git/hooks/"
        os.makedirs(hooks, exist_ok=True)
        for h in ("reference-transaction", "post-index-change", "post-merge", "post-checkout", "pre-receive", "update",
                  "post-rewrite", "post-commit", "fsmonitor-watchman", "pre-auto-gc", "push-to-checkout"):
            os.symlink(tool, hooks + h)
        for k in ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "filter.x.process", "merge.x.driver", "diff.x.command",
                  "diff.x.textconv", "diff.external", "core.pager", "core.editor", "gpg.program", "core.alternateRefsCommand",
                  "uploadpack.packObjectsHook", "merge.default", "core.askPass", "credential.helper", "core.sshCommand"):
            self.git("-c", "core.hooksPath=/dev/null", "config", k, tool if k != "merge.default" else "x")
        self.git("config", "commit.gpgSign", "true")
        self.git("config", "merge.renormalize", "true")
        with open(self.ws + "/.git/info/attributes", "w") as f:
            f.write("* merge=x filter=x\n")

        def host():
            # Plumbing that runs none of it.
            quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
            blob = self.git(*quiet, "hash-object", "-w", "--no-filters", "--stdin", input=(LINES.replace("line 18\n", "host\n")).encode())
            self.git(*quiet, "update-index", "--cacheinfo", "100644,%s,file" % blob)
            tree = self.git(*quiet, "write-tree")
            c = self.git(*quiet, "commit-tree", "--no-gpg-sign", "-p", "HEAD", "-m", "host", tree)
            self.git(*quiet, "update-ref", "HEAD", c)
            self.write("file", LINES.replace("line 18\n", "host\n"))
            if os.path.exists(marker):
                os.unlink(marker)

        script = ("for h in post-commit post-checkout; do printf '#!/bin/sh\\nid\\n' >.git/hooks/$h; done 2>/dev/null || "
                  "{ mkdir .git/hooks; printf '#!/bin/sh\\nid\\n' >.git/hooks/post-checkout; }; "
                  "git config core.fsmonitor 'touch /tmp/x'; git config alias.x '!id'; git config core.fsmonitor false; "
                  "printf '[submodule \"m\"]\\n\\tpath = m\\n\\turl = ext::touch %s\\n' >.gitmodules; "
                  "sed -i 's/line 3$/inside/' file; git add -A; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),m; "
                  "git commit -qm inside" % fetched)
        self.sandbox(WAIT + script, host=host)
        self.history("merged")
        self.assertFalse(os.path.exists(marker), os.path.exists(marker) and open(marker).read())
        self.assertFalse(os.path.exists(hooks + "post-checkout") and not os.path.islink(hooks + "post-checkout"))
        refused = {c["path"]: c["rule"] for c in self.record["sync_out"]["changes"] if c["action"] == "refuse"}
        self.assertEqual(refused.get(".git/config"), "git_metadata")
        self.assertEqual(refused.get(".git/hooks/post-checkout"), "git_metadata")
        self.assertIn(".git/hooks/post-checkout: git's own files", self.err)
        self.assertEqual(self.git("-c", "core.fsmonitor=false", "config", "--get", "alias.x", ok=False), "")
        # The submodule has come, nobody has fetched it; who does so by hand, and allows its kind of url, runs what it says.
        self.assertIn("160000 commit", self.git("-c", "core.fsmonitor=false", "ls-tree", "main", "m"))
        self.assertFalse(os.path.exists(fetched))
        self.git("-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=always", "submodule", "update", "--init", ok=False)
        self.assertTrue(os.path.exists(fetched))

    def test_F1_plain_commit_refuses_nothing(self):
        self.sandbox("echo 1 >>file; git commit -qam two; git checkout -q -b x; git gc -q; git stash list")
        self.assertEqual(self.record["sync_out"]["counts"]["refuse"], 0)

    def test_strict_sandbox_that_touched_config_is_rejected_whole(self):
        self.sandbox("git config x.y z; echo 1 >>file; git commit -qam two", opts=["--strict"], code=125)
        self.assertTrue(self.record["sync_out"]["rejected"])
        self.assertEqual(self.read("file"), LINES)
        self.assertIn("files did not come back", self.imported("imported", 1)["why"])
        self.assertEqual(self.rev("main"), self.base)


class Cut(Case):
    """The host's git is a wrapper that kills Airlock, or acts, at a chosen call."""

    def wrapper(self, body):
        d = self.top + "/bin"
        os.makedirs(d, exist_ok=True)
        with open(d + "/git", "w") as f:
            f.write("#!/bin/sh\n" + body + "exec /usr/bin/git \"$@\"\n")
        os.chmod(d + "/git", 0o755)
        return dict(self.env, PATH=d + ":" + self.env["PATH"])

    def recover(self, env=None):
        r = subprocess.run([AIRLOCK, "recover", "last"], cwd=self.ws, env=env or self.env, capture_output=True, timeout=DEADLINE)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stderr.decode()

    def test_killed_at_every_git_call_recover_finishes(self):
        at = 1 - STEP
        while True:
            at += STEP
            count = self.top + "/count"
            for p in (self.ws, count, self.env["XDG_STATE_HOME"]):
                shutil.rmtree(p, ignore_errors=True)
                if os.path.exists(p):
                    os.unlink(p)
            os.mkdir(self.ws)
            self.repo()
            env = self.wrapper("""if ls %s/airlock/runs/*/commits.bundle >/dev/null 2>&1; then
\techo "$*" >>%s; [ "$(wc -l <%s)" != %d ] || { kill -9 $PPID; exit 1; }
fi
""" % (self.env["XDG_STATE_HOME"], count, count, at))
            cmd = [AIRLOCK, "run", "--provider", "native", "--", "sh", "-c", WAIT +
                   "sed -i 's/line 3$/inside/' file; echo n >new; git add -A; git commit -qm inside"]
            p = subprocess.Popen(cmd, cwd=self.ws, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            self.assertEqual(p.stdout.readline(), b"ready\n")
            self.commit_on_host(LINES.replace("line 18\n", "host\n"))
            out, err = p.communicate(b"go\n", timeout=DEADLINE)
            if p.returncode == 0:
                break
            self.assertEqual(p.returncode, -9, err)
            with self.subTest(at=at):
                text = LINES.replace("line 18\n", "host\n").replace("line 3\n", "inside\n")
                self.assertEqual(self.read("file"), text, "files came first")
                self.recover()
                self.assertEqual(self.git("log", "-1", "--format=%s", "main^2"), "inside")
                self.assertEqual(self.git("log", "--format=%s", "--merges").count("\n"), 0, "one merge")
                self.assertEqual(self.status(), "")
                self.assertEqual(self.read("file"), text)
                self.assertEqual(set(self.refs()), {"refs/heads/main"})
                self.assertEqual(glob.glob(self.ws + "/.git/index*"), [self.ws + "/.git/index"])
                self.git("fsck", "--strict")
        self.assertGreater(at, 12, "fewer calls than steps: the wrapper was not used")

    ADDS = """if ls %s/airlock/runs/*/commits.bundle >/dev/null 2>&1; then
	echo "$*" >>%s; if [ "$(wc -l <%s)" = %d ]; then
		(cd %s; unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_CONFIG_COUNT; %s) && >%s
	fi
fi
"""

    def at_every_git_call(self, script, act):
        """The user acts before the first, second, ... git of ours after the bundle has come. True: it was done."""
        at, calls = 1 - STEP, []
        did, count = self.top + "/did", self.top + "/count"
        while len(calls) >= at:
            at += STEP
            for p in (self.ws, count, did, self.env["XDG_STATE_HOME"]):
                shutil.rmtree(p, ignore_errors=True)
                if os.path.exists(p):
                    os.unlink(p)
            os.mkdir(self.ws)
            self.repo()
            env = self.wrapper(self.ADDS % (self.env["XDG_STATE_HOME"], count, count, at, self.ws, act, did))
            self.sandbox(script, env=env)
            with open(count) as f:
                calls = f.readlines()
            with self.subTest(at=at, git=calls[at - 1:at]):
                yield os.path.exists(did)
        self.assertGreater(at, 12, "fewer calls than steps: the wrapper was not used")

    def test_F23_what_is_staged_meanwhile_is_never_lost(self):
        """git add of the user before each of our calls: it succeeds and its result stays, or it is told that it must wait."""
        done = 0
        for did in self.at_every_git_call(
                "echo inside >d/deep; echo new >added; rm other; git add -A; git commit -qm inside",
                "b=$(echo mine | /usr/bin/git hash-object -w --stdin); for f in d/deep added other own; do "
                "/usr/bin/git update-index --add --cacheinfo 100644,$b,$f || exit; done 2>/dev/null"):
            done += did
            self.history("fast_forwarded", commits=1)
            if did:
                mine = self.git("hash-object", "--stdin", input=b"mine\n")
                staged = {l.split("\t")[1]: l.split()[1] for l in self.git("ls-files", "-s").split("\n")}
                self.assertEqual({f: staged.get(f) for f in ("d/deep", "added", "other", "own")},
                                 dict.fromkeys(("d/deep", "added", "other", "own"), mine))
            else:
                self.assertEqual(self.status(), "")
            self.nothing_left()
        self.assertGreater(done, 6 / STEP)

    def test_F23_a_branch_that_is_left_meanwhile_takes_its_index_along(self):
        for did in self.at_every_git_call("echo inside >d/deep; git commit -qam inside",
                                          "/usr/bin/git checkout -q -b work 2>/dev/null"):
            self.history("fast_forwarded", commits=1)
            self.assertEqual(self.git("symbolic-ref", "HEAD"), "refs/heads/work" if did else "refs/heads/main")
            here = self.rev("HEAD:d/deep")
            if not did or self.rev("HEAD") == self.base:
                self.assertEqual(self.git("ls-files", "-s", "d/deep").split()[1], here)

    def test_killed_while_the_sandbox_packs_commits(self):
        script = ("mkdir -p ~/.local/bin; printf '#!/bin/sh\\nif [ ! -e /home/agent/once ]; then "
                  ">/home/agent/once; exec sleep 1000; fi; exec /usr/bin/git \"$@\"\\n' >~/.local/bin/git; chmod +x ~/.local/bin/git; "
                  "echo 1 >>file; /usr/bin/git commit -qam two")
        p = subprocess.Popen([AIRLOCK, "run", "--provider", "native", "--", "sh", "-c", script], cwd=self.ws, env=self.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while p.poll() is None and not glob.glob(self.env["XDG_STATE_HOME"] + "/airlock/leases/*/home/once"):
            try:
                p.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        p.kill()
        self.assertEqual(p.wait(), -9, p.communicate())
        p.communicate()
        self.assertEqual(self.status(), "M file", "the work shows as uncommitted")
        self.assertIn("history: fast-forwarded 1 commit on main", self.recover())
        self.assertEqual(self.git("log", "-1", "--format=%s"), "two")
        self.assertEqual(self.status(), "")

    def test_branch_that_moves_under_the_swap_is_merged(self):
        """Not by git commit, which needs the lock of the index that we hold, but by a push or a fetch."""
        once = self.top + "/once"
        env = self.wrapper("""case "$*" in *update-ref*"airlock: run "*) if [ ! -e %s ]; then
\t>%s; (cd %s; unset GIT_DIR GIT_WORK_TREE GIT_CONFIG_COUNT; echo h >hostfile; /usr/bin/git add hostfile && touch %s.added
\texport GIT_INDEX_FILE=%s; b=$(/usr/bin/git hash-object -w hostfile); rm hostfile; /usr/bin/git read-tree main
\t/usr/bin/git update-index --add --cacheinfo 100644,$b,hostfile
\t/usr/bin/git update-ref refs/heads/main $(/usr/bin/git commit-tree -p main -m host $(/usr/bin/git write-tree))); fi ;; esac
""" % (once, once, self.ws, once, self.top + "/other.index"))
        self.sandbox("echo 1 >>file; git commit -qam inside", env=env)
        self.assertTrue(os.path.exists(once))
        self.assertFalse(os.path.exists(once + ".added"), "an index that is being put was written by somebody else")
        self.history("merged")
        self.assertEqual(self.git("log", "-1", "--format=%s", "main^1"), "host")
        self.assertEqual(self.git("show", "main:hostfile"), "h")
        self.assertEqual(self.status(), "D  hostfile", "the index was not asked by who moved the branch")


class Reviewed(Case):
    """The same cases through `run --review` and `airlock apply`: the set waits, nothing of the repository moves before."""
    SAME = ("F11_linear_commits_fast_forward F19_first_commit_of_an_empty_repository "
            "F19_not_over_a_first_commit_of_the_host F20_linked_work_tree F20_sparse_checkout_keeps_what_it_leaves_out "
            "F20_entry_that_history_changed_stays_left_out F23_what_is_staged_stays_staged file_to_directory_and_back "
            "F12_different_hunks_are_merged F15_host_amended_meanwhile F16_rewound_head_moves_nothing "
            "detached_head_is_only_imported other_branch_checked_out_only_the_recorded_ref_moves "
            "branch_of_another_work_tree_is_left branch_deleted_here_stays_deleted")

    def sandbox(self, script, host=None, opts=(), code=0, env=None):
        super().sandbox(script, host, [*opts, "--review"], code, env)
        self.assertIn(self.record["history"]["outcome"] if self.record["history"] else None, (None, "held", "none", "failed"))
        self.assertFalse([r for r in self.refs() if r.startswith("refs/airlock")], "nothing enters before the apply")
        r = subprocess.run([AIRLOCK, "apply", "--json", self.record["run"]], cwd=self.ws, env=self.env, capture_output=True,
                           stdin=subprocess.DEVNULL, timeout=DEADLINE)
        self.err = r.stderr.decode(errors="replace")
        self.assertIn(r.returncode, (0, 1), self.err)
        said = json.loads(r.stdout)["history"]
        if said:
            self.record["history"] = said
        else:
            self.err += "history: " + (self.record["history"] or {}).get("why", "")
        return self.record


for _n in Reviewed.SAME.split():
    for _c in (Forward, Others, HostMovedOn, Names, Hostile, Cut):
        if hasattr(_c, "test_" + _n):
            setattr(Reviewed, "test_" + _n, getattr(_c, "test_" + _n))
            break
    else:
        raise AssertionError("no test_" + _n)


class Around(Case):
    """Rows of section F about what lies beside the commits: the host's repositories stay as they are, `git status` too."""

    def everything(self, top):
        """Contents of every file below top."""
        found = {}
        for here, dirs, files in os.walk(top):
            for n in files:
                p = os.path.join(here, n)
                if not n.startswith("index") and "/logs/" not in p and not os.path.islink(p):
                    with open(p, "rb") as f:
                        found[p] = f.read()
            found[here] = None
        return found

    def modules(self):
        """A submodule, an untracked repository, an empty directory."""
        lib = self.top + "/lib"
        os.mkdir(lib)
        self.git("init", "-q", "-b", "main", cwd=lib)
        with open(lib + "/code", "w") as f:
            f.write("code\n")
        self.git("add", "-A", cwd=lib)
        self.git("commit", "-qm", "lib", cwd=lib)
        self.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib, "sub")
        self.git("commit", "-qm", "sub")
        os.makedirs(self.ws + "/nested")
        self.git("init", "-q", "-b", "main", cwd=self.ws + "/nested")
        self.write("nested/n", "n\n")
        self.git("add", "-A", cwd=self.ws + "/nested")
        self.git("commit", "-qm", "unpushed", cwd=self.ws + "/nested")
        os.makedirs(self.ws + "/empty/inner")

    def applied(self, script):
        """The same with --review and an apply of everything."""
        self.sandbox(script, opts=["--review"])
        r = subprocess.run([AIRLOCK, "apply", self.record["run"]], cwd=self.ws, env=self.env, capture_output=True,
                           stdin=subprocess.DEVNULL, timeout=DEADLINE)
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_F21_F24_W2_no_op_and_work_beside_submodule_and_nested_repository(self):
        self.modules()
        status, before = self.status(), self.everything(self.ws)
        for run in self.sandbox, self.applied:
            run("true")
            self.assertEqual(self.everything(self.ws), before)
            self.assertEqual(self.status(), status)
        for i, run in enumerate((self.sandbox, self.applied)):
            run("echo %d >>file; git commit -qam inside-%d" % (i, i))
            self.assertEqual(self.git("log", "-1", "--format=%s"), "inside-%d" % i)
            self.assertEqual(self.status(), status)
        self.assertTrue(os.path.isdir(self.ws + "/empty/inner"))
        self.assertEqual(self.git("log", "--format=%s", cwd=self.ws + "/nested"), "unpushed")
        self.assertEqual(self.git("status", "--porcelain", cwd=self.ws + "/sub"), "")

    def test_F21_files_inside_a_submodule_come_back_as_files(self):
        self.modules()
        head = self.git("rev-parse", "HEAD", cwd=self.ws + "/sub")
        for i, run in enumerate((self.sandbox, self.applied)):
            run("echo %d >>sub/code; echo %d >>nested/n" % (i, i))
            self.assertEqual(self.git("status", "--porcelain", cwd=self.ws + "/sub"), "M code")
            self.assertEqual(self.git("status", "--porcelain", cwd=self.ws + "/nested"), "M n")
        self.assertEqual(self.git("rev-parse", "HEAD", cwd=self.ws + "/sub"), head)
        self.assertEqual(self.status().split("\n")[0].split()[-1], "sub")

    def test_F3_F4_F28_git_files_of_every_spelling_stay_inside(self):
        self.modules()
        before = {d: self.everything(self.ws + "/" + d) for d in (".git/hooks", ".git/info", "nested/.git")}
        config = self.read(".git/config"), self.read("nested/.git/config")
        for run in self.sandbox, lambda s: self.sandbox(s, opts=["--review"]):
            run("mkdir -p x/.git .GIT y/.gIt/hooks; echo 'gitdir: /evil' >sub/.git; echo e >x/.git/config; echo e >.GIT/config;"
                " echo e >y/.gIt/hooks/post-checkout; echo e >git~1; mkdir '.git '; echo e >'.git /config'; ln -s /evil d/.git")
            got = {c["path"] for c in self.record["sync_out"]["changes"] if c["action"] == "refuse"}
            self.assertLessEqual({"git~1", "d/.git", "sub/.git", "x/.git", ".GIT"}, got)
        r = subprocess.run([AIRLOCK, "apply", self.record["run"]], cwd=self.ws, env=self.env, capture_output=True,
                           stdin=subprocess.DEVNULL, timeout=DEADLINE)
        self.assertEqual((config[0], config[1]), (self.read(".git/config"), self.read("nested/.git/config")), r.stderr)
        self.assertEqual({d: self.everything(self.ws + "/" + d) for d in before}, before)
        for n in "git~1", "d/.git", "x/.git/config", ".GIT", "y/.gIt", ".git /config":
            self.assertFalse(os.path.lexists(self.ws + "/" + n), n)

    def test_F5_embedded_bare_repository_gives_git_no_orders(self):
        mark = self.top + "/ran"
        for run in self.sandbox, lambda s: self.sandbox(s, opts=["--review"]):
            run("mkdir -p b/objects b/refs b/hooks; echo 'ref: refs/heads/m' >b/HEAD;"
                " printf '[core]\\n\\tfsmonitor = touch %s\\n\\tbare = true\\n' >b/config" % mark)
        subprocess.run([AIRLOCK, "apply", self.record["run"]], cwd=self.ws, env=self.env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=DEADLINE)
        self.status()
        self.git("status", cwd=self.ws + "/b", ok=False)
        self.assertFalse(os.path.exists(mark))
        self.assertFalse(os.path.exists(self.ws + "/b/config"))

    def committed(self, *lines):
        """Commits it and has it away again: the files say nothing of it."""
        self.sandbox(sh(*lines, "git add -Af", "git commit -qm evil", "git rm -rq --cached .", "git reset -q --soft HEAD",
                        "git clean -qfdx", "git checkout -q HEAD~1 -- .", "git read-tree HEAD~1"))

    LAYOUT = "mkdir -p x/b/refs x/b/objects; echo 'ref: refs/heads/m' >x/b/HEAD; echo k >x/b/refs/k; echo k >x/b/objects/k"

    def test_F5_commits_make_no_repository_that_gives_orders(self):
        """A checkout of them, whenever that is, would arm it: what is refused as a file is no commit of the user's either."""
        gone = "git rm -rq x; git commit -qm gone"
        rows = {"config": [self.LAYOUT, "echo '[core]' >x/b/config"], "folded": [self.LAYOUT, "echo '[core]' >x/b/CONFIG"],
                "hooks": [self.LAYOUT, "mkdir x/b/hooks; echo '#!/bin/sh' >x/b/hooks/post-checkout"],
                "commondir": ["mkdir -p x/b; echo h >x/b/HEAD; echo /evil >x/b/commondir"],
                "in two": [self.LAYOUT, "git add -A; git commit -qm half; echo '[core]' >x/b/config"],
                "taken back": [self.LAYOUT, "echo '[core]' >x/b/config; git add -A; git commit -qm it; " + gone + "; echo 1 >one"]}
        for name, lines in rows.items():
            with self.subTest(name):
                self.committed(*lines)
                self.assertIn("git on this host would obey", self.history("failed")["why"])
                self.assertIn("x/b", self.history("failed")["why"])
                self.assertEqual((self.rev("main"), self.refs()), (self.base, {"refs/heads/main": self.base}))
        # Beside what the host's own commit has.
        self.write("h/config", "[core]\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "second")
        self.base = self.rev("HEAD")
        self.committed("mkdir -p h/refs h/objects; echo h >h/HEAD; echo k >h/refs/k; echo k >h/objects/k")
        self.assertIn("h a repository", self.history("failed")["why"])
        # Without orders it is none to be afraid of; nor are the words by themselves.
        self.sandbox(sh(self.LAYOUT, "mkdir -p y/hooks z; echo 1 >y/hooks/a; echo 2 >z/config", "git add -A", "git commit -qm ok"))
        self.history("fast_forwarded", commits=1)
        self.assertEqual(self.status(), "")

    def test_F9_commits_with_links_that_lead_out_move_no_branch(self):
        for target in "/etc/passwd", "../up", "d/../x", ".git/config", "x/.GIT/hooks":
            with self.subTest(target):
                self.committed("ln -s %s esc" % target)
                self.assertIn("the link esc -> " + target, self.imported("imported", 1)["why"])
                self.assertEqual(self.rev("main"), self.base)
        self.sandbox(sh("ln -s file l", "ln -s ../other d/up", "git add -A", "git commit -qm links"))
        self.history("fast_forwarded", commits=1)

    def test_S1_04_commits_with_what_the_host_runs_are_flagged(self):
        self.committed("mkdir -p .husky; echo evil >.husky/pre-commit; echo evil >.envrc; echo 1 >plain")
        h = self.history("fast_forwarded", commits=1)
        self.assertEqual(h["flagged"], ".envrc, .husky/pre-commit")
        self.assertIn("CHECK, a program on the host runs or obeys what the commits have in: .envrc, .husky/pre-commit", self.err)

    def test_F20_alternates_and_partial_clone(self):
        home = self.ws
        self.git("config", "uploadpack.allowFilter", "true")
        for i, how in enumerate((["--shared"], ["--filter=blob:none", "--no-local"])):
            self.ws = self.top + "/clone%d" % i
            self.git("clone", "-q", *how, "file://" + home if i else home, self.ws, cwd=self.top)
            self.git("config", "user.name", "Inside")
            self.git("config", "user.email", "i@example.org")
            self.sandbox("echo 1 >>file; git commit -qam one")
            self.history("fast_forwarded", commits=1)
            self.assertEqual(self.status(), "")
            self.applied("echo 2 >>file; git commit -qam two")
            self.assertEqual(self.git("log", "--format=%s"), "two\none\nfirst")
            self.assertEqual(self.status(), "")

    def test_F25_credentials_of_the_origin_never_go_in(self):
        for url, inside in (("https://u:tok@h.example/r?x=1#f", "https://h.example/r"), ("/srv/r.git", ""),
                            ("user:pw@h:p", ""), ("git@h:p", "git@h:p")):
            self.git("remote", "remove", "origin", ok=False)
            self.git("remote", "add", "origin", url)
            self.sandbox("git remote get-url origin >url 2>/dev/null || echo >url; cat .git/config >conf")
            self.assertEqual(self.read("url").strip(), inside)
            self.assertNotIn("tok", self.read("conf"))
            self.assertNotIn("pw", self.read("conf"))


if __name__ == "__main__":
    sys.argv[1:] = [a for a in sys.argv[2:] if a != "--long"]
    unittest.main()
