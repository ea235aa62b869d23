"""Door 1 while the host moves: somebody acts exactly at a system call of the publish (S1-07; cases B14, B15, I1, I7).

Everything stands still while the other one acts, so each case is the same each time. Whatever is done: nothing
outside the workspace changes, what the host wrote meanwhile is what it finds afterwards, nothing is half.
"""
import json
import os
import subprocess
import sys
import tempfile

from fault_box import EVERY, TREE_LINKS, TREES, UNSEEN, FaultBox, chosen, edges, flat, remove_tree, tree_stream
from unpack_box import Stream, main, tree

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")
SHM = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None

# Every directory of the workspace becomes a link to one outside that has the same names in it.
SWAP = """
for d in */*/ */; do
    d=${d%/}
    if [ -d "$d" ] && [ ! -L "$d" ]; then mv "$d" "$d.was" && ln -s "$OUT" "$d"; fi
done
true
"""
STAGING = 'if [ -d .airlock-staging ]; then mv .airlock-staging ../moved && ln -s "$OUT" .airlock-staging; fi'
TOP = 'cd .. && mv ws elsewhere && ln -s "$OUT" ws'
EDIT = ('for f in repl big text tolink; do if [ -e $f ]; then echo "edited $f" >$f.tmp && mv -f $f.tmp $f; fi; done; '
        'if [ -f owner ]; then echo "edited owner" >owner; fi')


class Races(FaultBox):
    git = False

    def place(self):
        return SHM

    def setUp(self):
        super().setUp()
        # What a write, a deletion or a rename through a link would hit.
        for n in "gone", "kept", "x", "y", "n", "l", "repl", "c", "t", "journal":
            with open(os.path.join(self.outside, n), "w", encoding="ascii") as f:
                f.write("outside " + n)
        os.mkdir(os.path.join(self.outside, "deep"))
        os.mkdir(os.path.join(self.outside, "tree"))
        self.outer = self.look_outside()

    def look_outside(self):
        return {p: (w, os.lstat(os.path.join(self.outside, p)).st_ino, os.lstat(os.path.join(self.outside, p)).st_mtime_ns)
                for p, w in tree(self.outside, skip=()).items()}

    def with_act(self, script, at, *args, call="any"):
        act = os.path.join(self.top, "act")
        with open(act, "w", encoding="ascii") as f:
            f.write('#!/bin/sh\ncd "%s" || exit 1\nOUT="%s"\n%s\n' % (self.root, self.outside, script))
        os.chmod(act, 0o755)
        self.fresh()
        for d in "moved", "elsewhere":
            remove_tree(os.path.join(self.top, d))
        wrap = self.fault("%s:%d=run" % (call, at))
        return self.go(wrap[0], "-x", act, *wrap[1:], args=args)

    def places(self, n):
        """Calls from the first look at the workspace to the end. In the long suite all that change or see something; of
        those from one place in the program the first two and the last."""
        calls = self.calls()
        names = [name for name, _ in calls]
        calls = [c for c in calls[names.index("faccessat2") if "faccessat2" in names else 200:-1] if c[0] not in UNSEEN]
        if LONG and not EVERY:
            kept = edges(calls, lambda c: (c[0], c.site))
            calls = [c for c in calls if c in kept]
        return chosen(calls, None if LONG else n)

    def each(self, script, n, check, *args):
        """Somebody acts at each of the points. A call whose number comes only where the host stood still is met by
        nobody; where a quarter of them is, the test shows little."""
        points, hit = self.places(n), 0
        self.assertTrue(points, "no call to act at")
        for call, at in points:
            with self.subTest("at %s:%d" % (call, at)):
                res = self.with_act(script, at, *args, call=call)
                if not self.hits():
                    continue
                hit += 1
                self.assertEqual(self.look_outside(), self.outer, "something outside the workspace changed")
                check(res)
        print("%s: %d of %d points hit" % (self.id(), hit, len(points)), flush=True)
        self.assertGreaterEqual(hit, len(points) * 3 // 4, "hit, of %d points" % len(points))

    def test_B14_directories_become_links(self):
        def check(res):
            self.assertTrue(res["ret"] == 0 or res["text"])
            self.recover()
            self.assertEqual(self.look_outside(), self.outer)
            # What was in a directory is in its place, where the host moved it, or in the trash: never lost.
            now = flat(tree(self.root))
            self.assertEqual(self.read("mine"), "not the sandbox's\n")
            self.assertEqual([now[p][2] for p in ("d/kept", "d.was/kept") if p in now], [b"old d/kept\n"])
            self.assert_nothing_lost(now, [self.run_dir])
        self.each(SWAP, 16, check)

    def test_B14_the_staging_place_becomes_a_link(self):
        def check(res):
            self.assertTrue(res["ret"] == 0 or res["text"])
            self.recover()
            self.assertEqual(self.look_outside(), self.outer)
            now = flat(tree(self.root))
            now.pop(".airlock-staging", None)
            self.assert_each_old_or_new(now)
        self.each(STAGING, 10, check)

    def test_B15_the_workspace_itself_is_moved_away(self):
        def check(res):
            now = flat(tree(os.path.join(self.top, "elsewhere")))
            self.assert_each_old_or_new(now)
            os.unlink(self.root)
            os.rename(os.path.join(self.top, "elsewhere"), self.root)
            if res["ret"] < 0:
                self.assertIn("workspace", res["text"])
            self.assertIn(self.recover()["ret"], (0, 1))
            self.assertTrue(flat(tree(self.root)) in (self.old, self.new))
            self.assert_clean()
        self.each(TOP, 10, check)

    def test_I7_host_saves_in_every_phase(self):
        def check(res):
            self.assertEqual(res["ret"], 0, res["text"])
            for f in "repl", "big", "text", "tolink", "owner":
                with open(self.path(f), "rb") as g:
                    # A link that was put in the place of tolink first is written through by nobody: mv replaces it.
                    got = g.read()
                if got != b"edited %s\n" % f.encode():
                    # merged with the edit is fine, replaced is not
                    self.assertIn(b"edited", got, "the host's save of %s is gone" % f)
            self.assert_clean()
        self.each(EDIT, 24, check)

    def test_I7_G7_host_saves_in_a_directory_that_goes(self):
        did, late = os.path.join(self.top, "did"), []
        script = 'if [ -d dir ]; then echo "edited y" >dir/deep/y && touch ../did; fi; true'

        def check(res):
            self.assertEqual(res["ret"], 0, res["text"])
            now = flat(tree(self.root))
            late.append(not os.path.exists(did))
            if not late[-1]:
                os.unlink(did)
                self.assertEqual(now.get("dir/deep/y", ("", "", ""))[2], b"edited y\n")
                self.assertIn(("conflict", "dir"), [(c["action"], c["path"]) for c in res["changes"]])
            else:
                self.assertEqual(now["dir"][2], b"now a file")
            self.assert_clean()
        self.each(script, 10, check)
        self.assertEqual(set(late), {False, True}, "it was always gone, or never")
        # And right before the directory is moved away (by one of these), which only a look at what was moved shows.
        late.clear()
        for n in range(1, 7):
            check(self.with_act(script, n, call="renameat2"))
            self.assertTrue(self.hits())
        self.assertEqual(set(late), {False, True}, "it was always gone, or never")

    def test_I1_another_run_publishes_meanwhile(self):
        other = os.path.join(self.top, "other-stream")
        with open(other, "wb") as f:
            f.write(Stream().file("repl", "other repl\0").file("theirs", "theirs").dir("new").file("new/theirs", "t").bytes())
        run = os.path.join(self.top, "other-run")
        os.mkdir(run)
        script = '"%s" run --root . --run-dir "%s" --manifest "%s" --layer "%s" --lock-wait 20 <"%s" >"%s.out"; true' % (
            self.driver, run, self.manifest, self.layer, other, run)

        outcomes = set()

        def check(res):
            self.assertEqual(res["ret"], 0, res["text"])
            with open(run + ".out", encoding="utf-8") as f:
                theirs = json.load(f)
            now = flat(tree(self.root))
            outcomes.add(theirs["code"])
            if theirs["ret"] == 0:
                self.assertEqual((now["theirs"][2], now["new/theirs"][2]), (b"theirs", b"t"))
            else:
                self.assertIn(theirs["code"], ("timeout",), theirs["text"])
            self.assertIn(now["repl"][2], (b"new repl\n", b"other repl\0"))
            self.assertEqual(now["new/tree/n"], self.new["new/tree/n"])
            self.recover()
            self.assert_clean()
        self.each(script, 10, check)
        self.assertIn("none", outcomes, "the other run never came through")


class TreeRaces(Races):
    """The host makes what the sandbox made, of a kind that is in the way or not, at any moment of the publish."""
    test_B14_directories_become_links = test_B14_the_staging_place_becomes_a_link = None
    test_B15_the_workspace_itself_is_moved_away = test_I7_host_saves_in_every_phase = None
    test_I1_another_run_publishes_meanwhile = test_I7_G7_host_saves_in_a_directory_that_goes = None

    def setUp(self):
        super().setUp()
        self.met = set()

    def stream(self):
        return tree_stream().bytes()

    def meanwhile(self):
        self.write("taken/mine", "not the sandbox's\n")

    def assert_there_or_kept(self, res, start):
        """What the sandbox made is in its place, or is a conflict whose bytes are kept; and counted as what it is."""
        self.assertEqual(res["ret"], 0, res["text"])
        now = flat(tree(self.root))
        kept = [b for d in self.run_dirs(start) for b in self.bytes_below(os.path.join(d, "conflicts", "sandbox"))]
        said = {c["path"]: c["action"] for c in res["changes"]}
        self.met.update(said.values())
        for p, b in TREES.items():
            if now.get(p, ("",))[0] == "f" and now[p][2] == b:
                continue
            self.assertEqual(said.get(p), "conflict", p)
            self.assertIn(b, kept, "%s is lost" % p)
        for p, to in TREE_LINKS.items():
            # Refused: where the host's own link led was part of the judgement.
            self.assertTrue(now.get(p) == ("l", to) or said.get(p) in ("conflict", "refuse"), p)

    def test_I7_host_makes_the_directory(self):
        def check(res):
            self.assertIn(self.read("nt/a"), ("host a\n", "a"))
            self.assertEqual(self.read("nt/deep/host"), "host\n")
            self.assert_there_or_kept(res, self.runs - 1)
            self.assert_clean()
        self.each('mkdir -p nt/deep; echo host >nt/deep/host; if [ ! -e nt/a ]; then echo "host a" >nt/a; fi', 12, check)
        self.assertIn("conflict", self.met)

    def test_B14_a_link_is_planted_where_a_tree_goes(self):
        def check(res):
            self.assert_there_or_kept(res, self.runs - 1)
            self.recover()
            self.assertEqual(self.look_outside(), self.outer)
        self.each('for d in nt nt-x d/nt lone; do if [ ! -e $d ]; then ln -s "$OUT" $d; fi; done; true', 10, check)
        self.assertIn("conflict", self.met)

    def test_B14_a_file_is_planted_where_a_tree_goes(self):
        def check(res):
            self.assert_there_or_kept(res, self.runs - 1)
            self.assert_clean()
        self.each('for d in nt nt-x d/nt lone; do if [ ! -e $d ]; then echo host >$d; fi; done; true', 8, check)
        self.assertIn("conflict", self.met)


class ManyRaces(Races):
    """More files than are synced one by one: their report is on its way before they are in their place."""
    test_B14_directories_become_links = test_B14_the_staging_place_becomes_a_link = None
    test_B15_the_workspace_itself_is_moved_away = test_I7_host_saves_in_every_phase = None
    test_I1_another_run_publishes_meanwhile = test_I7_G7_host_saves_in_a_directory_that_goes = None
    MANY = {"many/f%03d" % i: b"%d" % i for i in range(520)} | {"many-x/g": b"g", "more/h": b"h"}

    def stream(self):
        s = Stream()
        for p, b in self.MANY.items():
            s.file(p, b)
        return s.bytes()

    def check(self, res):
        """Each entry is told once, as what it is; the record says the same. Returns those that did not come."""
        self.assertEqual(res["ret"], 0, res["text"])
        now = flat(tree(self.root))
        said = [(c["path"], c["action"]) for c in res["changes"]]
        self.assertEqual(len(said), len(set(said)))
        lost = {p for p, a in said if p in self.MANY and a != "add"}
        added = {p for p, a in said if p in self.MANY and a == "add"}
        for p in added:
            self.assertEqual(now[p][2], self.MANY[p])
        self.assertEqual(added, self.MANY.keys() - lost - {p for p in self.MANY if now.get(p, ("", "", b""))[2] != self.MANY[p]})
        self.assertEqual(res["counts"]["add"], sum(a == "add" for _, a in said))
        self.assertEqual(res["bytes"], sum(len(self.MANY[p]) for p in added))
        with open(os.path.join(self.run_dir, "changes.jsonl"), encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([(x["path"], x["action"]) for x in lines], said)
        self.assertFalse(os.path.exists(os.path.join(self.run_dir, "changes.jsonl.new")))
        return lost

    def test_I7_what_was_told_before_is_taken_back(self):
        """The first tree, and the last one, which is when those before it have come already."""
        for d, f in ("many", "f100"), ("more", "h"):
            act, lost = "mkdir %s 2>/dev/null && echo host >%s/%s; true" % (d, d, f), set()
            for n in 1, 2, 3, 4:
                with self.subTest("before rename %d" % n):
                    lost = self.check(self.with_act(act, n, call="renameat2"))
                    self.assertIn(lost, (set(), {"%s/%s" % (d, f)}))
                if lost:
                    self.assertEqual(self.read("%s/%s" % (d, f)), "host\n")
                    self.assertIn(self.MANY["%s/%s" % (d, f)],
                                  self.bytes_below(os.path.join(self.run_dir, "conflicts", "sandbox")))
                    break
            self.assertTrue(lost, "no act came between the report and the rename")

    def test_I7_what_was_told_of_a_staged_tree_that_goes_is_taken_back(self):
        """The last one, when the others have come; another is in its place, or none."""
        for put, refused in ("mkdir $t", ["more"]), ("true", []):
            with self.subTest(put):
                away = tempfile.mkdtemp(dir=self.top)
                act = 'for t in .airlock-staging/*/c/t*; do if [ -e $t/h ]; then mv $t %s && %s; fi; done; true' % (away, put)
                res = self.with_act(act, 1, call="fsync")
                self.assertEqual(self.check(res), set())
                self.assertEqual(len(os.listdir(away)), 1)
                self.assertFalse(os.path.lexists(self.path("more")))
                self.assertEqual([c["path"] for c in res["changes"] if c["action"] == "refuse"], refused)

    def test_S1_07_a_kill_between_the_report_and_the_rename(self):
        for spec, there in ("syncfs:1=kill", False), ("fsync:1=kill", True), ("renameat2:1=kill", True):
            with self.subTest(spec):
                self.fresh()
                res = self.go(*self.fault(spec))
                self.assertTrue(self.hits())
                self.assertLess(res["ret"], 0)
                self.assertTrue(flat(tree(self.root)) == (self.new if there else self.old))
                said = sorted(c["path"] for c in res["changes"] if c["action"] == "add" and c.get("rule") != "dir")
                self.assertEqual(said, sorted(self.MANY) if there else [])
                self.assertEqual(os.path.exists(os.path.join(self.run_dir, "changes.jsonl")), there)
                self.assertFalse(os.path.exists(os.path.join(self.run_dir, "changes.jsonl.new")))
                self.assert_clean()

    def test_S1_07_nothing_is_told_of_what_could_not_be_synced(self):
        self.fresh()
        res = self.go(*self.fault("syncfs:1=EIO+"))
        self.assertTrue(self.hits())
        self.assertLess(res["ret"], 0)
        self.assertIn("nothing was changed", res["text"])
        self.assertEqual(([c for c in res["changes"] if c["action"] == "add"], res["counts"]["add"]), ([], 0))
        self.assertFalse([n for n in os.listdir(self.run_dir) if n.startswith("changes.jsonl")])
        self.assertTrue(flat(tree(self.root)) == self.old)
        self.assert_clean()


if __name__ == "__main__":
    main()
