#!/usr/bin/env python3
"""B-04: a run that /proc does not show (hidepid) is alive: nobody sweeps or recovers its storage from under it.

usage: test_hidepid.py AIRLOCK
"""
import os, subprocess, sys, unittest

from run_box import DEADLINE, Host

AIRLOCK = os.path.realpath(sys.argv[1])
USER = 54322
LOOK = """
airlock run -- sh -c 'echo early > c; sleep 60' 2> ../out &
run=$!
n=0
until airlock runs --json > ../seen && grep -q '"run"' ../seen; do
	n=$((n + 1))
	[ $n -lt 300 ] || exit 7
	sleep 0.1
done
name=$(sed -n 's/.*"run": *"\\([^"]*\\)".*/\\1/p' ../seen)
airlock runs --json > ../seen
airlock recover "$name" > ../recovered 2>&1
echo "$?" > ../refused
kill -INT $run
wait $run
"""


@unittest.skipUnless(os.geteuid() == 0, "mounting /proc needs root")
class HidePid(unittest.TestCase):
    def look(self, how):
        h = Host(os.path.dirname(AIRLOCK), "airlock-hide-", {"a": b"a\n"})
        self.addCleanup(h.remove)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", h.top], check=True)
        h.env["PATH"] = h.bin + ":" + h.env["PATH"]
        r = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t proc -o hidepid={how} proc /proc && exec setpriv --reuid {USER} "
                            f"--regid {USER} --clear-groups sh -c \"$1\"", "sh", LOOK], cwd=h.ws, env=h.env, timeout=DEADLINE,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        with open(h.top + "/seen", encoding="utf-8") as f:
            self.assertIn("running", f.read(), r.stdout)
        with open(h.top + "/refused", encoding="utf-8") as f:
            self.assertRegex(f.read(), r"^[1-9]")
        with open(h.top + "/out", encoding="utf-8") as f:
            text = f.read()
        self.assertNotIn("nonexistent", text)

    def test_hidepid_2(self):
        self.look(2)

    def test_hidepid_1(self):
        self.look(1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
