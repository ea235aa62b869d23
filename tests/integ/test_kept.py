#!/usr/bin/env python3
"""Several commands in one kept sandbox (S1-07, FR-B028): what each brings back is compared with what the sandbox had
when the one before brought back its own, and not with what was sent in first.

usage: test_kept.py AIRLOCK [unittest arguments]

The first table is one sandbox: each case has a directory of its own, and each step is one `airlock exec` for all of
them. A step is: what a person does to the host's files, what the command does inside, what must be reported.
"""
import fcntl, json, os, signal, subprocess, sys, unittest

from run_box import DEADLINE, Host, link, pids, snapshot, until

AIRLOCK = os.path.realpath(sys.argv[1])
PROGS = os.path.dirname(AIRLOCK)
LINES = b"".join(b"%d\n" % i for i in range(1, 20))
USER = 54321  # of nobody; for the half of the cases that root's rights would spoil


class Kept(Host):
    def __init__(self, files, opts=(), uid=0, umask=0o022):
        super().__init__(PROGS, "airlock-kept-", files)
        self.uid, self.umask = uid, umask
        if uid:
            for here, dirs, names in os.walk(self.top):
                for n in [here] + [os.path.join(here, x) for x in names]:
                    os.chown(n, uid, uid)
        self.first = self.record("run", "--keep", *opts, "--", "true")
        self.run = self.first["run"]
        self.lease = "%s/leases/%s" % (self.state, self.first["lease"])

    def become(self):
        os.umask(self.umask)
        if self.uid:
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)

    def airlock(self, *words, **kw):
        return super().airlock(*words, preexec_fn=self.become, **kw)

    def record(self, verb, *words):
        r = self.airlock(verb, "-q", "--json", *words)
        if r.returncode:
            raise AssertionError("%s: status %d: %s" % (verb, r.returncode, r.stderr.decode()))
        return json.loads(r.stdout)

    def exec(self, script):
        return self.record("exec", self.run, "--", script)


def changes(record, below=""):
    """(action, path, rule) of what came back, without the directories that only hold it."""
    found = set()
    for c in record["sync_out"]["changes"]:
        if c["path"].startswith(below) and c["path"] != below.rstrip("/"):
            found.add((c["action"], c["path"][len(below):], c["rule"]))
    return found


def put(name, data):
    def do(top):
        path = os.path.join(top, name)
        with open(path, "wb") as f:
            f.write(data)
    return do


def gone(name):
    return lambda top: os.unlink(os.path.join(top, name))


def mode(name, bits):
    return lambda top: os.chmod(os.path.join(top, name), bits)


def replaced(old, new):
    return LINES.replace(old, new)


# name: (files, steps of (host, inside, reported), files at the end)
CASES = {
    "taken": ({"f": b"a\n"}, [
        (None, "echo b >>f", {("change", "f", "")}),
        (None, "echo c >>f", {("change", "f", "")}),
        (None, "echo d >>f", {("change", "f", "")})], {"f": b"a\nb\nc\nd\n"}),
    "unchanged": ({"f": b"a\n"}, [
        (None, "echo b >>f", {("change", "f", "")}),
        (put("f", b"mine\n"), "true", set()),
        (None, "touch f", set())], {"f": b"mine\n"}),
    "merged": ({"f": LINES}, [
        (put("f", replaced(b"1\n", b"H\n")), "echo s1 >>f", {("merge", "f", "")}),
        (None, "echo s2 >>f", {("merge", "f", "")}),
        (None, "true", set())], {"f": replaced(b"1\n", b"H\n") + b"s1\ns2\n"}),
    "merged_later": ({"f": LINES}, [
        (None, "echo s1 >>f", {("change", "f", "")}),
        (put("f", b"H\n" + LINES[2:] + b"s1\n"), "echo s2 >>f", {("merge", "f", "")}),
        (None, "true", set())], {"f": b"H\n" + LINES[2:] + b"s1\ns2\n"}),
    "merged_new": ({}, [
        (None, "seq 19 >n", {("add", "n", "")}),
        (put("n", b"H\n" + LINES[2:]), "echo s >>n", {("merge", "n", "")}),
        (None, "echo t >>n", {("merge", "n", "")})], {"n": b"H\n" + LINES[2:] + b"s\nt\n"}),
    "conflict": ({"f": b"a\n"}, [
        (put("f", b"h\n"), "echo s >f", {("conflict", "f", "both_changed")}),
        (None, "true", set()),
        (None, "echo s2 >f", {("conflict", "f", "both_changed")})], {"f": b"h\n"}),
    # The host never took the first edit: a merge would bring the second without it.
    "conflict_then_far": ({"f": LINES}, [
        (put("f", replaced(b"2\n", b"H\n")), "sed -i 's/^2$/S/' f", {("conflict", "f", "both_changed")}),
        (None, "echo far >>f", {("conflict", "f", "both_changed")}),
        (None, "chmod 755 f", {("mode", "f", "")})], {"f": replaced(b"2\n", b"H\n")}),
    "conflict_settled": ({"f": b"a\n"}, [
        (put("f", b"h\n"), "echo s >f", {("conflict", "f", "both_changed")}),
        (put("f", b"s\n"), "echo s2 >f", {("change", "f", "")}),
        (None, "true", set())], {"f": b"s2\n"}),
    "deleted": ({"f": b"a\n", "g": b"g\n"}, [
        (None, "rm f g", {("delete", "f", ""), ("delete", "g", "")}),
        (put("f", b"a\n"), "true", set()),
        (None, "echo again >g", {("add", "g", "")})], {"f": b"a\n", "g": b"again\n"}),
    "deleted_here_edited_there": ({"f": b"a\n"}, [
        (put("f", b"h\n"), "rm f", {("conflict", "f", "deleted_in_sandbox")}),
        (None, "true", set()),
        (None, "echo s >f", {("conflict", "f", "both_added")})], {"f": b"h\n"}),
    # No layer below has it, so the sandbox's layer does not even say that it is gone.
    "made_and_deleted": ({}, [
        (None, "mkdir -p x/y; echo n >x/y/n; echo m >m",
         {("add", "x", "dir"), ("add", "x/y", "dir"), ("add", "x/y/n", ""), ("add", "m", "")}),
        (None, "rm -r x m",
         {("delete", "x", "dir"), ("delete", "x/y", "dir"), ("delete", "x/y/n", ""), ("delete", "m", "")}),
        (None, "true", set())], {}),
    "made_edited_deleted": ({}, [
        (None, "echo n >n", {("add", "n", "")}),
        (put("n", b"mine\n"), "rm n", {("conflict", "n", "deleted_in_sandbox")}),
        (None, "true", set())], {"n": b"mine\n"}),
    "host_deletes": ({"f": b"a\n", "g": b"g\n"}, [
        (None, "echo b >>f; echo b >>g", {("change", "f", ""), ("change", "g", "")}),
        (lambda top: (gone("f")(top), gone("g")(top)), "true", set()),
        (None, "echo c >>g", {("change", "g", "")})], {"g": b"g\nb\nc\n"}),
    "mode": ({"f": b"a\n"}, [
        (None, "chmod 755 f", {("mode", "f", "")}),
        (None, "chmod 644 f", {("mode", "f", "")}),
        (None, "echo b >>f", {("change", "f", "")})], {"f": b"a\nb\n"}),
    "mode_of_the_host": ({"f": b"a\n"}, [
        (None, "echo b >>f", {("change", "f", "")}),
        (mode("f", 0o600), "echo c >>f", {("change", "f", "")}),
        (None, "rm f", {("delete", "f", "")})], {}),
    "mode_of_both": ({"f": b"a\n"}, [
        (mode("f", 0o600), "chmod 755 f", {("conflict", "f", "mode_both_changed")}),
        (None, "true", set()),
        (None, "echo b >>f", {("change", "f", "")})], {"f": b"a\nb\n"}),
    "renamed_directory": ({"d/f": b"f\n", "d/s/g": b"g\n"}, [
        (None, "mv d e", {("delete", "d", "dir"), ("delete", "d/f", ""), ("delete", "d/s", "dir"),
                          ("delete", "d/s/g", ""), ("add", "e", "dir"), ("add", "e/f", ""), ("add", "e/s", "dir"),
                          ("add", "e/s/g", "")}),
        (None, "echo more >>e/f", {("change", "e/f", "")}),
        (None, "mv e d; rm d/s/g", {("delete", "e", "dir"), ("delete", "e/f", ""), ("delete", "e/s", "dir"),
                                    ("delete", "e/s/g", ""), ("add", "d", "dir"), ("add", "d/f", ""),
                                    ("add", "d/s", "dir")})], {"d/f": b"f\nmore\n"}),
    "directory_and_file": ({"d/f": b"f\n"}, [
        (None, "rm -r d; echo file >d", {("change", "d", ""), ("delete", "d/f", "")}),
        (None, "rm d; mkdir d; echo g >d/g", {("change", "d", "dir"), ("add", "d/g", "")}),
        (None, "rm -r d; ln -s f d", {("change", "d", ""), ("delete", "d/g", "")})], {"d": "f"}),
    "link": ({"f": b"a\n"}, [
        (None, "ln -s f l", {("add", "l", "")}),
        (None, "ln -sf g l", {("change", "l", "")}),
        (None, "rm l", {("delete", "l", "")})], {"f": b"a\n"}),
    # A member that is refused is no part of the baseline: it is said each time, and the good one is new.
    "refused": ({}, [
        (None, "ln -s /etc/passwd l", {("refuse", "l", "link_escape")}),
        (None, "true", {("refuse", "l", "link_escape")}),
        (None, "rm l; echo good >l", {("add", "l", "")})], {"l": b"good\n"}),
    "big": ({}, [
        (None, "head -c 3000000 /dev/zero >z", {("add", "z", "")}),
        (None, "echo end >>z", {("change", "z", "")}),
        (None, "cp z y; rm z", {("add", "y", ""), ("delete", "z", "")})], {"y": bytes(3000000) + b"end\n"}),
}


def play(test, box):
    for i in range(3):
        script = ""
        for name, (_, steps, _) in CASES.items():
            if steps[i][0]:
                steps[i][0](os.path.join(box.ws, name))
            script += "cd /workspace/%s && { %s; }\n" % (name, steps[i][1])
        r = box.exec(script)
        for name, (_, steps, _) in CASES.items():
            with test.subTest(case=name, step=i + 1):
                test.assertEqual(changes(r, name + "/"), steps[i][2])
    for name, (_, _, end) in CASES.items():
        with test.subTest(case=name, step="end"):
            left = {p: d for p, (d, _) in snapshot(os.path.join(box.ws, name)).items() if p != "stay"}
            test.assertEqual(left, end)


def files():
    # "stay" keeps the directories of the cases there.
    return {**{n + "/" + p: d for n, (f, _, _) in CASES.items() for p, d in f.items()},
            **{n + "/stay": b"" for n in CASES}}


class Baseline(unittest.TestCase):
    def box(self, *args, **kw):
        box = Kept(*args, **kw)
        self.addCleanup(box.remove)
        return box

    def test_S1_07_second_and_third_change(self):
        play(self, self.box(files()))

    @unittest.skipIf(os.geteuid(), "needs root to become another user")
    def test_S1_07_second_and_third_change_as_a_user_who_closes_new_files(self):
        play(self, self.box(files(), uid=USER, umask=0o077))

    def test_taking_the_sandbox_is_a_state_too(self):
        box = self.box({"f": b"a\n", "g": LINES}, opts=["--on-conflict", "take-sandbox"])
        box.write("f", b"h\n")
        self.assertEqual(changes(box.exec("echo s >f")), {("conflict", "f", "both_changed")})
        self.assertEqual(changes(box.exec("true")), set())
        self.assertEqual(changes(box.exec("echo t >>f")), {("change", "f", "")})
        self.assertEqual(box.read("f"), b"s\nt\n")

    def test_a_command_starts_where_one_stands(self):
        box = self.box({"d/e/b": b"b\n"})
        os.mkdir(box.ws + "/new")
        for at, want in (box.ws + "/d/e", b"/workspace/d/e\n"), (box.ws, b"/workspace\n"), (box.top, b"/workspace\n"):
            r = box.airlock("exec", "-q", box.run, "--", "pwd", cwd=at)
            self.assertEqual((r.returncode, r.stdout), (0, want), r.stderr)
        # Not at the top instead: what is there is not what the command is meant for.
        r = box.airlock("exec", "-q", box.run, "--", "touch made", cwd=box.ws + "/new")
        self.assertEqual((r.returncode, os.listdir(box.ws + "/new"), os.path.exists(box.ws + "/made")), (125, [], False))
        self.assertIn(b"cannot start in /workspace/new: No such file or directory (the sandbox has no such directory: ", r.stderr)
        self.assertIn(b"made here since", r.stderr)
        self.assertIn(b"the workspace's top for one)\n", r.stderr)
        self.assertNotIn(b"--include", r.stderr)
        r = box.airlock("exec", "-q", box.run, "--", "rm -r d/e; echo >d/e", cwd=box.ws)
        os.rename(box.ws + "/d/e", box.ws + "/d/file")
        os.mkdir(box.ws + "/d/e")
        r = box.airlock("exec", "-q", box.run, "--", "pwd", cwd=box.ws + "/d/e")
        self.assertEqual((r.returncode, r.stdout), (125, b""))
        self.assertIn(b"in /workspace/d/e: Not a directory (start airlock from another directory of the workspace)", r.stderr)

    def test_lists_show_any_command_on_one_line(self):
        box = self.box({"a": b"a\n"})
        box.airlock("exec", "-q", box.run, "--", "echo \033[2J\n:  " + "\u00e4" * 40)
        box.airlock("shell", box.run)
        for verb, head in ("ps", 1), ("runs", 1):
            out = box.airlock(verb).stdout.decode()
            self.assertEqual(len(out.splitlines()), head + 3, out)
            self.assertIn("  echo \\x1b[2J\\n:  " + "\u00e4" * 21 + "...\n", out)
            self.assertRegex(out, r"(?m)  \(shell\)$")
            self.assertRegex(out, r"(?m)  true$")
        r = box.airlock("exec", "-q", "last", "--", "true")
        self.assertEqual(r.returncode, 0, r.stderr)
        newest = json.loads(box.airlock("runs", "--json").stdout)[0]["run"]
        box.airlock("stop", "last")
        self.assertIn(("sandbox of run %s is not running" % newest).encode(), box.airlock("exec", "last", "--", "true").stderr)
        self.assertIn(("the work of run %s is back" % newest).encode(), box.airlock("recover", "last").stderr)
        r = box.airlock("version", "extra")
        self.assertEqual((r.returncode, r.stdout), (2, b""))
        self.assertIn(b"takes no word extra", r.stderr)

    @unittest.skipIf(os.geteuid(), "needs root to become another user")
    def test_what_could_not_be_written_is_tried_again(self):
        box = self.box({"d/f": b"a\n", "e/f": b"a\n", "g": b"g\n"}, uid=USER)
        os.chmod(box.ws + "/d", 0o555)
        r = box.exec("echo b >d/f; echo n >d/n; rm e/f; echo h >>g")
        self.assertEqual(changes(r) & {("fail", "d/f", "permission_denied"), ("fail", "d/n", "permission_denied")},
                         {("fail", "d/f", "permission_denied"), ("fail", "d/n", "permission_denied")})
        os.chmod(box.ws + "/d", 0o755)
        self.assertEqual(changes(box.exec("true")), {("change", "d/f", ""), ("add", "d/n", "")})
        self.assertEqual((box.read("d/f"), box.read("d/n")), (b"b\n", b"n\n"))
        self.assertEqual(changes(box.exec("rm d/n")), {("delete", "d/n", "")})

    def test_publish_that_was_cut_before_its_end(self):
        """As a kill between the commit and the end of a publish leaves it: the workspace is repaired, the baseline follows."""
        box = self.box({"f": b"a\n"})
        box.exec("echo b >>f")
        os.rename(box.lease + "/baseline/manifest", box.lease + "/baseline/manifest.next")
        self.assertEqual(changes(box.exec("echo c >>f")), {("change", "f", "")})
        # Not committed: worth nothing.
        with open(box.lease + "/baseline/manifest.new", "w") as f:
            f.write("airlock-manifest 1\nend 0\n")
        self.assertEqual(changes(box.exec("echo d >>f")), {("change", "f", "")})
        self.assertEqual(box.read("f"), b"a\nb\nc\nd\n")

    def test_recovered_work_is_compared_with_the_same_baseline(self):
        box = self.box({"f": b"a\n", "g": b"g\n"})
        box.exec("echo b >>f; rm g; echo n >n")
        box.write("f", b"mine\n")
        box.write("g", b"again\n")
        self.assertEqual(box.airlock("stop", box.run).returncode, 0)
        r = box.airlock("recover", box.run)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual((box.read("f"), box.read("g"), box.read("n")), (b"mine\n", b"again\n", b"n\n"))

    def test_a_stopped_sandbox_is_given_up_as_stop_says(self):
        box = self.box({"f": b"a\n"})
        r = box.airlock("stop", box.run)
        self.assertEqual(r.returncode, 0)
        # What ran in it on its own may have written since the last publish: no rm without force.
        self.assertIn(("airlock rm --force %s'" % box.run).encode(), r.stderr)
        self.assertEqual(box.airlock("rm", box.run).returncode, 125)
        self.assertEqual(box.airlock("rm", "--force", box.run).returncode, 0)


class Shared(unittest.TestCase):
    """Several at once in one sandbox: each brings what is there when its turn comes."""

    def box(self, files, first=True):
        box = Kept(files) if first else Host(PROGS, "airlock-kept-", files)
        self.addCleanup(box.remove)
        self.box_, self.procs = box, []
        self.addCleanup(self.end)
        return box

    def end(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.communicate()

    def start(self, *words):
        p = subprocess.Popen([self.box_.bin + "/airlock", *words], cwd=self.box_.ws, env=self.box_.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.procs.append(p)
        return p

    def ended(self, p, status=0):
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, status, err)
        return out

    def state(self, run):
        return {r["run"]: (r["state"], r["lease_state"]) for r in self.box_.rows()}[run]

    def test_FR_B028_twenty_at_once(self):
        box = self.box({"a": b"a\n"})
        # None ends before all have begun.
        script = ("echo {0} >f{0}; echo {0} >>all; : >/tmp/{0}; "
                  "until [ $(ls /tmp | wc -l) = 20 ]; do sleep 0.1; done; echo {0} >>f{0}; echo out{0}")
        many = [self.start("exec", "-q", box.run, "--", script.format(i)) for i in range(20)]
        for i, p in enumerate(many):
            self.assertEqual(self.ended(p), b"out%d\n" % i)
        for i in range(20):
            self.assertEqual(box.read("f%d" % i), b"%d\n%d\n" % (i, i))
        self.assertEqual(sorted(box.read("all").split()), sorted(b"%d" % i for i in range(20)))
        self.assertEqual({self.state(r["run"]) for r in box.rows()}, {("finished", "kept")})
        self.assertEqual(box.airlock("rm", box.run).returncode, 0)
        self.assertEqual(os.listdir(box.state + "/leases"), [])

    def test_beside_the_first_command(self):
        box = self.box({"a": b"a\n"}, first=False)
        p = self.start("run", "-q", "--keep", "--", "echo 1 >one; until [ -e two ]; do sleep 0.1; done")
        run = until("the first run", box.rows)[0]["run"]
        until("a kept sandbox", lambda: self.state(run)[1] == "kept")
        r = box.airlock("exec", "-q", run, "--", "until [ -e one ]; do sleep 0.1; done; echo 2 >two")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.ended(p)
        self.assertEqual((box.read("one"), box.read("two")), (b"1\n", b"2\n"))

    def test_in_use_is_not_taken_away(self):
        box = self.box({"a": b"a\n"})
        p = self.start("exec", "-q", box.run, "--", "echo b >>a; until [ -e go ]; do sleep 0.1; done")
        until("the second run", lambda: len(box.rows()) == 2)
        for verb in ("rm", "recover", "stop"):
            r = box.airlock(verb, box.run)
            self.assertEqual(r.returncode, 125, (verb, r.stderr))
            self.assertIn(b"in use", r.stderr)
        self.assertEqual(box.airlock("exec", "-q", box.run, "--", ": >go").returncode, 0)
        self.ended(p)
        self.assertEqual(box.read("a"), b"a\nb\n")

    def test_S1_10_a_recovery_that_fails_leaves_the_sandbox_as_it_is(self):
        """Whoever forgets that it lives can never end it, and the next would mount its layer twice."""
        box = self.box({"a": b"a\n"})
        launch = [pid for pid in pids() if link(pid, "exe") == box.bin + "/airlock-launch"]
        self.assertEqual(len(launch), 1)
        os.rename(box.ws, box.top + "/away")
        r = box.airlock("recover", box.run, cwd=box.top)
        self.assertEqual(r.returncode, 125, r.stderr)
        os.rename(box.top + "/away", box.ws)
        self.assertEqual(self.state(box.run)[1], "kept")
        self.assertEqual(changes(box.exec("echo b >>a")), {("change", "a", "")})
        self.assertEqual([pid for pid in pids() if link(pid, "exe") == box.bin + "/airlock-launch"], launch)
        self.assertEqual(box.airlock("rm", box.run).returncode, 0)
        until("the end of the sandbox", lambda: not os.path.exists("/proc/%d" % launch[0]))

    def test_killed_command_leaves_the_sandbox_and_its_work(self):
        box = self.box({"a": b"a\n"})
        p = self.start("exec", "-q", box.run, "--", "echo b >>a; : >/tmp/done; exec sleep 70003")
        other = self.start("exec", "-q", box.run, "--", "until [ -e /tmp/done ]; do sleep 0.1; done; echo o >o; "
                           "until [ -e /tmp/go ]; do sleep 0.1; done")
        until("both", lambda: len(box.rows()) == 3)
        box.airlock("exec", "-q", box.run, "--", "until [ -e /tmp/done ]; do sleep 0.1; done")
        p.kill()
        p.wait()
        self.assertEqual(box.airlock("exec", "-q", box.run, "--", ": >/tmp/go").returncode, 0)
        self.ended(other)
        self.assertEqual((box.read("a"), box.read("o")), (b"a\nb\n", b"o\n"))
        # Another one, and nobody after it: what it did is not thrown away unasked.
        p = self.start("exec", "-q", box.run, "--", "echo c >>a; : >/tmp/again; exec sleep 70003")
        box.airlock("exec", "-q", box.run, "--", "until [ -e /tmp/again ]; do sleep 0.1; done; rm /tmp/again")
        p.send_signal(signal.SIGKILL)
        p.wait()
        r = box.airlock("rm", box.run)
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertIn(b"recover", r.stderr)
        states = sorted(r["state"] for r in box.rows())
        self.assertEqual(states.count("interrupted"), 2, states)
        self.assertEqual(changes(box.exec("true")), set())
        self.assertEqual(box.read("a"), b"a\nb\nc\n")
        self.assertEqual(box.airlock("rm", box.run).returncode, 0)

    def test_results_that_do_not_come_are_tried_again(self):
        box = self.box({"a": b"a\n"})
        p = self.start("exec", box.run, "--", ": >/tmp/done; until [ -e /tmp/go ]; do sleep 0.1; done; echo b >>a")
        box.airlock("exec", "-q", box.run, "--", "until [ -e /tmp/done ]; do sleep 0.1; done")
        os.rename(box.ws, box.top + "/away")
        os.mkdir(box.ws)
        r = box.airlock("exec", box.run, "--", ": >/tmp/go", cwd=box.top)
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertIn(b"NOT here", r.stderr)
        out, err = p.communicate(timeout=DEADLINE)
        self.assertEqual(p.returncode, 125, err)
        self.assertEqual(os.listdir(box.ws), [])
        os.rmdir(box.ws)
        os.rename(box.top + "/away", box.ws)
        r = box.airlock("rm", box.run)
        self.assertEqual(r.returncode, 125, r.stderr)
        self.assertEqual(self.state(box.run), ("finished", "kept"))
        self.assertEqual(changes(box.exec("true")), {("change", "a", "")})
        self.assertEqual(box.airlock("rm", box.run).returncode, 0)

    def test_first_signal_while_results_come_back_says_what_goes_on(self):
        box = self.box({"a": b"a\n"})
        turn = os.open(box.lease + "/baseline", os.O_RDONLY)
        self.addCleanup(os.close, turn)
        fcntl.flock(turn, fcntl.LOCK_EX)
        p = self.start("exec", box.run, "--", "echo b >>a")
        said = b""
        while b"waiting for another command" not in said:
            said += os.read(p.stderr.fileno(), 4096) or self.fail(said)
        p.send_signal(signal.SIGINT)
        while b"second signal" not in said:
            said += os.read(p.stderr.fileno(), 4096) or self.fail(said)
        self.assertEqual(said.count(b"second signal"), 1)
        fcntl.flock(turn, fcntl.LOCK_UN)
        self.ended(p)
        self.assertEqual(box.read("a"), b"a\nb\n")

    def test_sandbox_that_died_is_recovered(self):
        box = self.box({"a": b"a\n"})
        p = self.start("exec", "-q", box.run, "--", "echo b >>a; : >/tmp/done; exec sleep 70003")
        box.airlock("exec", "-q", box.run, "--", "until [ -e /tmp/done ]; do sleep 0.1; done")
        launch = [pid for pid in pids() if link(pid, "exe") == box.bin + "/airlock-launch"]
        self.assertEqual(len(launch), 1)
        os.kill(launch[0], signal.SIGKILL)
        self.ended(p, 125)
        self.assertEqual(self.state(box.run)[1], "recoverable")
        r = box.airlock("exec", box.run, "--", "true")
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"airlock recover", r.stderr)
        box.write("a", b"a\n")
        r = box.airlock("recover", box.run)
        self.assertEqual(r.returncode, 0, r.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
