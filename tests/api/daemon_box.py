"""A daemon of its own in a temporary state directory, and clients of every kind of actor.

Deadlines are generous (60 s) and nothing sleeps for a fixed time: the suite runs on slow, busy machines.
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../integ"))
import scratch  # noqa: E402

DEADLINE = 60
NOBODY = "00000000-0000-4000-8000-000000000000"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


class Daemon:
    """airlockd with its command line, in a state directory that is removed at the end."""

    def __init__(self, programs, *options, mode="authenticated", start=True, uid=None):
        self.options, self.mode, self.uid = list(options), mode, uid
        # Not below a long TMPDIR: a unix socket's path has 107 bytes.
        self.dir = scratch.directory(prefix="airlockd-", dir="/tmp")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("LISTEN_", "NOTIFY_", "CREDENTIALS_"))}
        self.programs = self.copy(programs) if uid else programs
        self.env["XDG_STATE_HOME"] = self.dir
        self.process = self.reader = None
        self.log = []
        if start:
            self.start()

    def copy(self, programs):
        """For an ordinary user, who cannot walk to the build tree."""
        os.makedirs(self.dir + "/bin")
        for name in os.listdir(programs):
            if os.path.isfile(f"{programs}/{name}"):
                shutil.copy(f"{programs}/{name}", self.dir + "/bin")
        for path in (self.dir, self.dir + "/bin"):
            os.chown(path, self.uid, self.uid)
        self.env["HOME"] = self.dir
        return self.dir + "/bin"

    def become(self):
        if self.uid:
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)

    def job(self, request):
        """Starts a job by hand; its answer is on its standard output."""
        p = subprocess.Popen([self.programs + "/airlockd", "--job"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, preexec_fn=self.become)
        p.stdin.write(json.dumps(request))
        p.stdin.close()
        return p

    def cli(self, *words, ok=True):
        r = subprocess.run([f"{self.programs}/airlock", *words], env=self.env, capture_output=True, text=True,
                           timeout=DEADLINE, check=False, preexec_fn=self.become)
        if ok and r.returncode:
            raise AssertionError(f"airlock {' '.join(words)}: {r.stderr}")
        return r.stdout.strip() if ok else r

    def start(self, listen="127.0.0.1:0"):
        words = [f"{self.programs}/airlockd", "--listen", listen, "--mode", self.mode, *self.options]
        self.process = subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, text=True, preexec_fn=self.become)
        self.port = None
        for line in self.process.stderr:
            self.log.append(line)
            m = re.search(r"listening at (?:https?://[^ ]*:(\d+)|unix:(\S+)|the socket of systemd)", line)
            if m:
                self.port = int(m.group(1)) if m.group(1) else None
                break
        else:
            raise AssertionError("airlockd did not start: " + "".join(self.log[-5:]))
        stream = self.process.stderr
        self.reader = threading.Thread(target=lambda: self.log.extend(stream), daemon=True)
        self.reader.start()

    def stop(self, signo=signal.SIGTERM):
        if self.process:
            self.process.send_signal(signo)
            rc = self.process.wait(timeout=DEADLINE)
            if self.reader:
                self.reader.join(timeout=DEADLINE)
            self.process.stderr.close()
            self.process = None
            return rc
        return None

    def close(self):
        if self.process:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def raw(self, data, half_close=False):
        """Bytes as they are; everything that comes back until the end of the stream."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            got = b""
            while True:
                piece = s.recv(65536)
                if not piece:
                    return got
                got += piece
        except ConnectionError:
            return got
        finally:
            s.close()

    def ask(self, method, path, body=None, token=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        h = dict(headers or {})
        if token:
            h["Authorization"] = "Bearer " + token
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None:
            h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body=body, headers=h)
            r = c.getresponse()
            return Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        finally:
            c.close()


class Watcher:
    """A client of the event stream."""

    def __init__(self, box, token, query="", headers=None):
        self.c = http.client.HTTPConnection("127.0.0.1", box.port, timeout=DEADLINE)
        self.c.request("GET", "/api/events" + query, headers={"Authorization": "Bearer " + token, **(headers or {})})
        self.r = self.c.getresponse()
        self.status = self.r.status
        self.last = None
        if self.status == 200:
            self.block()  # the first one says that from here on nothing is missed

    def block(self):
        """The lines up to the next empty one; None at the end."""
        lines = []
        while True:
            line = self.r.readline().decode()
            if not line:
                return None
            if line == "\n":
                return lines
            lines.append(line.rstrip("\n"))
            if line.startswith("id: "):
                self.last = int(line[4:])

    def next(self):
        """The next event's data."""
        while True:
            lines = self.block()
            if lines is None:
                return None
            data = [x[6:] for x in lines if x.startswith("data: ")]
            if data:
                return json.loads(data[0])

    def close(self):
        self.c.close()


class Fixture:
    """Companies C1 and C2; actors N A J M V U I of api.md 1.3 and 12."""

    def __init__(self, d):
        self.d = d
        cli = d.cli
        self.c1, self.c2 = cli("company", "add", "C1"), cli("company", "add", "C2")
        self.users = {
            "M": cli("user", "add", "member", "--company", "C1"),
            "V": cli("user", "add", "viewer", "--company", "C1", "--role", "viewer"),
            "U": cli("user", "add", "loner"),
            "I": cli("user", "add", "admin", "--admin"),
        }
        self.agent = cli("agent", "add", "one", "--company", "C1", "--user", "member")
        self.other = cli("agent", "add", "two", "--company", "C1", "--user", "member")
        self.foreign = cli("agent", "add", "far", "--company", "C2")
        self.project = cli("project", "add", "P", "--company", "C1")
        self.foreign_project = cli("project", "add", "P", "--company", "C2")
        self.token = {"N": None}
        for k, name in (("M", "member"), ("V", "viewer"), ("U", "loner"), ("I", "admin")):
            self.token[k] = cli("token", "create", "--user", name)
        self.token["A"] = cli("token", "create", "--agent", self.agent)
        self.token["J"] = cli("token", "run", "--agent", self.agent, "--run", "run-1")

    def ask(self, who, method, path, body=None, headers=None):
        return self.d.ask(method, path, body, self.token[who], headers)

    def patch(self, env, body, who="I"):
        """Of an administrator who is in no company: with several, the request names one."""
        return self.ask(who, "PATCH", f"/api/environments/{env}?companyId={self.c1}", body)

    def make(self, name, driver, config=None, who="I", **more):
        r = self.ask(who, "POST", f"/api/companies/{self.c1}/environments",
                     {"name": name, "driver": driver, "config": config or {}, **more})
        assert r.status == 201, r
        return r.json


SSH = {"host": "h", "username": "u", "remoteWorkspacePath": "/w"}
NATIVE = {"provider": "native"}


def wait_for(what, ask):
    """The first true answer of ask; a deadline, no fixed waits."""
    end = time.monotonic() + DEADLINE
    while True:
        got = ask()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE} s")
        time.sleep(0.02)


def programs():
    return os.path.realpath(sys.argv[1])
