#!/usr/bin/env python3
"""The boundary (requirements B-03 ... B-10, RT-08) from outside: real runs, and what they must not be able to do.

usage: test_boundary.py AIRLOCK HOSTILE_GUEST MKHOSTILE [unittest arguments]
"""
import concurrent.futures, json, os, shutil, signal, socket, subprocess, sys, unittest

from run_box import DEADLINE, Host, look, pids, snapshot, until

AIRLOCK, HOSTILE_GUEST, MKHOSTILE = (os.path.realpath(a) for a in sys.argv[1:4])
FILES = {"a": b"one\n", "kept/k": b"k\n" * 1000, "kept/x": b"", "secret-place": b"not secret\n"}


class Case(unittest.TestCase):
    def setUp(self):
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-boundary-", FILES)
        self.addCleanup(self.host.remove)
        self.ws = self.host.ws

    def run_cmd(self, script, *opts, **kw):
        return self.host.airlock("run", "--provider", "native", *opts, "--", script, **kw)


class HostileGuest(Case):
    """B-04: all that runs inside is replaced, and with it every check inside."""

    # What the guest does; the exit status of the run.
    MODES = {
        "garbage": 125, "zeros": 125, "length": 125, "version": 125, "descriptor": 125, "gone": 125, "twice": 125,
        "unasked": 125, "request": 125, "as-launch-ended": 125, "as-launch-error": 125, "as-launch-oom": 125,
        "other-id": 125, "no-start": 125, "both-ends": 125, "mad-exit": 125, "step": 125,
        # It may be as slow as any command: the time limit ends it, and its results are not waited for.
        "flood": 124, "deaf": 124,
        "pack-late-exit": 125, "pack-cut": 125, "pack-endless": 125, "pack-never": 125,
    }

    def one(self, host, mode, status, stream=None):
        before, outside = snapshot(host.ws), sorted(os.listdir(host.top))
        try:
            r = host.airlock("run", "--provider", "native", "--timeout", "1", "--", "true")
        except subprocess.TimeoutExpired as e:
            return "%s: %s" % (mode, e)
        if r.returncode not in (status if isinstance(status, tuple) else (status,)):
            return "%s: exit status %d: %s" % (mode, r.returncode, r.stderr)
        if b"\x1b" in r.stderr:
            return "%s: terminal sequences" % mode
        if snapshot(host.ws) != before and stream is None:
            return "%s: the workspace changed" % mode
        until(lambda: "nothing runs: %s" % host.left(), lambda: not host.left(), 20)
        if sorted(os.listdir(host.top)) != sorted(set(outside + ["state"])):
            return "%s: something beside the workspace: %s" % (mode, os.listdir(host.top))
        return None

    def fresh(self, mode):
        host = Host(os.path.dirname(AIRLOCK), "airlock-boundary-", FILES)
        self.addCleanup(host.remove)
        os.unlink(host.bin + "/airlock-guest")
        shutil.copy(HOSTILE_GUEST, host.bin + "/airlock-guest")
        host.write("mode", mode.encode())
        return host

    def all(self, hosts):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            bad = [b for b in pool.map(lambda h: self.one(*h), hosts) if b]
        self.assertEqual(bad, [], "\n" + "\n".join(bad))

    def test_B_04_forged_frames_floods_and_garbage(self):
        hosts = []
        for mode, status in self.MODES.items():
            host = self.fresh(mode)
            host.write("half", b"\0" * 100)
            hosts.append((host, mode, status))
        self.all(hosts)

    def test_B_04_hostile_streams_from_inside(self):
        corpus = os.path.join(self.host.top, "corpus")
        os.mkdir(corpus)
        subprocess.run([MKHOSTILE, corpus], check=True, stdout=subprocess.DEVNULL)
        names = sorted(n for n in os.listdir(corpus) if n.endswith(".hostile.tar"))
        # One of each family of cases: door 1's own suite has them all (unpack_hostile.py).
        picked = {n[0]: n for n in names if os.path.getsize(os.path.join(corpus, n)) < 1 << 20}
        self.assertGreaterEqual(len(picked), 3, names)
        hosts = []
        for n in picked.values():
            host = self.fresh("stream")
            with open(os.path.join(corpus, n), "rb") as f:
                host.write("stream", f.read())
            hosts.append((host, n, 125))
        self.all(hosts)


class Links(Case):
    # B-07
    def test_B_07_a_link_brings_nothing_that_the_sandbox_could_not_read(self):
        word = "sesame-of-the-host"
        with open(self.host.top + "/home/key", "w") as f:
            f.write(word)
        r = self.run_cmd("ln -s %s/home/key k1; ln -s /proc/1/root/etc/shadow k2; ln -s ../home/key k3; rm a; ln -s /etc/shadow a; "
                         "ln -s /.airlock/airlock-guest k4; mkdir n; ln -s ../../home n/dir; ln -s /workspace/../etc n/etc; "
                         "ln kept/k hard 2>/dev/null; echo done >done" % self.host.top)
        self.assertEqual(r.returncode, 0, r.stderr)
        now = snapshot(self.ws)
        self.assertEqual(self.host.read("done"), b"done\n")
        self.assertEqual(now["a"][0], b"one\n")
        for n in "k1", "k2", "k3", "k4", "n/dir", "n/etc":
            self.assertNotIn(n, now)
        self.assertIn(b"refused", r.stderr)
        for name, (data, _) in now.items():
            self.assertNotIn(word.encode(), data if isinstance(data, bytes) else data.encode(), name)

    def test_B_07_shut_inside_is_never_deleted(self):
        """Modes of the sandbox take nothing from the host. Members said to be unreadable: unpack_merge.py."""
        before = snapshot(self.ws)
        r = self.run_cmd("echo x >>kept/k; chmod 000 kept/k; mkdir shut; echo y >shut/y; chmod 000 shut; echo done >done")
        self.assertEqual(r.returncode, 0, r.stderr)
        now = snapshot(self.ws)
        self.assertIn(now["kept/k"][0], (before["kept/k"][0], before["kept/k"][0] + b"x\n"))
        self.assertEqual((now["kept/x"], now["done"][0]), (before["kept/x"], b"done\n"))
        # A whole directory of the host's, shut inside
        os.chmod(self.ws + "/kept/k", 0o644)
        r = self.run_cmd("echo z >kept/z; chmod 000 kept; echo 2 >done")
        self.assertEqual(r.returncode, 0, r.stderr)
        os.chmod(self.ws + "/kept", 0o755)
        after = snapshot(self.ws)
        self.assertEqual((after["kept/k"][0], after["kept/x"][0]), (now["kept/k"][0], b""))
        self.assertEqual(self.host.read("done"), b"2\n")

    def test_B_07_a_directory_that_became_a_link_out(self):
        before = snapshot(self.ws)
        r = self.run_cmd("mv kept elsewhere; ln -s / kept; echo done >done")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual({n: v for n, v in snapshot(self.ws).items() if n.startswith("kept")},
                         {n: v for n, v in before.items() if n.startswith("kept")})


class Output(Case):
    ESC = b"\x1b]0;owned\x07\x1b[2J"

    # B-08
    def test_B_08_names_and_words_are_shown_not_obeyed(self):
        r = self.run_cmd(": '\x1b]0;words\x07'; n=$(printf 'x\\033]0;owned\\007\\nairlock: added: 99'); echo 1 >\"$n\"; ln -s /etc/passwd \"l$n\"")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(b"\x1b", r.stderr)
        self.assertNotIn(b"\nairlock: added: 99", r.stderr)
        self.assertIn(b"\\x1b]0;owned", r.stderr)
        for words in (["ps", "-a"], ["ps", "-a", "--json"]):
            p = self.host.airlock(*words)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertNotIn(b"\x1b", p.stdout + p.stderr)
            self.assertIn(b"]0;words", p.stdout)
        p = self.host.airlock("logs", "last")
        self.assertNotIn(b"\x1b", p.stderr)

    def test_B_08_output_gives_no_authority(self):
        """Bytes that look like our own frames, records and answers are output: they come out as they are, and that is all."""
        frames = b"\x04\0\0\0\x01\x45\0\0\0\0\0\0" * 50 + self.ESC
        record = b'{"version":1,"exit_status":0,"state":"finished"}\nairlock: ---- summary: exit status 0 ----\n'
        self.host.write("say", frames + record)
        r = self.run_cmd("cat say; cat say >&2; exit 3", "--json")
        self.assertEqual(r.returncode, 3)
        rec = json.loads(r.stdout)
        self.assertEqual((rec["exit_status"], rec["state"], rec["command"]["exit_code"]), (3, "finished", 3))
        self.assertEqual(r.stderr.count(frames + record), 2)
        self.assertEqual(self.host.airlock("logs", "last").stdout, frames + record)
        # The probe's own words, said by a profile of the sandbox's
        r = self.run_cmd("echo ran", "--cli", "nosuch", "--install", "echo done; printf 'cli sh\\nneed tar\\ndone\\n'")
        self.assertEqual((r.returncode, b"ran" in r.stdout), (125, False))

    def test_B_08_a_terminal_session_is_bytes(self):
        import pty
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.ws)
            os.execve(self.host.bin + "/airlock", ["airlock", "run", "--tty", "-q", "--provider", "native", "--", "cat say; exit 5"],
                      {**self.host.env, "TERM": "dumb"})
        self.host.write("say", self.ESC)
        got = b""
        while True:
            try:
                b = os.read(fd, 4096)
            except OSError:
                break
            if not b:
                break
            got += b
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5, got)
        os.close(fd)


class Network(Case):
    CONNECT = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d), 3).close(); print(\"reached\")' 2>&1 | tail -n 1"

    def setUp(self):
        super().setUp()
        self.api = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.api.close)
        self.connect = self.CONNECT % self.api.getsockname()[1]

    def test_B_10_none_by_default_and_said(self):
        r = self.run_cmd(self.connect + "; ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(b"reached", r.stderr)
        net = json.loads(r.stdout)["isolation"]
        self.assertEqual(net["network"], "none")
        self.assertTrue(net["network_source"])
        self.assertIn(b"network none", r.stderr)
        r = self.run_cmd("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "-q")
        self.assertEqual(r.stdout, b"lo\n")

    def test_B_10_host_is_loud_and_recorded(self):
        r = self.run_cmd(self.connect, "--net", "host", "--json")
        self.assertIn(b"reached", r.stderr)
        self.assertIn(b"network HOST", r.stderr)
        rec = json.loads(r.stdout)["isolation"]
        self.assertEqual(rec["network"], "host")
        self.assertIn("--net", rec["network_source"])

    def test_B_03_the_api_is_out_of_reach_without_the_bridge(self):
        """An API on the host's loopback, its key in the caller's variables: neither is to be had inside."""
        key = "key-of-the-agent-8841"
        r = self.run_cmd("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; " + self.connect,
                         env={**self.host.env, "PAPERCLIP_API_KEY": key, "PAPERCLIP_API_URL": "http://127.0.0.1"})
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(key.encode(), r.stdout + r.stderr)
        self.assertNotIn(b"reached", r.stdout)
        self.api.settimeout(0)
        with self.assertRaises(BlockingIOError):
            self.api.accept()


class Session(Case):
    def test_RT_08_a_kept_session_stays_in_its_sandbox(self):
        r = self.run_cmd("echo 1 >/tmp/of-the-session; readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/user", "--keep", "-q")
        self.assertEqual(r.returncode, 0, r.stderr)
        run, inside = self.host.rows()[0]["run"], r.stdout
        for ns, there in zip(("pid", "mnt", "user"), inside.split()):
            self.assertNotEqual(os.readlink("/proc/self/ns/" + ns), there.decode())
        r = self.host.airlock("exec", "-q", run, "--", "cat /tmp/of-the-session; readlink /proc/self/ns/pid /proc/self/ns/mnt "
                              "/proc/self/ns/user; cat %s/home/key; ls %s" % (self.host.top, self.host.top))
        self.assertEqual(r.stdout, b"1\n" + inside, r.stderr)
        self.assertFalse(os.path.exists("/tmp/of-the-session"))
        # A session that goes on, and with it a channel: its process is in that sandbox, and ends with it.
        p = subprocess.Popen([self.host.bin + "/airlock", "exec", "-q", run, "--", "echo begun; exec sleep 61711"], cwd=self.ws,
                             env=self.host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(p.stdout.readline(), b"begun\n")
        mine = until("the session", lambda: [q for q in pids() if look(q, "cmdline") == b"sleep\x0061711\0"])
        self.assertEqual([os.readlink("/proc/%d/ns/pid" % q).encode() for q in mine], inside.split()[:1])
        p.send_signal(signal.SIGKILL)
        p.communicate()
        until("the session's process is gone with its channel",
              lambda: not [q for q in pids() if look(q, "cmdline") == b"sleep\x0061711\0"], 20)
        self.assertEqual(self.host.airlock("rm", "--force", run).returncode, 0)
        until(lambda: "nothing runs: %s" % self.host.left(), lambda: not self.host.left(), 20)


class BadInput(Case):
    """What the tests of single parts do not show from the command line."""

    def test_missing_directory_is_named(self):
        r = self.host.airlock("run", "--workspace", self.ws + "/no/such", "--provider", "native", "--", "true")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"/no/such", r.stderr)

    def test_fork_bomb_ends_at_its_limit(self):
        r = self.run_cmd("f() { sleep 61712 & f; }; f 2>/dev/null; sleep 1000", "--pids", "64", "--timeout", "2")
        self.assertIn(r.returncode, (2, 124), r.stderr)
        until("the bomb is gone", lambda: not [q for q in pids() if look(q, "cmdline") == b"sleep\x0061712\0"], 20)
        self.assertEqual(self.run_cmd("true").returncode, 0)

    def test_endless_output_meets_the_time_limit(self):
        r = self.run_cmd("cat /dev/urandom", "--timeout", "1", "--log-limit", "64K", stdout=subprocess.DEVNULL)
        self.assertEqual(r.returncode, 124, r.stderr)
        self.assertIn(b"limit run log", r.stderr)
        self.assertEqual(len(self.host.airlock("logs", "last").stdout), 65536)

    def test_too_long_names_stay_inside(self):
        deep = "d" * 200
        r = self.run_cmd("i=0; while [ $i -lt 30 ]; do mkdir %s && cd %s; i=$((i+1)); done; echo deep >f; cd /workspace; "
                         "echo ok >ok" % (deep, deep))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.host.read("ok"), b"ok\n")

    def test_workspace_that_is_changed_all_the_time(self):
        """Somebody writes while files are sent: what is sent is whole, the run goes on, nothing of the writer's is lost."""
        log = os.path.join(self.ws, "log")
        writer = subprocess.Popen([sys.executable, "-c", "f=open(%r,'ab',0)\nfor i in range(10**9): f.write(b'line %%d\\n' %% i)" % log])
        try:
            until("the writer writes", lambda: os.path.exists(log) and os.path.getsize(log))
            r = self.run_cmd("echo x >new; wc -l <a")
        finally:
            writer.kill()
            writer.wait()
        self.assertEqual((r.returncode, r.stdout.strip()), (0, b"1"), r.stderr)
        self.assertEqual(self.host.read("new"), b"x\n")
        text = self.host.read("log").split(b"\n")
        self.assertEqual(text[:-1], [b"line %d" % i for i in range(len(text) - 1)])

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    def test_no_space_in_the_workspace(self):
        small = self.host.top + "/small"
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "small", small], check=True)
        try:
            with open(small + "/a", "w") as f:
                f.write("one\n")
            r = self.run_cmd("echo two >a; head -c 3000000 /dev/zero >big", cwd=small)
            self.assertEqual(r.returncode, 125, r.stderr)
            self.assertIn(b"missing on the workspace's file system", r.stderr)
            self.assertEqual(sorted(os.listdir(small)), ["a"])
            with open(small + "/a") as f:
                self.assertIn(f.read(), ("one\n", "two\n"))
            self.assertEqual(self.host.rows()[0]["lease_state"], "recoverable")
            subprocess.run(["mount", "-o", "remount,size=200m", small], check=True)
            r = self.host.airlock("recover", "last")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(os.path.getsize(small + "/big"), 3000000)
        finally:
            subprocess.run(["umount", "-l", small], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
