#!/usr/bin/env python3
"""Channels whose other end is silent (C09): twenty seconds, so in the long suite only.

usage: test_bridge_stall.py AIRLOCK [TEST...]
"""
import os
import signal
import sys
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
