#!/usr/bin/env python3
"""Runs on another machine that has no guest program: by its shell and tar (B-04, S1, RT for driver ssh; cases K6, K7, J8, J11, J14,
J15; field reports B046, B054, B132, B172).

usage: test_ssh_plain.py AIRLOCK [unittest arguments]
"""
import os, shutil, signal, socket, subprocess, sys, unittest, time

import api_box
from run_box import DEADLINE, alive, look, pids, side_by_side, until
from ssh_box import Remote, SSHD

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)
FILES = {"a": b"one\n", "d/b": b"two\n", "run.sh": b"#!/bin/sh\n", b"odd\xff \n name".decode("utf-8", "surrogateescape"): b"x"}
WITHOUT = b"without a guest program there"


def marked(word):
    return [p for p in pids() if word.encode() in look(p, "cmdline").split(b"\0") and alive(p)]


class Plain(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, FILES)
        self.addCleanup(self.r.remove)

    def forced(self):
        self.r.words += ["--ssh-guest", "never"]

    def ok(self, *words, status=0, **kw):
        p = self.r.run(*words, **kw)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def path_with(self, **programs):
        """The account's PATH begins with these scripts."""
        d = self.r.sshd.top + "/path"
        os.makedirs(d, exist_ok=True)
        for name, text in programs.items():
            with open(d + "/" + name, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n%s\n" % text)
            os.chmod(d + "/" + name, 0o755)
        self.r.sshd.shell('PATH=%s:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % d)

    def carrying(self, mark):
        """Processes of this test's own account there."""
        return [q for q in pids() for e in [look(q, "environ")] if mark in e and self.r.top.encode() in e and alive(q)]

    def same(self):
        """What a run does with a guest it does so too."""
        p = self.ok("--", "echo more >>a; rm d/b; ln -s a l; ln -s ../../.. up; mkdir e; chmod 755 run.sh; mkdir -p .git/hooks; echo x >.git/hooks/h")
        self.assertIn(WITHOUT, p.stderr)
        self.assertIn(b"NO ISOLATION ON THE REMOTE", p.stderr)
        self.assertEqual(self.r.read("a"), b"one\nmore\n")
        self.assertFalse(os.path.exists(self.r.ws + "/d/b"))
        self.assertEqual(os.readlink(self.r.ws + "/l"), "a")
        self.assertTrue(os.path.isdir(self.r.ws + "/e"))
        for n in "up", ".git":
            self.assertFalse(os.path.lexists(self.r.ws + "/" + n), n)
        self.assertEqual(os.listdir(self.r.there), [])
        return p

    def test_asked_for_results_come_back_and_nothing_stays_there_K7_S1_03(self):
        self.forced()
        self.assertIn(b"--ssh-guest never", self.same().stderr)
        self.assertFalse(os.path.exists(self.r.sshd.home + "/.cache"))

    def test_another_kind_of_machine_K7(self):
        self.path_with(uname="echo Plan9")
        self.assertIn(b"no guest program for that kind of machine", self.same().stderr)
        self.r.words += ["--ssh-guest", "always"]
        self.assertIn(b"Plan9-Plan9 machine", self.r.run("--", "true").stderr)

    @unittest.skipIf(os.geteuid(), "only root can mount a file system without execution")
    def test_a_home_without_execution_or_room_K11(self):
        cache = self.r.sshd.home + "/.cache"
        os.mkdir(cache)
        for option, text in ("noexec", b"noexec"), ("size=64k", b"disk or quota full"), ("ro", b"no place for the guest"):
            subprocess.run(["mount", "-t", "tmpfs", "-o", option, "none", cache], check=True)
            try:
                p = self.ok("--", "echo %s >out" % option)
                self.assertIn(text, p.stderr)
                self.assertEqual(self.r.read("out"), option.encode() + b"\n")
            finally:
                subprocess.run(["umount", cache], check=True)

    def test_words_bytes_and_streams_arrive_exactly_FR_B054_J14_J15(self):
        self.forced()
        value = "q\"'`$x\n$(id)" + "v" * 100000 + bytes(range(128, 256)).decode("latin-1").encode().decode("utf-8", "surrogateescape") + "\n"
        p = self.ok("-q", "--setenv", "SECRET=" + value, "--", "sh", "-c", 'printf "%s|" "$0" "$@"; printf %s "$SECRET" | wc -c >&2',
                    "n", "a b", "", "it's", "$x", "*")
        self.assertEqual(p.stdout, b"n|a b||it's|$x|*|")
        self.assertEqual(p.stderr.split()[0], b"%d" % len(os.fsencode(value)))
        data = bytes(range(256)) * 4096
        with open(self.r.top + "/in", "wb") as f:
            f.write(data)
        with open(self.r.top + "/in", "rb") as f:
            self.assertEqual(self.ok("-q", "--", "cat", stdin=f).stdout, data)
        p = self.ok("-q", "--", "head -c 20000000 /dev/zero; echo last >&2")
        self.assertEqual((len(p.stdout), p.stderr), (20000000, b"last\n"))

    def test_statuses_and_a_reader_that_leaves(self):
        self.forced()
        for n in 42, 255:
            self.ok("-q", "--", "exit %d" % n, status=n)
        self.ok("-q", "--", "kill -9 $$", status=137)
        p = self.r.start("-q", "--", "yes")
        head = subprocess.run(["head", "-c", "100000"], stdin=p.stdout, stdout=subprocess.PIPE, timeout=DEADLINE, check=True)
        p.stdout.close()
        self.assertEqual(len(head.stdout), 100000)
        self.assertEqual(p.wait(DEADLINE), 128 + signal.SIGPIPE)
        p.stderr.close()

    def test_a_secret_is_in_no_command_line_FR_B046(self):
        self.forced()
        p = self.r.start("-q", "--setenv", "SECRET=topfold", "--", "echo up; read x; true", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        seen = [look(q, "cmdline") for q in pids()]
        p.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0)
        self.assertEqual([c for c in seen if b"topfold" in c and b"bin/airlock\0run" not in c], [])

    def test_time_out_and_left_overs_end_the_whole_tree_J11(self):
        self.forced()
        self.ok("--timeout", "2s", "--", "setsid sleep 31338.1 & sleep 31338.1", status=124)
        until("the tree has ended", lambda: not marked("31338.1"))
        self.ok("--", "setsid sleep 31338.2 >/dev/null 2>&1 &")
        until("what was left has ended", lambda: not marked("31338.2"))

    def test_where_no_process_is_found_none_is_started_J11(self):
        self.forced()
        # As on a machine whose /proc, if it has one, tells no variables.
        self.path_with(grep="exit 1")
        p = self.r.run("--", "touch ran; sleep 31338.9")
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"a command could not be ended", p.stderr)
        self.assertEqual((os.path.exists(self.r.ws + "/ran"), self.r.runs_there()), (False, []))
        # It is told by trying, and what was tried with is gone.
        self.path_with(grep='exec %s "$@"' % shutil.which("grep"))
        self.ok("--", "true")
        self.assertEqual(self.carrying(b"AIRLOCK_SSH_RUN=proof."), [])

    def test_kill_9_of_airlock_leaves_no_process_and_loses_nothing(self):
        self.forced()
        p = self.r.start("--", "echo w >work; echo up; setsid sleep 31338.3 & sleep 31338.3")
        self.assertEqual(p.stdout.readline(), b"up\n")
        p.kill()
        p.communicate(timeout=DEADLINE)
        until("the tree has ended", lambda: not marked("31338.3"))
        self.assertEqual(len(self.r.runs_there()), 1)
        run = self.r.rows()[0]["run"]
        # Who cleans up with a guest sees work that is not here yet.
        self.r.airlock("env", "clean", *self.r.words[:-2])
        self.assertEqual(len(self.r.runs_there()), 1)
        q = self.r.airlock("recover", run)
        self.assertEqual((q.returncode, self.r.read("work")), (0, b"w\n"), q.stderr)
        self.assertEqual(self.r.runs_there(), [])

    def arriving(self, *words):
        """A run whose workspace is on its way until the file `go` is there."""
        go = self.r.sshd.top + "/go"
        self.path_with(tar='case $1 in -x*) echo >%s.in; until test -e %s; do sleep 0.1; done;; esac; exec %s "$@"'
                       % (go, go, shutil.which("tar")))
        p = self.r.start(*words, "--", "echo more >>a")
        until("it arrives", lambda: os.path.exists(go + ".in"))
        return p, go

    def test_who_cleans_up_beside_an_arriving_run_leaves_it_K9(self):
        guest = self.r.words
        self.r.words = guest + ["--ssh-guest", "never"]
        p, go = self.arriving()
        q = self.r.airlock("env", "clean", *guest)
        self.assertIn(b"1 runs are going on there", q.stdout, q.stderr)
        with open(go, "wb"):
            pass
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual((p.returncode, self.r.read("a")), (0, b"one\nmore\n"), err)
        # One that nobody comes back for is no run.
        os.unlink(go)
        os.unlink(go + ".in")
        p, go = self.arriving()
        p.kill()
        p.communicate(timeout=DEADLINE)
        until("nothing works there", lambda: not self.carrying(b"AIRLOCK_SSH_RUN="))
        run, = self.r.runs_there()
        for n in "", "/alive":
            os.utime("%s/.airlock-runtime/runs/%s%s" % (self.r.there, run, n), (0, 0))
        q = self.r.airlock("env", "clean", *guest)
        self.assertEqual((q.returncode, self.r.runs_there()), (0, []), q.stdout + q.stderr)

    def test_another_runs_end_takes_no_directory_from_one_that_begins_K9(self):
        self.forced()
        mkdir, once = shutil.which("mkdir"), self.r.sshd.top + "/once"
        self.path_with(mkdir='%s "$@" || exit 1; case $1 in */runs) test -e %s || { echo >%s; rmdir "$1"; };; esac' % (mkdir, once, once))
        self.ok("--", "echo more >>a")
        self.assertEqual((os.path.exists(once), self.r.read("a")), (True, b"one\nmore\n"))

    def test_a_cut_leaves_no_process_and_loses_nothing_FR_B093(self):
        self.forced()
        p = self.r.start("--", "echo w >work; echo up; sleep 31338.4")
        self.assertEqual(p.stdout.readline(), b"up\n")
        self.r.cut()
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"was lost; without a guest there the command ends with it", err)
        self.assertNotIn(b"the guest there ends", err)
        remote = self.r.rows()[0]["remote"]
        self.assertEqual((remote["reached"], "was lost" in remote["why"]), (False, True), remote)
        until("the tree has ended", lambda: not marked("31338.4"))
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.r.read("work")), (0, b"w\n"), q.stderr)

    def hanging(self, when):
        """A login shell that waits where that is so, until the file `go` is there; then it goes on as if nothing had been, whoever still reads."""
        top = self.r.sshd.top
        self.addCleanup(lambda: [os.kill(q, signal.SIGKILL) for q in marked("31338.9")])
        self.r.sshd.shell('cd "%s"; echo x >>logins; if %s; then trap "" PIPE; until test -e go; do sleep .1; test -d .; done; echo $$ >>went; fi; '
                          'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % (top, when))
        return top

    def lost_to_the_shell(self, top, *command):
        p = self.r.run("--", *command)
        self.assertEqual(p.returncode, 125, p.stderr)
        self.assertRegex(p.stderr, b"ssh 127.0.0.1: the login shell there did not start our script within 2[5-9] s, .*: its start files wait for something")
        self.assertIn(b"airlock recover", p.stderr)
        with open(top + "/go", "wb"):
            pass
        until("it went on", lambda: os.path.exists(top + "/went"))
        with open(top + "/went", encoding="ascii") as f:
            pid = int(f.read())
        until("its shell has ended", lambda: not alive(pid))

    def test_a_command_whose_login_shell_hangs_is_given_up_by_name_and_never_runs_K6(self):
        self.forced()
        top = self.hanging('test "$(wc -l <logins)" -eq 4')
        self.lost_to_the_shell(top, "echo x >>%s/ran; sleep 31338.9" % top)
        self.assertFalse(os.path.exists(top + "/ran"))
        self.assertEqual(marked("31338.9"), [])
        self.assertEqual(self.r.airlock("recover", self.r.rows()[0]["run"]).returncode, 0)

    def test_results_whose_login_shell_hangs_are_given_up_by_name_and_recoverable_K6(self):
        self.forced()
        top = self.hanging("test -e hang && test ! -e go")
        self.lost_to_the_shell(top, "echo w >work; touch %s/hang" % top)
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.r.read("work")), (0, b"w\n"), q.stderr)

    def test_a_kept_lease_takes_commands_side_by_side_and_ends_with_rm(self):
        self.forced()
        self.ok("-q", "--keep", "--", "echo 1 >one")
        run = self.r.rows()[0]["run"]
        first = subprocess.Popen([self.r.bin + "/airlock", "exec", run, "--", "cat one; read x; echo 2 >two"], cwd=self.r.ws, env=self.r.env,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(first.stdout.readline(), b"1\n")
        q = self.r.airlock("exec", run, "--", "echo 3 >three")
        self.assertEqual((q.returncode, self.r.read("three")), (0, b"3\n"), q.stderr)
        _, err = first.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual((first.returncode, self.r.read("two")), (0, b"2\n"), err)
        self.assertEqual(self.r.airlock("rm", run).returncode, 0)
        self.assertEqual(os.listdir(self.r.there), [])

    def test_login_shells_and_noise_K6_FR_B132(self):
        self.forced()
        for sh in [s for s in ("busybox sh", "zsh", "fish") if shutil.which(s.split()[0])]:
            self.r.sshd.shell('echo "welcome airlock"; head -c 20000 /dev/urandom; echo noise >&2; exec %s -c "$SSH_ORIGINAL_COMMAND"' % sh)
            p = self.ok("-q", "--", "echo mine; echo err >&2; echo %s >>a" % sh[0])
            self.assertEqual((p.stdout, p.stderr), (b"mine\n", b"err\n"), sh)
        self.r.sshd.shell("echo tmux says no; exit 1")
        self.assertIn(b"tmux says no", self.r.run("--", "true").stderr)

    def test_busybox_is_all_that_is_needed_K7_J8(self):
        self.forced()
        box = shutil.which("busybox")
        if not box:
            self.skipTest("no busybox here")
        d = self.r.sshd.top + "/box"
        os.mkdir(d)
        for n in "sh tar base64 mkdir rm mv cat sed env grep sleep chmod rmdir ls setsid head test date".split():
            os.symlink(box, d + "/" + n)
        self.r.sshd.shell("export PATH=%s; exec %s/sh -c \"$(echo \"$SSH_ORIGINAL_COMMAND\" | sed s,/bin/sh,%s/sh,)\"" % (d, d, d))
        self.same()
        # Its grep finds what is to be ended, too.
        self.ok("--timeout", "2s", "--", "A=1 sleep 31338.8 & A=1 sleep 31338.8", status=124)
        until("the tree has ended", lambda: not marked("31338.8"))
        # That shell takes its own tar for one of the system's.
        os.unlink(d + "/tar")
        self.r.sshd.shell('export PATH=%s; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % d)
        p = self.r.run("--", "true")
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"no program tar", p.stderr)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("busybox"), "needs root, for another tar in the place of the system's, and busybox")
    def test_a_place_that_cannot_be_listed_is_no_empty_one_S1_06(self):
        """A tar without --exclude is given the names that the shell finds; it finds none where it may not look."""
        self.forced()
        self.r.sshd.shell("""exec unshare -m sh -c 'mount --bind %s /usr/bin/tar &&
            exec setpriv --bounding-set=-dac_override,-dac_read_search sh -c "$SSH_ORIGINAL_COMMAND"'""" % shutil.which("busybox"))
        self.same()
        before = sorted(os.listdir(self.r.ws))
        self.assertGreater(len(before), 1)
        p = self.r.run("--", "chmod 311 .")
        self.assertEqual((p.returncode, sorted(os.listdir(self.r.ws))), (125, before), p.stderr)
        self.assertIn(b"no deletion is taken over", p.stderr)
        p = self.ok("-q", "--", "rm -rf * .[!.]*")
        self.assertEqual(os.listdir(self.r.ws), [".git"] if ".git" in before else [])


    CALL = r'''python3 - <<'END'
import os, urllib.error, urllib.request
def call(path, method="GET", key=os.environ["PAPERCLIP_API_KEY"]):
    q = urllib.request.Request(os.environ["PAPERCLIP_API_URL"] + path, None, {"authorization": "Bearer " + key}, method=method)
    try:
        with urllib.request.urlopen(q) as a:
            return a.status
    except urllib.error.HTTPError as e:
        return e.code
print(call("/api/agents/me"), call("/api/agents/me", key="other"), call("/api/agents/me/../../x"), call("/api/companies/c1/secrets", "DELETE"))
print(os.environ["PAPERCLIP_API_URL"])
END'''

    def test_the_bridge_is_met_through_a_forwarded_port_S2_01_S2_04(self):
        self.forced()
        api, words = self.r.with_api(self)
        p = self.ok("-q", *words, "--", self.CALL)
        said = p.stdout.split()
        self.assertEqual(said[:4], [b"200", b"401", b"400", b"403"])
        calls = api.take()
        self.assertEqual([dict(c["headers"])["authorization"] for c in calls], ["Bearer " + api_box.KEY])
        # The port is closed with the run, although the connection stays.
        with socket.socket() as s:
            self.assertNotEqual(s.connect_ex(("127.0.0.1", int(said[4].rsplit(b":", 1)[1]))), 0)

    def test_kill_9_of_airlock_closes_the_bridges_port_although_others_keep_the_connection_FR_B093_S2_04(self):
        self.forced()
        other = self.r.start("-q", "--", "echo up; read x; true", stdin=subprocess.PIPE)
        self.assertEqual(other.stdout.readline(), b"up\n")
        p = self.r.start("-q", *self.r.with_api(self)[1], "--", 'echo "$PAPERCLIP_API_URL"; sleep 31338.5')
        port = int(p.stdout.readline().rsplit(b":", 1)[1])

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0
        self.assertTrue(listens())
        # Nobody can ask that connection for another port: there is one socket, the shared one.
        self.assertEqual(len(self.sockets()), 1)
        p.kill()
        p.communicate(timeout=DEADLINE)
        until("the port is closed", lambda: not listens())
        self.assertIsNone(other.poll())
        self.assertEqual([q for q in pids() if b"\0-oControlPersist=no\0" in look(q, "cmdline") and self.r.sshd.top.encode() in look(q, "cmdline")], [])
        other.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(other.returncode, 0)

    def sockets(self):
        return [n for _, _, names in os.walk(self.r.state + "/ssh") for n in names]

    def test_a_server_that_forwards_nothing_is_told(self):
        self.forced()
        s = self.r.sshd
        with open(s.top + "/config", "a", encoding="ascii") as f:
            f.write("AllowTcpForwarding no\n")
        s.stop()
        s.start()
        p = self.r.run(*self.r.with_api(self)[1], "--", "touch ran")
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"AllowTcpForwarding", p.stderr)
        self.assertFalse(os.path.exists(self.r.ws + "/ran"))
        self.ok("-q", "--", "true")

    def test_a_server_that_opens_the_bridges_port_to_the_network_is_refused_S2_04(self):
        self.forced()
        api, words = self.r.with_api(self)
        s = self.r.sshd
        with open(s.top + "/config", encoding="ascii") as f:
            config = f.read()
        for value, status in ("yes", 125), ("clientspecified", 0):
            with open(s.top + "/config", "w", encoding="ascii") as f:
                f.write(config + "GatewayPorts %s\n" % value)
            self.r.disconnect()
            s.stop()
            s.start()
            p = self.r.run("-q", *words, "--", "touch ran")
            self.assertEqual(p.returncode, status, p.stderr)
            self.assertEqual((b"GatewayPorts" in p.stderr, os.path.exists(self.r.ws + "/ran")), (status != 0, status == 0), p.stderr)
        self.assertEqual(api.take(), [])

    def test_ctrl_c_ends_the_wait_for_the_bridges_connection(self):
        self.forced()
        s = self.r.sshd
        # From the second login on the server takes connections and says nothing; those that are there go on.
        s.shell('echo x >>"%s/logins"; test "$(wc -l <"%s/logins")" -lt 2 || kill -STOP %d; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
                % (s.top, s.top, s.proc.pid))

        def waiting():
            return [q for q in pids() if b"\0-oControlPersist=no\0" in look(q, "cmdline") and s.top.encode() in look(q, "cmdline") and alive(q)]
        try:
            p = self.r.start("-q", *self.r.with_api(self)[1], "--", "touch ran")
            until("it waits", waiting)
            p.send_signal(signal.SIGINT)
            end = time.monotonic() + 4
            while waiting() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(waiting(), [])
        finally:
            s.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
            os.kill(s.proc.pid, signal.SIGCONT)
        p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 130)
        self.assertFalse(os.path.exists(self.r.ws + "/ran"))


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    side_by_side(3)
