#!/usr/bin/env python3
"""Door 2 end to end: real gateway, real airlock-bridge, an API server that looks at what arrives (S2-01..S2-10, B-03, B-04).

Every class runs over each transport: the verdicts are the same (S2-10).

usage: test_bridge.py AIRLOCK [TEST...]
Each test's name carries the cases of the bridge that it shows.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from api_box import KEY, Client, request  # noqa: E402
from run_box import DEADLINE, Host, alive, confined, look, parent, pids, until  # noqa: E402
import scratch  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])
BODY_MAX = 10485760 + 65536
JSON = ("content-type", "application/json")
COMMENT = "/api/issues/i1/comments"


class Bridge:
    """airlock bridge in front of an API server of its own."""

    def __init__(self, *words, upstream=None, env=None):
        self.api = api_box.Server()
        self.dir = scratch.directory(prefix="airlock-bridge-test.")
        self.port = api_box.free_port()
        with open(self.dir + "/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        self.p = subprocess.Popen(
            [AIRLOCK, "bridge", "--upstream", upstream or self.api.url, "--credential-file", self.dir + "/key",
             "--listen", "127.0.0.1:%d" % self.port, "--run-id", "run-1", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.url = self.p.stdout.readline().decode().strip()
        line = self.p.stdout.readline().decode().strip()
        if not line.startswith("PAPERCLIP_API_KEY="):
            raise AssertionError("%r %r" % (line, self.p.stderr.read()))
        self.token = line.split("=", 1)[1]

    def ask(self, method, target, token=..., headers=(), body=None):
        c = Client(self.port)
        try:
            c.send(request(method, target, self.token if token is ... else token, headers, body))
            return c.answer(method == "HEAD")
        finally:
            c.close()

    def raw(self, data):
        c = Client(self.port)
        try:
            c.send(data)
            return c.answer()
        finally:
            c.close()

    def helpers(self, name):
        return [p for p in pids() if parent(p) == self.p.pid and look(p, "cmdline").split(b"\0")[0].endswith(name)]

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        _, err = self.p.communicate(timeout=DEADLINE)
        self.api.shutdown()
        self.api.server_close()
        return self.p.returncode, err


class Cases:
    TRANSPORT = None

    @classmethod
    def setUpClass(cls):
        cls.b = Bridge("--transport", cls.TRANSPORT)

    @classmethod
    def tearDownClass(cls):
        rc, err = cls.b.stop()
        assert rc == 0, (rc, err)

    def setUp(self):
        self.b.api.answer = api_box.echo
        self.b.api.take()

    def refused(self, answer, *statuses):
        """The bridge's own answer, marked as such, and nothing forwarded."""
        status, headers, body = answer
        self.assertIn(status, statuses, (headers, body))
        self.assertIn("x-airlock-bridge", headers)
        self.assertIn("error", json.loads(body))
        self.assertEqual(self.b.api.take(), [])

    def sent(self, answer):
        self.assertEqual(answer[0], 200, answer)
        calls = self.b.api.take()
        self.assertEqual(len(calls), 1)
        return calls[0]

    def test_S2_01_A01_A02_A03_authentication(self):
        b = self.b
        bad = [b.token[:-1] + ("A" if b.token[-1] != "A" else "B"), b.token[:-1], b.token + "x", "", b.token.lower() + "!"]
        for t in [None] + bad:
            self.refused(b.ask("GET", "/api/agents/me", t), 401)
        for value in (b"bearer " + b.token.encode(), b"Bearer  " + b.token.encode(), b"Basic " + b.token.encode(), b.token.encode()):
            self.refused(b.raw(b"GET /api/agents/me HTTP/1.1\r\nhost: x\r\nauthorization: " + value + b"\r\n\r\n"), 401)
        self.refused(b.ask("GET", "/api/agents/me?token=" + b.token, None), 401)

    def test_A05_two_authorization_headers(self):
        good, bad = b"authorization: Bearer " + self.b.token.encode(), b"authorization: Bearer x"
        for pair in (good, bad), (bad, good), (good, good):
            self.refused(self.b.raw(b"GET /api/agents/me HTTP/1.1\r\nhost: x\r\n" + b"\r\n".join(pair) + b"\r\n\r\n"), 400, 401)

    def test_A11_the_token_comes_first(self):
        status, _, body = self.b.ask("GET", "//x", "wrong")
        self.assertEqual(status, 401)
        self.assertEqual(json.loads(body), json.loads(self.b.ask("GET", "/api/companies/c/secrets", "wrong")[2]))

    def test_S2_02_A09_the_bridge_token_is_nothing_to_the_api(self):
        import urllib.request
        import urllib.error
        r = urllib.request.Request(self.b.api.url + "/api/agents/me", headers={"authorization": "Bearer " + self.b.token})
        with self.assertRaises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(r, timeout=DEADLINE)
        self.assertEqual(e.exception.code, 401)
        e.exception.close()

    def test_S2_04_P01_P20_P21_sent_as_it_was_judged(self):
        for t in "/api/agents/me", "/api/agents/me?_method=DELETE", "/api/companies/c/issues?status=a%2Fb&u=http://x", \
                "/api/agents/%C3%A9":
            self.assertEqual(self.sent(self.b.ask("GET", t))["target"], t)

    def test_S2_04_P02_to_P18_other_spellings(self):
        """P04 P05 P06 P08 P09 P10 P12 P13 P14 P16; P22 P24 for the query and for lengths."""
        for t in ("/api/companies/../agents", "/api/./agents/me", "/api/agents/.", "/api/agents/..\\..\\api\\companies\\c1\\secrets",
                  "/api/agents/%5c..%5c..", "/api%2fagents/me", "/api/agents/a%2f..%2fb", "/api//agents/me", "/api/agents/me/",
                  "http://evil/api/agents/me", "https:/x", "*", "me", "/api/agents/me;x=1", "/api/agents/..;/x", "/api/agents/%0d%0aX:y",
                  "/api/agents/%09", "/api/agents/%20", "/api/agents/%7f", "/api/agents/%c0%ae%c0%ae", "/api/agents/%ff",
                  "/api/agents/me#x", "/api/agents/%2e%2e", "/api/agents/%", "//evil/api/agents/me", b"/api/agents/\xc3\xa9"):
            with self.subTest(t):
                self.refused(self.b.ask("GET", t), 400)
        for q in "a#b", "a\\b", "a%00":
            self.refused(self.b.ask("GET", "/api/agents/me?" + q), 400)
        self.refused(self.b.ask("GET", "/api/agents/me?" + "x" * 8193), 414)
        self.refused(self.b.ask("GET", "/API/agents/me"), 403)
        self.refused(self.b.ask("GET", "/api/agents/" + "x" * 2048), 414)

    def test_P28_M04_M05_methods(self):
        for m in "HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE":
            status, headers, _ = self.b.ask(m, "/api/agents/me")
            self.assertIn(status, (403, 400), m)
            self.assertIn("x-airlock-bridge", headers)
        for m in "get", "GET/", "X" * 1000:
            self.assertIn(self.b.ask(m, "/api/agents/me")[0], (400, 403, 501))
        self.assertIn(self.b.raw(b"CONNECT evil:80 HTTP/1.1\r\nhost: evil:80\r\nauthorization: Bearer %s\r\n\r\n" % self.b.token.encode())[0],
                      (400, 403))
        self.assertEqual(self.b.api.take(), [])

    def test_S2_05_S2_06_H01_H02_H06_H14_headers(self):
        sneaky = [("cookie", "a=b"), ("x-forwarded-for", "1.2.3.4"), ("x-paperclip-tool-gateway-token", "t"), ("origin", "http://x"),
                  ("range", "bytes=0-1"), ("X-Paperclip-Run-Id", "other"), ("x-http-method-override", "DELETE"), ("te", "trailers"),
                  ("x-paperclip-github-capability", "c"), ("accept", "text/plain"), ("if-match", "x"), ("proxy-authorization", "p")]
        call = self.sent(self.b.ask("GET", "/api/agents/me", headers=sneaky))
        names = [n for n, _ in call["headers"]]
        self.assertEqual(sorted(names), ["accept", "authorization", "host", "if-match", "x-paperclip-run-id"])
        got = dict(call["headers"])
        self.assertEqual((got["authorization"], got["x-paperclip-run-id"]), ("Bearer " + KEY, "run-1"))

    def test_H04_H05_H08_H12_malformed_and_smuggled(self):
        auth = b"authorization: Bearer %s\r\n" % self.b.token.encode()
        for extra in (b"content-length: 3\r\ntransfer-encoding: chunked\r\n", b"content-length: 3\r\ncontent-length: 3\r\n",
                      b"a : b\r\n", b"a: b\r\n c\r\n", b"a: b\x00c\r\n", b"a: b\nx: y\r\n", b"transfer-encoding: gzip, chunked\r\n"):
            c = Client(self.b.port)
            c.send(b"POST /api/issues/i/comments HTTP/1.1\r\nhost: x\r\n" + auth + extra + b"\r\nabc"
                   b"GET /api/agents/me HTTP/1.1\r\nhost: x\r\n" + auth + b"\r\n")
            status, _, _ = c.answer()
            self.assertIn(status, (400, 501), extra)
            # The connection ends with the refusal: what stands behind it is no request.
            with self.assertRaises((EOFError, OSError)):
                c.answer()
            c.close()
        for extra in ([("h%d" % i, "v") for i in range(129)], [("accept", "v" * 5000)], [("h%d" % i, "v" * 4000) for i in range(5)]):
            self.assertIn(self.b.ask("GET", "/api/agents/me", headers=extra)[0], (400, 431))
        self.assertEqual(self.b.api.take(), [])
        self.sent(self.b.ask("GET", "/api/agents/me"))

    def test_S2_07_B01_B02_body_at_the_limit(self):
        body = os.urandom(1 << 16) * (BODY_MAX >> 16) + b"x" * (BODY_MAX & 0xffff)
        self.assertEqual(len(body), BODY_MAX)
        call = self.sent(self.b.ask("POST", COMMENT, headers=[JSON], body=body))
        self.assertEqual(call["body"], body)
        self.refused(self.b.ask("POST", COMMENT, headers=[JSON], body=body + b"x"), 413)
        if self.TRANSPORT == "queue":
            return
        # Announced and not sent: told at once. (A file has its size when it is there.)
        c = Client(self.b.port)
        c.send(b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
               % (COMMENT.encode(), self.b.token.encode(), BODY_MAX + 1))
        self.refused(c.answer(), 413)
        c.close()

    def test_B01_chunked_body(self):
        head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\n" \
               b"transfer-encoding: chunked\r\n\r\n" % (COMMENT.encode(), self.b.token.encode())
        c = Client(self.b.port)
        c.send(head + b"3\r\nabc\r\n4\r\n\x00\xff\r\n\r\n0\r\n\r\n")
        self.assertEqual(self.sent(c.answer())["body"], b"abc\x00\xff\r\n")
        piece = b"%x\r\n" % (1 << 20) + b"y" * (1 << 20) + b"\r\n"
        try:
            c.send(head + piece * 11 + b"0\r\n\r\n")
        except OSError:
            pass
        self.refused(c.answer(), 413)
        c.close()

    def test_B04_binary_both_ways(self):
        blob = bytes(range(256)) * 300
        self.b.api.answer = lambda h, call: h.send(200, call["body"], [("content-type", "application/octet-stream")])
        status, headers, body = self.b.ask("POST", "/api/companies/c/issues/i/attachments",
                                           headers=[("content-type", "multipart/form-data; boundary=x")], body=blob)
        self.assertEqual((status, body), (200, blob))
        self.assertNotIn("x-airlock-bridge", headers)

    def test_B05_B13_bytes_and_types_of_a_body_are_the_api_s(self):
        """One rule for both transports: what is no UTF-8 passes as it is, whatever type it claims, or none."""
        for headers in [JSON], [("content-type", "text/html")], [("content-type", "text/xjsonx")], []:
            body = b'{"a":"\xff\xc3\x28\x00"}'
            self.assertEqual(self.sent(self.b.ask("POST", COMMENT, headers=headers, body=body))["body"], body)

    def test_B10_a_client_that_leaves_is_no_reason_to_send_again(self):
        seen, go = threading.Event(), threading.Event()

        def wait(handler, call):
            seen.set()
            go.wait(DEADLINE)
            return api_box.echo(handler, call)
        self.b.api.answer = wait
        c = Client(self.b.port)
        c.send(request("POST", COMMENT, self.b.token, [JSON], b"{}"))
        self.assertTrue(seen.wait(DEADLINE))
        c.close()
        go.set()
        self.b.api.answer = api_box.echo
        self.assertEqual(self.b.ask("GET", "/api/agents/me")[0], 200)
        self.assertEqual([c["method"] for c in self.b.api.take()], ["POST", "GET"])

    def test_B09_half_an_upload_has_no_effect(self):
        c = Client(self.b.port)
        c.send(b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\nhalf"
               % (COMMENT.encode(), self.b.token.encode()))
        c.close()
        self.sent(self.b.ask("GET", "/api/agents/me"))

    def test_M08_get_with_a_body(self):
        answer = self.b.ask("GET", "/api/agents/me", headers=[JSON], body=b'{"a":1}')
        if answer[0] == 200:
            self.assertEqual(self.sent(answer)["body"], b"")
        else:
            self.refused(answer, 400)

    def test_F01_F02_F03_answers_are_filtered_and_redirects_not_followed(self):
        seen = api_box.Server()
        for status in 301, 302, 303, 307, 308:
            self.b.api.answer = lambda h, call, s=status: h.send(s, b"", [("location", seen.url + "/api/agents/me"), ("set-cookie", "a=b"),
                                                                         ("x-paperclip-bridge-outcome", "indeterminate"),
                                                                         ("www-authenticate", "Basic"), ("x-internal", "1")])
            got, headers, _ = self.b.ask("GET", "/api/agents/me")
            self.assertIn(got, (status, 502))
            for name in "location", "set-cookie", "x-paperclip-bridge-outcome", "www-authenticate", "x-internal":
                self.assertNotIn(name, headers)
            self.assertEqual(len(self.b.api.take()), 1)
        self.assertEqual(seen.take(), [])
        seen.shutdown()
        seen.server_close()

    def test_F09_what_follows_a_101_is_no_answer(self):
        def switch(handler, call):
            handler.wfile.write(b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nraw bytes of another protocol")
            return False
        self.b.api.answer = switch
        status, headers, body = self.b.ask("GET", "/api/agents/me")
        self.assertEqual(status, 502)
        self.assertIn("x-airlock-bridge", headers)
        self.assertIn("error", json.loads(body))

    def test_F05_F09_errors_of_the_api_pass(self):
        for status in 401, 403, 404, 409, 422, 500:
            self.b.api.answer = lambda h, call, s=status: h.send(s, b'{"e":1}', [JSON])
            got, headers, body = self.b.ask("POST", COMMENT, headers=[JSON], body=b"{}")
            self.assertEqual((got, body), (status, b'{"e":1}'))
            self.assertNotIn("x-airlock-bridge", headers)

    def test_C10_C11_an_uncertain_unsafe_request_is_409_and_sent_once(self):
        def die(handler, call):
            handler.connection.close()
            return False
        self.b.api.answer = die
        status, headers, body = self.b.ask("POST", COMMENT, headers=[JSON], body=b"{}")
        self.assertEqual((status, headers.get("x-paperclip-bridge-outcome")), (409, "indeterminate"))
        self.assertEqual(len(self.b.api.take()), 1)
        # C13: a safe one may be tried again, and the status says so.
        status, headers, _ = self.b.ask("GET", "/api/agents/me")
        self.assertEqual(status, 502)
        self.assertNotIn("x-paperclip-bridge-outcome", headers)

    def test_C10_a_used_connection_that_dies_is_no_reason_to_send_again(self):
        first = threading.Event()

        def die_second(handler, call):
            if first.is_set():
                handler.connection.close()
                return False
            first.set()
            return api_box.echo(handler, call)
        self.b.api.answer = die_second
        self.assertEqual(self.b.ask("GET", "/api/agents/me")[0], 200)
        status, headers, _ = self.b.ask("POST", COMMENT, headers=[JSON], body=b"{}")
        self.assertEqual((status, headers.get("x-paperclip-bridge-outcome")), (409, "indeterminate"))
        self.assertEqual([c["method"] for c in self.b.api.take()], ["GET", "POST"])

    def test_FR_B075_idempotency_key_passes(self):
        call = self.sent(self.b.ask("POST", COMMENT, headers=[JSON, ("idempotency-key", "k1")], body=b"{}"))
        self.assertEqual(dict(call["headers"]).get("idempotency-key"), "k1")

    def test_S2_09_many_at_once_and_keep_alive(self):
        """64 clients at once, each with several requests on one connection (S2-09)."""
        gate, failed = threading.Barrier(64), []

        def client(i):
            try:
                c = Client(self.b.port)
                gate.wait(DEADLINE)
                for k in range(3):
                    c.send(request("GET", "/api/agents/a%d-%d" % (i, k), self.b.token))
                    status, _, body = c.answer()
                    if status != 200 or json.loads(body)["target"] != "/api/agents/a%d-%d" % (i, k):
                        failed.append((i, k, status, body))
                c.close()
            except Exception as e:  # noqa: BLE001
                failed.append((i, repr(e)))
        ts = [threading.Thread(target=client, args=(i,)) for i in range(64)]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
        self.assertEqual(failed, [])
        self.assertEqual(len(self.b.api.take()), 192)

    def test_F06_errors_tell_nothing_of_the_host(self):
        for answer in (self.b.ask("GET", "/api/companies/c/secrets"), self.b.ask("GET", "/api/../x"), self.b.ask("GET", "/api/agents/me", "x")):
            text = str(answer)
            for secret in KEY, self.b.api.url, "/tmp", self.b.dir:
                self.assertNotIn(secret, text)


class Streams(Cases):
    """What only a transport that is a stream does."""

    def test_server_sent_events_pass_piece_by_piece(self):
        go = threading.Event()

        def stream(handler, call):
            handler.wfile.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n")
            handler.wfile.flush()
            go.wait(DEADLINE)
            handler.wfile.write(b"8\r\ndata: 2\n\r\n0\r\n\r\n")
            return True
        self.b.api.answer = stream
        c = Client(self.b.port)
        c.send(request("GET", "/api/agents/me", self.b.token))
        while b"data: 1" not in c.buf:
            c.fill()
        # The first event is here while the second does not exist yet.
        go.set()
        while b"0\r\n\r\n" not in c.buf:
            c.fill()
        self.assertIn(b"data: 2", c.buf)
        c.close()

    def test_S2_09_a_slow_reader_gets_each_answer_once(self):
        """Its answers have one end each, however often it makes the other side wait (found by fuzz_direct.c)."""
        blob = os.urandom(1 << 16) * 128

        def in_chunks(handler, call):
            handler.wfile.write(b"HTTP/1.1 200 X\r\ncontent-type: a/b\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(blob), blob))
            return True
        self.b.api.answer = in_chunks
        c = Client(self.b.port)
        for _ in range(2):
            c.send(request("GET", "/api/agents/me", self.b.token))
            # The upstream is done long before: what is left waits for us.
            self.assertEqual(c.s.recv(4, socket.MSG_PEEK), b"HTTP")
            until("all that there is room for", lambda: len(self.b.api.take()) == 1)
            self.assertEqual(c.answer()[2], blob)
        self.b.api.answer = api_box.echo
        c.send(request("GET", "/api/agents/me", self.b.token))
        self.assertEqual(c.answer()[0], 200)
        c.close()

    def test_B01_a_chunked_body_that_ends_where_its_room_does(self):
        """Framing takes no room: what ends a body is read, also when not one byte of body more may come."""
        head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\n" \
               b"transfer-encoding: chunked\r\n\r\n" % (COMMENT.encode(), self.b.token.encode())
        for n in [*range(65526, 65538), BODY_MAX - 3, BODY_MAX]:
            c = Client(self.b.port)
            c.send(head + b"%x\r\n%s\r\n0\r\n\r\n" % (n, bytes(n)))
            self.assertEqual((c.answer()[0], n), (200, n))
            c.close()
            self.assertEqual([len(x["body"]) for x in self.b.api.take()], [n])

    def test_C15_three_hundred_megabytes_over_one_channel(self):
        blob = os.urandom(1 << 16) * 128
        self.b.api.answer = lambda h, call: h.send(200, blob, [("content-type", "application/octet-stream")])
        (helper,) = self.b.helpers(b"airlock-bridge")
        for _ in range(38):
            status, _, body = self.b.ask("GET", "/api/agents/me")
            self.assertEqual((status, body == blob), (200, True))
        self.assertEqual(self.b.helpers(b"airlock-bridge"), [helper])


class CasesHttp2(Streams, unittest.TestCase):
    TRANSPORT = "http2"


class CasesQueue(Cases, unittest.TestCase):
    TRANSPORT = "queue"


class CasesDirect(Streams, unittest.TestCase):
    TRANSPORT = "direct"

    def test_H04_H08_what_is_no_request_is_counted_and_told(self):
        """The bridge itself reads it here: it is a decision like others."""
        b = Bridge("--transport", "direct")
        for bad in (b"GET  / HTTP/1.1\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\r\n\r\n"):
            status, headers, _ = b.raw(bad)
            self.assertEqual((status, headers["x-airlock-bridge"]), (400, "request.malformed"))
        code, err = b.stop()
        self.assertEqual(code, 0, err)
        self.assertIn(b"3 requests, 0 forwarded, 3 refused", err)

    def test_C06_connections_that_ask_nothing_are_held_back(self):
        """As many as they like; beyond a burst they come at a rate. Who asks something is served all the same."""
        b = Bridge("--transport", "direct")
        t = time.monotonic()
        # Those behind the burst wait for tokens: 100 a second.
        for _ in range(1150):
            c = Client(b.port)
            c.s.shutdown(socket.SHUT_WR)
            self.assertEqual(c.s.recv(1), b"")
            c.close()
        self.assertGreater(time.monotonic() - t, 1)
        self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
        self.assertEqual(b.stop()[0], 0)

    def test_C06_a_flood_of_connections_is_not_paid_by_those_who_are_there(self):
        b = Bridge("--transport", "direct")
        c, done = Client(b.port), threading.Event()
        self.addCleanup(done.set)

        def knock():
            while not done.is_set():
                try:
                    s = socket.create_connection(("127.0.0.1", b.port), 1)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.close()
                except OSError:
                    done.wait(0.05)
        t = threading.Thread(target=knock)
        t.start()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            c.send(request("GET", "/api/agents/me", b.token))
            self.assertEqual(c.answer()[0], 200)
        done.set()
        t.join(DEADLINE)
        c.close()
        self.assertEqual(b.stop()[0], 0)

    def test_S2_09_more_clients_than_places(self):
        """256 connections at once; the others wait to be accepted and have their turn."""
        b = Bridge("--transport", "direct")
        cs = [Client(b.port) for _ in range(300)]
        for c in cs:
            c.send(request("GET", "/api/agents/me", b.token))
            self.assertEqual(c.answer()[0], 200)
            c.close()
        self.assertEqual(len(b.api.take()), 300)
        self.assertEqual(b.stop()[0], 0)

    def test_S2_09_a_client_that_does_not_read_is_no_reason_to_wait(self):
        """Its answer waits where it is, in bounded memory; others are served."""
        b = Bridge("--transport", "direct")
        blob = bytes(8 << 20)
        b.api.answer = lambda h, call: h.send(200, blob, [("content-type", "application/octet-stream")])
        (helper,) = b.helpers(b"airlock-bridge")
        cs = [Client(b.port) for _ in range(32)]
        for c in cs:
            c.send(request("GET", "/api/agents/me", b.token))
            self.assertEqual(c.s.recv(4, socket.MSG_PEEK), b"HTTP")
        b.api.answer = api_box.echo
        self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
        with open("/proc/%d/status" % helper, encoding="ascii") as f:
            (peak,) = [int(l.split()[1]) for l in f if l.startswith("VmHWM")]
        self.assertLess(peak, 32 << 10)
        for c in cs:
            c.close()
        self.assertEqual(b.stop()[0], 0)


class Life:
    TRANSPORT = None

    def bridge(self, *words, **kw):
        return Bridge("--transport", self.TRANSPORT, *words, **kw)

    def kill(self, b):
        """The helper; waits until it has let go of its end of the channel."""
        (helper,) = until("the helper", lambda: b.helpers(b"airlock-bridge"))
        os.kill(helper, signal.SIGKILL)
        until("its end", lambda: not alive(helper))

    def test_C10_C14_a_killed_helper_is_replaced_and_nothing_is_lost_or_done_twice(self):
        b = self.bridge()
        b.ask("GET", "/api/agents/warm")
        b.api.take()
        there, first = threading.Semaphore(0), threading.Event()

        def hang(handler, call):
            if first.is_set():
                return api_box.echo(handler, call)
            there.release()
            # Until the helper that asked is gone.
            while handler.connection.recv(1):
                pass
            return False
        b.api.answer = hang
        answers = {}

        def ask(name, *args, **kw):
            answers[name] = b.ask(*args, **kw)
        asking = [threading.Thread(target=ask, args=("post", "POST", COMMENT), kwargs={"headers": [JSON], "body": b"{}"}),
                  threading.Thread(target=ask, args=("get", "GET", "/api/agents/slow"))]
        # An upload that is not whole: its body waits in the gateway, and the request has no effect yet.
        half = Client(b.port)
        half.send(b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"
                  % (COMMENT.encode(), b.token.encode()))
        for t in asking:
            t.start()
        for _ in asking:
            self.assertTrue(there.acquire(timeout=DEADLINE))
        first.set()
        self.kill(b)
        # While nobody is there: it waits, and is sent once.
        later = threading.Thread(target=ask, args=("later", "POST", COMMENT), kwargs={"headers": [JSON], "body": b"later"})
        later.start()
        for t in asking + [later]:
            t.join(DEADLINE)
        status, headers, body = answers["post"]
        self.assertEqual((status, headers.get("x-paperclip-bridge-outcome")), (409, "indeterminate"), body)
        self.assertEqual(answers["get"][0], 200)
        self.assertEqual(answers["later"][0], 200)
        half.send(b"{}")
        self.assertEqual(half.answer()[0], 200)
        half.close()
        calls = b.api.take()
        self.assertEqual(sorted((c["method"], c["body"]) for c in calls),
                         [("GET", b""), ("GET", b""), ("POST", b"later"), ("POST", b"{}"), ("POST", b"{}")])
        code, err = b.stop()
        self.assertEqual(code, 0, err)
        self.assertIn(b"is interrupted", err)
        self.assertIn(b"up again", err)
        self.assertNotIn(KEY.encode(), err)
        # The counts of the one that was killed are not lost: warm, post, get; get again, later, half; the post's 409.
        self.assertRegex(err, rb"[67] requests, 4 forwarded")

    def test_C10_helpers_that_die_again_and_again_are_not_made_for_ever(self):
        b = self.bridge()
        end = time.monotonic() + DEADLINE
        while b.p.poll() is None:
            self.assertLess(time.monotonic(), end)
            for h in b.helpers(b"airlock-bridge"):
                try:
                    os.kill(h, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        _, err = b.p.communicate(timeout=DEADLINE)
        self.assertEqual(b.p.returncode, 125)
        # Whichever is heard first: its end, or the gateway's word on the channel.
        self.assertRegex(err, rb"(airlock-bridge ended|the gateway lost its channel).*; \d new ones ended as well")
        self.assertNotIn(KEY.encode(), err)

    def limited(self, **limits):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
            json.dump({"version": 1, "name": "t", "routes": ["GET,POST /api/{rest...}"], "limits": limits,
                       "identity_headers": {"x-paperclip-run-id": "{run}"}}, f)
        self.addCleanup(os.unlink, f.name)
        return self.bridge("--policy", f.name)

    def test_B12_FR_B115_an_answer_that_stalls_has_an_end(self):
        b = self.limited(request_time="1s", idle_time="1s")
        go = threading.Event()
        self.addCleanup(go.set)

        def stall(handler, call):
            handler.wfile.write(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nhalf")
            handler.wfile.flush()
            go.wait(DEADLINE)
            return False
        b.api.answer = stall
        for method, want in (("GET", 504), ("POST", 409)):
            if method == "POST" or self.TRANSPORT == "queue":
                self.assertEqual(b.ask(method, "/api/x", body=b"{}" if method == "POST" else None)[0], want)
                continue
            # Its head is told already: it is broken off where it can be seen.
            with self.assertRaises((EOFError, OSError)):
                b.ask(method, "/api/x")
        b.api.answer = lambda h, call: go.wait(DEADLINE) and False
        self.assertEqual(b.ask("GET", "/api/x")[0], 504)
        self.assertEqual(b.ask("POST", "/api/x", body=b"{}")[0], 409)
        go.set()
        b.stop()

    def test_C19_two_bridges_have_nothing_in_common(self):
        one, two = self.bridge(), self.bridge()
        for mine, other in ((one, two), (two, one)):
            self.assertEqual(mine.ask("GET", "/api/agents/me")[0], 200)
            self.assertEqual(mine.ask("GET", "/api/agents/me", other.token)[0], 401)
            self.assertEqual((len(mine.api.take()), len(other.api.take())), (1, 0))
        self.assertEqual((one.stop()[0], two.stop()[0]), (0, 0))

    def test_S2_09_a_run_that_floods_is_held_back_while_another_is_served(self):
        """Alone, or asked one at a time, it has no pace; else its policy's, and what is beyond waits and is answered all the same."""
        with tempfile.TemporaryDirectory() as d:
            env = dict(os.environ, XDG_RUNTIME_DIR=d)

            def made(pace, run):
                with open("%s/%d.json" % (d, pace), "w", encoding="ascii") as f:
                    json.dump({"version": 1, "name": "t", "routes": ["GET /api/agents/{id}"], "limits": {"pace": pace},
                               "identity_headers": {"x-paperclip-run-id": "{run}"}}, f)
                return self.bridge("--policy", f.name, "--run-id", run, env=env)

            def flood(b, n, clients):
                """Every other one is refused; that costs as much."""
                t, got = time.monotonic(), []
                cs = [Client(b.port) for _ in range(clients)]
                for _ in range(n // clients):
                    for i, c in enumerate(cs, len(got)):
                        c.send(request("GET", ("/api/agents/a%d", "/api/other/%d")[i % 2] % i, b.token))
                    got += [c.answer()[0] for c in cs]
                for c in cs:
                    c.close()
                self.assertEqual(got, [(200, 403)[i % 2] for i in range(n)])
                return time.monotonic() - t
            loud = made(1, "loud")
            # 64 at once and then one a second: it would take minutes.
            self.assertLess(flood(loud, 240, 8), DEADLINE)
            quiet, other = made(1000000, "quiet"), made(60, "other")
            self.assertEqual(quiet.ask("GET", "/api/agents/me")[0], 200)
            # However fast the machine, several are under way at once; without a pace that takes 0.6 s.
            other.api.answer = lambda h, call: time.sleep(0.02) or api_box.echo(h, call)
            self.assertGreater(flood(other, 240, 8), 1.3)
            self.assertEqual(len(other.api.take()), 120)
            # One at a time is no flood.
            self.assertLess(flood(loud, 200, 1), DEADLINE)
            for b in loud, quiet, other:
                self.assertEqual(b.stop()[0], 0)

    def test_C18_a_taken_port_is_an_error_that_says_so(self):
        b = self.bridge()
        r = subprocess.run([AIRLOCK, "bridge", "--upstream", b.api.url, "--credential-file", b.dir + "/key", "--listen",
                            "127.0.0.1:%d" % b.port], capture_output=True, timeout=DEADLINE, check=False)
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"in use", r.stderr)
        self.assertEqual(b.stop()[0], 0)

    def test_unreachable_api_is_503_nothing_was_sent(self):
        b = self.bridge(upstream="http://127.0.0.1:%d" % api_box.free_port())
        status, headers, _ = b.ask("POST", COMMENT, headers=[JSON], body=b"{}")
        self.assertEqual(status, 503)
        self.assertNotIn("x-paperclip-bridge-outcome", headers)
        b.stop()

    def test_F10_an_origin_only(self):
        for url in "http://127.0.0.1:1/path", "http://u:p@127.0.0.1:1", "ftp://x", "http://0.0.0.0:1", "http://", "http://x:0":
            r = subprocess.run([AIRLOCK, "bridge", "--upstream", url, "--listen", "127.0.0.1:1"], capture_output=True, timeout=DEADLINE,
                               check=False)
            self.assertIn(r.returncode, (2, 125), url)

    def test_confined_before_the_first_request(self):
        if not confined(AIRLOCK):
            self.skipTest("built without confinement")
        b = self.bridge()
        (helper,) = until("the helper", lambda: b.helpers(b"airlock-bridge"))
        status = dict(l.split(b":", 1) for l in look(helper, "status").splitlines() if b":" in l)
        self.assertEqual(status[b"Seccomp"].strip(), b"2")
        self.assertEqual(status[b"NoNewPrivs"].strip(), b"1")
        self.assertEqual(int(status[b"CapEff"], 16), 0)
        self.assertEqual(look(helper, "environ"), b"")
        for p in b.helpers(b"airlock-bridge") + b.helpers(b"airlock-gateway") + [b.p.pid]:
            self.assertNotIn(KEY.encode(), look(p, "cmdline") + look(p, "environ"))
        b.stop()

    def test_policy_file_is_read_again(self):
        with tempfile.TemporaryDirectory() as d:
            path = d + "/p.json"
            policy = {"version": 1, "name": "t", "routes": ["GET /api/agents/{id}"],
                      "identity_headers": {"x-paperclip-run-id": "{run}"}}

            def put(text):
                with open(path + ".new", "w", encoding="ascii") as f:
                    f.write(text)
                os.rename(path + ".new", path)
            put(json.dumps(policy))
            b = self.bridge("--policy", path)
            self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
            self.assertEqual(b.ask("GET", "/api/issues/i")[0], 403)
            policy["routes"] = ["GET /api/issues/{id}"]
            put(json.dumps(policy))
            until("the new policy", lambda: b.ask("GET", "/api/issues/i")[0] == 200)
            self.assertEqual(b.ask("GET", "/api/agents/me")[0], 403)
            # A mistake leaves the policy as it was.
            put("{")
            line = b.p.stderr.readline()
            while b"stays" not in line:
                self.assertTrue(line)
                line = b.p.stderr.readline()
            self.assertEqual(b.ask("GET", "/api/issues/i")[0], 200)
            # A signal reads it again, changed or not.
            b.p.send_signal(signal.SIGHUP)
            self.assertIn(b"stays", b.p.stderr.readline())
            put(json.dumps(policy))
            line = b.p.stderr.readline()
            while b"read again" not in line:
                self.assertTrue(line)
                line = b.p.stderr.readline()
            self.assertIsNone(b.p.poll())
            self.assertEqual(b.stop()[0], 0)


def below(top):
    """Every process below top, by parent links."""
    found, level = [], {top}
    while level:
        level = {p for p in pids() if parent(p) in level}
        found += level
    return found


def named(top, name):
    """Those of that name, without a second process of theirs."""
    found = [c for c in below(top) if look(c, "cmdline").split(b"\0")[0].endswith(name)]
    return [c for c in found if parent(c) not in found]


def memory_has(pid, word):
    """True if the word lies in the process's memory; None if it cannot be read."""
    try:
        with open("/proc/%d/maps" % pid, encoding="ascii", errors="replace") as maps, open("/proc/%d/mem" % pid, "rb") as mem:
            for line in maps:
                f = line.split()
                if "r" not in f[1] or f[-1] in ("[vvar]", "[vsyscall]"):
                    continue
                lo, hi = (int(x, 16) for x in f[0].split("-"))
                try:
                    mem.seek(lo)
                    if word in mem.read(hi - lo):
                        return True
                except OSError:
                    continue
    except OSError:
        return None
    return False


class Runs:
    TRANSPORT, MODE = None, None
    PROVIDERS = "native", "local"
    VICTIMS = b"airlock-bridge",

    def setUp(self):
        self.api = api_box.Server()
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-bridge-run.", {"a.txt": b"a\n"})
        with open(self.host.top + "/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        self.words = ["--api", self.api.url, "--api-key-file", self.host.top + "/key", "--api-transport", self.TRANSPORT]

    def tearDown(self):
        self.host.remove()
        self.api.shutdown()
        self.api.server_close()

    SCRIPT = ('python3 -c \'import os,urllib.request as u; r=u.Request(os.environ["PAPERCLIP_API_URL"]+"/api/agents/me",'
              'headers={"authorization":"Bearer "+os.environ["PAPERCLIP_API_KEY"]}); print(u.urlopen(r,timeout=60).read().decode())\'')

    def test_B03_S2_03_a_command_calls_the_api(self):
        for provider in self.PROVIDERS:
            with self.subTest(provider):
                r = self.host.airlock("run", "--provider", provider, "--json=" + self.host.top + "/rec", *self.words, "--",
                                      self.SCRIPT + "; env | sort > vars")
                self.assertEqual(r.returncode, 0, r.stderr)
                got = json.loads(r.stdout)
                self.assertEqual(got["target"], "/api/agents/me")
                with open(self.host.top + "/rec", encoding="utf-8") as f:
                    rec = json.load(f)
                self.assertEqual(dict(got["headers"])["x-paperclip-run-id"], rec["run"])
                self.assertEqual(rec["bridge"]["requests"], 1)
                self.assertEqual(rec["bridge"]["forwarded"], 1)
                self.assertIsNone(rec["bridge"]["lost"])
                self.assertIn("bridge", [p["name"] for p in rec["phases"]])
                # S2: each decision is a line, and no line holds a secret or what the sandbox chose.
                with open("%s/runs/%s/audit.jsonl" % (self.host.state, rec["run"]), encoding="utf-8") as f:
                    (line,) = [json.loads(l) for l in f]
                self.assertEqual((line["run"], line["transport"], line["method"], line["status"], line["rule"]),
                                 (rec["run"], self.TRANSPORT, "GET", 200, "allow"))
                self.assertNotIn("agents/me?", str(line))
                shown = self.host.airlock("audit", rec["run"])
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn(b"200", shown.stdout)
                env = dict(l.split("=", 1) for l in self.host.read("vars").decode().splitlines() if "=" in l)
                self.assertEqual((env["PAPERCLIP_API_BRIDGE_MODE"], env["PAPERCLIP_RUN_ID"]), (self.MODE, rec["run"]))
                self.assertRegex(env["PAPERCLIP_API_URL"], r"^http://127\.0\.0\.1:\d+$")
                self.assertNotIn(KEY, str(env))

    def test_run_id_of_the_api(self):
        r = self.host.airlock("run", *self.words, "--api-run-id", "0b7a7e0e-1", "--", self.SCRIPT + "; echo $PAPERCLIP_RUN_ID >&2")
        self.assertEqual(dict(json.loads(r.stdout)["headers"])["x-paperclip-run-id"], "0b7a7e0e-1")
        self.assertIn(b"0b7a7e0e-1\n", r.stderr)

    def test_B03_without_api_there_is_no_way(self):
        r = self.host.airlock("run", "--", "test -z \"$PAPERCLIP_API_URL\" && ! python3 -c 'import socket; "
                              "socket.create_connection((\"127.0.0.1\", %d), 5)'" % self.api.server_address[1])
        self.assertEqual(r.returncode, 0, r.stderr)
        # With the bridge neither: the API's own address is another machine's.
        r = self.host.airlock("run", *self.words, "--", "! python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d), 5)'"
                              % self.api.server_address[1])
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_S2_03_the_key_is_nowhere_inside(self):
        """Environment, arguments, memory and files of every process of the sandbox, and all that is kept of the run."""
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--", self.SCRIPT + "; echo up; cat"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
        self.addCleanup(p.kill)
        while p.stdout.readline().strip() != b"up":
            self.assertIsNone(p.poll())
        (launch,) = [c for c in below(p.pid) if look(c, "cmdline").split(b"\0")[0].endswith(b"airlock-launch")]
        inside = until("the command", lambda: [c for c in below(launch) if look(c, "cmdline").startswith(b"cat")]) and below(launch)
        self.assertEqual(any(look(c, "cmdline").split(b"\0")[0].endswith(b"airlock-gateway") for c in inside), b"airlock-gateway" in self.VICTIMS)
        token = [l for c in inside for l in look(c, "environ").split(b"\0") if l.startswith(b"PAPERCLIP_API_KEY=")]
        readable = found = 0
        for c in inside:
            self.assertNotIn(KEY.encode(), look(c, "environ") + look(c, "cmdline"))
            has = memory_has(c, KEY.encode())
            self.assertIsNot(has, True, look(c, "cmdline"))
            readable += has is False
            # The search finds what is there: the bridge token.
            found += bool(token) and memory_has(c, token[0].split(b"=", 1)[1]) is True
        if os.geteuid() == 0:
            self.assertGreater(readable, 0)
            self.assertGreater(found, 0)
        p.stdin.close()
        err = p.stderr.read()
        self.assertEqual(p.wait(DEADLINE), 0, err)
        p.stdout.close()
        p.stderr.close()
        self.assertNotIn(KEY.encode(), err)
        for here, _, files in os.walk(self.host.top):
            for f in files:
                path = os.path.join(here, f)
                if f == "key" or not os.path.isfile(path):
                    continue
                with open(path, "rb") as h:
                    self.assertNotIn(KEY.encode(), h.read(), path)

    def test_FR_B164_a_killed_bridge_does_not_cost_the_run(self):
        for victim in self.VICTIMS:
            said, summary = b"up again", b"started again 1 time"
            with self.subTest(victim):
                p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--", "echo up; cat; echo done > out"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws,
                                     env=self.host.env)
                self.assertEqual(p.stdout.readline().strip(), b"up")
                (v,) = named(p.pid, victim)
                os.kill(v, signal.SIGKILL)
                line = p.stderr.readline()
                while said not in line:
                    self.assertTrue(line)
                    line = p.stderr.readline()
                _, err = p.communicate(timeout=DEADLINE)
                self.assertEqual(p.returncode, 0, err)
                self.assertIn(summary, err)
                self.assertEqual(self.host.read("out"), b"done\n")
                until("no process left", lambda: not self.host.left())

    def test_B10_a_helper_killed_at_the_end_takes_no_decision_with_it(self):
        """It hangs when the run ends, and is killed; lines are gathered for longer than it had."""
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--json=" + self.host.top + "/rec", "--", self.ASK],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"up\n")
        (v,) = named(p.pid, b"airlock-bridge")
        for _ in range(3):
            p.stdin.write(b"/api/agents/me\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), b"200\n")
        os.kill(v, signal.SIGSTOP)
        p.stdin.close()
        p.stdin = None
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 0, err)
        with open(self.host.top + "/rec", encoding="utf-8") as f:
            rec = json.load(f)
        self.assertEqual((rec["bridge"]["requests"], rec["bridge"]["forwarded"], rec["bridge"]["audit_lost"]), (3, 3, 0))
        with open("%s/runs/%s/audit.jsonl" % (self.host.state, rec["run"]), encoding="utf-8") as f:
            self.assertEqual([(l["method"], l["rule"]) for l in map(json.loads, filter(str.strip, f))], [("GET", "allow")] * 3)

    ASK = ('python3 -uc \'\nimport os,sys,urllib.request as u,urllib.error\nprint("up")\nfor line in sys.stdin:\n try:\n  '
           'r=u.Request(os.environ["PAPERCLIP_API_URL"]+line.strip(),headers={"authorization":"Bearer "+os.environ["PAPERCLIP_API_KEY"]})\n  '
           'print(u.urlopen(r,timeout=60).status)\n except urllib.error.HTTPError as e: print(e.code)\n\'')

    def test_S2_04_a_changed_policy_counts_within_the_run(self):
        path = self.host.top + "/p.json"
        policy = {"version": 1, "name": "t", "routes": ["GET /api/agents/{id}"], "identity_headers": {"x-paperclip-run-id": "{run}"}}

        def put(text):
            with open(path + ".new", "w", encoding="ascii") as f:
                f.write(text)
            os.rename(path + ".new", path)
        put(json.dumps(policy))
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--policy", path, "--", self.ASK], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
        self.addCleanup(p.kill)

        def ask(target):
            p.stdin.write(target + b"\n")
            p.stdin.flush()
            return int(p.stdout.readline())
        self.assertEqual(p.stdout.readline(), b"up\n")
        self.assertEqual((ask(b"/api/agents/me"), ask(b"/api/issues/i")), (200, 403))
        policy["routes"] = ["GET /api/issues/{id}"]
        put(json.dumps(policy))
        until("the new policy", lambda: ask(b"/api/issues/i") == 200)
        self.assertEqual(ask(b"/api/agents/me"), 403)
        # A mistake leaves it as it was, and is told.
        put("{")
        line = p.stderr.readline()
        while b"stays as it was" not in line:
            self.assertTrue(line)
            line = p.stderr.readline()
        self.assertEqual(ask(b"/api/issues/i"), 200)
        p.stdin.close()
        p.stdin = None
        _, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 0, err)

    def test_killed_airlock_leaves_no_bridge(self):
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--", "echo up; cat"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.host.ws, env=self.host.env)
        self.assertEqual(p.stdout.readline().strip(), b"up")
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()
        until("no process left", lambda: not self.host.left())

    def test_A07_the_run_is_over_and_its_token_opens_nothing(self):
        """FR-B165. A kept sandbox: the next command has another token, and without --api no bridge at all."""
        r = self.host.airlock("run", "--keep", *self.words, "--", "echo $PAPERCLIP_API_URL $PAPERCLIP_API_KEY")
        url, token = r.stdout.decode().split()
        run = self.host.rows()[0]["run"]
        r = self.host.airlock("exec", *self.words, run, "--", "echo $PAPERCLIP_API_KEY; " + self.SCRIPT)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotEqual(r.stdout.decode().split()[0], token)
        r = self.host.airlock("exec", run, "--", "test -z \"$PAPERCLIP_API_URL\" && ! python3 -c 'import urllib.request as u; "
                              "u.urlopen(u.Request(\"%s/api/agents/me\", headers={\"authorization\": \"Bearer %s\"}), timeout=60)'" % (url, token))
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_no_call_is_said_FR_B064(self):
        r = self.host.airlock("run", *self.words, "--", "true")
        self.assertIn(b"no request was made", r.stderr)


class GatewayRuns(Runs):
    VICTIMS = b"airlock-bridge", b"airlock-gateway"

    # Kills whatever listens for it, then asks again until it is heard.
    KILL = ('''python3 -uc '
import glob,os,signal,sys,time,urllib.request as u,urllib.error
def ask():
 r=u.Request(os.environ["PAPERCLIP_API_URL"]+"/api/agents/me",headers={"authorization":"Bearer "+os.environ["PAPERCLIP_API_KEY"]})
 try: return u.urlopen(r,timeout=60).status
 except urllib.error.HTTPError as e: return e.code
 except OSError: return 0
def gateways():
 for d in glob.glob("/proc/[0-9]*"):
  try:
   if open(d+"/cmdline","rb").read().split(b"\\0")[0].endswith(b"airlock-gateway"): yield int(d[6:])
  except OSError: pass
print(ask())
for i in range(int(sys.argv[1])):
 end=time.monotonic()+60
 while time.monotonic()<end and not list(gateways()): time.sleep(.02)
 for p in gateways(): os.kill(p,signal.SIGKILL)
 while ask()!=200:
  if time.monotonic()>end: sys.exit(3)
  time.sleep(.02)
print(ask())
' ''')

    def test_FR_B164_C10_an_agent_that_kills_the_gateway_gets_another(self):
        r = self.host.airlock("run", *self.words, "--", self.KILL + "2")
        self.assertEqual((r.returncode, r.stdout), (0, b"200\n200\n"), r.stderr)
        self.assertIn(b"the gateway in the sandbox ended", r.stderr)
        # The second may come before the first was up again.
        self.assertRegex(r.stderr, rb"started again [12] time")
        self.assertEqual(len(self.api.take()), 4)

    def test_C10_gateways_that_die_again_and_again_are_not_made_for_ever(self):
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--", "echo up; cat"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"up\n")
        lost = threading.Event()
        err = []

        def listen():
            for line in p.stderr:
                err.append(line)
                if b"bridge is lost" in line:
                    lost.set()
        t = threading.Thread(target=listen)
        t.start()
        end, killed = time.monotonic() + DEADLINE, set()
        while not lost.is_set():
            self.assertLess(time.monotonic(), end, err)
            for c in below(p.pid):
                if look(c, "cmdline").split(b"\0")[0].endswith(b"airlock-gateway"):
                    killed.add(c)
                    try:
                        os.kill(c, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            lost.wait(0.02)
        p.stdin.close()
        t.join(DEADLINE)
        self.assertEqual(p.wait(DEADLINE), 0, err)
        p.stdout.close()
        p.stderr.close()
        self.assertLessEqual(len(killed), 7)
        self.assertIn(b"LOST during the run: the gateway in the sandbox ended", b"".join(err))


class LifeHttp2(Life, unittest.TestCase):
    TRANSPORT = "http2"

    def test_B08_slow_uploads_are_cut_off_and_others_are_served(self):
        b = self.limited(idle_time="1s", upload_time="2s")
        head = b"POST /api/x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-length: 1000\r\n\r\n" % b.token.encode()
        silent, trickle = Client(b.port), Client(b.port)
        silent.send(head + b"a")
        trickle.send(head)
        stop = threading.Event()

        def drip():
            try:
                while not stop.wait(0.2):
                    trickle.send(b"a")
            except OSError:
                pass
        t = threading.Thread(target=drip)
        t.start()
        self.assertEqual(b.ask("GET", "/api/y")[0], 200)
        self.assertEqual(silent.answer()[0], 408)
        self.assertEqual(trickle.answer()[0], 408)
        stop.set()
        t.join()
        self.assertEqual([c["method"] for c in b.api.take()], ["GET"])
        b.stop()


class LifeDirect(LifeHttp2):
    TRANSPORT = "direct"

    def test_C10_C14_a_killed_helper_is_replaced_and_nothing_is_lost_or_done_twice(self):
        """Whoever it had accepted hears what is true of his request; what had only connected is served by the next."""
        b = self.bridge()
        there = threading.Semaphore(0)

        def hang(handler, call):
            if call["target"].endswith("/warm"):
                return api_box.echo(handler, call)
            if call["target"].endswith("/long"):
                handler.wfile.write(b"HTTP/1.1 200 X\r\ncontent-length: 99999\r\n\r\n" + b"z" * 40000)
                handler.wfile.flush()
            there.release()
            return handler.connection.recv(1) and False
        b.api.answer = hang
        post, get, half, long, idle = (Client(b.port) for _ in range(5))
        # Connections that have served before: for these a client sends again without a word.
        for c in post, get, half, long, idle:
            c.send(request("GET", "/api/agents/warm", b.token))
            self.assertEqual(c.answer()[0], 200)
        post.send(request("POST", COMMENT, b.token, [JSON], b"{}"))
        get.send(request("GET", "/api/agents/slow", b.token))
        long.send(request("GET", "/api/agents/long", b.token))
        half.send(b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{"
                  % (COMMENT.encode(), b.token.encode()))
        for _ in range(3):
            self.assertTrue(there.acquire(timeout=DEADLINE))
        while b"zz" not in long.buf:
            long.fill()
        self.asked(b, half)
        (helper,) = b.helpers(b"airlock-bridge")
        os.kill(helper, signal.SIGSTOP)
        later = Client(b.port)
        later.send(request("POST", COMMENT, b.token, [JSON], b"later"))
        b.api.answer = api_box.echo
        self.kill(b)
        status, headers, body = post.answer()
        self.assertEqual((status, headers.get("x-paperclip-bridge-outcome"), headers["connection"]), (409, "indeterminate", "close"))
        self.assertEqual(json.loads(body)["retryable"], False)
        self.assertEqual([c.answer()[0] for c in (get, half)], [502, 503])
        with self.assertRaises(ConnectionResetError):
            long.answer()
        self.assertEqual(idle.s.recv(1), b"")
        self.assertEqual(later.answer()[0], 200)
        self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
        self.assertEqual(sorted((c["method"], c["target"][-4:], c["body"]) for c in b.api.take() if c["target"][-4:] != "warm"),
                         [("GET", "long", b""), ("GET", "s/me", b""), ("GET", "slow", b""), ("POST", "ents", b"later"), ("POST", "ents", b"{}")])
        for c in post, get, half, long, idle, later:
            c.close()
        code, err = b.stop()
        self.assertEqual(code, 0, err)
        self.assertIn(b"is interrupted", err)
        self.assertIn(b"up again", err)
        self.assertRegex(err, rb"11 requests, 7 forwarded")

    def asked(self, b, c):
        """Until it has read what c sent: there is nothing left in the socket at the other end."""
        port = c.s.getsockname()[1]

        def read():
            with open("/proc/net/tcp", encoding="ascii") as f:
                rows = [l.split() for l in f][1:]
            return [r for r in rows if r[2].endswith(":%04X" % port) and r[4].endswith(":00000000")]
        until("it to read", read)

    @unittest.skipUnless(shutil.which("curl"), "there is no curl here")
    def test_C10_curl_does_not_send_a_post_again(self):
        """It does, when a connection that has served before ends without a byte."""
        b = self.bridge()
        there = threading.Event()

        def once(handler, call):
            if call["body"] == b"one":
                return api_box.echo(handler, call)
            there.set()
            return handler.connection.recv(1) and False
        b.api.answer = once
        url, words = b.url.split("=", 1)[1] + COMMENT, ["-sS", "-m", "60", "-H", "authorization: Bearer " + b.token, "-H", "content-type: application/json"]
        p = subprocess.Popen(["curl", *words, "-o", "/dev/null", "-d", "one", url, "--next", *words, "-i", "-d", "two", url], stdout=subprocess.PIPE)
        self.assertTrue(there.wait(DEADLINE))
        self.kill(b)
        out = p.communicate(timeout=DEADLINE)[0]
        self.assertRegex(out, rb"^HTTP/1.1 409 (?s:.*)x-paperclip-bridge-outcome: indeterminate")
        self.assertEqual([c["body"] for c in b.api.take()], [b"one", b"two"])
        self.assertEqual(b.stop()[0], 0)

    def test_C10_its_second_process_ends_with_it(self):
        b = self.bridge()
        (helper,) = b.helpers(b"airlock-bridge")

        def second(of):
            found = [p for p in pids() if parent(p) == of]
            return found if found and look(found[0], "comm").startswith(b"airlock-last") else None
        (first,) = until("the second process", lambda: second(helper))
        # Somebody else's signal is no end of the first.
        os.kill(first, signal.SIGTERM)
        self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
        self.assertNotIn(KEY.encode(), look(first, "environ"))
        self.kill(b)
        until("its end", lambda: not alive(first))
        (helper,) = until("the next", lambda: b.helpers(b"airlock-bridge"))
        (first,) = until("its second process", lambda: second(helper))
        # Without it all goes on.
        os.kill(first, signal.SIGKILL)
        self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
        self.assertEqual(b.stop()[0], 0)


class LifeQueue(Life, unittest.TestCase):
    TRANSPORT = "queue"

    def test_Q_what_a_killed_bridge_left_goes_with_the_next(self):
        """Only that: not a living one's, a young one, or what is no queue of ours."""
        place = scratch.directory(prefix="airlock-queues-")
        env = dict(os.environ, XDG_RUNTIME_DIR=place)

        def queues():
            return {n for n in os.listdir(place) if n.startswith(".airlock-queue-")}

        def age(name):
            os.utime(place + "/" + name, (1, 1))
        living = Bridge("--transport", "queue", env=env)
        (alive_one,) = queues()
        age(alive_one)
        killed = Bridge("--transport", "queue", env=env)
        (left,) = queues() - {alive_one}
        helpers = killed.helpers(b"airlock-bridge") + killed.helpers(b"airlock-gateway")
        killed.p.kill()
        # The gateway would go on saying for a minute that nobody answers any more.
        for p in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(p, signal.SIGKILL)
        killed.stop()
        until("its helpers to end", lambda: not any(alive(p) for p in helpers))
        os.symlink("/etc", place + "/.airlock-queue-link")
        Bridge("--transport", "queue", env=env).stop()
        self.assertEqual(queues(), {alive_one, left, ".airlock-queue-link"})
        age(left)
        Bridge("--transport", "queue", env=env).stop()
        self.assertEqual(queues(), {alive_one, ".airlock-queue-link"})
        self.assertEqual(living.ask("GET", "/api/agents/me")[0], 200)
        living.stop()
        self.assertEqual(queues(), {".airlock-queue-link"})


class RunsHttp2(GatewayRuns, unittest.TestCase):
    TRANSPORT, MODE = "http2", "http2_v1"


class RunsDirect(Runs, unittest.TestCase):
    TRANSPORT, MODE = "direct", "direct_v1"

    def test_it_is_the_way_of_a_sandbox_with_a_network_of_its_own(self):
        """And only there; where it is asked for by name and cannot be had, that is said."""
        words = self.words[:self.words.index("--api-transport")]
        for net, mode in ("none", b"direct_v1"), ("host", b"http2_v1"):
            r = self.host.airlock("run", "--net", net, *words, "--", "echo $PAPERCLIP_API_BRIDGE_MODE")
            self.assertEqual((r.returncode, r.stdout.strip()), (0, mode), r.stderr)
        r = self.host.airlock("run", "--net", "host", *self.words, "--", "true")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"no network of its own", r.stderr)

    def test_C19_commands_of_a_kept_sandbox_have_a_listener_each_and_leave_none(self):
        """Two at once, each with its own token; one whose airlock is killed leaves nobody who listens, and its socket is used again."""
        port = "import os; print(os.environ['PAPERCLIP_API_URL'].rsplit(':', 1)[1], os.environ['PAPERCLIP_API_KEY'])"
        r = self.host.airlock("run", "--keep", *self.words, "--", 'python3 -c "%s"; %s' % (port, self.SCRIPT))
        self.assertEqual(r.returncode, 0, r.stderr)
        run = self.host.rows()[0]["run"]
        ps = [subprocess.Popen([self.host.bin + "/airlock", "exec", *self.words, run, "--", 'python3 -uc "%s"; cat; ' % port + self.SCRIPT],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
              for _ in range(2)]
        where = [p.stdout.readline().split() for p in ps]
        self.assertEqual(len({tuple(w) for w in where}), 2)
        self.assertNotEqual(where[0][1], where[1][1])
        for p in ps[1:]:
            out, err = p.communicate(timeout=DEADLINE)
            self.assertEqual((p.returncode, json.loads(out)["target"]), (0, "/api/agents/me"), err)
        ps[0].kill()
        ps[0].communicate()
        # Nobody listens there any more, and nobody waits for one that could.
        gone = "import socket,sys,time\nend=time.monotonic()+60\nwhile time.monotonic()<end:\n try: socket.create_connection((\"127.0.0.1\",%d),60).close()\n " \
               "except ConnectionRefusedError: sys.exit(0)\n time.sleep(.02)\nsys.exit(3)"
        for w in where:
            r = self.host.airlock("exec", run, "--", "python3 -c '%s'" % (gone % int(w[0])))
            self.assertEqual(r.returncode, 0, r.stderr)
        for _ in range(20):
            r = self.host.airlock("exec", *self.words, run, "--", "echo $PAPERCLIP_API_BRIDGE_MODE")
            self.assertEqual((r.returncode, r.stdout.strip()), (0, b"direct_v1"), r.stderr)


    def test_C19_more_bridges_than_a_kept_sandbox_has_sockets(self):
        """Sixteen at once, whoever's; what comes after takes the gateway, and where the direct way was asked for that is an error."""
        plain = self.words[:self.words.index("--api-transport")]
        named = [w for i in range(8) for w in ("--upstream", "u%d=%s,policy=paperclip,credential-file=%s/key" % (i, self.api.url, self.host.top))]
        show = r"""python3 -uc 'import os,sys,urllib.request as u
for n in ["PAPERCLIP_API_URL PAPERCLIP_API_KEY"]+["AIRLOCK_UPSTREAM_U%d_URL AIRLOCK_UPSTREAM_U%d_TOKEN"%(i,i) for i in range(8)]:
 a,t=n.split()
 r=u.Request(os.environ[a]+"/api/agents/me",headers={"authorization":"Bearer "+os.environ[t]})
 assert u.urlopen(r,timeout=60).status==200
print(os.environ["PAPERCLIP_API_BRIDGE_MODE"])
sys.stdin.read()'"""
        r = self.host.airlock("run", "--keep", *plain, "--", "true")
        self.assertEqual(r.returncode, 0, r.stderr)
        run = self.host.rows()[0]["run"]

        def hold(*words):
            p = subprocess.Popen([self.host.bin + "/airlock", "exec", *words, run, "--", show], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, cwd=self.host.ws, env=self.host.env)
            line = p.stdout.readline().strip()
            self.assertTrue(line, line or p.communicate(timeout=DEADLINE))
            return p, line
        # Nine, then seven and two of the others: all of them are served.
        ps = [hold(*plain, *named) for _ in range(2)]
        self.assertEqual([m for _, m in ps], [b"direct_v1", b"direct_v1"])
        r = self.host.airlock("exec", *plain, run, "--", self.SCRIPT + "; echo $PAPERCLIP_API_BRIDGE_MODE")
        self.assertEqual((r.returncode, r.stdout.split()[-1]), (0, b"http2_v1"), r.stderr)
        r = self.host.airlock("exec", *self.words, run, "--", "true")
        self.assertEqual(r.returncode, 125)
        self.assertRegex(r.stderr, b"16 bridges at once.*--api-transport")
        for p, _ in ps:
            out, err = p.communicate(timeout=DEADLINE)
            self.assertEqual(p.returncode, 0, err)
        # They come back.
        r = self.host.airlock("exec", *self.words, run, "--", "echo $PAPERCLIP_API_BRIDGE_MODE")
        self.assertEqual((r.returncode, r.stdout.strip()), (0, b"direct_v1"), r.stderr)


class RunsQueue(GatewayRuns, unittest.TestCase):
    TRANSPORT, MODE = "queue", "queue_v2"


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
