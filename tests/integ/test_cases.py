#!/usr/bin/env python3
"""Cases of synchronisation that take a whole run: `airlock run` in a workspace that holds every trap at once.

Usage: test_cases.py AIRLOCK. The table of all cases is docs/cases.md.
"""
import os
import subprocess
import sys
import unittest
from pathlib import Path

from run_box import Host, snapshot

PROGRAMS = os.path.dirname(os.path.realpath(sys.argv.pop(1)))


def everything(top):
    """As snapshot, with what lies in any .git, and empty directories; without our own places."""
    found = {}
    for here, dirs, files in os.walk(top):
        rel = os.path.relpath(here, top)
        for d in dirs:
            found[os.path.normpath(os.path.join(rel, d))] = "d"
        for n in files:
            p = os.path.join(here, n)
            found[os.path.normpath(os.path.join(rel, n))] = os.readlink(p) if os.path.islink(p) else Path(p).read_bytes()
    return found


class Traps(unittest.TestCase):
    def setUp(self):
        self.host = Host(PROGRAMS, "cases-", {})
        self.addCleanup(self.host.remove)
        self.git("init", "-q")
        for name, data in {".gitignore": b"/config\n/lib\n*.log\n\\*\nenv\n", "config/secret": b"1", "src/config/a.txt": b"1",
                           "lib/own": b"1", "src/lib/b.txt": b"1", "*": b"a file named star", "[a]": b"1", "a": b"1",
                           "._sidecar": b"1", "old.log": b"1", "env/x": b"1", "node_modules/m/i.js": b"1", "dist/app.js": b"1",
                           "nest/code": b"1", "\udce9t\udce9": b"1", " two\nlines ": b"1", "-rf": b"1"}.items():
            self.host.write(name, data)
        os.makedirs(self.host.ws + "/empty/inner")
        self.git("init", "-q", "nest")
        self.git("-C", "nest", "add", "code")
        self.commit("nest")
        self.git("init", "-q", "../sub")
        with open(self.host.top + "/sub/s", "w", encoding="utf-8") as f:
            f.write("1")
        self.git("-C", "../sub", "add", "s")
        self.commit("../sub")
        self.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../sub", "module")
        self.git("add", "-A", "--", ".gitignore", "src", "a", "[[]a]", "._sidecar", "./-rf")
        self.commit(".")

    def git(self, *words):
        env = dict(self.host.env, GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@t", GIT_COMMITTER_NAME="t",
                   GIT_COMMITTER_EMAIL="t@t")
        return subprocess.run(["git", *words], cwd=self.host.ws, env=env, check=True, stdout=subprocess.PIPE).stdout

    def commit(self, where):
        self.git("-C", where, "commit", "-q", "-m", "x")

    def run_it(self, script):
        r = self.host.airlock("run", "--", "sh", "-c", script)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def test_F21_F24_D5_D7_a_run_that_does_nothing(self):
        before, marks, status = everything(self.host.ws), snapshot(self.host.ws), self.git("status", "--porcelain")
        self.run_it("true")
        self.assertEqual(everything(self.host.ws), before)
        self.assertEqual(snapshot(self.host.ws), marks)  # inodes and times as well
        self.assertEqual(self.git("status", "--porcelain"), status)

    def test_G12_D3_D5_F21_a_run_that_works_beside_them(self):
        before = everything(self.host.ws)
        self.run_it("echo 2 > src/config/a.txt; echo n > new; echo log > new.log; echo 2 > nest/code; rm a; "
                    "echo 2 > ' two\nlines '; mkdir -p config; echo evil > config/secret")
        after = everything(self.host.ws)
        changed = {p for p in set(before) | set(after) if before.get(p) != after.get(p) and not p.startswith(".git/")}
        self.assertEqual(changed, {"src/config/a.txt", "new", "nest/code", "a", " two\nlines "})
        self.assertEqual((after["src/config/a.txt"], after["config/secret"], "a" in after), (b"2\n", b"1", False))


if __name__ == "__main__":
    unittest.main(verbosity=1)
