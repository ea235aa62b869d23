"""Results by plain tar over exec (S1-06), and from a plain copy (--without overlay): the same work gets the same verdicts."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from unpack_box import tree
import scratch

AIRLOCK = os.path.abspath(sys.argv[1])
DEADLINE = 60
MODES = {"changes": (), "tar": ("--sync-out", "tar"), "copy": ("--without", "overlay")}

WORK = r"""
set -e
echo changed > change; rm gone d/gone; echo sandbox > both; echo sandbox > edited; rm host-edited
echo new > new; mkdir -p nd/e; echo x > nd/e/x; chmod 700 nd; chmod +x mode; mkdir empty
rm -r dir; echo file > dir; rm file; mkdir file; echo y > file/y
ln -s ../outside esc; ln -s /etc/passwd abs; ln -s d/kept inside; mkfifo pipe
mkdir -p sub/.git; echo x > sub/.git/config; mkdir -p sub/.paperclip-runtime; echo x > sub/.paperclip-runtime/x
printf 'a\nB\nc\nd\ne\n' > text; ln big hard; rm link; ln -s kept link
echo ignored > out.o; mv d/move d/moved; : > d/trunc
"""


class ByTar(unittest.TestCase):
    def setUp(self):
        self.top = scratch.directory(prefix="by-tar-")
        self.env = dict(os.environ, HOME=os.path.join(self.top, "home"))
        os.mkdir(self.env["HOME"])

    def tearDown(self):
        for mode in MODES:
            self.airlock(mode, "rm", "--all", "--force")
        scratch.remove(self.top)

    def airlock(self, mode, *words, **kw):
        # A workspace and a state of their own: what one way leaves must not be seen by the other.
        env = dict(self.env, XDG_STATE_HOME=os.path.join(self.top, "state-" + mode))
        return subprocess.run([AIRLOCK, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=DEADLINE, check=False, **kw)

    def workspace(self, mode, git=True):
        ws = os.path.join(self.top, "ws-" + mode)
        os.makedirs(os.path.join(ws, "d"))
        os.mkdir(os.path.join(ws, "dir"))
        for n in ("change", "gone", "d/gone", "d/kept", "d/move", "d/trunc", "both", "edited", "host-edited", "mode", "dir/x",
                  "file", "same"):
            self.write(ws, n, "old " + n + "\n")
        self.write(ws, "big", "b" * 100000)
        self.write(ws, "text", "a\nb\nc\nd\ne\n")
        os.symlink("d/kept", os.path.join(ws, "link"))
        os.symlink("/nowhere/else", os.path.join(ws, "baseabs"))
        if git:
            self.write(ws, ".gitignore", "*.o\n")
            for words in ["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "c"]:
                subprocess.run(["git", "-C", ws] + words, check=True, env=self.env)
        return ws

    @staticmethod
    def write(ws, n, text):
        with open(os.path.join(ws, n), "w", encoding="ascii") as f:
            f.write(text)

    def run_in(self, mode, ws, script, *opts, status=0):
        """Runs script; the host edits while it does. Returns the changes and the record."""
        gate = os.path.join(self.top, "gate-" + mode)
        host = ["sh", "-c", "cd \"$1\" && echo host > both && printf 'a\\nb\\nc\\nd\\nE\\n' > text && echo h > host-edited "
                "&& echo h > hostnew", "host", ws]
        env = dict(self.env, XDG_STATE_HOME=os.path.join(self.top, "state-" + mode))
        p = subprocess.Popen([AIRLOCK, "run", *MODES[mode], "--json=" + gate, *opts, "--", "sh", "-c",
                              "echo ready; read x; " + script], cwd=ws, env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        subprocess.run(host, check=True)
        _, err = p.communicate(b"go\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, status, err)
        with open(gate, encoding="utf-8") as f:
            record = json.load(f)
        with open(os.path.join(env["XDG_STATE_HOME"], "airlock/runs", record["run"], "changes.jsonl"), encoding="utf-8") as f:
            changes = [json.loads(line) for line in f]
        return {(c["action"], c.get("path", c.get("path_b64")), c.get("rule", ""), c.get("detail", "")) for c in changes}, record, err

    def test_S1_06_the_same_work_gets_the_same_verdicts(self):
        for git in True, False:
            results = {}
            for mode in MODES:
                shutil.rmtree(os.path.join(self.top, "ws-" + mode), ignore_errors=True)
                ws = self.workspace(mode, git)
                changes, record, err = self.run_in(mode, ws, WORK)
                results[mode] = changes, tree(ws), record["lease_state"]
            for mode in "tar", "copy":
                self.assertEqual(results["changes"], results[mode], mode)
            self.assertEqual(results["tar"][2], "released")
            did = {p: a for a, p, _, _ in results["tar"][0]}
            self.assertEqual((did["gone"], did["both"], did["text"], did["esc"], did["pipe"], did["host-edited"]),
                             ("delete", "conflict", "merge", "refuse", "refuse", "conflict"))

    def test_S1_06_strict_rejects_by_either_way(self):
        for mode in MODES:
            ws = self.workspace(mode)
            before = {p: w for p, w in tree(ws).items() if p not in ("both", "text", "host-edited", "hostnew")}
            _, record, err = self.run_in(mode, ws, "ln -s ../../etc esc; rm gone", "--strict", status=125)
            self.assertIn(b"link_escape", err)
            self.assertEqual({p: w for p, w in tree(ws).items() if p in before}, before)
            self.assertEqual(record["lease_state"], "recoverable")

    def test_unreadable_inside_is_unknown_never_deleted(self):
        ws = self.workspace("tar")
        _, record, err = self.run_in("tar", ws, "rm gone; echo n > new; chmod 000 d")
        now = tree(ws)
        self.assertIn("d/kept", now)
        self.assertIn("gone", now)  # frozen with the rest: what the archiver did not say is unknown
        self.assertIn("new", now)
        self.assertIn(b"no deletion is taken over", err)
        self.assertEqual(record["lease_state"], "recoverable")

    def test_a_copy_without_overlay_knows_what_was_deleted_and_what_it_cannot_reach(self):
        ws = self.workspace("copy")
        _, record, err = self.run_in("copy", ws, "rm gone; echo n > new; i=0; cd d; "
                                     "while [ $i -lt 130 ]; do mkdir -p n; cd n; i=$((i + 1)); done; echo lost > deep")
        now = tree(ws)
        self.assertNotIn("gone", now)  # seen to be missing
        self.assertIn("d/kept", now)
        self.assertIn("new", now)
        self.assertIn(b"NOT be brought back", err)
        self.assertEqual(record["lease_state"], "recoverable")

    def test_a_copy_without_overlay_keeps_holes(self):
        ws = self.workspace("copy")
        with open(os.path.join(ws, "image"), "wb") as f:
            f.truncate(1 << 30)
            f.seek(1 << 29)
            f.write(b"in the middle")
        r = self.airlock("copy", "run", *MODES["copy"], "--quiet", "--", "stat -c '%s %b' image; "
                         "tail -c +536870913 image | head -c 13; echo more >> image", cwd=ws)
        self.assertEqual(r.returncode, 0, r.stderr)
        size, blocks, text = r.stdout.decode().split(maxsplit=2)
        self.assertEqual((int(size), text), (1 << 30, "in the middle"))
        self.assertLess(int(blocks) * 512, 1 << 20)
        st = os.stat(os.path.join(ws, "image"))
        self.assertEqual(st.st_size, (1 << 30) + 5)
        self.assertLess(st.st_blocks * 512, 1 << 20)

    def test_a_tar_that_fails_is_no_attack_and_nothing_is_lost(self):
        ws = self.workspace("tar")
        before = tree(ws)
        r = self.airlock("tar", "run", "--sync-out", "tar", "--", "rm gone; chmod 000 /workspace", cwd=ws)
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertIn(b"tar inside could not pack everything (status 2: tar: ", r.stderr)
        self.assertEqual(tree(ws), before)
        runs = json.loads(self.airlock("tar", "ps", "-a", "--json").stdout)
        self.assertEqual(runs[0]["lease_state"], "recoverable")


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=sys.argv[:1] + sys.argv[2:])
