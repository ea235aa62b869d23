#!/usr/bin/env python3
"""Runs in a sandbox of another machine's kernel (--remote-sandbox) over a real sshd on loopback (B-04, B-05, B-09, S1, S2 and RT for
provider ssh-sandbox; cases J11, K9; field reports B047, B093).

usage: test_ssh_sandbox.py AIRLOCK PROBER [unittest arguments]
"""
import json, os, shutil, signal, socket, subprocess, sys, unittest

import api_box
from run_box import DEADLINE, alive, look, pids, until
from ssh_box import Remote, SSHD, parent_is

AIRLOCK, PROBER = (os.path.realpath(sys.argv.pop(1)) for _ in range(2))
FILES = {"a": b"one\n", "d/b": b"two\n", "run.sh": b"#!/bin/sh\n"}
ATTEMPTS = 36  # of tests/hostile/prober.c
# A machine on which an ordinary account can make no sandbox: the last user namespace is the one that it is in.
NO_NAMESPACES = ("exec unshare -Ur sh -c 'echo 1 >/proc/sys/user/max_user_namespaces && exec unshare -U --map-user=1000 --map-group=1000 "
                 "/bin/sh -c \"$SSH_ORIGINAL_COMMAND\"'")


def marked(word):
    """Processes with this word in their arguments, wherever they run."""
    return [p for p in pids() if word.encode() in look(p, "cmdline").split(b"\0") and alive(p)]


class Sandbox(unittest.TestCase):
    def setUp(self):
        self.r = Remote(os.path.dirname(AIRLOCK), FILES)
        self.addCleanup(self.r.remove)

    def run_there(self, *words, **kw):
        return self.r.run("--remote-sandbox", *words, **kw)

    def ok(self, *words, status=0, **kw):
        p = self.run_there(*words, **kw)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def fails(self, text, *words, status=125, **kw):
        """Said in these words, and nothing ran: less isolation than was asked for is no answer."""
        p = self.run_there(*words, "--", "touch ran; echo ran", **kw)
        self.assertEqual(p.returncode, status, p.stderr)
        self.assertIn(text, p.stderr.decode(errors="replace"))
        self.assertEqual((p.stdout, os.path.exists(self.r.ws + "/ran")), (b"", False))
        self.assertEqual(self.r.runs_there(), [])
        return p

    # Isolation. ---------------------------------------------------------------------------------

    def probe(self, *words):
        """What the prober of the native provider finds, with facts of this host, which is the other machine too."""
        shutil.copy(PROBER, self.r.ws + "/prober")
        name = "airlock-probe-%d" % os.getpid()
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as un:
            un.bind("\0" + name)
            un.listen(8)
            p = self.ok("-q", *words, "--", "env | grep -c ^SSH_; exec env -i ./prober %s %d %s %d" % (self.r.top, tcp.getsockname()[1], name, os.getpid()))
        # Of the session's own variables none is there.
        self.assertEqual(p.stdout[:2], b"0\n")
        found = [json.loads(line) for line in p.stdout.splitlines() if line.startswith(b"{")]
        self.assertEqual(len(found), ATTEMPTS, p.stdout)
        return {f["attempt"] for f in found if f["escaped"]}

    def test_no_way_out_of_it_RT_S1(self):
        self.assertEqual(self.probe(), set())

    def test_the_prober_sees_what_is_open(self):
        self.assertIn("host-loopback", self.probe("--net", "host"))
        self.assertNotEqual(self.probe("--without", "seccomp"), set())

    def test_the_same_layers_as_here_are_in_force_and_said_B_09_FR_B179(self):
        def layers(*words):
            p = self.r.airlock("run", *words, "--json", "--", "true")
            self.assertEqual(p.returncode, 0, p.stderr)
            doc = json.loads(p.stdout)["isolation"]
            return doc["isolated"], [(x["layer"], x["state"], x["detail"]) for x in doc["layers"]]
        there = layers(*self.r.words, "--remote-sandbox")
        self.assertEqual(there, layers())
        self.assertTrue(there[0])
        p = self.ok("--", "id -u; hostname; pwd; echo $HOME; ls -A")
        self.assertEqual(p.stdout.split()[1:4], [b"airlock", b"/workspace", b"/home/agent"])
        self.assertNotEqual(p.stdout.split()[0], b"0")
        said = p.stderr.decode()
        self.assertIn("layers in force; network none", said)
        self.assertIn("of the other machine's kernel", said)
        self.assertNotIn("NO ISOLATION", said)
        p = self.ok("--without", "landlock", "--net", "host", "--", "true")
        self.assertIn(b"WITHOUT landlock", p.stderr)
        self.assertIn(b"network HOST", p.stderr)

    def test_nothing_runs_with_less_than_was_asked_for(self):
        self.r.sshd.shell(NO_NAMESPACES)
        p = self.fails("Missing there: user namespace. Remedy: allow unprivileged user namespaces there")
        self.assertIn(b"doctor --ssh ... --remote-sandbox", p.stderr)
        q = self.r.airlock("doctor", *self.r.words, "--remote-sandbox")
        self.assertEqual(q.returncode, 1, q.stdout)
        self.assertRegex(q.stdout.decode(), r"user namespace +warning +cannot be had there\n +remedy: allow unprivileged user namespaces there")
        self.assertRegex(q.stdout.decode(), r"remote sandbox +FAILED")
        # A machine that cannot have our programs has no sandbox either: its shell and tar are none.
        self.r.sshd.shell('XDG_CACHE_HOME=/proc exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        self.fails("has no place for the guest program")

    def test_the_doctor_proves_it(self):
        q = self.r.airlock("doctor", *self.r.words, "--remote-sandbox")
        self.assertEqual(q.returncode, 0, q.stdout)
        self.assertRegex(q.stdout.decode(), r"remote sandbox +ok")

    def test_the_doctor_counts_the_landlock_that_is_used(self):
        os.mkdir(self.r.top + "/old")
        for name, text in ("uname", 'test "$1" = -r && exec echo "$RELEASE"; exec /bin/uname "$@"'), ("grep", 'test "$2" = landlock || exec /bin/grep "$@"'):
            with open(self.r.top + "/old/" + name, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n%s\n" % text)
            os.chmod(self.r.top + "/old/" + name, 0o755)
        for release, state in ("5.13.0-1-generic", "warning"), ("6.11-rc1", "warning"), ("6.12.1", "ok"), ("6.12-rc2", "ok"), ("7.0.0", "ok"), ("odd", "warning"):
            self.r.sshd.shell('RELEASE=%s PATH=%s/old:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % (release, self.r.top))
            q = self.r.airlock("doctor", *self.r.words, "--remote-sandbox")
            self.assertRegex(q.stdout.decode(), r"\n *landlock +%s" % state, release)
            self.assertEqual(b"6.12" in q.stdout, state == "warning", q.stdout)

    def test_a_limit_that_cannot_be_had_there_names_what_is_to_be_done_there(self):
        if os.geteuid() == 0:
            self.r.sshd.shell('exec unshare -m sh -c \'umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\'')
        p = self.run_there("--memory", "1G", "--", "true")
        if p.returncode == 0:
            self.skipTest("this account has a cgroup of its own")
        self.assertIn(b"let the account's session there have a delegated cgroup", p.stderr)
        for word in b"systemd-run", b"no cgroup here", b"`airlock doctor`":
            self.assertNotIn(word, p.stderr)

    def test_what_cannot_be_had_is_refused_aloud(self):
        for words in ["--net", "allow=h"], ["--bind-ro", "/etc"], ["--keep"], ["--ssh-guest", "never"], \
                ["--api-transport", "queue"], ["--image", "x"], ["--provider", "local"]:
            p = self.run_there(*words, "--", "echo ran")
            self.assertNotIn(p.returncode, (0,), words)
            self.assertIn(words[0].encode(), p.stderr)
            self.assertEqual(p.stdout, b"", words)
        p = self.r.airlock("run", "--remote-sandbox", "--", "echo ran")
        self.assertEqual((p.returncode, p.stdout), (2, b""), p.stderr)
        self.assertIn(b"--remote-sandbox belongs to --ssh", p.stderr)

    def test_limits_hold_there(self):
        p = self.ok("-q", "--pids", "20", "--", "grep 'Max processes' /proc/self/limits")
        self.assertEqual(p.stdout.split()[2:4], [b"20", b"20"])

    # Mappings. ------------------------------------------------------------------------------------

    def mapped(self):
        """A directory for its home and a file for its /tmp, and the words for them."""
        self.dir, self.file = self.r.top + "/assets", self.r.top + "/one.json"
        os.makedirs(self.dir + "/d")
        for name, text in (self.dir + "/x", "old\n"), (self.dir + "/d/y", "y\n"), (self.file, "{}\n"):
            with open(name, "w", encoding="ascii") as f:
                f.write(text)
        os.chmod(self.file, 0o600)
        return ["--map", self.dir + ":/home/agent/.m", "--map", self.file + ":/tmp/deep/one.json:file"]

    def at_home(self):
        with open(self.dir + "/x", encoding="ascii") as x, open(self.file, encoding="ascii") as f:
            return x.read(), sorted(os.listdir(self.dir)), f.read(), os.stat(self.file).st_mode & 0o777

    def test_mappings_go_into_its_home_and_come_back_S1_08(self):
        maps = self.mapped()
        p = self.ok("-q", *maps, "--", "cat ~/.m/x ~/.m/d/y /tmp/deep/one.json; echo new >~/.m/x; rm -r ~/.m/d; echo z >~/.m/z; echo '{1}' >/tmp/deep/one.json; echo w >w")
        self.assertEqual(p.stdout, b"old\ny\n{}\n")
        self.assertEqual((self.at_home(), self.r.read("w")), (("new\n", ["x", "z"], "{1}\n", 0o600), b"w\n"))
        self.assertEqual((self.r.left_there(), os.path.exists("/tmp/deep")), ([], False))

    def test_door_1_judges_mappings_from_there_B1_J4(self):
        maps = self.mapped()
        self.ok("-q", *maps, "--", "cd ~/.m; ln -s /etc/passwd evil; mkdir -p .git/hooks; echo x >.git/hooks/h; mkfifo pipe; ln -s x fine")
        self.assertEqual(self.at_home()[1], ["d", "fine", "x"])
        p = self.run_there("-q", *maps, "--", "rm -r ~/.m; ln -s /etc ~/.m; rm /tmp/deep/one.json; mkdir /tmp/deep/one.json")
        self.assertEqual((p.returncode, self.at_home()), (125, ("old\n", ["d", "fine", "x"], "{}\n", 0o600)), p.stderr)
        self.assertIn(b"is not a directory any more", p.stderr)

    def test_kill_9_loses_no_mapping_and_who_gives_up_leaves_none_there(self):
        maps = self.mapped()
        for word in "recover", "rm":
            p = self.r.start("--remote-sandbox", "-q", *maps, "--", "echo %s >~/.m/x; echo '{%s}' >/tmp/deep/one.json; echo up; sleep 31343.9" % (word, word))
            self.addCleanup(p.kill)
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.kill()
            p.communicate(timeout=DEADLINE)
            until("the tree has ended", lambda: not marked("31343.9"))
            q = self.r.airlock(word, *(["--force"] if word == "rm" else []), self.r.rows()[0]["run"])
            self.assertEqual((q.returncode, self.r.runs_there()), (0, []), q.stderr)
            self.assertEqual(self.at_home(), ("recover\n", ["d", "x"], "{recover}\n", 0o600))

    # Work. --------------------------------------------------------------------------------------

    def test_results_come_back_and_nothing_stays_there_K9(self):
        change = "echo more >>a; rm -r d; printf x >new; ln -s a l; mkdir e; echo f >e/f; chmod 755 run.sh; echo h >~/home; echo t >/tmp/t"
        for words in ["--without", "overlay"], []:
            shutil.rmtree(self.r.ws)
            os.mkdir(self.r.ws)
            for name, data in FILES.items():
                self.r.write(name, data)
            self.ok(*words, "--", change)
            self.assertEqual(self.r.read("a"), b"one\nmore\n")
            self.assertEqual((self.r.read("new"), self.r.read("e/f"), os.readlink(self.r.ws + "/l")), (b"x", b"f\n", "a"))
            self.assertFalse(os.path.exists(self.r.ws + "/d"))
            self.assertEqual(os.stat(self.r.ws + "/run.sh").st_mode & 0o777, 0o755)
            self.assertEqual(os.stat(self.r.ws + "/new").st_uid, os.geteuid())
            self.assertEqual(self.r.left_there(), [])
            self.assertEqual(os.listdir(self.r.state + "/leases"), [])
        # The next one starts from what the last one left, as it is here now; home and tmp are new.
        p = self.ok("-q", "--", "cat a e/f; ls ~ /tmp; ls")
        self.assertEqual(p.stdout, b"one\nmore\nf\n/home/agent:\n\n/tmp:\na\ne\nl\nnew\nrun.sh\n")
        # A run without a sandbox has a tree of its own: that of a sandbox may be another user's.
        self.assertEqual(self.r.run("-q", "--", "stat -c %u a; rm e/f").stdout, b"%d\n" % os.geteuid())
        self.assertEqual(self.ok("-q", "--", "ls e; cat a").stdout, b"one\nmore\n")
        self.assertEqual(len(os.listdir(self.r.there + "/.airlock-runtime/bases")), 2)
        self.assertEqual(self.r.airlock("env", "clean", *self.r.words).returncode, 0)
        self.assertEqual(os.listdir(self.r.there), [])
        self.assertEqual(os.listdir(self.r.sshd.home + "/.cache/airlock"), [])

    def test_a_guest_in_whose_place_an_equal_one_was_put_goes_on(self):
        """Two first runs at once both send it: the one that began sooner then runs a file without a name."""
        again = 'cp "$g" "$g.x"; exec 9<"$g"; mv -f "$g.x" "$g"; exec /proc/self/fd/9 remote'
        self.r.sshd.shell("c=$(printf %%s \"$SSH_ORIGINAL_COMMAND\" | sed 's#exec \"$g\" remote#%s#'); exec /bin/sh -c \"$c\"" % again)
        self.assertEqual(self.ok("-q", "--", "echo in").stdout, b"in\n")

    def test_streams_status_and_commits(self):
        git = ["git", "-C", self.r.ws, "-c", "user.name=t", "-c", "user.email=t@t"]
        for words in ["init", "-q", "-b", "main"], ["add", "a"], ["commit", "-q", "-m", "first"]:
            subprocess.run(git + words, check=True, env=self.r.env)
        p = self.ok("-q", "--", "cat; printf '\\0\\377' >&2; echo c >c && git add c && git -c user.name=r -c user.email=r@r commit -q -m second; exit 7",
                    status=7, stdin=None, input=b"in\0\xfe" * 50000)
        self.assertEqual((p.stdout, p.stderr), (b"in\0\xfe" * 50000, b"\0\xff"))
        log = subprocess.run(git + ["log", "--format=%s"], check=True, env=self.r.env, stdout=subprocess.PIPE).stdout
        self.assertEqual(log, b"second\nfirst\n")

    def test_the_bridge_works_in_it_S2_01(self):
        api, words = self.r.with_api(self)
        call = ("python3 -c \"import os, urllib.request as u; k = os.environ['PAPERCLIP_API_KEY']; "
                "print(u.urlopen(u.Request(os.environ['PAPERCLIP_API_URL'] + '/api/agents/me', headers={'Authorization': 'Bearer ' + k})).status, "
                "k == '%s')\"" % api_box.KEY)
        p = self.ok("-q", *words, "--", "for i in 1 2 3; do %s; done; ls -A /tmp" % call)
        self.assertEqual(p.stdout, b"200 False\n" * 3)
        self.assertEqual({dict(c["headers"])["authorization"] for c in api.take()}, {"Bearer " + api_box.KEY})

    # Ends. --------------------------------------------------------------------------------------

    def test_time_out_ends_the_whole_tree_J11(self):
        self.ok("--timeout", "500ms", "--", "echo w >work; setsid sleep 31338.1 & sleep 31338.1", status=124)
        until("the tree has ended", lambda: not marked("31338.1"))
        self.assertEqual((self.r.read("work"), self.r.runs_there()), (b"w\n", []))

    def test_ctrl_c_ends_the_tree_and_brings_the_work_back_FR_B047(self):
        p = self.r.start("--remote-sandbox", "--", "echo w >work; echo up; sleep 31338.2 & sleep 31338.2")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 130)
        until("the tree has ended", lambda: not marked("31338.2"))
        self.assertEqual((self.r.read("work"), self.r.runs_there()), (b"w\n", []))

    def killed(self, n, whom, *words):
        p = self.r.start("--remote-sandbox", *words, "--", "echo w >work; rm a; echo up; setsid sleep 31338.%d & sleep 31338.%d" % (n, n))
        self.assertEqual(p.stdout.readline(), b"up\n")
        until("the tree is up", lambda: len(marked("31338.%d" % n)) == 2)
        whom(p)
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not marked("31338.%d" % n))
        self.assertEqual(len(self.r.runs_there()), 1)
        self.assertFalse(os.path.exists(self.r.ws + "/work"))
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual(q.returncode, 0, q.stderr)
        self.assertEqual((self.r.read("work"), os.path.exists(self.r.ws + "/a")), (b"w\n", False))
        self.assertEqual(self.r.left_there(), [])

    def test_a_copy_that_was_emptied_comes_back_as_empty(self):
        """Also of a run here: without overlay the workspace is a copy in both."""
        for n, words, mine in (7, ["--remote-sandbox"], True), (8, [], False):
            with self.subTest(words):
                self.r.write("a", b"one\n")
                self.r.write("d/b", b"two\n")
                words += ["--without", "overlay", "--", "rm -r *; echo up; sleep 31338.%d" % n]
                p = self.r.start(*words) if mine else subprocess.Popen(
                    [self.r.bin + "/airlock", "run", *words], cwd=self.r.ws, env=self.r.env, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(p.stdout.readline(), b"up\n")
                p.kill()
                p.communicate(timeout=DEADLINE)
                until("the tree has ended", lambda m="31338.%d" % n: not marked(m))
                q = self.r.airlock("recover", "last")
                self.assertEqual(q.returncode, 0, q.stderr)
                self.assertIn(b"delet", q.stderr + q.stdout)
                self.assertEqual(os.listdir(self.r.ws), [], q.stderr)

    def there(self, word):
        return [q for q in pids() if look(q, "cmdline").endswith(b"\0remote\0") and
                os.path.basename(look(q, "cmdline").split(b"\0")[0]).startswith(word) and parent_is(q, self.r.sshd.proc.pid)]

    def kill(self, words):
        self.assertNotEqual(words, [])
        for q in words:
            os.kill(q, signal.SIGKILL)

    def test_kill_9_of_airlock_leaves_no_process_and_loses_nothing(self):
        self.killed(3, lambda p: p.kill())

    def test_kill_9_of_the_launcher_there_leaves_no_process_and_loses_nothing(self):
        self.killed(4, lambda p: self.kill(self.there(b"launch-")))

    def test_kill_9_of_the_guest_there_leaves_no_process_and_loses_nothing(self):
        self.killed(5, lambda p: self.kill(self.there(b"guest-")))

    def test_a_lost_connection_leaves_no_process_and_loses_nothing_FR_B093(self):
        self.killed(6, lambda p: self.r.cut(), "--ssh-grace", "0")


if __name__ == "__main__":
    if not SSHD:
        print("skipped: no sshd on this machine")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[1:], verbosity=2)
