"""airlock-bridge alone, driven as its parent does, with any other end of the channel: a foreign gateway, a hand-made client."""
import array
import os
import secrets
import socket
import struct
import subprocess

from api_box import KEY

HAS_CHANNEL, HAS_DIR, HAS_AUDIT, HAS_SHARED, HAS_BOARD, HAS_LISTENER = 4, 8, 16, 32, 64, 128
SETUP, POLICY, STOP, PING, CONFINED, READY, POLICY_SET, POLICY_BAD, LOST, DONE, ERROR, PONG = 1, 2, 3, 4, 32, 33, 34, 35, 36, 37, 38, 39
COUNTS = "requests", "forwarded", "refused", "failed", "indeterminate", "bytes_in", "bytes_out", "unanswered", "audit_lost"


def text(v):
    v = v if isinstance(v, bytes) else v.encode()
    return struct.pack("<I", len(v)) + v


class Host:
    def __init__(self, programs, upstream, policy="paperclip", policy_text=b"", queue=None, shared=None, token=None, program="airlock-bridge", audit=None,
                 board=None, listener=None):
        """queue: descriptor of a queue's directory; listener: a listening socket; neither: HTTP/2 on a socket pair, whose other end is
        self.channel. shared: what one helper leaves to the next, a descriptor."""
        http2 = queue is None and listener is None
        self.token, self.nonce = token or secrets.token_urlsafe(24), secrets.token_hex(16)
        self.ctl, theirs = socket.socketpair()
        self.ctl.settimeout(60)
        self.p = subprocess.Popen([programs + "/" + program], stdin=theirs, env={})
        theirs.close()
        self.buf, self.channel = b"", None
        bits = (HAS_CHANNEL if http2 else 0 if queue is None else HAS_DIR) | (0 if listener is None else HAS_LISTENER) | (0 if audit is None else HAS_AUDIT) | (0 if shared is None else HAS_SHARED) | (
            0 if board is None else HAS_BOARD)
        setup = bytes([0 if http2 else 2 if queue is None else 1, bits]) + b"".join(text(v) for v in (
            upstream, self.token, self.nonce if http2 else "", KEY, "run-1", "agent-1", "co-1", "task-1", policy, policy_text, "", "", ""))
        if http2:
            ours, self.channel = socket.socketpair()
            fds = [ours.fileno(), ours.fileno()]
        else:
            fds = [] if queue is None else [queue]
        fds += [audit] if audit is not None else []
        fds += [] if shared is None else [shared]
        fds += [] if board is None else [board]
        fds += [] if listener is None else [listener]
        frame = struct.pack("<IBBBB", len(setup), 1, SETUP, len(fds), 0) + setup
        self.ctl.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        if http2:
            ours.close()
        self.expect(CONFINED)

    def frame(self):
        """(type, payload), or None at the end."""
        while len(self.buf) < 8 or len(self.buf) < 8 + struct.unpack("<I", self.buf[:4])[0]:
            d = self.ctl.recv(65536)
            if not d:
                return None
            self.buf += d
        n = struct.unpack("<I", self.buf[:4])[0]
        kind, payload, self.buf = self.buf[5], self.buf[8:8 + n], self.buf[8 + n:]
        return kind, payload

    def expect(self, kind):
        f = self.frame()
        if not f or f[0] != kind:
            raise AssertionError("expected %d, got %r" % (kind, f))
        return f[1]

    def say(self, kind, payload=b""):
        self.ctl.sendall(struct.pack("<IBBBB", len(payload), 1, kind, 0, 0) + payload)

    def start(self, argv, env):
        """A gateway on the channel; waits until it has spoken."""
        g = subprocess.Popen(argv, stdin=self.channel, stdout=self.channel, env=env)
        self.channel.close()
        self.channel = None
        self.expect(READY)
        return g

    def stop(self):
        self.say(STOP)
        counts = None
        while counts is None:
            f = self.frame()
            if not f:
                raise AssertionError("it ended without its counts")
            if f[0] == DONE:
                counts = dict(zip(COUNTS, struct.unpack("<%dQ" % len(COUNTS), f[1])))
        self.close()
        return counts

    def close(self):
        self.ctl.close()
        if self.channel:
            self.channel.close()
        self.p.wait(60)

    def rss(self):
        with open("/proc/%d/status" % self.p.pid, encoding="ascii") as f:
            return {l.split(":")[0]: int(l.split()[1]) for l in f if l.startswith(("VmRSS", "VmHWM", "RssAnon"))}


def alive(pid):
    return os.path.exists("/proc/%d" % pid)
