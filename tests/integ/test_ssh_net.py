#!/usr/bin/env python3
"""Another machine behind a network that is slow, is cut, or is gone: two hosts, each in a network namespace of its own, a veth between them
(B-04, B-07, RT for driver ssh; cases K2, K5, K11; field reports B093, B101, B172).

usage: test_ssh_net.py AIRLOCK [--long] [unittest arguments]

Only root can make such hosts. What needs minutes (cuts that last until ssh gives up) is in the long suite.
"""
import ctypes, os, select, shutil, signal, socket, subprocess, sys, threading, time, unittest

from run_box import DEADLINE, alive, link, look, pids, until
from ssh_box import Remote, SSHD, Sshd, key

LONG = "--long" in sys.argv
AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)
HERE, THERE = "10.77.3.1", "10.77.3.2"
CLONE_NEWNET = 0x40000000
FILES = {"a": b"one\n", "big": os.urandom(1 << 20)}


def marked(word):
    return [p for p in pids() if word.encode() in look(p, "cmdline").split(b"\0") and alive(p)]


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Network:
    """This process, and whatever it starts, is one host; `there` holds the other."""

    def __init__(self):
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) < 0:
            raise unittest.SkipTest("no network namespace can be made here: " + os.strerror(ctypes.get_errno()))
        self.there = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        until("the other network is there", lambda: os.readlink("/proc/%d/ns/net" % self.there.pid) != os.readlink("/proc/self/ns/net")
              and look(self.there.pid, "comm") == b"sleep\n")
        sh("ip", "link", "add", "there", "type", "veth", "peer", "name", "here", "netns", str(self.there.pid))

    def inside(self):
        return ["nsenter", "-t", str(self.there.pid), "-n"]

    def set_up(self):
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "addr", "add", HERE + "/24", "dev", "there")
        sh("ip", "link", "set", "there", "up")
        for words in ["link", "set", "lo", "up"], ["addr", "add", THERE + "/24", "dev", "here"], ["link", "set", "here", "up"]:
            sh(*self.inside(), "ip", *words)

    def link(self, state):
        """The cable is at the other side: nothing here knows of it but by silence."""
        sh(*self.inside(), "ip", "link", "set", "here", state)


class FarSshd(Sshd):
    address = THERE

    def prefix(self):
        return NET.inside()


class Far(Remote):
    sshd_class = FarSshd


def setUpModule():
    global NET
    NET = Network()
    NET.set_up()


def tearDownModule():
    NET.there.kill()
    NET.there.wait()


class Case(unittest.TestCase):
    def setUp(self):
        self.r = Far(PROGS, FILES)
        self.addCleanup(self.r.remove)
        self.addCleanup(NET.link, "up")

    def started(self, command, *words):
        p = self.r.start(*words, "--", "echo up; " + command)
        self.assertEqual(p.stdout.readline(), b"up\n")
        return p

    def ended(self, p, status, text=b""):
        out, err = p.communicate(timeout=3 * DEADLINE)
        self.assertEqual(p.returncode, status, err)
        self.assertIn(text, err)
        return out

    def ok(self, *words, status=0):
        p = self.r.run(*words, timeout=3 * DEADLINE)
        self.assertEqual(p.returncode, status, p.stderr)
        return p

    def recovered(self, *words):
        q = self.r.airlock("recover", self.r.rows()[0]["run"], timeout=3 * DEADLINE)
        self.assertEqual(q.returncode, 0, q.stderr)
        self.assertEqual(self.r.runs_there(), [])
        return q

    def quiet_there(self, word):
        until("the tree has ended", lambda: not marked(word), 2 * DEADLINE)


class Short(Case):
    def test_a_short_cut_is_no_end_and_no_byte_is_lost(self):
        tick = self.r.there + "/tick"
        p = self.started("for i in $(seq 1 200000); do echo $i; done; echo 0 >%s; while read -r x <%s && test $x != go; do :; done; echo w >work; seq 1 50000"
                         % (tick, tick))
        head = [p.stdout.readline() for _ in range(1000)]
        NET.link("down")
        # The command goes on over there, as far as it may without a reader.
        rest = []
        reader = threading.Thread(target=lambda: rest.append(p.stdout.read()))
        reader.start()
        self.assertIsNone(p.poll())
        time.sleep(3)
        NET.link("up")
        until("the command has printed all", lambda: os.path.exists(tick))
        with open(tick, "w", encoding="ascii") as f:
            f.write("go\n")
        reader.join(3 * DEADLINE)
        self.assertEqual(p.wait(DEADLINE), 0)
        p.stderr.close()
        p.stdout.close()
        want = b"".join(b"%d\n" % i for i in range(1, 200001)) + b"".join(b"%d\n" % i for i in range(1, 50001))
        self.assertEqual(b"".join(head) + rest[0], want)
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_slow_way_is_only_slow(self):
        relay = Relay(0.1)
        self.addCleanup(relay.close)
        s = self.r.sshd
        s.known("[127.0.0.1]:%d %s\n" % (relay.port, s.host_key))
        self.r.words[1] = "127.0.0.1:%d:%s" % (relay.port, self.r.there)
        relay.to = (THERE, s.port)
        p = self.ok("-q", "--", "cat a; echo more >>a")
        self.assertEqual((p.stdout, self.r.read("a")), (b"one\n", b"one\nmore\n"))

    def test_a_host_key_that_changes_in_the_middle_stops_what_comes_next_K2(self):
        p = self.started("echo w >work; sleep 31340.1")
        p.kill()
        p.communicate(timeout=DEADLINE)
        self.quiet_there("31340.1")
        s = self.r.sshd
        self.r.disconnect()
        s.stop()
        os.rename(s.top + "/host", s.top + "/true")
        key(s.top + "/host")
        s.start()
        run = self.r.rows()[0]["run"]
        q = self.r.airlock("recover", run)
        self.assertEqual(q.returncode, 125)
        self.assertIn(b"NOT the one in known_hosts", q.stderr)
        self.assertEqual(len(self.r.runs_there()), 1)
        s.stop()
        os.rename(s.top + "/true", s.top + "/host")
        s.start()
        self.recovered()
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_machine_that_is_killed_loses_nothing_that_it_wrote(self):
        p = self.started("echo w >work; setsid sleep 31340.2 & sleep 31340.2", "--ssh-grace", "0")
        # Behind what it wrote.
        until("it sleeps", lambda: marked("31340.2"))
        net = link(NET.there.pid, "ns/net")
        until("nothing runs there", lambda: not [os.kill(q, signal.SIGKILL) for q in pids()
                                                 if q != NET.there.pid and alive(q) and link(q, "ns/net") == net])
        self.ended(p, 125, b"was lost")
        self.quiet_there("31340.2")
        self.r.sshd.proc.wait()
        self.assertIn(b"connection refused", self.r.airlock("recover", self.r.rows()[0]["run"]).stderr)
        self.r.sshd.start()
        self.recovered()
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_no_way_there_is_told_at_once(self):
        NET.link("down")
        sh("ip", "route", "add", "unreachable", "10.78.0.0/16")
        self.r.words[1] = "10.78.0.1:%s" % self.r.there
        p = self.r.run("--", "true")
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"no route to the host", p.stderr)
        sh("ip", "route", "del", "unreachable", "10.78.0.0/16")

    def cut_at(self, when, run):
        """The connection goes in this phase."""
        done = threading.Event()

        def cutter():
            until("the phase has come", lambda: when() or done.is_set())
            self.r.cut()
        t = threading.Thread(target=cutter)
        t.start()
        p = run()
        done.set()
        t.join()
        return p

    def there_is(self, name):
        runs = self.r.there + "/.airlock-runtime/runs"
        return any(os.path.exists(os.path.join(runs, d, name)) for d in self.r.runs_there())

    def test_a_cut_in_each_phase_is_told_and_nothing_is_lost_K5(self):
        # While the workspace goes there: the connection is made again, and it goes on.
        for i in range(40):
            self.r.write("more%d" % i, os.urandom(1 << 20))
        p = self.cut_at(lambda: self.there_is("workspace/big"), lambda: self.r.run("--", "echo w >work"))
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(self.r.read("work"), b"w\n")
        # While results come back.
        run = lambda: self.r.run("--", "head -c 80000000 /dev/urandom >out; echo w >work; touch packing")
        p = self.cut_at(lambda: self.there_is("workspace/packing"), run)
        self.assertIn(p.returncode, (0, 125), p.stderr)
        if p.returncode:
            self.recovered()
        self.assertEqual((self.r.read("work"), os.path.getsize(self.r.ws + "/out")), (b"w\n", 80000000))
        self.assertEqual(self.r.airlock("rm", "--all").returncode, 0)
        self.ok("-q", "--", "true")
        self.assertEqual(self.r.runs_there(), [])

    def on(self, option):
        sh("mount", "-t", "tmpfs", "-o", option, "none", self.r.there)
        self.addCleanup(sh, "umount", self.r.there)

    def test_a_full_disk_there_is_told_K11(self):
        self.on("size=512k")
        p = self.r.run("--", "true")
        self.assertEqual(p.returncode, 125)
        self.assertRegex(p.stderr, b"No space left|full")
        self.assertEqual(self.r.runs_there(), [])

    def test_trees_of_earlier_runs_give_way_to_a_run_that_needs_their_room_K11(self):
        self.on("size=3m")
        for more in [], ["--ssh-guest", "never"], ["--remote-sandbox"]:
            p = self.r.run("--", "head -c 20000000 /dev/zero >z || rm -f z; dd if=/dev/zero of=keep bs=64k || true")
            self.assertEqual(len(os.listdir(self.r.there + "/.airlock-runtime/bases")), 1, p.stderr)
            st = os.statvfs(self.r.there)
            self.assertLess(st.f_bavail * st.f_bsize, 100000)
            second = self.r.top + "/second"
            os.makedirs(second, exist_ok=True)
            with open(second + "/x", "wb") as f:
                f.write(b"x" * 300000)
            p = self.r.run("-q", *more, "--", "cat x | wc -c", cwd=second)
            self.assertEqual((p.returncode, p.stdout.split()), (0, [b"300000"]), (more, p.stderr))
            os.unlink(self.r.ws + "/keep")
            self.assertEqual(self.r.airlock("env", "clean", *self.r.words).returncode, 0)
        # What is full of other things stays so, and is told with the remedy.
        with open(self.r.there + "/mine", "wb") as f:
            f.write(b"m" * 2900000)
        p = self.r.run("-q", "--", "true", cwd=second)
        self.assertEqual(p.returncode, 125)
        self.assertRegex(p.stderr, b"No space left on device.*'airlock env clean'")
        self.assertEqual((os.listdir(self.r.there), os.path.getsize(self.r.there + "/mine")), (["mine"], 2900000))

    def test_trees_of_earlier_runs_give_way_where_no_file_can_be_made_K11(self):
        self.on("size=3m,nr_inodes=60")
        self.r.run("--", "for i in $(seq 99); do echo >f$i; done")
        self.assertEqual(len(os.listdir(self.r.there + "/.airlock-runtime/bases")), 1)
        while os.statvfs(self.r.there).f_ffree:
            os.mkdir("%s/%d" % (self.r.there, os.statvfs(self.r.there).f_ffree))
        second = self.r.top + "/second"
        os.mkdir(second)
        p = self.r.run("-q", "--", "echo ran", cwd=second)
        self.assertEqual((p.returncode, p.stdout), (0, b"ran\n"), p.stderr)

    def test_a_disk_that_the_command_fills_loses_nothing_else_K11(self):
        self.on("size=4m")
        p = self.ok("--", "echo w >work; head -c 9000000 /dev/zero >fill || rm fill; true")
        self.assertEqual(self.r.read("work"), b"w\n", p.stderr)
        self.assertEqual(self.r.runs_there(), [])

    def test_a_directory_there_that_cannot_be_written_is_told_K11(self):
        self.on("ro")
        p = self.r.run("--", "true")
        self.assertEqual(p.returncode, 125)
        self.assertIn(b"Read-only file system", p.stderr)

    def test_a_clock_that_is_wrong_there_changes_nothing_K11(self):
        p = self.ok("--", "touch -d @4102444800 a; echo old >old; touch -d @1 old; echo two >big")
        self.assertEqual((self.r.read("a"), self.r.read("old"), self.r.read("big")), (b"one\n", b"old\n", b"two\n"), p.stderr)
        self.assertIn(b"added: 1", p.stderr)

    def test_programs_that_are_missing_there_are_named_J8(self):
        self.r.sshd.shell('PATH=%s/none exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % self.r.sshd.top)
        for more in [], ["--ssh-guest", "always"]:
            p = self.r.run(*more, "--", "true")
            self.assertEqual(p.returncode, 125)
            self.assertIn(b"has no program uname, with which the guest program gets there", p.stderr)
            self.assertEqual(b"has no program tar" in p.stderr, not more)
        # Each of them alone, where all that runs without a guest need is there.
        for lacking in "wc", "head", "uname":
            d = "%s/without-%s" % (self.r.sshd.top, lacking)
            os.mkdir(d)
            for name in os.listdir("/usr/bin"):
                if name != lacking:
                    os.symlink("/usr/bin/" + name, d + "/" + name)
            self.r.sshd.shell('PATH=%s exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % d)
            p = self.r.run("--ssh-guest", "always", "--", "true")
            self.assertIn(b"has no program %s," % lacking.encode(), p.stderr)
            p = self.ok("--", "echo %s >out" % lacking)
            self.assertIn(b"lacks a program with which the guest program gets there", p.stderr)
            self.assertEqual(self.r.read("out"), b"%s\n" % lacking.encode())


class Long(Case):
    def test_a_long_cut_ends_the_run_and_not_the_work_K5_FR_B093(self):
        p = self.started("echo w >work; setsid sleep 31340.5 & sleep 31340.5", "--ssh-grace", "0")
        NET.link("down")
        began = time.monotonic()
        self.ended(p, 125, b"was lost")
        self.assertLess(time.monotonic() - began, 60)
        # Over there nobody is heard any more: the guest ends by itself.
        self.quiet_there("31340.5")
        NET.link("up")
        self.recovered()
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_long_cut_within_the_grace_is_got_over_K5(self):
        """Longer than ssh and the other machine's guest wait for a sign of life: both have noticed it."""
        p = self.started("i=0; while test $i -lt 900; do i=$((i+1)); echo $i; sleep .1; done; echo w >work; exit 6")
        NET.link("down")
        time.sleep(75)
        NET.link("up")
        # Not communicate: a line may lie in the buffer that readline filled.
        out, err = p.stdout.read(), p.stderr.read()
        p.stdout.close()
        p.stderr.close()
        self.assertEqual((p.wait(DEADLINE), out), (6, b"".join(b"%d\n" % i for i in range(1, 901))), err)
        self.assertRegex(err, b"is cut.*\n.* again after")
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_a_long_cut_without_a_guest_too(self):
        self.r.words += ["--ssh-guest", "never"]
        p = self.started("echo w >work; sleep 31340.6")
        NET.link("down")
        self.ended(p, 125, b"was lost")
        self.quiet_there("31340.6")
        NET.link("up")
        self.recovered()
        self.assertEqual(self.r.read("work"), b"w\n")

    def test_who_recovers_does_not_wait_for_the_silence(self):
        p = self.started("echo w >work; sleep 31340.7", "--ssh-grace", "0")
        NET.link("down")
        self.ended(p, 125, b"was lost")
        NET.link("up")
        self.recovered()
        self.assertEqual(self.r.read("work"), b"w\n")
        self.quiet_there("31340.7")

    def test_a_machine_that_does_not_answer_is_given_up(self):
        NET.link("down")
        p = self.r.run("--", "true", timeout=2 * DEADLINE)
        self.assertEqual(p.returncode, 125)
        self.assertRegex(p.stderr, b"no route to the host|no answer to the connection")


class Relay:
    """TCP, each piece `delay` seconds late, both ways: what netem would do where there is none."""

    def __init__(self, delay):
        self.delay, self.to = delay, None
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        self.sock.close()

    def serve(self):
        while True:
            try:
                a, _ = self.sock.accept()
            except OSError:
                return
            b = socket.create_connection(self.to)
            for x, y in (a, b), (b, a):
                threading.Thread(target=self.carry, args=(x, y), daemon=True).start()

    def carry(self, x, y):
        late = []
        open_ = True
        try:
            while open_ or late:
                wait = max(0, late[0][0] - time.monotonic()) if late else None
                if open_ and select.select([x], [], [], wait)[0]:
                    data = x.recv(65536)
                    open_ = bool(data)
                    late.append((time.monotonic() + self.delay, data))
                elif not open_ and wait:
                    time.sleep(wait)
                while late and late[0][0] <= time.monotonic():
                    data = late.pop(0)[1]
                    y.sendall(data) if data else y.shutdown(socket.SHUT_WR)
        except OSError:
            for s in x, y:
                s.close()


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(Long if LONG else Short)


if __name__ == "__main__":
    if not SSHD or os.geteuid() or not shutil.which("ip") or not shutil.which("nsenter"):
        print("no sshd here: openssh-server is missing" if not SSHD else "not root, or no ip and nsenter: no second host can be made here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + [a for a in sys.argv[1:] if a != "--long"], verbosity=1)
