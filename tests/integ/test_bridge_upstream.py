#!/usr/bin/env python3
"""What an upstream may do to the bridge: odd answers, closed connections, TLS (S2-03, S2-09, S2-10).

usage: test_bridge_upstream.py AIRLOCK [TEST...]
The upstream is scripted byte for byte. airlock-bridge is shown over TCP and a unix socket, airlock-bridge-tls over TLS.
"""
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from api_box import KEY, Client, request  # noqa: E402
from run_box import DEADLINE  # noqa: E402
import scratch  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])
POLICY = {"version": 1, "name": "t", "routes": ["GET,HEAD,POST /x", {"route": "GET,POST /stream", "limits": {"stream": True}}], "response_headers": ["content-type", "x-a"],
          "request_headers": ["content-type"]}


class Upstream:
    """Answers each request as `script` says: bytes (the connection stays), or a function of the connection and the request."""

    def __init__(self, d, kind, tls=None, backlog=64):
        self.kind, self.tls, self.script, self.lock = kind, tls, b"", threading.Lock()
        self.seen, self.accepted, self.closed = [], 0, threading.Semaphore(0)
        if kind == "unix":
            self.s = socket.socket(socket.AF_UNIX)
            self.s.bind(d + "/up")
            self.url = "unix:" + d + "/up"
        else:
            self.s = socket.create_server(("127.0.0.1", 0))
            self.url = "%s://localhost:%d" % (kind, self.s.getsockname()[1])
        self.s.listen(backlog)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.s.accept()
            except OSError:
                return
            self.accepted += 1
            if self.kind != "unix":
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        try:
            if self.tls:
                c = self.tls.wrap_socket(c, server_side=True)
            f = c.makefile("rb")
            while True:
                head = []
                while not head or head[-1] not in (b"\r\n", b""):
                    head.append(f.readline(65536))
                if head[0] == b"":
                    return
                n = [int(h.split(b":")[1]) for h in head if h.lower().startswith(b"content-length:")]
                script = self.script
                if getattr(script, "early", False):
                    script(c, None)
                    return
                call = (head[0].decode().strip(), [h.decode("latin-1").strip() for h in head[1:-1]], f.read(n[0]) if n else b"")
                with self.lock:
                    self.seen.append(call)
                if callable(script):
                    if not script(c, call):
                        return
                else:
                    c.sendall(script)
        except (OSError, ValueError):
            pass
        finally:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            c.close()
            self.closed.release()

    def take(self):
        with self.lock:
            out, self.seen = self.seen, []
        return out


class Bridge:
    def __init__(self, up, env=None, transport="direct"):
        self.dir = scratch.directory(prefix="airlock-bridge-up.")
        self.port = api_box.free_port()
        with open(self.dir + "/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        with open(self.dir + "/policy", "w", encoding="ascii") as f:
            json.dump(POLICY, f)
        self.p = subprocess.Popen([AIRLOCK, "bridge", "--upstream", up.url, "--credential-file", self.dir + "/key", "--listen",
                                   "127.0.0.1:%d" % self.port, "--policy", self.dir + "/policy", "--transport", transport], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})))
        self.p.stdout.readline()
        self.token = self.p.stdout.readline().decode().strip().partition("=")[2]
        if not self.token:
            raise AssertionError(self.p.stderr.read())

    def ask(self, method="GET", body=None, target="/x"):
        """(status, headers, body); body None: it broke off."""
        c = Client(self.port)
        try:
            c.send(request(method, target, self.token, [("content-type", "text/plain")] if body is not None else (), body))
            try:
                return c.answer(method == "HEAD")
            except (EOFError, OSError):
                return None
        finally:
            c.close()

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        out = self.p.communicate(timeout=DEADLINE)
        return self.p.returncode, out


OK = b"HTTP/1.1 200 OK\r\n"
FINE = OK + b"content-length: 2\r\n\r\nok"


class Plain(unittest.TestCase):
    KIND = "http"

    @classmethod
    def setUpClass(cls):
        cls.dir = scratch.directory(prefix="airlock-up.")
        cls.up = Upstream(cls.dir, cls.KIND)
        cls.b = Bridge(cls.up)

    @classmethod
    def tearDownClass(cls):
        rc, out = cls.b.stop()
        cls.up.s.close()
        assert rc == 0, out

    def setUp(self):
        self.up.take()

    def test_F09_answers_of_every_framing(self):
        for raw, want in ((FINE, b"ok"), (OK + b"transfer-encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nx: y\r\n\r\n", b"ok"),
                          (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nlink: y\r\n\r\n" + FINE, b"ok"),
                          (OK + b"content-length: 0\r\n\r\n", b"")):
            self.up.script = raw
            for _ in range(2):
                self.assertEqual(self.b.ask()[::2], (200, want), raw)
            # Byte for byte.
            self.up.script = lambda c, call, r=raw: [c.sendall(r[i:i + 1]) for i in range(len(r))]
            self.assertEqual(self.b.ask()[::2], (200, want), raw)
        self.up.script = lambda c, call: c.sendall(OK + b"\r\nto the end") or False
        self.assertEqual(self.b.ask()[::2], (200, b"to the end"))
        self.up.script = OK + b"content-length: 5\r\n\r\n"
        self.assertEqual(self.b.ask("HEAD")[::2], (200, b""))
        for status in 204, 304:
            self.up.script = b"HTTP/1.1 %d X\r\n\r\n" % status
            self.assertEqual(self.b.ask()[0], status)

    def test_F06_what_is_no_answer_is_502_or_409(self):
        for raw in (b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\n\nok", OK + b"a: b\r\n c\r\n\r\n", OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
                    OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok", OK + b"content-length : 2\r\n\r\nok",
                    b"HTTP/1.1 101 X\r\n\r\nraw", b"HTTP/1.1 999 X\r\n\r\n", OK + b"x: " + b"y" * 70000 + b"\r\n\r\n", b"\x16\x03\x01\x00\x00",
                    b"", b"HTTP/1.1 2"):
            self.up.script = lambda c, call, r=raw: c.sendall(r) or False
            status, headers, _ = self.b.ask()
            self.assertEqual(status, 502, raw)
            self.assertIn("x-airlock-bridge", headers)
            status, headers, _ = self.b.ask("POST", b"{}")
            self.assertEqual((status, headers.get("x-paperclip-bridge-outcome")), (409, "indeterminate"), raw)
            self.assertEqual([c[0].split()[0] for c in self.up.take()], ["GET", "POST"], raw)

    def test_an_answer_cut_short_is_not_taken_for_whole(self):
        for raw in OK + b"content-length: 9\r\n\r\nok", OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n", \
                OK + b"transfer-encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n":
            self.up.script = lambda c, call, r=raw: c.sendall(r) or False
            got = self.b.ask()
            self.assertTrue(got is None or got[0] == 502, (raw, got))

    def test_bytes_behind_an_answer_are_no_answer_to_the_next_request(self):
        """A split answer must not reach whoever asks next."""
        for extra in b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"x":
            self.up.script = FINE + extra
            for _ in range(3):
                self.assertEqual(self.b.ask()[::2], (200, b"ok"))
            # Later, while nobody asks.
            for _ in range(20):
                go, sent = threading.Event(), threading.Event()

                def later(c, call):
                    c.sendall(FINE)
                    go.wait(DEADLINE)
                    c.sendall(extra)
                    sent.set()
                    return True
                self.up.script = later
                self.assertEqual(self.b.ask()[::2], (200, b"ok"))
                go.set()
                self.assertTrue(sent.wait(DEADLINE))
                self.up.script = FINE
                self.assertEqual(self.b.ask()[::2], (200, b"ok"))

    def test_C10_connections_are_used_again_and_a_closed_one_costs_nobody(self):
        self.up.script = FINE
        self.b.ask()
        before = self.up.accepted
        for _ in range(20):
            self.assertEqual(self.b.ask("POST", b"abc")[0], 200)
        self.assertEqual(self.up.accepted, before)
        self.up.take()
        # The upstream closes after each answer: the next request, safe or not, goes over a new one, once.
        self.up.script = lambda c, call: c.sendall(FINE) or False
        while self.up.closed.acquire(blocking=False):
            pass
        for _ in range(20):
            self.assertEqual(self.b.ask("POST", b"abc")[0], 200)
            self.assertEqual(len(self.up.take()), 1)
            self.assertTrue(self.up.closed.acquire(timeout=DEADLINE))
        # It closes while the request is on its way: sent once more if that is harmless.
        self.up.script = FINE
        self.assertEqual(self.b.ask()[0], 200)
        self.up.take()

        def once(c, call):
            self.up.script = FINE
            return False
        self.up.script = once
        self.assertEqual(self.b.ask()[0], 200)
        self.assertEqual(len(self.up.take()), 2)
        self.up.script = once
        self.assertEqual(self.b.ask("POST", b"abc")[0], 409)
        self.assertEqual(len(self.up.take()), 1)

    def test_an_answer_before_the_end_of_the_request(self):
        def early(c, call):
            c.sendall(b"HTTP/1.1 413 X\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
            # Until the other end has hung up: a reset would race with the answer.
            while c.recv(65536):
                pass
        early.early = True
        self.up.script = early
        self.assertEqual(self.b.ask("POST", b"z" * (4 << 20))[::2], (413, b"big"))
        self.up.script = FINE
        self.assertEqual(self.b.ask("POST", b"z" * (4 << 20))[0], 200)
        self.assertEqual(len(self.up.take()[0][2]), 4 << 20)

    def test_the_request_is_what_was_judged(self):
        self.up.script = FINE
        self.b.ask("POST", b"abc", "/x?a=b")
        (line, headers, body), = self.up.take()
        self.assertEqual((line, body), ("POST /x?a=b HTTP/1.1", b"abc"))
        host = "localhost" if self.KIND == "unix" else self.up.url.split("//")[1]
        self.assertEqual(sorted(headers), sorted(["host: " + host, "authorization: Bearer " + KEY, "content-type: text/plain", "content-length: 3"]))
        self.b.ask("POST", b"")
        self.assertIn("content-length: 0", self.up.take()[0][1])

    def test_many_at_once(self):
        barrier = threading.Barrier(32)

        def together(c, call):
            barrier.wait(DEADLINE)
            c.sendall(FINE)
            return True
        self.up.script = together
        got = []
        threads = [threading.Thread(target=lambda: got.append(self.b.ask()[0])) for _ in range(32)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(DEADLINE)
        self.assertEqual(got, [200] * 32)


class Unix(Plain):
    KIND = "unix"

    def test_a_full_queue_of_connections_is_waited_for(self):
        d = scratch.directory(prefix="airlock-up.")
        up = Upstream(d, "unix", backlog=0)
        up.script = FINE
        b = Bridge(up)
        got = []
        threads = [threading.Thread(target=lambda: got.append(b.ask()[0])) for _ in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(DEADLINE)
        self.assertEqual(got, [200] * 24)
        self.assertEqual(b.stop()[0], 0)


def reset(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(c.detach())
    return False


class Broken(unittest.TestCase):
    """C11, F06: an answer that breaks off after its head is what it is, as long as nobody has heard of it; else the break is seen."""
    WAYS = {"length": OK + b"content-length: 999999\r\n\r\n", "chunked": OK + b"transfer-encoding: chunked\r\n\r\nfffff\r\n",
            "close": b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n", "1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 999999\r\n\r\n",
            "kept": b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 999999\r\n\r\n"}

    def check(self, transport):
        up = Upstream(scratch.directory(prefix="airlock-up."), "http")
        self.addCleanup(up.s.close)
        b = Bridge(up, transport=transport)
        heard = threading.Event()

        def breaks(raw, size, wait):
            def script(c, call):
                c.sendall(raw + b"z" * size)
                if wait:
                    heard.wait(DEADLINE)
                return reset(c)
            return script

        for name, raw in self.WAYS.items():
            for size in 0, 1, 9000:
                up.script = breaks(raw, size, False)
                status, headers, body = b.ask()
                self.assertEqual((status, headers.get("x-airlock-bridge")), (502, "upstream.lost"), (name, size, body))
                status, headers, body = b.ask("POST", b"{}")
                self.assertEqual((status, headers.get("x-airlock-bridge"), headers.get("x-paperclip-bridge-outcome")),
                                 (409, "upstream.lost", "indeterminate"), (name, size, body))
                self.assertIs(json.loads(body)["retryable"], False)
            # More than is kept: where it has passed in part, whoever reads it sees that it is not whole, whatever it speaks.
            for minor in b"1", b"0":
                for method in "GET", "POST":
                    heard.clear()
                    up.script = breaks(raw, 100000, transport != "queue")
                    self.assertEqual(self.passed(b, method, minor, heard), 409 if transport == "queue" and method == "POST" else
                                     502 if transport == "queue" else None, (name, method, minor))
            self.assertEqual(len(up.take()), 10, name)
        # What streams passes at once, and breaks off where it breaks off.
        if transport != "queue":
            heard.clear()
            up.script = breaks(self.WAYS["chunked"], 5, True)
            self.assertIsNone(self.passed(b, "POST", b"1", heard, "/stream"))
        self.assertEqual(b.stop()[0], 0)

    def passed(self, b, method, minor, heard, target="/x"):
        """The status of an answer that is whole; None: the head came, and then it broke off."""
        c = Client(b.port)
        try:
            c.send(request(method, target, b.token, [("content-type", "text/plain")], b"{}" if method == "POST" else None)
                   .replace(b"HTTP/1.1", b"HTTP/1." + minor))
            head = c.line()
            while b"zz" not in c.buf and b'"code"' not in c.buf:
                c.fill()
            heard.set()
            c.buf = head + b"\r\n" + c.buf
            if head.split()[1] != b"200":
                return c.answer()[0]
            # An end that could be taken for the end of an answer is none.
            if b"chunked" not in c.buf.lower():
                with self.assertRaises(ConnectionResetError):
                    while True:
                        c.fill()
            else:
                with self.assertRaises((EOFError, ConnectionResetError)):
                    c.answer()
            return None
        finally:
            c.close()

    def test_C11_F06_direct(self):
        self.check("direct")

    def test_C11_F06_http2(self):
        self.check("http2")

    def test_C11_F06_queue(self):
        self.check("queue")


def certificate(d, name, alt, days=2):
    at = "%s/%s" % (d, name)
    with open(at + ".ext", "w", encoding="ascii") as f:
        f.write("subjectAltName=%s\n" % alt)
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name, "-keyout",
                    at + ".key", "-out", at + ".csr"], check=True, capture_output=True)
    subprocess.run(["openssl", "x509", "-req", "-in", at + ".csr", "-signkey", at + ".key", "-days", str(days), "-extfile", at + ".ext", "-out",
                    at + ".pem"], check=True, capture_output=True)
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain("%s/%s.pem" % (d, name), "%s/%s.key" % (d, name))
    return c, "%s/%s.pem" % (d, name)


def signed(d, alt):
    """A server that an intermediate vouches for, which a root vouches for; two roots of that name. (context, both roots)"""
    def run(*argv):
        subprocess.run(["openssl", *argv], check=True, capture_output=True, cwd=d)

    def key(name):
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name.rstrip("2"), "-keyout", name + ".key",
            "-out", name + ".csr")
    for name, text in ("ca", "basicConstraints=critical,CA:true\n"), ("leaf", "subjectAltName=%s\n" % alt):
        with open("%s/%s.ext" % (d, name), "w", encoding="ascii") as f:
            f.write(text)
    for root in "root", "root2":
        key(root)
        run("x509", "-req", "-in", root + ".csr", "-signkey", root + ".key", "-days", "2", "-extfile", "ca.ext", "-out", root + ".pem")
    for name, by, ext in ("mid", "root", "ca"), ("leaf", "mid", "leaf"):
        key(name)
        run("x509", "-req", "-in", name + ".csr", "-CA", by + ".pem", "-CAkey", by + ".key", "-CAcreateserial", "-days", "2", "-extfile", ext + ".ext",
            "-out", name + ".pem")

    def read(name):
        with open("%s/%s.pem" % (d, name), encoding="ascii") as f:
            return f.read()
    with open(d + "/chain.pem", "w", encoding="ascii") as f:
        f.write(read("leaf") + read("mid"))
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(d + "/chain.pem", d + "/leaf.key")
    return c, read("root2") + read("root"), read("root2")


class Over(Plain):
    """All of that through TLS."""
    KIND = "https"

    @classmethod
    def setUpClass(cls):
        cls.dir = scratch.directory(prefix="airlock-up.")
        tls, pem = certificate(cls.dir, "one", "DNS:localhost")
        cls.up = Upstream(cls.dir, cls.KIND, tls)
        cls.b = Bridge(cls.up, {"SSL_CERT_FILE": pem})

    def test_F09_answers_of_every_framing(self):
        def answer(how):
            def script(c, call):
                c.sendall(OK + b"\r\nto the end")
                how(c)
                return False
            self.up.script = script
            return self.b.ask()
        self.up.script = OK + b"transfer-encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n0\r\n\r\n"
        self.assertEqual(self.b.ask()[::2], (200, b"x" * 0x4000))
        # An answer that ends with the connection ends with TLS's own mark, or was cut.
        self.assertEqual(answer(lambda c: c.unwrap())[::2], (200, b"to the end"))
        got = answer(lambda c: c.shutdown(socket.SHUT_RDWR))
        self.assertTrue(got is None or got[0] == 502, got)


class Tls(unittest.TestCase):
    def setUp(self):
        self.dir = scratch.directory(prefix="airlock-up.")

    def bridge(self, alt, ca=None, days=2):
        tls, pem = certificate(self.dir, "one", alt, days)
        self.up = Upstream(self.dir, "https", tls)
        self.addCleanup(self.up.s.close)
        self.up.script = FINE
        b = Bridge(self.up, {"SSL_CERT_FILE": ca or pem})
        self.addCleanup(lambda: self.assertEqual(b.stop()[0], 0))
        return b

    def test_F10_a_verified_upstream(self):
        b = self.bridge("DNS:localhost")
        for _ in range(3):
            self.assertEqual(b.ask("POST", b"abc")[::2], (200, b"ok"))
        self.assertEqual([c[2] for c in self.up.take()], [b"abc"] * 3)
        self.assertEqual(self.up.accepted, 1)
        with open("/proc/%d/task/%d/children" % (b.p.pid, b.p.pid), encoding="ascii") as f:
            names = [os.path.basename(os.readlink("/proc/%s/exe" % p)) for p in f.read().split()]
        self.assertIn("airlock-bridge-tls", names)

    def test_F10_a_chain_to_one_of_many_authorities(self):
        tls, roots, other = signed(self.dir, "DNS:localhost,IP:127.0.0.1")
        up = Upstream(self.dir, "https", tls)
        self.addCleanup(up.s.close)
        up.script, name = FINE, up.url
        for bundle, url, status in ((roots, name, 200), (roots, name.replace("localhost", "127.0.0.1"), 200), (other, name, 503), ("", name, None),
                                    (roots.replace("MII", "MIJ", 1), name, 200)):
            with open(self.dir + "/bundle", "w", encoding="ascii") as f:
                f.write("# before\n" + bundle + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            up.url = url
            if status is None:
                with self.assertRaisesRegex(AssertionError, "no certificate authorities"):
                    Bridge(up, {"SSL_CERT_FILE": self.dir + "/bundle"})
                continue
            b = Bridge(up, {"SSL_CERT_FILE": self.dir + "/bundle"})
            for _ in range(2):
                self.assertEqual(b.ask("POST", b"abc")[0], status)
            self.assertEqual(b.stop()[0], 0)

    def test_an_upstream_that_speaks_clear_text_gets_nothing(self):
        _, pem = certificate(self.dir, "one", "DNS:localhost")
        up = Upstream(self.dir, "http")
        self.addCleanup(up.s.close)
        up.script, up.url = FINE, up.url.replace("http:", "https:")
        b = Bridge(up, {"SSL_CERT_FILE": pem})
        self.assertEqual(b.ask("POST", b"abc")[0], 503)
        self.assertEqual([c for c in up.take() if b"abc" in c[2]], [])
        self.assertEqual(b.stop()[0], 0)

    def test_an_upstream_of_another_name_authority_or_time_gets_nothing(self):
        b = self.bridge("DNS:elsewhere.example")
        self.assertEqual(b.ask("POST", b"abc")[0], 503)
        # Its own name, and its own authority; but its time is over.
        b = self.bridge("DNS:localhost", days=-1)
        self.assertEqual(b.ask("POST", b"abc")[0], 503)
        _, other = certificate(self.dir, "two", "DNS:localhost")
        b = self.bridge("DNS:localhost", other)
        self.assertEqual(b.ask("POST", b"abc")[0], 503)
        self.assertEqual(self.up.take(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
