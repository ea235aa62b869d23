"""--map with --keep and --review: mappings that come back after each command, and mappings that wait (S1-03, S1-04, S1-07,
S1-08, S1-10; cases B15, G3, I6, J3).

usage: run_maps_wait.py AIRLOCK root|user [unittest arguments]
"""
import glob
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import unittest

from run_box import DEADLINE, Host, look, pids, until
from unpack_box import tree

PROGS, WHO = os.path.dirname(os.path.abspath(sys.argv[1])), sys.argv[2]
USER = 54321  # of nobody


class Box(Host):
    """A workspace, a directory `as` and a file `conf/f` beside it; everything belongs to whom the programs run as."""

    def __init__(self):
        super().__init__(PROGS, "airlock-maps-", {"a": b"a\n"})
        self.assets, self.file = self.top + "/as", self.top + "/conf/f"
        for name, data in ("as/change", "old\n"), ("as/gone", "gone\n"), ("as/d/x", "x\n"), ("conf/f", "old\n"), ("conf/other", "o\n"):
            self.put(name, data)
        os.chmod(self.file, 0o600)
        if WHO == "user":
            subprocess.run(["chown", "-R", "%d:%d" % (USER, USER), self.top], check=True)
        self.maps = ("--map", self.assets + ":/home/agent/as", "--map", self.file + ":/tmp/m/f")

    def put(self, name, data):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(data)
        if WHO == "user":
            os.chown(path, USER, USER)

    def get(self, name):
        with open(os.path.join(self.top, name), encoding="utf-8") as f:
            return f.read()

    def has(self, name):
        return os.path.lexists(os.path.join(self.top, name))

    @staticmethod
    def become():
        if WHO == "user":
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)

    def airlock(self, *words, **kw):
        return super().airlock(*words, preexec_fn=self.become, **kw)

    def start(self, *words, **kw):
        return subprocess.Popen([self.bin + "/airlock", *words], cwd=self.ws, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=self.become, **kw)

    def outside(self):
        """Everything that belongs to the host."""
        return {d: tree(os.path.join(self.top, d)) for d in ("ws", "as", "conf")}


class Case(unittest.TestCase):
    def setUp(self):
        self.box = Box()
        self.addCleanup(self.box.remove)

    def do(self, *words, status=0):
        r = self.box.airlock(*words)
        self.assertEqual(r.returncode, status, r.stderr.decode())
        self.err = r.stderr.decode()
        return r.stdout.decode()

    def record(self, verb, *words):
        rec = json.loads(self.do(verb, "-q", "--json", *words))
        self.run = rec["run"]
        return rec

    def came(self, rec, n):
        m = rec["maps"][n]
        self.assertIsNone(m["error"])
        for c in m["changes"]:
            if c["rule"] != "dir":
                m["counts"][c["action"]] -= 1
        return {c["path"]: c["action"] + (":" + c["rule"] if c["rule"] else "") for c in m["changes"] if c["rule"] != "dir"}

    def letters(self, *words):
        return dict(reversed(line.split("\t")) for line in self.do("diff", "--name-status", self.run, *words).splitlines())


class Kept(Case):
    def keep(self, *opts):
        rec = self.record("run", "--keep", *opts, *self.box.maps, "--", "true")
        self.sandbox = self.run
        return rec

    def exec(self, script):
        return self.record("exec", self.sandbox, "--", script)

    def test_S1_07_each_command_brings_what_is_new(self):
        b = self.box
        rec = self.keep()
        self.assertEqual((self.came(rec, 0), self.came(rec, 1)), ({}, {}))
        rec = self.exec("cd ~/as; echo one >>change; rm gone; echo n >d/new; echo new >/tmp/m/f; ln -s /etc esc")
        self.assertEqual(self.came(rec, 0), {"change": "change", "gone": "delete", "d/new": "add", "esc": "refuse:link_escape"})
        self.assertEqual(self.came(rec, 1), {"f": "change"})
        self.assertEqual([rec["maps"][i]["source"] for i in (0, 1)], [b.assets, b.file])
        self.assertEqual((b.get("as/change"), b.get("as/d/new"), b.get("conf/f")), ("old\none\n", "n\n", "new\n"))
        self.assertFalse(b.has("as/gone"))
        # The second change of a path is measured against the first; what did not change is no news.
        b.put("as/gone", "mine\n")
        rec = self.exec("cd ~/as; echo two >>change; rm esc; chmod 700 d/x; echo newer >/tmp/m/f")
        self.assertEqual((self.came(rec, 0), self.came(rec, 1)), ({"change": "change", "d/x": "mode"}, {"f": "change"}))
        self.assertEqual((b.get("as/change"), b.get("as/gone"), b.get("conf/f")), ("old\none\ntwo\n", "mine\n", "newer\n"))
        self.assertEqual(stat.S_IMODE(os.stat(b.file).st_mode), 0o600)
        # Both sides: the host's stays, the other one lies with the run.
        b.put("as/change", "host\n")
        b.put("conf/f", "host\n")
        rec = self.exec("echo three >>~/as/change; echo box >/tmp/m/f")
        self.assertEqual((self.came(rec, 0), self.came(rec, 1)), ({"change": "conflict:both_changed"}, {"f": "conflict:both_changed"}))
        self.assertEqual((b.get("as/change"), b.get("conf/f")), ("host\n", "host\n"))
        kept = glob.glob(b.state + "/runs/%s/maps/*/conflicts/sandbox/*" % self.run)
        self.assertEqual(sorted(os.path.basename(k) for k in kept), ["change", "f"])
        rec = self.exec("true")
        self.assertEqual((self.came(rec, 0), self.came(rec, 1)), ({}, {}))
        self.assertEqual(sorted(os.listdir(b.top + "/conf")), ["f", "other"])

    def test_S1_07_stop_then_recover_brings_what_is_left(self):
        b = self.box
        self.keep()
        self.exec("echo one >>~/as/change")
        p = b.start("exec", "-q", self.sandbox, "--", "echo two >>~/as/change; echo two >>/tmp/m/f; echo ready; exec sleep 70003")
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.kill()
        p.communicate()
        self.assertEqual((b.get("as/change"), b.get("conf/f")), ("old\none\n", "old\n"))
        self.do("stop", self.sandbox)
        self.do("recover", self.sandbox)
        self.assertEqual((b.get("as/change"), b.get("conf/f")), ("old\none\ntwo\n", "old\ntwo\n"))
        self.assertIn("mapping %s: what came back" % b.assets, self.err)
        self.do("recover", self.sandbox, status=125)

    def test_S1_04_a_review_in_a_kept_sandbox(self):
        b = self.box
        before = b.outside()
        self.keep("--review")
        self.exec("echo one >>~/as/change; echo b >>a")
        first = self.run
        self.exec("echo two >/tmp/m/f")
        self.assertEqual(b.outside(), before)
        # All that differs from what was sent in, each time.
        self.assertEqual(self.letters(), {"a": "M", b.assets + "/change": "M", b.file: "M"})
        self.do("apply", self.run)
        self.assertEqual((b.get("as/change"), b.get("conf/f"), b.get("ws/a")), ("old\none\n", "two\n", "a\nb\n"))
        self.run = first
        self.assertEqual(self.do("diff", "--json", self.run).count('"already": true'), 2)
        self.do("discard", "--yes", first)


class Waiting(Case):
    WORK = "echo b >>a; cd ~/as; echo one >>change; rm gone; echo n >d/new; ln -s /etc esc; echo new >/tmp/m/f"
    ALL = {"a": "M", "as/change": "M", "as/d/new": "A", "as/esc": "!", "as/gone": "D", "conf/f": "M"}

    def review(self, script=WORK, *opts):
        self.before = self.box.outside()
        rec = self.record("run", "--review", *self.box.maps, *opts, "--", script)
        self.assertEqual(self.box.outside(), self.before)
        return rec

    def all(self, **less):
        return {k if k == "a" else os.path.join(self.box.top, k): v for k, v in self.ALL.items() if k not in less}

    def waiting(self):
        return [(r["results"], r["waiting"]) for r in json.loads(self.do("runs", "--json")) if r["run"] == self.run][0]

    def test_S1_04_nothing_is_written_and_everything_is_shown(self):
        b = self.box
        rec = self.review()
        self.assertEqual((self.came(rec, 0), self.came(rec, 1)),
                         ({"change": "change", "gone": "delete", "d/new": "add", "esc": "refuse:link_escape"}, {"f": "change"}))
        self.assertEqual(self.waiting(), ("5 wait", 5))
        self.assertEqual(self.letters(), self.all())
        self.assertEqual({(j["root"], j["path"], j["status"]) for j in json.loads(self.do("diff", "--json", self.run))},
                         {(b.ws, "a", "M"), (b.assets, "change", "M"), (b.assets, "d/new", "A"), (b.assets, "esc", "!"),
                          (b.assets, "gone", "D"), (b.top + "/conf", "f", "M")})
        text = self.do("diff", self.run)
        # Both sides are shown, though no layer has what was sent of a mapping.
        for line in ("# airlock: mapping %s\n" % b.assets, "--- a/%s/change\n" % b.assets, " old\n+one\n", "-gone\n", "-old\n+new\n"):
            self.assertIn(line, text)
        # The workspace's part is a patch of its own; all of it is none that could hit the workspace.
        part = self.do("diff", self.run, ":/")
        self.assertNotIn("mapping", part)
        for patch, ok in (part, True), (text, False):
            r = subprocess.run(["git", "apply", "--check", "-"], cwd=b.ws, input=patch.encode(), capture_output=True, check=False)
            self.assertEqual(r.returncode == 0, ok, r.stderr)

    def test_S1_04_parts_are_applied_and_dropped(self):
        b = self.box
        self.review()
        r = b.airlock("apply", self.run, b.file)
        self.assertEqual((r.returncode, b.get("conf/f")), (0, "new\n"), r.stderr)
        self.assertEqual(stat.S_IMODE(os.stat(b.file).st_mode), 0o600)
        self.assertEqual((b.get("ws/a"), b.get("as/change")), ("a\n", "old\n"))
        self.assertEqual(self.waiting(), ("4 wait", 4))
        # Relative words where one stands inside a mapping; the words of one part do not hit another.
        r = b.airlock("apply", self.run, "change", cwd=b.assets)
        self.assertEqual((r.returncode, b.get("as/change")), (0, "old\none\n"), r.stderr)
        for word in b.top + "/conf/other", b.top, b.assets + "/nothing", "change":
            self.assertEqual(b.airlock("apply", self.run, word).returncode, 2, word)
        self.do("apply", "--dry-run", self.run)
        self.assertTrue(b.has("as/gone"))
        out = json.loads(self.do("apply", "--json", self.run))
        self.assertEqual((out["selected"], out["left"], out["counts"]["change"]), (3, 0, 1))
        self.assertEqual([(m["source"], m["counts"]["add"], m["counts"]["delete"]) for m in out["maps"]], [(b.assets, 1, 1), (b.file, 0, 0)])
        self.assertEqual((b.has("as/gone"), b.get("as/d/new"), b.get("ws/a")), (False, "n\n", "a\nb\n"))
        self.assertEqual(self.waiting(), ("applied", 0))
        with open(b.state + "/runs/%s/maps/0/trash/gone" % self.run, encoding="utf-8") as f:
            self.assertEqual(f.read(), "gone\n")
        self.assertEqual(self.do("diff", "--name-only", self.run, ":/"), "a\n")

    def test_discard_drops_every_part(self):
        self.review("echo one >>~/as/change")
        self.assertEqual(self.waiting(), ("1 wait", 1))
        self.do("discard", self.run, status=2)
        self.do("rm", self.run, status=125)
        self.do("discard", "--yes", self.run)
        self.assertEqual((self.box.outside(), self.waiting()), (self.before, ("discarded", 0)))
        self.assertEqual(glob.glob(self.box.state + "/runs/*/maps/*/pending"), [])
        self.assertEqual(os.listdir(self.box.state + "/trash"), [])

    def test_copies_of_a_mapping_run_out_and_what_waits_does_not(self):
        b = self.box
        self.review()
        self.do("apply", self.run, b.assets + "/gone", b.assets + "/change")
        trash = b.state + "/runs/%s/maps/0/trash" % self.run
        self.assertEqual(sorted(os.listdir(trash)), ["change", "gone"])
        with sqlite3.connect(b.state + "/airlock.db") as db:
            db.execute("UPDATE runs SET ended_ns=ended_ns-31*86400*1000000000")
        db.close()
        for f in glob.glob(b.state + "/expired") + [trash, os.path.dirname(trash)]:
            os.utime(f, (1, 1))
        self.do("run", "-q", "--", "true")
        self.assertFalse(os.path.exists(trash))
        self.assertEqual(self.waiting(), ("3 wait", 3))

    def test_nothing_waits_where_nothing_changed(self):
        self.review("true")
        self.assertEqual(self.waiting(), ("none", 0))

    def test_G3_a_conflict_waits_until_it_is_decided(self):
        b = self.box
        self.review()
        b.put("as/change", "host\n")
        b.put("conf/f", "host\n")
        self.assertEqual({p: v for p, v in self.letters().items() if v == "U"}, {b.assets + "/change": "U", b.file: "U"})
        self.do("apply", self.run, status=1)
        self.assertEqual((b.get("as/change"), b.get("conf/f"), b.has("as/gone"), b.get("ws/a")), ("host\n", "host\n", False, "a\nb\n"))
        self.assertEqual(self.waiting(), ("2 wait", 2))
        self.do("apply", "--on-conflict", "take-sandbox", self.run)
        self.assertEqual((b.get("as/change"), b.get("conf/f")), ("old\none\n", "new\n"))
        self.assertEqual(sorted(os.path.basename(p) for p in glob.glob(b.state + "/runs/*/maps/*/conflicts/host/*")), ["change", "f"])

    def test_B15_another_directory_in_the_place_of_a_root(self):
        b = self.box
        self.review()
        shutil.copytree(b.assets, b.top + "/copy", symlinks=True)
        os.rename(b.assets, b.top + "/away")
        held = tree(b.top + "/copy")
        for swap in os.symlink, os.rename:
            if os.path.islink(b.assets):
                os.unlink(b.assets)
            swap(b.top + "/copy", b.assets)
            self.do("apply", self.run, b.assets + "/gone", status=3)
            self.assertEqual((tree(b.assets), tree(b.top + "/away")), (held, held))
        # The other parts do not depend on it.
        self.do("apply", self.run, ":/", b.file)
        self.assertEqual((b.get("ws/a"), b.get("conf/f")), ("a\nb\n", "new\n"))

    def test_S1_07_a_part_that_is_damaged_or_gone_does_not_hold_up_the_others(self):
        b = self.box
        self.review()
        os.rename(b.assets, b.top + "/away")
        self.do("apply", self.run, status=4)
        self.assertIn("changed: 1", self.err)  # what was done is told
        self.assertIn("still waiting: 4 paths", self.err)
        self.assertEqual((b.get("ws/a"), b.get("conf/f")), ("a\nb\n", "old\n"))
        os.rename(b.top + "/away", b.assets)
        before = tree(b.assets)
        place = b.state + "/runs/%s/maps/0/pending/list" % self.run
        with open(place, "r+b") as f:
            data = bytearray(f.read())
            data[len(data) // 2] ^= 0x55
            f.seek(0)
            f.write(data)
        self.do("apply", self.run, status=3)
        self.do("diff", self.run, status=125)
        self.assertEqual(self.letters(b.file), {b.file: "M"})
        self.do("apply", self.run, b.file)
        self.assertEqual((b.get("conf/f"), tree(b.assets)), ("new\n", before))
        self.assertEqual(self.waiting()[0], "damaged")
        self.do("discard", "--yes", self.run)

    def test_S1_10_a_review_that_is_killed_is_recovered_with_its_mappings(self):
        b = self.box
        before = b.outside()
        p = b.start("run", "--review", *b.maps, "--", self.WORK + "; echo ready; exec sleep 70003")
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.kill()
        p.communicate()
        self.do("recover", "last")
        self.run = json.loads(self.do("runs", "--json"))[0]["run"]
        self.assertEqual(b.outside(), before)
        self.assertEqual(self.letters(), self.all())
        self.do("apply", self.run)
        self.assertEqual((b.get("as/change"), b.get("conf/f"), b.get("ws/a")), ("old\none\n", "new\n", "a\nb\n"))

    def test_S1_07_a_plain_run_that_is_killed_is_recovered_with_its_mappings(self):
        b = self.box
        p = b.start("run", *b.maps, "--", self.WORK + "; echo ready; exec sleep 70003")
        self.assertEqual(p.stdout.readline(), b"ready\n")
        p.kill()
        p.communicate()
        self.do("recover", "last")
        self.assertEqual((b.get("as/change"), b.get("conf/f"), b.get("ws/a"), b.has("as/gone")), ("old\none\n", "new\n", "a\nb\n", False))

    def test_I6_an_apply_that_is_killed_in_a_mapping_is_finished_by_the_next(self):
        b = self.box
        self.review("cd ~/as; for i in $(seq 1 300); do echo $i >many-$i; done; echo new >/tmp/m/f; rm gone")
        p = b.start("apply", self.run)
        until("the mapping's first file", lambda: p.poll() is not None or glob.glob(b.assets + "/many-*"))
        for pid in pids():
            stat_ = look(pid, "stat")
            if stat_ and int(stat_.rsplit(b")", 1)[1].split()[1]) == p.pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        p.kill()
        p.communicate(timeout=DEADLINE)
        self.do("apply", self.run)
        self.assertEqual((len(glob.glob(b.assets + "/many-*")), b.get("conf/f"), b.has("as/gone")), (300, "new\n", False))
        self.assertEqual((self.waiting(), glob.glob(b.assets + "/.airlock*")), (("applied", 0), []))

    def test_S1_04_a_read_only_workspace_lets_the_mappings_wait_too(self):
        if WHO != "user":
            self.skipTest("root writes anyway")
        b = self.box
        os.chmod(b.ws, 0o555)
        self.addCleanup(os.chmod, b.ws, 0o755)
        before = b.outside()
        rec = self.record("run", *b.maps, "--", self.WORK)
        self.assertEqual((b.outside(), rec["sync_out"]["review"]), (before, True))
        self.assertEqual(self.letters(), self.all())

    def test_S1_03_no_kind_but_its_own_waits(self):
        self.before = self.box.outside()
        self.do("run", "--review", *self.box.maps, "--", "rm -r ~/as; ln -s /etc ~/as; echo b >>a", status=125)
        self.assertIn("is not a directory any more", self.err)
        self.assertEqual(self.box.outside(), self.before)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root")
        sys.exit(77)
    unittest.main(verbosity=1, argv=sys.argv[:1] + sys.argv[3:])
