#!/usr/bin/env python3
"""Door 1 as another machine meets it: archives of the attack corpus come back from a guest there that lies, through `airlock run --ssh`
(S1-01, S1-02, S1-03, S1-06; groups A to D of the sync specification). The verdicts are those of the table, as for every provider.

usage: test_ssh_hostile.py AIRLOCK MKHOSTILE [--long] [unittest arguments]

One archive of each group and verdict, the whole corpus in the long suite.
"""
import json, os, re, subprocess, sys, unittest

from run_box import snapshot
from ssh_box import Remote, SSHD, lie

LONG = "--long" in sys.argv
AIRLOCK, MKHOSTILE = (os.path.realpath(sys.argv.pop(1)) for _ in range(2))


def chosen(lines):
    seen = set()
    for name, rule in (line.split() for line in lines):
        group, verdict = re.match("[A-Z]", name).group(0), name.split(".")[-2]
        if LONG or (group, verdict) not in seen:
            seen.add((group, verdict))
            yield name, rule, verdict


class Hostile(unittest.TestCase):
    def setUp(self):
        self.r = Remote(os.path.dirname(AIRLOCK), {"kept": b"kept\n"})
        self.addCleanup(self.r.remove)
        self.corpus = self.r.top + "/corpus"
        os.mkdir(self.corpus)
        subprocess.run([MKHOSTILE, self.corpus], check=True, stdout=subprocess.DEVNULL)

    def fresh(self):
        subprocess.run(["rm", "-rf", self.r.ws], check=True)
        os.mkdir(self.r.ws)
        self.r.write("kept", b"kept\n")
        subprocess.run([MKHOSTILE, "--host", self.r.ws], check=True)

    def meet(self, data):
        lie(self.r, "tar", data)
        p = self.r.run("--json", "--", "true")
        return p, json.loads(p.stdout)

    def test_S1_06_the_corpus_over_ssh(self):
        seen = {"accept": 0, "refused": 0, "hostile": 0}
        with open(self.corpus + "/rules.txt", encoding="utf-8") as f:
            cases = list(chosen(f))
        for name, rule, verdict in cases:
            with self.subTest(name):
                self.fresh()
                before = snapshot(self.r.ws)
                with open(self.corpus + "/" + name, "rb") as f:
                    p, doc = self.meet(f.read())
                back = doc["sync_out"]
                refused = {c["rule"] for c in back["changes"] if c["action"] == "refuse"} if "changes" in back else set()
                self.assertEqual(bool(back.get("rejected")), verdict == "hostile", (p.stderr, back))
                if verdict == "hostile":
                    self.assertEqual((p.returncode, back["rule"]), (125, rule))
                    self.assertEqual(snapshot(self.r.ws), before)
                elif verdict == "refused":
                    self.assertIn(rule, refused, back)
                else:
                    self.assertEqual(refused - {"unreadable"}, set(), back)
            seen[verdict] += 1
        self.assertTrue(min(seen.values()) >= 3, seen)


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + [a for a in sys.argv[1:] if a != "--long"], verbosity=1)
