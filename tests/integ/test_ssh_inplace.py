#!/usr/bin/env python3
"""Runs in the checkout that lies on another machine already (--in-place; field report B076).

usage: test_ssh_inplace.py AIRLOCK [unittest arguments]
"""
import json, os, signal, subprocess, sys, unittest

from run_box import DEADLINE, alive, look, pids, until
from ssh_box import Remote, SSHD

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)


def git(at, *words):
    env = {"PATH": os.environ["PATH"], "HOME": at, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    return subprocess.run(["git", "-C", at, *words], env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


class InPlace(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, {"mine": b"here\n"})
        self.addCleanup(self.r.remove)
        self.write("a", "one\n")
        git(self.r.there, "init", "-q", "-b", "main")
        git(self.r.there, "add", "a")
        git(self.r.there, "commit", "-q", "-m", "first")

    def write(self, name, text, mode=0o644):
        path = self.r.there + "/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)

    def read(self, name):
        with open(self.r.there + "/" + name, encoding="ascii") as f:
            return f.read()

    def ok(self, *words, status=0, **kw):
        p = self.r.run("--in-place", *words, **kw)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def test_it_works_there_and_says_so_FR_B076(self):
        self.write("dirty", "uncommitted\n")
        p = self.ok("--json=" + self.r.top + "/json", "--", "pwd; cat a dirty; echo two >>a; rm dirty; ls -a >list")
        self.assertEqual(p.stdout.decode(), self.r.there + "\none\nuncommitted\n")
        self.assertEqual((self.read("a"), os.path.exists(self.r.there + "/dirty")), ("one\ntwo\n", False))
        # Nothing of this machine went there, nothing came back, nothing stays.
        self.assertNotIn("mine", self.read("list").split())
        self.assertEqual(os.listdir(self.r.ws), ["mine"])
        self.assertFalse(os.path.exists(self.r.there + "/.airlock-runtime"))
        self.assertIn(b"works in place in %s on the other machine: nothing is copied, nothing is validated" % self.r.there.encode(), p.stderr)
        self.assertIn(b"IN PLACE ON THE REMOTE", p.stderr)
        with open(self.r.top + "/json", encoding="utf-8") as f:
            j = json.load(f)
        self.assertEqual((j["in_place"], j["isolation"]["isolated"], j["workspace"]), (True, False, self.r.there))
        self.assertIn("nothing was validated", j["isolation"]["statement"])
        # While it goes on git there does not see it.
        self.assertNotIn(b"airlock", self.ok("-q", "--", "git status --porcelain").stdout)
        self.assertEqual(self.ok("-q", "--", "exit 7", status=7).stderr, b"")

    def test_what_git_would_execute_is_put_back_and_told_FR_B076(self):
        self.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n", 0o755)
        os.symlink("pre-commit", self.r.there + "/.git/hooks/post-merge")
        self.write(".git/modules/sub/config", "[core]\n\tbare = false\n")
        self.write(".git/info/attributes", "* text\n")
        want = {n: (os.readlink(p) if os.path.islink(p) else self.read(n), os.lstat(p).st_mode) for n in
                (".git/hooks/pre-commit", ".git/hooks/post-merge", ".git/modules/sub/config", ".git/info/attributes", ".git/config")
                for p in [self.r.there + "/" + n]}
        p = self.ok("--", """git config core.fsmonitor ./evil; git config core.hooksPath /tmp; echo evil >>.git/hooks/pre-commit; chmod -x .git/hooks/pre-commit
            rm .git/hooks/post-merge; echo evil >.git/hooks/post-merge; echo evil >'.git/hooks/post checkout'; chmod +x .git/hooks/post*
            echo '* filter=evil' >.git/info/attributes; rm -r .git/modules; mkdir -p .git/worktrees/w; echo evil >.git/worktrees/w/config.worktree""")
        for n, (text, mode) in want.items():
            at = self.r.there + "/" + n
            self.assertEqual((os.readlink(at) if os.path.islink(at) else self.read(n), os.lstat(at).st_mode), (text, mode), n)
        self.assertFalse(os.path.exists(self.r.there + "/.git/hooks/post checkout"))
        self.assertFalse(os.path.exists(self.r.there + "/.git/worktrees/w/config.worktree"))
        for n in list(want) + [".git/hooks/post checkout", ".git/worktrees/w/config.worktree"]:
            self.assertIn(n.encode(), p.stderr, p.stderr)
        self.assertIn(b"put back as it was", p.stderr)
        # Nothing is lost: what it was is here.
        run = self.r.rows()[0]["run"]
        with open("%s/runs/%s/git-after" % (self.r.state, run), encoding="ascii") as f:
            self.assertGreater(len(f.read()), 100)
        # What cannot be put back is told too.
        p = self.ok("--", "rm -r .git/hooks; echo x >.git/hooks; chmod 444 .git/hooks; rm -rf .git/config; mkdir -p .git/config/d")
        self.assertRegex(p.stderr, b"put back as it was|NOT all of it could be put back")

    def test_commits_are_the_work_and_told_as_refs_FR_B076(self):
        p = self.ok("--", "echo two >>a; git -c user.name=x -c user.email=x@y commit -qam second; git branch other")
        self.assertIn(b"refs that differ now: ", p.stderr)
        self.assertIn(b"refs/heads/other", p.stderr)
        self.assertNotIn(b"would execute", p.stderr)
        self.assertEqual(git(self.r.there, "log", "--format=%s"), b"second\nfirst\n")

    def test_a_linked_worktree_and_no_repository_FR_B076(self):
        git(self.r.there, "worktree", "add", "-q", self.r.top + "/linked")
        there = self.r.there
        self.r.words[1] = self.r.words[1].replace(there, self.r.top + "/linked")
        p = self.ok("--", "git config core.pager evil; echo gitdir: /nowhere >.git")
        self.assertIn(b"put back as it was", p.stderr)
        self.assertNotIn("evil", self.read(".git/config"))
        git(self.r.top + "/linked", "status")
        os.mkdir(self.r.top + "/bare")
        self.r.words[1] = self.r.words[1].replace("/linked", "/bare")
        p = self.ok("--", "echo x >y")
        self.assertNotIn(b"git", p.stderr)
        self.assertEqual(os.listdir(self.r.top + "/bare"), ["y"])

    def test_one_at_a_time_and_no_directory_is_made_FR_B076(self):
        p = self.r.start("--in-place", "-q", "--", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        q = self.r.run("--in-place", "--", "touch ran")
        self.assertEqual(q.returncode, 125)
        self.assertIn(b"another run works in place in", q.stderr)
        # Runs with copies go on beside it.
        self.assertEqual(self.r.run("-q", "--", "true").returncode, 0)
        p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual((p.returncode, os.path.exists(self.r.there + "/ran")), (0, False))
        self.assertEqual(self.ok("-q", "--", "echo now").stdout, b"now\n")
        self.r.words[1] += "/absent"
        q = self.r.run("--in-place", "--", "true")
        self.assertEqual((q.returncode, os.path.exists(self.r.there + "/absent")), (125, False))

    def test_a_killed_airlock_leaves_no_process_and_no_lock_FR_B076(self):
        p = self.r.start("--in-place", "-q", "--", "echo up; setsid sleep 31341.1 & sleep 31341.1")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGKILL)
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not [q for q in pids() if b"31341.1" in look(q, "cmdline") and alive(q)])
        self.assertEqual(self.ok("-q", "--", "echo now").stdout, b"now\n")
        self.assertFalse(os.path.exists(self.r.there + "/.airlock-runtime"))

    def test_what_makes_no_sense_is_refused_FR_B076(self):
        for words in (["--review"], ["--keep"], ["--strict"], ["--map", "mine:/tmp/x"], ["--include", "x"], ["--exclude", "x"],
                      ["--sync-out", "tar"], ["--git", "none"], ["--on-conflict", "keep-host"], ["-w", "."], ["--no-remote-base"],
                      ["--ssh-guest", "never"], ["--remote-sandbox"]):
            p = self.r.run("--in-place", *words, "--", "touch ran")
            self.assertNotEqual(p.returncode, 0, words)
            self.assertIn(b"--in-place", p.stderr, words)
        self.assertFalse(os.path.exists(self.r.there + "/ran"))
        self.assertIn(b"belongs to --ssh", self.r.airlock("run", "--in-place", "--", "true").stderr)
        self.r.words[1] = self.r.words[1].replace(self.r.there, "/etc")
        self.assertIn(b"directory of the system", self.r.run("--in-place", "--", "true").stderr)


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    unittest.main(verbosity=1)
