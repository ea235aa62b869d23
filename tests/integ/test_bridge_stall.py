#!/usr/bin/env python3
"""Channels whose other end is silent (C09): twenty seconds, so in the long suite only.

usage: test_bridge_stall.py AIRLOCK [TEST...]
"""
import json
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import api_box  # noqa: E402
from bridge_box import LOST  # noqa: E402
from run_box import until  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])
sys.argv[1] = os.path.dirname(AIRLOCK)
from test_bridge_h2 import Channel  # noqa: E402
sys.argv[1] = AIRLOCK
from test_bridge import Bridge  # noqa: E402


class Stall(unittest.TestCase):
    def test_C09_a_sandbox_that_answers_no_ping_is_given_up(self):
        api = api_box.Server()
        c = Channel(api)
        self.addCleanup(c.close)
        self.assertEqual(c.outcome(c.open()), 200)
        began = time.monotonic()
        self.assertIn(b"ping", c.host.expect(LOST))
        self.assertGreater(time.monotonic() - began, 15)

    def test_B08_C05_an_upload_that_waited_for_room_is_not_cut_off_when_there_is_some(self):
        """As many bodies as are held at once, for longer than a client may idle; the others wait in the gateway all that time."""
        gate, n = threading.Event(), 8
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"version": 1, "name": "t", "routes": ["POST /x"], "identity_headers": {"x-paperclip-run-id": "{run}"},
                       "limits": {"request_time": "4m"}}, f)
            f.flush()
            b = Bridge("--policy", f.name)
        there = threading.Semaphore(0)

        def wait(handler, call):
            there.release()
            gate.wait(120)
            return api_box.echo(handler, call)
        b.api.answer = wait
        got = []
        asking = [threading.Thread(target=lambda: got.append(b.ask("POST", "/x", body=b"x" * (10 << 20))[0])) for _ in range(n)]
        for t in asking:
            t.start()
        self.assertTrue(there.acquire(timeout=60))
        time.sleep(35)
        gate.set()
        for t in asking:
            t.join(120)
        self.assertEqual(got, [200] * n)
        self.assertEqual(b.stop()[0], 0)

    def test_C09_a_helper_that_hangs_is_replaced(self):
        for transport in "http2", "queue":
            b = Bridge("--transport", transport)
            self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
            (helper,) = b.helpers(b"airlock-bridge")
            os.kill(helper, signal.SIGSTOP)
            if transport == "queue":
                # The gateway takes its request back; airlock finds that the helper does not answer.
                self.assertIn(b.ask("GET", "/api/agents/me")[0], (200, 503))
            else:
                self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
            until("another helper", lambda b=b, h=helper: b.helpers(b"airlock-bridge") not in ([], [h]))
            self.assertEqual(b.ask("GET", "/api/agents/me")[0], 200)
            code, err = b.stop()
            self.assertEqual(code, 0, err)
            self.assertIn(b"up again", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
