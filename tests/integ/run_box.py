"""What tests that look at airlock from outside share: processes, waiting, a host with a workspace and a state directory."""
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import unittest

import scratch

DEADLINE = 60
USER = 54321  # of nobody
PROGRAMS = "airlock", "airlock-launch", "airlock-unpack", "airlock-guest", "airlock-bridge", "airlock-gateway", "airlock-proxy", \
    "airlock-remote"


def side_by_side(processes):
    """unittest.main() in so many processes: for tests that wait for others most of the time, and have directories of their own. With words, in one."""
    if len(sys.argv) > 1:
        unittest.main(verbosity=1)

    def flat(suite):
        for t in suite:
            yield from flat(t) if isinstance(t, unittest.TestSuite) else [t]
    tests = list(flat(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    started = []
    for i in range(processes):
        pid = os.fork()
        if pid == 0:
            done = unittest.TextTestRunner(verbosity=1).run(unittest.TestSuite(tests[i::processes]))
            sys.stdout.flush()
            scratch.remove_all()
            os._exit(0 if done.wasSuccessful() and done.testsRun else 1)
        started.append(pid)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in started))


def confined(airlock):
    """The coverage build's helpers are not: they could not write their counts."""
    return b"WITHOUT CONFINEMENT" not in subprocess.run([airlock, "version"], stdout=subprocess.PIPE, check=True).stdout


def until(what, cond, seconds=DEADLINE):
    end = time.monotonic() + seconds
    while True:
        v = cond()
        if v:
            return v
        if time.monotonic() > end:
            raise AssertionError("waited %d s for: %s" % (seconds, what() if callable(what) else what))
        threading.Event().wait(0.01)


def look(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as f:
            return f.read()
    except OSError:
        return b""


def link(pid, name):
    try:
        return os.readlink("/proc/%d/%s" % (pid, name))
    except OSError:
        return ""


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def alive(pid):
    s = look(pid, "stat")
    return s and s.rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")


def parent(pid):
    s = look(pid, "stat")
    return int(s.rsplit(b")", 1)[1].split()[1]) if s else 0


def snapshot(top):
    """Every file and link below top but .git: contents or target, and for files mode, inode and time."""
    found = {}
    for here, dirs, files in os.walk(top):
        if here == top and ".git" in dirs:
            dirs.remove(".git")
        for n in files + [d for d in dirs if os.path.islink(os.path.join(here, d))]:
            p = os.path.join(here, n)
            st = os.lstat(p)
            if stat.S_ISLNK(st.st_mode):
                found[os.path.relpath(p, top)] = (os.readlink(p), None)
            elif stat.S_ISREG(st.st_mode):
                with open(p, "rb") as f:
                    found[os.path.relpath(p, top)] = (f.read(), (st.st_mode, st.st_ino, st.st_mtime_ns))
            else:
                found[os.path.relpath(p, top)] = (None, st.st_mode)
    return found


class Host:
    """A directory with a workspace, a home, a state directory and programs of its own."""

    def __init__(self, programs, prefix, files):
        self.programs = programs
        self.top = scratch.directory(prefix=prefix)
        os.chmod(self.top, 0o755)
        self.ws, self.bin = self.top + "/ws", self.top + "/bin"
        for d in self.ws, self.bin, self.top + "/home":
            os.mkdir(d)
        for name, data in files.items():
            self.write(name, data)
        for p in PROGRAMS:
            shutil.copy(os.path.join(programs, p), self.bin)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "LD_", "GIT_"))}
        self.env.update(XDG_STATE_HOME=self.top + "/state", HOME=self.top + "/home")
        self.state = self.top + "/state/airlock"

    def write(self, name, data):
        path = os.path.join(self.ws, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def read(self, name):
        with open(os.path.join(self.ws, name), "rb") as f:
            return f.read()

    def airlock(self, *words, **kw):
        kw = {"cwd": self.ws, "env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
              "stderr": subprocess.PIPE, "timeout": DEADLINE, **kw}
        return subprocess.run([self.bin + "/airlock", *words], check=False, **kw)

    def rows(self):
        r = self.airlock("ps", "-a", "--json")
        if r.returncode:
            raise AssertionError(r.stderr)
        return json.loads(r.stdout)

    def left(self, more=lambda pid: False):
        """Living processes whose program, arguments or variables are below the directory, or that `more` knows."""
        top = self.top.encode()
        return [(p, look(p, "cmdline")) for p in pids() if p != os.getpid() and alive(p) and (
            link(p, "exe").startswith(self.top) or top in look(p, "cmdline") or top in look(p, "environ") or more(p))]

    def remove(self):
        self.airlock("rm", "--all", "--force")
        scratch.remove(self.top)


class UserHost(Host):
    """The same of root's ("root") or of an ordinary user's without a name ("user")."""

    def __init__(self, programs, prefix, files, who):
        super().__init__(programs, prefix, files)
        self.uid = USER if who == "user" and os.geteuid() == 0 else 0
        if self.uid:
            self.give(self.top)

    def give(self, top):
        for here, _, names in os.walk(top):
            for n in [here] + [os.path.join(here, x) for x in names]:
                os.lchown(n, self.uid, self.uid)

    def become(self):
        if self.uid:
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)

    def airlock(self, *words, **kw):
        return super().airlock(*words, preexec_fn=self.become, **kw)

    def start(self, *words):
        return subprocess.Popen([self.bin + "/airlock", *words], cwd=self.ws, env=self.env, preexec_fn=self.become,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
