#!/usr/bin/env python3
"""Commands on another machine that survive a cut of the connection: a real sshd on loopback, whose sessions, or whose client, are killed
(B-04, B-07, RT for driver ssh; case K5; field report B093).

usage: test_ssh_cut.py AIRLOCK [unittest arguments]
"""
import fcntl, glob, hashlib, json, os, pty, re, signal, socket, stat, subprocess, sys, termios, threading, time, unittest

from run_box import DEADLINE, alive, look, parent, pids, side_by_side, until
from ssh_box import Remote, SSHD, parent_is

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)
CUT, BACK = b"is cut", b" again after "


def marked(word):
    """Processes with this word in their arguments, wherever they run."""
    return [p for p in pids() if word.encode() in look(p, "cmdline").split(b"\0") and alive(p)]


class Cut(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, {"a": b"one\n"})
        self.addCleanup(self.r.remove)

    def start(self, command, *words, **kw):
        p = self.r.start(*words, "--", "echo up; " + command, **kw)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"up\n")
        if "work;" in command:
            until("it has worked", lambda: [f for f in glob.glob(self.r.there + "/.airlock-runtime/runs/*/workspace/work") if os.path.getsize(f)])
        return p

    def hang_up(self, p):
        """The client is killed: the other side learns it by the end of its streams."""
        self.assertTrue([os.kill(q, signal.SIGKILL) for q in pids() if parent(q) == p.pid and look(q, "cmdline").startswith(b"ssh\0")])

    def close_the_way(self):
        self.r.sshd.shell("exit 3")

    def open_the_way(self):
        self.r.sshd.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')

    def heard(self, p, text):
        """Of stderr, up to that."""
        said = b""
        while text not in said:
            line = p.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return said

    def ended(self, p, status=0, last=b""):
        """What is left of both streams; what was read of them before may have brought more than was asked for."""
        left = [b"", b""]

        def take(i, f):
            left[i] = f.read()
            f.close()
        readers = [threading.Thread(target=take, args=(i, f)) for i, f in enumerate((p.stdout, p.stderr))]
        for t in readers:
            t.start()
        if p.stdin:
            p.stdin.write(last)
            p.stdin.close()
        for t in readers:
            t.join(2 * DEADLINE)
        self.assertEqual(p.wait(DEADLINE), status, left[1])
        return left

    def record(self):
        with open(glob.glob(self.r.state + "/runs/*/record.json")[0], encoding="utf-8") as f:
            return json.load(f)

    def unreached(self):
        """What `ps` says, to a person as well, of where its only run was."""
        row, = self.r.rows()
        self.assertFalse(row["remote"]["reached"], row)
        self.assertNotIn("tried to connect again", row["remote"]["why"])
        self.assertIn(("ago: " + row["remote"]["why"]).encode(), self.r.airlock("ps").stdout)
        return row["remote"]["why"]

    def sockets(self):
        return glob.glob(self.r.there + "/.airlock-runtime/runs/*/join/*")

    def guests(self):
        return [q for q in pids() if look(q, "cmdline").startswith(self.r.sshd.home.encode()) and look(q, "cmdline").endswith(b"\0remote\0") and alive(q)]

    def nothing_there(self, word):
        until("the tree has ended", lambda: not marked(word))
        until("the guest has ended", lambda: not self.guests())
        self.assertEqual(self.sockets(), [])

    # Bytes. -------------------------------------------------------------------------------------

    def test_every_line_comes_once_and_the_end_is_the_commands_K5(self):
        """Once by an end of the client, once by one of everything at the server's side, with much under way."""
        for words in [], ["--remote-sandbox"]:
            p = self.start("seq 1 400000; echo mark >&2; seq 400001 500000; echo w >>result; exit 7", *words)
            got = p.stdout.read(300000)
            self.hang_up(p)
            said = self.heard(p, BACK)
            got += p.stdout.read(500000)
            self.r.cut()
            out, err = self.ended(p, 7)
            self.assertEqual(hashlib.sha256(got + out).hexdigest(), hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 500001))).hexdigest())
            said += err
            self.assertEqual((said.count(CUT), said.count(BACK), said.count(b"mark\n")), (2, 2, 1), said)
            self.assertEqual(self.r.runs_there(), [])
        self.assertEqual(self.r.read("result"), b"w\nw\n")
        self.assertEqual(self.record()["reconnects"], 2)

    def test_input_that_was_under_way_arrives_once_K5(self):
        data = os.urandom(6 << 20)
        p = self.start("sha256sum; echo end", stdin=subprocess.PIPE)

        def feed():
            for i in range(0, len(data), 1 << 16):
                p.stdin.write(data[i:i + (1 << 16)])
            p.stdin.close()
        t = threading.Thread(target=feed)
        t.start()
        for how in self.hang_up, lambda p: self.r.cut():
            how(p)
            self.heard(p, BACK)
        t.join()
        self.assertEqual(p.stdout.read(), hashlib.sha256(data).hexdigest().encode() + b"  -\nend\n")
        p.stdin = None
        self.ended(p)

    def test_output_waits_there_while_nobody_is_reached(self):
        """It goes on as far as the memory of its streams goes, and then waits; nothing of it is lost."""
        p = self.start("seq 1 1000000; touch done; echo end", "--ssh-grace", "5m")
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        until("it waits", lambda: [q for q in pids() if look(q, "comm") == b"seq\n" and look(q, "wchan").startswith(b"pipe")
                                   or look(q, "comm") == b"seq\n" and look(q, "stat").split()[2:3] == [b"S"]])
        self.assertEqual(glob.glob(self.r.there + "/.airlock-runtime/runs/*/workspace/done"), [])
        self.assertTrue(self.guests())
        for q in self.guests():
            self.assertLess(int(re.search(rb"VmHWM:\s+(\d+)", look(q, "status") or b"VmHWM: 0")[1]), 16 << 10)
        self.open_the_way()
        out, _ = self.ended(p)
        self.assertEqual(hashlib.sha256(out).digest(), hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 1000001)) + b"end\n").digest())

    def test_a_command_that_ends_meanwhile_has_its_status_and_its_results(self):
        go = self.r.there + "/go"
        p = self.start("while ! test -e %s; do sleep .05; done; echo last; echo w >result; exit 9" % go)
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        row, = self.r.rows()
        self.assertFalse(row["remote"]["reached"])
        with open(go, "wb"):
            pass
        until("it is over there", lambda: glob.glob(self.r.there + "/.airlock-runtime/runs/*/workspace/result"))
        self.open_the_way()
        self.assertEqual(self.ended(p, 9)[0], b"last\n")
        self.assertEqual(self.r.read("result"), b"w\n")

    def test_ps_says_how_often(self):
        p = self.start("read x", stdin=subprocess.PIPE)
        for n in 1, 2:
            self.hang_up(p)
            self.heard(p, BACK)
            row, = self.r.rows()
            self.assertEqual((row["remote"]["reached"], row["remote"]["reconnects"]), (True, n))
        self.assertIn(b"; reconnected 2 times\n", self.r.airlock("ps").stdout)
        self.ended(p, last=b"\n")

    def test_a_terminal_goes_on(self):
        a, b = pty.openpty()
        p = subprocess.Popen([self.r.bin + "/airlock", "run", *self.r.words, "--tty", "--", "stty size; read x; echo got $x; stty size; read y; exit 5"],
                             cwd=self.r.ws, env=self.r.env, stdin=b, stdout=b, stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(p.kill)
        os.close(b)
        said = b""

        def until_said(text):
            nonlocal said
            while text not in said:
                said += os.read(a, 4096)
        until_said(b"\n")
        self.hang_up(p)
        self.heard(p, CUT)
        os.write(a, b"word\n")
        until_said(b"got word")
        self.r.cut()
        self.heard(p, BACK)
        os.write(a, b"\n")
        self.assertEqual(p.wait(DEADLINE), 5)
        self.assertEqual(said.count(b"got word"), 1)
        p.stderr.close()
        os.close(a)

    def test_ctrl_c_at_a_terminal_is_heard_without_a_connection(self):
        """With one it is a byte for the command."""
        a, b = pty.openpty()
        p = subprocess.Popen([self.r.bin + "/airlock", "run", *self.r.words, "--ssh-grace", "3s", "--tty", "--", "echo up; exec sleep 31341.8"], cwd=self.r.ws,
                             env=self.r.env, stdin=b, stdout=b, stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(p.kill)
        os.close(b)
        self.assertIn(b"up", os.read(a, 4096))
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        os.write(a, b"\x03")
        self.assertEqual(p.wait(DEADLINE), 130)
        p.stderr.close()
        os.close(a)
        self.nothing_there("31341.8")

    def test_a_lost_way_back_in_the_middle_of_the_results_is_got_over(self):
        p = self.start("head -c 128M /dev/urandom >big; sha256sum <big; rm a")
        until("a part of it is here", lambda: [q for q in pids() if look(q, "cmdline").startswith(self.r.bin.encode() + b"/airlock-unpack")
                                               and int(look(q, "io").split()[1] if look(q, "io") else 0) > 16 << 20])
        self.r.cut()
        out, err = self.ended(p)
        self.assertIn(BACK, err)
        with open(self.r.ws + "/big", "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), out.split()[0].decode())
        self.assertFalse(os.path.exists(self.r.ws + "/a"))

    def test_results_that_come_by_tar_go_on_too(self):
        p = self.start("head -c 128M /dev/urandom >big; sha256sum <big; rm a", "--sync-out", "tar")
        until("a part of it is here", lambda: [q for q in pids() if look(q, "cmdline").startswith(self.r.bin.encode() + b"/airlock-unpack")
                                               and int(look(q, "io").split()[1] if look(q, "io") else 0) > 16 << 20])
        self.r.cut()
        out, err = self.ended(p)
        self.assertIn(BACK, err)
        with open(self.r.ws + "/big", "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), out.split()[0].decode())

    def test_cuts_that_follow_each_other_cost_nothing_but_time(self):
        """Also such that come before the session is reached again, and with all three streams under way."""
        data, left = os.urandom(8 << 20), {}
        p = self.start("tee /dev/stderr", stdin=subprocess.PIPE)

        def feed():
            p.stdin.write(data)
            p.stdin.close()

        def take(f):
            left[f] = b""
            while piece := os.read(f.fileno(), 65536):
                left[f] += piece
                time.sleep(.01)
        threads = [threading.Thread(target=feed)] + [threading.Thread(target=take, args=(f,)) for f in (p.stdout, p.stderr)]
        for t in threads:
            t.start()
        for i in range(12):
            time.sleep(.05 * (i % 5))
            if i % 3:
                for q in pids():
                    if parent(q) == p.pid and look(q, "cmdline").startswith(b"ssh\0"):
                        os.kill(q, signal.SIGKILL)
            else:
                self.r.cut()
        for t in threads:
            t.join(2 * DEADLINE)
        self.assertEqual((p.wait(DEADLINE), left[p.stdout] == data), (0, True))
        # In between are our own words.
        said = re.sub(rb"airlock: (the connection to|connected to) [^\n]*\n", b"", left[p.stderr])
        self.assertEqual(said[:len(data)] == data, True)
        self.assertGreater(self.record()["reconnects"], 0)
        for f in p.stdout, p.stderr:
            f.close()

    def test_a_machine_that_takes_it_up_and_hangs_up_is_not_asked_all_the_time(self):
        """Each session that is reached again brings nothing, so each pause is longer than the one before."""
        log = self.r.top + "/asked"
        p = self.start("read x; echo got $x", stdin=subprocess.PIPE)
        self.r.sshd.shell('date +%%s.%%N >>%s; exec timeout -s KILL .4 /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % log)
        self.hang_up(p)
        for _ in range(5):
            self.heard(p, BACK)
        self.open_the_way()
        with open(log, encoding="ascii") as f:
            at = [float(line) for line in f][:5]
        gaps = [b - a for a, b in zip(at, at[1:])]
        self.assertGreater(gaps[-1], 1.8, gaps)
        self.assertGreater(gaps[-1], gaps[-2] + .5, gaps)
        self.assertEqual(self.ended(p, last=b"word\n")[0], b"got word\n")

    def test_several_commands_of_a_kept_run_come_back_each(self):
        self.assertEqual(self.r.run("-q", "--keep", "--", "true").returncode, 0)
        run = self.r.rows()[0]["run"]
        many = [subprocess.Popen([self.r.bin + "/airlock", "exec", run, "--", "echo up; read x; echo $x >f%d; seq 1 20000" % i], cwd=self.r.ws,
                                 env=self.r.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(3)]
        for p in many:
            self.addCleanup(p.kill)
            self.assertEqual(p.stdout.readline(), b"up\n")
        self.r.cut()
        for i, p in enumerate(many):
            self.heard(p, BACK)
            out, _ = self.ended(p, last=b"%d\n" % i)
            self.assertEqual(out, b"".join(b"%d\n" % i for i in range(1, 20001)))
        self.assertEqual([self.r.read("f%d" % i) for i in range(3)], [b"0\n", b"1\n", b"2\n"])

    # The bridge. --------------------------------------------------------------------------------

    CALL = r"""exec python3 -c '
import os, sys, urllib.request, urllib.error
for line in sys.stdin:
    q = urllib.request.Request(os.environ["PAPERCLIP_API_URL"] + line.strip(), headers={"Authorization": "Bearer " + os.environ["PAPERCLIP_API_KEY"]})
    try:
        print(urllib.request.urlopen(q, timeout=60).status)
    except urllib.error.HTTPError as e:
        print(e.code)
    sys.stdout.flush()
'"""

    def test_the_bridge_goes_on_and_a_call_under_way_is_answered_S2(self):
        api, words = self.r.with_api(self)
        begun, go, real = threading.Event(), threading.Event(), api.answer

        def slow(*a):
            begun.set()
            go.wait(DEADLINE)
            return real(*a)
        p = self.start(self.CALL, *words, stdin=subprocess.PIPE)

        def ask():
            p.stdin.write(b"/api/agents/me\n")
            p.stdin.flush()
        ask()
        self.assertEqual(p.stdout.readline(), b"200\n")
        api.answer = slow
        ask()
        self.assertTrue(begun.wait(DEADLINE))
        self.hang_up(p)
        go.set()
        self.heard(p, BACK)
        self.assertEqual(p.stdout.readline(), b"200\n")
        self.r.cut()
        ask()
        self.assertEqual(p.stdout.readline(), b"200\n")
        self.assertEqual(len(api.take()), 3)
        self.ended(p)

    # Ends. --------------------------------------------------------------------------------------

    def test_a_cut_longer_than_the_grace_ends_both_sides_and_not_the_work_K5_FR_B093(self):
        p = self.start("echo w >work; setsid sleep 31341.1 & sleep 31341.1", "--ssh-grace", "2s")
        self.close_the_way()
        began = time.monotonic()
        self.hang_up(p)
        _, err = self.ended(p, 125)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn(b"was lost, and there was none again within 2 s (--ssh-grace)", err)
        self.assertIn(b"airlock recover", err)
        why = self.unreached()
        self.assertIn("none again within 2 s", why)
        self.nothing_there("31341.1")
        self.open_the_way()
        q = self.r.airlock("recover", self.r.rows()[0]["run"])
        self.assertEqual((q.returncode, self.r.read("work"), self.r.runs_there()), (0, b"w\n", []), q.stderr)

    def test_no_grace_is_an_end_at_once(self):
        p = self.start("echo w >work; sleep 31341.2", "--ssh-grace", "0")
        self.assertEqual(self.sockets(), [])
        self.hang_up(p)
        _, err = self.ended(p, 125)
        self.assertNotIn(CUT, err)
        self.assertIn("was lost", self.unreached())
        self.nothing_there("31341.2")
        self.assertEqual(self.r.airlock("recover", self.r.rows()[0]["run"]).returncode, 0)
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_guest_that_is_gone_is_not_waited_for(self):
        p = self.start("sleep 31341.3 & sleep 31341.3")
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        def kill(pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until("all of it is dead", lambda: not [kill(q) for q in self.guests() + marked("31341.3")])
        self.open_the_way()
        _, err = self.ended(p, 125)
        self.assertIn(b"has no session that waited", err)
        row, = self.r.rows()
        self.assertTrue(row["remote"]["reached"], row)

    # Which of the guest's processes above it: the first is the one that serves it, the last the one that has the stream.
    KILL = r"""python3 -c '
import os
at, up = os.getpid(), []
while at > 1:
    with open("/proc/%%d/stat" %% at) as f:
        at = int(f.read().rsplit(")", 1)[1].split()[1])
    with open("/proc/%%d/cmdline" %% at, "rb") as f:
        if b"airlock/guest-" in f.read():
            up.append(at)
for at in up%s:
    os.kill(at, 9)
'"""

    def test_a_command_that_kills_its_own_guest_loses_no_work_and_is_told(self):
        """Without isolation the account may; what it had let go of by then is found by nobody."""
        mine = lambda: [os.kill(q, signal.SIGKILL) for q in marked("31341.12")]
        self.addCleanup(mine)
        for whom, status in ("[:1]", 137), ("[-1:]", 125), ("", 125):
            p = self.start("echo w >work; setsid sleep 31341.12 & %s; sleep 31341.13" % self.KILL % whom)
            _, err = self.ended(p, status)
            until("the tree has ended", lambda: not marked("31341.13"))
            until("the guest has ended", lambda: not self.guests())
            if status == 137:
                self.assertIn(b"ended by signal 9", err)
            else:
                self.assertIn(b"or somebody ended it", err)
                self.assertIn(b"airlock recover", err)
                self.assertEqual(self.r.airlock("recover", self.r.rows()[0]["run"]).returncode, 0)
            self.assertEqual((self.r.read("work"), self.r.runs_there(), self.sockets()), (b"w\n", [], []))
            # Only both at once leave what was let go of.
            self.assertEqual(len(marked("31341.12")), 0 if whom else 1)
            mine()
            os.unlink(self.r.ws + "/work")

    def stopped(self, word, status, text, act, *words):
        p = self.start("echo w >work; sleep " + word, "--ssh-grace", "6s", *words)
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        began = time.monotonic()
        act(p)
        _, err = self.ended(p, status)
        self.assertLess(time.monotonic() - began, 5)
        self.assertIn(text, err)
        self.assertIn(b"airlock recover", err)
        self.assertRegex(self.unreached(), "was cut, and the run was stopped .* ends what it ran within 6.00 s")
        self.nothing_there(word)
        self.open_the_way()
        self.assertEqual(self.r.airlock("recover", self.r.rows()[0]["run"]).returncode, 0)
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_stop_without_a_connection_is_one_at_once(self):
        self.stopped("31341.4", 130, b"stopped by signal 2; the command was given up", lambda p: p.send_signal(signal.SIGINT))

    def test_a_run_that_was_given_up_keeps_its_place_while_it_may_go_on_there(self):
        """Whether the grace holds it there or, without one, the time until its guest notices; who recovers it has ended it."""
        for word, grace, status, act in ("31341.10", "5m", 130, lambda p: p.send_signal(signal.SIGINT)), ("31341.11", "0", 125, lambda p: None):
            p = self.start("echo w >work; sleep " + word, "--ssh-grace", grace, "--ssh-max-runs", "1")
            self.close_the_way()
            self.hang_up(p)
            if grace != "0":
                self.heard(p, CUT)
            act(p)
            self.ended(p, status)
            self.open_the_way()
            second = self.r.start("--ssh-max-runs", "1", "--", "echo up")
            self.addCleanup(second.kill)
            self.heard(second, b"waits for room: 1 going on already on 127.0.0.1:%d:%s, which is the limit there (--ssh-max-runs, or maxConcurrentRuns of the "
                       b"environment); of 1 the connection was cut, and it may still go on there: 'airlock recover' ends it: Ctrl-C gives up\n"
                       % (self.r.sshd.port, self.r.there.encode()))
            if grace != "0":
                self.assertTrue(marked(word))
            run, = [row["run"] for row in self.r.rows() if row["lease_state"] == "recoverable"]
            self.assertEqual(self.r.airlock("recover", run).returncode, 0)
            self.assertFalse(marked(word))
            out, _ = self.ended(second)
            self.assertEqual(out, b"up\n")

    def test_time_goes_on_without_a_connection(self):
        self.stopped("31341.5", 124, b"given up: there is no connection", lambda p: None, "--timeout", "3s")

    def test_an_end_of_airlock_leaves_nothing_behind_the_grace(self):
        p = self.start("sleep 31341.6", "--ssh-grace", "3s")
        self.close_the_way()
        self.hang_up(p)
        self.heard(p, CUT)
        p.kill()
        p.communicate(timeout=DEADLINE)
        self.nothing_there("31341.6")
        self.open_the_way()
        self.assertEqual(self.r.airlock("recover", self.r.rows()[0]["run"]).returncode, 0)
        self.assertEqual(self.r.left_there(), [])

    def test_an_end_of_airlock_with_a_connection_is_one_of_all_at_once(self):
        p = self.start("sleep 31341.7")
        p.kill()
        began = time.monotonic()
        self.nothing_there("31341.7")
        self.assertLess(time.monotonic() - began, 30)
        p.communicate(timeout=DEADLINE)

    def test_an_end_of_the_guest_that_brought_the_stream_is_a_cut(self):
        p = self.start("for i in 1 2 3; do read x; echo $i $x; done; exit 7", stdin=subprocess.PIPE)
        first = self.guests()
        for i in 1, 2:
            self.hang_up(p)
            self.heard(p, BACK)
            # The one that brought the stream before, and what the guest forked for its start, may end a little later.
            new, = until("one has brought the stream", lambda: (lambda n: len(n) == 1 and n)([q for q in self.guests() if q not in first]))
            os.kill(new, (signal.SIGKILL, signal.SIGTERM)[i - 1])
            self.heard(p, BACK)
            p.stdin.write(b"w\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), b"%d w\n" % i)
        self.assertEqual(self.ended(p, 7, last=b"w\n")[0], b"3 w\n")

    def test_where_no_socket_can_be_it_is_said(self):
        self.assertEqual(self.r.run("-q", "--keep", "--", "echo w >work").returncode, 0)
        run, = self.r.rows()
        there = "%s/.airlock-runtime/runs/%s" % (self.r.there, run["lease"])
        os.makedirs(there + "/join", 0o700, exist_ok=True)
        os.chmod(there + "/join", 0o777)
        p = self.r.airlock("exec", run["run"], "--", "sleep .5; cat work")
        self.assertEqual((p.returncode, p.stdout), (0, b"w\n"), p.stderr)
        self.assertRegex(p.stderr, b"a cut of the connection will be the end of the command: no socket can be made below .*--ssh-grace 0")

    # Who may attach. ----------------------------------------------------------------------------

    def test_nobody_else_attaches_K5(self):
        p = self.start("read x; echo got $x", "--ssh-grace", "5m", stdin=subprocess.PIPE)
        at, = self.sockets()
        self.assertEqual([stat.S_IMODE(os.stat(f).st_mode) for f in (at, os.path.dirname(at), os.path.dirname(os.path.dirname(at)))],
                         [0o600, 0o700, 0o700])
        for q in pids():
            self.assertNotIn(os.path.basename(at).encode(), look(q, "cmdline") + look(q, "environ"))
        for cut in False, True:
            if cut:
                self.close_the_way()
                self.hang_up(p)
                self.heard(p, CUT)
            for said, fds in (b"\0" * 40, 2), (os.urandom(40), 2), (os.urandom(39), 2), (os.urandom(4000), 2), (b"x", 0):
                a, b = socket.socketpair()
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s, a, b:
                    s.settimeout(DEADLINE)
                    s.connect(at)
                    socket.send_fds(s, [said], [a.fileno()] * fds)
                    self.assertEqual(s.recv(16), b"")
                    a.close()
                    b.settimeout(DEADLINE)
                    self.assertEqual(b.recv(16), b"")
        # One that says nothing keeps nobody out.
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(at)
            self.open_the_way()
            self.heard(p, BACK)
        self.assertEqual(self.ended(p, last=b"word\n")[0], b"got word\n")

    def test_another_account_does_not_reach_the_socket(self):
        if os.geteuid():
            self.skipTest("only root can be another account")
        p = self.start("read x", stdin=subprocess.PIPE)
        at, = self.sockets()
        code = "import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ntry:\n    s.connect(sys.argv[1])\nexcept PermissionError:\n    print('no')"
        self.assertEqual(subprocess.run([sys.executable, "-c", code, at], stdout=subprocess.PIPE, check=True).stdout, b"no\n")
        self.ended(p, last=b"\n")

    def test_an_old_connection_that_looks_alive_is_put_off(self):
        """Over there nobody has noticed anything: the streams of the old one are open, and would be for minutes."""
        p = self.start("for i in 1 2 3; do read x; echo $i $x; done", stdin=subprocess.PIPE)
        old = [q for q in pids() if look(q, "cmdline").startswith(b"sshd: ") and parent_is(q, self.r.sshd.proc.pid)]
        self.assertTrue(old)
        for q in old:
            os.kill(q, signal.SIGSTOP)
        self.addCleanup(lambda: [os.kill(q, signal.SIGKILL) for q in old if alive(q)])
        # The shared connection too: the next one has to log in.
        for q in pids():
            if look(q, "cmdline").startswith((b"ssh\0", b"ssh: ")) and (parent(q) == p.pid or self.r.state.encode() in look(q, "cmdline")):
                os.kill(q, signal.SIGKILL)
        self.heard(p, BACK)
        for i in 1, 2, 3:
            p.stdin.write(b"w\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), b"%d w\n" % i)
        self.ended(p)


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    side_by_side(3)
