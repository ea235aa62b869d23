#!/usr/bin/env python3
"""A hostile sandbox writes files by hand into the queue of airlock-bridge, and a hostile neighbour answers in its place (B-04, S2-01..S2-10).

usage: test_bridge_queue.py DIRECTORY_OF_PROGRAMS [TEST...]
Each test's name carries the cases of the bridge that it shows.
"""
import base64
import json
import os
import resource
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
from bridge_box import READY, Host  # noqa: E402
from run_box import DEADLINE, confined, until  # noqa: E402
import scratch  # noqa: E402

PROGRAMS = os.path.realpath(sys.argv[1])
BODY_MAX = 10485760 + 65536
QUEUE_BODY_MAX = 16 << 20
COMMENT = "/api/issues/i1/comments"
JSON = {"content-type": "application/json"}


class Queue:
    """The directory, and helpers on it one after the other."""

    def __init__(self, api, leftovers=(), **kw):
        self.api, self.kw = api, kw
        self.dir = scratch.directory(prefix="airlock-queue-test.")
        for d in "requests", "responses", "claims":
            os.mkdir(self.dir + "/" + d, 0o700)
        for name, data in leftovers:
            self.put(name, data)
        self.fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        self.shared = os.memfd_create("shared")
        os.ftruncate(self.shared, 2 << 20)
        self.seq, self.token = time.monotonic_ns(), None
        self.start()

    def start(self):
        self.host = Host(PROGRAMS, self.api.url, queue=self.fd, shared=self.shared, token=self.token, **self.kw)
        self.token = self.host.token
        self.host.expect(READY)

    def kill(self):
        self.host.p.kill()
        self.host.p.wait(DEADLINE)
        self.host.close()

    def close(self):
        self.host.close()
        os.close(self.fd)
        os.close(self.shared)
        shutil.rmtree(self.dir, ignore_errors=True)

    def new_id(self):
        self.seq += 1
        return "%016x-%s" % (self.seq, os.urandom(8).hex())

    def path(self, ident, where="requests"):
        return "%s/%s/%s.json" % (self.dir, where, ident)

    def put(self, name, data):
        """As the gateway does."""
        draft = "%s/requests/.draft" % self.dir
        with open(draft, "wb") as f:
            f.write(data)
        os.rename(draft, "%s/requests/%s" % (self.dir, name))

    def envelope(self, ident, method="GET", path="/api/agents/me", headers=(), auth=..., bearer=..., body=None, **more):
        h = dict(headers)
        if bearer is not None:
            h["authorization"] = "Bearer " + (self.token if bearer is ... else bearer)
        path, mark, query = path.partition("?")
        out = {"version": 2, "id": ident, "auth": self.token if auth is ... else auth, "method": method, "path": path, "query": mark + query, "headers": h}
        if body is not None:
            out.update(bodyEncoding="base64", body=base64.b64encode(body).decode())
        out.update(more)
        return {k: v for k, v in out.items() if v is not None}

    def send(self, *args, raw=None, name=None, **kw):
        ident = name or self.new_id()
        data = raw if raw is not None else json.dumps(self.envelope(ident, *args, **kw)).encode()
        self.put(ident + ".json", data)
        return ident

    def answer(self, ident, keep=False):
        """(status, headers, body, auth), when it is there."""
        p = self.path(ident, "responses")
        until("an answer", lambda: os.path.exists(p))
        with open(p, "rb") as f:
            a = json.load(f)
        if not keep:
            os.unlink(p)
        if a["id"] != ident or a["version"] != 2:
            raise AssertionError(a)
        return a["status"], a["headers"], base64.b64decode(a["body"]), a["auth"]

    def ask(self, *args, **kw):
        return self.answer(self.send(*args, **kw))

    def gone(self, name):
        return until("the host to clear it away", lambda: not os.path.lexists("%s/requests/%s" % (self.dir, name)))


class Box(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = api_box.Server()

    @classmethod
    def tearDownClass(cls):
        cls.api.shutdown()
        cls.api.server_close()

    def setUp(self):
        self.api.answer = api_box.echo
        self.api.take()


class Files(Box):
    def setUp(self):
        super().setUp()
        self.q = Queue(self.api)
        self.addCleanup(self.q.close)

    def refused(self, answer, *statuses):
        self.assertIn(answer[0], statuses, answer)
        self.assertIn("x-airlock-bridge", answer[1])
        self.assertIn("error", json.loads(answer[2]))
        self.assertEqual(self.api.take(), [])

    def goes_on(self):
        status, _, body, auth = self.q.ask()
        self.assertEqual((status, auth), (200, self.q.token))
        self.assertEqual(json.loads(body)["target"], "/api/agents/me")
        self.assertEqual(len(self.api.take()), 1)

    def test_S2_01_A01_A02_A06_A11_the_token_is_checked_here(self):
        """Whoever can write a file is nobody yet; and what was asked with comes back, so that asking teaches nothing."""
        other = Queue(self.api)
        self.addCleanup(other.close)
        t = self.q.token
        for bad in (None, "", t[:-1], t + "x", t + " ", t[:-1] + ("A" if t[-1] != "A" else "B"), other.token):
            a = self.q.ask(auth=bad)
            self.refused(a, 401)
            self.assertEqual(a[3], bad or "")
            a = self.q.ask("DELETE", "//x", auth=bad)
            self.refused(a, 401)
        for bad in None, "", "x", other.token:
            self.refused(self.q.ask(bearer=bad), 401)
        for value in "bearer " + t, "Bearer  " + t, "Basic " + t, t:
            self.refused(self.q.ask(bearer=None, headers={"authorization": value}), 401)
        self.goes_on()

    def test_A05_two_authorization_headers(self):
        good, bad = "Bearer " + self.q.token, "Bearer x"
        for pair in ([good, bad], [bad, good], [good, good]):
            self.refused(self.q.ask(bearer=None, headers={"authorization": pair}), 401)
        self.refused(self.q.ask(bearer=None, headers={"authorization": good, "Authorization": bad}), 401)
        # What is passed on is there once.
        self.refused(self.q.ask(headers={"accept": ["a", "b"]}), 400)
        self.assertEqual(self.q.ask(headers={"cookie": ["a=b", "c=d"]})[0], 200)

    def test_A13_what_lay_there_before_the_run_is_nobody_s(self):
        old = {"version": 2, "method": "POST", "path": COMMENT, "headers": {}}
        q = Queue(self.api, leftovers=[("%016x-%016x.json" % (i, i), json.dumps(old).encode()) for i in range(5)] + [("x", b"y")])
        self.addCleanup(q.close)
        self.assertEqual(os.listdir(q.dir + "/requests"), [])
        self.assertEqual(q.ask()[0], 200)
        self.assertEqual(len(self.api.take()), 1)
        self.assertEqual(os.listdir(q.dir + "/responses"), [])

    def test_S2_04_P02_to_P24_other_spellings(self):
        """P04 P05 P06 P08 P09 P10 P12 P13 P14 P16 P18 P21 P22."""
        for p in ("/api/companies/../agents", "/api/./agents/me", "/api/agents/.", "/api/agents/..\\..\\api\\companies\\c1\\secrets", "/api/agents/%5c..%5c..",
                  "/api%2fagents/me", "/api/agents/a%2f..%2fb", "//evil/api/agents/me", "/api//agents/me", "/api/agents/me/", "http://evil/api/agents/me",
                  "https:/x", "*", "me", "", "/api/agents/me;x=1", "/api/agents/..;/x", "/api/agents/a\tb", "/api/agents/a\nb", "/api/agents/a b",
                  "/api/agents/\x7f", "/api/companies/.\t./agents", "/api/agents/%0d%0aX:y", "/api/agents/%09", "/api/agents/é", "/api/agents/%c0%ae%c0%ae",
                  "/api/agents/%ff", "/api/agents/me#x", "/api/agents/me?a\rb", "/api/agents/me?a#b", "/api/agents/me?a\\b"):
            self.refused(self.q.ask(path=p), 400)
        self.refused(self.q.ask("POST", "/api/issues/..\\..\\api\\companies\\c1\\agents?/comments"), 400)
        self.refused(self.q.ask("POST", "/api/issues/..\\..\\x#/comments"), 400)
        self.refused(self.q.ask(path="/API/agents/me"), 403)
        self.refused(self.q.ask(path="/api/agents/" + "x" * 2048), 414)
        self.refused(self.q.ask(path="/api/agents/me?" + "x" * 8193), 414)
        for good in "/api/agents/%C3%A9", "/api/companies/c/issues?status=a%2Fb&u=http://x":
            self.assertEqual(self.q.ask(path=good)[0], 200)
            self.assertEqual(self.api.take()[0]["target"], good)

    def test_P17_P26_M05_M06_H16_Q07_what_is_no_envelope(self):
        good = lambda **kw: self.q.envelope(self.q.new_id(), **kw)
        for change in ({"path": "/api/issues/i?/comments"}, {"path": ["/api/agents/me"]}, {"path": 1}, {"path": None}, {"path": {}}, {"query": 1},
                       {"query": "a=b"}, {"method": None}, {"method": 7}, {"method": ["GET"]}, {"headers": None}, {"headers": []},
                       {"headers": {"a": 1}}, {"headers": {"a": ["b"]}}, {"extra": 1}, {"version": 1}, {"version": "2"}, {"id": "x"}):
            e = good()
            ident = e["id"]
            e.update(change)
            a = self.q.ask(raw=json.dumps({k: v for k, v in e.items() if v is not None or k == "headers"}).encode(), name=ident)
            self.refused(a, 400)
            self.assertEqual(a[3], "")
        ident = self.q.new_id()
        text = json.dumps(self.q.envelope(ident))
        for raw in (text[:-1] + ',"path":"/b"}', text[:-1] + ',"__proto__":{}}', text + "x", "\ufeff" + text, text.replace("{}", "NaN") + "NaN",
                    "[" * 100000, "", text[:40], text.replace('"GET"', '"G\\u0000T"')):
            ident = self.q.new_id()
            self.refused(self.q.ask(raw=raw.encode(), name=ident), 400)
        for m in "get", " GET", "GET\t", "GET / HTTP/1.1", "X" * 1000, "TRACE", "OPTIONS":
            self.refused(self.q.ask(m), 400, 403)
        self.assertEqual(self.q.ask("HEAD")[0], 403)
        self.goes_on()

    def test_S2_05_S2_06_H01_H02_H04_H05_H06_H12_H14_headers(self):
        sneaky = {"cookie": "a=b", "x-forwarded-host": "e", "x-paperclip-tool-gateway-token": "t", "origin": "x", "range": "bytes=0-1", "connection": "close",
                  "X-Paperclip-Run-Id": "other", "x-http-method-override": "DELETE", "transfer-encoding": "chunked", "content-length": "5", "expect": "x",
                  "upgrade": "x", "te": "x", "trailer": "x", "host": "evil", "x-paperclip-github-capability": "c", "accept": "text/plain"}
        self.assertEqual(self.q.ask(headers=sneaky)[0], 200)
        (call,) = self.api.take()
        self.assertEqual(sorted(n for n, _ in call["headers"]), ["accept", "authorization", "host", "x-paperclip-run-id"])
        got = dict(call["headers"])
        self.assertEqual((got["authorization"], got["x-paperclip-run-id"]), ("Bearer " + api_box.KEY, "run-1"))
        for name, value in (("accept", "a\r\nx-evil: 1"), ("accept", "a\nb"), ("a b", "c"), ("a:b", "c"), ("", "c"), ("a\r", "c"), ("é", "c"), (":path", "/x")):
            self.refused(self.q.ask(headers={name: value}), 400)
        self.refused(self.q.ask(headers={"h%d" % i: "v" for i in range(140)}), 400, 431)
        self.refused(self.q.ask(headers={"accept": "v" * 5000}), 431)

    def test_S2_07_B01_B04_B06_M08_bodies(self):
        blob = bytes(range(256)) * 300
        self.api.answer = lambda h, call: h.send(200, call["body"], [("content-type", "application/octet-stream")])
        a = self.q.ask("POST", COMMENT, headers=JSON, body=blob)
        self.assertEqual((a[0], a[2]), (200, blob))
        self.api.answer = api_box.echo
        self.api.take()
        a = self.q.ask("POST", COMMENT, headers=JSON, body=b"x" * (BODY_MAX + 1))
        self.refused(a, 413)
        self.assertIn(str(BODY_MAX), a[2].decode())
        self.refused(self.q.ask("POST", COMMENT, headers=JSON, body=b"x" * (QUEUE_BODY_MAX + 1)), 413)
        for encoding, text in (("base64", "YR=="), ("base64", "YQ"), ("base64", "YQ="), ("base64", "____"), ("base64", "YQ==\n"), ("hex", "aa"), ("base64", 7)):
            ident = self.q.new_id()
            e = {**self.q.envelope(ident, "POST", COMMENT, JSON), "bodyEncoding": encoding, "body": text}
            self.refused(self.q.ask(raw=json.dumps(e).encode(), name=ident), 400)
        self.refused(self.q.ask(body=b"{}"), 400)
        self.assertLess(self.q.host.rss()["VmHWM"], 80 * 1024)

    def test_Q01_Q03_S2_08_odd_files_are_not_opened(self):
        """Links, FIFOs, sockets, directories, second names: gone, unread, and nobody waits."""
        secret = self.q.dir + "/outside"
        with open(secret, "wb") as f:
            f.write(json.dumps(self.q.envelope(self.q.new_id(), "POST", COMMENT)).encode())
        before = os.stat(secret)
        made = []

        def name():
            made.append(self.q.new_id() + ".json")
            return "%s/requests/%s" % (self.q.dir, made[-1])

        def arrive(path):
            draft = "%s/requests/.odd" % self.q.dir
            # It arrives by rename, as requests do; a listing may have found and removed it before.
            try:
                os.rename(path, draft)
            except FileNotFoundError:
                return
            os.rename(draft, path)
        for target in secret, "/etc/passwd", "/dev/zero", "nowhere", None:
            p = name()
            os.symlink(os.path.basename(p) if target is None else target, p)
            arrive(p)
        p = name()
        os.mkfifo(p)
        arrive(p)
        p = name()
        os.mkdir(p)
        arrive(p)
        p = name()
        s = socket.socket(socket.AF_UNIX)
        here = os.open(self.q.dir + "/requests", os.O_RDONLY)
        s.bind("/proc/self/fd/%d/%s" % (here, made[-1]))
        os.close(here)
        arrive(p)
        s.close()
        p = name()
        os.link(secret, p)
        arrive(p)
        for m in made:
            self.q.gone(m)
        self.goes_on()
        after = os.stat(secret)
        self.assertEqual((before.st_size, before.st_mtime_ns, before.st_atime_ns), (after.st_size, after.st_mtime_ns, after.st_atime_ns))
        # A directory that cannot be removed is no request for ever.
        p = name()
        os.mkdir(p)
        open(p + "/x", "w", encoding="ascii").close()
        arrive(p)
        self.goes_on()

    def test_Q04_Q05_half_a_file_and_names_that_are_none(self):
        ident = self.q.new_id()
        text = json.dumps(self.q.envelope(ident, "POST", COMMENT)).encode()
        # Drafts, whatever they hold, and other names are nobody's.
        for n in "." + ident + ".json", ident + ".json.tmp", ident.upper() + ".json", ident + ".JSON", ident[:-1] + ".json", "..json", ident + "\n.json", "-rf":
            with open("%s/requests/%s" % (self.q.dir, n), "wb") as f:
                f.write(text)
        self.refused(self.q.ask(raw=text[:-20], name=ident), 400)
        self.goes_on()
        self.assertEqual(len(os.listdir(self.q.dir + "/requests")), 8)

    def test_S2_08_Q17_R8_a_number_runs_once(self):
        """The same file again, the same number in another name, an old number: 409, and one call."""
        ident = self.q.new_id()
        text = json.dumps(self.q.envelope(ident, "POST", COMMENT, JSON, body=b"{}")).encode()
        self.assertEqual(self.q.ask(raw=text, name=ident)[0], 200)
        a = self.q.ask(raw=text, name=ident)
        self.assertEqual((a[0], a[1].get("x-paperclip-bridge-outcome")), (409, "indeterminate"))
        other = ident[:17] + "0" * 16
        self.assertEqual(self.q.ask("POST", COMMENT, JSON, body=b"{}", name=other)[0], 409)
        self.assertEqual(self.q.ask("POST", COMMENT, JSON, body=b"{}", name="%016x-%016x" % (5, 5))[0], 409)
        self.assertEqual(len(self.api.take()), 1)
        # Nobody without the token can use numbers up.
        self.refused(self.q.ask(name="f" * 16 + "-" + "0" * 16, auth="x"), 401)
        self.goes_on()

    def test_S2_08_Q17_also_when_the_helper_dies(self):
        there, first = threading.Semaphore(0), threading.Event()

        def hang(handler, call):
            if first.is_set():
                return api_box.echo(handler, call)
            there.release()
            while handler.connection.recv(1):
                pass
            return False
        done = self.q.send("POST", COMMENT, JSON, body=b"done")
        self.q.answer(done)
        self.api.answer = hang
        post, get = self.q.send("POST", COMMENT, JSON, body=b"{}"), self.q.send()
        for _ in range(2):
            self.assertTrue(there.acquire(timeout=DEADLINE))
        first.set()
        self.q.kill()
        later = self.q.send("POST", COMMENT, JSON, body=b"later")
        again = self.q.send("POST", COMMENT, JSON, body=b"done", name=done)
        self.q.start()
        a = self.q.answer(post)
        self.assertEqual((a[0], a[1].get("x-paperclip-bridge-outcome"), a[3]), (409, "indeterminate", self.q.token))
        self.assertEqual(self.q.answer(get)[0], 200)
        self.assertEqual(self.q.answer(later)[0], 200)
        self.assertEqual(self.q.answer(again)[0], 409)
        self.assertEqual(sorted((c["method"], c["body"]) for c in self.api.take()),
                         [("GET", b""), ("GET", b""), ("POST", b"done"), ("POST", b"later"), ("POST", b"{}")])
        until("no claim left", lambda: not os.listdir(self.q.dir + "/claims"))
        counts = self.q.host.stop()
        self.assertEqual((counts["forwarded"], counts["indeterminate"]), (3, 2))

    def test_S2_08_Q09_memory_that_runs_out_at_any_point_loses_nothing(self):
        """What there is no memory for lies where it lay, or is answered 503, and is not sent; it is never called malformed."""
        pid, body = self.q.host.p.pid, os.urandom(2 << 20)
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        left = answered = 0

        def vm_data():
            with open("/proc/%d/status" % pid, encoding="ascii") as f:
                return next(int(l.split()[1]) for l in f if l.startswith("VmData")) << 10

        self.assertEqual(self.q.ask("POST", COMMENT, JSON, body=body)[0], 200)
        self.api.take()
        # The envelope takes 2.8 MB, its body 2: each point at which one of them, or what is small, finds no room.
        for more in 0, 1 << 20, 7 << 19, 4 << 20, 9 << 19, 5 << 20:
            resource.prlimit(pid, resource.RLIMIT_DATA, (vm_data() + more, hard))
            ident = self.q.send("POST", COMMENT, JSON, body=body)
            # The same turn of the helper: whoever comes behind it is served, or it is told that there is no room.
            self.assertIn(self.q.ask()[0], (200, 503))
            if os.path.exists(self.q.path(ident)):
                left += 1
                self.assertEqual([c for c in self.api.take() if c["method"] == "POST"], [])
            resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))
            status, _, answer, auth = self.q.answer(ident)
            self.assertEqual(auth, self.q.token)
            self.assertEqual(len([c for c in self.api.take() if c["method"] == "POST"]), status == 200)
            if status == 503:
                answered += 1
                self.assertEqual(json.loads(answer)["code"], "bridge.memory")
            else:
                self.assertEqual(status, 200)
        self.assertGreater(left, 0)
        self.assertGreater(answered, 0)
        self.assertEqual(self.q.host.stop()["unanswered"], 0)

    def test_Q08_a_flood_is_answered_503_and_others_are_served(self):
        gate, under_way = threading.Event(), threading.Semaphore(0)

        def wait(handler, call):
            under_way.release()
            gate.wait(DEADLINE)
            return api_box.echo(handler, call)
        self.api.answer = wait
        ids = [self.q.send() for _ in range(300)]
        busy = [i for i in ids if until("an answer or room", lambda i=i: os.path.exists(self.q.path(i, "responses")) or
                                        len(os.listdir(self.q.dir + "/claims")) >= 64)]
        self.assertEqual(busy, ids)
        for _ in range(64):
            self.assertTrue(under_way.acquire(timeout=DEADLINE))
        # 64 under way, 64 wait, the rest hears at once that it was not sent.
        until("the rest", lambda: len(os.listdir(self.q.dir + "/responses")) == 300 - 128)
        gate.set()
        statuses = [self.q.answer(i)[0] for i in ids]
        self.assertEqual((statuses.count(200), statuses.count(503)), (128, 172))
        self.assertEqual(len(self.api.take()), 128)

    def test_Q08_large_ones_wait_in_the_directory_and_small_ones_pass_them(self):
        """None is read to be refused: what finds no place lies there until there is one."""
        os.kill(self.q.host.p.pid, signal.SIGSTOP)
        large = [self.q.send("POST", COMMENT, headers=JSON, body=b"x" * 70000) for _ in range(200)]
        small = self.q.send()
        os.kill(self.q.host.p.pid, signal.SIGCONT)
        self.assertIn(self.q.answer(small)[0], (200, 503))
        self.assertEqual([self.q.answer(i)[0] for i in large], [200] * len(large))
        self.assertGreaterEqual(len(self.api.take()), len(large))

    def test_Q08_S2_09_those_refused_because_they_are_too_many_are_bounded_too(self):
        """A pace holds back refusals as well: what waits for that is no more than may be under way."""
        board, over = os.memfd_create("board"), threading.Event()
        os.ftruncate(board, 4096)

        def others():
            """Another run is at work all the time."""
            while not over.wait(0.01):
                for slot in 0, 1:
                    os.pwrite(board, struct.pack("=Qq", 7, time.monotonic_ns()), slot * 64)
        beside = threading.Thread(target=others)
        beside.start()
        policy = json.dumps({"version": 1, "name": "t", "routes": ["GET /api/agents/{id}"], "limits": {"pace": 60}}).encode()
        q = Queue(self.api, policy="t", policy_text=policy, board=board)
        try:
            os.kill(q.host.p.pid, signal.SIGSTOP)
            for _ in range(500):
                q.send(auth="another-token-of-32-characters-xx", bearer=None)
            os.kill(q.host.p.pid, signal.SIGCONT)

            def answered():
                self.assertLessEqual(len(os.listdir(q.dir + "/claims")), 128)
                return len(os.listdir(q.dir + "/responses")) == 500
            until("all answers", answered)
            counts = q.host.stop()
            self.assertEqual((counts["forwarded"], counts["requests"], counts["refused"]), (0, 500, 500))
        finally:
            over.set()
            beside.join()
            q.close()
            os.close(board)

    def test_Q08_junk_names_by_the_thousand(self):
        for i in range(1500):
            os.close(os.open("%s/requests/junk%d" % (self.q.dir, i), os.O_CREAT | os.O_WRONLY))
        self.goes_on()
        self.q.kill()
        self.q.start()
        self.goes_on()

    def test_Q09_Q20_files_larger_than_any_envelope_are_not_read(self):
        for where in "requests", "claims":
            for size in 63 << 20, 1 << 40:
                ident = self.q.new_id()
                with open(self.q.dir + "/big", "wb") as f:
                    f.truncate(size)
                if where == "claims":
                    self.q.kill()
                os.rename(self.q.dir + "/big", self.q.path(ident, where))
                if where == "claims":
                    self.q.start()
                self.refused(self.q.answer(ident), 413)
                self.goes_on()
        self.assertLess(self.q.host.rss()["VmHWM"], 32 * 1024)

    def test_Q13_Q15_Q16_what_the_peer_s_queue_believes_is_not_looked_at(self):
        """Lock directories, ready.json and server.pid: nobody waits, connects or kills."""
        ident = self.q.new_id()
        for d in self.q.path(ident, "responses") + ".paperclip-write.lock", self.q.path(ident) + ".paperclip-write.lock":
            os.mkdir(d)
            with open(d + "/pid", "w", encoding="ascii") as f:
                f.write("1")
        os.mkfifo(self.q.dir + "/ready.json")
        with open(self.q.dir + "/server.pid", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        self.assertEqual(self.q.ask(name=ident)[0], 200)
        self.api.take()
        self.goes_on()
        self.assertEqual(self.q.host.stop()["forwarded"], 2)

    def test_Q11_something_lies_where_the_answer_goes(self):
        ident = self.q.new_id()
        target = self.q.dir + "/target"
        with open(target, "wb") as f:
            f.write(b"untouched")
        os.symlink(target, self.q.path(ident, "responses"))
        os.symlink(target, "%s/responses/.%s.tmp" % (self.q.dir, ident))
        self.q.send(name=ident)
        until("the answer", lambda: not os.path.islink(self.q.path(ident, "responses")))
        self.assertEqual(self.q.answer(ident)[0], 200)
        with open(target, "rb") as f:
            self.assertEqual(f.read(), b"untouched")
        ident = self.q.new_id()
        os.mkdir(self.q.path(ident, "responses"))
        self.q.send(name=ident)
        until("the answer", lambda: os.path.isfile(self.q.path(ident, "responses")))
        self.assertEqual(self.q.answer(ident)[0], 200)
        # One that cannot be removed: others are served, and the sign of life goes on.
        ident = self.q.new_id()
        os.mkdir(self.q.path(ident, "responses"))
        open(self.q.path(ident, "responses") + "/x", "w", encoding="ascii").close()
        self.q.send(name=ident)
        self.assertEqual(self.q.ask()[0], 200)
        until("a sign of life", lambda: os.path.exists(self.q.dir + "/alive") and ident in open(self.q.dir + "/alive", encoding="ascii").read())

    def test_Q11_answers_that_find_no_place_are_bounded(self):
        """Something that cannot be replaced lies where every answer goes: a few are tried again, the rest is given up and counted."""
        n = 300
        ids = [self.q.new_id() for _ in range(n)]
        for i in ids:
            os.makedirs(self.q.path(i, "responses") + "/full")
        for i in ids:
            self.q.send("POST", COMMENT, auth="wrong", name=i)
        most = [0]

        def taken():
            left = len(os.listdir(self.q.dir + "/requests"))
            most[0] = max(most[0], len(os.listdir(self.q.dir + "/claims")))
            return left <= 64
        until("those beyond what may wait", taken)
        # 64 that are tried again; one in the making.
        self.assertLessEqual(most[0], 65)
        counts = self.q.host.stop()
        self.assertGreaterEqual(counts["unanswered"], n - 128)
        self.assertEqual(self.api.take(), [])

    def test_Q17_Q20_claims_of_a_helper_before_are_taken_up_within_the_same_bounds(self):
        gate, lock, now, most = threading.Event(), threading.Lock(), [0], [0]

        def wait(handler, call):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            gate.wait(DEADLINE)
            with lock:
                now[0] -= 1
            return api_box.echo(handler, call)
        self.api.answer = wait
        self.q.kill()
        ids = [self.q.new_id() for _ in range(200)]
        for i in ids:
            with open(self.q.path(i, "claims"), "w", encoding="ascii") as f:
                json.dump(self.q.envelope(i), f)
        self.q.start()
        until("as many as may run", lambda: now[0] >= 64)
        gate.set()
        self.assertEqual([self.q.answer(i)[0] for i in ids], [200] * len(ids))
        self.assertLessEqual(most[0], 64)
        self.assertEqual(len(self.api.take()), len(ids))

    def test_Q19_C13_one_slow_request_does_not_hold_the_others(self):
        gate = threading.Event()
        self.api.answer = lambda h, call: (gate.wait(DEADLINE) if call["target"].endswith("slow") else None, api_box.echo(h, call))[1]
        slow = self.q.send(path="/api/agents/slow")
        for _ in range(4):
            self.assertEqual(self.q.ask()[0], 200)
        self.assertFalse(os.path.exists(self.q.path(slow, "responses")))
        gate.set()
        self.assertEqual(self.q.answer(slow)[0], 200)

    def test_Q21_times_of_files_say_nothing(self):
        for when in (0, 4102444800):
            ident = self.q.new_id()
            draft = self.q.dir + "/requests/.draft2"
            with open(draft, "wb") as f:
                f.write(json.dumps(self.q.envelope(ident)).encode())
            os.utime(draft, (when, when))
            os.rename(draft, self.q.path(ident))
            self.assertEqual(self.q.answer(ident)[0], 200)

    def test_C10_C11_F01_an_uncertain_request_and_a_redirect(self):
        self.api.answer = lambda h, call: (h.connection.close(), False)[1]
        a = self.q.ask("POST", COMMENT, JSON, body=b"{}")
        self.assertEqual((a[0], a[1].get("x-paperclip-bridge-outcome")), (409, "indeterminate"))
        self.assertEqual(self.q.ask()[0], 502)

        def half(handler, call):
            handler.wfile.write(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nhalf")
            return False
        self.api.answer = half
        # Nothing of half an answer is published: the outcome is said instead.
        self.assertEqual(self.q.ask("POST", COMMENT, JSON, body=b"{}")[0], 409)
        self.assertEqual(self.q.ask()[0], 502)
        self.api.answer = lambda h, call: h.send(302, b"", [("location", "http://169.254.169.254/"), ("set-cookie", "a=b")])
        a = self.q.ask()
        self.assertEqual(a[0], 302)
        self.assertFalse({"location", "set-cookie"} & set(a[1]))

    def test_A07_C17_the_run_is_over(self):
        ident = self.q.send()
        self.q.answer(ident)
        counts = self.q.host.stop()
        self.assertEqual((counts["requests"], counts["forwarded"]), (1, 1))
        ident = self.q.send("POST", COMMENT)
        self.assertEqual(len(self.api.take()), 1)
        self.assertTrue(os.path.exists(self.q.path(ident)))

    def test_C17_what_waits_at_the_end_is_not_read_any_more(self):
        gate, under_way = threading.Event(), threading.Semaphore(0)
        self.addCleanup(gate.set)

        def wait(handler, call):
            under_way.release()
            gate.wait(DEADLINE)
            return api_box.echo(handler, call)
        self.api.answer = wait
        ids = [self.q.send() for _ in range(120)]
        for _ in range(64):
            self.assertTrue(under_way.acquire(timeout=DEADLINE))
        counts = self.q.host.stop()
        self.assertEqual((counts["requests"], counts["failed"], counts["audit_lost"]), (64, 64, 0))
        self.assertEqual(sorted(os.listdir(self.q.dir + "/requests")), sorted(i + ".json" for i in ids[64:]))


class Killed(Box):
    """B-10: a helper that is killed takes no decision with it."""

    def lines(self, fd):
        with open(os.dup(fd), encoding="utf-8") as f:
            f.seek(0)
            return [json.loads(l) for l in f if l.strip()]

    def test_S2_08_C10_every_decision_has_its_line_all_the_same(self):
        with tempfile.TemporaryDirectory(prefix="airlock-audit-test.") as d:
            audit = os.open(d + "/audit", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self.addCleanup(os.close, audit)
            there = threading.Semaphore(0)

            def hang(handler, call):
                if call["method"] != "PATCH":
                    return api_box.echo(handler, call)
                there.release()
                while handler.connection.recv(1):
                    pass
                return False
            self.api.answer = hang
            q = Queue(self.api, audit=audit)
            self.addCleanup(q.close)
            for _ in range(20):
                self.assertEqual(q.ask("POST", COMMENT, headers=JSON, body=b"{}")[0], 200)
            self.assertEqual(q.ask("POST", COMMENT, auth="wrong")[0], 401)
            q.send("PATCH", "/api/issues/i1", headers=JSON, body=b"{}")
            self.assertTrue(there.acquire(timeout=DEADLINE))
            q.kill()
            q.start()
            counts = q.host.stop()
            self.assertEqual(counts["audit_lost"], 0)
            got = [(l["method"], l["rule"], l["status"]) for l in self.lines(audit)]
            for what, n in (("POST", "allow", 200), 20), ((None, "auth.token", 401), 1), (("PATCH", "bridge.killed", 0), 1):
                self.assertEqual(got.count(what), n, got)


class Secretive(Box):
    """S2-03: no neighbour of the same user reads a token, a key or a descriptor out of a process that has one."""

    def test_every_program_with_a_secret_is_undumpable(self):
        # What belongs to an undumpable process in /proc is root's; root itself cannot be told apart.
        who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        with tempfile.TemporaryDirectory(prefix="airlock-nodump-test.") as d, socket.socket() as s:
            os.chmod(d, 0o777)
            s.bind(("127.0.0.1", 0))
            port = str(s.getsockname()[1])
            s.close()
            ours, theirs = socket.socketpair()
            env = {"HOME": d, "XDG_STATE_HOME": d, "XDG_RUNTIME_DIR": d, "PATH": os.environ["PATH"]}
            gate = {"PAPERCLIP_API_BRIDGE_MODE": "http2_v1", "PAPERCLIP_BRIDGE_PORT": port, "PAPERCLIP_BRIDGE_NONCE": "n",
                    "PAPERCLIP_BRIDGE_CONTROL": "1"}
            for argv, e in ((["airlock-bridge"], {}), (["airlock-bridge-tls"], {}), (["airlock-proxy"], {}), (["airlock-gateway"], gate),
                            (["airlock", "bridge", "--upstream", self.api.url, "--listen", "127.0.0.1:" + port], env),
                            (["airlockd", "--listen", "unix:" + d + "/sock"], env)):
                with self.subTest(argv[0]):
                    p = subprocess.Popen([PROGRAMS + "/" + argv[0]] + argv[1:], stdin=theirs, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, env=e, **who)

                    def owner():
                        if p.poll() is not None:
                            raise AssertionError(p.stderr.read())
                        return os.stat("/proc/%d/environ" % p.pid).st_uid == 0
                    try:
                        until("it to be root's", owner)
                    finally:
                        p.terminate()
                        p.wait(DEADLINE)
                        p.stderr.close()
            ours.close()
            theirs.close()


class Confined(Box):
    def test_S2_08_only_the_queue_can_be_opened(self):
        """The filters in force, and the limits that the kernel shows."""
        if not confined(PROGRAMS + "/airlock"):
            self.skipTest("built without confinement")
        q = Queue(self.api)
        self.addCleanup(q.close)
        with open("/proc/%d/status" % q.host.p.pid, encoding="ascii") as f:
            status = dict(l.split(":", 1) for l in f)
        self.assertEqual((status["Seccomp"].strip(), status["NoNewPrivs"].strip()), ("2", "1"))
        self.assertEqual(int(status["CapEff"], 16), 0)


class Gateway(Box):
    """airlock-gateway on a queue whose host is this test."""

    def setUp(self):
        super().setUp()
        self.dir = scratch.directory(prefix="airlock-gate-test.")
        self.addCleanup(shutil.rmtree, self.dir, True)
        for d in "requests", "responses", "claims":
            os.mkdir(self.dir + "/" + d)
        self.port, self.token = api_box.free_port(), "t" * 32
        self.ours, theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.p = subprocess.Popen([PROGRAMS + "/airlock-gateway"], stdin=theirs, stdout=theirs, env={
            "PAPERCLIP_API_BRIDGE_MODE": "queue_v2", "PAPERCLIP_BRIDGE_QUEUE_DIR": self.dir, "PAPERCLIP_BRIDGE_TOKEN": self.token,
            "PAPERCLIP_BRIDGE_PORT": str(self.port), "PAPERCLIP_BRIDGE_NONCE": "n" * 32})
        theirs.close()
        self.addCleanup(self.p.wait, DEADLINE)
        self.addCleanup(self.p.kill)
        self.assertIn(b'"ready"', self.ours.recv(1000))

    def client(self, method="GET", body=None):
        c = api_box.Client(self.port)
        self.addCleanup(c.close)
        c.send(api_box.request(method, "/api/agents/me", "client", [("content-type", "application/json")] if body else (), body))
        return c

    def taken(self):
        """The request, claimed as a host does."""
        names = until("a request", lambda: [n for n in os.listdir(self.dir + "/requests") if not n.startswith(".")])
        with open("%s/requests/%s" % (self.dir, names[0]), "rb") as f:
            r = json.load(f)
        os.rename("%s/requests/%s" % (self.dir, names[0]), "%s/claims/%s" % (self.dir, names[0]))
        self.assertEqual(r["auth"], self.token)
        return r

    def publish(self, ident, data, name=None):
        draft = self.dir + "/responses/.draft"
        with open(draft, "wb") as f:
            f.write(data if isinstance(data, bytes) else json.dumps(data).encode())
        os.rename(draft, "%s/responses/%s.json" % (self.dir, name or ident))
        return "%s/responses/%s.json" % (self.dir, name or ident)

    def reply(self, ident, **more):
        return {"version": 2, "id": ident, "auth": self.token, "status": 200, "headers": {}, "bodyEncoding": "base64", "body": "b2s=", **more}

    def test_Q12_S2_08_spoofed_answers_are_not_believed(self):
        c = self.client()
        r = self.taken()
        i = r["id"]
        for bad in ({"auth": "x" * 32}, {"auth": ""}, {"status": 99}, {"status": 1000}, {"status": "200"}, {"id": "x"}, {"status": 101}):
            p = self.publish(i, self.reply(i, **bad))
            until("it to be thrown away", lambda p=p: not os.path.exists(p))
        p = self.publish(i, b"{")
        until("it to be thrown away", lambda: not os.path.exists(p))
        self.publish(i, self.reply(i, headers={"x-a": "b", "x-b": "c\r\nx-evil: 1"}))
        status, headers, body = c.answer()
        self.assertEqual((status, body, headers.get("x-a")), (200, b"ok", "b"))
        self.assertNotIn("x-evil", headers)

    def test_Q12_who_answers_nothing_but_lies_ends_the_wait(self):
        for method, want in (("GET", 502), ("POST", 409)):
            c = self.client(method, b"{}" if method == "POST" else None)
            i = self.taken()["id"]
            for _ in range(9):
                p = self.publish(i, self.reply(i, auth="x"))
                until("it to be thrown away", lambda p=p: not os.path.exists(p))
            status, headers, _ = c.answer()
            self.assertEqual(status, want)
            self.assertEqual(headers.get("x-paperclip-bridge-outcome"), "indeterminate" if want == 409 else None)

    def test_Q11_links_and_directories_as_answers(self):
        c = self.client()
        i = self.taken()["id"]
        secret = self.dir + "/secret"
        with open(secret, "w", encoding="ascii") as f:
            json.dump(self.reply(i), f)
        p = "%s/responses/%s.json" % (self.dir, i)
        for make in (lambda d: os.symlink(secret, d), os.mkfifo, os.mkdir, lambda d: os.link(secret, d)):
            make(self.dir + "/responses/.odd")
            os.rename(self.dir + "/responses/.odd", p)
            until("it to be thrown away", lambda: not os.path.lexists(p))
        self.publish(i, self.reply(i))
        self.assertEqual(c.answer()[0], 200)

    def test_answers_for_nobody_are_cleared_away(self):
        c = self.client()
        i = self.taken()["id"]
        c.close()
        p = self.publish(i, self.reply(i))
        until("it to be cleared away", lambda: not os.path.exists(p))
        p = self.publish("0" * 16 + "-" + "0" * 16, self.reply("x"))
        until("it to be cleared away", lambda: not os.path.exists(p))

    def test_large_answers_pass_piece_by_piece(self):
        c = self.client()
        i = self.taken()["id"]
        big = os.urandom(1 << 16) * 64
        self.publish(i, self.reply(i, body=base64.b64encode(big).decode()))
        status, _, body = c.answer()
        self.assertEqual((status, body == big), (200, True))

    def test_B01_a_body_that_no_queue_carries(self):
        c = api_box.Client(self.port)
        self.addCleanup(c.close)
        c.send(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (QUEUE_BODY_MAX + 1))
        self.assertEqual(c.answer()[0], 413)
        self.assertEqual(os.listdir(self.dir + "/requests"), [])

    def test_B09_half_an_upload_leaves_nothing(self):
        c = api_box.Client(self.port)
        c.send(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        until("the draft", lambda: os.listdir(self.dir + "/requests"))
        c.close()
        until("nothing left", lambda: not os.listdir(self.dir + "/requests"))

    def test_C10_a_host_that_is_gone_is_503_for_what_was_not_sent(self):
        """FR-B034: and it does not lie there for ever."""
        c = self.client("POST", b"{}")
        until("a request", lambda: [n for n in os.listdir(self.dir + "/requests") if not n.startswith(".")])
        self.ours.close()
        self.assertEqual(c.answer()[0], 503)
        self.assertEqual(os.listdir(self.dir + "/requests"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
