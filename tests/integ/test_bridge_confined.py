#!/usr/bin/env python3
"""What a taken-over airlock-bridge could still do: calls made in its name by another process (B-04, F11).

usage: test_bridge_confined.py DIRECTORY_OF_PROGRAMS INJECT_CALL [TEST...]
"""
import errno
import os
import platform
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from bridge_box import READY, Host  # noqa: E402
from run_box import DEADLINE, until  # noqa: E402

PROGRAMS, INJECT = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
sys.argv[1:3] = [PROGRAMS]  # for the module below
from test_bridge_queue import Queue  # noqa: E402
from test_bridge_h2 import Channel  # noqa: E402


@unittest.skipUnless(platform.machine() == "x86_64", "the injected calls are written for amd64")
@unittest.skipUnless(os.geteuid() == 0, "only root may stop a process that gave up everything")
class Confined(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = api_box.Server()

    @classmethod
    def tearDownClass(cls):
        cls.api.shutdown()
        cls.api.server_close()

    def attempt(self, *words):
        pid = self.host.p.pid
        # At rest, in the call that it waits with.
        until("it to rest", lambda: open("/proc/%d/stat" % pid, encoding="ascii").read().rsplit(")", 1)[1].split()[0] == "S")
        r = subprocess.run([INJECT, str(pid), *words], capture_output=True, timeout=DEADLINE, check=True)
        return r.stdout.decode().strip()

    def check(self):
        refused = {str(errno.EPERM), str(errno.EACCES), str(errno.EAFNOSUPPORT)}
        for path in "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/proc/self/environ", "/":
            self.assertIn(self.attempt("read", path), refused, path)
        self.assertIn(self.attempt("write", "/tmp/airlock-bridge-was-here"), refused)
        self.assertFalse(os.path.exists("/tmp/airlock-bridge-was-here"))
        # F11: no name can be asked for, and no other port connected to; its own can.
        self.assertIn(self.attempt("udp"), refused)
        self.assertIn(self.attempt("unix"), refused)
        other = api_box.Server()
        self.addCleanup(other.server_close)
        self.addCleanup(other.shutdown)
        self.assertIn(self.attempt("tcp", str(other.server_address[1])), refused)
        self.assertEqual(self.attempt("tcp", str(self.api.server_address[1])), "ok")

    def test_B04_F11_a_stream_s_helper(self):
        c = Channel(self.api)
        self.addCleanup(c.close)
        self.host = c.host
        self.check()
        self.assertEqual(c.outcome(c.open()), 200)
        self.assertEqual(self.attempt("exec"), "killed")

    def test_B04_F11_a_listening_helper(self):
        """Accepting is all that it may do besides: its listener was made by somebody else, and it can make no other."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.host = Host(PROGRAMS, self.api.url, listener=listener.fileno())
        self.addCleanup(self.host.close)
        self.host.expect(READY)
        self.check()
        c = api_box.Client(port)
        self.addCleanup(c.close)
        c.send(api_box.request("GET", "/api/agents/me", self.host.token))
        self.assertEqual(c.answer()[0], 200)
        self.assertEqual(self.attempt("exec"), "killed")

    def test_B04_F11_a_queue_s_helper(self):
        q = Queue(self.api)
        self.addCleanup(q.close)
        self.host = q.host
        with open(q.dir + "/requests/.mine", "w", encoding="ascii"):
            pass
        self.check()
        self.assertEqual(self.attempt("read", q.dir + "/requests/.mine"), "ok")
        self.assertEqual(q.ask()[0], 200)
        self.assertEqual(self.attempt("exec"), "killed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
