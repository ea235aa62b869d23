"""A real sshd of this test's own on loopback, and a guest that lies. The account is the test's; its home and shell are not."""
import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess

import api_box
from run_box import DEADLINE, Host, look, parent, pids, until

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin") or ""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    with open(path + ".pub", encoding="ascii") as f:
        return " ".join(f.read().split()[:2])


class Sshd:
    """Its key, its account's keys and home lie in `top`. The file `shell` takes the login shell's place for every session."""

    address = "127.0.0.1"

    def __init__(self, top):
        self.top, self.port = top, free_port()
        self.home = top + "/home"
        os.makedirs(self.home)
        self.host_key = key(top + "/host")
        for name in "id", "other":
            key(top + "/" + name)
        shutil.copy(top + "/id.pub", top + "/authorized")
        self.known("[%s]:%d %s\n" % (self.address, self.port, self.host_key))
        self.shell('exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        with open(top + "/config", "w", encoding="ascii") as f:
            f.write("Port %d\nListenAddress %s\nHostKey \"%s/host\"\nPidFile none\nAuthorizedKeysFile \"%s/authorized\"\n"
                    "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
                    "SetEnv HOME=\"%s\" PATH=/usr/bin:/bin\nForceCommand \"%s/shell\"\nBanner \"%s/banner\"\n"
                    % (self.port, self.address, top, top, self.home, top, top))
        with open(top + "/banner", "w", encoding="ascii") as f:
            f.write("No trespassing. airlock " * 200 + "\n")
        self.start()

    def prefix(self):
        """Words before sshd: where it runs."""
        return []

    def start(self):
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        with open(self.top + "/log", "ab") as log:
            self.proc = subprocess.Popen(self.prefix() + [SSHD, "-D", "-e", "-f", self.top + "/config"], stderr=log)

        def listens():
            if self.proc.poll() is not None:
                with open(self.top + "/log", encoding="utf-8") as f:
                    raise AssertionError("sshd ended: " + f.read())
            with socket.socket() as s:
                return s.connect_ex((self.address, self.port)) == 0
        until("sshd listens", listens)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(DEADLINE)

    def known(self, text):
        with open(self.top + "/known", "w", encoding="ascii") as f:
            f.write(text)

    def shell(self, script):
        with open(self.top + "/.shell", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n%s\n" % script)
        os.chmod(self.top + "/.shell", 0o755)
        os.rename(self.top + "/.shell", self.top + "/shell")


def parent_is(pid, ancestor):
    for _ in range(20):
        pid = parent(pid)
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


class Remote(Host):
    """A host, a remote directory, and sshd between them."""
    sshd_class = Sshd

    def __init__(self, programs, files):
        super().__init__(programs, "as-", files)
        os.mkdir(self.top + "/sshd")
        self.sshd = self.sshd_class(self.top + "/sshd")
        self.there = self.top + "/there"
        os.mkdir(self.there)
        self.words = ["--ssh", "%s:%d:%s" % (self.sshd.address, self.sshd.port, self.there), "--ssh-key", self.sshd.top + "/id",
                      "--ssh-known-hosts", self.sshd.top + "/known", "--ssh-config", "/dev/null"]

    def run(self, *words, **kw):
        return self.airlock("run", *self.words, *words, **kw)

    def start(self, *words, **kw):
        kw = {"cwd": self.ws, "env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
              "stderr": subprocess.PIPE, **kw}
        return subprocess.Popen([self.bin + "/airlock", "run", *self.words, *words], **kw)

    def with_api(self, case):
        """An API server for that test: it, and the words of a run that may call it."""
        api = api_box.Server()
        case.addCleanup(api.server_close)
        case.addCleanup(api.shutdown)
        with open(self.top + "/key", "w", encoding="ascii") as f:
            f.write(api_box.KEY + "\n")
        os.chmod(self.top + "/key", 0o600)
        return api, ["--api", api.url, "--api-key-file", self.top + "/key"]

    def disconnect(self):
        """Ends shared connections, so that the next session logs in."""
        for d, _, names in os.walk(self.state + "/ssh"):
            for n in names:
                subprocess.run(["ssh", "-F", "/dev/null", "-o", "ControlPath=%s/%s" % (d, n), "-O", "exit", "x"],
                               stderr=subprocess.DEVNULL, check=False)

    def cut(self):
        # All of them are found first: without its monitor a session of an ordinary account's sshd is nobody's child.
        for q in [q for q in pids() if look(q, "cmdline").startswith(b"sshd: ") and parent_is(q, self.sshd.proc.pid)]:
            os.kill(q, signal.SIGKILL)

    def cut_all(self):
        """Of a daemon that has ended already."""
        for q in pids():
            if look(q, "cmdline").startswith(b"sshd: ") and self.sshd.top.encode() in look(q, "environ") + b"".join(
                    look(c, "environ") + look(c, "cmdline") for c in pids() if parent(c) == q):
                os.kill(q, signal.SIGKILL)

    def left_there(self, there=None):
        """What lies in the directory there beside the tree that the next run starts from."""
        there = there or self.there
        left = [n for n in os.listdir(there) if n != ".airlock-runtime"]
        for place, known in ("/.airlock-runtime", ("bases", "runs", ".gitignore")), ("/.airlock-runtime/runs", ()):
            if os.path.isdir(there + place):
                left += [n for n in os.listdir(there + place) if n not in known]
        return left

    def block_bases(self):
        with open(self.there + "/.airlock-runtime/bases", "wb"):
            pass

    def runs_there(self):
        try:
            return sorted(os.listdir(self.there + "/.airlock-runtime/runs"))
        except FileNotFoundError:
            return []

    def remove(self):
        self.airlock("rm", "--all", "--force")
        self.disconnect()
        self.sshd.stop()
        super().remove()


LIAR = r'''
import base64, os, struct, sys
MODE, TAR = %r, base64.b64decode(%r)
if "--version" in sys.argv:
    sys.exit(0)
HELLO, OPEN, OPENED, LAND, LANDED, START, REMOVED, ENDED = 96, 97, 98, 99, 100, 101, 102, 104
M_OPEN, DATA, EOF, STOP, ROOM = 128, 129, 130, 131, 132
EXEC, PACK, SHUTDOWN, READY, STARTED, EXITED, PACKED = 2, 5, 6, 64, 65, 67, 68
chans = {}
def put(t, p=b"", fds=0):
    os.write(1, struct.pack("<IBBBB", len(p), 1, t, fds, 0) + p)
def u32(*v):
    return struct.pack("<%%dI" %% len(v), *v)
def get(n):
    b = b""
    while len(b) < n:
        k = os.read(0, n - len(b))
        if not k:
            sys.exit(0)
        b += k
    return b
def mine(group, k):
    return [c for c, (g, f) in chans.items() if g == group and f & 1][k]
put(HELLO, u32(4, 0) + u32(4) + b"liar")
while True:
    n, _, t, _, _ = struct.unpack("<IBBBB", get(8))
    p = get(n)
    if t == M_OPEN:
        c, g, f = struct.unpack("<IIB", p)
        chans[c] = (g, f)
    elif t == DATA:
        put(ROOM, p[:4] + u32(n - 4))
    elif t == EOF:
        if chans[struct.unpack("<I", p)[0]][0] == land:
            put(LANDED, u32(0) + u32(0) + b"\0" * 32)
    elif t == OPEN:
        put(REMOVED) if p[:4] == u32(1) else put(OPENED, u32(0))
    elif t == LAND:
        land = struct.unpack("<I", p[:4])[0]
        put(DATA, u32(mine(land, 0)) + b"\0")
    elif t == START:
        put(READY, u32(1))
    elif t == EXEC:
        i = struct.unpack("<I", p[:4])[0]
        put(STARTED, u32(i, 1))
        while MODE in ("started", "pong", "ready"):
            put({"started": STARTED, "pong": 69, "ready": READY}[MODE], u32(i, 1))
        if MODE == "channel":
            put(DATA, u32(4711) + b"x")
        elif MODE == "descriptors":
            put(STARTED, u32(i, 1), 1)
        elif MODE == "request":
            put(EXEC, p)
        elif MODE == "open":
            put(M_OPEN, u32(50, 1) + b"\1")
        elif MODE == "garbage":
            os.write(1, b"\xff" * 64)
        elif MODE == "event":
            put(EXITED, u32(i, 9999, 0, 0) + b"\0" * 16)
        for k in () if MODE == "held" else (0, 1):
            put(EOF, u32(mine(i, k)))
        put(EXITED, u32(i, 0, 0, 0) + b"\0" * 16)
    elif t == PACK:
        i = struct.unpack("<I", p)[0]
        put(DATA, u32(mine(i, 0)) + TAR)
        put(EOF, u32(mine(i, 0)))
        put(PACKED, u32(i, 0) + struct.pack("<QQQQ", 1, 0, 0, 0))
    elif t == SHUTDOWN:
        put(ENDED)
        sys.exit(0)
'''


def lie(remote, mode, tar=b""):
    """The remote's own hash program vouches for a guest of the remote's own making."""
    top = remote.sshd.top
    os.makedirs(top + "/liar", exist_ok=True)
    with open(top + "/liar/sha256sum", "w", encoding="ascii") as f:
        f.write('#!/bin/sh\nread -r h <%s/liar/hash\necho "$h  -"\n' % top)
    with open(top + "/liar/guest", "w", encoding="utf-8") as f:
        f.write("#!/usr/bin/python3\n" + LIAR % (mode, base64.b64encode(tar).decode()))
    with open(remote.bin + "/airlock-guest", "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    with open(top + "/liar/hash", "w", encoding="ascii") as f:
        f.write(digest + "\n")
    place = remote.sshd.home + "/.cache/airlock"
    os.makedirs(place, mode=0o700, exist_ok=True)
    for n in "sha256sum", "guest":
        os.chmod(top + "/liar/" + n, 0o755)
    os.replace(shutil.copy(top + "/liar/guest", place + "/.new"), place + "/guest-" + digest)
    remote.sshd.shell('PATH=%s/liar:$PATH; export PATH; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % top)


def member(name, kind=b"0", data=b"", link=b""):
    """One ustar header and its data, exactly as given."""
    h = bytearray(512)
    h[0:len(name)] = name
    h[100:108], h[108:116], h[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    h[124:136], h[136:148] = b"%011o\0" % len(data), b"00000000000\0"
    h[156:157], h[157:157 + len(link)] = kind, link
    h[257:265] = b"ustar\x0000"
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h) + data + b"\0" * (-len(data) % 512)


END = b"\0" * 1024
