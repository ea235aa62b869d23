#!/usr/bin/env python3
"""A hostile sandbox speaks to airlock-bridge by hand: no gateway, frames as no library makes them (B-01, B-04, S2-01..S2-10).

usage: test_bridge_h2.py DIRECTORY_OF_PROGRAMS [TEST...]
Each test's name carries the cases of the bridge that it shows. What must hold: nothing reaches the API, the helper neither
dies nor grows, and where the protocol allows it the channel goes on.
"""
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from bridge_box import LOST, READY, Host  # noqa: E402
from run_box import until  # noqa: E402

PROGRAMS = os.path.realpath(sys.argv[1])
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONT = range(10)
NO_TABLE = struct.pack(">HI", 1, 0)  # the answers refer to no earlier ones: they can be read without a table
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
BODY_MAX = 10485760 + 65536


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def number(n, bits):
    top = (1 << bits) - 1
    if n < top:
        return bytes([n])
    out, n = bytes([top]), n - top
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(name, value):
    """HPACK: a literal that is not indexed, no Huffman code."""
    b = lambda s: s if isinstance(s, bytes) else s.encode("latin-1")
    name, value = b(name), b(value)
    return b"\x00" + number(len(name), 7) + name + number(len(value), 7) + value


class Channel:
    """A sandbox's end."""

    def __init__(self, api, ready=True, **kw):
        self.host = Host(PROGRAMS, api.url, **kw)
        self.s, self.buf, self.next = self.host.channel, b"", 1
        self.s.settimeout(60)
        if ready:
            self.say_ready()
            self.send(PREFACE + frame(SETTINGS, 0, 0, NO_TABLE))
            self.host.expect(READY)

    def say_ready(self, **kw):
        self.send(json.dumps({"version": 2, "type": "ready", "nonce": self.host.nonce, **kw}).encode() + b"\n")

    def send(self, data):
        self.s.sendall(data)

    def open(self, method=b"GET", path=b"/api/agents/me", token=None, extra=(), flags=END_STREAM, pseudo=()):
        sid, self.next = self.next, self.next + 2
        block = field(":method", method) + field(":scheme", "http") + field(":authority", "bridge.internal") + field(":path", path)
        block += b"".join(field(n, v) for n, v in pseudo)
        block += field("authorization", "Bearer " + (self.host.token if token is None else token))
        block += b"".join(field(n, v) for n, v in extra)
        self.send(frame(HEADERS, flags | END_HEADERS, sid, block))
        return sid

    def read(self):
        """(type, flags, stream, payload); None at the end."""
        try:
            while len(self.buf) < 9 or len(self.buf) < 9 + int.from_bytes(self.buf[:3], "big"):
                d = self.s.recv(65536)
                if not d:
                    return None
                self.buf += d
        except ConnectionError:
            return None
        n = int.from_bytes(self.buf[:3], "big")
        out = self.buf[3], self.buf[4], int.from_bytes(self.buf[5:9], "big"), self.buf[9:9 + n]
        self.buf = self.buf[9 + n:]
        return out

    def outcome(self, sid):
        """How a stream ends: status of its answer, "rst N", "goaway N" or "closed"."""
        status, goaway = None, None
        while True:
            f = self.read()
            if f is None:
                return "closed" if goaway is None else "goaway %d" % goaway
            kind, flags, stream, payload = f
            if kind == GOAWAY:
                goaway = int.from_bytes(payload[4:8], "big")
            if stream != sid:
                continue
            if kind == RST:
                return status or "rst %d" % int.from_bytes(payload, "big")
            if kind == HEADERS:
                status = self.status(payload)
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                return status

    @staticmethod
    def status(block):
        """The first field is :status: an index of the static table, or a literal of three (Huffman coded) digits."""
        known = {0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}
        while block and block[0] & 0xe0 == 0x20:  # size updates
            block = block[1:]
        if block[0] in known:
            return known[block[0]]
        n, text = block[1] & 127, block[2:2 + (block[1] & 127)]
        if not block[1] & 128:
            return int(text)
        bits = "".join(format(c, "08b") for c in text)
        codes = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4", "011011": "5", "011100": "6", "011101": "7",
                 "011110": "8", "011111": "9"}
        out = ""
        while len(out) < 3 and n:
            for w in 5, 6:
                if bits[:w] in codes:
                    out, bits = out + codes[bits[:w]], bits[w:]
                    break
            else:
                raise AssertionError("status %r" % block[:8])
        return int(out)

    def close(self):
        self.host.close()


class Frames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = api_box.Server()

    @classmethod
    def tearDownClass(cls):
        cls.api.shutdown()
        cls.api.server_close()

    def setUp(self):
        self.api.take()
        self.c = Channel(self.api)
        self.addCleanup(self.c.close)

    def asleep(self):
        with open("/proc/%d/stat" % self.c.host.p.pid, encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "S"

    def refused(self, sid, *outcomes):
        got = self.c.outcome(sid)
        self.assertIn(got, outcomes)
        self.assertEqual(self.api.take(), [])

    def goes_on(self):
        self.assertEqual(self.c.outcome(self.c.open()), 200)
        self.assertEqual(len(self.api.take()), 1)

    def test_S2_01_A01_A02_A06_the_host_checks_the_token_itself(self):
        """Without any gateway: what a replaced gateway sends is judged outside (B-04)."""
        other = Channel(self.api)
        self.addCleanup(other.close)
        self.refused(self.c.open(token=""), 401, "rst 1")
        for t in "x", self.c.host.token[:-1], self.c.host.token + "x", other.host.token:
            self.refused(self.c.open(token=t), 401)
        self.goes_on()

    def test_P02_P08_P09_P12_targets(self):
        for p in (b"/api/companies/../agents", b"//evil/api/agents/me", b"http://evil/api/agents/me", b"*", b"me", b"", b"/api/agents/..%2fx",
                  b"/api/agents/a\nb", b"/api/agents/a b", b"/api/agents/\x7f", b"/api/agents/.\t./agents", b"/api/agents/\xe9", b"/api/agents/me#x"):
            self.refused(self.c.open(path=p), 400, "rst 1")
        self.goes_on()

    def test_M05_P28_methods(self):
        for m in b"get", b" GET", b"GET\t", b"GET / HTTP/1.1", b"X" * 1000, b"G\x00T", b"TRACE", b"CONNECT":
            self.refused(self.c.open(method=m), 400, 403, "rst 1")
        self.goes_on()

    def test_H04_H05_headers_that_hide_something(self):
        for n, v in ((b"accept", b"a\r\nx-evil: 1"), (b"accept", b"a\x00"), (b"accept", b"a\nb"), (b"a b", b"c"), (b"a:b", b"c"), (b"", b"c"),
                     (b"Upper", b"c"), (b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"te", b"gzip")):
            self.refused(self.c.open(extra=[(n, v)]), 400, "rst 1")
        self.goes_on()

    def test_duplicate_pseudo_headers(self):
        for extra in (":path", "/api/agents/x"), (":method", "POST"), (":authority", "evil"):
            self.refused(self.c.open(pseudo=[extra]), "rst 1")
        self.goes_on()

    def test_H09_lengths_that_lie(self):
        for announced, sent in (5, b"ab"), (1, b"abc"):
            sid = self.c.open(b"POST", b"/api/issues/i/comments", extra=[("content-type", "application/json"), ("content-length", str(announced))],
                              flags=0)
            self.c.send(frame(DATA, END_STREAM, sid, sent))
            self.refused(sid, "rst 1")
        self.goes_on()

    def test_H09_data_behind_the_end_and_padding_beyond_the_frame(self):
        sid = self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")])
        self.c.send(frame(DATA, PADDED, sid, b"\xffab"))
        self.assertIn(self.c.outcome(sid), ("goaway 1", "closed"))
        self.assertEqual(self.api.take(), [])

    def test_H10_trailers_are_not_heard(self):
        sid = self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")])
        self.c.send(frame(DATA, 0, sid, b"{}") +
                    frame(HEADERS, END_STREAM | END_HEADERS, sid, field("authorization", "Bearer x") + field("x-paperclip-run-id", "other")))
        self.assertEqual(self.c.outcome(sid), 200)
        (call,) = self.api.take()
        self.assertEqual([v for n, v in call["headers"] if n == "x-paperclip-run-id"], ["run-1"])

    def test_H12_header_lists_too_large(self):
        self.refused(self.c.open(extra=[("h%d" % i, "v") for i in range(140)]), 431, "rst 11")
        self.refused(self.c.open(extra=[("accept", "v" * 5000)]), 431, 400, "rst 11")
        self.goes_on()

    def test_B02_a_declared_size_is_judged_at_once(self):
        self.refused(self.c.open(b"POST", b"/api/issues/i/comments", flags=0,
                                 extra=[("content-type", "application/json"), ("content-length", str(BODY_MAX + 1))]), 413)
        self.goes_on()

    def test_B09_reset_in_the_middle_of_an_upload(self):
        for _ in range(3):
            sid = self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")])
            self.c.send(frame(DATA, 0, sid, b"x" * 16000) + frame(RST, 0, sid, b"\0\0\0\x08"))
        self.goes_on()

    def test_C05_one_stream_too_many(self):
        held = [self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")]) for _ in range(64)]
        sid = self.c.open()
        self.assertIn(self.c.outcome(sid), ("rst 7", "rst 1"))
        for h in held:
            self.c.send(frame(RST, 0, h, b"\0\0\0\x08"))
        self.goes_on()

    def flood(self, data, n):
        """Sends until the helper has had enough; how it said so: "goaway N" or "closed"; None: not at all."""
        try:
            for _ in range(n):
                self.c.send(data() if callable(data) else data)
        except OSError:
            pass
        else:
            # All of it was taken: is anybody still there? Who has gone by now is heard below.
            with contextlib.suppress(OSError):
                self.c.send(frame(PING, 0, 0, b"anybody?"))
        goaway = None
        while True:
            f = self.c.read()
            if f is None:
                return goaway or "closed"
            if f[0] == GOAWAY:
                goaway = "goaway %d" % int.from_bytes(f[3][4:8], "big")
            if f[0] == PING and f[3] == b"anybody?":
                return goaway

    def cpu(self):
        """Seconds of processor time of the helper."""
        with open("/proc/%d/stat" % self.c.host.p.pid, encoding="ascii") as f:
            v = f.read().rsplit(")", 1)[1].split()
        return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")

    def test_C07_floods_of_cheap_frames_end_the_channel(self):
        """Each kind, also such as the protocol has no use for; the helper stops long before the sender does."""
        upload = lambda: self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")])
        for name, prepare, data in (
                ("ping", None, frame(PING, 0, 0, b"12345678")), ("settings", None, frame(SETTINGS, 0, 0)),
                ("settings, acknowledged", None, frame(SETTINGS, 1, 0)), ("priority", None, frame(PRIORITY, 0, 5, b"\0\0\0\x03\x10")),
                ("priority, of itself", None, frame(PRIORITY, 0, 1001, b"\0\0\0\x01\x10")),
                ("window of the channel", None, frame(WINDOW, 0, 0, b"\0\0\0\x01")),
                ("window of a stream", upload, lambda sid: frame(WINDOW, 0, sid, b"\0\0\0\x01")),
                ("empty data", upload, lambda sid: frame(DATA, 0, sid)), ("padded empty data", upload, lambda sid: frame(DATA, PADDED, sid, b"\3\0\0\0")),
                ("data of one byte", upload, lambda sid: frame(DATA, 0, sid, b"x")),
                ("a kind that nobody knows", None, frame(0x77, 0, 1)), ("resets of what is over", self.over, lambda sid: frame(RST, 0, sid, b"\0\0\0\x08"))):
            with self.subTest(name):
                self.c.close()
                self.c = Channel(self.api)
                one = data(prepare()) if prepare else data
                # An acknowledgement of nothing is an error of its own.
                self.assertIn(self.flood(one * 100, 400), ("goaway 11", "goaway 1") if "acknowledged" in name else ("goaway 11",))
                self.assertLess(self.c.host.rss()["VmRSS"], 64 * 1024)
                self.assertLess(self.cpu(), 1)
        self.addCleanup(self.c.close)

    def over(self):
        """A stream that has come and gone."""
        sid = self.c.open()
        self.assertEqual(self.c.outcome(sid), 200)
        return sid

    def test_C07_a_busy_client_is_no_flood(self):
        """What a client has reason to send is no noise: window updates for what it reads, resets now and then, small pieces of a body."""
        big = 6 << 20
        self.api.answer = lambda h, call: h.send(200, b"a" * big) if call["target"].endswith("/big") else api_box.echo(h, call)
        self.addCleanup(setattr, self.api, "answer", api_box.echo)
        for _ in range(3):
            sid, got, said = self.c.open(path=b"/api/agents/big"), 0, 0
            while got < big:
                kind, _, stream, payload = self.c.read()
                got += len(payload) if (kind, stream) == (DATA, sid) else 0
                # Twice for each 4 KiB, as an eager library does.
                if got - said >= 4096 or got == big:
                    more = struct.pack(">I", got - said)
                    self.c.send(frame(WINDOW, 0, 0, more) + frame(WINDOW, 0, sid, more))
                    said = got
        for _ in range(40):
            self.c.send(frame(RST, 0, self.c.open(), b"\0\0\0\x08"))
        sid = self.c.open(b"POST", b"/api/issues/i/comments", flags=0, extra=[("content-type", "application/json")])
        self.c.send(frame(DATA, 0, sid, b"x") * 2000 + frame(DATA, END_STREAM, sid))
        self.assertEqual(self.c.outcome(sid), 200)
        self.api.take()
        self.goes_on()

    def test_C06_CVE_2023_44487_rapid_reset(self):
        def burst():
            sid = self.c.next
            self.c.next += 2
            block = field(":method", "GET") + field(":scheme", "http") + field(":authority", "b") + field(":path", "/api/agents/me") + \
                field("authorization", "Bearer " + self.c.host.token)
            return frame(HEADERS, END_STREAM | END_HEADERS, sid, block) + frame(RST, 0, sid, b"\0\0\0\x08")
        self.assertEqual(self.flood(burst, 20000), "goaway 11")
        self.assertLess(len(self.api.take()), 400)

    def test_C06_CVE_2025_8671_resets_that_the_host_is_made_to_send(self):
        head = lambda method, path, *extra: b"".join(field(*f) for f in (
            (":method", method), (":scheme", "http"), (":authority", "b"), (":path", path), ("authorization", "Bearer " + self.c.host.token), *extra))
        ways = {
            "a window beyond its end": lambda sid: frame(
                HEADERS, END_STREAM | END_HEADERS, sid, head("GET", "/api/agents/me")) + frame(
                    WINDOW, 0, sid, b"\x7f\xff\xff\xff"),
            "more data than was said": lambda sid: frame(
                HEADERS, END_HEADERS, sid, head("POST", "/api/issues/i1/comments", ("content-length", "5"))) + frame(
                    DATA, 0, sid, b"x" * 100),
        }
        for name, way in ways.items():
            with self.subTest(name):
                self.c.close()
                self.c = Channel(self.api)

                # One that reads, for whom no other bound counts.
                resets, goaway = 0, None
                for sid in range(1, 4000, 2):
                    try:
                        self.c.send(way(sid))
                    except OSError:
                        pass
                    f = self.c.read()
                    while f and f[0] not in (RST, GOAWAY):
                        f = self.c.read()
                    if not f or f[0] == GOAWAY:
                        goaway = f and int.from_bytes(f[3][4:8], "big")
                        break
                    resets += 1
                self.assertEqual(goaway, 11)
                self.assertLess(resets, 600)
                self.api.take()
        self.addCleanup(self.c.close)

    def test_C07_a_flood_of_what_is_no_request_ends_the_channel(self):
        """Malformed, or with too many headers: answered by a reset, so no pace holds it back."""
        for extra in [("Upper", "x")], [("connection", "x")], [("h%d" % i, "v") for i in range(140)]:
            with self.subTest(extra[0][0]):
                self.c.close()
                self.c = Channel(self.api)

                def one(extra=extra):
                    sid, self.c.next = self.c.next, self.c.next + 2
                    block = field(":method", "GET") + field(":scheme", "http") + field(":authority", "b") + field(":path", "/api/agents/me")
                    for name, value in [("authorization", "Bearer " + self.c.host.token), *extra]:
                        block += field(name, value)
                    return frame(HEADERS, END_STREAM | END_HEADERS, sid, block)
                self.assertEqual(self.flood(one, 20000), "goaway 11")
        self.addCleanup(self.c.close)
        self.assertEqual(self.api.take(), [])

    def test_H13_compression_bomb_and_endless_header_blocks(self):
        # One large entry in the table, referred to again and again.
        sid = self.c.next
        block = b"\x40" + number(1, 7) + b"a" + number(4000, 7) + b"b" * 4000 + b"\xbe" * 4000
        self.c.send(frame(HEADERS, END_STREAM, sid, block[:16000]))
        self.assertIn(self.c.outcome(sid) if self.flood(frame(CONT, 0, sid, b"\xbe" * 16000), 40) else "on",
                      ("goaway 11", "goaway 1", "goaway 9", "closed", "rst 11"))
        self.assertLess(self.c.host.rss()["VmHWM"], 64 * 1024)

    def test_frame_beyond_the_limit_and_push_promise(self):
        for bad in frame(DATA, 0, 1, b"x" * 20000), frame(PUSH, END_HEADERS, 1, b"\0\0\0\2"), frame(HEADERS, END_HEADERS, 2, field(":method", "GET")), \
                frame(WINDOW, 0, 0, b"\0\0\0\0"), frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"):
            self.c = Channel(self.api)
            self.addCleanup(self.c.close)
            try:
                self.c.send(bad)
            except OSError:
                pass
            self.assertRegex(self.flood(b"", 1) or "", "goaway|closed")

    def test_S2_09_a_stalled_answer_goes_on_beside_a_new_request(self):
        """Room for the one and a second request in one turn of the helper: what libcurl wants for the second takes nothing from the first."""
        big = 4 << 20

        def answer(handler, call):
            return handler.send(200, b"a" * big) if call["target"].endswith("/big") else api_box.echo(handler, call)
        self.api.answer = answer
        self.addCleanup(setattr, self.api, "answer", api_box.echo)
        sid, got = self.c.open(path=b"/api/agents/big"), 0
        self.c.send(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30)))
        while got < 65535:
            kind, _, stream, payload = self.c.read()
            got += len(payload) if (kind, stream) == (DATA, sid) else 0
        # The helper has as much more as it keeps, and reads no further.
        until("the helper to rest", self.asleep)
        self.c.s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        # The first read takes 64 KiB, the second the new request; only then libcurl's turn comes.
        noise = frame(0x77, 0, 0, b"\0" * 16375)
        os.kill(self.c.host.p.pid, signal.SIGSTOP)
        try:
            self.c.send(frame(WINDOW, 0, sid, struct.pack(">I", 70000)) + noise * (65536 // len(noise)))
            self.c.open()
        finally:
            os.kill(self.c.host.p.pid, signal.SIGCONT)
        self.c.send(frame(WINDOW, 0, sid, struct.pack(">I", big)))
        while True:
            kind, flags, stream, payload = self.c.read()
            if stream != sid:
                continue
            self.assertNotEqual(kind, RST)
            got += len(payload) if kind == DATA else 0
            if flags & END_STREAM:
                break
        self.assertEqual(got, big)

    def test_S2_09_a_connection_whose_last_answer_waited_serves_again(self):
        """The end of the answer comes while the sandbox has no room; then room; then the next request on the same connection."""
        size = 65535 + 131072 + 20000
        self.api.answer = lambda h, call: h.send(200, b"a" * size) if call["target"].endswith("/big") else api_box.echo(h, call)
        self.addCleanup(setattr, self.api, "answer", api_box.echo)
        sid, got, room = self.c.open(path=b"/api/agents/big"), 0, False
        while got < size:
            kind, _, stream, payload = self.c.read()
            got += len(payload) if (kind, stream) == (DATA, sid) else 0
            if got == 65535 and not room:
                until("the helper to rest", self.asleep)
                self.c.send(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 20)) + frame(WINDOW, 0, sid, struct.pack(">I", 1 << 20)))
                room = True
        self.api.take()
        self.goes_on()

    def test_memory_at_the_limits(self):
        """S2-07: sixty-four uploads of the largest size at once do not take more than the hard cap."""
        sids = [self.c.open(b"POST", b"/api/issues/i/comments", flags=0,
                            extra=[("content-type", "application/json"), ("content-length", str(BODY_MAX))]) for _ in range(64)]
        room, sent, done = {s: 65535 for s in sids}, {s: 0 for s in sids}, set()
        channel = 65535
        peak = 0
        self.c.s.settimeout(60)
        while len(done) < 6:
            for s in sids:
                while s not in done and sent[s] < BODY_MAX and room[s] > 0 and channel > 0:
                    n = min(16384, room[s], channel, BODY_MAX - sent[s])
                    sent[s] += n
                    self.c.send(frame(DATA, END_STREAM if sent[s] == BODY_MAX else 0, s, b"z" * n))
                    room[s] -= n
                    channel -= n
            kind, flags, stream, payload = self.c.read()
            if kind == WINDOW:
                if stream:
                    room[stream] += int.from_bytes(payload, "big")
                else:
                    channel += int.from_bytes(payload, "big")
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                done.add(stream)
            peak = max(peak, self.c.host.rss()["VmRSS"])
        self.assertLess(peak, 64 * 1024)


class Waiting(unittest.TestCase):
    def test_B08_who_waits_for_room_is_not_idle(self):
        """Three uploads have all the room; the fourth may send nothing for longer than an upload may be silent."""
        api = api_box.Server()
        self.addCleanup(api.server_close)
        self.addCleanup(api.shutdown)
        c = Channel(api, policy="p", policy_text=json.dumps({"version": 1, "name": "p", "routes": ["POST /up/{id}"], "limits": {
            "body": "11M", "idle_time": "4s"}, "identity_headers": {"x-paperclip-run-id": "{run}"}}))
        self.addCleanup(c.close)
        c.send(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 20)))
        size = 11 << 20
        upload = lambda: c.open(b"POST", b"/up/x", flags=0, extra=[("content-length", str(size))])
        holders, last = [upload() for _ in range(3)], upload()
        end, room, answered = time.monotonic() + 6, {}, {}

        def hear(f):
            kind, flags, stream, payload = f
            if kind == WINDOW:
                room[stream] = room.get(stream, 0) + int.from_bytes(payload, "big")
            if kind == HEADERS:
                answered[stream] = c.status(payload)
        while time.monotonic() < end:
            for h in holders:
                if h not in answered:
                    c.send(frame(DATA, 0, h, b"x" * 64))
            # What has come is read; an answer to the ping is sure to come.
            c.send(frame(PING, 0, 0, b"anybody?"))
            f = c.read()
            while not (f[0] == PING and f[1] & 1):
                hear(f)
                f = c.read()
            time.sleep(0.1)
        self.assertNotIn(last, answered)
        for h in holders:
            c.send(frame(RST, 0, h, b"\0\0\0\x08"))
        while last not in room:
            f = c.read()
            hear(f)
            self.assertNotIn(last, answered)


class Audit(unittest.TestCase):
    """What a sandbox does stands in its audit file, whatever else it does."""

    def setUp(self):
        self.api = api_box.Server()
        self.addCleanup(self.api.server_close)
        self.addCleanup(self.api.shutdown)
        self.file = tempfile.TemporaryFile()
        self.addCleanup(self.file.close)

    def channel(self):
        fd = os.open("/proc/self/fd/%d" % self.file.fileno(), os.O_WRONLY | os.O_APPEND)
        c = Channel(self.api, audit=fd)
        os.close(fd)
        self.addCleanup(c.close)
        return c

    def lines(self):
        self.file.seek(0)
        return [json.loads(l) for l in self.file]

    def test_B10_a_flood_of_refusals_hides_nothing(self):
        c, n = self.channel(), 12000
        c.send(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30)))
        for k in range(0, n, 60):
            sids = {c.open(token="wrong" if k % 120 else None, path=b"/api/nothing") for _ in range(60)}
            while sids:
                kind, flags, stream, _ = c.read()
                if kind in (HEADERS, DATA) and flags & END_STREAM:
                    sids.discard(stream)
            if k % 3000 == 0:
                self.assertEqual(c.outcome(c.open()), 200)
        counts = c.host.stop()
        self.assertEqual((counts["requests"], counts["refused"], counts["audit_lost"]), (n + 4, n, 0))
        lines = self.lines()
        told = {}
        for l in lines:
            told[l["rule"]] = told.get(l["rule"], 0) + l.get("count", 1)
        self.assertEqual(told, {"auth.token": n // 2, "route.path": n // 2, "allow": 4})
        self.assertEqual(len([l for l in lines if l["rule"] == "allow" and "count" not in l]), 4)
        self.assertLess(len(lines), n)

    def test_B10_H12_what_is_no_request_stands_there_too(self):
        c = self.channel()
        c.outcome(c.open(extra=[("h%d" % i, "v") for i in range(140)]))
        c.outcome(c.open(extra=[("Upper", "v")]))
        self.assertEqual(c.outcome(c.open()), 200)
        counts = c.host.stop()
        self.assertEqual((counts["requests"], counts["refused"], counts["forwarded"]), (3, 2, 1))
        self.assertEqual([l["rule"] for l in self.lines()], ["headers.size", "http2.malformed", "allow"])

    def test_B10_no_request_is_forwarded_that_cannot_be_recorded(self):
        self.file.truncate(64 << 20)
        c = self.channel()
        for method, path in (b"GET", b"/api/agents/me"), (b"POST", b"/api/issues/i/comments"):
            self.assertEqual(c.outcome(c.open(method, path)), 503)
        # What is refused anyway hears the same as ever.
        self.assertEqual(c.outcome(c.open(token="wrong")), 401)
        counts = c.host.stop()
        self.assertEqual((counts["requests"], counts["forwarded"], counts["failed"]), (3, 0, 2))
        self.assertEqual(self.api.take(), [])
        # The counts of it still found room.
        self.file.seek(64 << 20)
        self.assertEqual(sorted((json.loads(l)["rule"], json.loads(l).get("count", 1)) for l in self.file), [("audit.full", 1)] * 2 + [("auth.token", 1)])


class Tricks(unittest.TestCase):
    """The corpus of the fuzz target, against the real helper: it outlives each, and what it forwards it could forward."""
    TOKEN = "0123456789abcdef0123456789abcdef"
    # What the protocol calls an error of the channel; the others leave it open.
    CLOSED = {"continuation-of-another-stream", "headers-inside-a-block", "empty-continuations", "table-size-beyond-the-setting",
              "index-beyond-the-table", "integer-without-end", "huffman-padding", "streams-backwards", "data-on-an-idle-stream",
              "reset-of-an-idle-stream", "settings-of-a-wrong-length", "window-larger-than-allowed", "depends-on-itself"}

    def test_H13_tricks_of_the_protocol(self):
        api = api_box.Server()
        self.addCleanup(api.server_close)
        self.addCleanup(api.shutdown)
        d = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "fuzz/corpus/h2")
        for name in sorted(os.listdir(d)):
            with self.subTest(name):
                with open(os.path.join(d, name), "rb") as f:
                    data = f.read()
                c = Channel(api, token=self.TOKEN)
                self.addCleanup(c.close)
                try:
                    c.send(data + frame(PING, 0, 0, b"anybody?"))
                except OSError:
                    pass
                closed, f = False, c.read()
                while f and not (f[0] == PING and f[1] & 1):
                    closed, f = closed or f[0] == GOAWAY, c.read()
                self.assertEqual(closed or f is None, name in self.CLOSED)
                counts = c.host.stop()
                calls = api.take()
                self.assertLessEqual(counts["forwarded"], len(calls))
                self.assertLessEqual(len(calls), counts["requests"])
                for call in calls:
                    self.assertIn(call["target"], ("/api/agents/me", "/api/agents/b", "/api/issues/i/comments"))
                    self.assertEqual([v for n, v in call["headers"] if n == "authorization"], ["Bearer " + api_box.KEY])


class Opening(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = api_box.Server()

    @classmethod
    def tearDownClass(cls):
        cls.api.shutdown()
        cls.api.server_close()

    def setUp(self):
        self.c = Channel(self.api, ready=False)
        self.addCleanup(self.c.close)

    def line(self, **kw):
        return json.dumps({"version": 2, "type": "ready", "nonce": self.c.host.nonce, **kw}).encode() + b"\n"

    def test_C01_echo_marks_and_single_bytes_before_READY(self):
        data = b"exec env K='v' gateway\r\n\r\n\xff\xfe noise\n\x1b[?2004l" + self.line() + PREFACE + frame(SETTINGS, 0, 0, NO_TABLE)
        for i in range(len(data)):
            self.c.send(data[i:i + 1])
        self.c.host.expect(READY)
        self.assertEqual(self.c.outcome(self.c.open()), 200)

    def test_C02_C03_what_is_no_READY(self):
        bad = [self.line(nonce="0" * 32), self.line(version=1), self.line(version=3), self.line(version="2"), self.line(extra=1),
               self.line(type="close"), b'{"version":2,"type":"ready"}\n', b"[]\n", self.line() + self.line(), self.line() + b"GET / HTTP/1.1\r\n\r\n1234567",
               b"x" * 300000, b"\n" * 300000, PREFACE + frame(SETTINGS, 0, 0) + b"\n" + self.line() + b"no preface behind it...."]
        for data in bad:
            c = Channel(self.api, ready=False)
            try:
                c.send(data.replace(self.c.host.nonce.encode(), c.host.nonce.encode()))
            except OSError:
                pass
            c.host.expect(LOST)
            # Not a byte was said to it, and it hears the end at once.
            try:
                self.assertEqual(c.s.recv(1), b"")
            except ConnectionResetError:
                pass
            c.close()

    def test_B04_nothing_happens_for_a_silent_sandbox_and_the_end_is_clean(self):
        counts = self.c.host.stop()
        self.assertEqual(counts["requests"], 0)

    def test_idle_memory(self):
        """S2-07: all of it, the pages of shared libraries included."""
        self.c.say_ready()
        self.c.send(PREFACE + frame(SETTINGS, 0, 0))
        self.c.host.expect(READY)
        self.assertEqual(self.c.outcome(self.c.open()), 200)
        self.assertLess(self.c.host.rss()["VmRSS"], 8 * 1024)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
