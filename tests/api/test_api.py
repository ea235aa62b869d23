#!/usr/bin/env python3
"""The daemon's API: server, actors, environments, secrets, assignment. Numbers are those of specs/api.md section 12.

usage: test_api.py DIRECTORY_OF_PROGRAMS
"""
import base64
import fcntl
import hashlib
import hmac
import http.client
import json
import os
import re
import select
import signal
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import verdicts  # noqa: E402
from daemon_box import DEADLINE, NATIVE, NOBODY, SSH, Daemon, Fixture, programs, wait_for  # noqa: E402

PROGRAMS = programs()
OWN, OTHER = 54321, 54322  # of nobody
d = f = None


def setUpModule():
    global d, f
    d = Daemon(PROGRAMS)
    f = Fixture(d)


def tearDownModule():
    d.close()


def read(name):
    with open(f"{d.dir}/airlock/{name}", "rb") as file:
        return file.read()


def db():
    return sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)


class Case(unittest.TestCase):
    def refused(self, r, status, error, code=None):
        self.assertEqual((r.status, r.json["error"]), (status, error))
        if code:
            self.assertEqual((r.json["code"], r.json["details"]["code"]), (code, code))


class Server(Case):
    def test_health_and_ready(self):
        for path in ("/api/health", "/api/ready"):
            r = d.ask("GET", path)
            self.assertEqual(r.status, 200)
            self.assertEqual(r.headers["x-content-type-options"], "nosniff")

    def test_unknown_path_and_method(self):
        self.refused(d.ask("GET", "/api/nothing"), 404, "API route not found")
        r = d.ask("PUT", f"/api/companies/{f.c1}/environments", {})
        self.assertEqual((r.status, r.headers["allow"]), (405, "GET, HEAD, POST"))

    def test_bodies(self):
        path = f"/api/companies/{f.c1}/environments"
        good = json.dumps({"name": "x", "driver": "nope"})
        for status, body, type_ in [
                (400, '{"name":', "application/json"), (400, '{"a":1,"a":2}', "application/json"),
                (400, '{"name":"\\u0000","driver":"ssh"}', "application/json"),
                (400, b'{"name":"\xff","driver":"ssh"}', "application/json"),
                (400, '{"name":"\\ud800","driver":"ssh"}', "application/json"),
                (400, "[" * 100 + "]" * 100, "application/json"), (400, "[]", "application/json"),
                (400, "7", "application/json"), (415, good, "text/plain"), (415, good, "application/jsonx"),
                (400, good, "application/json; charset=utf-8")]:
            with self.subTest(body=body, type=type_):
                r = f.ask("I", "POST", path, body, {"Content-Type": type_})
                self.assertEqual(r.status, status, r)
        r = f.ask("I", "POST", path, good, {"Content-Encoding": "gzip"})
        self.assertEqual(r.status, 400)
        # A route that takes no body says so to everybody.
        self.assertEqual(f.ask("N", "GET", "/api/environments/" + NOBODY, "{").status, 400)

    def test_deep_in_one_text_is_not_deep(self):
        r = f.ask("I", "POST", f"/api/companies/{f.c1}/environments",
                  {"name": "deep", "driver": "nope", "description": "[" * 500})
        self.assertEqual(r.json["details"][0]["path"], ["driver"])

    def test_sizes(self):
        head = f"POST /api/companies/{f.c1}/environments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        # As soon as it is declared, without reading on.
        got = d.raw((head + "Content-Length: 10485761\r\n\r\n").encode())
        self.assertTrue(got.startswith(b"HTTP/1.1 413 "), got[:100])
        got = d.raw((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        self.assertTrue(got.startswith(b"HTTP/1.1 411 "), got[:100])
        got = d.raw(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"a" * 60000 + b"\r\n\r\n")
        self.assertRegex(got[:40], rb"HTTP/1.[01] (431|400|413) |^$")
        got = d.raw(b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertRegex(got[:40], rb"HTTP/1.[01] (414|431|400) |^$")
        self.assertEqual(d.ask("GET", "/api/health").status, 200)

    def resident(self):
        """Most memory that the daemon had since it was asked to forget, in MiB."""
        with open(f"/proc/{d.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) / 1024

    def forget(self):
        with open(f"/proc/{d.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def attack(self, head, body, n):
        """n connections that send all of a large body at the same time; the status lines that came."""
        socks, got = [], []
        for _ in range(n):
            s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
            s.sendall(head)
            s.setblocking(False)
            socks.append([s, memoryview(body)])
        end = time.monotonic() + DEADLINE
        while any(x[1] for x in socks) and time.monotonic() < end:
            busy = [x for x in socks if x[1]]
            for x in select.select([], [x[0] for x in busy], [], 1)[1]:
                x = next(y for y in busy if y[0] is x)
                try:
                    x[1] = x[1][x[0].send(x[1][:65536]):]
                except BlockingIOError:
                    pass
                except OSError:  # refused without being read
                    x[1] = None
        for s, _ in socks:
            s.settimeout(DEADLINE)
            try:
                got.append(s.recv(4096).split(b"\r\n", 1)[0].decode())
            except ConnectionError:
                got.append("cut")
            s.close()
        return got

    def test_large_bodies_at_once(self):
        """Memory is bounded whoever sends: strangers' bodies are not read, and those who may send have one bound."""
        path = f"/api/companies/{f.c1}/environments"
        much = b'{"name":[' + b"0," * (5 << 20)
        much = much[:(10 << 20) - 2] + b"0]}"[-2:]
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(much)}\r\n"
        self.forget()
        for token, status in ((None, "403"), (f.token["A"], "403"), ("abk_x_y", "401")):
            auth = f"Authorization: Bearer {token}\r\n" if token else ""
            got = self.attack((head + auth + "\r\n").encode(), much, 60)
            self.assertEqual({x.split()[1] if " " in x else x for x in got} - {status, "cut"}, set(), got)
        self.assertLess(self.resident(), 40)
        got = self.attack((head + f"Authorization: Bearer {f.token['I']}\r\n\r\n").encode(), much, 40)
        self.assertEqual({x.split()[1] if " " in x else x for x in got} - {"400", "503", "cut"}, set(), got)
        self.assertTrue(any(" 400 " in x for x in got), got)
        self.assertLess(self.resident(), 90)
        # And given back: what was large is not kept for ever.
        self.forget()
        self.assertEqual(d.ask("GET", "/api/health").status, 200)
        self.assertLess(self.resident(), 40)

    def test_bodies_beyond_the_bound(self):
        """API_HELD_MAX, and a quarter of it for each: 503 with Retry-After, and small requests are served all the same."""
        path = f"/api/companies/{f.c1}/environments"
        head = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n")
        for i in range(5):
            d.cli("user", "add", f"holder {i}", "--admin")
        tokens = [d.cli("token", "create", "--user", f"holder {i}") for i in range(5)]
        held = []
        # So large that it is no answer of its bytes, but of its head; refused, it is not read.
        ask = lambda token: d.raw((head % (token, 10485760)).encode(), half_close=True)
        try:
            for token in tokens[:4]:
                s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
                s.sendall((head % (token, 10485760)).encode() + b"{")
                held.append(s)
                wait_for("it to be held", lambda: ask(token).startswith(b"HTTP/1.1 503 "))  # pylint: disable=cell-var-from-loop
                if len(held) < 4:
                    # Another one's is none of its business.
                    self.assertNotIn(b" 503 ", ask(tokens[4]))
            wait_for("four to be held", lambda: ask(tokens[4]).startswith(b"HTTP/1.1 503 "))
            self.assertIn(b"\r\nRetry-After: 1\r\n", ask(tokens[4]))
            self.assertEqual(f.ask("I", "POST", path, {"name": "x" * 9000, "driver": "nope"}).status, 400)
        finally:
            for s in held:
                s.close()
        wait_for("the memory to be free", lambda: f.ask("I", "POST", path, {"name": "x" * 20000, "driver": "nope"}).status == 400)

    def test_connections_that_say_nothing(self):
        """One client that holds more connections than there are places keeps nobody out, neither at the port nor at the state's socket."""
        silent = []
        # One that is being served keeps its place: a stream, which begins with a line.
        stream = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
        stream.sendall(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {f.token['I']}\r\n\r\n".encode())
        self.assertIn(b" 200 ", stream.recv(4096))
        try:
            for i in range(700):
                s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
                silent.append(s)
                if i % 2:
                    s.sendall(b"GET /api/health HTTP/1.1\r\nHost: local")
            for _ in range(5):
                self.assertEqual(d.ask("GET", "/api/health").status, 200)
                own = socket.socket(socket.AF_UNIX)
                own.settimeout(DEADLINE)
                own.connect(f"{d.dir}/airlock/airlockd.sock")
                own.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertTrue(own.recv(4096).startswith(b"HTTP/1.1 200 "))
                own.close()
            stream.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while stream.recv(4096):
                    pass
        finally:
            for s in silent:
                s.close()
            stream.close()

    def test_two_daemons_of_a_name(self):
        """One that stops takes neither the socket nor the word of the one that replaced it."""
        first = Daemon(PROGRAMS, start=False)
        try:
            path = f"{first.dir}/api.sock"
            first.start(f"unix:{path}")
            half = socket.socket(socket.AF_UNIX)
            half.connect(path)
            token = first.cli("user", "add", "u", "--admin") and first.cli("token", "create", "--user", "u")
            half.sendall(f"POST /api/companies/x/environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
                         "Content-Length: 9\r\n\r\n{".encode())
            old, first.process = first.process, None
            old.send_signal(signal.SIGTERM)
            wait_for("its word to go", lambda: not os.path.exists(f"{first.dir}/airlock/daemon"))
            first.start(f"unix:{path}")
            self.assertIsNone(old.poll())
            half.close()
            self.assertEqual(old.wait(timeout=DEADLINE), 0)
            old.stderr.close()
            for name in (path, f"{first.dir}/airlock/daemon", f"{first.dir}/airlock/airlockd.sock"):
                self.assertTrue(os.path.exists(name), name)
        finally:
            first.close()

    def test_answers_that_nobody_takes(self):
        """Clients that ask for much and read nothing share the same bound; who asks for little is served."""
        path, made, slow = f"/api/companies/{f.c1}/environments", [], []
        for i in range(30):
            made.append(f.make(f"large {i}", "ssh", SSH, metadata={"note": "x" * 250000})["id"])
        self.forget()
        try:
            for _ in range(8):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.settimeout(DEADLINE)
                s.connect(("127.0.0.1", d.port))
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {f.token['I']}\r\n\r\n".encode())
                slow.append(s)
            r = f.ask("I", "GET", path)
            self.assertEqual((r.status, r.headers.get("retry-after")), (503, "1"))
            self.assertEqual(f.ask("I", "GET", "/api/environments/" + NOBODY).status, 404)
            self.assertLess(self.resident(), 150)
        finally:
            for s in slow:
                s.close()
        wait_for("the memory to be free", lambda: f.ask("I", "GET", path).status == 200)
        for ident in made:
            self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + ident).status, 200)

    def test_refused_by_the_head(self):
        """What the head decides is said before a body is read; a small one is dropped and the connection goes on."""
        path = f"/api/companies/{f.c1}/environments"
        ok = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for line, more, status in (("GET /api/health", "", b"400"), ("POST /api/nothing", "", b"404"), ("PUT " + path, "", b"405"),
                                   ("POST " + path, "Content-Type: text/plain\r\n", b"415"),
                                   ("POST " + path, "", b"415"), ("POST " + path, "Content-Type: application/json\r\n", b"403")):
            if status == b"415":
                more += f"Authorization: Bearer {f.token['I']}\r\n"
            for size in (5, 100000):
                head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {size}\r\n\r\n".encode()
                with self.subTest(line=line, size=size):
                    if size > 5:
                        got = d.raw(head)  # nothing of the body was sent
                        self.assertEqual(got[9:12], status)
                    else:
                        got = d.raw(head + b"[1,2]" + ok)
                        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", got), [status, b"200"])
        # A route whose body is an empty object takes no large one.
        head = f"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000\r\n\r\n"
        self.assertEqual(d.raw(head.encode())[9:12], b"413")
        # Nor does one that whoever is known may ask: four such heads would hold all that there is for bodies.
        head = (f"PATCH /api/agents/{f.agent} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {f.token['A']}\r\nContent-Length: 1000000\r\n\r\n")
        self.assertEqual(d.raw(head.encode())[9:12], b"413")

    def dripped(self, path, body, seconds):
        """The answer to a request whose key is revoked between its head and, so many seconds after, its body."""
        token = d.cli("token", "create", "--user", "admin", "--label", "dripping")
        s = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
        s.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                   f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body[:1])
        wait_for("the head to be judged", lambda: db().execute("select used_ns from tokens where id=?",
                                                               (token.split("_")[1],)).fetchone()[0])
        judged = time.monotonic()
        d.cli("token", "revoke", token.split("_")[1])
        wait_for("time to pass", lambda: time.monotonic() > judged + seconds)
        s.sendall(body[1:])
        got = s.recv(4096)
        s.close()
        return got

    def test_key_revoked_while_its_body_comes(self):
        body = json.dumps({"name": "late", "driver": "ssh", "config": SSH}).encode()
        # Longer than API_STALE_MS.
        got = self.dripped(f"/api/companies/{f.c1}/environments", body, 3)
        self.assertTrue(got.startswith(b"HTTP/1.1 401 "), got)

    def test_no_session_of_a_revoked_key(self):
        got = self.dripped("/api/sessions", b"{}", 0)
        self.assertTrue(got.startswith(b"HTTP/1.1 401 "), got)

    def test_many_values_and_many_faults(self):
        path = f"/api/companies/{f.c1}/environments"
        r = f.ask("I", "POST", path, '{"name":[' + "0," * 30000 + "0]}")
        self.refused(r, 400, "A body is of at most 20000 values")
        r = f.ask("I", "POST", path, {f"m{i}": 1 for i in range(5000)})
        self.assertEqual((r.status, len(r.json["details"])), (400, 100))

    def test_header_flood(self):
        flood = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
        got = d.raw(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")
        self.assertNotIn(b" 200 ", got[:20])
        self.assertEqual(d.ask("GET", "/api/health").status, 200)

    def test_repeated_headers_and_query(self):
        got = d.raw(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nHost: other\r\nConnection: close\r\n\r\n")
        self.assertTrue(got.startswith(b"HTTP/1.1 400 "), got[:60])
        for line in (b"Host : localhost", b"Authorization : Bearer x", b"X\tA: b", b"(x): y", b"X-A: \x01"):
            host = b"" if line.startswith(b"Host") else b"Host: localhost\r\n"
            got = d.raw(b"GET /api/health HTTP/1.1\r\n" + host + line + b"\r\nConnection: close\r\n\r\n")
            self.assertTrue(got.startswith(b"HTTP/1.1 400 "), (line, got[:60]))
        path = f"/api/companies/{f.c1}/environments"
        for query in ("?status=a&status=b", "?a=%zz", "?a=%ff", "?a=%0a"):
            self.assertEqual(f.ask("I", "GET", path + query).status, 400, query)
        self.assertEqual(f.ask("I", "GET", path + "?whatever=1").status, 200)

    def test_path_tricks(self):
        for path in ("/api/../api/health", "/api//health", "/api/%2e%2e/health", "/api/health%00", "/api/he%2falth",
                     "//api/health", "/api/environments/..%2f..", "/api/environments/%ff"):
            r = d.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            self.assertRegex(r[:20], rb"HTTP/1.1 (400|404) ", path)

    def test_odd_ids_are_not_found(self):
        for odd in ("1", "%27-drop-table-envs--", "a" * 36, "%7B" + NOBODY + "%7D", NOBODY.replace("-", ""), NOBODY + "0"):
            self.refused(f.ask("I", "GET", "/api/environments/" + odd), 404, "Environment not found")
            self.refused(f.ask("I", "GET", "/api/environment-leases/" + odd), 404, "Environment lease not found")

    def test_pipelined_and_kept_open(self):
        one = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        got = d.raw(one * 5 + b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual(got.count(b"HTTP/1.1 200 OK"), 6)

    def test_metrics(self):
        self.assertEqual(f.ask("N", "GET", "/metrics").status, 403)
        text = f.ask("M", "GET", "/metrics").body.decode()
        for name in ("requests_total", "denied_total", "leases{status=\"active\"}", "resident_bytes"):
            self.assertIn("airlockd_" + name, text)

    def test_openapi_describes_what_is_served(self):
        doc = d.ask("GET", "/api/openapi.json").json
        self.assertEqual(doc["openapi"], "3.1.0")
        schemas = doc["components"]["schemas"]
        for ref in re.findall(r"#/components/schemas/(\w+)", json.dumps(doc)):
            self.assertIn(ref, schemas)
        # What comes back has the members that the document names, and no others.
        e = f.make("described", "ssh", SSH)
        self.assertEqual(set(e), set(schemas["Environment"]["properties"]))


class Actors(Case):
    """AA, section 1."""

    def test_every_route_for_every_actor(self):
        """Generated from the document: each route x each actor; the same denial whether an id exists or not (cases 1, 2, 3, 9, 41, 53, 74).

        CF-01, CP-01, PR-01, AS-01, AS-03: what is not for an actor is denied, whatever is asked of it.
        """
        texts = {
            "read": {"N": "Board access required", "A": "Board access required", "J": "Board access required",
                     "U": "Company membership or instance admin access required"},
            "admin": {k: "Instance environment management is restricted to board operators" for k in "NAJ"}
            | {k: "Instance admin access required" for k in "MVU"},
            "settings": {k: "Board access required" for k in "NAJ"} | {k: "Instance admin access required" for k in "MVU"},
            "board": {k: "Board access required" for k in "NAJ"},
            "known": {"N": "Authentication required"}, "open": {},
        }
        env = f.make("guarded", "ssh", SSH)
        ids = {"companyId": f.c1, "id": env["id"], "leaseId": NOBODY, "runId": "0" * 16, "sessionId": NOBODY}
        bodies = {"EnvironmentCreate": {"name": "n", "driver": "local"}, "ProbeConfig": {"driver": "local"},
                  "SecretCreate": {"name": "n", "value": "v"}, "SecretRenew": {"value": "v"},
                  "RunStart": {"workspaceRoot": "x", "command": "true"}}
        doc, n = d.ask("GET", "/api/openapi.json").json, 0
        for pattern, methods in doc["paths"].items():
            for method, op in methods.items():
                ref = json.dumps(op.get("requestBody", {}))
                body = next((b for k, b in bodies.items() if f'/{k}"' in ref), None)
                if method != "get" and body is None:
                    body = {}
                for who, text in texts[op["x-airlock-guard"]].items():
                    got, name = set(), f"{method.upper()} {pattern}"
                    verdicts.denial(name, who, "failed")
                    for kind in (ids, {k: NOBODY for k in ids}):
                        path = re.sub(r"\{(\w+)\}", lambda m, kind=kind: kind[m.group(1)], pattern)
                        r = f.ask(who, method.upper(), path, body)
                        with self.subTest(route=f"{method} {pattern}", who=who):
                            self.refused(r, 403, text)
                        got.add((r.status, r.body))
                        n += 1
                    self.assertEqual(len(got), 1)
                    if {s for s, _ in got} == {403} and json.loads(got.pop()[1])["error"] == text:
                        verdicts.shown(name, who)
        self.assertGreater(n, 150)
        # Nothing came of any of them.
        self.assertEqual(f.ask("I", "GET", "/api/environments/" + env["id"]).json, env)
        self.assertEqual(db().execute("select count(*) from env_leases").fetchone(), (0,))

    def test_access_map_names_every_route(self):
        """CF-01, CP-01, PR-01, AS-01: the map is the route table, and what it says of agents is what they meet."""
        doc = d.ask("GET", "/api/openapi.json").json
        self.refused(f.ask("J", "GET", "/api/agent-access"), 403, "Board access required")
        m = f.ask("M", "GET", "/api/agent-access").json
        self.assertEqual([c["id"].partition("/")[2] for c in m["capabilities"]],
                         ["configuration", "capabilities", "probe", "assignment", "images", "operation"])
        ops = [o for c in m["capabilities"] for o in c["operations"]]
        self.assertEqual(sorted(o["operation"] for o in ops),
                         sorted(f"{k.upper()} {p}" for p, v in doc["paths"].items() for k in v))
        for o in ops:
            method, pattern = o["operation"].split()
            guard = doc["paths"][pattern][method.lower()]["x-airlock-guard"]
            self.assertEqual((o["guard"], o["agentAccess"]), (guard, {"open": "open", "known": "own"}.get(guard, "denied")))
        # What an agent may use at all, besides looking at itself: the choice among permitted targets, no making and no ending.
        own = {o["operation"] for o in ops if o["agentAccess"] == "own"}
        self.assertEqual(own, {"GET /api/actor", "GET /api/agents/{id}", "PATCH /api/agents/{id}", "GET /api/projects/{id}",
                               "PATCH /api/projects/{id}"})
        at = {o["operation"]: c["id"] for c in m["capabilities"] for o in c["operations"]}
        for op, c in (("GET /api/companies/{companyId}/environments", "configuration"), ("POST /api/environments/{id}/probe", "probe"),
                      ("GET /api/companies/{companyId}/environments/capabilities", "capabilities"),
                      ("PATCH /api/agents/{id}", "assignment"), ("POST /api/environments/{id}/runs", "operation")):
            self.assertEqual(at[op].partition("/")[2], c)

    def test_access_map_tells_of_this_build_only(self):
        """Outcomes come from a file that names this very program; nothing says passed without it."""
        with tempfile.TemporaryDirectory(prefix="airlock-map-", dir="/tmp") as top:
            for name in ("airlock", "airlockd"):
                shutil.copy(f"{PROGRAMS}/{name}", top)
            path, build = top + "/access-results.json", verdicts.build_id(top)

            def ask():
                m = json.loads(subprocess.run([top + "/airlock", "access-map", "--json"], capture_output=True, check=True).stdout)
                c = m["capabilities"][0]
                return m["results"], c["verification"]["outcome"], {k["id"]: k["outcome"] for k in c["verification"]["checks"]}, c

            self.assertEqual(ask()[:2], ("absent", "not-run"))
            verdicts.write(path, build, [{"id": "CF-01", "test": "t.a", "outcome": "passed"}],
                           {("GET /api/environments/{id}", "agent_jwt"): "passed"})
            state, whole, checks, c = ask()
            self.assertEqual((state, whole, checks["CF-01"], checks["CF-02"]), ("current", "partial", "passed", "not-run"))
            one = next(o for o in c["operations"] if o["operation"] == "GET /api/environments/{id}")
            self.assertEqual((one["denied"]["agent_jwt"], one["denied"]["agent_key"]), ("passed", "not-run"))
            # A second test that failed is not outvoted; what was skipped says nothing.
            verdicts.write(path, build, [{"id": "CF-01", "test": "t.b", "outcome": "failed"},
                                              {"id": "CF-02", "test": "t.c", "outcome": "skipped"}], {})
            _, whole, checks, _ = ask()
            self.assertEqual((whole, checks["CF-01"], checks["CF-02"]), ("failed", "failed", "not-run"))
            text = subprocess.run([top + "/airlock", "access-map"], capture_output=True, check=True, text=True).stdout
            self.assertIn("    CF-01: failed (2 tests)\n", text)
            with open(path, encoding="ascii") as file:
                good = file.read()
            forged = json.loads(good)
            forged["checks"][1]["outcome"] = "passed"
            other = verdicts.sealed({**json.loads(good), "build": "0" * 40})
            for content, state in ((json.dumps(forged), "damaged"), (good[:-20], "damaged"), ("", "damaged"), ("[]", "damaged"),
                                   (json.dumps(other), "other_build"), (" " * (2 << 20), "damaged")):
                with open(path, "w", encoding="ascii") as file:
                    file.write(content)
                self.assertEqual(ask()[:2], (state, "not-run"))

    def test_case_42_an_agent_hears_of_its_body_first(self):
        path = f"/api/companies/{f.c1}/environments/probe-config"
        self.assertEqual(f.ask("J", "POST", path, {"driver": "x"}).status, 400)
        self.assertEqual(f.ask("J", "POST", path, {"driver": "local"}).status, 403)

    def test_bearers_that_prove_nothing(self):
        good = f.token["M"]
        other = ("A" if good[-1] != "A" else "B")
        for token, text in [("", "Empty bearer token; provide valid agent credentials and retry"),
                            ("x", None), (good[:-1] + other, None), (good[:-1], None), (good + "a", None),
                            (good.replace("abk_", "aak_"), None), ("a" * 20000, None), ("a.b.c", None), ("..", None)]:
            r = d.ask("GET", "/api/actor", headers={"Authorization": "Bearer " + token})
            with self.subTest(token=token[:30]):
                if len(token) < 10000:
                    self.refused(r, 401, text or "Agent token did not verify; obtain fresh credentials and retry")
                else:
                    self.assertIn(r.status, (401, 431))
        self.assertEqual(d.ask("GET", "/api/actor", headers={"Authorization": "Basic eDp5"}).status, 401)

    def test_digests_only(self):
        """Nothing that was handed out can be found in the database or in the log."""
        d.ask("GET", "/api/actor", token=f.token["I"])
        whole = b"".join(read(n) for n in os.listdir(d.dir + "/airlock") if n.startswith("server.db"))
        for k in "MVUIA":
            self.assertFalse(f.token[k].split("_", 2)[2].encode() in whole)
            self.assertFalse(f.token[k] in "".join(d.log))
        row = db().execute("select digest from tokens where id=?", (f.token["I"].split("_")[1],)).fetchone()
        self.assertEqual(row[0], hashlib.sha256(f.token["I"].encode()).hexdigest())

    def test_revocation_and_last_use(self):
        token = d.cli("token", "create", "--user", "member", "--label", "short")
        self.assertEqual(d.ask("GET", "/api/actor", token=token).status, 200)
        used = db().execute("select used_ns from tokens where id=?", (token.split("_")[1],)).fetchone()[0]
        self.assertLess(abs(used - time.time_ns()), DEADLINE * 10**9)
        d.cli("token", "revoke", token.split("_")[1])
        self.assertEqual(d.ask("GET", "/api/actor", token=token).status, 401)
        self.assertNotEqual(d.cli("token", "revoke", token.split("_")[1], ok=False).returncode, 0)

    def test_expiry(self):
        token = d.cli("token", "create", "--user", "member", "--expires", "1ms")
        self.refused(d.ask("GET", "/api/actor", token=token), 401,
                     "Expired agent token; obtain fresh credentials and retry")

    def test_agent_states(self):
        a = d.cli("agent", "add", "states", "--company", "C1", "--user", "member")
        token = d.cli("token", "create", "--agent", a)
        for status, text in [("terminated", "Agent is terminated and cannot authenticate"),
                             ("pending_approval", "Agent is pending approval and cannot authenticate")]:
            d.cli("agent", "set", a, "--status", status)
            self.refused(d.ask("GET", "/api/actor", token=token), 401, text)
        d.cli("agent", "set", a, "--status", "active")
        self.assertEqual(d.ask("GET", "/api/actor", token=token).json["agentId"], a)

    def test_agent_key_without_responsible_user(self):
        token = d.cli("token", "create", "--agent", f.foreign)
        self.refused(d.ask("GET", "/api/actor", token=token), 403, "Responsible user is unavailable for this agent key",
                     "RESPONSIBLE_USER_UNAVAILABLE")
        n = db().execute("select count(*) from activity where action='auth.agent_key_missing_responsible_user'")
        self.assertGreater(n.fetchone()[0], 0)

    def sign(self, claims, alg="HS256", key=None):
        master = read("jwt.key").decode().strip()
        instance = db().execute("select value from settings where key='instanceId'").fetchone()[0]

        def part(x):
            return base64.urlsafe_b64encode(json.dumps(x).encode()).rstrip(b"=").decode()
        text = part({"alg": alg, "typ": "JWT"}) + "." + part(claims)
        company = hmac.new(master.encode(), f"jwt:{instance}:{claims.get('company_id')}".encode(), "sha256").hexdigest()
        mac = hmac.new((key or company).encode(), text.encode(), "sha256").digest()
        return text + "." + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()

    def test_run_tokens(self):
        now = int(time.time())
        good = {"sub": f.agent, "company_id": f.c1, "adapter_type": "claude_local", "run_id": "r9", "iat": now,
                "exp": now + 600}
        r = d.ask("GET", "/api/actor", token=self.sign(good))
        self.assertEqual((r.json["source"], r.json["runId"]), ("agent_jwt", "r9"))
        bad = "Agent token did not verify; obtain fresh credentials and retry"
        for change, text in [
                ({"exp": now - 5}, "Expired agent token; obtain fresh credentials and retry"),
                ({"company_id": f.c2}, "Agent record is missing or belongs to another company; obtain fresh credentials and retry"),
                ({"sub": NOBODY}, "Agent record is missing or belongs to another company; obtain fresh credentials and retry"),
                ({"iss": "x"}, bad), ({"aud": "x"}, bad), ({"instance_id": "x"}, bad), ({"run_id": ""}, bad),
                ({"run_id": None}, bad), ({"exp": "1"}, bad), ({"sub": "x"}, bad)]:
            with self.subTest(change=change):
                self.refused(d.ask("GET", "/api/actor", token=self.sign({**good, **change})), 401, text)
        self.refused(d.ask("GET", "/api/actor", token=self.sign(good, alg="none")), 401, bad)
        self.refused(d.ask("GET", "/api/actor", token=self.sign(good, key="0" * 64)), 401, bad)
        self.refused(d.ask("GET", "/api/actor", token=self.sign(good).rsplit(".", 1)[0] + "."), 401, bad)

    def test_case_76_run_header_differs(self):
        r = d.ask("GET", "/api/actor", token=f.token["J"], headers={"X-Paperclip-Run-Id": "run-2"})
        self.refused(r, 422, "X-Paperclip-Run-Id does not match signed agent JWT run_id", "agent_jwt_run_id_mismatch")
        self.assertEqual(r.json["details"]["headerRunId"], "run-2")
        self.assertEqual(d.ask("GET", "/api/actor", token=f.token["J"], headers={"X-Paperclip-Run-Id": "run-1"}).status,
                         200)
        # Of a board or agent key it is attribution, and proves nothing.
        r = d.ask("GET", "/api/actor", token=f.token["A"], headers={"X-Paperclip-Run-Id": "run-2"})
        self.assertEqual((r.status, r.json["runId"]), (200, None))

    def test_case_10_sessions_need_an_origin(self):
        self.assertEqual(f.ask("A", "POST", "/api/sessions", {}).status, 403)
        r = f.ask("I", "POST", "/api/sessions", {})
        self.assertEqual(r.status, 201)
        cookie = r.headers["set-cookie"]
        for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
            self.assertIn(word, cookie)
        cookie = cookie.split(";")[0]
        path = f"/api/companies/{f.c1}/environments"
        self.assertEqual(d.ask("GET", path, headers={"Cookie": cookie}).status, 200)
        own = f"http://127.0.0.1:{d.port}"
        body = {"name": "by session", "driver": "ssh", "config": SSH}
        for origin in (None, "http://evil.example", "null", own + ".evil.example", "http://127.0.0.1:1", "https://"):
            h = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
            self.refused(d.ask("POST", path, body, headers=h), 403, "Board mutation requires trusted browser origin")
        self.assertEqual(d.ask("POST", path, body, headers={"Cookie": cookie, "Referer": own + "/x?y"}).status, 201)
        # A session is no bearer token, and cannot make the next one.
        self.assertEqual(d.ask("GET", path, token=cookie.split("=")[1]).status, 401)
        self.assertEqual(d.ask("POST", "/api/sessions", {}, headers={"Cookie": cookie, "Origin": own}).status, 403)
        self.assertEqual(d.ask("DELETE", "/api/sessions", headers={"Cookie": cookie, "Origin": own}).status, 200)
        self.assertEqual(d.ask("GET", path, headers={"Cookie": cookie}).status, 401)
        # A board key needs none.
        self.assertEqual(f.ask("I", "POST", path, {"name": "by key", "driver": "ssh", "config": SSH}).status, 201)

    def test_sessions_of_a_key_are_few(self):
        """API_SESSIONS_MAX: a further one ends the oldest; others' keys are none of its business."""
        key, other = (d.cli("token", "create", "--user", "admin", "--label", f"many {n}") for n in range(2))
        kept = d.ask("POST", "/api/sessions", {}, other).headers["set-cookie"].split(";")[0]
        got = [d.ask("POST", "/api/sessions", {}, key).headers["set-cookie"].split(";")[0] for _ in range(18)]
        ok = [d.ask("GET", "/api/actor", headers={"Cookie": c}).status for c in [kept, *got]]
        self.assertEqual(ok, [200] + [401] * 2 + [200] * 16)

    def test_session_ends_with_its_key(self):
        key = d.cli("token", "create", "--user", "admin", "--label", "parent", "--expires", "1h")
        r = d.ask("POST", "/api/sessions", {}, key)
        self.assertLess(r.json["expiresAt"], time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 3700)))
        cookie = {"Cookie": r.headers["set-cookie"].split(";")[0]}
        self.assertEqual(d.ask("GET", "/api/actor", headers=cookie).status, 200)
        d.cli("token", "revoke", key.split("_")[1])
        self.assertEqual(d.ask("GET", "/api/actor", headers=cookie).status, 401)

    def test_failed_proofs_do_not_fill_the_log(self):
        token = d.cli("token", "create", "--agent", f.foreign)
        for _ in range(30):
            self.assertEqual(d.ask("GET", "/api/actor", token=token).status, 403)
            self.assertEqual(d.ask("GET", "/api/actor", token=f.token["J"], headers={"X-Paperclip-Run-Id": "other"}).status, 422)
        for action, agent in (("auth.agent_key_missing_responsible_user", f.foreign), ("auth.agent_jwt_run_header_mismatch", f.agent)):
            n = db().execute("select count(*) from activity where action=? and entity_id=?", (action, agent)).fetchone()[0]
            self.assertTrue(1 <= n <= 3, n)  # one a minute


class Environments(Case):
    """CF: rows and their views."""

    @property
    def path(self):
        return f"/api/companies/{f.c1}/environments"

    def test_case_5_6_7_views(self):
        """CF-01, CF-04, CF-05: a restricted reader sees no configuration, variables or metadata; nobody sees the private record."""
        e = f.make("viewed", "ssh", SSH, envVars={"K": "v"}, metadata={"note": 1})
        whole = f.ask("I", "GET", "/api/environments/" + e["id"]).json
        self.assertEqual(whole["config"]["privateKey"], None)
        self.assertEqual(whole["envVars"], {"K": {"type": "plain", "value": "v"}})
        for who in "MV":
            r = f.ask(who, "GET", "/api/environments/" + e["id"]).json
            self.assertEqual((r["config"], r["envVars"], r["metadata"], r["name"]), ({}, {}, None, "viewed"))
        listed = f.ask("M", "GET", f"/api/companies/{f.c2}/environments")
        self.assertEqual(listed.status, 200)
        self.assertTrue(all(x["config"] == {} for x in listed.json))
        self.assertEqual(f.ask("I", "GET", self.path + "?driver=bogus").json, [])
        newest = f.ask("I", "GET", self.path + "?limit=1").json
        self.assertEqual([x["id"] for x in newest], [e["id"]])
        self.assertEqual(f.ask("I", "GET", self.path + "?limit=0").status, 400)

    def test_a_list_is_what_is_there(self):
        """A list that is kept is nobody's once anything changed, by whom ever, and never an administrator's for a member."""
        path = self.path + "?limit=3"
        ask = lambda who: (lambda r: ([(x["id"], x["name"], bool(x["config"])) for x in r.json], r.headers["x-total-count"]))(f.ask(who, "GET", path))
        one = f.make("kept 1", "ssh", SSH)
        self.assertEqual(ask("I")[0][0], (one["id"], "kept 1", True))
        self.assertEqual(ask("M")[0][0], (one["id"], "kept 1", False))
        self.assertEqual(ask("I"), ask("I"))
        total = int(ask("I")[1])
        two = f.make("kept 2", "ssh", SSH)
        self.assertEqual((ask("I")[0][0][0], ask("I")[1]), (two["id"], str(total + 1)))
        self.assertEqual(f.patch(two["id"], {"name": "kept 3"}).status, 200)
        self.assertEqual(ask("I")[0][0][1], "kept 3")
        # Another process.
        con = sqlite3.connect(f"{d.dir}/airlock/server.db", timeout=DEADLINE)
        con.execute("update envs set name='kept 4' where id=?", (two["id"],))
        con.commit()
        self.assertEqual(ask("I")[0][0][1], "kept 4")
        self.assertEqual(f.ask("I", "DELETE", f"/api/environments/{two['id']}").status, 200)
        self.assertEqual((ask("I")[0][0][0], ask("I")[1]), (one["id"], str(total)))

    def test_what_is_read_of_a_company_carries_no_environment(self):
        """CF-06: nothing that is served is a package, and of an environment what is about a company has at most the id."""
        e = f.make("cf06-name", "ssh", {**SSH, "host": "cf06-host"}, envVars={"CF06_VAR": "cf06-value"}, metadata={"note": "cf06-note"})
        con = db()
        con.execute("update envs set proof=? where id=?", (json.dumps({"version": 1, "companyId": f.c1, "mark": "cf06-proof"}), e["id"]))
        con.commit()
        self.assertEqual(f.ask("M", "PATCH", "/api/projects/" + f.project, {"executionWorkspacePolicy": {"environmentId": e["id"]}}).status, 200)
        doc, n = d.ask("GET", "/api/openapi.json").json, 0
        for pattern, methods in doc["paths"].items():
            self.assertNotRegex(pattern, "(?i)export|import|package|archive|backup")
            # Of an environment, a run or a lease itself speak their own routes.
            if "get" not in methods or re.search("/environments?|/environment-leases|/runs/|/activity|/events", pattern):
                continue
            for who in "IM":
                at = f.agent if "/agents/" in pattern else f.project
                body = f.ask(who, "GET", pattern.replace("{companyId}", f.c1).replace("{id}", at)).body
                for word in (b"cf06-name", b"cf06-host", b"CF06_VAR", b"cf06-value", b"cf06-note", b"cf06-proof"):
                    self.assertNotIn(word, body, pattern)
                n += 1
        self.assertGreater(n, 10)
        self.assertNotIn(b"cf06-proof", f.ask("I", "GET", "/api/environments/" + e["id"]).body)
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + e["id"]).status, 200)

    def test_case_56_image_sessions_end_at_the_gate(self):
        """No provider has an interactive set-up, and the capabilities say so: refused with the gate's words, nothing is made."""
        box = f.make("img-s", "sandbox", NATIVE)
        ssh = f.make("img-h", "ssh", SSH)
        path = "/api/environments/{}/custom-image-setup-sessions"
        self.assertEqual(f.ask("I", "POST", path.format(box["id"]), {"ttlSeconds": 59}).status, 400)
        self.assertEqual(f.ask("I", "POST", path.format(box["id"]), {"shell": "x"}).status, 400)
        self.refused(f.ask("I", "POST", path.format(box["id"]), {}), 422, 'Sandbox provider "native" does not support interactive setup.')
        self.refused(f.ask("I", "POST", path.format(ssh["id"]), {"ttlSeconds": 60}), 422,
                     "Environment customImage setup is only supported for sandbox environments.")
        self.refused(f.ask("I", "POST", path.format(NOBODY), {}), 404, "Environment not found")
        caps = f.ask("I", "GET", f"/api/companies/{f.c1}/environments/capabilities").json["sandboxProviders"]["native"]
        self.assertEqual((caps["supportsInteractiveSetup"], caps["supportsTemplateCapture"]), (False, False))
        where = f"/api/environments/{box['id']}/custom-image-template"
        self.assertEqual(set(f.ask("I", "GET", where).json.values()), {None})
        for method, more in (("POST", "/rollback"), ("POST", "/relink"), ("DELETE", "")):
            self.refused(f.ask("I", method, where + more, {}), 404, "Active environment customImage template not found")
        for more in ("", "/terminal-session-token", "/finish", "/cancel"):
            r = f.ask("I", "POST" if more else "GET", "/api/environment-custom-image-setup-sessions/" + NOBODY + more, {} if more else None)
            self.refused(r, 404, "Environment customImage setup session not found")

    def test_IM_01_no_agent_reaches_the_setup_of_images(self):
        """IM-01, its denial: every route of it, whoever is no administrator, one answer for what is there and what is not; nothing is made."""
        box = f.make("img-d", "sandbox", NATIVE)
        routes = [(m.upper(), p) for p, v in d.ask("GET", "/api/openapi.json").json["paths"].items() for m in v if "custom-image" in p]
        self.assertEqual(len(routes), 9)
        for method, pattern in routes:
            for who in "NAJMVU":
                got = set()
                for there in (box["id"], NOBODY):
                    path = pattern.replace("{id}", there).replace("{sessionId}", NOBODY)
                    r = f.ask(who, method, path, None if method == "GET" else {})
                    self.assertEqual(r.status, 403, (who, method, path))
                    got.add(r.body)
                self.assertEqual(len(got), 1, (who, method, pattern))
        self.assertEqual(set(f.ask("I", "GET", f"/api/environments/{box['id']}/custom-image-template").json.values()), {None})
        self.assertEqual(f.ask("I", "GET", "/api/environments/" + box["id"]).json, box)

    def test_case_11_unknown_members(self):
        r = f.ask("I", "POST", self.path, {"name": "x", "driver": "ssh", "config": SSH, "bogus": 1})
        self.refused(r, 400, "Validation error")
        self.assertIsInstance(r.json["details"], list)
        for body in ({}, {"name": "", "driver": "ssh"}, {"name": 1, "driver": "ssh"}, {"name": "x", "driver": "vm"},
                     {"name": "x", "driver": "ssh", "config": []}, {"name": "x", "driver": "ssh", "envVars": [1]},
                     {"name": "x" * 201, "driver": "ssh"}, {"name": "x", "driver": "ssh", "status": "gone"}):
            self.refused(f.ask("I", "POST", self.path, body), 400, "Validation error")

    def test_case_13_15_ssh_configuration(self):
        def post(**more):
            return f.ask("I", "POST", self.path, {"name": "s13", "driver": "ssh", "config": {**SSH, **more}})
        self.refused(post(remoteWorkspacePath="rel"), 422, "SSH remote workspace path must be absolute.")
        self.refused(post(host="  "), 422, "SSH environments require a host.")
        for change in ({"port": 70000}, {"port": True}, {"port": "x"}, {"port": 0}, {"bogus": 1}, {"host": "-oProxyCommand=x"},
                       {"username": "a b"}, {"privateKeySecretRef": {"type": "secret_ref", "secretId": "x"}},
                       {"strictHostKeyChecking": "yes"}):
            r = post(**change)
            self.assertEqual((r.status, bool(r.json["details"]["issues"])), (422, True), change)
        r = post(port="2222", host=" trimmed ")
        self.assertEqual((r.status, r.json["config"]["port"], r.json["config"]["host"]), (201, 2222, "trimmed"))

    def test_case_14_53_private_key(self):
        key = "-----BEGIN KEY----- very secret 4711"
        e = f.make("keyed", "ssh", {**SSH, "privateKey": key})
        ref = e["config"]["privateKeySecretRef"]
        self.assertEqual((e["config"]["privateKey"], ref["type"]), (None, "secret_ref"))
        refs = f.ask("I", "GET", f"/api/environments/{e['id']}/secret-refs").json["refs"]
        self.assertEqual([(x["configPath"], x["secretId"], x["companyName"]) for x in refs],
                         [("privateKeySecretRef", ref["secretId"], "C1")])
        # A new key takes the old one's place, and the old secret is gone.
        e2 = f.patch(e["id"], {"config": {"privateKey": "second 4711"}}).json
        new = e2["config"]["privateKeySecretRef"]["secretId"]
        self.assertNotEqual(new, ref["secretId"])
        names = [s["id"] for s in f.ask("I", "GET", f"/api/companies/{f.c1}/secrets").json]
        self.assertIn(new, names)
        self.assertNotIn(ref["secretId"], names)
        everything = "".join(d.log) + json.dumps([e, e2, refs]) + f.ask("I", "GET", f"/api/companies/{f.c1}/activity").body.decode()
        self.assertNotIn("4711", everything)
        con = db()
        con.execute("pragma wal_checkpoint(full)")
        for n in os.listdir(d.dir + "/airlock"):
            if n.startswith("server.db"):
                self.assertNotIn(b"4711", read(n))
        r = f.ask("I", "DELETE", "/api/environments/" + e["id"])
        self.assertEqual((r.status, r.json["destroyedReusableSandboxLeaseCount"]), (200, 0))
        self.assertNotIn(new, [s["id"] for s in f.ask("I", "GET", f"/api/companies/{f.c1}/secrets").json])

    def test_shared_key(self):
        """A secret that somebody else uses, or that nobody made for this environment, is never removed with it."""
        def secrets():
            return [s["id"] for s in f.ask("I", "GET", f"/api/companies/{f.c1}/secrets").json]

        e = f.make("share-1", "ssh", {**SSH, "privateKey": "first"})
        made = e["config"]["privateKeySecretRef"]
        other = f.make("share-2", "ssh", {**SSH, "privateKeySecretRef": made})
        own = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "environment-ssh-own", "value": "v"}).json["id"]
        third = f.make("share-3", "ssh", {**SSH, "privateKeySecretRef": {"type": "secret_ref", "secretId": own}})
        # Replaced where it was made: the other one goes on using it.
        self.assertEqual(f.patch(e["id"], {"config": {"privateKey": "second"}}).status, 200)
        self.assertIn(made["secretId"], secrets())
        # Replaced where it was only used.
        for env in (other, third):
            self.assertEqual(f.patch(env["id"], {"config": {"privateKey": "raw"}}).status, 200)
        self.assertTrue({made["secretId"], own} <= set(secrets()))
        refs = f.ask("I", "GET", f"/api/environments/{e['id']}/secret-refs").json["refs"]
        # Its own, when the driver changes, and when it is deleted.
        mine = refs[0]["secretId"]
        self.assertEqual(f.patch(e["id"], {"driver": "sandbox", "config": NATIVE}).status, 200)
        self.assertNotIn(mine, secrets())
        for env in (e, other, third):
            self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + env["id"]).status, 200)
        self.assertTrue({made["secretId"], own} <= set(secrets()))

    def test_names_are_cut_where_a_character_ends(self):
        path = f"/api/companies/{f.c1}/environments"
        for n in range(50, 110):
            key = "a" * n + "\u00e9\u4e16\U0001f600" * 60
            for body in ({"name": "cut", "driver": "ssh", "config": {key: 1}}, {"name": "cut", "driver": "ssh", "envVars": {"1" + key: "x"}},
                         {"name": "cut", "driver": "ssh", "envVars": {key: 1}}, {"name": "cut", "driver": "ssh", key: 1}):
                self.assertIn(f.ask("I", "POST", path, body).status, (400, 422))
            r = f.ask("M", "PATCH", "/api/projects/" + f.project, {"executionWorkspacePolicy": {key: 1}})
            self.assertEqual(r.status, 422)
        e = f.make("n" * 150 + "\u4e16" * 16, "ssh", {**SSH, "host": "h"})
        r = f.ask("I", "POST", path, {"name": e["name"], "driver": "ssh", "config": SSH})
        self.assertEqual((r.status, e["name"] in r.json["error"]), (409, True))

    def test_case_17_33_local_is_one(self):
        local = next(x for x in f.ask("I", "GET", self.path + "?driver=local").json)
        self.refused(f.ask("I", "POST", self.path, {"name": "l2", "driver": "local"}), 409,
                     "A local environment already exists for this instance.")
        r = f.ask("I", "DELETE", "/api/environments/" + local["id"])
        self.refused(r, 409, "Cannot delete the managed local environment.")
        self.assertEqual(r.json["details"]["deleteBlockedReasons"], ["managed_local"])

    def test_case_18_19_providers(self):
        for config, text in [({"provider": "fake"}, "Built-in fake sandbox environments are reserved for internal probes and cannot be saved."),
                             ({}, "Built-in fake sandbox environments are reserved for internal probes and cannot be saved."),
                             ({"provider": "p1"}, 'Sandbox provider "p1" is not installed or its plugin worker is not running.')]:
            self.refused(f.ask("I", "POST", self.path, {"name": "p", "driver": "sandbox", "config": config}), 422, text)
        self.refused(f.ask("I", "POST", self.path, {"name": "p", "driver": "plugin", "config": {"pluginKey": "k", "driverKey": "d"}}),
                     422, "Plugin environment config validation requires a running plugin worker manager.")
        for bad in ({"bogus": 1}, {"network": "all"}, {"memoryBytes": 1}, {"timeoutMs": 0}, {"reuseLease": 1}):
            self.assertEqual(f.ask("I", "POST", self.path, {"name": "p", "driver": "sandbox", "config": {**NATIVE, **bad}}).status,
                             422, bad)

    def test_case_21_variables(self):
        def post(v):
            return f.ask("I", "POST", self.path, {"name": "v21", "driver": "ssh", "config": SSH, "envVars": v})
        self.refused(post({"1X": "a"}), 422, "Invalid environment variable name: 1X")
        self.refused(post({"A": "***REDACTED***"}), 422, "Refusing to persist redacted placeholder for key: A")
        self.refused(post({"A": {"type": "secret_ref", "secretId": NOBODY}}), 404, "Secret not found")
        self.assertEqual(post({"A": 1}).status, 400)
        mine = f.ask("I", "POST", f"/api/companies/{f.c1}/secrets", {"name": "s21", "value": "hidden-21"}).json
        theirs = f.ask("I", "POST", f"/api/companies/{f.c2}/secrets", {"name": "s21", "value": "hidden-21"}).json
        self.refused(post({"A": {"type": "secret_ref", "secretId": theirs["id"]}}), 422, "Secret must belong to same company")
        e = post({"A": {"type": "secret_ref", "secretId": mine["id"]}, "B": "x"})
        self.assertEqual((e.status, e.json["envVars"]["A"]["version"]), (201, "latest"))
        refs = f.ask("I", "GET", f"/api/environments/{e.json['id']}/secret-refs").json["refs"]
        self.assertEqual([x["configPath"] for x in refs], ["env.A"])
        self.assertNotIn(b"hidden-21", e.body)

    def test_case_22_23_proof_is_the_servers(self):
        """CF-02, CF-03, CF-04, PR-09."""
        for value in ({"version": 1}, None, False):
            r = f.ask("I", "POST", self.path, {"name": "forged", "driver": "sandbox", "config": NATIVE,
                                               "metadata": {"_paperclipRunnerPlatform": value}})
            self.refused(r, 422, "metadata._paperclipRunnerPlatform is server-owned and cannot be set",
                         "environment_platform_proof_reserved")
        self.assertNotIn("forged", [x["name"] for x in f.ask("I", "GET", self.path).json])
        e = f.make("proved", "sandbox", NATIVE)
        con = db()

        def stored():
            return con.execute("select proof from envs where id=?", (e["id"],)).fetchone()[0]

        def patch(body):
            r = f.patch(e["id"], body)
            self.assertNotIn(b"platform-proof", r.body)
            return r
        con.execute("update envs set proof='platform-proof' where id=?", (e["id"],))
        con.commit()
        self.assertEqual(patch({"metadata": {"_paperclipRunnerPlatform": 1}}).status, 422)
        self.assertEqual(patch({"metadata": {"note": 1}}).json["metadata"], {"note": 1})
        self.assertEqual(patch({"metadata": None}).json["metadata"], None)
        for body in ({"name": "proved2"}, {"status": "archived"}, {"status": "active"}, {"envVars": {"A": "b"}}, {"config": dict(NATIVE)}, {}):
            self.assertEqual(patch(body).status, 200)
            self.assertEqual(stored(), "platform-proof", body)
        # CF-03, as case 25 for what this provider can change of its target.
        self.assertEqual(patch({"config": {"network": "host"}}).status, 200)
        self.assertIsNone(stored())

    def test_case_26_driver_change(self):
        e = f.make("d26", "sandbox", NATIVE)
        self.refused(f.ask("I", "PATCH", "/api/environments/" + e["id"], {"driver": "ssh", "config": SSH}), 422,
                     "Environment secret management requires a companyId context during the instance-scoped transition.")
        self.refused(f.patch(e["id"], {"driver": "ssh"}), 422, "SSH environments require a host.")
        self.assertEqual(f.ask("I", "GET", "/api/environments/" + e["id"]).json, e)
        r = f.patch(e["id"], {"driver": "ssh", "config": SSH})
        self.assertEqual((r.status, r.json["driver"]), (200, "ssh"))
        r = f.patch(e["id"], {"config": {"port": 23}})
        self.assertEqual((r.json["config"]["port"], r.json["config"]["host"]), (23, "h"))

    def test_case_27_pending_cleanup_blocks(self):
        e = f.make("d27", "sandbox", NATIVE)
        con = db()
        con.execute("insert into env_leases(id,company_id,environment_id,status,policy,provider,acquired_ns,used_ns,created_ns,"
                    "updated_ns,attempts) values(?,?,?,'pending_cleanup','ephemeral','native',1,1,1,1,9)",
                    ("27000000-0000-4000-8000-000000000000", f.c1, e["id"]))
        con.commit()
        self.refused(f.patch(e["id"], {"config": {}}), 409,
                     "Cannot change the driver or provider config while a sandbox cleanup is pending. Wait for the "
                     "cleanup sweep to destroy the orphan sandbox, then retry.", "environment_pending_sandbox_cleanup")
        self.assertEqual(f.patch(e["id"], {"name": "d27b"}).status, 200)
        r = f.ask("I", "DELETE", "/api/environments/" + e["id"])
        self.assertEqual(r.json["details"]["deleteBlockedReasons"], ["pending_sandbox_cleanup"])
        con.execute("delete from env_leases where environment_id=?", (e["id"],))
        con.commit()

    def test_case_34_38_instance_default(self):
        e = f.make("d34", "sandbox", NATIVE)
        self.assertEqual(f.ask("I", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": e["id"]}).status, 200)
        for query in ("", "?destroyReusableSandboxLeases=true"):
            r = f.ask("I", "DELETE", "/api/environments/" + e["id"] + query)
            self.assertEqual(r.json["details"]["deleteBlockedReasons"], ["instance_default"])
        blast = f.ask("I", "GET", f"/api/environments/{e['id']}/delete-blast-radius").json
        self.assertEqual((blast["canDelete"], blast["staticReferences"]["isInstanceDefault"]), (False, True))
        self.assertEqual(f.ask("I", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": None}).json,
                         {"defaultEnvironmentId": None})
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + e["id"]).status, 200)
        self.refused(f.ask("I", "DELETE", "/api/environments/" + e["id"]), 404, "Environment not found")

    def test_names(self):
        f.make("twice", "ssh", SSH)
        self.refused(f.ask("I", "POST", self.path, {"name": "twice", "driver": "ssh", "config": SSH}), 409,
                     'An environment named "twice" already exists for this instance.')
        for name in ("'; drop table envs; --", " spaced ", "Ünï\u2603", "a\nb"):
            e = f.make(name, "ssh", SSH)
            self.assertEqual(f.ask("I", "GET", "/api/environments/" + e["id"]).json["name"], name)
        self.refused(f.ask("I", "POST", f"/api/companies/{NOBODY}/environments", {"name": "q", "driver": "ssh", "config": SSH}),
                     404, "Company not found")

    def test_patches_lose_nothing(self):
        """Two writers of different members, and an empty patch."""
        e = f.make("merge", "ssh", SSH)
        before = f.patch(e["id"], {}).json
        self.assertEqual(before["updatedAt"], e["updatedAt"])
        n = len(f.ask("I", "GET", f"/api/companies/{f.c1}/activity").json)
        f.patch(e["id"], {})
        self.assertEqual(len(f.ask("I", "GET", f"/api/companies/{f.c1}/activity").json), n)
        f.patch(e["id"], {"config": {"port": 1}})
        f.patch(e["id"], {"config": {"knownHosts": "k"}})
        r = f.patch(e["id"], {"metadata": {"_paperclipManagedArchiveToken": "t", "a": 1}})
        self.assertEqual((r.json["config"]["port"], r.json["config"]["knownHosts"], r.json["metadata"]), (1, "k", {"a": 1}))

    def test_nothing_changed_is_nothing_to_tell(self):
        """An agent that asks for the same again and again writes nothing; the log keeps the newest lines of each who writes it."""
        agent = f.ask("A", "GET", "/api/actor").json
        path = "/api/agents/" + (agent.get("agentId") or agent["actorId"])
        f.ask("A", "PATCH", path, {"defaultEnvironmentId": None})
        count = lambda: db().execute("select count(*) from activity where action='agent.updated'").fetchone()[0]
        n = count()
        for _ in range(20):
            self.assertEqual(f.ask("A", "PATCH", path, {"defaultEnvironmentId": None}).status, 200)
        self.assertEqual(count(), n)

    def test_activity_holds_no_values(self):
        e = f.make("act", "ssh", {**SSH, "host": "host-9876"}, envVars={"A": "value-9876"})
        f.patch(e["id"], {"config": {"host": "host-9877"}, "description": "d"})
        for c in (f.c1, f.c2):
            rows = f.ask("I", "GET", f"/api/companies/{c}/activity").json
            mine = [r for r in rows if r["entityId"] == e["id"]]
            self.assertEqual([r["action"] for r in mine], ["environment.updated", "environment.created"])
            self.assertEqual(mine[0]["details"]["changedFields"], ["config", "description"])
            self.assertNotIn("987", json.dumps(mine))
        self.assertEqual(f.ask("M", "GET", f"/api/companies/{f.c2}/activity").status, 404)

    def test_capabilities(self):
        """CP-01."""
        doc = f.ask("M", "GET", self.path + "/capabilities").json
        self.assertEqual(len(doc["adapters"]), 15)
        self.assertEqual(doc["sandboxProviders"]["fake"]["supportsRunExecution"], False)
        self.assertEqual(doc["sandboxProviders"]["native"]["status"], "supported")
        self.assertEqual(doc["drivers"]["plugin"], "unsupported")


class Assignment(Case):
    """AS-01, AS-03: section 8."""

    def test_case_68_an_agent_chooses_for_itself(self):
        """AS-01, AS-03: among what is permitted; protected configuration is denied."""
        e = f.make("a68", "ssh", SSH)
        path = "/api/agents/" + f.agent
        for who in "AJ":
            r = f.ask(who, "PATCH", path, {"defaultEnvironmentId": e["id"]})
            self.assertEqual((r.status, r.json["defaultEnvironmentId"]), (200, e["id"]))
        self.refused(f.ask("M", "PATCH", path, {"adapterType": "process"}), 422, 'Environment driver "ssh" is not allowed here')
        # Which adapter runs an agent is not the agent's to say; naming the one that it has changes nothing.
        now = f.ask("A", "GET", path).json["adapterType"]
        self.refused(f.ask("A", "PATCH", path, {"adapterType": "process"}), 403, "Agents cannot change adapter configuration")
        self.assertEqual(f.ask("A", "PATCH", path, {"adapterType": now}).status, 200)
        self.refused(f.ask("A", "PATCH", path, {"defaultEnvironmentId": NOBODY}), 422, "Selected environment was not found")
        f.patch(e["id"], {"status": "archived"})
        self.refused(f.ask("A", "PATCH", path, {"defaultEnvironmentId": e["id"]}), 422, "Environment is archived.")
        self.assertEqual(f.ask("A", "PATCH", path, {"defaultEnvironmentId": None}).json["defaultEnvironmentId"], None)
        self.assertEqual(f.ask("A", "PATCH", path, {"adapterConfig": {"command": "x"}}).status, 403)

    def test_run_token_without_a_responsible_user(self):
        """Nobody answers for what it would write; reading goes on."""
        alone = d.cli("agent", "add", "alone", "--company", "C1")
        token = d.cli("token", "run", "--agent", alone, "--run", "r-alone")
        self.assertEqual(d.ask("GET", "/api/agents/" + alone, token=token).status, 200)
        for path in ("/api/agents/" + alone, "/api/projects/" + f.project):
            self.refused(d.ask("PATCH", path, {}, token), 403, "The responsible user has no active membership",
                         "RESPONSIBLE_USER_UNAVAILABLE")

    def test_case_69_others_need_a_grant(self):
        """AS-01."""
        self.assertEqual(f.ask("A", "PATCH", "/api/agents/" + f.other, {"defaultEnvironmentId": None}).status, 403)
        for who in "AM":
            for gone in (f.foreign, NOBODY, "x"):
                self.refused(f.ask(who, "PATCH", "/api/agents/" + gone, {"defaultEnvironmentId": None}), 404, "Agent not found")
        boss = d.cli("agent", "add", "boss", "--company", "C1", "--user", "member", "--configure")
        token = d.cli("token", "create", "--agent", boss)
        self.assertEqual(d.ask("PATCH", "/api/agents/" + f.other, {"defaultEnvironmentId": None}, token).status, 200)
        self.assertEqual(f.ask("V", "PATCH", "/api/agents/" + f.other, {"defaultEnvironmentId": None}).status, 403)
        self.assertEqual(f.ask("M", "PATCH", "/api/agents/" + f.other, {"defaultEnvironmentId": None}).status, 200)
        # An administrator of the instance is no member of the company.
        self.assertEqual(f.ask("I", "PATCH", "/api/agents/" + f.other, {}).status, 404)

    def test_case_70_72_projects(self):
        """AS-01, AS-03."""
        path = "/api/projects/" + f.project
        e = f.make("p70", "ssh", SSH)
        con = db()
        con.execute("insert into envs(id,name,driver,status,created_ns,updated_ns) values('70000000-0000-4000-8000-000000000000','P1','plugin','active',1,1)")
        con.commit()
        self.refused(f.ask("A", "PATCH", path, {"executionWorkspacePolicy": {"environmentId": "70000000-0000-4000-8000-000000000000"}}), 422,
                     'Environment driver "plugin" is not allowed here. Allowed drivers: local, ssh, sandbox')
        r = f.ask("A", "PATCH", path, {"executionWorkspacePolicy": {"environmentId": e["id"]}})
        self.assertEqual((r.status, r.json["executionWorkspacePolicy"]), (200, {"environmentId": e["id"]}))
        self.assertEqual(f.ask("A", "PATCH", path, {"executionWorkspacePolicy": {"workspaceStrategy": {"provisionCommand": "x"}}}).status, 403)
        self.refused(f.ask("A", "PATCH", "/api/projects/" + f.foreign_project, {}), 404, "Project not found")
        self.assertEqual(f.ask("V", "PATCH", path, {}).status, 403)
        # A deleted environment is chosen by nobody any more.
        self.assertEqual(f.ask("I", "DELETE", "/api/environments/" + e["id"]).status, 200)
        self.assertEqual(f.ask("M", "GET", path).json["executionWorkspacePolicy"], {"environmentId": None})

    def test_case_73_on_behalf_of_a_viewer(self):
        """AS-01."""
        a = d.cli("agent", "add", "for-viewer", "--company", "C1", "--user", "viewer")
        token = d.cli("token", "create", "--agent", a)
        r = d.ask("PATCH", "/api/projects/" + f.project, {"executionWorkspacePolicy": None}, token)
        self.refused(r, 403, "The responsible user may only read", "RESPONSIBLE_USER_UNAUTHORIZED")
        a = d.cli("agent", "add", "for-loner", "--company", "C1", "--user", "loner")
        token = d.cli("token", "create", "--agent", a)
        r = d.ask("PATCH", "/api/projects/" + f.project, {"executionWorkspacePolicy": None}, token)
        self.refused(r, 403, "The responsible user has no active membership", "RESPONSIBLE_USER_UNAVAILABLE")

    def test_case_74_settings(self):
        """AS-01."""
        self.refused(f.ask("M", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": None}), 403, "Instance admin access required")
        self.refused(f.ask("I", "PATCH", "/api/instance/settings", {"defaultEnvironmentId": NOBODY}), 422, "Environment not found.")


class Secrets(Case):
    def test_sealed_rotated_resealed(self):
        path = f"/api/companies/{f.c1}/secrets"
        s = f.ask("I", "POST", path, {"name": "tok", "value": "first-31337"})
        self.assertEqual((s.status, s.json["latestVersion"]), (201, 1))
        self.refused(f.ask("I", "POST", path, {"name": "tok", "value": "x"}), 409, "A secret with this name already exists.")
        r = f.ask("I", "POST", f"/api/secrets/{s.json['id']}/versions", {"value": "second-31337"})
        self.assertEqual(r.json["latestVersion"], 2)
        con = db()
        old = con.execute("select sealed, key_id from secret_versions where secret_id=? order by version", (s.json["id"],)).fetchall()
        self.assertEqual(len(old), 2)
        # Beside a daemon that has the old key, and would go on sealing with it, no.
        r = d.cli("token", "rotate-seal", ok=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("stop it first", r.stderr)
        self.assertEqual(con.execute("select sealed, key_id from secret_versions where secret_id=? order by version", (s.json["id"],)).fetchall(), old)
        d.stop()
        d.cli("token", "rotate-seal")
        d.start()
        new = con.execute("select sealed, key_id from secret_versions where secret_id=? order by version", (s.json["id"],)).fetchall()
        self.assertEqual(len({k for _, k in old + new}), 2)
        self.assertTrue(all(a != b for a, b in zip(old, new)))
        self.assertEqual(os.stat(d.dir + "/airlock/seal.key").st_mode & 0o777, 0o600)
        self.assertEqual(len(read("seal.key").split()), 1)
        self.assertNotIn("31337", "".join(d.log) + f.ask("I", "GET", path).body.decode())
        self.assertEqual(f.ask("I", "DELETE", "/api/secrets/" + s.json["id"]).status, 200)
        self.refused(f.ask("I", "DELETE", "/api/secrets/" + s.json["id"]), 404, "Secret not found")
        self.assertEqual(con.execute("select count(*) from secret_versions where secret_id=?", (s.json["id"],)).fetchone(), (0,))


    def test_a_value_that_cannot_be_opened_costs_no_key(self):
        """It is refused by name and adds nothing, however often; lines that tries left behind go. The daemon seals the others anew."""
        box = Daemon(PROGRAMS, mode="local_trusted")
        self.addCleanup(box.close)
        path = f"/api/companies/{box.cli('company', 'add', 'C')}/secrets"
        good, lost = [box.ask("POST", path, {"name": n, "value": n * 9}).json["id"] for n in "ab"]
        box.stop()
        con = sqlite3.connect(f"{box.dir}/airlock/server.db", timeout=DEADLINE, isolation_level=None)
        self.addCleanup(con.close)
        keyfile = box.dir + "/airlock/seal.key"

        def keys():
            with open(keyfile, encoding="ascii") as file:
                return file.read().split()

        def key_of(secret):
            return con.execute("select key_id from secret_versions where secret_id=?", (secret,)).fetchone()[0]
        con.execute("update secret_versions set sealed=(select sealed from secret_versions where secret_id=?) where secret_id=?", (good, lost))
        first = keys()
        for was in (key_of(good), "0" * 16):
            con.execute("update secret_versions set key_id=? where secret_id=?", (was, lost))
            for _ in range(5):
                r = box.cli("token", "rotate-seal", ok=False)
                self.assertIn("/api/secrets/" + lost, r.stderr)
                self.assertEqual(keys(), first)
        with open(keyfile, "w", encoding="ascii") as file:
            file.write("".join(f"{i}{i}" * 32 + "\n" for i in range(7)) + first[0] + "\n")
        was, other = key_of(good), key_of(lost)
        box.log.clear()
        box.start()
        self.assertIn("1 values of secrets are sealed with the new key", "".join(box.log))
        self.assertNotEqual(key_of(good), was)
        self.assertEqual(key_of(lost), other)
        self.assertEqual(box.ask("DELETE", "/api/secrets/" + lost).status, 200)
        box.stop()
        box.cli("token", "rotate-seal")
        self.assertEqual(len(keys()), 1)
        box.cli("token", "rotate-seal")

    def test_a_credential_is_rotated_by_the_daemon(self):
        """api.md 4.3: keys that only systemd has are changed all the same, with the old one beside the new one."""
        box = Daemon(PROGRAMS, mode="local_trusted", start=False)
        self.addCleanup(box.close)
        given = box.dir + "/credentials"
        os.mkdir(given)

        def give(new, old=None):
            for name, value in (("airlock-seal-key", new), ("airlock-seal-key-old", old)):
                if value:
                    with open(f"{given}/{name}", "w", encoding="ascii") as file:
                        file.write(value + "\n")
                elif os.path.exists(f"{given}/{name}"):
                    os.unlink(f"{given}/{name}")

        def versions():
            con = sqlite3.connect(f"{box.dir}/airlock/server.db", timeout=DEADLINE)
            try:
                return con.execute("select sealed, key_id from secret_versions").fetchall()
            finally:
                con.close()

        def restart():
            box.stop()
            box.log.clear()
            box.start()
            return "".join(box.log)

        outside = dict(box.env)
        box.env["CREDENTIALS_DIRECTORY"] = given
        give("11" * 32)
        box.start()
        company = box.cli("company", "add", "C")
        path = f"/api/companies/{company}/secrets"
        for name in "ab":
            self.assertEqual(box.ask("POST", path, {"name": name, "value": name * 9}).status, 201)
        first = versions()
        # The command says how, inside the service and outside, and makes no key that nobody asked for.
        box.stop()
        for env in (box.env, outside):
            box.env, was = env, box.env
            r = box.cli("token", "rotate-seal", ok=False)
            box.env = was
            self.assertIn("airlock-seal-key-old", r.stderr)
            self.assertNotEqual(r.returncode, 0)
        self.assertFalse(os.path.exists(box.dir + "/airlock/seal.key"))
        self.assertEqual(versions(), first)
        # Without the old one nothing is lost, and it is said.
        give("22" * 32)
        box.start()
        self.assertIn("2 values of secrets are sealed with a key", restart())
        self.assertEqual(versions(), first)
        give("22" * 32, "11" * 32)
        self.assertIn("2 values of secrets are sealed with the new key", restart())
        second = versions()
        self.assertEqual(len({k for _, k in first + second}), 2)
        self.assertTrue(all(a != b for a, b in zip(first, second)))
        give("22" * 32)
        self.assertNotIn("values of secrets", restart())
        # And so does an old line below the new one, as in the file of a state directory.
        give("33" * 32 + "\n" + "22" * 32)
        self.assertIn("2 values of secrets are sealed with the new key", restart())
        give("33" * 32)
        self.assertNotIn("values of secrets", restart())
        # A job of an earlier daemon that has the old key open is not left with what it cannot open.
        give("44" * 32, "33" * 32)
        with open(box.dir + "/airlock/seal.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            before = versions()
            self.assertIn("stay sealed with the older key", restart())
            self.assertEqual(versions(), before)
        # Having tried, it has its keys open as ever: nobody may take them away under it.
        with open(box.dir + "/airlock/seal.lock", "ab") as lock, self.assertRaises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.assertIn("2 values of secrets are sealed with the new key", restart())
        give("55" * 32, "not a key")
        box.stop()
        with self.assertRaisesRegex(AssertionError, "airlock-seal-key-old"):
            box.start()


class Jobs(Case):
    def test_jobs_of_an_earlier_daemon_take_places(self):
        """Eight at once is eight, whichever daemon began them; nobody waits for those of another one to stop."""
        box = Daemon(PROGRAMS, mode="local_trusted")
        self.addCleanup(box.close)
        company = box.cli("company", "add", "C")
        box.stop()

        def figure(name):
            return int(re.search(rf"^airlockd_{name} (\d+)$", box.ask("GET", "/metrics").body.decode(), re.M).group(1))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            config = {"host": "127.0.0.1", "port": silent.getsockname()[1], "username": "u", "remoteWorkspacePath": "/w"}
            jobs = [box.job({"op": "probe_ssh", "config": config, "environmentId": "", "companyId": "", "actor": "x", "key": ""}) for _ in range(8)]
            try:
                wait_for("eight", lambda: len(os.listdir(box.dir + "/airlock/jobs")) == 8 if os.path.isdir(box.dir + "/airlock/jobs") else 0)
                with open(box.dir + "/airlock/jobs/1-1-" + "0" * 36, "w", encoding="ascii"):
                    pass
                box.start()
                self.assertEqual(figure("jobs_running"), 8)
                self.assertEqual(len(os.listdir(box.dir + "/airlock/jobs")), 8)  # without that of a dead one
                got = []
                t = threading.Thread(target=lambda: got.append(box.ask("POST", f"/api/companies/{company}/environments/probe-config",
                                                                       {"driver": "ssh", "config": {**config, "port": 1}})))
                t.start()
                wait_for("it to wait", lambda: figure("jobs_waiting") >= 1)
                self.assertEqual((figure("jobs_running"), got), (8, []))
                for p in jobs[:2]:
                    p.kill()
                    p.wait()
                t.join(DEADLINE)
                self.assertEqual([r.json["ok"] for r in got], [False])
                begun = time.monotonic()
                box.stop()
                self.assertLess(time.monotonic() - begun, 8)
            finally:
                for p in jobs:
                    p.kill()
                    p.wait()
                    p.stdout.close()


    def test_a_job_that_is_killed_leaves_nothing_that_says_it_lives(self):
        box = Daemon(PROGRAMS, mode="local_trusted")
        self.addCleanup(box.close)
        company = box.cli("company", "add", "C")
        at = box.dir + "/airlock/jobs"
        with socket.create_server(("127.0.0.1", 0)) as silent:
            config = {"host": "127.0.0.1", "port": silent.getsockname()[1], "username": "u", "remoteWorkspacePath": "/w"}
            got = []
            t = threading.Thread(target=lambda: got.append(box.ask("POST", f"/api/companies/{company}/environments/probe-config",
                                                                   {"driver": "ssh", "config": config})))
            wait_for("the first sweep", lambda: re.search(r"^airlockd_sweeps_total [1-9]", box.ask("GET", "/metrics").body.decode(), re.M))
            t.start()
            note = wait_for("its note", lambda: os.listdir(at)[:1] if os.path.isdir(at) else None)[0]
            os.killpg(int(note.split("-")[0]), signal.SIGKILL)
            t.join(DEADLINE)
        self.assertEqual(len(got), 1)
        self.assertNotIn(note, os.listdir(at))


class Modes(Case):
    def test_local_trusted_and_rebinding(self):
        box = Daemon(PROGRAMS, "--host", "box.example", mode="local_trusted")
        try:
            r = box.ask("GET", "/api/actor")
            self.assertEqual((r.json["source"], r.json["isInstanceAdmin"]), ("local_implicit", True))
            for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1].x", ""):
                self.assertEqual(box.ask("GET", "/api/actor", headers={"Host": host}).status, 403, host)
            for host in ("localhost:1", "[::1]:9", "BOX.example"):
                self.assertEqual(box.ask("GET", "/api/actor", headers={"Host": host}).status, 200, host)
            self.assertEqual(box.ask("GET", "/api/actor", headers={"X-Forwarded-Host": "localhost"}).status, 403)
            self.assertEqual(box.ask("GET", "/api/actor", headers={"Authorization": "Bearer x"}).status, 401)
        finally:
            box.close()

    def test_local_board_and_strangers(self):
        """B-05, B-10: over TCP the board is who the kernel says it is: not other users, not a sandbox on the host's network."""
        if os.geteuid():
            self.skipTest("only root can be several users")
        box = Daemon(PROGRAMS, mode="local_trusted", uid=OWN)
        more = Daemon(PROGRAMS, "--trust-user", str(OTHER), mode="local_trusted")
        def refusals():
            return int(re.search(r"\nairlockd_unauthenticated_total (\d+)", box.ask("GET", "/metrics").body.decode()).group(1))

        try:
            for which, who, word, status in ((box, OWN, [], 200), (box, 0, [], 200), (box, OTHER, [], 401),
                                             (box, OWN, ["unshare", "-U"], 401), (box, OWN, ["unshare", "-U", "-m", "-r"], 401),
                                             (more, 0, [], 200), (more, OTHER, [], 200), (more, OWN, [], 401),
                                             (more, OTHER, ["unshare", "-U"], 401)):
                with self.subTest(daemon=which.uid, who=who, word=word):
                    self.assertEqual(self.as_user(who, word, which.port), str(status))
            # With a proof it is whoever that says.
            box.cli("user", "add", "boss", "--admin")
            token = box.cli("token", "create", "--user", "boss")
            self.assertEqual(self.as_user(OTHER, [], box.port, token), "200")
            # One who is gone before anybody looks is nobody.
            before = refusals()
            s = socket.create_connection(("127.0.0.1", box.port), timeout=DEADLINE)
            os.kill(box.process.pid, signal.SIGSTOP)
            s.sendall(b"POST /api/companies/" + NOBODY.encode() + b"/environments HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            s.close()
            os.kill(box.process.pid, signal.SIGCONT)
            wait_for("a refusal", lambda: refusals() > before)
        finally:
            box.close()
            more.close()

    @staticmethod
    def as_user(uid, word, port, token=None):
        """What GET /api/actor says to a process of that user."""
        headers = {"Authorization": "Bearer " + token} if token else {}
        ask = (f"import http.client as h; c=h.HTTPConnection('127.0.0.1',{port},timeout={DEADLINE});"
               f"c.request('GET','/api/actor',headers={headers});print(c.getresponse().status)")

        def become():
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
        return subprocess.run([*word, "/usr/bin/python3", "-c", ask], capture_output=True, text=True, timeout=DEADLINE, cwd="/",
                              check=False, preexec_fn=become).stdout.strip()

    def test_one_look_for_many(self):
        """Whoever connects costs one look at the processes for all that wait, and not one each; none is judged by another."""
        if os.geteuid():
            self.skipTest("only root can be several users")
        box = Daemon(PROGRAMS, mode="local_trusted", uid=OWN)
        ask = (f"import http.client as h,sys\ncs=[h.HTTPConnection('127.0.0.1',{box.port},timeout={DEADLINE}) for _ in range(60)]\n"
               "for c in cs: c.request('GET','/api/actor')\n"
               "print('sent',flush=True)\nprint([c.getresponse().status for c in cs],flush=True)")

        def looks():
            return int(re.search(rb"airlockd_peer_looks_total (\d+)", box.ask("GET", "/metrics").body).group(1))

        def become():
            os.setgroups([])
            os.setgid(OWN)
            os.setuid(OWN)
        try:
            before = looks()
            os.kill(box.process.pid, signal.SIGSTOP)
            both = [subprocess.Popen([*word, "/usr/bin/python3", "-c", ask], stdout=subprocess.PIPE, text=True, cwd="/", preexec_fn=become)
                    for word in ([], ["unshare", "-U"])]
            for p in both:
                self.assertEqual(p.stdout.readline(), "sent\n")
            os.kill(box.process.pid, signal.SIGCONT)
            self.assertEqual([p.communicate(timeout=DEADLINE)[0] for p in both], [f"{[200] * 60}\n", f"{[401] * 60}\n"])
            self.assertLess(looks() - before, 40)
        finally:
            os.kill(box.process.pid, signal.SIGCONT)
            box.close()

    def test_pages_and_the_local_board(self):
        """A program names no origin; a page does, also for a request without a body, and must be the daemon's own."""
        box = Daemon(PROGRAMS, mode="local_trusted")
        try:
            path = "/api/environment-leases/" + NOBODY
            own = f"http://127.0.0.1:{box.port}"
            for headers, status in (({}, 404), ({"Origin": own}, 404), ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                                    ({"Referer": "http://evil.example/x"}, 403), ({"Referer": own + "/x"}, 404)):
                self.assertEqual(box.ask("DELETE", path, headers=headers).status, status, headers)
                self.assertEqual(box.ask("POST", path + "/release", headers=headers).status, status, headers)
            self.assertEqual(box.ask("GET", "/api/actor", headers={"Origin": "http://evil.example"}).status, 200)
        finally:
            box.close()

    def test_platform_rows_of_a_managed_instance(self):
        """Cases 29, 30, 31."""
        box = Daemon(PROGRAMS, "--cloud-managed")
        try:
            g = Fixture(box)
            con = sqlite3.connect(box.dir + "/airlock/server.db", timeout=DEADLINE)
            row = "31000000-0000-4000-8000-000000000000"
            con.execute("insert into envs(id,name,driver,status,config,env_vars,metadata,managed,created_ns,updated_ns) values(?,?,?,?,?,?,?,1,1,1)",
                        (row, "Managed", "sandbox", "active",
                         json.dumps({"provider": "native", "apiKey": "k", "image": "i", "deep": [{"my_token": 1, "ok": 2}]}),
                         json.dumps({"A": {"type": "plain", "value": "b"}}), json.dumps({"managedByPaperclip": True})))
            con.commit()
            r = g.ask("M", "GET", "/api/environments/" + row).json
            self.assertEqual((r["config"], r["envVars"]), ({"provider": "native", "image": "i", "deep": [{"ok": 2}]}, {}))
            self.assertEqual(g.ask("I", "GET", "/api/environments/" + row).json["envVars"], {"A": {"type": "plain", "value": "b"}})
            for body in ({"name": "x"}, {"status": "archived"}, {"metadata": {"managedByPaperclip": None}}, {"config": {}}):
                self.refused(g.ask("I", "PATCH", "/api/environments/" + row, body), 403,
                             "Platform-provisioned environments are platform-managed on cloud-managed instances",
                             "environment_platform_managed")
            self.assertEqual(g.ask("I", "PATCH", f"/api/environments/{row}?companyId={g.c1}", {"envVars": {"C": "d"}}).status, 200)
            self.refused(g.ask("I", "DELETE", "/api/environments/" + row), 403,
                         "Platform-provisioned environments are platform-managed on cloud-managed instances")
            e = g.make("tenant", "ssh", SSH)
            self.refused(g.ask("I", "PATCH", "/api/environments/" + e["id"], {"metadata": {"managedByPaperclip": True}}), 422,
                         "metadata.managedByPaperclip is reserved to the platform on cloud-managed instances",
                         "environment_platform_marker_reserved")
        finally:
            box.close()

    def test_PR_07_platform_images(self):
        """PR-07, case 52: the platform's rows need no record while its document covers them; a marker is not enough, nothing else is wider."""
        doc = f"{d.dir}/managed.json"

        def say(content):
            with open(doc, "w", encoding="ascii") as file:
                file.write(content if isinstance(content, str) else json.dumps(content))

        good = {"version": 1, "sandbox": {"provider": "native"}}
        say(good)
        box = Daemon(PROGRAMS)
        try:
            g = Fixture(box)
            # Made before the instance was a managed one: from then on nobody but the platform edits it.
            mine = g.make("platform", "sandbox", NATIVE, metadata={"managedByPaperclip": True})
            theirs = g.make("tenant", "sandbox", NATIVE)
            secret = g.ask("I", "POST", f"/api/companies/{g.c2}/secrets", {"name": "s", "value": "v"}).json["id"]

            def ask(env, company, who="I"):
                return g.ask(who, "GET", f"/api/environments/{env['id']}/qualification?companyId={company}")

            never = {"state": "unqualified", "reason": "mutable_target"}
            self.assertEqual(ask(mine, g.c1).json, never)
            box.stop()
            box.options = ["--cloud-managed"]
            box.start()
            self.assertEqual(ask(mine, g.c1).json, never)  # only a marker
            box.stop()
            box.options = ["--managed-config", doc]
            box.start()
            yes = {"state": "qualified", "by": "platform_configuration"}
            self.assertEqual(ask(mine, g.c1).json, yes)
            self.assertEqual(ask(theirs, g.c1).json, never)
            self.assertEqual(ask(mine, g.c1, "M").json, yes)
            self.assertEqual(ask(mine, g.c2, "M").status, 404)
            for who in "NAJU":
                self.assertEqual(ask(mine, g.c1, who).status, 403)
            # It widens nothing else: a probe is still for administrators, and made no record.
            self.assertEqual(g.ask("M", "POST", f"/api/environments/{mine['id']}/probe?companyId={g.c1}", {}).status, 403)
            # Its company comes first, and no secret is opened on the way.
            self.assertEqual(g.ask("I", "PATCH", f"/api/environments/{mine['id']}?companyId={g.c2}",
                                   {"envVars": {"K": {"type": "secret_ref", "secretId": secret}}}).status, 200)
            self.assertEqual(ask(mine, g.c1).json, {"state": "unqualified", "reason": "company_mismatch"})
            self.assertEqual(ask(mine, g.c2).json, yes)
            con = sqlite3.connect(box.dir + "/airlock/server.db", timeout=DEADLINE)
            self.assertEqual(con.execute("select count(*) from secret_events").fetchone(), (0,))
            self.assertEqual(con.execute("select count(*) from env_leases").fetchone(), (0,))
            self.assertEqual(con.execute("select count(*) from envs where proof is not null").fetchone(), (0,))
            # What the document does not say, it does not give.
            for bad in ({"version": 2, "sandbox": {"provider": "native"}}, {"version": 1, "sandbox": {"provider": "other"}},
                        {"version": 1, "sandbox": {"provider": "native", "image": "sha256:" + "0" * 64}}, {"version": 1}, [], "", "{",
                        '{"version":1,"version":1,"sandbox":{"provider":"native"}}'):
                say(bad)
                self.assertEqual(ask(mine, g.c2).json, never, bad)
            say(good)
            self.assertEqual(ask(mine, g.c2).json, yes)
            os.unlink(doc)
            self.assertEqual(ask(mine, g.c2).json, never)
        finally:
            box.close()

    def test_addresses(self):
        box = Daemon(PROGRAMS, start=False)
        try:
            for where in ("0.0.0.0:0", "[::]:0", "192.168.0.1:0", "127.0.0.1:x", "unix:rel", "example.com:80"):
                with self.assertRaises(AssertionError):
                    box.start(where)
                box.process.wait(timeout=DEADLINE)
                self.assertNotEqual(box.process.returncode, 0)
                box.process.stderr.close()
                box.process = None
            path = box.dir + "/s"
            with open(path, "w", encoding="ascii") as f:
                f.write("somebody's")
            with self.assertRaises(AssertionError):
                box.start("unix:" + path)
            box.process.wait(timeout=DEADLINE)
            box.process.stderr.close()
            box.process = None
            with open(path, encoding="ascii") as f:
                self.assertEqual(f.read(), "somebody's")
            os.unlink(path)
            box.start("unix:" + path)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(DEADLINE)
            s.connect(path)
            s.sendall(b"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 200 ", s.recv(4096))
            s.close()
            self.assertEqual(box.stop(), 0)
            self.assertFalse(os.path.exists(path))
        finally:
            box.close()

    def test_tls(self):
        """Another address than loopback takes TLS and proved actors; the same server behind it."""
        box = Daemon(PROGRAMS, start=False)
        cert, key = box.dir + "/cert.pem", box.dir + "/key.pem"
        for c, k in ((cert, key), (cert + "2", key + "2")):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", c, "-keyout", k],
                           check=True, capture_output=True)
        both = ["--tls-cert", cert, "--tls-key", key]

        def refused(where, *options, mode="authenticated"):
            box.options, box.mode = list(options), mode
            with self.assertRaises(AssertionError):
                box.start(where)
            box.process.wait(timeout=DEADLINE)
            box.process.stderr.close()
            box.process = None
            return "".join(box.log)

        try:
            os.chmod(key, 0o644)
            self.assertIn("chmod 600", refused("127.0.0.1:0", *both))
            os.chmod(key, 0o600)
            self.assertIn("--tls-cert", refused("0.0.0.0:0"))
            refused("0.0.0.0:0", *both, mode="local_trusted")
            refused("0.0.0.0:0", "--tls-cert", cert)
            refused("127.0.0.1:0", "--tls-cert", key, "--tls-key", cert)
            self.assertIn("belong", refused("127.0.0.1:0", "--tls-cert", cert, "--tls-key", key + "2"))
            refused("unix:" + box.dir + "/s", *both)
            refused("localhost.example:0", *both)
            box.options, box.mode = both, "authenticated"
            box.start("0.0.0.0:0")
            g = Fixture(box)
            trust = ssl.create_default_context(cafile=cert)

            def dial(context=trust):
                return context.wrap_socket(socket.create_connection(("127.0.0.1", box.port), timeout=DEADLINE), server_hostname="localhost")

            def ask(method, path, who=None, body=None):
                c = http.client.HTTPSConnection("127.0.0.1", box.port, timeout=DEADLINE, context=trust)
                try:
                    c.request(method, path, None if body is None else json.dumps(body),
                              {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + g.token[who]} if who else {}))
                    r = c.getresponse()
                    return r.status, dict(r.getheaders()), r.read()
                finally:
                    c.close()

            # Those who never finish a handshake, or speak plain HTTP, hold up nobody and hear nothing.
            idle = [socket.create_connection(("127.0.0.1", box.port), timeout=DEADLINE) for _ in range(20)]
            idle[0].sendall(b"\x16\x03\x01\x02\x00\x01")
            self.assertNotIn(b"status", box.raw(b"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", half_close=True))
            self.assertEqual(ask("GET", "/api/health")[0], 200)
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
            with self.assertRaises(OSError):
                dial(old).close()
            path = f"/api/companies/{g.c1}/environments"
            self.assertEqual(ask("GET", path)[0], 403)
            # Bodies and answers of many records, both ways; a cookie never travels without TLS again.
            for i in range(6):
                big = {"name": f"n{i}", "driver": "ssh", "config": SSH, "metadata": {"x": "y" * 60000}}
                self.assertEqual(ask("POST", path, "I", big)[0], 201)
            self.assertGreater(len(ask("GET", path, "I")[2]), 360000)
            self.assertIn("; Secure", ask("POST", "/api/sessions", "I", {})[1]["Set-Cookie"])
            # What comes bit by bit comes.
            with dial() as s:
                s.sendall(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {g.token['I']}\r\n\r\n".encode())
                got = b""
                while b"\n:" not in got and b"data:" not in got:
                    piece = s.recv(65536)
                    self.assertTrue(piece, got)
                    got += piece
                # The command line has no TLS: it comes by the socket of the state directory, and nowhere else.
                box.env["AIRLOCK_TOKEN"] = g.token["I"]
                self.assertIn("is the daemon's, and a run there has no --memory", box.cli("run", "--env", "n0", "--memory", "1G", "--", "true", ok=False).stderr)
                box.env["AIRLOCK_DAEMON"] = f"https://127.0.0.1:{box.port}"
                r = box.cli("run", "--env", "n0", "--", "true", ok=False)
                self.assertNotEqual(r.returncode, 0)
                self.assertIn("not the daemon of this state directory", r.stderr)
                self.assertEqual(box.stop(), 0)
            for s in idle:
                s.close()
        finally:
            box.close()

    def test_a_certificate_is_renewed(self):
        """SIGHUP: whoever connects then sees the new one, nobody is cut off, and what is wrong changes nothing."""
        box = Daemon(PROGRAMS, start=False)
        cert, key = box.dir + "/cert.pem", box.dir + "/key.pem"

        def make(c=cert, k=key):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-out", c, "-keyout", k], check=True, capture_output=True)

        def dial():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context.wrap_socket(socket.create_connection(("127.0.0.1", box.port), timeout=DEADLINE))

        def seen():
            with dial() as s:
                return s.getpeercert(True)

        def on_disk():
            with open(cert, encoding="ascii") as file:
                return ssl.PEM_cert_to_DER_cert(file.read())

        def hup(word):
            n = len(box.log)
            box.process.send_signal(signal.SIGHUP)
            wait_for(word, lambda: any(word in x for x in box.log[n:]))

        def answer(s):
            got = b""
            while b"\r\n\r\n" not in got or not got.split(b"\r\n\r\n", 1)[1]:
                got += s.recv(65536)
            return got

        try:
            make()
            box.options = ["--tls-cert", cert, "--tls-key", key]
            box.start()
            g = Fixture(box)
            first = on_disk()
            self.assertEqual(seen(), first)
            ask = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            kept, stream = dial(), dial()
            kept.sendall(ask)
            self.assertNotIn(b"Connection: close", answer(kept))
            stream.sendall(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {g.token['I']}\r\n\r\n".encode())
            self.assertIn(b" 200 ", answer(stream)[:20])
            make(k=key + ".other")  # not the key that lies there
            hup("SIGHUP changes nothing")
            self.assertEqual(seen(), first)
            make()
            hup("new connections get the certificate")
            self.assertNotEqual(on_disk(), first)
            self.assertEqual(seen(), on_disk())
            # The stream ends, whole; what was kept open is answered once more, and told that this was all.
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                piece = stream.recv(65536)
                self.assertTrue(piece, got)
                got += piece
            kept.sendall(ask)
            self.assertIn(b"Connection: close", answer(kept))
            self.assertEqual(kept.recv(1), b"")
            # As often as one likes: nothing of the earlier ones stays.
            for _ in range(8):
                make()
                hup("new connections get the certificate")
                self.assertEqual(seen(), on_disk())
            for s in (kept, stream):
                s.close()
            # And with some that hang on for ever there is an end of them: it is told, and the newest goes on.
            hung = []
            while not any("are not over yet" in x for x in box.log):
                s = dial()
                s.sendall(b"GET /api/health HTTP/1.1\r\nHost: local")
                hung.append(s)
                n = len(box.log)
                self.assertLess(n, 60)
                box.process.send_signal(signal.SIGHUP)
                wait_for("its word", lambda n=n: len(box.log) > n)
            self.assertEqual(seen(), on_disk())
            self.assertEqual(box.stop(), 0)
            for s in hung:
                s.close()
            box.options = []
            box.start()
            hup("SIGHUP changes nothing: the daemon was started without TLS")
            self.assertEqual(box.ask("GET", "/api/health").status, 200)
        finally:
            box.close()

    def test_inherited_unix_socket(self):
        """B-10: what others can connect to makes nobody the local board: a mode like systemd's default, or a name that has none."""
        box = Daemon(PROGRAMS, start=False)
        hand_over = ("import os, sys; os.dup2(int(sys.argv[1]), 3); "
                     "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])")
        try:
            for name, mode, text in ((box.dir + "/open.sock", 0o666, "SocketMode=0600"), ("\0airlock-test-" + str(os.getpid()), 0, "SocketMode=0600"),
                                     (box.dir + "/own.sock", 0o600, "the socket of systemd")):
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(name)
                    s.listen(8)
                    if mode:
                        os.chmod(name, mode)
                    with subprocess.Popen([sys.executable, "-c", hand_over, str(s.fileno()), PROGRAMS + "/airlockd"], env=box.env,
                                          stderr=subprocess.PIPE, text=True, pass_fds=[s.fileno()]) as p:
                        self.assertIn(text, p.stderr.readline())
                        p.terminate()
        finally:
            box.close()

    def test_inherited_socket(self):
        """systemd's protocol: descriptor 3, LISTEN_PID, LISTEN_FDS."""
        box = Daemon(PROGRAMS, start=False)
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        s.listen(8)

        try:
            # The variable names the process itself, so it is set on the way.
            port = s.getsockname()[1]
            hand_over = ("import os, sys; os.dup2(int(sys.argv[1]), 3); "
                         "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])")
            box.process = subprocess.Popen([sys.executable, "-c", hand_over, str(s.fileno()), PROGRAMS + "/airlockd", "--mode",
                                            "authenticated"], env=box.env, stderr=subprocess.PIPE, text=True,
                                           pass_fds=[s.fileno()])
            line = box.process.stderr.readline()
            self.assertIn("the socket of systemd", line)
            box.port = port
            self.assertEqual(box.ask("GET", "/api/health").status, 200)
            box.process.terminate()
            self.assertEqual(box.process.wait(timeout=DEADLINE), 0)
            box.process.stderr.close()
            box.process = None
        finally:
            s.close()
            box.close()


if __name__ == "__main__":
    verdicts.main([sys.argv[0], *sys.argv[2:]], "test_api", PROGRAMS)
