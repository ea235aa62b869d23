#!/usr/bin/env python3
"""Runs on a machine with another processor: it gets the guest program that was made for it (B-04, S1 for driver ssh; K7).

The account there has a uname that says aarch64. Where this kernel runs such programs (binfmt_misc with qemu-user-static) all but the start of a
command is tried, which that emulator cannot do (no memory that processes share); else that the program goes there, does not run and the shell and tar do.

usage: test_ssh_machine.py AIRLOCK [unittest arguments]
"""
import os, subprocess, sys, unittest

from run_box import side_by_side, snapshot
from ssh_box import Remote, SSHD

AIRLOCK = os.path.realpath(sys.argv.pop(1))
PROGS = os.path.dirname(AIRLOCK)
GUEST = PROGS + "/airlock-guest-aarch64"
FILES = {"a": b"one\n", "d/b": b"two\n", "run.sh": b"#!/bin/sh\n", b"odd\xff \n name".decode("utf-8", "surrogateescape"): b"x"}


def emulated():
    try:
        return subprocess.run([GUEST, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


class Machine(unittest.TestCase):
    def setUp(self):
        self.r = Remote(PROGS, FILES)
        self.addCleanup(self.r.remove)
        if not os.path.exists(self.r.bin + "/airlock-guest-aarch64"):
            os.symlink(GUEST, self.r.bin + "/airlock-guest-aarch64")
        self.uname("aarch64")

    def uname(self, machine):
        d = self.r.sshd.top + "/path"
        os.makedirs(d, exist_ok=True)
        with open(d + "/uname", "w", encoding="ascii") as f:
            f.write('#!/bin/sh\ntest "$1" = -sm && exec echo Linux "%s"\nexec /bin/uname "$@"\n' % machine)
        os.chmod(d + "/uname", 0o755)
        self.r.sshd.shell('PATH=%s:$PATH exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' % d)

    def ok(self, *words, status=0, **kw):
        p = self.r.run(*words, **kw)
        self.assertEqual(p.returncode, status, p.stderr.decode(errors="replace"))
        return p

    def guests_there(self):
        """Kinds of the guest programs that lie there: the machine of their ELF header."""
        d, found = self.r.sshd.home + "/.cache/airlock", []
        for n in os.listdir(d) if os.path.isdir(d) else []:
            with open(d + "/" + n, "rb") as f:
                found.append(int.from_bytes(f.read(20)[18:20], "little"))
        return found

    def tree_there(self):
        d = self.r.there + "/.airlock-runtime/bases"
        return snapshot(d + "/" + os.listdir(d)[0] + "/workspace")

    @unittest.skipUnless(emulated(), "this kernel runs no aarch64 programs (binfmt_misc with qemu-user-static)")
    def test_the_guest_of_that_machine_takes_a_workspace_and_the_next_one_K7(self):
        for i in range(400):
            self.r.write("many/%d" % i, b"%d\n" % i * (i % 90))
        self.r.write("large", bytes(range(256)) * 4096)
        os.symlink("a", self.r.ws + "/l")
        bare = lambda t: {n: (data, (mode[0], mode[2]) if isinstance(mode, tuple) else mode) for n, (data, mode) in t.items()}
        for n in "first", "next":
            # An emulator does not share memory between processes, as the guest does with a command's start.
            p = self.r.run("--ssh-guest", "always", "--", "true")
            self.assertEqual((p.returncode, b"fork: Invalid argument" in p.stderr), (125, True), p.stderr)
            self.assertIn(b"nothing in the workspace changed", p.stderr)
            self.assertEqual(bare(self.tree_there()), bare(snapshot(self.r.ws)))
            self.r.write("many/7", b"new " + n.encode())
            if n == "first":
                os.unlink(self.r.ws + "/d/b")
        self.assertEqual((self.guests_there(), self.r.left_there()), ([183], []))
        self.r.airlock("env", "clean", *self.r.words)
        self.assertEqual(self.guests_there(), [])

    @unittest.skipIf(emulated(), "this kernel runs aarch64 programs")
    def test_one_that_does_not_run_there_was_sent_and_the_shell_does_K7(self):
        p = self.ok("--", "echo more >>a")
        self.assertEqual(self.guests_there(), [183])
        self.assertIn(b"without a guest program there", p.stderr)
        self.assertEqual(self.r.read("a"), b"one\nmore\n")

    def test_a_bridge_needs_more_than_the_guest_and_does_without(self):
        _, words = self.r.with_api(self)
        p = self.ok(*words, "--", "echo more >>a")
        self.assertIn(b"no guest program for that kind of machine", p.stderr)
        self.assertEqual((self.guests_there(), self.r.read("a")), ([], b"one\nmore\n"))

    def test_a_machine_that_nothing_was_built_for_and_words_that_are_no_machine(self):
        for word in "mips", "../../../etc/passwd", "", "aarch64x", "a" * 300:
            self.uname(word)
            p = self.ok("--", "true")
            self.assertIn(b"no guest program for that kind of machine", p.stderr)
            self.assertEqual(self.guests_there(), [])


if __name__ == "__main__":
    if not SSHD:
        print("no sshd here: openssh-server is missing")
        sys.exit(77)
    if not os.path.exists(GUEST):
        print("no guest for aarch64 was built: there is no aarch64-linux-gnu-gcc (./do setup)")
        sys.exit(77)
    side_by_side(2)
