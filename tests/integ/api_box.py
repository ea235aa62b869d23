"""An API server for tests of the bridge: checks the bearer and the run header, records what it got, and misbehaves on demand."""
import json
import os
import socket
import socketserver
import threading
import time

KEY = "agent-key-5f1c9be2d07a43c8"  # the real credential: it must never be seen inside


class Handler(socketserver.StreamRequestHandler):
    """One connection, read by hand: what arrives is recorded byte for byte."""

    def handle(self):
        try:
            while self.one():
                pass
        except (OSError, ValueError):
            pass

    def one(self):
        line = self.rfile.readline(65536)
        if not line:
            return False
        headers = []
        while True:
            h = self.rfile.readline(65536)
            if h in (b"\r\n", b""):
                break
            name, _, value = h.partition(b":")
            headers.append((name.lower().decode("latin-1"), value.strip().decode("latin-1")))
        length = [int(v) for n, v in headers if n == "content-length"]
        body = self.rfile.read(length[0]) if length else b""
        method, target, _ = line.decode("latin-1").split(" ", 2)
        call = {"method": method, "target": target, "headers": headers, "body": body}
        with self.server.lock:
            self.server.calls.append(call)
        return self.server.answer(self, call)

    def send(self, status, body=b"", headers=(), close=False):
        head = ["HTTP/1.1 %d X" % status] + ["%s: %s" % h for h in headers]
        head += ["content-length: %d" % len(body)] + (["connection: close"] if close else [])
        self.wfile.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        return not close


def echo(handler, call):
    """What a well-behaved API does: 401 and 422 as the real one, else a JSON of what came."""
    get = lambda name: [v for n, v in call["headers"] if n == name]
    if get("authorization") != ["Bearer " + KEY]:
        return handler.send(401, b'{"error":"who are you"}')
    if len(get("x-paperclip-run-id")) != 1:
        return handler.send(422, b'{"error":"run id"}')
    out = json.dumps({"method": call["method"], "target": call["target"], "headers": [h for h in call["headers"] if h[0] != "authorization"],
                      "length": len(call["body"])}).encode()
    return handler.send(200, out, [("content-type", "application/json"), ("set-cookie", "a=b"), ("etag", '"e"'),
                                   ("location", "http://elsewhere/"), ("x-internal", "1")])


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls, self.lock, self.answer = [], threading.Lock(), echo
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def take(self):
        with self.lock:
            calls, self.calls = self.calls, []
        return calls


class Client:
    """HTTP/1.1 by hand, so that malformed bytes can be sent."""

    def __init__(self, port, timeout=60):
        self.s = socket.create_connection(("127.0.0.1", port), timeout)
        self.buf = b""

    def close(self):
        self.s.close()

    def send(self, data):
        self.s.sendall(data)

    def fill(self):
        d = self.s.recv(65536)
        if not d:
            raise EOFError("closed after %r" % self.buf[:200])
        self.buf += d

    def line(self):
        while b"\r\n" not in self.buf:
            self.fill()
        out, self.buf = self.buf.split(b"\r\n", 1)
        return out

    def take(self, n):
        while len(self.buf) < n:
            self.fill()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def answer(self, head=False):
        status = int(self.line().split()[1])
        headers = {}
        while True:
            h = self.line()
            if not h:
                break
            n, _, v = h.partition(b":")
            headers.setdefault(n.decode().lower(), v.strip().decode("latin-1"))
        if status == 100:
            return self.answer(head)
        body = b""
        if head or status in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while True:
                n = int(self.line(), 16)
                body += self.take(n)
                self.line()
                if n == 0:
                    break
        elif "content-length" in headers:
            body = self.take(int(headers["content-length"]))
        else:
            try:
                while True:
                    self.fill()
            except (EOFError, OSError):
                body, self.buf = self.buf, b""
        return status, headers, body


def request(method, target, token=None, headers=(), body=None):
    """Bytes of one request. token None: no authorization."""
    b = lambda s: s if isinstance(s, bytes) else s.encode("latin-1")
    out = b(method) + b" " + b(target) + b" HTTP/1.1\r\nhost: x\r\n"
    if token is not None:
        out += b"authorization: Bearer " + b(token) + b"\r\n"
    for n, v in headers:
        out += b(n) + b": " + b(v) + b"\r\n"
    if body is not None:
        out += b"content-length: %d\r\n" % len(body)
    return out + b"\r\n" + (body or b"")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_listening(port, alive, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive():
            raise AssertionError("it ended instead of listening")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            os.sched_yield()
            threading.Event().wait(0.02)
    raise AssertionError("nobody listens on %d" % port)
