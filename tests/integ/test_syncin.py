#!/usr/bin/env python3
"""Integration tests of sync_in() and sync_ignored() through a small driver program.

Usage: test_syncin.py DRIVER [NAME ...]. Each test gets a directory of its own; names carry the
case ids of the specifications. Exit status: number of failures.
"""
import json, os, random, shutil, socket, stat, subprocess, sys, tempfile, traceback

DRIVER = os.path.abspath(sys.argv[1])
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "LANG": "C",
       "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
       "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class Box:
    def __init__(self, base):
        self.base = os.path.realpath(base)
        self.ws = self.base + "/ws"
        self.store = self.base + "/state/store"
        os.mkdir(self.ws)

    def put(self, path, data="x\n", mode=None):
        p = os.path.join(os.fsencode(self.ws), os.fsencode(path))
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        if mode is not None:
            os.chmod(p, mode)

    def git(self, *a, cwd=None, ok=True):
        r = subprocess.run(["git", "-c", "init.defaultBranch=main", *a], cwd=cwd or self.ws, env=ENV,
                           capture_output=True)
        if ok and r.returncode:
            raise AssertionError(r.stderr.decode())
        return r.stdout.decode(errors="surrogateescape")

    def repo(self, *paths, cwd=None):
        self.git("init", "-q", cwd=cwd)
        for p in paths:
            self.put(p, os.fsdecode(os.fsencode(p)) + "\n")
        self.git("add", "-A", cwd=cwd)
        self.git("commit", "-q", "-m", "first", "--allow-empty", cwd=cwd)

    def sync(self, *opts, ws=None, ok=True, env=None, user=None):
        cmd = [DRIVER, "in", ws or self.ws, self.store, *opts]
        r = subprocess.run(cmd, env=env or ENV, capture_output=True, user=user)
        self.err = r.stderr.decode()
        if not ok:
            assert r.returncode == 1, r
            return None
        assert r.returncode == 0, self.err
        self.last = json.loads(r.stdout)
        self.last["notes"] = {bytes.fromhex(p): why for p, why in self.last["notes"]}
        return self.last

    def manifest(self):
        out = subprocess.run([DRIVER, "manifest", self.last["manifest"]], env=ENV, check=True,
                             capture_output=True).stdout
        m = {}
        for line in out.decode().splitlines():
            kind, mode, size, layer, digest, target, path = line.split(" ")
            m[bytes.fromhex(path)] = (kind, int(mode, 8), int(size), int(layer), digest,
                                      bytes.fromhex(target))
        return m

    def names(self):
        return {p for p, v in self.manifest().items() if v[0] != "d"}

    def view(self, git=False):
        """What an overlay over the layers shows: path -> bytes, ('l', target) or None for a dir."""
        seen = {}
        for layer in reversed(self.last["layers"]):
            layer = os.fsencode(layer)
            for d, dirs, files in os.walk(layer):
                rel = os.path.relpath(d, layer)
                for n in sorted(dirs + files):
                    p = os.path.normpath(os.path.join(rel, n))
                    full = os.path.join(d, n)
                    st = os.lstat(full)
                    if not stat.S_ISDIR(st.st_mode):
                        for old in [k for k in seen if k == p or k.startswith(p + b"/")]:
                            del seen[old]
                    if stat.S_ISCHR(st.st_mode):
                        assert st.st_rdev == 0
                    elif stat.S_ISLNK(st.st_mode):
                        seen[p] = ("l", os.readlink(full))
                    elif stat.S_ISDIR(st.st_mode):
                        seen[p] = None
                    else:
                        seen[p] = open(full, "rb").read()
        return seen if git else {k: v for k, v in seen.items()
                                 if k != b".git" and not k.startswith(b".git/")}

    def same(self):
        """The base shows exactly what the manifest says, and that is what the host has."""
        view, m = self.view(), self.manifest()
        assert set(view) == set(m), (set(view) ^ set(m))
        for p, (kind, mode, size, layer, digest, target) in m.items():
            host = os.path.join(os.fsencode(self.ws), p)
            if kind == "f":
                import hashlib
                assert hashlib.blake2b(view[p], digest_size=32).hexdigest() == digest, p
                assert open(host, "rb").read() == view[p], p
            elif kind == "l":
                assert view[p] == ("l", os.readlink(host)) and target == os.readlink(host)
            else:
                assert view[p] is None

    def ignored(self, paths, *opts):
        data = b"".join(os.fsencode(p) + b"\0" for p in paths)
        r = subprocess.run([DRIVER, "ignored", self.ws, self.store, *opts], input=data, env=ENV,
                           capture_output=True)
        assert r.returncode == 0, r.stderr
        return [c == "1" for c in r.stdout.decode().strip()]


@test
def plain_directory_round_D1_D3_D4_D9(b):
    for n in [b"caf\xe9", b"new\nline", b"tab\t", b"back\\slash", b"q\"'`$(x);", b" both ends ",
              b"-rf", b"--exclude=x", b"--checkpoint-action=exec=sh", b"host:file", b"%41"]:
        b.put(n, n)
        b.put(b"d/" + n, n)
    os.symlink("../outside", b.ws + "/escaping")
    os.symlink("/usr/bin/python3", b.ws + "/absolute")
    os.symlink("loop", b.ws + "/loop")
    os.makedirs(b.ws + "/empty/deep")
    r = b.sync()
    assert not r["is_git"] and r["files"] == 22 and r["links"] == 3 and r["dirs"] == 3, r
    b.same()
    assert b.sync()["reused"]


@test
def modes_and_times_are_kept(b):
    b.put("run", "#!/bin/sh\n", 0o755)
    b.put("suid", "x", 0o4755)
    b.put("ro", "x", 0o444)
    os.mkdir(b.ws + "/d", 0o700)
    os.chmod(b.ws + "/d", 0o555)
    os.utime(b.ws + "/run", ns=(10**18, 10**18 + 123456789))
    os.utime(b.ws + "/ro", ns=(-1500000000, -1500000000))
    r = b.sync()
    top = r["layers"][0]
    m = b.manifest()
    assert m[b"run"][1] == 0o755 and m[b"suid"][1] == 0o755 and m[b"d"][1] == 0o555
    assert os.stat(top + "/suid").st_mode & 0o7777 == 0o755
    assert os.stat(top + "/d").st_mode & 0o777 == 0o755
    assert os.stat(top + "/run").st_mtime_ns == 10**18 + 123456789
    assert os.stat(top + "/ro").st_mtime_ns == -1500000000
    os.chmod(b.ws + "/d", 0o755)


@test
def changes_become_a_delta_FR_B008_FR_B043(b):
    for i in range(40):
        b.put(f"d{i % 4}/f{i}", f"{i}\n" * 50)
    b.put("swap", "file")
    b.put("swap2/x", "dir")
    b.sync()
    b.put("d0/f0", "changed")
    b.put("new/deep/file", "n")
    os.unlink(b.ws + "/d1/f1")
    shutil.rmtree(b.ws + "/d2")
    os.unlink(b.ws + "/swap")
    b.put("swap/now/dir", "s")
    shutil.rmtree(b.ws + "/swap2")
    b.put("swap2", "now a file")
    os.chmod(b.ws + "/d3/f3", 0o600)
    r = b.sync()
    assert not r["reused"] and len(r["layers"]) == 2, r
    assert r["copied_files"] == 5, r
    b.same()
    assert b.sync()["reused"]
    shutil.rmtree(b.ws + "/swap")
    b.put("d2/again", "back")
    os.unlink(b.ws + "/swap2")
    b.put("swap2/x", "dir again")
    assert len(b.sync()["layers"]) == 3
    b.same()


@test
def deep_stacks_are_rebuilt(b):
    for i in range(30):
        b.put(f"f{i}", str(i))
    ino = None
    for i in range(16):
        b.put("f0", "round %d" % i)
        r = b.sync()
        assert len(r["layers"]) <= 13
        b.same()
    # The older layers went, and what did not change is one inode inside the store.
    assert len([n for n in os.listdir(b.store + "/layers") if n.isdigit()]) == len(r["layers"])
    full = os.stat(r["layers"][-1] + "/f7")
    assert full.st_ino != os.stat(b.ws + "/f7").st_ino


@test
def touched_file_with_same_bytes(b):
    for i in range(10):
        b.put(f"f{i}", "same")
        os.utime(b.ws + f"/f{i}", ns=(10**18, 10**18))
    b.sync()
    # New inode and ctime, same bytes and mtime: nothing is copied, the stat fields are renewed.
    b.put("t", "same")
    os.utime(b.ws + "/t", ns=(10**18, 10**18))
    os.rename(b.ws + "/t", b.ws + "/f3")
    r = b.sync()
    assert r["reused"] and r["copied_files"] == 0 and len(r["layers"]) == 1, r
    # Same size and mtime, other bytes: found out.
    b.put("t", "SAME")
    os.utime(b.ws + "/t", ns=(10**18, 10**18))
    os.rename(b.ws + "/t", b.ws + "/f3")
    r = b.sync()
    assert r["copied_files"] == 1
    b.same()


@test
def one_problem_entry_stops_nothing_H8_FR_B062(b):
    for i in range(50):
        b.put(f"f{i}")
    os.makedirs(b.ws + "/.v/bin")
    os.symlink("/usr/bin/python3", b.ws + "/.v/bin/python")
    os.symlink("self", b.ws + "/self")
    b.put("secretless", "x", 0)
    os.mkfifo(b.ws + "/fifo")
    s = socket.socket(socket.AF_UNIX)
    s.bind(b.ws + "/sock")
    if os.getuid() == 0:
        os.mknod(b.ws + "/dev", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mkdir(b.ws + "/closed", 0o000)
    if os.getuid() == 0:  # as an ordinary user, who cannot read mode 0000
        uid = 65534
        for d, dirs, files in os.walk(b.base):
            for n in dirs + files:
                os.lchown(os.path.join(d, n), uid, uid)
        os.chown(b.base, uid, uid)
        os.chmod(os.path.dirname(b.base), 0o755)
        r = b.sync(user=uid)
    else:
        r = b.sync()
    assert r["files"] == 50 and r["links"] == 2, r
    assert r["notes"][b"secretless"] == "unreadable"
    assert r["notes"][b"closed"] == "unreadable"
    assert r["notes"][b"fifo"] == "fifo" and r["notes"][b"sock"] == "socket"
    if os.getuid() == 0:
        assert r["notes"][b"dev"] == "device"
        assert b.sync(user=uid)["reused"]
    os.chmod(b.ws + "/closed", 0o700)


@test
def missing_workspace_H13(b):
    b.sync(ws=b.base + "/nowhere", ok=False)
    assert b.err.startswith("not_found:"), b.err
    b.put("file")
    b.sync(ws=b.ws + "/file/below", ok=False)
    assert "Not a directory" in b.err
    b.sync(ws=b.ws + "/file", ok=False)
    assert b.ws + "/file" in b.err


@test
def sixty_thousand_top_level_entries_E3(b):
    for i in range(60000):
        os.close(os.open(f"{b.ws}/some-name-of-an-entry-{i}", os.O_CREAT | os.O_WRONLY))
    assert b.sync()["files"] == 60000
    assert b.sync()["reused"]


@test
def secrets_are_held_back_H2_FR_B026(b):
    for n in [".env", "certs/key.pem", "sub/.npmrc", ".aws/credentials", "id_rsa", "a/.env.local"]:
        b.put(n, "hunter2")
    b.put(".env.example", "ok")
    b.put("src/main.c", "ok")
    r = b.sync("--exclude", "*.nothing")
    assert b.names() == {b".env.example", b"src/main.c"}, b.names()
    assert {p for p, why in r["notes"].items() if why == "secret"} == \
        {b".env", b"certs/key.pem", b"sub/.npmrc", b".aws", b"id_rsa", b"a/.env.local"}
    assert r["notes"][b"*.nothing"] == "no_match"
    assert b"hunter2" not in b"".join(v for v in b.view().values() if isinstance(v, bytes))
    r = b.sync("--include", "/.env", "--include", ".aws", "--exclude", "src/")
    assert b.names() == {b".env", b".env.example", b".aws/credentials"}, b.names()
    assert "no_match" not in r["notes"].values()


@test
def airlockignore_and_heavy_names_FR_B008(b):
    b.put(".airlockignore", "*.log\n/build/\n!keep.log\n")
    b.put("sub/.airlockignore", "local\n")
    for n in ["a.log", "keep.log", "build/x", "sub/build/x", "sub/local", "local", "node_modules/m/i",
              "x/node_modules/i", ".venv/bin/p", "target/t"]:
        b.put(n)
    r = b.sync()
    assert b.names() == {b".airlockignore", b"sub/.airlockignore", b"keep.log", b"sub/build/x", b"local",
                         b"target/t"}, b.names()
    assert r["excluded"] == 6, r
    b.sync("--include", "node_modules/m")
    assert b"node_modules/m/i" in b.names() and b"x/node_modules/i" not in b.names()


@test
def a_killed_sync_leaves_nothing_half_done(b):
    for i in range(3000):
        b.put(f"d{i % 50}/f{i}", "x" * 2000)
    for ms in [1, 3, 6, 10, 20, 40, 80]:
        p = subprocess.Popen([DRIVER, "in", b.ws, b.store], env=ENV, stdout=subprocess.DEVNULL)
        try:
            p.wait(ms / 1000)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        if os.path.exists(b.store + "/stack"):
            break
    b.sync()
    b.same()
    assert not [n for n in os.listdir(b.store) + os.listdir(b.store + "/layers") if n.startswith(".new-")]


@test
def file_that_changes_while_it_is_read_H9_FR_B194(b):
    b.put("log", "start\n")
    b.put("other", "o")
    for i in range(300):
        b.put(f"f{i}", "x")
    w = subprocess.Popen(["/bin/sh", "-c", "while :; do echo line >> log; done"], cwd=b.ws)
    try:
        for _ in range(5):
            r = b.sync()
            m = b.manifest()
            data = b.view()[b"log"]
            import hashlib
            assert len(data) == m[b"log"][2]
            assert hashlib.blake2b(data, digest_size=32).hexdigest() == m[b"log"][4]
    finally:
        w.kill()
        w.wait()
    b.sync()
    b.same()


@test
def big_file_with_bounded_memory_S1_09_FR_B015(b):
    with open(b.ws + "/big", "wb") as f:
        f.truncate(300 << 20)
    r = b.sync()
    assert r["bytes"] == 300 << 20 and r["rss_kib"] < 16 << 10, r


@test
def owner_of_the_sandbox_FR_B130(b):
    if os.getuid() != 0:
        return "not root"
    b.put("d/f")
    os.symlink("f", b.ws + "/d/l")
    r = b.sync("--owner", "1879050001")
    for p in ["", "/d", "/d/f", "/d/l"]:
        assert os.lstat(r["layers"][0] + p).st_uid == 1879050001
    assert os.lstat(b.ws + "/d/f").st_uid == 0
    r = b.sync()
    assert os.lstat(r["layers"][0] + "/d/f").st_uid == 0


@test
def mount_inside_is_not_entered_FR_B194(b):
    if os.getuid() != 0:
        return "not root"
    b.put("m/below", "hidden")
    b.put("f")
    r = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs x \"$1/m\" && echo y > \"$1/m/y\" && "
                        "exec \"$0\" in \"$1\" \"$2\"", DRIVER, b.ws, b.store], env=ENV, capture_output=True)
    assert r.returncode == 0, r.stderr
    b.last = json.loads(r.stdout)
    assert [b"m".hex(), "mount"] in b.last["notes"]
    assert b.names() == {b"f"}


@test
def full_disk_is_said_and_cleaned(b):
    if os.getuid() != 0:
        return "not root"
    for i in range(64):
        b.put(f"f{i}", b"z" * 65536)
    os.makedirs(b.base + "/small")
    script = ("mount -t tmpfs -o size=1m x \"$1\" && \"$0\" in \"$2\" \"$1/store\"; s=$?; "
              "find \"$1\" -name '.new-*'; exit $s")
    r = subprocess.run(["unshare", "-m", "sh", "-c", script, DRIVER, b.base + "/small", b.ws], env=ENV,
                       capture_output=True)
    assert r.returncode == 1 and r.stdout == b"", r
    assert r.stderr.startswith(b"no_space:") and b"XDG_STATE_HOME" in r.stderr, r.stderr


#GIT-TESTS

def main():
    want = sys.argv[2:]
    failures = 0
    for fn in TESTS:
        if want and fn.__name__ not in want:
            continue
        base = tempfile.mkdtemp(prefix="airlock-syncin-")
        try:
            skip = fn(Box(base))
            print(("SKIP %s: %s" % (fn.__name__, skip)) if skip else "ok   " + fn.__name__, flush=True)
        except Exception:
            failures += 1
            print("FAIL " + fn.__name__, flush=True)
            traceback.print_exc()
        finally:
            subprocess.run(["chmod", "-R", "u+rwx", base], stderr=subprocess.DEVNULL)
            shutil.rmtree(base, ignore_errors=True)
    return failures


sys.exit(min(main(), 99))
