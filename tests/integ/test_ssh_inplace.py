#!/usr/bin/env python3
"""Runs in the checkout that lies on another machine already (--in-place; field report B076).

usage: test_ssh_inplace.py AIRLOCK [unittest arguments]
"""
import json, os, signal, stat, subprocess, sys, unittest

from run_box import DEADLINE, alive, look, pids, until
from ssh_box import Remote, SSHD

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)


def git(at, *words):
    env = {"PATH": os.environ["PATH"], "HOME": at, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    return subprocess.run(["git", "-C", at, *words], env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


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

    def tree(self):
        """Every file below the repository, with type, mode and bytes."""
        all_of = {}
        for at, dirs, files in os.walk(self.r.there):
            for n in dirs + files:
                p = at + "/" + n
                m = os.lstat(p).st_mode
                all_of[p] = (m, os.readlink(p) if os.path.islink(p) else bytes_of(p) if stat.S_ISREG(m) else None)
        return all_of

    def test_what_git_would_execute_is_told_FR_B076(self):
        self.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n", 0o755)
        os.symlink("pre-commit", self.r.there + "/.git/hooks/post-merge")
        self.write(".git/modules/sub/config", "[core]\n\tbare = false\n")
        self.write(".git/info/attributes", "* text\n")
        evil = """git config core.fsmonitor ./evil; git config core.hooksPath /tmp; echo evil >>.git/hooks/pre-commit; chmod -x .git/hooks/pre-commit
            rm .git/hooks/post-merge; echo evil >.git/hooks/post-merge; echo evil >'.git/hooks/post checkout'; chmod +x .git/hooks/post*
            echo '* filter=evil' >.git/info/attributes; rm -r .git/modules; mkdir -p .git/worktrees/w; echo evil >.git/worktrees/w/config.worktree
            find . -type f -exec cat {} + | wc -c >/dev/null"""
        p = self.ok("--json=" + self.r.top + "/json", "--", evil)
        names = [".git/hooks/pre-commit", ".git/hooks/post-merge", ".git/modules/sub/config", ".git/info/attributes", ".git/config",
                 ".git/hooks/post checkout", ".git/worktrees/w/config.worktree"]
        for n in names:
            self.assertIn(n.encode(), p.stderr, p.stderr)
        self.assertIn(b"CHANGED THERE, and git would execute or obey it", p.stderr)
        with open(self.r.top + "/json", encoding="utf-8") as f:
            there = json.load(f)["git_there"]
        self.assertTrue(there["compared"])
        self.assertIn(".git/hooks/post checkout", there["changed"])
        # Both versions are here; there all is as the command left it.
        run = self.r.rows()[0]["run"]
        for n in ("git-before", "git-after"):
            self.assertGreater(os.path.getsize("%s/runs/%s/%s" % (self.r.state, run, n)), 100)
        self.assertEqual(self.read(".git/hooks/post checkout"), "evil\n")
        before = self.tree()
        self.assertEqual(self.ok("-q", "--", "true").stderr, b"")
        self.assertEqual(self.tree(), before)

    def test_what_hides_it_is_told_too_FR_B076(self):
        """Links in the place of directories, pipes, names of a store's parts: nothing is followed, opened or removed, and nobody hangs."""
        away = self.r.top + "/away"
        for name, prepare, command, told in (
                ("hooks become a link", "rm -rf .git/hooks; mkdir .git/hooks", "rm -rf .git/hooks; mkdir %s; echo evil >%s/x; ln -s %s .git/hooks" % (away, away, away), b".git/hooks"),
                ("behind a link", ":", "echo evil >.git/hooks/post-checkout", b"/hooks/post-checkout"),
                ("a pipe", "rm .git/hooks; mkdir .git/hooks; echo x >.git/hooks/pre-push", "rm .git/hooks/pre-push; mkfifo .git/hooks/pre-push", b".git/hooks/pre-push"),
                ("a module named logs", "mkdir -p .git/modules/logs; git -C . config -f .git/modules/logs/config core.bare false",
                 "git config -f .git/modules/logs/config core.fsmonitor evil", b".git/modules/logs/config"),
                (".git becomes a link", ":", "mv .git .g2; ln -s .g2 .git; echo evil >.git/hooks/commit-msg", b".git")):
            subprocess.run(prepare, shell=True, cwd=self.r.there, check=True, env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": self.r.there})
            p = self.ok("-q", "--", command)
            self.assertIn(b"CHANGED THERE", p.stderr, name)
            self.assertIn(told, p.stderr, name)
        self.assertEqual(self.read(".git/hooks/commit-msg"), "evil\n")

    def test_a_repository_that_the_command_leads_to_is_left_alone_FR_B076(self):
        other = self.r.top + "/other"
        git(self.r.there, "init", "-q", other)
        with open(other + "/.git/hooks/mine", "w", encoding="ascii") as f:
            f.write("mine\n")
        p = self.ok("--", "rm -rf .git; echo gitdir: %s/.git >.git" % other)
        self.assertIn(b"CHANGED THERE", p.stderr)
        self.assertEqual((bytes_of(other + "/.git/hooks/mine"), os.path.exists(other + "/.git/config")), (b"mine\n", True))
        # Made where none was, or below the top of one: neither is touched, both are looked at.
        os.mkdir(self.r.top + "/bare")
        self.r.words[1] = self.r.words[1].replace(self.r.there, self.r.top + "/bare")
        p = self.ok("--", "git init -q")
        self.assertTrue(os.path.exists(self.r.top + "/bare/.git/config"))
        os.mkdir(self.r.top + "/bare/sub")
        self.r.words[1] += "/sub"
        p = self.ok("-q", "--", "git config core.fsmonitor evil")
        self.assertIn(b"/bare/.git/config", p.stderr)

    def test_a_run_that_is_not_compared_says_so_FR_B076(self):
        p = self.ok("-q", "--", "echo evil >.git/hooks/post-merge; kill -9 $(ps -o ppid= -p $PPID); sleep 31341.2", status=125)
        self.assertIn(b"NOT COMPARED", p.stderr)
        self.assertIn(b"/git-before", p.stderr)

    def test_commits_are_the_work_and_told_as_refs_FR_B076(self):
        p = self.ok("--", "echo two >>a; git -c user.name=x -c user.email=x@y commit -qam second; git branch other")
        self.assertIn(b"refs that differ there: ", p.stderr)
        self.assertIn(b"refs/heads/other", p.stderr)
        self.assertNotIn(b"CHANGED THERE", p.stderr)
        self.assertEqual(git(self.r.there, "log", "--format=%s"), b"second\nfirst\n")

    def test_a_linked_worktree_and_no_repository_FR_B076(self):
        git(self.r.there, "worktree", "add", "-q", self.r.top + "/linked")
        there = self.r.there
        self.r.words[1] = self.r.words[1].replace(there, self.r.top + "/linked")
        p = self.ok("--", "git config core.pager evil; rm .git; git init -q; git -c user.name=x -c user.email=x@y commit -q --allow-empty -m kept")
        self.assertIn(b"CHANGED THERE", p.stderr)
        self.assertIn(there.encode() + b"/.git/config", p.stderr)
        self.assertEqual(git(self.r.top + "/linked", "log", "--format=%s"), b"kept\n")
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
