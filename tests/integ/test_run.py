#!/usr/bin/env python3
"""airlock run and its relatives as real programs, over each provider.

usage: test_run.py AIRLOCK local|native [unittest arguments]

The same suite runs over every provider; what only one of them can show is skipped for the other by
a decorator, with the reason. No sleeps: every wait has a condition and a deadline.
"""
import fcntl, json, os, pty, re, resource, select, signal, stat, struct, subprocess, sys, termios, time, unittest

import scratch

AIRLOCK, PROVIDER = os.path.abspath(sys.argv[1]), sys.argv[2]
LOCAL = PROVIDER == "local"
DEADLINE = 60
# What nohup ignores would be ignored by every airlock below.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def until(what, cond, seconds=DEADLINE):
    end = time.monotonic() + seconds
    while True:
        v = cond()
        if v:
            return v
        if time.monotonic() > end:
            raise AssertionError("waited %d s for: %s" % (seconds, what))
        select.select([], [], [], 0.02)


def marked(word):
    """Pids of living processes that have `word` in their arguments."""
    found = []
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                with open("/proc/%s/cmdline" % p, "rb") as f:
                    args = f.read().split(b"\0")
                with open("/proc/%s/stat" % p) as f:
                    state = f.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if word.encode() in args and state != "Z":
                found.append(int(p))
    return found


def native_only(reason):
    return unittest.skipIf(LOCAL, "local: " + reason)


class Case(unittest.TestCase):
    def setUp(self):
        signal.signal(signal.SIGALRM, self.late)
        signal.alarm(3 * DEADLINE)
        self.top = scratch.directory(prefix="airlock-run-")
        os.chmod(self.top, 0o755)
        self.ws = os.path.join(self.top, "ws")
        os.mkdir(self.ws)
        self.write("a", "one\n")
        self.write("d/b", "two\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "LD_"))}
        self.env["XDG_STATE_HOME"] = os.path.join(self.top, "state")
        self.env["HOME"] = os.path.join(self.top, "home")
        os.mkdir(self.env["HOME"])
        self.children = []

    def late(self, signo, frame):
        raise AssertionError("the test did not end within %d s" % (3 * DEADLINE))

    def tearDown(self):
        signal.alarm(0)
        for p in self.children:
            if p.poll() is None:
                p.kill()
            p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                if f:
                    f.close()
        self.airlock("rm", "--all", "--force")
        scratch.remove(self.top)

    def write(self, name, text):
        p = os.path.join(self.ws, name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb" if isinstance(text, bytes) else "w") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.ws, name), "rb") as f:
            return f.read()

    def airlock(self, *words, **kw):
        kw.setdefault("cwd", self.ws)
        kw.setdefault("env", self.env)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        if "input" not in kw:
            kw.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([AIRLOCK, *words], timeout=DEADLINE, **kw)

    def run_cmd(self, *words, opts=(), **kw):
        return self.airlock("run", "--provider", PROVIDER, *opts, "--", *words, **kw)

    def start(self, *words, opts=(), **kw):
        kw.setdefault("cwd", self.ws)
        kw.setdefault("env", self.env)
        p = subprocess.Popen([AIRLOCK, "run", "--provider", PROVIDER, *opts, "--", *words],
                             stdin=kw.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True, **kw)
        self.children.append(p)
        return p

    def runs(self):
        r = self.airlock("ps", "-a", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def log(self, run="last"):
        r = self.airlock("logs", run)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def gone(self, word):
        until("no process with %s" % word, lambda: not marked(word), 15)


class Status(Case):
    def test_B057_exit_codes(self):
        rows = [(["true"], 0), (["false"], 1), (["exit 7"], 7), (["sh", "-c", "exit 9"], 9),
                (["nosuchprogram"], 127), (["nosuchprogram", "x"], 127), (["./a"], 126), (["./a", "x"], 126),
                (["kill -9 $$"], 137), (["kill -15 $$"], 143), (["exit 125"], 125), (["exit 124"], 124)]
        for words, want in rows:
            with self.subTest(words=words):
                r = self.run_cmd(*words, opts=["-q"])
                self.assertEqual(r.returncode, want, r.stderr)

    def test_B057_own_failures_are_told_apart(self):
        rows = [(["run", "--nosuch", "--", "true"], 2), (["run"], 2), (["nosuchverb"], 2), ([], 2),
                (["run", "--provider", "mars", "--", "true"], 2),
                (["run", "--workspace", "/nosuch", "--provider", PROVIDER, "--", "true"], 125),
                (["exec", "nosuch-run", "--", "true"], 125), (["logs", "0000"], 125), (["run", "--env", "nope", "--", "true"], 125),
                (["run", "--timeout", "-1", "--", "true"], 2), (["run", "--timeout", "ten", "--", "true"], 2),
                (["run", "--provider", PROVIDER, "--setenv", "NOT_SET_HERE", "--", "true"], 2),
                (["run", "--provider", PROVIDER, "--install", "true", "--", "true"], 2),
                (["run", "--memory", "x", "--", "true"], 2), (["run", "--pids", "0", "--", "true"], 2)]
        for words, want in rows:
            with self.subTest(words=words):
                r = self.airlock(*words)
                self.assertEqual(r.returncode, want, r.stderr)
                self.assertTrue(r.stderr)
                self.assertEqual(r.stdout, b"")

    def test_texts_of_bad_limits_speak_of_that_limit(self):
        err = self.run_cmd("true", opts=["--log-limit", "x"]).stderr
        self.assertNotIn(b"memory", err)
        self.assertIn(b"0 keeps all", err)
        self.assertIn(b"always a limit", self.run_cmd("true", opts=["--pids", "0"]).stderr)

    def test_nearest_option_and_verb(self):
        self.assertIn(b"--timeout", self.airlock("run", "--tiemout", "3", "--", "true").stderr)
        self.assertIn(b"did you mean run", self.airlock("rnu").stderr)

    # RT-01
    def test_RT_01_one_word_is_a_script_several_are_a_command(self):
        r = self.run_cmd("echo $((1+1)); echo 'a b'")
        self.assertEqual(r.stdout, b"2\na b\n")
        r = self.run_cmd("printf", "%s|", "$HOME", "a b", "", "*")
        self.assertEqual(r.stdout, b"$HOME|a b||*|")

    def test_RT_01_bash_only_when_asked(self):
        r = self.run_cmd("echo ${BASH_VERSION:-none}")
        self.assertEqual(r.stdout, b"none\n")
        r = self.run_cmd("echo ${BASH_VERSION:-none}", opts=["--shell", "bash"])
        self.assertNotEqual(r.stdout, b"none\n")

    def test_B066_directory_and_reason(self):
        os.makedirs(os.path.join(self.ws, "d/e"))
        self.write("d/e/f", "x")
        subprocess.run(["git", "init", "-q", self.ws], check=True, env=self.env)
        r = self.run_cmd("pwd", cwd=os.path.join(self.ws, "d/e"))
        self.assertTrue(r.stdout.endswith(b"/d/e\n"), r.stdout + r.stderr)
        self.assertIn(b"the enclosing git work tree", self.airlock("logs", "last").stderr)
        r = self.run_cmd("true", opts=["--workspace", self.ws + "/a"])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"not a directory", r.stderr)

    def test_a_workspace_that_is_not_there_has_a_remedy(self):
        r = self.run_cmd("true", opts=["--workspace", self.ws + "/nowhere"])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"give --workspace an existing directory", r.stderr)
        self.assertIn(b"No such file", r.stderr)
        gone = os.path.join(self.top, "gone")
        os.mkdir(gone)
        r = self.run_cmd("true", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"current directory cannot be resolved: give --workspace DIR: No such file or directory", r.stderr)

    @unittest.skipIf(LOCAL, "of sandboxes")
    def test_root_of_a_container_without_the_sandbox_s_user_has_a_remedy(self):
        r = subprocess.run(["unshare", "--user", "--map-root-user", AIRLOCK, "run", "--", "true"], cwd=self.ws, env=self.env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
        self.assertEqual(r.returncode, 125, r.stderr)
        for words in b"which this user namespace does not have", b"Remedy: run airlock as an ordinary user here", b"`airlock doctor`":
            self.assertIn(words, r.stderr)

    def test_RT_07_logs_raw_is_what_the_command_printed_and_nothing_else(self):
        out, err = bytes(range(256)) + b"airlock: not a note\n", b"\0err\xff"
        self.write("out", out)
        self.write("err", err)
        r = self.run_cmd("cat out; cat err >&2")
        self.assertEqual(r.returncode, 0, r.stderr)
        r = self.airlock("logs", "--raw", "last")
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, out, err))
        r = self.airlock("logs", "last")
        self.assertEqual((r.returncode, r.stdout), (0, out))
        self.assertIn(b"airlock: workspace", r.stderr)
        self.assertTrue(r.stderr.endswith(err) or err in r.stderr)

    def test_home_is_not_taken_by_default(self):
        r = self.run_cmd("true", cwd=self.env["HOME"])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"--workspace", r.stderr)

    @native_only("works in the workspace itself")
    def test_S1_01_no_workspace_around_our_own_state(self):
        """Records, trash and the journals' key are trusted: no run may read or bring back over them."""
        home = os.path.join(self.ws, ".state")
        os.mkdir(home)
        for ws in self.ws, os.path.join(home, "airlock", "runs"):
            r = self.airlock("run", "--provider", PROVIDER, "-w", ws, "--", "true", env=dict(self.env, XDG_STATE_HOME=home))
            self.assertEqual(r.returncode, 125, r.stderr)
            self.assertIn(b"set XDG_STATE_HOME", r.stderr)
            self.assertEqual(os.listdir(os.path.join(home, "airlock", "runs")), [])


class Streams(Case):
    # RT-07
    def test_RT_07_bytes_whole_and_apart(self):
        data = bytes(range(256)) * 4096
        self.write("data", data)
        r = self.run_cmd("cat data; cat data >&2", opts=["-q"])
        self.assertEqual(r.stdout, data)
        self.assertEqual(r.stderr, data)
        self.assertEqual(self.log(), data)

    def test_B037_stdin(self):
        big = os.urandom(5 << 20)
        r = self.run_cmd("cat", opts=["-q"], input=big)
        self.assertEqual(r.stdout, big)
        r = self.run_cmd("true", opts=["-q"], input=big)
        self.assertEqual(r.returncode, 0)
        r = self.run_cmd("wc -c", opts=["-q"], input=b"")
        self.assertEqual(r.stdout.strip(), b"0")

    def test_stdin_closed_by_the_caller(self):
        r = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", AIRLOCK, "run", "-q", "--provider", PROVIDER, "--", "wc -c"],
                           cwd=self.ws, env=self.env, stdout=subprocess.PIPE, timeout=DEADLINE)
        self.assertEqual(r.stdout.strip(), b"0")

    def test_B028_no_output_is_lost(self):
        for i in range(15):
            r = self.run_cmd("head -c 200000 /dev/zero | tr '\\0' x", opts=["-q"])
            self.assertEqual(len(r.stdout), 200000)

    def test_slow_reader_loses_nothing(self):
        p = self.start("head -c 3000000 /dev/zero | tr '\\0' x", opts=["-q"])
        got = 0
        while True:
            b = os.read(p.stdout.fileno(), 30000)
            if not b:
                break
            got += len(b)
            select.select([], [], [], 0.001)
        self.assertEqual(got, 3000000)
        self.assertEqual(p.wait(DEADLINE), 0)

    def test_output_that_cannot_be_written_is_said_and_logged(self):
        """stdout on a full disk, or at the limit of file sizes: the command goes on, the log has all."""
        with open("/dev/full", "wb") as full:
            r = self.run_cmd("head -c 300000 /dev/zero; echo end >&2; exit 3", stdout=full)
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertIn(b"stdout of the command could not be written", r.stderr)
        self.assertIn(b"No space left", r.stderr)
        self.assertEqual(self.log().count(b"\0"), 300000)
        with open("/dev/full", "wb") as full:
            r = self.run_cmd("echo out; echo err >&2", opts=["-q"], stdout=full)
        self.assertEqual((r.returncode, len(r.stderr.splitlines())), (0, 2), r.stderr)
        self.assertRegex(r.stderr, b"^err\nairlock: stdout of the command could not be written to its end: No space left on device; airlock logs ")
        with open(os.path.join(self.top, "out"), "ab") as out:
            out.write(b"x" * 8000000)
            out.flush()
            r = self.run_cmd("echo too much; exit 3", stdout=out, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (8000000, 8000000)))
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertIn(b"File too large", r.stderr)

    def test_open_file_limit_is_raised_or_named(self):
        r = self.run_cmd("ulimit -n", opts=["-q"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 4096)))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(r.stdout, b"32\n" if LOCAL else b"4096\n")
        if LOCAL:
            return
        for n in (32, 64, 150):
            r = self.run_cmd("true", opts=["-q"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            self.assertEqual(r.returncode, 125, r.stderr)
            for word in (b"limit open files", b"%d" % n, b"192", b"ulimit -n"):
                self.assertIn(word, r.stderr)
        r = self.run_cmd("true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (192, 192)))
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_endless_output_ends_with_its_reader(self):
        p = self.start("yes", opts=["-q"])
        self.assertTrue(os.read(p.stdout.fileno(), 4096))
        p.stdout.close()
        self.assertEqual(p.wait(DEADLINE), 141)

    def test_log_limit_is_named(self):
        r = self.run_cmd("head -c 300000 /dev/zero", opts=["--log-limit", "64K"])
        self.assertEqual(len(r.stdout), 300000)
        self.assertIn(b"limit run log", r.stderr)
        self.assertIn(b"--log-limit", r.stderr)
        self.assertEqual(len(self.log()), 65536)
        self.assertIn(b"234464 bytes of output are missing", self.airlock("logs", "last").stderr)

    def test_B139_logs_follow(self):
        os.mkfifo(os.path.join(self.top, "go"))
        p = self.start("echo first; cat; echo last", stdin=subprocess.PIPE)
        until("a run", lambda: [r for r in self.runs() if r["phase"] == "execute"])
        f = subprocess.Popen([AIRLOCK, "logs", "-f", "last"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.children.append(f)
        self.assertEqual(f.stdout.readline(), b"first\n")
        p.stdin.write(b"middle\n")
        p.stdin.flush()
        self.assertEqual(f.stdout.readline(), b"middle\n")
        p.stdin.close()
        p.stdin = None
        self.assertEqual(f.stdout.readline(), b"last\n")
        self.assertEqual(f.wait(DEADLINE), 0)
        self.assertEqual(f.stdout.read(), b"")


class Variables(Case):
    def vars(self, *opts, **kw):
        r = self.run_cmd("env -0", opts=["-q", *opts], **kw)
        self.assertEqual(r.returncode, 0, r.stderr)
        return dict(w.split("=", 1) for w in r.stdout.decode().split("\0") if w)

    def test_clean_documented_set(self):
        v = self.vars(env={**self.env, "SECRET_TOKEN": "x", "LC_ALL": "C.UTF-8", "TZ": "UTC"})
        self.assertNotIn("SECRET_TOKEN", v)
        self.assertEqual(v["LC_ALL"], "C.UTF-8")
        self.assertEqual(v["TZ"], "UTC")
        for name in ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "AIRLOCK_RUN_ID", "AIRLOCK_ENV", "PAPERCLIP_RUN_ID"):
            self.assertIn(name, v)
        self.assertEqual(v["PAPERCLIP_RUN_ID"], self.runs()[0]["run"])  # CP-02

    def test_setenv_and_files(self):
        with open(self.top + "/f.env", "w") as f:
            f.write("# c\nA=1\nexport B='two words'\nM=\"l1\nl2\"\n")
        v = self.vars("--env-file", self.top + "/f.env", "--setenv", "A=over", "--setenv", "FROM_HERE",
                      env={**self.env, "FROM_HERE": "yes"})
        self.assertEqual((v["A"], v["B"], v["M"], v["FROM_HERE"]), ("over", "two words", "l1\nl2", "yes"))

    def test_bad_file_names_line_not_value(self):
        with open(self.top + "/f.env", "w") as f:
            f.write("A=1\nB='hush\n")
        r = self.run_cmd("true", opts=["--env-file", self.top + "/f.env"])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"line 2", r.stderr)
        self.assertNotIn(b"hush", r.stderr)

    def test_B162_reserved_names(self):
        for name in ("PAPERCLIP_RUN_ID", "AIRLOCK_RUN_ID", "PAPERCLIP_API_KEY"):
            r = self.run_cmd("true", opts=["--setenv", name + "=x"])
            self.assertEqual(r.returncode, 125)
            self.assertIn(name.encode(), r.stderr)

    def test_B155_loader_hooks(self):
        r = self.run_cmd("true", opts=["--setenv", "NODE_OPTIONS=--x"])
        self.assertEqual(r.returncode, 125 if LOCAL else 0)

    def test_values_not_in_log_record_or_arguments(self):
        r = self.run_cmd("true", opts=["--setenv", "TOKEN=sesame42", "--json=" + self.top + "/r.json"])
        self.assertEqual(r.returncode, 0, r.stderr)
        for root, _, files in os.walk(self.env["XDG_STATE_HOME"]):
            for name in files:
                if os.path.islink(os.path.join(root, name)):
                    continue
                with open(os.path.join(root, name), "rb") as f:
                    self.assertNotIn(b"sesame42", f.read(), name)
        with open(self.top + "/r.json") as f:
            self.assertNotIn("sesame42", f.read())

    # RT-06
    def test_RT_06_no_profile_is_read_or_written(self):
        home = self.env["HOME"]
        for name in (".profile", ".bashrc", ".bash_profile"):
            with open(os.path.join(home, name), "w") as f:
                f.write("echo sourced; sleep 2\n")
        before = {n: os.stat(os.path.join(home, n)).st_mtime_ns for n in os.listdir(home)}
        r = self.run_cmd("echo ok", opts=["--shell", "bash", "-q"])
        self.assertEqual(r.stdout, b"ok\n")
        self.assertEqual(before, {n: os.stat(os.path.join(home, n)).st_mtime_ns for n in os.listdir(home)})


class Tools(Case):
    # RT-04
    def test_RT_04_B005_missing_cli_fails_loudly(self):
        r = self.run_cmd("echo started", opts=["--cli", "nosuchcli"])
        self.assertEqual(r.returncode, 125)
        self.assertEqual(r.stdout, b"")
        for word in (b"nosuchcli", b"PATH=", b"command -v", PROVIDER.encode()):
            self.assertIn(word, r.stderr)

    # RT-03
    def test_RT_03_only_used_clis_are_asked_for(self):
        self.assertEqual(self.run_cmd("true", opts=["--cli", "sh", "--cli", "tar"]).returncode, 0)

    # RT-05
    def test_RT_05_install_flow(self):
        # present: skipped
        r = self.run_cmd("true", opts=["--cli", "sh", "--install", "touch installed"])
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(b"running the install", r.stderr)
        self.assertFalse(os.path.exists(self.ws + "/installed"))
        # absent: once, then there
        script = "mkdir -p bin; printf '#!/bin/sh\\necho mine\\n' > bin/mycli; chmod +x bin/mycli; echo x >> count"
        inside = self.ws if LOCAL else "/workspace"
        r = self.run_cmd("mycli; cat count", opts=["--cli", "mycli", "--install", script, "--setenv",
                                                  "PATH=%s/bin:/usr/bin:/bin" % inside])
        self.assertEqual((r.returncode, r.stdout), (0, b"mine\nx\n"), r.stderr)

    def test_RT_05_failed_install_is_logged_not_fatal(self):
        r = self.run_cmd("true", opts=["--cli", "nosuchcli", "--install", "echo trying; exit 3"])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"install command failed with status 3", r.stderr)
        self.assertIn(b"nosuchcli", r.stderr)

    def test_B068_installed_but_not_on_path(self):
        script = "mkdir -p \"$HOME/elsewhere\"; printf '#!/bin/sh\\n' > \"$HOME/elsewhere/mycli\"; chmod +x \"$HOME/elsewhere/mycli\""
        r = self.run_cmd("true", opts=["--cli", "mycli", "--install", script])
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"installed but not on PATH", r.stderr)
        self.assertIn(b"/elsewhere/mycli", r.stderr)

    @native_only("the host's programs are there")
    def test_B005_hint_names_the_bind(self):
        d = self.env["HOME"] + "/.local/bin"
        os.makedirs(d)
        with open(d + "/onhost", "w") as f:
            f.write("#!/bin/sh\necho from the host\n")
        os.chmod(d + "/onhost", 0o755)
        r = self.run_cmd("true", opts=["--cli", "onhost"])
        self.assertIn(b"--bind-ro", r.stderr)

    @native_only("it has no binds")
    def test_B_05_no_bind_reaches_keys_however_a_link_leads_to_them(self):
        home, keys = self.env["HOME"], os.path.join(self.top, "keys")
        for d in ("ssh", "config/gh", "tools"):
            os.makedirs(os.path.join(keys, d))
        with open(keys + "/tools/t", "w") as f:
            f.write("tool\n")
        # As a whole, in the middle, to nothing, to itself; .docker lies where it should, .kube is not there.
        for name, to in ((".ssh", keys + "/ssh"), (".config", "../keys/config"), (".aws", "nowhere"), (".gnupg", ".gnupg")):
            os.symlink(to, os.path.join(home, name))
        os.makedirs(home + "/.docker/sub")
        for src in (keys + "/ssh", home + "/.ssh", keys + "/config/gh", home + "/.config/gh", home + "/.docker", home + "/.docker/sub",
                    keys, home):
            with self.subTest(src=src):
                r = self.run_cmd("true", opts=["--bind-ro", src + ":/opt/t"])
                self.assertEqual(r.returncode, 125, r.stderr)
                self.assertIn(b"must stay outside", r.stderr)
        r = self.run_cmd("cat /opt/t/t", opts=["--bind-ro", keys + "/tools:/opt/t"])
        self.assertEqual((r.returncode, r.stdout), (0, b"tool\n"), r.stderr)


class Limits(Case):
    def test_B036_time_limit_says_everything(self):
        t = time.monotonic()
        r = self.run_cmd("echo begun; sleep 600", opts=["--timeout", "1"])
        self.assertEqual(r.returncode, 124)
        self.assertLess(time.monotonic() - t, 20)
        for word in (b"limit time", b"option --timeout", b"--timeout"):
            self.assertIn(word, r.stderr)
        self.assertEqual(r.stdout, b"begun\n")
        self.assertIn(b"limit time: 1", self.airlock("logs", "last").stderr)

    def test_B036_quiet_still_says_that_the_time_was_up(self):
        r = self.run_cmd("sleep 100", opts=["-q", "--timeout", "1"])
        self.assertEqual(r.returncode, 124)
        self.assertEqual(r.stderr, b"airlock: limit time: the command was ended after 1.00 s (set by option --timeout)\n")

    def test_B001_time_limit_ends_the_whole_tree(self):
        r = self.run_cmd("sleep 60601 & (setsid sleep 60602 &) ; sh -c 'sleep 60603 & wait' & sleep 60604", opts=["--timeout", "1"])
        self.assertEqual(r.returncode, 124, r.stderr)
        for n in ("60601", "60602", "60603", "60604"):
            self.gone(n)

    def test_ignoring_TERM_is_killed(self):
        t = time.monotonic()
        r = self.run_cmd("trap '' TERM; while :; do sleep 60701; done", opts=["--timeout", "1"])
        self.assertEqual(r.returncode, 124)
        self.assertIn(b"KILL", r.stderr)
        self.assertLess(time.monotonic() - t, 25)
        self.gone("60701")

    def test_B004_zero_is_none(self):
        r = self.run_cmd("true", opts=["--timeout", "0"])
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"limit time: none (option --timeout", self.airlock("logs", "last").stderr)

    def test_B006_background_child_does_not_hold_the_run(self):
        for script in ("sleep 60801 & echo ready", "setsid sleep 60801 & echo ready"):
            t = time.monotonic()
            r = self.run_cmd(script)
            self.assertEqual((r.returncode, r.stdout), (0, b"ready\n"), r.stderr)
            self.assertLess(time.monotonic() - t, 15)
            self.assertIn(b"left behind", r.stderr)
            self.gone("60801")

    def test_source_of_a_limit_in_a_named_environment(self):
        self.assertEqual(self.airlock("env", "create", "ci", "--provider", PROVIDER, "--timeout", "1").returncode, 0)
        r = self.airlock("run", "--env", "ci", "--", "sleep 600")
        self.assertEqual(r.returncode, 124)
        self.assertIn(b"environment ci", r.stderr)
        r = self.airlock("run", "--env", "ci", "--timeout", "0", "--", "echo over")
        self.assertEqual(r.stdout, b"over\n")


class Signals(Case):
    def begun(self, script, **kw):
        p = self.start(script, **kw)
        self.assertEqual(p.stdout.readline(), b"begun\n")
        return p

    def test_ctrl_c_ends_the_tree_and_exits_130(self):
        for signo, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.subTest(signo=signo):
                p = self.begun("echo change > c; echo begun; sleep 60901 & sleep 60902")
                os.kill(p.pid, signo)
                self.assertEqual(p.wait(DEADLINE), status, p.stderr.read())
                self.gone("60901")
                self.gone("60902")
                self.assertEqual(self.read("c"), b"change\n")  # results come back
                self.assertEqual(self.runs()[0]["state"], "interrupted")

    def test_signals_for_the_command_reach_it(self):
        for name in ("USR1", "USR2", "ALRM", "CONT"):
            with self.subTest(name=name):
                p = self.begun("trap 'echo got; exit 5' %s; echo begun; while :; do sleep 0.05; done" % name)
                os.kill(p.pid, getattr(signal, "SIG" + name))
                self.assertEqual(p.stdout.readline(), b"got\n")
                self.assertEqual(p.wait(DEADLINE), 5, p.stderr.read())

    def test_second_signal_stops_at_once(self):
        p = self.begun("echo change > c; trap '' TERM; echo begun; while :; do sleep 61001; done")
        os.kill(p.pid, signal.SIGINT)
        # Signals of one number merge while pending: the second must come after the first was taken.
        def taken():
            with open("/proc/%d/status" % p.pid, "rb") as f:
                return b"ShdPnd:\t0000000000000000" in f.read()
        until("the first was noticed", taken)
        t = time.monotonic()
        os.kill(p.pid, signal.SIGINT)
        self.assertEqual(p.wait(DEADLINE), 130, p.stderr.read())
        self.assertLess(time.monotonic() - t, 15)
        self.gone("61001")
        if not LOCAL:
            self.assertFalse(os.path.exists(self.ws + "/c"))
            self.assertEqual(self.runs()[0]["lease_state"], "recoverable")
            r = self.airlock("recover", "last")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(self.read("c"), b"change\n")
            self.assertEqual(self.runs()[0]["state"], "recovered")

    def test_B125_stop_verb(self):
        p = self.begun("echo begun; sleep 61101")
        r = self.airlock("stop", "last")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"is stopped", r.stderr)
        self.assertEqual(p.wait(DEADLINE), 143)
        self.gone("61101")
        self.assertEqual(self.airlock("stop", "last").returncode, 0)

    def test_B164_B067_killed_engine(self):
        p = self.begun("echo kept > k; echo begun; setsid sleep 61201 & sleep 61202")
        p.kill()
        p.wait(DEADLINE)
        t = time.monotonic()
        self.gone("61201")
        self.gone("61202")
        self.assertLess(time.monotonic() - t, 10)
        # The base of the killed run must outlive the workspace's own changes and later copies in.
        for i in range(3):
            self.write("a", "changed on the host %d\n" % i)
            self.assertEqual(self.run_cmd("true").returncode, 0)
        r = self.run_cmd("true")  # the next start finishes
        self.assertEqual(r.returncode, 0, r.stderr)
        old = self.runs()[4]
        self.assertEqual(old["state"], "interrupted")
        if LOCAL:
            self.assertEqual(old["lease_state"], "released")
        else:
            self.assertEqual(old["lease_state"], "recoverable")
            self.assertFalse(os.path.exists(self.ws + "/k"))
            r = self.airlock("recover", old["run"])
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(self.read("k"), b"kept\n")

    def test_killed_helper(self):
        """kill -9 of the process between us and the command: nothing runs on, the record says it."""
        p = self.begun("echo kept > k; echo begun; setsid sleep 61301 & sleep 61302")
        helpers = []
        for pid in os.listdir("/proc"):
            if pid.isdigit():
                try:
                    with open("/proc/%s/stat" % pid) as f:
                        ppid = int(f.read().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
                if ppid == p.pid:
                    helpers.append(int(pid))
        self.assertTrue(helpers)
        for h in helpers:
            os.kill(h, signal.SIGKILL)
        status = p.wait(DEADLINE)
        self.assertEqual(status, 137 if LOCAL else 125, p.stderr.read())
        self.gone("61301")
        self.gone("61302")
        if not LOCAL:
            self.assertEqual(self.runs()[0]["lease_state"], "recoverable")
            r = self.airlock("recover", "last")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(self.read("k"), b"kept\n")


class Results(Case):
    def test_changes_come_back(self):
        r = self.run_cmd("echo new > n; echo more >> a; rm d/b; mkdir -p e/f; echo x > e/f/g; chmod +x n")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.read("n"), b"new\n")
        self.assertTrue(os.stat(self.ws + "/n").st_mode & stat.S_IXUSR)
        self.assertEqual(self.read("a"), b"one\nmore\n")
        self.assertFalse(os.path.exists(self.ws + "/d/b"))
        self.assertEqual(self.read("e/f/g"), b"x\n")
        if not LOCAL:
            for word in (b"changed: 1", b"added: ", b"deleted: 1", b"layers in force"):
                self.assertIn(word, r.stderr)

    # B-09
    def test_B_09_local_says_so(self):
        r = self.run_cmd("true")
        self.assertEqual(b"NO ISOLATION" in r.stderr, LOCAL)

    def test_results_come_back_after_failure_and_timeout(self):
        self.run_cmd("echo 1 > x; exit 3")
        self.assertEqual(self.read("x"), b"1\n")
        self.run_cmd("echo 2 > x; sleep 600", opts=["--timeout", "1"])
        self.assertEqual(self.read("x"), b"2\n")

    @native_only("works in place")
    def test_too_deep_a_tree_keeps_the_storage(self):
        """What the packer cannot send is never given up: the rest comes, the lease stays, the status is the command's."""
        deep = "i=0; while [ $i -lt 140 ]; do mkdir dd; cd -P dd || exit 9; i=$((i+1)); done; echo w > f"
        r = self.run_cmd("echo rest > rest; " + deep + "; exit 3")
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertEqual(self.read("rest"), b"rest\n")
        for word in (b"could NOT be brought back", b"128", b"airlock recover", b"KEPT"):
            self.assertIn(word, r.stderr)
        self.assertEqual(self.runs()[0]["lease_state"], "recoverable")
        r = self.airlock("recover", "last")
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertIn(b"could NOT be brought back", r.stderr)
        self.assertEqual(self.runs()[0]["lease_state"], "recoverable")
        r = self.airlock("recover", "--exclude", "dd", "last")
        self.assertEqual(r.returncode, 0, r.stderr)

    @native_only("has no memory limit of its own")
    def test_memory_limit_is_named_when_it_killed(self):
        r = self.run_cmd("sh -c 'head -c 300m /dev/zero | tail' >/dev/null; exit 4", opts=["--memory", "40M"])
        self.assertEqual(r.returncode, 4, r.stderr)
        for word in (b"limit memory", b"killed 1 process", b"40.0 MiB", b"--memory"):
            self.assertIn(word, r.stderr)

    @native_only("works in place")
    def test_unreadable_work_comes_back(self):
        """Modes without the right to read are modes, not a way to lose work."""
        r = self.run_cmd("echo p > p; chmod 0 p; echo s > s; chmod 200 s; mkdir -p q/r; echo t > q/r/t; chmod 0 q/r/t;"
                         "chmod 0 q/r; chmod 300 q; echo k > a; chmod 0 a; mkdir x; echo y > x/y; chmod 400 x; chmod 0 .")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(b"could not be read", r.stderr)
        modes = {n: stat.S_IMODE(os.stat(os.path.join(self.ws, n)).st_mode) for n in ("p", "s", "a")}
        self.assertEqual(modes, {"p": 0, "s": 0o200, "a": 0})
        subprocess.run(["chmod", "-R", "u+rwX", self.ws], check=True)
        for name, text in (("p", b"p\n"), ("s", b"s\n"), ("q/r/t", b"t\n"), ("a", b"k\n"), ("x/y", b"y\n")):
            self.assertEqual(self.read(name), text)
        self.assertEqual(self.runs()[0]["lease_state"], "released")

    @native_only("works in place")
    def test_quiet_still_says_what_did_not_come_back(self):
        p = self.start("echo sandbox > a; ln -s /etc/passwd bad; mkfifo fifo; echo begun; cat", opts=["-q"], stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"begun\n")
        self.write("a", "host\n")
        p.stdin.close()
        p.stdin = None
        self.assertEqual(p.wait(DEADLINE), 0)
        err = p.stderr.read()
        for word in (b"CONFLICTS", b"refused: 2", b"bad"):
            self.assertIn(word, err)
        self.assertNotIn(b"summary", err)

    @native_only("has the host's network")
    def test_net_host_is_named_as_such(self):
        err = self.run_cmd("true", opts=["--net", "host"]).stderr
        self.assertIn(b"switched off by --net host", err)
        self.assertNotIn(b"--without", err)

    @native_only("works in place")
    def test_strict_rejection_can_be_recovered(self):
        r = self.run_cmd("echo x > good; ln -s /etc/passwd bad", opts=["--strict"])
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertFalse(os.path.exists(self.ws + "/good"))
        self.assertEqual(self.airlock("recover", "last").returncode, 125)
        r = self.airlock("recover", "--no-strict", "last")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.read("good"), b"x\n")
        self.assertFalse(os.path.lexists(self.ws + "/bad"))

    @native_only("works in place, there is nothing to conflict")
    def test_B083_conflict_keeps_the_host_and_saves_the_other(self):
        p = self.start("echo sandbox > a; echo begun; cat", stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"begun\n")
        self.write("a", "host\n")
        p.stdin.close()
        p.stdin = None
        self.assertEqual(p.wait(DEADLINE), 0)
        err = p.stderr.read()
        self.assertIn(b"CONFLICTS", err)
        self.assertIn(b"a: changed here and in the sandbox (conflicts/sandbox/a)", err)
        self.assertEqual(self.read("a"), b"host\n")

    @native_only("works in place, there is nothing to conflict")
    def test_B083_taking_the_sandbox_version_is_a_change(self):
        p = self.start("echo sandbox > a; echo begun; cat", stdin=subprocess.PIPE, opts=["--on-conflict", "take-sandbox"])
        self.assertEqual(p.stdout.readline(), b"begun\n")
        self.write("a", "host\n")
        p.stdin.close()
        p.stdin = None
        self.assertEqual(p.wait(DEADLINE), 0)
        err = p.stderr.read()
        self.assertEqual(self.read("a"), b"sandbox\n")
        self.assertIn(b"conflicts, the sandbox's version taken (yours is saved): 1", err)
        self.assertIn(b"conflicts/host/a", err)
        self.assertNotIn(b"nothing in the workspace changed", err)
        self.assertNotIn(b"CONFLICTS", err)

    @native_only("works in place")
    def test_bare_repository_is_no_workspace(self):
        subprocess.run(["git", "init", "-q", "--bare", "bare"], cwd=self.ws, check=True)
        r = self.run_cmd("true", cwd=self.ws + "/bare")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"is a bare git repository", r.stderr)

    @native_only("works in place")
    def test_what_stays_behind_is_said_in_words(self):
        self.write("nest/x", "x\n")
        subprocess.run(["git", "init", "-q", "nest"], cwd=self.ws, check=True)
        subprocess.run(["git", "init", "-q"], cwd=self.ws, check=True)
        r = self.run_cmd("mkfifo f; mkdir e", opts=["--include", "nosuch*"])
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"f: devices, FIFOs and sockets never come back", r.stderr)
        self.assertIn(b"nest/.git: is a submodule's git directory", r.stderr)
        self.assertIn(b"nosuch*: matches nothing", r.stderr)
        self.assertIn(b"e: directory", r.stderr)
        self.assertNotRegex(r.stderr, rb": (special_file|no_match|submodule_git|dir)\b")

    @native_only("works in place")
    def test_B15_workspace_exchanged_during_the_run(self):
        victim, old = os.path.join(self.top, "victim"), os.path.join(self.top, "old")
        os.mkdir(victim)

        def by_link():
            os.rename(self.ws, old)
            os.symlink("victim", self.ws)

        def by_directory():
            os.rename(self.ws, old)
            os.rename(victim, self.ws)
        for exchange, back in ((by_link, lambda: os.unlink(self.ws)), (by_directory, lambda: os.rename(self.ws, victim)),
                               (lambda: os.rename(self.ws, old), lambda: None)):
            p = self.start("echo sandbox > w; echo begun; cat", stdin=subprocess.PIPE)
            self.assertEqual(p.stdout.readline(), b"begun\n")
            exchange()
            p.stdin.close()
            p.stdin = None
            self.assertEqual(p.wait(DEADLINE), 125)
            self.assertIn(os.fsencode(self.ws), p.stderr.read())
            back()
            self.assertEqual(os.listdir(victim), [])
            os.rename(old, self.ws)
            self.assertFalse(os.path.exists(self.ws + "/w"))
            self.assertEqual(self.runs()[0]["lease_state"], "recoverable")
            r = self.airlock("recover", "last")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(self.read("w"), b"sandbox\n")
            os.unlink(self.ws + "/w")

    @native_only("works in place")
    def test_holes_are_kept_both_ways(self):
        """A disk image is mostly holes: neither the copy that goes in nor what comes back may fill them."""
        with open(self.ws + "/in", "wb") as f:
            f.seek(20 << 20)
            f.write(b"mid")
            f.truncate(24 << 20)
        script = ("[ $(stat -c %s in) = $((24 << 20)) ] || exit 9; [ $(stat -c %b in) -lt 8192 ] || exit 8; "
                  "[ \"$(tail -c +$(((20 << 20) + 1)) in | head -c 3)\" = mid ] || exit 7; "
                  "truncate -s 10M out; echo x >>out; truncate -s 16M out; truncate -s 16M hole; echo end >>in; sha256sum in out hole")
        r = self.run_cmd(script, opts=["-q"])
        self.assertEqual(r.returncode, 0, r.stderr)
        here = subprocess.run(["sha256sum", "in", "out", "hole"], cwd=self.ws, stdout=subprocess.PIPE, check=True)
        self.assertEqual(here.stdout, r.stdout)
        for name in "in", "out", "hole":
            self.assertLess(os.stat(os.path.join(self.ws, name)).st_blocks * 512, 4 << 20, name)
        used = sum(os.lstat(os.path.join(d, n)).st_blocks * 512 for d, _, names in
                   os.walk(self.env["XDG_STATE_HOME"]) for n in names)
        self.assertLess(used, 8 << 20)

    def test_two_runs_at_once(self):
        ps = [self.start("echo %d > f%d; echo begun; cat" % (i, i), stdin=subprocess.PIPE) for i in range(2)]
        for p in ps:
            self.assertEqual(p.stdout.readline(), b"begun\n")
        for p in ps:
            p.stdin.close()
            p.stdin = None
            self.assertEqual(p.wait(DEADLINE), 0, p.stderr.read())
        self.assertEqual((self.read("f0"), self.read("f1")), (b"0\n", b"1\n"))

    @native_only("works in place")
    def test_odd_names(self):
        name = b"\xff\xfe \x1b[31m\nx"
        with open(os.path.join(os.fsencode(self.ws), name), "wb") as f:
            f.write(b"1")
        r = self.run_cmd("for f in *x; do echo 2 > \"$f\"; done")
        self.assertEqual(r.returncode, 0, r.stderr)
        with open(os.path.join(os.fsencode(self.ws), name), "rb") as f:
            self.assertEqual(f.read(), b"2\n")
        self.assertNotIn(b"\x1b[31m", r.stderr)

    @native_only("works in place")
    def test_B105_every_phase_is_timed(self):
        r = self.run_cmd("true")
        for phase in (b"resolve", b"sync_in", b"start", b"execute", b"sync_out", b"release", b"sum"):
            self.assertIn(phase, r.stderr)


class Record(Case):
    DOC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "record.md")

    def fields(self, value, at, found):
        if isinstance(value, dict):
            for k, v in value.items():
                self.fields(v, at + "." + k if at else k, found)
        elif isinstance(value, list):
            for v in value:
                if isinstance(v, (dict, list)):
                    self.fields(v, at + "[]", found)
        if at and not at.endswith("[]"):
            found.add(at)

    def test_record_is_documented(self):
        with open(self.DOC) as f:
            doc = set(re.findall(r"^\| `([^`]+)`", f.read(), re.M))
        self.write(".env", "A=1")
        r = self.run_cmd("echo x > n; ln -s /etc/passwd bad; echo out; sleep 0 & exit 3", opts=["--json"])
        self.assertEqual(r.returncode, 3, r.stderr)
        rec = json.loads(r.stdout)  # the command's stdout went to stderr
        self.assertIn(b"out\n", r.stderr)
        found = set()
        self.fields(rec, "", found)
        self.assertEqual(found - doc, set(), "fields without a line in docs/record.md")
        self.assertEqual((rec["version"], rec["exit_status"], rec["provider"]), (1, 3, PROVIDER))
        top = {d for d in doc if "." not in d and "[" not in d}
        self.assertEqual(top - set(rec), set(), "documented fields that the record lacks")
        with open(os.path.join(self.env["XDG_STATE_HOME"], "airlock/runs", rec["run"], "record.json")) as f:
            self.assertEqual(json.load(f), rec)

    def test_record_of_a_failure(self):
        r = self.run_cmd("true", opts=["--json", "--cli", "nosuchcli"])
        rec = json.loads(r.stdout)
        self.assertEqual((rec["error"]["code"], rec["error"]["phase"], rec["state"]), ("not_found", "probe", "failed"))
        self.assertIsNone(rec["command"])


    def test_record_when_there_was_no_run(self):
        """FR-B057: a program that reads the record learns of every failure from it."""
        for words, status, code in (
                (("run", "--json", "--workspace", self.top + "/none", "--", "true"), 125, "not_found"),
                (("run", "--json", "--setenv", "1X=sesame42", "--", "true"), 2, "usage"),
                (("run", "--json", "--nosuch", "--", "true"), 2, "usage"),
                (("exec", "--json", "nosuch", "--", "true"), 125, "not_found")):
            r = self.airlock(*words)
            self.assertEqual(r.returncode, status, r.stderr)
            self.assertNotIn(b"sesame42", r.stdout + r.stderr)
            rec = json.loads(r.stdout)
            self.assertEqual((rec["version"], rec["run"], rec["state"], rec["exit_status"]), (1, None, "failed", status))
            self.assertEqual(rec["error"]["code"], code)
            self.assertIn(rec["error"]["text"].encode(), r.stderr)
        self.assertIn(b"--setenv 1X", self.airlock("run", "--setenv", "1X=3", "--", "true").stderr)

    def test_record_that_cannot_be_written_starts_nothing(self):
        r = self.run_cmd("echo x >ran", opts=["--json=" + self.top + "/none/r.json"])
        self.assertEqual((r.returncode, r.stdout), (2, b""), r.stderr)
        self.assertIn(b"/none/r.json", r.stderr)
        self.assertEqual(self.runs(), [])
        self.assertFalse(os.path.exists(self.ws + "/ran"))
        with open(self.top + "/r.json", "w") as f:
            f.write("longer than a record " * 1000)
        r = self.run_cmd("true", opts=["--json=" + self.top + "/r.json"])
        self.assertEqual(r.returncode, 0, r.stderr)
        with open(self.top + "/r.json") as f:
            self.assertEqual(json.load(f)["exit_status"], 0)


class Kept(Case):
    def test_exec_in_a_kept_sandbox(self):
        r = self.run_cmd("echo 1 > n", opts=["--keep"])
        self.assertEqual(r.returncode, 0, r.stderr)
        run = self.runs()[0]["run"]
        r = self.airlock("exec", run, "--", "cat n; echo 2 > m; exit 4")
        self.assertEqual((r.returncode, r.stdout), (4, b"1\n"), r.stderr)
        self.assertEqual(self.read("m"), b"2\n")
        r = self.airlock("exec", "-q", run, "--", "printf", "%s", "a b")
        self.assertEqual((r.returncode, r.stdout), (0, b"a b"), r.stderr)
        with open(self.top + "/f.env", "w") as f:
            f.write("A=file\n")
        r = self.airlock("exec", "-q", "--env-file", self.top + "/f.env", "--setenv", "FROM_HERE", run, "--", "echo $A $FROM_HERE",
                         env={**self.env, "FROM_HERE": "caller"})
        self.assertEqual(r.stdout, b"file caller\n", r.stderr)
        r = self.airlock("exec", "--setenv", "AIRLOCK_RUN_ID=x", run, "--", "true")  # FR-B162
        self.assertEqual(r.returncode, 125)
        r = self.airlock("rm", run)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.runs(), [])
        self.assertEqual(os.listdir(self.env["XDG_STATE_HOME"] + "/airlock/leases"), [])

    unread = b""

    def shell(self, *words):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.ws)
            os.execve(AIRLOCK, [AIRLOCK, *words], {**self.env, "TERM": "dumb", "PS1": "$ "})
        return pid, fd

    def expect(self, fd, text, seconds=30):
        end, got = time.monotonic() + seconds, self.unread
        while text not in got:
            left = end - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise AssertionError("waited for %r, got %r" % (text, got))
            try:
                got += os.read(fd, 4096)
            except OSError:
                raise AssertionError("the terminal closed before %r; got %r" % (text, got))
        self.unread = got[got.index(text) + len(text):]
        return got

    def test_shell_terminal_and_size(self):
        pid, fd = self.shell("shell", "--provider", PROVIDER)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        before = termios.tcgetattr(fd)
        os.write(fd, b"echo re''ady\n")
        self.expect(fd, b"ready")
        os.kill(pid, signal.SIGWINCH)
        os.write(fd, b"sleep 0.3; stty size; test -t 0 && echo is''tty\n")
        self.expect(fd, b"33 99")
        self.expect(fd, b"istty")
        os.write(fd, b"echo s > s; exit 6\n")
        self.expect(fd, b"exit status 6")
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 6)
        self.assertEqual(termios.tcgetattr(fd)[3], before[3])
        os.close(fd)
        self.assertEqual(self.read("s"), b"s\n")
        self.assertEqual(self.runs()[0]["lease_state"], "kept")
        self.assertIn(b"(shell)", self.airlock("ps", "-a").stdout)


class State(Case):
    def test_named_environments(self):
        self.assertEqual(self.airlock("env", "create", "x", "--provider", "local", "--setenv", "TOKEN=hush").returncode, 0)
        self.assertEqual(self.airlock("env", "create", "x").returncode, 125)
        self.assertEqual(self.airlock("env", "create", "y", "--nosuch").returncode, 2)
        r = self.airlock("env", "list")
        self.assertIn(b"native", r.stdout)
        self.assertIn(b"--provider local", r.stdout)
        self.assertNotIn(b"hush", r.stdout + self.airlock("env", "show", "x").stdout)
        self.assertEqual(self.airlock("env", "rm", "x").returncode, 0)
        self.assertEqual(self.airlock("env", "show", "x").returncode, 125)

    def test_built_in_environments_are_described(self):
        for name in ("native", "local"):
            r = self.airlock("env", "show", name)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn(b"--provider " + name.encode(), r.stdout)
            r = self.airlock("env", "rm", name)
            self.assertEqual(r.returncode, 125)
            self.assertIn(b"built in", r.stderr)

    @native_only("nothing is saved")
    def test_rm_all_asks_before_it_drops_the_only_copy(self):
        p = self.start("echo s >a; : >ready; until [ -e go ]; do sleep 0.1; done", opts=["--keep"])
        run = until("the run", lambda: [r for r in self.runs() if r["lease_state"] == "kept"])[0]["run"]
        self.write("a", "mine\n")
        until("it to begin", lambda: self.airlock("exec", "-q", run, "--", "[ -e ready ] && : >go").returncode == 0)
        self.assertEqual(p.wait(DEADLINE), 0)
        self.run_cmd("true")
        r = self.airlock("rm", "--all")
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertIn(b"--yes", r.stderr)
        left = {r["lease"] for r in self.runs()}
        self.assertEqual(len(left), 1, "only what keeps the copy stays")
        kept = os.path.join(self.env["XDG_STATE_HOME"], "airlock/runs")
        self.assertTrue(any("conflicts" in dirs for _, dirs, _ in os.walk(kept)))
        for answer, status, rows in ((b"n\n", 125, True), (b"y\n", 0, False)):
            pid, fd = pty.fork()
            if pid == 0:
                os.execve(AIRLOCK, [AIRLOCK, "rm", "--all"], self.env)
            got = b""
            while b"[y/N]" not in got:
                got += os.read(fd, 4096)
            os.write(fd, answer)
            while True:
                try:
                    if not os.read(fd, 4096):
                        break
                except OSError:
                    break
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), status)
            os.close(fd)
            self.assertEqual(self.runs() != [], rows)

    def test_further_commands_stand_below_the_first(self):
        self.run_cmd("true", opts=["--keep"])
        run = self.runs()[0]["run"]
        self.airlock("exec", "-q", run, "--", "exit 3")
        lines = self.airlock("ps").stdout.decode().splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertTrue(lines[1].startswith(run), lines)
        self.assertTrue(lines[2].startswith("  ") and " 3 " in lines[2] and "kept" not in lines[2], lines)
        p = self.start("exec sleep 70005")
        going = until("a second run", lambda: [r for r in self.runs() if r["state"] == "running"])[0]
        self.assertIsNone(going["exit_status"])
        self.assertNotIn(b"-1", self.airlock("ps").stdout)
        p.kill()

    def test_state_directory_that_others_can_write(self):
        os.makedirs(self.env["XDG_STATE_HOME"] + "/airlock")
        os.chmod(self.env["XDG_STATE_HOME"] + "/airlock", 0o777)
        r = self.run_cmd("true")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"chmod 700", r.stderr)
        os.chmod(self.env["XDG_STATE_HOME"] + "/airlock", 0o700)

    def test_dump_options_matches_help(self):
        r = self.airlock("help", "--dump-options")
        self.assertIn(b"option\trun\t--timeout", r.stdout)
        for line in r.stdout.decode().splitlines():
            kind, verb, name = line.split("\t")[:3]
            if kind == "option":
                self.assertIn(name, self.airlock("help", verb).stdout.decode())

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    def test_full_log_disk_does_not_stop_the_run(self):
        d = self.top + "/small"
        os.mkdir(d)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "tmpfs", d], check=True)
        try:
            env = {**self.env, "XDG_STATE_HOME": d}
            r = self.run_cmd("head -c 6000000 /dev/zero; echo end >&2; exit 3", env=env)
            self.assertEqual((r.returncode, len(r.stdout)), (3, 6000000) if LOCAL else (r.returncode, 6000000), r.stderr)
            self.assertIn(b"the run log is not whole", r.stderr)
        finally:
            subprocess.run(["umount", "-l", d], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    @native_only("works in place")
    def test_full_log_disk_alone_loses_no_result(self):
        """Log, record and trash of the runs on a full disk of their own: what the command made comes back all the same."""
        self.write("edited", "one\n")
        self.write("deleted", "g\n")
        self.assertEqual(self.run_cmd("true").returncode, 0)
        d = self.top + "/state/airlock/runs"
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", d], check=True)
        try:
            r = self.run_cmd("echo two >>edited; rm deleted; head -c 300000 /dev/zero >big; head -c 6000000 /dev/zero; exit 3")
            self.assertEqual((r.returncode, len(r.stdout)), (3, 6000000), r.stderr)
            for word in b"the run log is not whole", b"No space left on device":
                self.assertIn(word, r.stderr)
            # Every byte is in the log or counted as missing there.
            missing = int(re.search(rb"(\d+) bytes of output are missing", r.stderr).group(1))
            self.assertEqual(len(self.log()) + missing, 6000000)
            self.assertEqual((self.read("edited"), self.read("big")), (b"one\ntwo\n", bytes(300000)))
            self.assertFalse(os.path.exists(self.ws + "/deleted"))
            row = json.loads(self.airlock("ps", "-a", "--json").stdout)[0]
            self.assertEqual((row["state"], row["lease_state"], row["exit_status"]), ("finished", "released", 3))
        finally:
            subprocess.run(["umount", "-l", d], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    @native_only("works in place")
    def test_read_only_workspace(self):
        subprocess.run(["mount", "--bind", self.ws, self.ws], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", self.ws], check=True)
            r = self.run_cmd("echo x > n")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn(b"cannot be written (Read-only file system)", r.stderr)
            self.assertFalse(os.path.exists(self.ws + "/n"))
        finally:
            subprocess.run(["umount", "-l", self.ws], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    @native_only("works in place")
    def test_full_state_disk_keeps_the_work(self):
        d = self.top + "/small"
        os.mkdir(d)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "tmpfs", d], check=True)
        try:
            env = {**self.env, "XDG_STATE_HOME": d}
            r = self.run_cmd("echo small > s; cat /dev/zero > z; rm z; echo more > t; cat /dev/zero > z", env=env)
            self.assertEqual(r.returncode, 125, r.stderr)
            # The object, the limit, the remedy; and where the work is.
            for word in b"airlock.db", b"no space left", b"free space", b"the work is KEPT", b"airlock recover":
                self.assertIn(word, r.stderr)
            self.assertFalse(os.path.exists(self.ws + "/s"))
            subprocess.run(["mount", "-o", "remount,size=64m", d], check=True)
            r = self.airlock("recover", "last", env=env)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual((self.read("s"), self.read("t")), (b"small\n", b"more\n"))
        finally:
            subprocess.run(["umount", "-l", d], check=True)

    @native_only("works in place")
    def test_a_directory_too_deep_to_send_is_named_with_limit_and_remedy(self):
        d = self.ws
        for _ in range(130):
            d += "/b"
            os.mkdir(d)
        r = self.run_cmd("true")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(r.stderr, rb"b/b: lies deeper than 127 directories; .*--exclude")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
