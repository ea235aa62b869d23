#!/usr/bin/env python3
"""The units of packaging/systemd: systemd takes them as they are, and they leave a sandbox what it needs.

usage: test_units.py DIRECTORY_OF_PROGRAMS
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = os.path.realpath(sys.argv[1])
UNITS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../packaging/systemd")
# Each of these mounts something over a part of /proc, and then the kernel refuses a sandbox its own.
COVERS_PROC = re.compile(r"^(ProtectKernelLogs|ProtectKernelTunables|ProtectProc|ProcSubset)=(?!no$|default$|all$)|^\w+Paths=(.* )?(/proc|/( |$))")


def lines(name):
    with open(f"{UNITS}/{name}", encoding="utf-8") as file:
        return [x.strip() for x in file if x.strip() and not x.startswith(("#", ";"))]


class Units(unittest.TestCase):
    def test_proc_stays_whole(self):
        """B-05: else no lease and no run of the service ever starts."""
        for bad in ("ProtectKernelLogs=yes", "ProtectProc=invisible", "InaccessiblePaths=/sys /proc/kcore", "ReadOnlyPaths=/"):
            self.assertRegex(bad, COVERS_PROC)
        for path in glob.glob(UNITS + "/*.service"):
            for line in lines(os.path.basename(path)):
                self.assertNotRegex(line, COVERS_PROC)
                # Its filter answers openat2 with ENOSYS.
                self.assertNotRegex(line, r"^RestrictSUIDSGID=(?!no$)")

    def test_as_the_documents_say(self):
        service, socket = lines("airlockd.service"), lines("airlockd.socket")
        self.assertIn("Type=notify", service)
        self.assertIn("KillMode=process", service)  # sandboxes and runs outlive a restart
        self.assertIn("UMask=0077", service)
        words = next(x for x in service if x.startswith("ExecStart=")).split()
        usage = subprocess.run([PROGRAMS + "/airlockd", "--help"], capture_output=True, text=True, check=True).stdout
        for word in words[1:]:
            if word.startswith("--"):
                self.assertIn("  " + word, usage)
        # In mode authenticated whoever reaches the socket must prove who it is.
        self.assertEqual(words[words.index("--mode") + 1], "authenticated")
        for line in socket:
            if line.startswith("ListenStream="):
                self.assertRegex(line, r"=(127\.0\.0\.1:\d+|\[::1\]:\d+|/.+)$")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_takes_them(self):
        with tempfile.TemporaryDirectory(prefix="airlock-units-", dir="/tmp") as top:
            paths = [shutil.copy(p, top) for p in glob.glob(UNITS + "/airlock*")]
            self.assertGreaterEqual(len(paths), 3)
            for path in paths:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text.replace("ExecStart=/usr/sbin/airlockd", f"ExecStart={PROGRAMS}/airlockd"))

            def verify():
                return subprocess.run(["systemd-analyze", "verify", "--recursive-errors=no", *paths], capture_output=True, text=True,
                                      check=False)

            r = verify()
            # What the machine's own units have to say is not ours.
            said = [x for x in r.stderr.splitlines() if top in x or "airlock" in x]
            self.assertEqual((r.returncode, said), (0, []), r.stderr)
            with open(f"{top}/airlockd.service", "a", encoding="utf-8") as file:
                file.write("\n[Service]\nNoSuchDirective=1\n")
            self.assertIn("NoSuchDirective", verify().stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_what_systemd_thinks_of_it(self):
        """What the service may not do is said by systemd itself; more of it shall not come unseen."""
        r = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=60", "--no-pager", UNITS + "/airlockd.service"],
                           capture_output=True, text=True, check=False)
        self.assertEqual(r.returncode, 0, r.stdout[-2000:] + r.stderr)
        for good in ("ProtectHome=", "ProtectClock=", "ProtectKernelModules=", "LockPersonality=", "RestrictRealtime=", "UMask=",
                     "CapabilityBoundingSet=~CAP_SYS_ADMIN", "CapabilityBoundingSet=~CAP_SYS_PTRACE", "RestrictAddressFamilies=~AF_PACKET"):
            self.assertRegex(r.stdout, r"(?m)^\S*✓\S* " + re.escape(good))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
