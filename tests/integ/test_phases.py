#!/usr/bin/env python3
"""Every way to end a run early, in every phase (S1-10, FR-B164, FR-B067).

usage: test_phases.py AIRLOCK GATE [unittest arguments]

A case is a phase, a place in it and a blow: a signal once or twice, `airlock stop`, kill -9 of airlock or of one
of its helpers. Afterwards nothing of the run is left running or mounted, the rows say what happened, the
command's work is on the host or comes with `airlock recover` byte for byte, and what the run did not touch is as
it was. No case depends on time: airlock waits at a gate (gate.c, where the phase is written to the database), a
helper at a FIFO (a script in its place that waits and then becomes it), a command on a sleep that is seen from
outside. The cases run side by side, each with its own state, workspace and programs.
"""
import concurrent.futures, glob, os, shutil, signal, subprocess, sys, time, unittest

from run_box import DEADLINE, Host, alive, link, look, parent, pids, snapshot, until

AIRLOCK, GATE = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
PROGS = os.path.dirname(AIRLOCK)
SIDE_BY_SIDE = 4
# What nohup ignores would be ignored by every airlock below.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
SIGNALS = {"int": (signal.SIGINT, 1), "int2": (signal.SIGINT, 2), "term": (signal.SIGTERM, 1), "hup": (signal.SIGHUP, 1)}
# Not a shell: dash opens the signal mask that a helper is started with.
WAIT = """#!/usr/bin/python3 -IS
import os, sys
try:
    os.mkdir("%(d)s/here.%(n)s")
except FileExistsError:
    pass
else:
    with open("%(d)s/pid.%(n)s", "w") as f:
        f.write(str(os.getpid()))
    os.close(os.open("%(d)s/open.%(n)s", os.O_RDONLY))
os.execv("%(real)s", ["%(real)s"] + sys.argv[1:])
"""
WORK = ("printf 'one\\ntwo\\n' >a; rm gone; mkdir -p new/dir; head -c 300000 /dev/zero | tr '\\0' w >new/dir/big; "
        "ln -s ../a new/link; printf '#!/bin/sh\\n' >tool; chmod +x tool; ")
BEFORE = {"a": b"one\n", "gone": b"g\n", "kept/k": b"k\n" * 1000, "kept/x": b""}
AFTER = {"a": b"one\ntwo\n", "kept/k": b"k\n" * 1000, "kept/x": b"", "new/dir/big": b"w" * 300000, "new/link": "../a",
         "tool": b"#!/bin/sh\n"}
PHASES = ["resolve", "sync_in", "start", "network", "probe", "install", "bridge", "execute", "sync_out", "release"]
# In the guest's place, inside: waits at a FIFO in the sandbox's own /tmp, then becomes the guest.
GUEST_WAITS = """#!/bin/sh
mkfifo /tmp/gate
: </tmp/gate
exec /opt/real/airlock-guest
"""
next_mark = iter(range(70001, 80000))


class Case(Host):
    """One run, to be hit by one blow."""

    def __init__(self, phase, place, blow, doors=False):
        super().__init__(PROGS, "airlock-phases-", BEFORE)
        self.phase, self.place, self.blow, self.doors = phase, place, blow, doors
        self.gate = self.top + "/gate"
        for d in self.gate, self.bin + "/real", self.top + "/path":
            os.mkdir(d)
        os.mkfifo(self.gate + "/open")
        self.mark, self.inside, self.opened = str(next(next_mark)), set(), []
        self.proc = self.stopper = None
        self.airlock_program = self.bin + "/airlock"

    def __str__(self):
        return "%s/%s/%s%s" % (self.phase, self.place, self.blow, "/doors" if self.doors else "")

    # What stands in the way. ---------------------------------------------------------------------

    def helper_waits(self, name, real=None):
        """A script in a helper's place that waits at its FIFO, then becomes the helper: same pid."""
        os.mkfifo(self.gate + "/open." + name)
        if not real:
            real = os.path.join(self.bin, "real", name)
            os.rename(os.path.join(self.bin, name), real)
            shutil.copy(os.path.join(PROGS, "airlock-guest"), self.bin + "/real")
            path = os.path.join(self.bin, name)
        else:
            path = os.path.join(self.top, "path", name)
        with open(path, "w") as f:
            f.write(WAIT % {"d": self.gate, "n": name, "real": real})
        os.chmod(path, 0o755)

    def guest_waits(self):
        path, real = os.path.join(self.bin, "airlock-guest"), self.top + "/guest"
        os.mkdir(real)
        os.rename(path, real + "/airlock-guest")
        with open(path, "w") as f:
            f.write(GUEST_WAITS)
        os.chmod(path, 0o755)
        return ["--bind-ro", real + ":/opt/real"]

    def prepare(self):
        """Before any case runs: a program that another thread still writes, or forks while it writes, is busy."""
        env, opts, script = dict(self.env), [], WORK + "exit 0"
        sleep = "sleep " + self.mark
        if self.place in ("row", "storage"):
            env.update(LD_PRELOAD=GATE, GATE_DIR=self.gate)
            env.update({"GATE_PHASE": self.phase} if self.place == "row" else {"GATE_STORAGE": "1"})
            if "ASAN_OPTIONS" not in env:
                env["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        elif self.place == "git":
            subprocess.run(["git", "init", "-q", self.ws], check=True, env=self.env)
            self.helper_waits("git", shutil.which("git"))
            env["PATH"] = self.top + "/path:" + env["PATH"]
        elif self.place == "airlock-guest":
            opts += self.guest_waits()
        elif self.place.startswith("airlock-"):
            self.helper_waits(self.place)
        elif self.phase == "execute":
            script = WORK + sleep
        if self.phase in ("probe", "install"):
            opts += ["--cli", "sh"]
            if self.phase == "install":
                opts += ["--cli", "nosuch", "--install", sleep if self.place == "inside" else "true"]
            elif self.place == "inside":
                # The probe makes a missing cache directory, with the mkdir that comes first on PATH.
                os.mkdir(self.ws + "/b")
                with open(self.ws + "/b/mkdir", "w") as f:
                    f.write("#!/bin/sh\n" + sleep + "\n")
                os.chmod(self.ws + "/b/mkdir", 0o755)
                opts += ["--setenv", "PATH=/workspace/b:/usr/bin:/bin", "--setenv", "XDG_CACHE_HOME=/tmp/none"]
        if self.doors:
            with open(self.top + "/key", "w") as f:
                f.write("key\n")
            opts += ["--api", "http://127.0.0.1:9", "--api-key-file", self.top + "/key", "--net", "allow=nowhere.invalid:80"]
        self.host = snapshot(self.ws)
        self.command = [self.airlock_program, "run", "--provider", "native", *opts, "--", script]
        self.start_env = env

    def start(self):
        self.proc = subprocess.Popen(self.command, cwd=self.ws, env=self.start_env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def arrive(self):
        def here():
            if self.place == "row":
                return os.path.exists(self.gate + "/here")
            if self.place == "storage":
                return os.path.exists(self.gate + "/here") and self.pid1()
            if self.place == "airlock-guest":
                return self.gate_inside()
            if self.place == "inside":
                return any(look(p, "cmdline") == b"sleep\0" + self.mark.encode() + b"\0" for p in pids())
            return os.path.exists(self.gate + "/pid." + self.place) and os.path.getsize(self.gate + "/pid." + self.place)
        until("the place is reached", lambda: here() or self.proc.poll() is not None)
        if self.proc.poll() is not None:
            raise AssertionError("airlock ended before the place was reached: %r" % self.proc.stdout.read())
        self.run = self.rows()[0]
        self.check(self.run["phase"] == self.phase and self.run["state"] == "running", "another phase", self.run)
        guest = self.helper("airlock-guest")
        if guest:
            self.inside.add(link(guest, "ns/pid"))

    def gate_inside(self):
        return glob.glob(self.state + "/leases/*/tmp/gate")

    def go_on(self):
        for fifo in self.gate_inside():
            self.opened.append(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        # Held open for good: between two signals the gate may be outside open(2), and comes back to it.
        for name in os.listdir(self.gate):
            if name.startswith("open"):
                self.opened.append(os.open(os.path.join(self.gate, name), os.O_RDWR | os.O_NONBLOCK))

    # The blow. ----------------------------------------------------------------------------------

    def helper(self, name):
        """Our process of that name, by parentage: airlock, its child, the child's child."""
        waiting = self.gate + "/pid." + name
        if os.path.exists(waiting):
            with open(waiting) as f:
                return int(f.read())
        tree = [self.proc.pid]
        for p in tree:
            tree += [c for c in pids() if parent(c) == p and c not in tree]
        found = [p for p in tree if look(p, "comm").strip() == name[:15].encode() and alive(p)]
        return found[0] if found else 0

    def pid1(self):
        """The child of airlock-launch, while it is on its way to become the guest."""
        launch = self.helper("airlock-launch")
        found = [p for p in pids() if launch and parent(p) == launch and alive(p)]
        return found[0] if found else 0

    def taken(self, n):
        """The n-th signal has been handled, not merely sent: signals of one number merge while pending."""
        # A second one may come while the gate writes down the first: then it interrupts no open(2) that could count it.
        if self.place in ("row", "storage") and n == 1:
            def cond():
                return os.path.exists(self.gate + "/signals") and os.path.getsize(self.gate + "/signals") >= n
        else:
            def cond():
                s = look(self.proc.pid, "status")
                return not s or (b"ShdPnd:\t0000000000000000" in s and b"SigPnd:\t0000000000000000" in s)
        until("signal %d is taken" % n, lambda: cond() or self.proc.poll() is not None)

    def strike(self):
        if self.blow in SIGNALS:
            signo, times = SIGNALS[self.blow]
            for n in range(times):
                # As the terminal does: to the whole foreground group.
                os.killpg(self.proc.pid, signo)
                self.taken(n + 1)
        elif self.blow == "stop":
            self.stopper = subprocess.Popen([self.airlock_program, "stop", self.run["run"]], env=self.env,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if self.place in ("row", "storage"):
                self.taken(1)
            else:
                until("stop has signalled", lambda: self.stop_seen() or self.proc.poll() is not None)
        elif self.blow == "kill":
            self.proc.kill()
            self.proc.wait(DEADLINE)
        else:
            victim = self.pid1() if self.place == "storage" and self.blow == "guest" else self.helper("airlock-" + self.blow)
            self.check(victim, "there is no airlock-" + self.blow)
            os.kill(victim, signal.SIGKILL)
            until("the victim is dead", lambda: not alive(victim))
            if self.blow in ("bridge", "proxy") and self.place == "inside":
                # The run goes on without it, until its command ends.
                for p in pids():
                    if look(p, "cmdline") == b"sleep\0" + self.mark.encode() + b"\0":
                        os.kill(p, signal.SIGKILL)
        self.go_on()

    def stop_seen(self):
        with open("/proc/%d/syscall" % self.stopper.pid) as f:
            return b"stop" in look(self.stopper.pid, "cmdline") and f.read().split()[0] in self.POLLS

    POLLS = ("7", "271", "73")  # poll and ppoll: it waits for the owner's end

    # What must hold. ----------------------------------------------------------------------------

    def check(self, ok, *what):
        if not ok:
            raise AssertionError(" ".join(str(w) for w in what))

    def ours(self, pid):
        return (look(pid, "cmdline") == b"sleep\0" + self.mark.encode() + b"\0" or link(pid, "ns/pid") in self.inside
                or ("AIRLOCK_RUN_ID=" + self.run["run"]).encode() in look(pid, "environ"))

    def nothing_runs(self):
        until(lambda: "nothing is left, but there is %s" % self.left(self.ours), lambda: not self.left(self.ours), 20)
        with open("/proc/self/mountinfo") as f:
            self.check(self.top not in f.read(), "a mount is left")
        for here, dirs, _ in os.walk("/sys/fs/cgroup"):
            self.check(not [d for d in dirs if self.lease and self.lease in d], "a cgroup is left")

    def untouched(self, now):
        for name in "kept/k", "kept/x":
            self.check(now.get(name) == self.host[name], name, "was touched")

    def holds(self, now, want):
        return {n: v[0] for n, v in now.items() if not n.startswith("b/")} == want

    def settle(self):
        out = self.proc.communicate(timeout=DEADLINE)[0]
        if self.stopper:
            text = self.stopper.communicate(timeout=DEADLINE)[0]
            self.check(self.stopper.returncode == 0, "stop:", text)
        leases = os.listdir(self.state + "/leases")
        self.lease = leases[0] if leases else None
        self.nothing_runs()
        row = self.rows()[0]
        self.check(row["run"] == self.run["run"], row)
        code = self.proc.returncode
        # A bridge or proxy that was killed is made again, and the run goes on.
        ran = PHASES.index(self.phase) >= PHASES.index("execute") or code == 0
        # The row comes before the command, and before the guest's first word; it then begins and is stopped somewhere.
        partly = self.phase == "execute" and self.place in ("row", "airlock-guest")
        late = self.phase in ("sync_out", "release")
        if self.blow == "kill":
            self.check(code == -9 and row["state"] in ("dead", "finished"), code, row)
        elif self.blow in SIGNALS or self.blow == "stop":
            signo = SIGNALS.get(self.blow, (signal.SIGTERM,))[0]
            self.check(code == 128 + signo or (late and code == 0), "exit status", code, out)
            self.check(row["state"] == ("finished" if code == 0 else "interrupted"), row, out)
            self.check(row["exit_status"] == code, row)
        else:
            self.check(code == 125 or (self.phase in ("release", "execute") and code in (0, 137))
                       or (self.blow in ("bridge", "proxy") and code == 0), "exit status", code, out)
            self.check(row["state"] in ("failed", "finished"), row, out)
        self.untouched(snapshot(self.ws))
        if row["lease_state"] == "recoverable" or row["state"] == "dead":
            r = self.airlock("recover", self.run["run"])
            if ran and not partly:
                self.check(r.returncode == 0 or self.holds(snapshot(self.ws), AFTER), r.stderr)
            row = self.rows()[0]
            self.check(row["state"] in ("recovered", "interrupted"), row, r.stderr)
            self.check(r.returncode == 0 or b"no work" in r.stderr, r.stderr)
            self.nothing_runs()
        self.check(row["lease_state"] == "released", row)
        now = snapshot(self.ws)
        self.untouched(now)
        if partly:
            for n, v in now.items():
                self.check(v[0] == BEFORE.get(n) or AFTER.get(n, v[0])[:len(v[0])] == v[0], n, v)
            self.check("a" in now, "a file is lost")
        elif ran:
            self.check(self.holds(now, AFTER), "the work is lost", row, sorted(now), out)
        else:
            self.check({n: v for n, v in now.items()} == self.host, "the workspace changed", sorted(now))
        r = self.airlock("rm", "--all", "--yes")
        self.check(r.returncode == 0 and self.rows() == [], r.stderr)
        for d in "leases", "runs", "trash":
            self.check(os.listdir(os.path.join(self.state, d)) == [], d, os.listdir(os.path.join(self.state, d)))

    def go(self):
        began = time.monotonic()
        try:
            self.start()
            self.arrive()
            self.strike()
            self.settle()
            return None
        except (AssertionError, OSError, subprocess.SubprocessError, ValueError, KeyError, IndexError) as e:
            return "%s: %s: %s" % (self, type(e).__name__, e)
        finally:
            if os.environ.get("PHASES_TIMES"):
                print("%6.2f s %s" % (time.monotonic() - began, self), file=sys.stderr)
            self.clear()

    def clear(self):
        self.go_on()
        for p in self.proc, self.stopper:
            if p:
                p.kill()
                p.communicate()
        for fd in self.opened:
            os.close(fd)
        self.remove()


# With a bridge and a network list: their helpers stand where they begin, or serve a command that runs.
DOORS = {"network": [("airlock-proxy", b) for b in ("int", "kill", "launch", "guest", "proxy")],
         "bridge": [("airlock-bridge", b) for b in ("int", "kill", "launch", "guest", "bridge")],
         "execute": [("inside", b) for b in ("int", "kill", "guest", "bridge", "proxy")]}
OF_AIRLOCK = ["int", "int2", "term", "hup", "stop", "kill"]


class Phases(unittest.TestCase):
    """One test a phase."""

    def cases(self, phase):
        doors = phase in ("network", "bridge")
        for blow in OF_AIRLOCK:
            yield phase, "row", blow, doors
        live = PHASES.index(phase) > PHASES.index("start")
        if live:
            for blow in "launch", "guest":
                yield phase, "row", blow, doors
        place = {"start": "storage", "execute": "airlock-guest"}.get(phase)
        for blow in OF_AIRLOCK + ["launch", "guest"] if place else []:
            yield phase, place, blow
        for place, blow in DOORS.get(phase, []):
            yield phase, place, blow, True
        more = {"sync_in": ("git", ["int", "int2", "term", "kill"]), "start": ("airlock-launch", OF_AIRLOCK + ["launch"]),
                "probe": ("inside", ["int", "int2", "stop", "kill", "launch", "guest"]),
                "install": ("inside", ["int", "int2", "stop", "kill", "launch", "guest"]),
                "execute": ("inside", OF_AIRLOCK + ["launch", "guest"]),
                "sync_out": ("airlock-unpack", OF_AIRLOCK + ["launch", "guest", "unpack"])}
        place, blows = more.get(phase, ("", []))
        for blow in blows:
            yield phase, place, blow

    def phase(self, phase):
        cases = [Case(*c) for c in self.cases(phase)]
        for c in cases:
            c.prepare()
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            bad = [r for r in pool.map(Case.go, cases) if r]
        self.assertEqual(bad, [], "\n" + "\n".join(bad))


for name in PHASES:
    setattr(Phases, "test_S1_10_blows_in_" + name, lambda self, name=name: self.phase(name))

class Removal(unittest.TestCase):
    """rm --force stands at a gate where it has read the lease; another process takes the lease; rm goes on."""

    def setUp(self):
        self.host = h = Host(PROGS, "airlock-phases-", BEFORE)
        self.addCleanup(h.remove)
        self.gate, self.opened = h.top + "/gate", []
        os.mkdir(self.gate)
        os.mkdir(h.bin + "/real")
        for fifo in "open", "open.airlock-unpack":
            os.mkfifo(self.gate + "/" + fifo)
        self.addCleanup(lambda: [os.close(fd) for fd in self.opened])

    def go_on(self, name):
        self.opened.append(os.open(self.gate + "/" + name, os.O_RDWR | os.O_NONBLOCK))

    def spawn(self, *words, **env):
        p = subprocess.Popen([self.host.bin + "/airlock", *words], cwd=self.host.ws, env={**self.host.env, **env},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: (p.kill(), p.wait(), p.stdout.close()))
        return p

    def cut_run(self):
        """A run that is killed when its command has done its work: only `airlock recover` brings that back."""
        p = self.spawn("run", "--provider", "native", "--", "sh", "-c", WORK + "touch done; exec sleep 70000")
        leases = self.host.state + "/leases"
        until("the work is done", lambda: os.path.isdir(leases) and any("done" in f for _, _, f in os.walk(leases))
              or p.poll() is not None)
        self.assertIsNone(p.poll())
        p.kill()
        p.communicate()
        self.host.airlock("rm", "nosuch")  # whoever comes by next finds that the owner is dead
        row, = self.host.rows()
        self.assertEqual(row["lease_state"], "recoverable", row)
        return row["run"], os.listdir(leases)[0]

    def test_S1_10_rm_force_takes_nothing_of_a_lease_that_is_being_recovered(self):
        run, lease = self.cut_run()
        real = self.host.bin + "/real/airlock-unpack"
        os.rename(self.host.bin + "/airlock-unpack", real)
        with open(self.host.bin + "/airlock-unpack", "w") as f:
            f.write(WAIT % {"d": self.gate, "n": "airlock-unpack", "real": real})
        os.chmod(self.host.bin + "/airlock-unpack", 0o755)
        rm = self.spawn("rm", "--force", run, LD_PRELOAD=GATE, GATE_PHASE=lease, GATE_DIR=self.gate,
                        ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "verify_asan_link_order=0"))
        until("rm has read the lease", lambda: os.path.exists(self.gate + "/here") or rm.poll() is not None)
        self.assertIsNone(rm.poll())
        recover = self.spawn("recover", run)
        until("the recovery has it", lambda: os.path.exists(self.gate + "/pid.airlock-unpack") or recover.poll() is not None)
        self.assertIsNone(recover.poll())
        self.go_on("open")
        text = rm.communicate(timeout=DEADLINE)[0].decode()
        self.assertEqual(rm.returncode, 125, text)
        self.assertIn("is not removed", text)
        self.assertIn("another process is at the results", text)
        self.assertTrue(os.path.isdir(os.path.join(self.host.state, "leases", lease, "upper")), "the work is gone")
        self.assertEqual([r["run"] for r in self.host.rows()], [run])
        self.go_on("open.airlock-unpack")
        text = recover.communicate(timeout=DEADLINE)[0].decode()
        self.assertEqual(recover.returncode, 0, text)
        now = {n: v[0] for n, v in snapshot(self.host.ws).items()}
        self.assertEqual(now, {**AFTER, "done": b""})
        # Alone it does what it says.
        self.assertEqual(self.host.airlock("rm", "--force", run).returncode, 0)
        self.assertEqual((self.host.rows(), os.listdir(self.host.state + "/leases")), ([], []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
