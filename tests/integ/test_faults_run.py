#!/usr/bin/env python3
"""A whole run whose airlock-unpack is stopped at one system call, and the next one (S1-07; cases E6, E7, I5).

usage: test_faults_run.py AIRLOCK FAULT_AT [--long] [unittest arguments]

The exit status tells the failure, the message what to do, the work is on the host or comes with `airlock recover`.
"""
import os
import subprocess
import sys
import unittest
from pathlib import PurePath

from fault_box import ERRORS, chosen, failures, kills, read_calls
from run_box import Host

AIRLOCK, FAULT_AT = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
LONG = "--long" in sys.argv
BEFORE = {"a": b"one\n", "gone": b"g\n", "dir/x": b"x", "kept/k": b"k\n" * 1000}
AFTER = {"a": b"one\ntwo\n", "dir": b"file\n", "kept/k": b"k\n" * 1000, "new/dir/big": b"w" * 1200000, "tool": b"#!/bin/sh\n"}
WORK = ("printf 'one\\ntwo\\n' >a; rm -r gone dir; echo file >dir; mkdir -p new/dir; head -c 1200000 /dev/zero | tr '\\0' w "
        ">new/dir/big; printf '#!/bin/sh\\n' >tool; chmod +x tool")


class WholeRun(unittest.TestCase):
    def setUp(self):
        self.host = None

    def tearDown(self):
        if self.host:
            self.host.remove()

    def fresh(self):
        self.tearDown()
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-faults-", BEFORE)

    def files(self):
        return {os.path.relpath(os.path.join(d, f), self.host.ws): self.host.read(os.path.relpath(os.path.join(d, f), self.host.ws))
                for d, _, names in os.walk(self.host.ws) for f in names}

    def run_it(self, *fault):
        """The run below fault-at; exit status and what it said."""
        h = self.host
        r = h.airlock("--version")  # the environment works at all
        self.assertEqual(r.returncode, 0)
        cmd = [FAULT_AT, *fault, "--", h.bin + "/airlock", "run", "--quiet", "--", "sh", "-c", WORK]
        r = subprocess.run(cmd, cwd=h.ws, env=h.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        return r.returncode, r.stderr.decode("utf-8", "replace")

    def test_S1_07_a_run_whose_helper_is_stopped(self):
        self.fresh()
        log = os.path.join(self.host.top, "log")
        r = subprocess.run([FAULT_AT, "-l", log, "--", self.host.bin + "/airlock", "run", "--quiet", "--", "sh", "-c", WORK],
                                         cwd=self.host.ws, env=self.host.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.files(), AFTER)
        calls = read_calls(log)
        commit = [i for i, (n, _) in enumerate(calls) if n in ("fsync", "syncfs")][0]
        # After its last word a kill is no failure of the run.
        points = [kills(calls[:commit]), kills(calls[commit:-3])]
        points.append(failures(calls, {err: ERRORS[err] for err in ("ENOSPC", "EIO", "EDQUOT")}, True))
        points = sum((chosen(p, None if LONG else n) for p, n in zip(points, (3, 4, 5))), [])
        hit = 0
        for spec, fault in points:
            with self.subTest(spec):
                hit += self.point(spec, fault)
        print("%d of %d points hit" % (hit, len(points)), flush=True)
        self.assertGreaterEqual(hit, max(len(points) * 3 // 4, 1))

    def point(self, spec, fault):
        """Whether the fault was made: a call that a run makes or not by the moment is not met each time."""
        self.fresh()
        report = os.path.join(self.host.top, "report")
        status, said = self.run_it("-r", report, "-f", spec)
        with open(report, encoding="ascii") as f:
            hit = bool(f.read())
        self.check(status, said, fault)
        return hit

    def check(self, status, said, fault):
        now = self.files()
        for p in now.keys() | BEFORE.keys() | AFTER.keys():
            if not p.startswith(".airlock-staging/"):
                self.assertTrue(now.get(p) in (BEFORE.get(p), AFTER.get(p)), p)
        row = self.host.rows()[0]
        if status == 0:
            if now != AFTER:  # told path by path
                self.assertRegex(said, r"could not|failed|NOT WRITTEN|CONFLICTS|refused: |NOT IN THE TRASH")
                for p in now.keys() | AFTER.keys():
                    if now.get(p) != AFTER.get(p) and not p.startswith(".airlock-staging/"):
                        self.assertRegex(said, r"(?m)^airlock:   (%s)(:|$)" % "|".join((p, *map(str, PurePath(p).parents))), p)
            return
        self.assertEqual(status, 125, said)
        self.assertRegex(said, r"airlock recover|bring the results back", said)
        if fault == "kill":
            self.assertIn("signal 9", said)
        if row["lease_state"] == "recoverable" or row["state"] == "dead":
            r = self.host.airlock("recover", row["run"])
            self.assertEqual(r.returncode, 0, r.stderr)
            now = self.files()
        self.assertEqual(now, AFTER)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + [a for a in sys.argv[3:] if a != "--long"])
