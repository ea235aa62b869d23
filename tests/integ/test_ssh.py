#!/usr/bin/env python3
"""Runs on another machine over a real sshd on loopback (B-04, B-07, B-09, S1 and RT for driver ssh; cases K1, K2, K6, K9, J11,
J14, J15; field reports B012, B029, B046, B054, B101, B132, B142, B158, B172, B179, B197).

usage: test_ssh.py AIRLOCK [unittest arguments]
"""
import fcntl, glob, hashlib, http.server, json, os, re, shutil, signal, stat, struct, subprocess, sys, threading, time, unittest

import api_box
from run_box import DEADLINE, alive, link, look, pids, side_by_side, snapshot, until
from ssh_box import END, Remote, SSHD, Sshd, key, lie, member, parent_is

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)
FILES = {"a": b"one\n", "d/b": b"two\n", "run.sh": b"#!/bin/sh\n", b"odd\xff \n name".decode("utf-8", "surrogateescape"): b"x"}


def marked(word):
    """Processes with this word in their arguments, wherever they run."""
    return [p for p in pids() if word.encode() in look(p, "cmdline").split(b"\0") and alive(p)]


def lock(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Ssh(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, FILES)
        self.addCleanup(self.r.remove)

    def ok(self, *words, status=0, **kw):
        p = self.r.run(*words, **kw)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def fails(self, text, *words, status=125, **kw):
        p = self.r.run(*words, **kw)
        self.assertEqual(p.returncode, status, p.stderr)
        self.assertIn(text, p.stderr.decode(errors="replace"))
        self.assertEqual(self.r.runs_there(), [])
        return p

    def test_results_come_back_and_nothing_stays_there_K9_FR_B172(self):
        before = snapshot(self.r.ws)
        p = self.ok("--", "echo more >>a; rm d/b; printf '\\377' >\"new $(printf '\\376')\"; ln -s a l; mkdir e; chmod 755 run.sh")
        self.assertIn(b"NO ISOLATION ON THE REMOTE", p.stderr)
        self.assertEqual(self.r.read("a"), b"one\nmore\n")
        self.assertFalse(os.path.exists(self.r.ws + "/d/b"))
        self.assertEqual(os.readlink(self.r.ws + "/l"), "a")
        self.assertEqual(os.stat(self.r.ws + "/run.sh").st_mode & 0o777, 0o755)
        with open(os.fsencode(self.r.ws) + b"/new \xfe", "rb") as f:
            self.assertEqual(f.read(), b"\xff")
        odd = [n for n in before if n.startswith("odd")]
        self.assertEqual(snapshot(self.r.ws)[odd[0]], before[odd[0]])
        self.assertEqual(self.r.left_there(), [])
        self.assertEqual([n for n in os.listdir(self.r.sshd.home + "/.cache/airlock") if not n.startswith("guest-")], [])
        self.assertEqual(os.listdir(self.r.state + "/leases"), [])

    def test_the_other_side_gets_what_a_sandbox_gets_H2(self):
        subprocess.run(["git", "init", "-q", self.r.ws], check=True, env=self.r.env)
        self.r.write(".gitignore", b"secret\n")
        self.r.write("secret", b"s")
        p = self.ok("-q", "--git", "none", "--", "ls -A; cat secret; true")
        self.assertNotIn(b"secret", p.stdout.split())

    def test_a_folder_of_a_repository_goes_alone_and_a_staged_deletion_stays_one_H1_H10(self):
        git = ["git", "-C", self.r.ws, "-c", "user.name=t", "-c", "user.email=t@t"]
        self.r.write("sub/kept", b"k")
        self.r.write("sub/staged", b"s")
        self.r.write(".gitignore", b"*.hidden\n")
        self.r.write("sub/x.hidden", b"h")
        for words in ["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"], ["rm", "-q", "sub/staged"]:
            subprocess.run(git + words, check=True, env=self.r.env)
        p = self.ok("-q", "--workspace", self.r.ws + "/sub", "--", "ls -A; echo new >new")
        self.assertEqual(p.stdout, b"kept\n")
        self.assertEqual(sorted(os.listdir(self.r.ws + "/sub")), ["kept", "new", "x.hidden"])

    def test_a_program_that_is_missing_is_told_with_where_it_was_looked_for_FR_B029_J12(self):
        s = self.r.sshd
        os.mkdir(s.home + "/bin")
        with open(s.home + "/bin/mytool", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho mine\n")
        os.chmod(s.home + "/bin/mytool", 0o755)
        for name in ".profile", ".bashrc", ".zshenv":
            with open(s.home + "/" + name, "w", encoding="ascii") as f:
                f.write("return\nPATH=$HOME/bin:$PATH\n")
        p = self.fails("mytool", "--cli", "mytool", "--", "touch ran; mytool")
        self.assertIn(b"installed but not on PATH: " + s.home.encode() + b"/bin/mytool", p.stderr)
        self.assertFalse(os.path.exists(self.r.ws + "/ran"))
        self.assertEqual(self.ok("-q", "--cli", "mytool", "--setenv", "PATH=%s/bin:/usr/bin:/bin" % s.home, "--", "mytool").stdout, b"mine\n")
        with open(s.home + "/.profile", encoding="ascii") as f:
            self.assertEqual(f.read(), "return\nPATH=$HOME/bin:$PATH\n")

    def test_no_flag_says_that_it_is_a_sandbox_there_FR_B179(self):
        p = self.ok("-q", "--", "env")
        self.assertNotIn(b"IS_SANDBOX", p.stdout)
        self.assertFalse(json.loads(self.ok("--json", "--", "true").stdout)["isolation"]["isolated"])

    def test_words_bytes_and_streams_arrive_exactly_FR_B054_J10_J14_J15(self):
        value = "q\"'`$x\n$(id)" + "v" * 100000
        p = self.ok("-q", "--setenv", "SECRET=" + value, "--", "sh", "-c", 'printf "%s|" "$0" "$@"; printf %s "$SECRET" | wc -c >&2',
                    "n", "a b", "", "it's", "$x", "*")
        self.assertEqual(p.stdout, b"n|a b||it's|$x|*|")
        self.assertEqual(p.stderr.split()[0], b"%d" % len(value))
        data = bytes(range(256)) * 4096
        with open(self.r.top + "/in", "wb") as f:
            f.write(data)
        with open(self.r.top + "/in", "rb") as f:
            self.assertEqual(self.ok("-q", "--", "cat", stdin=f).stdout, data)
        p = self.r.start("-q", "--log-limit", "1M", "--", "head -c 100000000 /dev/zero; echo last >&2")
        n = 0
        while piece := p.stdout.read(1 << 20):
            n += len(piece)
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual((n, p.returncode), (100000000, 0), err)
        self.assertIn(b"last\n", err)

    def test_statuses_are_the_commands_and_no_file_says_them_J16(self):
        self.ok("-q", "--", "exit 42", status=42)
        self.ok("-q", "--", "kill -9 $$", status=137)
        p = self.r.start("-q", "--", "yes")
        head = subprocess.run(["head", "-c", "100000"], stdin=p.stdout, stdout=subprocess.PIPE, timeout=DEADLINE, check=True)
        p.stdout.close()
        self.assertEqual(len(head.stdout), 100000)
        self.assertEqual(p.wait(DEADLINE), 128 + signal.SIGPIPE)
        p.stderr.close()

    def test_variables_are_the_other_machines_FR_B084(self):
        p = self.ok("-q", "--setenv", "MINE=1", "--", "env; pwd")
        env = dict(l.split("=", 1) for l in p.stdout.decode().splitlines() if "=" in l)
        self.assertEqual((env["HOME"], env["MINE"]), (self.r.sshd.home, "1"))
        self.assertIn("/.airlock-runtime/runs/", p.stdout.decode().splitlines()[-1])
        for name in "XDG_STATE_HOME", "SSH_AUTH_SOCK":
            self.assertNotIn(name, env)
        self.assertNotIn(self.r.ws, p.stdout.decode())

    def test_a_secret_is_in_no_command_line_FR_B046(self):
        p = self.r.start("-q", "--setenv", "SECRET=topfold", "--", "touch up; echo up; read x; true", stdin=subprocess.PIPE)
        p.stdout.readline()
        seen = [look(q, "cmdline") for q in pids()]
        p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0)
        # airlock's own has it: the person typed it.
        self.assertEqual([c for c in seen if b"topfold" in c and b"bin/airlock\0run" not in c], [])
        self.assertTrue(any(b"read -r n h s m" in c for c in seen))

    def test_time_out_ends_the_whole_tree_J11(self):
        self.ok("--timeout", "500ms", "--", "setsid sleep 31337.1 & sleep 31337.1", status=124)
        until("the tree has ended", lambda: not marked("31337.1"))

    def test_ctrl_c_ends_the_tree_and_brings_the_work_back_FR_B047(self):
        p = self.r.start("--", "echo w >work; echo up; sleep 31337.2 & sleep 31337.2")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 130)
        self.assertEqual(self.r.read("work"), b"w\n")
        until("the tree has ended", lambda: not marked("31337.2"))
        self.assertEqual(self.r.runs_there(), [])

    def killed(self, n, whom, *words):
        p = self.r.start(*words, "--", "echo w >work; echo up; setsid sleep 31337.%d & sleep 31337.%d" % (n, n))
        self.assertEqual(p.stdout.readline(), b"up\n")
        whom(p)
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not marked("31337.%d" % n))
        self.assertEqual(len(self.r.runs_there()), 1)
        self.assertFalse(os.path.exists(self.r.ws + "/work"))
        run = self.r.rows()[0]["run"]
        q = self.r.airlock("recover", run)
        self.assertEqual(q.returncode, 0, q.stderr)
        self.assertEqual(self.r.read("work"), b"w\n")
        self.assertEqual(self.r.runs_there(), [])

    def helper(self, name):
        return [q for q in pids() if os.path.basename(link(q, "exe")) == name and link(q, "exe").startswith(self.r.top)]

    def test_kill_9_of_airlock_leaves_no_process_and_loses_nothing(self):
        self.killed(3, lambda p: p.kill())

    def test_kill_9_of_the_helper_leaves_no_process_and_loses_nothing(self):
        self.killed(4, lambda p: [os.kill(q, signal.SIGKILL) for q in self.helper("airlock-remote")])

    def test_a_lost_connection_leaves_no_process_and_loses_nothing_FR_B093(self):
        self.killed(5, lambda p: self.r.cut(), "--ssh-grace", "0")

    def test_kill_9_of_the_guest_there_leaves_no_process(self):
        def front(p):
            for q in pids():
                if look(q, "cmdline").endswith(b"\0remote\0") and link(q, "exe").startswith(self.r.sshd.home):
                    os.kill(q, signal.SIGKILL)
                    return
        self.killed(6, front)

    def test_a_command_that_stops_its_guest_is_ended_by_whoever_comes_next_J11(self):
        stop = ("echo w >work; for q in /proc/[0-9]*; do case $(readlink $q/exe) in %s/.cache/airlock/guest-*) kill -STOP ${q#/proc/};; esac; done; "
                % self.r.sshd.home)
        # Also where the front has gone and only who ends the commands is left.
        front = "set -- $(cat /proc/$PPID/stat); set -- $(cat /proc/$4/stat); kill -9 $4; "
        for n, more in (7, ""), (8, front):
            with self.subTest(more):
                self.r.write("work", b"before\n")
                p = self.r.run("--timeout", "500ms", "--", stop + more + "setsid sleep 31337.%d & sleep 31337.%d" % (n, n))
                self.assertNotEqual(p.returncode, 0)
                said = [self.r.airlock("recover", row["run"]).stderr for row in self.r.rows()]
                self.assertEqual(self.r.read("work"), b"w\n", said)
                self.assertEqual(marked("31337.%d" % n), [])
                self.assertEqual(self.r.runs_there(), [])

    def test_trees_deeper_than_any_stack_go_away_there(self):
        # Deeper than a path can name, so it does not come back either, and stays until it is given up.
        self.r.run("-q", "--", "exec python3 -c 'import os\nfor i in range(1500): os.mkdir(\"x\"); os.chdir(\"x\")'")
        self.assertEqual(len(self.r.runs_there()), 1)
        # Not kept for the next run, but removed.
        self.r.block_bases()
        p = self.r.airlock("rm", "--all", "--force")
        self.assertEqual(self.r.runs_there(), [], p.stderr)
        p = self.r.airlock("env", "clean", *self.r.words)
        self.assertEqual(os.popen("find %s -name x -prune" % self.r.there).read(), "", p.stderr)

    def test_two_runs_at_once_do_not_meet(self):
        first = self.r.start("-q", "--", "echo 1 >one; echo up; read x; ls", stdin=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"up\n")
        self.ok("-q", "--", "test ! -e one && echo 2 >two")
        out, err = first.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual((first.returncode, b"two" in out.split()), (0, False), err)
        self.assertEqual((self.r.read("one"), self.r.read("two")), (b"1\n", b"2\n"))
        self.assertEqual(self.r.runs_there(), [])

    def test_modes_and_times_arrive_whatever_that_directory_says_of_what_is_made_in_it(self):
        for name, mode, ns in ("old", 0o644, 500000000), ("run", 0o755, 10**18 + 1), ("ro", 0o444, 0), ("p", 0o600, 5):
            self.r.write(name, name.encode())
            os.chmod(self.r.ws + "/" + name, mode)
            os.utime(self.r.ws + "/" + name, ns=(ns, ns))
        # user::rwx group::r-x other::---
        acl = struct.pack("<I" + "HHI" * 3, 2, 1, 7, 0xffffffff, 4, 5, 0xffffffff, 32, 0, 0xffffffff)
        show = "stat -c '%n %a %.9Y' old run ro p"
        want = b"old 644 0.500000000\nrun 755 1000000000.000000001\nro 444 0.000000000\np 600 0.000000005\n"
        for default in None, acl:
            self.r.airlock("env", "clean", *self.r.words)
            if default:
                os.setxattr(self.r.there, "system.posix_acl_default", default)
            p = self.ok("-q", "--", "umask 077; " + show)
            self.assertEqual(p.stdout, want, default)
            self.assertEqual(self.ok("-q", "--", show).stdout, want)

    def test_machines_that_share_a_home_do_not_write_into_one_file(self):
        """Their shells may have one process number: no name is made of that."""
        seen = self.r.top + "/seen"
        d = self.r.sshd.top + "/path"
        os.mkdir(d)
        with open(d + "/head", "w", encoding="ascii") as f:
            f.write('#!/bin/sh\nls -a "$HOME/.cache/airlock" >>%s\nexec /usr/bin/head "$@"\n' % seen)
        os.chmod(d + "/head", 0o755)
        self.r.sshd.shell('PATH=%s:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % d)
        _, words = self.r.with_api(self)
        for _ in range(2):
            self.ok("-q", *words, "--", "true")
            self.r.airlock("env", "clean", *self.r.words)
        with open(seen, encoding="ascii") as f:
            names = [n for n in f.read().split() if n.startswith(".new-")]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreaterEqual(len(names), 2)
        self.assertEqual([n for n in names if n[5:].isdigit()], [])

    def test_what_is_there_already_is_not_sent_again(self):
        for i in range(300):
            self.r.write("many/%d" % i, b"%d\n" % i)
        self.r.write("odd/mode", b"m\n")
        os.chmod(self.r.ws + "/odd", 0o500)
        os.symlink("a", self.r.ws + "/link")
        show = "find . -printf '%p %y %m %l %i %T@\\n' | sort; find . -type f -exec cat {} +"
        spoil = """; echo x >>a; printf 'two!' >d/b; rm many/7; mkdir many/7; echo y >many/7/y; rm -r many/8; ln -s /etc many/8; chmod 600 many/9
            echo z >extra; mkdir -p more/deep; echo w >more/deep/w; rm link; echo l >link; mv many/10 many/11; cp -p many/12 many/t; mv many/t many/12
            rm -r odd; ln -s / odd"""
        p = self.ok("-q", "--review", "--", show + spoil)
        inodes = lambda q: {l.split()[0]: l.split()[-2] for l in q.stdout.splitlines() if l.startswith(b"./many/")}
        plain = lambda q: [re.sub(rb" \d+ (\d+\.\d+)$", rb" \1" if b" f " in l else b"", l) for l in q.stdout.splitlines() if not l.startswith(b". ")]
        self.assertEqual(len(os.listdir(self.r.there + "/.airlock-runtime/bases")), 1)
        self.r.write("many/20", b"new here\n")
        os.unlink(self.r.ws + "/many/21")
        q = self.ok("-q", "--review", "--", show)
        same = set(inodes(p).items()) & set(inodes(q).items())
        self.assertEqual(len(inodes(q)), 299)
        self.assertGreaterEqual(len(same), 290)
        # As if nothing had ever been there.
        self.r.airlock("env", "clean", *self.r.words)
        self.assertEqual(self.r.left_there(), [])
        self.assertFalse(os.path.exists(self.r.there + "/.airlock-runtime"))
        fresh = self.ok("-q", "--review", "--", show)
        self.assertEqual(plain(q), plain(fresh))

    def test_an_index_that_is_true_still_is_not_made_again_S1(self):
        os.symlink("a", self.r.ws + "/link")
        os.mkdir(self.r.ws + "/empty")
        self.ok("-q", "--", "true")
        st = os.stat(self.base() + "/base")

        def made_again(command):
            nonlocal st
            before, st = st, os.stat(self.base() + "/base") if self.ok("-q", "--", command) else None
            return (before.st_ino, before.st_mtime_ns) != (st.st_ino, st.st_mtime_ns)
        self.assertFalse(made_again("echo 2 >d/b; cat a"))
        self.assertEqual(self.r.read("d/b"), b"2\n")
        # What a run changes is in no index that stays, whatever it is; nor what changed here.
        self.assertTrue(made_again("true"))
        self.assertFalse(made_again("ln -sfn d link"))
        self.assertEqual(os.readlink(self.r.ws + "/link"), "d")
        # The same on both sides by now, and another than the index has.
        self.assertTrue(made_again("ln -sfn a link"))
        self.assertEqual(os.readlink(self.r.ws + "/link"), "a")
        for command in "chmod 755 a", "chmod 750 empty", "rmdir empty", "echo n >new", "mv a b; cp -p b a; rm b", "rm new":
            self.made = made_again("true")
            self.assertFalse(made_again(command), command)
            self.assertTrue(made_again("true"), command)
            self.assertFalse(made_again("true"), command)
        os.chmod(self.r.ws + "/a", 0o600)
        self.assertTrue(made_again("stat -c %a a >mode"))
        self.assertEqual(self.r.read("mode"), b"600\n")

    def test_an_index_of_a_tree_there_counts_only_as_the_host_remembers_it_FR_B172(self):
        """Whoever works as that account there may write both, the tree and what says that nobody touched it."""
        self.r.write("a", b"one, of its length\n")
        self.ok("-q", "--", "true")
        base = self.base()
        with open(base + "/base", "rb") as f:
            index = f.read()
        known, = glob.glob(self.r.state + "/**/remote-index.*", recursive=True)
        with open(known, "rb") as f:
            stamp = os.stat(base + "/base").st_mtime_ns
            self.assertEqual(f.read(), hashlib.blake2b(index + stamp.to_bytes(8, "little"), digest_size=32).digest())
        st = os.stat(base + "/workspace/a")
        with open(base + "/workspace/a", "r+b") as f:
            f.write(b"ONE")
        os.utime(base + "/workspace/a", ns=(st.st_atime_ns, st.st_mtime_ns))
        now = os.stat(base + "/workspace/a").st_ctime_ns
        forged = index.replace(b" %d a\n" % st.st_ctime_ns, b" %d a\n" % now)
        self.assertNotEqual(forged, index)
        with open(base + "/base", "wb") as f:
            f.write(forged)
        os.utime(base + "/base", ns=(now, now + 10**9))
        self.assertEqual(self.ok("-q", "--", "cat a; echo more >>a").stdout, b"one, of its length\n")
        self.assertEqual(self.r.read("a"), b"one, of its length\nmore\n")

    def hangs_at_the_end(self, which, *words):
        """All is here, and then nobody gets in there any more: the run is over soon, and what is left is removed later."""
        p = self.r.start(*words, "--", "echo w >work; echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        took, = glob.glob(self.r.state + "/leases/*/there")
        with open(took, encoding="ascii") as f:
            self.assertRegex(f.read(), "^[0-9]+\n$")
        self.r.sshd.shell('case $SSH_ORIGINAL_COMMAND in %s) exec sleep 45;; esac; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % which)
        began = time.monotonic()
        _, err = p.communicate(b"\n", timeout=2 * DEADLINE)
        self.assertEqual((p.returncode, self.r.read("work")), (0, b"w\n"), err)
        self.assertLess(time.monotonic() - began, 35)
        self.assertRegex(err, b"could not be reached within 1[0-9] s; what the run left there is removed later")
        self.assertEqual(len(self.r.runs_there()), 1)
        self.r.sshd.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.ok("-q", "--", "true")
        self.assertEqual(self.r.runs_there(), [])

    def test_a_machine_that_hangs_at_the_end_holds_up_nobody_FR_B093(self):
        self.hangs_at_the_end("*")

    def test_a_machine_that_hangs_at_the_end_holds_up_nobody_without_a_guest_FR_B093(self):
        self.hangs_at_the_end('*"s hello"*', "--ssh-guest", "never")

    def test_no_tree_stays_there_where_none_is_wanted_FR_B172(self):
        self.ok("-q", "--", "true")
        self.base()
        # It takes what is there along.
        self.ok("-q", "--no-remote-base", "--", "cat a; echo more >>a")
        self.assertEqual((os.listdir(self.r.there), self.r.read("a")), ([], b"one\nmore\n"))
        self.ok("-q", "--keep", "--no-remote-base", "--", "true")
        self.assertEqual(self.r.airlock("rm", "--all").returncode, 0)
        self.assertEqual(os.listdir(self.r.there), [])
        # Who removes a run that has something there wants nothing of it there.
        self.ok("-q", "--keep", "--", "true")
        self.assertEqual(self.r.airlock("rm", "--all").returncode, 0)
        self.assertEqual(os.listdir(self.r.there), [])
        p = self.r.airlock("run", "--no-remote-base", "--", "true")
        self.assertIn(b"belong to --ssh", p.stderr)

    def test_a_tree_that_is_old_goes_also_when_a_run_begins_FR_B172(self):
        self.ok("-q", "--", "true")
        base = self.base()
        old = os.path.dirname(base) + "/" + "0" * 32
        shutil.copytree(base, old)
        os.utime(old, (0, 0))
        p = self.r.start("-q", "--", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        until("the old one has gone", lambda: not os.path.exists(old))
        p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0)
        self.base()

    def test_trees_that_are_kept_there_are_few_and_of_one_run_each(self):
        self.ok("-q", "--", "true")
        a = self.r.start("-q", "--", "echo up; cat a; read x; echo a >from-a", stdin=subprocess.PIPE)
        self.assertEqual(a.stdout.readline(), b"up\n")
        self.ok("-q", "--", "cat a; echo b >from-b")
        a.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(a.returncode, 0)
        self.assertEqual((self.r.read("from-a"), self.r.read("from-b")), (b"a\n", b"b\n"))
        for i in range(6):
            os.makedirs(self.r.top + "/ws%d" % i)
            self.ok("-q", "--", "echo x >x", cwd=self.r.top + "/ws%d" % i)
        self.assertEqual(len(os.listdir(self.r.there + "/.airlock-runtime/bases")), 4)
        # No name that says where it comes from.
        self.assertTrue(all(len(n) == 32 for n in os.listdir(self.r.there + "/.airlock-runtime/bases")))

    def base(self):
        top = self.r.there + "/.airlock-runtime/bases"
        names = [n for n in os.listdir(top) if not n.startswith(".")]
        self.assertEqual(len(names), 1)
        return top + "/" + names[0]

    def stuck(self, place):
        """What no account can remove."""
        os.mkdir(place)
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        return place

    def test_a_tree_that_is_being_removed_is_nobodys_to_take(self):
        self.ok("-q", "--", "true")
        a = self.r.start("-q", "--", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(a.stdout.readline(), b"up\n")
        self.ok("-q", "--", "true")
        base = self.base()
        self.stuck(base + "/workspace/busy")
        top = os.path.dirname(base)
        try:
            # Its removal does not come to an end.
            a.communicate(b"\n", timeout=DEADLINE)
            self.assertEqual(a.returncode, 0)
            self.assertFalse(os.path.exists(base + "/workspace/busy"))
            self.assertEqual(len(os.listdir(top)), 2)
            p = self.ok("-q", "--", "cat a; ls; rm a")
            self.assertEqual(p.stdout, b"one\na\nd\n" + b"odd\xff \n name\nrun.sh\n")
            self.assertFalse(os.path.exists(self.r.ws + "/a"))
            self.assertEqual(sorted(os.listdir(self.r.ws + "/d")), ["b"])
            # Who asks for nothing to be left is told what is.
            p = self.r.airlock("env", "clean", *self.r.words)
            self.assertIn(b"remove all of the trees of earlier runs in .airlock-runtime/bases", p.stderr)
        finally:
            for n in os.listdir(top):
                subprocess.run(["umount", "%s/%s/workspace/busy" % (top, n)], check=False, stderr=subprocess.DEVNULL)
        self.r.airlock("env", "clean", *self.r.words)
        self.assertFalse(os.path.exists(self.r.there + "/.airlock-runtime"))

    def test_a_tree_that_can_not_be_removed_fails_no_later_run(self):
        self.ok("-q", "--", "true")
        self.stuck(self.base() + "/workspace/busy")
        top = os.path.dirname(self.base())
        try:
            for i in range(3):
                p = self.ok("-q", "--", "cat a; ls; echo %d >n" % i)
                self.assertEqual(p.stdout, b"one\na\nd\n" + (b"n\n" if i else b"") + b"odd\xff \n name\nrun.sh\n")
                self.assertEqual(self.r.read("n"), b"%d\n" % i)
            # Of a directory that another account has taken over nothing is used: no file could be written into it.
            os.chown(self.base() + "/workspace/d", 12345, -1)
            self.assertEqual(self.ok("-q", "--", "stat -c %u d; cat d/b").stdout, b"%d\ntwo\n" % os.geteuid())
            self.assertEqual(self.r.runs_there(), [])
        finally:
            for n in os.listdir(top):
                subprocess.run(["umount", "%s/%s/busy" % (top, n)], check=False, stderr=subprocess.DEVNULL)
        self.r.airlock("env", "clean", *self.r.words)
        self.assertFalse(os.path.exists(self.r.there + "/.airlock-runtime"))

    def test_a_way_in_that_is_cut_goes_on_where_it_was_K5(self):
        with open(self.r.ws + "/big", "wb") as f:
            for i in range(64):
                f.write(os.urandom(1 << 20))
        runs = self.r.there + "/.airlock-runtime/runs"
        seen = []

        def part():
            for n in self.r.runs_there():
                try:
                    st = os.stat("%s/%s/workspace/big" % (runs, n))
                    if 1 << 20 < st.st_size < 64 << 20:
                        seen.append(st)
                except FileNotFoundError:
                    pass
            return seen
        p = self.r.start("-q", "--", "stat -c %i big; b2sum <big")
        until("a part of it is there", part)
        self.r.cut()
        out = p.communicate(timeout=2 * DEADLINE)[0].split()
        self.assertEqual(p.returncode, 0)
        self.assertEqual(int(out[0]), seen[0].st_ino)
        with open(self.r.ws + "/big", "rb") as f:
            self.assertEqual(out[1].decode(), hashlib.blake2b(f.read()).hexdigest())

    def test_a_way_out_that_is_cut_is_gone_again_K5(self):
        """No byte of the stream that was cut is published, and the person has nothing to do."""
        def part():
            # What the helper at door 1 has taken of it.
            return [q for q in self.helper("airlock-unpack") if int(look(q, "io").split()[1] if look(q, "io") else 0) > 16 << 20]
        for words in [], ["--remote-sandbox"], ["--keep"]:
            p = self.r.start(*words, "--ssh-grace", "0", "--", "rm -f big; head -c 256M /dev/urandom >big; b2sum <big; echo w >>work; rm -f a")
            until("a part of it is here", part)
            self.r.cut()
            out, text = p.communicate(timeout=2 * DEADLINE)
            self.assertEqual(p.returncode, 0, text)
            self.assertIn(b"the connection was cut while the results came back", text)
            with open(self.r.ws + "/big", "rb") as f:
                self.assertEqual(out.split()[0].decode(), hashlib.blake2b(f.read()).hexdigest())
            self.assertFalse(os.path.exists(self.r.ws + "/a"))
            if words != ["--keep"]:
                self.assertEqual(self.r.left_there(), [])
        self.assertEqual(self.r.read("work"), b"w\nw\nw\n")
        q = self.r.airlock("rm", "--all", "--yes")
        self.assertEqual(q.returncode, 0, q.stderr)
        # A machine that does not come back: told, and the work waits.
        p = self.r.start("--ssh-grace", "0", "--", "head -c 256M /dev/urandom >big; echo x >>work")
        until("a part of it is here", part)
        self.r.sshd.stop()
        self.r.cut_all()
        until("it tries", lambda: b"connection was cut" in p.stderr.readline())
        # Two that come at once are one: until it has ended.
        until("it gives up", lambda: p.send_signal(signal.SIGINT) or p.poll() is not None)
        text = p.communicate(timeout=DEADLINE)[1]
        self.assertEqual(p.returncode, 125, text)
        self.assertEqual(self.r.read("work"), b"w\nw\nw\n")
        self.r.sshd.start()
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.r.read("work")), (0, b"w\nw\nw\nx\n"), q.stderr)

    def test_commits_come_back(self):
        git = ["git", "-C", self.r.ws, "-c", "user.name=t", "-c", "user.email=t@t"]
        for words in ["init", "-q", "-b", "main"], ["add", "a"], ["commit", "-q", "-m", "first"]:
            subprocess.run(git + words, check=True, env=self.r.env)
        p = self.ok("--", "echo c >c && git add c && git -c user.name=r -c user.email=r@r commit -q -m second && git status --porcelain")
        log = subprocess.run(git + ["log", "--format=%s"], check=True, env=self.r.env, stdout=subprocess.PIPE).stdout
        self.assertEqual(log, b"second\nfirst\n", p.stderr)

    def test_both_sides_edit_a_text_and_what_was_sent_is_here_to_merge_with_S2(self):
        text = b"".join(b"%d\n" % i for i in range(40))
        self.r.write("t", text)
        self.r.write("u", text)
        self.r.write("gone", b"bytes\n")
        p = self.r.start("-q", "--", "sed -i 's/^3$/three/' t u; chmod 755 gone; echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        self.r.write("t", text.replace(b"\n30\n", b"\nthirty\n"))
        self.r.write("u", text.replace(b"\n3\n", b"\nTHREE\n"))
        os.unlink(self.r.ws + "/gone")
        _, err = p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(self.r.read("t"), text.replace(b"\n3\n", b"\nthree\n").replace(b"\n30\n", b"\nthirty\n"), err)
        self.assertEqual(self.r.read("u"), text.replace(b"\n3\n", b"\nTHREE\n"), err)
        self.assertEqual(self.r.read("gone"), b"bytes\n", err)
        # Nothing of it is mounted here, so nothing of it was made here file by file.
        kept = [os.path.join(d, n) for d, _, names in os.walk(self.r.state + "/workspaces") for n in names]
        self.assertEqual([k for k in kept if k.endswith("/t")], [])

    def test_a_review_shows_both_sides_of_what_was_sent(self):
        self.ok("--review", "--", "echo more >>a; rm d/b")
        # What the workspace has by now is not what was sent.
        self.r.write("a", b"zero\none\n")
        p = self.r.airlock("diff", self.r.rows()[0]["run"])
        self.assertIn(b" one\n+more\n", p.stdout, p.stderr)

    def test_review_writes_nothing(self):
        p = self.ok("--review", "--", "echo more >>a")
        self.assertEqual(self.r.read("a"), b"one\n", p.stderr)
        q = self.r.airlock("apply", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.r.read("a")), (0, b"one\nmore\n"), q.stderr)

    # The connection. ------------------------------------------------------------------------

    def test_host_keys_unknown_changed_revoked_have_three_texts_K2_FR_B101_FR_B142(self):
        s = self.r.sshd
        shown = subprocess.run(["ssh-keygen", "-lf", s.top + "/host.pub"], check=True, stdout=subprocess.PIPE).stdout.split()[1].decode()
        s.known("")
        p = self.fails("host key is not known yet", "--", "touch x")
        self.assertIn("the key shown now is ssh-ed25519 " + shown, p.stderr.decode())
        s.known("[127.0.0.1]:%d %s\n" % (s.port, key(s.top + "/changed")))
        self.assertIn(shown, self.fails("host key is NOT the one", "--", "touch x").stderr.decode())
        # A name that is hashed counts as well, in a file that nobody may write.
        s.known("[127.0.0.1]:%d %s\n" % (s.port, s.host_key))
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", s.top + "/known"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.chmod(s.top + "/known", 0o400)
        self.ok("-q", "--", "true")
        self.r.disconnect()
        shutil.rmtree(s.home + "/.cache")
        os.unlink(s.top + "/known")
        self.fails("--ssh-known-hosts", "--", "touch x")
        s.known("@revoked * %s\n" % s.host_key)
        self.fails("marked as revoked", "--", "touch x")
        self.assertFalse(os.path.exists(s.home + "/.cache"))

    def test_a_refused_key_a_wrong_user_and_nobody_there(self):
        words = list(self.r.words)
        self.r.words[3] = self.r.sshd.top + "/other"
        self.fails("the login was refused", "--", "true")
        self.r.words[:] = ["--ssh", "nobody-at-all@" + words[1], *words[2:]]
        self.fails("the login was refused", "--", "true")
        self.r.words[:] = words
        self.r.words[1] = "127.0.0.1:1:" + self.r.there
        self.fails("connection refused", "--", "true")
        self.r.words[1] = "nothing.invalid:" + self.r.there
        self.fails("cannot be resolved", "--", "true")

    def test_a_jump_host_is_met_with_the_same_options(self):
        s, odd = self.r.sshd, self.r.top + "/it's a jump"
        os.mkdir(odd)
        jump = Sshd(odd + "/j")
        self.addCleanup(jump.stop)
        shutil.copy(s.top + "/id.pub", jump.top + "/authorized")
        self.r.words += ["--ssh-jump", "127.0.0.1:%d" % jump.port]
        # Nobody is asked: neither here nor on a terminal.
        self.fails("no way through the jump host", "--", "true")
        with open(jump.top + "/log", "rb") as f:
            self.assertNotIn(b"Accepted publickey", f.read())
        s.known("[127.0.0.1]:%d %s\n[127.0.0.1]:%d %s\n" % (s.port, s.host_key, jump.port, jump.host_key))
        self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n")
        with open(jump.top + "/log", "rb") as f:
            self.assertIn(b"Accepted publickey", f.read())
        # Through two of them, and with names that a shell would read.
        shutil.copytree(s.top, odd + "/s", ignore=shutil.ignore_patterns("home"))
        self.r.words[3], self.r.words[5] = odd + "/s/id", odd + "/s/known"
        self.r.words[-1] = "127.0.0.1:%d,127.0.0.1:%d" % (jump.port, jump.port)
        self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n")

    def test_the_end_of_one_run_cuts_no_other_one_off_behind_a_jump_host(self):
        words = ["--ssh-jump", "127.0.0.1:%d" % self.r.sshd.port]
        first = self.r.start(*words, "-q", "--", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"up\n")
        second = self.r.start(*words, "-q", "--", "echo up; read x; echo end >end", stdin=subprocess.PIPE)
        self.assertEqual(second.stdout.readline(), b"up\n")
        first.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(first.returncode, 0)
        _, text = second.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual((second.returncode, self.r.read("end")), (0, b"end\n"), text)

    def test_doctor_tells_what_a_run_would_find(self):
        def doctor(status, *more):
            p = self.r.airlock("doctor", *self.r.words, *more)
            self.assertEqual(p.returncode, status, p.stdout + p.stderr)
            return p.stdout.decode()
        doc = json.loads(doctor(0, "--json"))
        states = {c["check"]: c["state"] for c in doc["checks"]}
        for name in "reachable", "login time", "machine", "programs", "directory", "disk", "guest's place", "clock":
            self.assertIn(states[name], ("ok", "warning"), doc)
        self.assertTrue(doc["run_works"])
        self.assertEqual(self.r.left_there(), [])
        self.assertEqual(states["git"], "ok" if shutil.which("git", path="/usr/bin:/bin") else "warning")
        self.assertNotIn("landlock", states)
        states = {c["check"]: c["state"] for c in json.loads(doctor(0, "--json", "--remote-sandbox"))["checks"]}
        for name in "user namespace", "mount namespace", "overlay", "pid namespace", "network namespace", "landlock", "seccomp", "cgroup limits":
            self.assertIn(states[name], ("ok", "warning"))
        if os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
            self.assertEqual(states["seccomp"], "ok")
        self.assertEqual(states["remote sandbox"], "ok")
        # A machine that cannot have a guest is one that runs do without.
        self.r.sshd.shell('XDG_CACHE_HOME=/proc exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.assertIn("runs do without", doctor(0))
        self.r.sshd.shell('PATH=%s/none XDG_CACHE_HOME=/proc exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % self.r.sshd.top)
        self.assertRegex(doctor(1), "without a guest +FAILED")
        self.r.sshd.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.r.words[1] += "/absent"
        self.assertIn("remedy: make it there", doctor(1))
        self.r.sshd.known("[127.0.0.1]:%d %s\n" % (self.r.sshd.port, key(self.r.sshd.top + "/else")))
        self.assertIn("NOT the one in known_hosts", doctor(1))
        self.r.words[1] = "127.0.0.1:1:/x"
        self.assertIn("connection refused", doctor(1))

    def test_a_key_that_others_may_read_is_refused_before_anything(self):
        os.chmod(self.r.sshd.top + "/id", 0o644)
        self.fails("chmod 600", "--", "true")

    def test_a_directory_that_is_none_leaves_nothing_to_clean_up(self):
        place = self.r.words[1]
        with open(self.r.there + "/file", "wb"), open(self.r.there + "/.airlock-runtime", "wb"):
            pass
        for more in [], ["--in-place"], ["--ssh-guest", "never"]:
            for name, text in (("/absent", "is not there on"), ("/file", "not"), ("", "")):
                self.r.words[1] = place + name
                p = self.r.run(*more, "--", "true")
                self.assertEqual(p.returncode, 125, (more, name))
                self.assertIn(text, p.stderr.decode())
                self.assertNotIn(b"until it is there again", p.stderr)
                self.assertEqual({row["lease_state"] for row in self.r.rows()}, {"released"}, (more, name, p.stderr))
        self.assertEqual(self.r.airlock("rm", "--all").returncode, 0)
        os.unlink(self.r.there + "/.airlock-runtime")
        self.r.words[1] = place
        self.assertNotIn(b"absent", self.ok("--", "true").stderr)

    def test_words_that_ssh_could_take_for_options_are_refused_K1(self):
        for place in "-oProxyCommand=touch x:/d", "-l@h:/d", "u -x@h:/d", "h\n:/d", "h:0:/d", "h:/", "h:/a/../b", "h:rel", "u@-h:/d":
            p = self.r.airlock("run", "--ssh=" + place, "--", "true")
            self.assertEqual(p.returncode, 2, (place, p.stderr))
            p = self.r.airlock("env", "create", "e", "--ssh=" + place)
            self.assertEqual(p.returncode, 2, (place, p.stderr))
            self.assertNotEqual(self.r.airlock("env", "show", "e").returncode, 0)
        self.assertFalse(os.path.exists(self.r.ws + "/x"))
        self.assertEqual(self.r.airlock("env", "create", "e", *self.r.words).returncode, 0)

    def test_what_needs_isolation_is_refused_aloud(self):
        for words in ["--net", "none"], ["--net", "allow=h"], ["--memory", "1G"], ["--pids", "9"], ["--bind-ro", "/etc"], \
                ["--map", "a:/tmp/a"], ["--without", "seccomp"], ["--api-transport", "queue"], ["--provider", "native"]:
            p = self.r.run(*words, "--", "true")
            self.assertNotEqual(p.returncode, 0, words)
            self.assertIn(words[0].encode(), p.stderr)

    def test_times_before_1970_arrive_as_they_are(self):
        for guest in [], ["--ssh-guest", "never"]:
            for at in -5 * 10 ** 9, -86400 * 10 ** 9 - 5 * 10 ** 8, 10 ** 18 + 1:
                os.utime(self.r.ws + "/a", ns=(at, at))
                p = self.r.run("-q", *guest, "--", "stat -c %.9Y a; touch -d @-7 new")
                self.assertEqual((p.returncode, p.stdout), (0, b"%d.%09d\n" % divmod(at, 10 ** 9) if at >= 0 else
                                                            b"-%d.%09d\n" % divmod(-at, 10 ** 9)), p.stderr)
                self.assertEqual(os.stat(self.r.ws + "/new").st_mtime, 0)
                os.unlink(self.r.ws + "/new")

    def test_a_directory_that_is_not_there_is_not_made_here_or_there_FR_B012(self):
        self.r.words[1] += "/only-remote/app"
        self.fails("is not there on 127.0.0.1", "--", "true")
        self.assertEqual(self.r.left_there(), [])

    def test_users_settings_do_not_change_ours_FR_B197(self):
        with open(self.r.top + "/config", "w", encoding="ascii") as f:
            f.write("BatchMode no\nStrictHostKeyChecking no\nRequestTTY force\nRemoteCommand echo hijacked\nControlPath none\n"
                    "LogLevel DEBUG\nEscapeChar ~\nSendEnv *\nSessionType none\nStdinNull yes\n")
        self.r.words[-1] = self.r.top + "/config"
        self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n")
        self.r.sshd.known("")
        self.r.disconnect()
        self.fails("host key is not known yet", "--", "true")

    def test_compression_is_sshs_and_only_when_asked_for_FR_B197(self):
        log = lambda: self.r.run("-q", "--", "true").returncode == 0 and open(self.r.sshd.top + "/log", "rb").read()
        with open(self.r.sshd.top + "/config", "a", encoding="ascii") as f:
            f.write("LogLevel DEBUG1\n")
        self.r.sshd.stop()
        self.r.sshd.start()
        self.assertNotIn(b"zlib@openssh.com", [w for l in log().splitlines() if b"kex: client->server" in l for w in l.split()])
        self.r.disconnect()
        self.r.words.append("--ssh-compress")
        self.assertIn(b"zlib@openssh.com", [w for l in log().splitlines() if b"kex: client->server" in l for w in l.split()])
        self.r.write("big", b"text " * 100000)
        self.assertEqual(self.ok("-q", "--", "wc -c <big; cp big copy").stdout, b"500000\n")
        self.assertEqual(self.r.read("copy"), self.r.read("big"))
        p = self.r.airlock("run", "--ssh-compress", "--", "true")
        self.assertIn(b"belong to --ssh", p.stderr)

    def test_a_long_place_for_the_socket_is_not_used_FR_B158(self):
        self.r.env["XDG_RUNTIME_DIR"] = self.r.top + "/" + "r" * 120
        os.mkdir(self.r.env["XDG_RUNTIME_DIR"], 0o700)
        self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n")

    # The shell there. -----------------------------------------------------------------------

    def test_other_login_shells_and_noise_K6(self):
        shells = ["bash", "zsh", "fish", "busybox sh", "dash", "tcsh"]
        for sh in [s for s in shells if shutil.which(s.split()[0])]:
            self.r.sshd.shell('echo "welcome airlock"; head -c 20000 /dev/urandom; echo noise >&2; exec %s -c "$SSH_ORIGINAL_COMMAND"' % sh)
            self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n", sh)

    def test_start_files_that_take_control_FR_B132(self):
        for script, text in ("exit 0", "did not give control"), ("echo tmux says no; exit 1", "tmux says no"), \
                ("exec yes", "printed more than"):
            self.r.sshd.shell(script)
            self.fails(text, "--", "true")

    def test_a_place_that_runs_nothing_or_takes_nothing(self):
        s = self.r.sshd
        self.r.words += ["--ssh-guest", "always"]
        s.shell('XDG_CACHE_HOME=/proc exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.fails("no place for the guest program", "--", "true")
        s.shell('XDG_CACHE_HOME= HOME= exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.fails("no place for the guest program", "--", "true")
        with open(s.top + "/uname", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho Plan9\n")
        os.chmod(s.top + "/uname", 0o755)
        s.shell('PATH=%s:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % s.top)
        self.fails("Plan9-Plan9 machine", "--", "true")

    def test_a_guest_that_was_changed_there_is_sent_again(self):
        self.ok("-q", "--", "true")
        place = self.r.sshd.home + "/.cache/airlock"
        guest, = os.listdir(place)
        with open(place + "/" + guest, "wb") as f:
            f.write(b"#!/bin/sh\necho bad\n")
        self.assertEqual(self.ok("-q", "--", "echo mine").stdout, b"mine\n")

    # Kept leases. ---------------------------------------------------------------------------

    def test_a_kept_lease_takes_commands_side_by_side_and_ends_with_rm(self):
        self.ok("-q", "--keep", "--", "echo 1 >one; echo hidden >>a")
        run = self.r.rows()[0]["run"]
        self.assertEqual((self.r.read("one"), self.r.read("a")), (b"1\n", b"one\nhidden\n"))
        self.assertEqual(len(self.r.runs_there()), 1)
        self.r.disconnect()
        first = subprocess.Popen([self.r.bin + "/airlock", "exec", run, "--", "cat one; echo up; read x; echo 2 >two"], cwd=self.r.ws, env=self.r.env,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(first.stdout.readline() + first.stdout.readline(), b"1\nup\n")
        # Neither ends the other, and each brings what it made.
        q = self.r.airlock("exec", run, "--", "test ! -e two && echo 3 >three")
        self.assertEqual((q.returncode, self.r.read("three")), (0, b"3\n"), q.stderr)
        _, err = first.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual((first.returncode, self.r.read("two")), (0, b"2\n"), err)
        q = self.r.airlock("shell", run, stdin=subprocess.DEVNULL)
        self.assertEqual(q.returncode, 0, q.stderr)
        # A machine that is away for a moment has lost nothing.
        self.r.disconnect()
        self.r.sshd.stop()
        q = self.r.airlock("exec", run, "--", "true")
        self.assertEqual(q.returncode, 125)
        self.r.sshd.start()
        q = self.r.airlock("exec", run, "--", "cat two three")
        self.assertEqual((q.returncode, q.stdout), (0, b"2\n3\n"), q.stderr)
        q = self.r.airlock("rm", run)
        self.assertEqual((q.returncode, self.r.runs_there()), (0, []), q.stderr)
        self.assertEqual(self.r.left_there(), [])

    def test_what_one_command_meets_ends_a_kept_lease_for_nobody(self):
        self.ok("-q", "--keep", "--ssh-grace", "0", "--", "echo 1 >one")
        run = self.r.rows()[0]["run"]
        # A session that is cut is that command's end.
        p = subprocess.Popen([self.r.bin + "/airlock", "exec", run, "--", "echo up; sleep 31337.8"], cwd=self.r.ws, env=self.r.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        self.r.cut()
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 125, err)
        until("the tree has ended", lambda: not marked("31337.8"))
        # Neither a program that is missing here nor a directory that is away there is a lost lease.
        gateway, away = self.r.bin + "/airlock-gateway", self.r.top + "/away"
        for path in gateway, self.r.there:
            os.rename(path, away)
            q = self.r.airlock("exec", run, "--", "true")
            self.assertEqual(q.returncode, 125, q.stderr)
            os.rename(away, path)
            q = self.r.airlock("exec", run, "--", "cat one")
            self.assertEqual((q.returncode, q.stdout), (0, b"1\n"), q.stderr)
        # What the other machine itself says is not there is lost.
        shutil.rmtree(self.r.there + "/.airlock-runtime")
        self.assertIn(b"is not on", self.r.airlock("exec", run, "--", "true").stderr)
        self.assertNotIn(b"is not on", self.r.airlock("exec", run, "--", "true").stderr)

    def test_what_the_shell_there_says_of_the_gateway_is_bounded_here_S1_04(self):
        top = self.r.sshd.top
        os.mkdir(top + "/path")
        with open(top + "/path/mv", "w", encoding="ascii") as f:
            f.write('#!/bin/sh\ncase "$*" in *gateway*) echo why; head -c 4000000 /dev/zero; exec sleep 31337.9;; esac; exec /bin/mv "$@"\n')
        os.chmod(top + "/path/mv", 0o755)
        self.r.sshd.shell('PATH=%s/path:$PATH; export PATH; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % top)
        p = self.r.start("--keep", "--", "true")
        until("all of it was sent", lambda: marked("31337.9"))
        fds = "/proc/%d/fd/" % p.pid
        said = [fds + n for n in os.listdir(fds) if "airlock-said" in os.readlink(fds + n)]
        self.assertEqual([os.stat(n).st_size for n in said], [65536])
        for q in marked("31337.9"):
            os.kill(q, signal.SIGKILL)
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 125)
        self.assertRegex(err, b"cannot take the gateway program of the bridge: .*why\n")

    def test_clean_removes_programs_and_empty_directories_and_no_work(self):
        self.ok("-q", "--keep", "--", "true")
        kept = self.r.rows()[0]["run"]
        running = self.r.start("-q", "--", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(running.stdout.readline(), b"up\n")
        empty = self.r.there + "/.airlock-runtime/runs/1m000000000000ab"
        os.makedirs(empty + "/workspace/d", 0o700)
        os.chmod(empty, 0o700)
        os.utime(empty, (0, 0))
        other = os.path.dirname(empty) + "/somebodys"
        os.mkdir(other, 0o700)
        q = self.r.airlock("env", "clean", *self.r.words)
        self.assertEqual(q.returncode, 0, q.stderr)
        self.assertIn(b": 0 programs and 1 empty directories of runs removed\n1 runs are going on there", q.stdout)
        self.assertIn(b"1 runs have their work there", q.stdout)
        self.assertEqual((os.path.exists(empty), os.path.exists(other)), (False, True))
        os.rmdir(other)
        # A session goes on needing its programs.
        self.assertEqual(len(os.listdir(self.r.sshd.home + "/.cache/airlock")), 2)
        running.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(running.returncode, 0)
        q = self.r.airlock("env", "clean", *self.r.words)
        self.assertIn(b": 2 programs and 0 empty directories of runs removed\n1 runs have", q.stdout)
        self.assertEqual(os.listdir(self.r.sshd.home + "/.cache/airlock"), [])
        self.assertEqual(self.r.airlock("exec", kept, "--", "true").returncode, 0)
        self.assertEqual(self.r.airlock("rm", kept).returncode, 0)
        self.assertEqual(self.r.airlock("env", "clean", "--force").returncode, 2)
        self.assertEqual(self.r.left_there(), [])

    def test_programs_that_go_away_before_they_are_started_are_sent_again(self):
        self.ok("-q", "--", "true")
        place = self.r.sshd.home + "/.cache/airlock"
        seen = self.r.sshd.top + "/seen"
        gone = 'test -e "%s" || { touch "%s"; rm -f "$g"; }; read -r a' % (seen, seen)
        self.r.sshd.shell("c=$(printf %%s \"$SSH_ORIGINAL_COMMAND\" | sed 's#read -r a#%s#'); exec /bin/sh -c \"$c\"" % gone)
        self.ok("-q", "--", "true")
        self.assertTrue(os.path.exists(seen))
        self.assertEqual(len(os.listdir(place)), 1)

    def test_a_clean_that_was_first_takes_no_program_from_under_a_run(self):
        self.ok("-q", "--", "true")
        place = self.r.sshd.home + "/.cache/airlock"

        def fronts():
            return [q for q in pids() if look(q, "cmdline").endswith(b"\0remote\0") and link(q, "exe").startswith(place)]
        for remove in True, False:
            d = os.open(place, os.O_RDONLY)
            # As its last step holds it.
            until("nobody holds it", lambda f=d: lock(f))
            p = self.r.start("-q", "--", "touch ran")
            until("the guest is there", fronts)
            for n in os.listdir(place) if remove else ():
                os.unlink(place + "/" + n)
            os.close(d)
            _, text = p.communicate(timeout=DEADLINE)
            self.assertEqual((p.returncode, os.path.exists(self.r.ws + "/ran")), (125, False) if remove else (0, True), text)
            self.assertEqual(b"env clean" in text, remove, text)
            self.ok("-q", "--", "true")

    # The bridge. ----------------------------------------------------------------------------

    CALL = r'''python3 - <<'END'
import os, sys, urllib.error, urllib.request
def call(path, method="GET", key=os.environ["PAPERCLIP_API_KEY"], data=None):
    q = urllib.request.Request(os.environ["PAPERCLIP_API_URL"] + path, data, {"authorization": "Bearer " + key}, method=method)
    try:
        with urllib.request.urlopen(q) as a:
            return a.status, a.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()
%s
END'''

    def test_the_bridge_carries_calls_and_its_key_stays_here_S2_01_S2_04(self):
        api, words = self.r.with_api(self)
        code = '''print(call("/api/agents/me")[0], call("/api/agents/me", key="other")[0], call("/api/agents/me/../../x")[0],
call("/api/companies/c1/secrets", "DELETE")[0], call("/api/issues/i1/comments", "POST", data=b"[1]" * 900000)[0])
print(os.environ["PAPERCLIP_API_BRIDGE_MODE"], os.environ["PAPERCLIP_RUN_ID"]); sys.stdout.flush(); sys.stdin = open(0); print(len(open("/dev/fd/3").readline()))'''
        p = self.r.start("-q", *words, "--", "exec 3<&0; " + self.CALL % code, stdin=subprocess.PIPE)
        said = p.stdout.readline().split() + p.stdout.readline().split()
        # Every process and every file of the other side, while it runs.
        far = [q for q in pids() if parent_is(q, self.r.sshd.proc.pid)]
        seen = [look(q, what) for q in far for what in ("cmdline", "environ")]
        for top in self.r.there, self.r.sshd.home:
            for d, _, names in os.walk(top):
                for n in names:
                    if not stat.S_ISSOCK(os.lstat(os.path.join(d, n)).st_mode):
                        with open(os.path.join(d, n), "rb") as f:
                            seen.append(f.read())
        p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(said, [b"200", b"401", b"400", b"403", b"200", b"http2_v1", self.r.rows()[0]["run"].encode()])
        self.assertTrue(any(b"PAPERCLIP_API_KEY=" in t for t in seen))
        self.assertFalse(any(api_box.KEY.encode() in t for t in seen))
        calls = api.take()
        self.assertEqual(len(calls), 2)
        self.assertTrue(all(dict(c["headers"])["authorization"] == "Bearer " + api_box.KEY for c in calls), calls)
        with open(self.r.state + "/runs/" + self.r.rows()[0]["run"] + "/audit.jsonl", "rb") as f:
            self.assertEqual(len(f.read().splitlines()), 5)

    def test_the_bridge_needs_no_forwarding_there_S2(self):
        """It goes in a channel of the session itself, where sshd forwards nothing at all."""
        _, words = self.r.with_api(self)
        with open(self.r.sshd.top + "/config", "a", encoding="ascii") as f:
            f.write("AllowTcpForwarding no\nAllowStreamLocalForwarding no\nDisableForwarding yes\nPermitTunnel no\n")
        self.r.sshd.stop()
        self.r.sshd.start()
        for more in [], ["--remote-sandbox"]:
            p = self.ok("-q", *more, *words, "--", self.CALL % "print(call('/api/agents/me')[0])")
            self.assertEqual(p.stdout, b"200\n")

    def test_the_bridge_comes_back_when_either_end_of_it_is_killed_S2(self):
        _, words = self.r.with_api(self)
        code = '''import time
def until_up():
    end = time.time() + 60
    while time.time() < end:
        try:
            if call("/api/agents/me")[0] == 200:
                return True
        except OSError:
            time.sleep(.1)
for line in open("/dev/fd/3"):
    print(until_up()); sys.stdout.flush()'''
        p = self.r.start(*words, "--", "exec 3<&0; " + self.CALL % code, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def up():
            p.stdin.write(b"\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), b"True\n")
        up()
        for q in self.helper("airlock-bridge"):
            os.kill(q, signal.SIGKILL)
        up()
        for q in pids():
            if "/gateway-" in link(q, "exe") and link(q, "exe").startswith(self.r.sshd.home):
                os.kill(q, signal.SIGKILL)
        up()
        p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 0)

    def test_an_agent_is_found_there_and_its_key_stays_here(self):
        heard = []

        class Model(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                heard.append(dict(self.headers))
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *a):
                pass
        model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
        threading.Thread(target=model.serve_forever, daemon=True).start()
        self.addCleanup(model.server_close)
        self.addCleanup(model.shutdown)
        key = "sk-real-key-of-the-test"
        config = self.r.top + "/config"
        os.makedirs(config + "/airlock/agents")
        shutil.copy(os.path.dirname(os.path.realpath(__file__)) + "/../../data/agents/claude.json", config + "/airlock/agents")
        self.r.env.update(XDG_CONFIG_HOME=config, ANTHROPIC_API_KEY=key, ANTHROPIC_BASE_URL="http://127.0.0.1:%d" % model.server_port)
        p = self.r.run("--", "claude", "-p", "two words")
        self.assertEqual(p.returncode, 127, p.stderr)
        self.assertIn(b"agent claude is not on this machine", p.stderr)
        place = self.r.sshd.home + "/.local/bin"
        os.makedirs(place)
        with open(place + "/claude", "w", encoding="ascii") as f:
            f.write("""#!/usr/bin/python3
import os, sys, urllib.request
print(sys.argv[1:], os.environ["ANTHROPIC_API_KEY"])
q = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", b"{}", {"x-api-key": os.environ["ANTHROPIC_API_KEY"],
                           "content-type": "application/json"})
print(urllib.request.urlopen(q).status)
""")
        os.chmod(place + "/claude", 0o755)
        p = self.r.run("--", "claude", "-p", "two words")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b"['-p', 'two words']", p.stdout)
        self.assertTrue(p.stdout.endswith(b"\n200\n"), p.stdout)
        self.assertNotIn(key.encode(), p.stdout + p.stderr)
        self.assertIn(b"agent: program: that of the other machine", p.stderr)
        self.assertEqual([h.get("x-api-key") for h in heard], [key])
        # Nothing isolates it there: its own settings and questions hold.
        self.assertFalse(os.path.exists(self.r.sshd.home + "/.claude"))

    # A machine that lies. -------------------------------------------------------------------

    def test_a_hostile_remote_meets_the_same_door_S1_04_S1_06(self):
        outside = self.r.top + "/outside"
        for name, tar in (("traversal", member(b"../outside", data=b"x")), ("absolute", member(outside.encode(), data=b"x")),
                          ("through a link", member(b"l", b"2", link=b"/") + member(b"l/tmp/x", data=b"x")), ("garbage", b"\1" * 1024)):
            with self.subTest(name):
                before = snapshot(self.r.ws)
                lie(self.r, "tar", tar + END)
                p = self.r.run("--", "true")
                self.assertEqual(p.returncode, 125, p.stderr)
                self.assertIn(b"rejected", p.stderr)
                self.assertEqual(snapshot(self.r.ws), before)
                self.assertFalse(os.path.exists(outside))

    def test_a_hostile_remote_is_refused_what_a_sandbox_is_S1_03(self):
        lie(self.r, "tar", member(b"good", data=b"g") + member(b"dev", b"3") + member(b"up", b"2", link=b"../..") +
            member(b".git/hooks/post-checkout", data=b"x") + END)
        p = self.r.run("--", "true")
        self.assertEqual(self.r.read("good"), b"g", p.stderr)
        for n in "dev", "up", ".git":
            self.assertFalse(os.path.lexists(self.r.ws + "/" + n), n)

    def test_a_remote_that_breaks_the_protocol_is_cut_off(self):
        for mode in "channel", "descriptors", "request", "open", "garbage", "event", "started", "pong", "ready":
            with self.subTest(mode):
                before = snapshot(self.r.ws)
                lie(self.r, mode, member(b"new", data=b"x") + END)
                p = self.r.run("--", "true")
                self.assertEqual(p.returncode, 125, p.stderr)
                self.assertEqual(snapshot(self.r.ws), before)
                until("the helper has ended", lambda: not self.helper("airlock-remote"))

    def test_a_pipe_that_is_held_open_there_holds_up_no_end(self):
        lie(self.r, "held", member(b"new", data=b"x") + END)
        p = self.r.run("-q", "--", "true")
        self.assertEqual((p.returncode, self.r.read("new")), (0, b"x"), p.stderr)

    def test_a_tar_that_says_much_is_read(self):
        """More than every pipe and window on the way."""
        p = self.ok("-q", "--sync-out", "tar", "--", "python3 -c 'import os, stat\nfor i in range(2500): "
                    "os.mknod(\"s%d\" % i + \"x\" * 200, stat.S_IFSOCK | 0o600)'; echo new >new")
        self.assertEqual(self.r.read("new"), b"new\n", p.stderr)

    @unittest.skipIf(os.geteuid(), "only root can mount what cannot be removed")
    def test_a_removal_that_is_cut_makes_no_deletions(self):
        self.r.write("keep", b"kept")
        p = self.r.start("--", "echo x >new; echo up; sleep 31337.9")
        self.assertEqual(p.stdout.readline(), b"up\n")
        os.kill(p.pid, signal.SIGKILL)
        p.communicate(timeout=DEADLINE)
        run = self.r.rows()[0]["run"]
        until("the tree has ended", lambda: not marked("31337.9"))
        # It hangs in the middle of the removal: a directory that cannot be taken away, and then no connection.
        top = self.r.there + "/.airlock-runtime/runs"
        place = top + "/" + os.listdir(top)[0]
        os.makedirs(place + "/workspace/busy")
        # Where no tree can be kept for the next run, all of it is removed.
        self.r.block_bases()
        subprocess.run(["mount", "-t", "tmpfs", "none", place + "/workspace/busy"], check=True)
        try:
            q = self.r.airlock("recover", run)
            self.assertEqual(self.r.read("new"), b"x\n", q.stderr)
            self.assertEqual(q.returncode, 0, q.stderr)
            self.assertIn(b"remove the directory of run", q.stderr)
            self.assertFalse(os.path.exists(place + "/index"))
            q = self.r.airlock("recover", run)
            self.assertIn(b"keeps no work", q.stderr)
            self.assertEqual(self.r.read("keep"), b"kept")
        finally:
            subprocess.run(["umount", place + "/workspace/busy"], check=True)
        self.assertEqual(self.r.airlock("rm", run).returncode, 0)
        self.assertEqual(self.r.left_there(), [])

    # Where it cannot be reached any more. ---------------------------------------------------

    def test_a_machine_that_is_gone_keeps_nobody_waiting_and_can_be_given_up(self):
        p = self.r.start("--", "echo up; sleep 31337.7")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.kill()
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not marked("31337.7"))
        self.r.disconnect()
        self.r.sshd.stop()
        run = self.r.rows()[0]["run"]
        q = self.r.airlock("recover", run)
        self.assertIn(b"connection refused", q.stderr)
        q = self.r.airlock("rm", run)
        self.assertNotEqual(q.returncode, 0)
        q = self.r.airlock("rm", "--force", run)
        self.assertEqual(q.returncode, 0, q.stderr)
        self.assertIn(b"it stays there", q.stderr)
        self.assertEqual(self.r.rows(), [])


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    side_by_side(3)
