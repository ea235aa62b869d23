"""A workspace, its manifest and base layer, and airlock-unpack over a stream: the test bench of door 1."""
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import unittest

import scratch


def quote(path):
    return "".join(chr(c) if 0x20 < c < 0x7F and c != 0x25 else "%%%02X" % c for c in os.fsencode(path))


def tree(top, skip=(".git",)):
    """Everything below top as {path: description}; contents, modes and link targets, never followed."""
    found = {}
    for here, dirs, files in os.walk(os.fsencode(top)):
        rel = os.path.relpath(here, os.fsencode(top))
        for name in dirs + files:
            path = os.path.normpath(os.path.join(rel, name))
            if os.fsdecode(path).split("/")[0] in skip:
                continue
            full = os.path.join(here, name)
            st = os.lstat(full)
            if stat.S_ISLNK(st.st_mode):
                found[os.fsdecode(path)] = ("l", os.readlink(full))
            elif stat.S_ISDIR(st.st_mode):
                found[os.fsdecode(path)] = ("d", st.st_mode & 0o7777)
            else:
                with open(full, "rb") as f:
                    found[os.fsdecode(path)] = ("f", st.st_mode & 0o7777, f.read())
    return found


class Stream:
    """What a sandbox sends. delete, opaque and unreadable are our packer's own records."""

    def __init__(self, tar_format=tarfile.PAX_FORMAT):
        self.raw = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.raw, mode="w", format=tar_format,
                                encoding="utf-8", errors="surrogateescape")

    def add(self, name, kind=tarfile.REGTYPE, data=b"", mode=0o644, target="", op=None, mtime=1_700_000_000):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.mtime = kind, mode, target, mtime
        info.size = len(data)
        if op:
            info.pax_headers = {"AIRLOCK.op": op}
        self.tar.addfile(info, io.BytesIO(data))
        return self

    def file(self, name, data, mode=0o644, **kw):
        return self.add(name, data=data.encode() if isinstance(data, str) else data, mode=mode, **kw)

    def dir(self, name, mode=0o755, op=None):
        return self.add(name, tarfile.DIRTYPE, mode=mode, op=op)

    def link(self, name, target):
        return self.add(name, tarfile.SYMTYPE, target=target, mode=0o777)

    def hard(self, name, target):
        return self.add(name, tarfile.LNKTYPE, target=target)

    def delete(self, name):
        return self.add(name, op="delete")

    def unreadable(self, name):
        return self.add(name, op="unreadable")

    def bytes(self):
        self.tar.close()
        return self.raw.getvalue()


class Box(unittest.TestCase):
    git = False  # whether the workspace has a .git directory

    @classmethod
    def setUpClass(cls):
        cls.bin = scratch.directory(prefix="unpack-bin-")
        os.chmod(cls.bin, 0o755)
        for var in "UNPACK_DRIVER", "AIRLOCK_UNPACK":
            shutil.copy(os.environ[var], cls.bin)
        cls.driver = os.path.join(cls.bin, "unpack-driver")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.bin)

    def setUp(self):
        self.top = scratch.directory(prefix="unpack-", dir=self.place())
        os.chmod(self.top, 0o755)
        self.root = os.path.join(self.top, "ws")
        self.outside = os.path.join(self.top, "out")
        for d in self.root, self.outside:
            os.mkdir(d)
        if self.git:
            os.mkdir(os.path.join(self.root, ".git"))
        self.layer = self.manifest = None
        self.runs = 0

    def place(self):
        return None

    def tearDown(self):
        for here, dirs, _ in os.walk(self.top):
            for d in dirs:
                if not os.path.islink(os.path.join(here, d)):
                    os.chmod(os.path.join(here, d), 0o700)
        shutil.rmtree(self.top)

    def path(self, name):
        return os.path.join(self.root, name)

    def write(self, name, data, mode=None):
        if isinstance(data, str):
            data = data.encode()
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.write(data)
        os.chmod(self.path(name), 0o644 if mode is None else mode)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read().decode("utf-8", "surrogateescape")

    def sync_in(self, without=()):
        """The manifest of the workspace as it is now, and a base layer with its bytes."""
        self.layer = os.path.join(self.top, "layer")
        self.manifest = os.path.join(self.top, "manifest")
        shutil.copytree(self.root, self.layer, symlinks=True, ignore=lambda d, n: [".git"] if d == self.root else [])
        lines = []
        for path, what in tree(self.root).items():
            if any(path == w or path.startswith(w + "/") for w in without):
                continue
            st = os.lstat(self.path(path))
            if what[0] == "d":
                line = "d %o %s" % (what[1] & 0o777, quote(path))
            elif what[0] == "l":
                line = "l %s %s" % (quote(what[1]), quote(path))
            else:
                line = "f %o %d %d %s 1 %d %d %s" % (
                    what[1] & 0o777, st.st_size, st.st_mtime_ns,
                    hashlib.blake2b(what[2], digest_size=32).hexdigest(), st.st_ino, st.st_ctime_ns, quote(path))
            lines.append((os.fsencode(path), line))
        with open(self.manifest, "w", encoding="ascii") as f:
            f.write("airlock-manifest 1\n")
            for _, line in sorted(lines):
                f.write(line + "\n")
            f.write("end %d\n" % len(lines))

    def command(self, *args, root=None):
        self.run_dir = os.path.join(self.top, "run%d" % self.runs)
        self.runs += 1
        os.makedirs(self.run_dir, exist_ok=True)
        cmd = [self.driver, "run", "--root", root or self.root, "--run-dir", self.run_dir]
        if "--state" not in args:
            cmd += ["--state", self.top]
        if self.manifest:
            cmd += ["--manifest", self.manifest, "--layer", self.layer]
        return cmd + list(args)

    def unpack(self, stream, *args, root=None, cmd=None, **kw):
        data = stream.bytes() if isinstance(stream, Stream) else stream
        out = subprocess.run(cmd or self.command(*args, root=root), input=data, stdout=subprocess.PIPE,
                             timeout=120, check=False, **kw)
        return self.result(out.stdout)

    def result(self, stdout):
        res = json.loads(stdout)
        res["changes"] = []
        # What is taken of a change set that waited has a record of its own.
        path = os.path.join(self.run_dir, "applied.jsonl")
        if not os.path.exists(path):
            path = os.path.join(self.run_dir, "changes.jsonl")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                res["changes"] = [json.loads(line) for line in f]
        return res

    def did(self, res):
        """{path: action or action:rule}"""
        return {c.get("path", c.get("path_b64")): c["action"] + (":" + c["rule"] if c.get("rule") else "")
                for c in res["changes"]}

    def recover(self, state=None):
        out = subprocess.run([self.driver, "recover", self.root, state or self.top], stdout=subprocess.PIPE, timeout=60, check=False)
        return json.loads(out.stdout)

    def assert_clean(self):
        """No staging place is left anywhere below the root."""
        for name in ".git/airlock-staging", ".airlock-staging":
            self.assertFalse(os.path.lexists(self.path(name)), name + " is left")

    def assert_ok(self, res):
        self.assertEqual(res["ret"], 0, res["text"])
        self.assert_clean()


def main():
    unittest.main(verbosity=1, argv=sys.argv[:1] + [a for a in sys.argv[1:]])
