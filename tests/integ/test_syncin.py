#!/usr/bin/env python3
"""Integration tests of sync_in() and sync_ignored() through a small driver program.

Usage: test_syncin.py DRIVER [NAME ...]. Each test gets a directory of its own; names carry the
case ids of the specifications. Exit status: number of failures.
"""
import json, os, random, shutil, signal, socket, stat, struct, subprocess, sys, time, traceback

import scratch

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

    def parts(self):
        """The same of layers that are one file each (wire/layerfile.h)."""
        held = {}
        for layer in self.last["layers"]:
            with open(layer, "rb") as f:
                data = f.read()
            assert data[-32:-16] == b"airlock-layer 1\n", layer
            n, end = struct.unpack("<QQ", data[-16:])
            rows = [data[end + 48 * i:][:48] for i in range(n)]
            assert len(data) == end + 48 * n + 32 and rows == sorted(rows, key=lambda r: r[:32])
            for row in rows:
                at, size = struct.unpack("<QQ", row[32:])
                assert at + size <= end
                held[os.path.basename(layer), row[:32].hex()] = data[at:at + size]
        return {p: None if kind == "d" else ("l", target) if kind == "l" else held[str(layer), digest]
                for p, (kind, mode, size, layer, digest, target) in self.manifest().items()}

    def same(self, view=None):
        """The base shows exactly what the manifest says, and that is what the host has."""
        view, m = self.view() if view is None else view, self.manifest()
        for what, kind in [("files", "f"), ("dirs", "d"), ("links", "l")]:
            assert self.last[what] == sum(v[0] == kind for v in m.values()), (what, self.last)
        assert self.last["bytes"] == sum(v[2] for v in m.values())
        assert open(self.last["manifest"]).read().endswith("\nend %d\n" % len(m))
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
    assert {p for p, why in r["notes"].items() if why == "heavy"} == {b".venv", b"node_modules", b"x/node_modules"}, r
    b.sync("--include", "node_modules/m")
    assert b"node_modules/m/i" in b.names() and b"x/node_modules/i" not in b.names()
    # A repository that forgot to ignore them: the same, but for what it tracks.
    b.git("init", "-q")
    b.git("add", "-f", "x")
    r = b.sync()
    assert b"x/node_modules/i" in b.names() and b"node_modules/m/i" not in b.names(), b.names()
    assert r["notes"].get(b"node_modules") == "heavy", r


@test
def a_killed_sync_leaves_nothing_half_done(b):
    for i in range(3000):
        b.put(f"d{i % 50}/f{i}", "x" * 2000)
    killed = 0
    for ms in [1, 3, 6, 10, 20, 40, 80]:
        p = subprocess.Popen([DRIVER, "in", b.ws, b.store], env=ENV, stdout=subprocess.DEVNULL)
        try:
            p.wait(ms / 1000)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            killed += 1
        if os.path.exists(b.store + "/stack"):
            break
    assert killed
    b.sync()
    b.same()
    assert not [n for n in os.listdir(b.store) + os.listdir(b.store + "/layers") if n.startswith(".new-")]


@test
def a_killed_sync_leaves_the_older_repository_usable(b):
    b.repo(*[f"d{i % 20}/f{i}" for i in range(600)])
    old = [x for x in b.sync()["layers"] if "/git/" in x][0]
    index = open(old + "/.git/index", "rb").read()
    assert os.path.basename(old) in open(b.store + "/stack", encoding="utf-8", errors="replace").read()
    b.put("d0/f0", "changed\n")
    b.git("commit", "-q", "-a", "-m", "second")
    git, judged, killed = b.store + "/git", {os.path.basename(old)}, 0
    for stage in ["HEAD", "objects", "shallow", "index", "index.lock"]:
        p = subprocess.Popen([DRIVER, "in", b.ws, b.store], env=ENV, stdout=subprocess.DEVNULL, start_new_session=True)
        while p.poll() is None:
            if any(os.path.lexists(f"{git}/{n}/.git/{stage}") for n in os.listdir(git) if n not in judged):
                os.killpg(p.pid, signal.SIGKILL)
            time.sleep(0.0005)
        killed += p.returncode < 0
        # What is in use is as it was, and what has the name of a repository is a whole one.
        if os.path.basename(old) in open(b.store + "/stack", encoding="utf-8", errors="replace").read():
            assert open(old + "/.git/index", "rb").read() == index
        for name in os.listdir(git):
            if name not in judged and not name.startswith(".new-"):
                assert b.git("ls-files", cwd=f"{git}/{name}").count("\n") == 600, (stage, name)
                judged.add(name)
    assert killed
    new = [x for x in b.sync()["layers"] if "/git/" in x][0]
    assert new != old
    assert sorted(os.listdir(new + "/.git")) == ["HEAD", "config", "index", "info", "objects", "packed-refs", "refs", "shallow"]
    assert b.git("fsck", "--strict", cwd=new) == "" and b.git("ls-files", cwd=new).count("\n") == 600
    assert not [n for n in os.listdir(b.store + "/git") if n.startswith(".new-")]


@test
def file_that_changes_while_it_is_read_H9_FR_B098_FR_B194(b):
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


def canary(b, cwd=None):
    """Config of a repository that runs a program at every turn, and the file that would show it."""
    flag = b.base + "/executed"
    script = b.base + "/evil.sh"
    with open(script, "w") as f:
        f.write("#!/bin/sh\ntouch '%s'\ncat\n" % flag)
    os.chmod(script, 0o755)
    for key in ["core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "filter.x.clean",
                "filter.x.smudge", "filter.x.process", "diff.external", "credential.helper",
                "core.alternateRefsCommand", "uploadpack.packObjectsHook", "core.askPass",
                "remote.origin.uploadpack", "core.gitProxy", "alias.ls-files", "alias.pack-objects"]:
        b.git("config", key, script if not key.startswith("alias") else "!" + script, cwd=cwd)
    b.git("config", "core.hooksPath", b.base + "/hooks", cwd=cwd)
    b.git("config", "remote.origin.url", "ext::" + script, cwd=cwd)
    os.makedirs(b.base + "/hooks", exist_ok=True)
    for h in ["post-checkout", "post-index-change", "pre-commit", "reference-transaction",
              "fsmonitor-watchman", "pre-auto-gc"]:
        shutil.copy(script, b.base + "/hooks/" + h)
    return flag


def inside(b, *cmd, ok=True):
    """A command in the base under an overlay, as the sandbox would see it; root only."""
    for d in ["upper", "work", "mnt"]:
        os.makedirs(b.base + "/" + d, exist_ok=True)
    lower = ":".join(b.last["layers"])
    script = ("mount -t overlay x -o \"lowerdir=$1,upperdir=$2/upper,workdir=$2/work\" \"$2/mnt\" && cd \"$2/mnt\""
              " && shift 2 && exec \"$@\"")
    env = dict(ENV, GIT_CONFIG_GLOBAL="/dev/null")
    for k in list(env):
        if k.startswith(("GIT_AUTHOR", "GIT_COMMITTER")):
            del env[k]
    r = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", lower, b.base, *cmd], env=env,
                       capture_output=True)
    if ok:
        assert r.returncode == 0, (r.stdout, r.stderr)
    return r.stdout.decode(errors="surrogateescape")


@test
def two_at_once_on_one_workspace(b):
    for i in range(500):
        b.put(f"d{i % 9}/f{i}", "x" * 3000)
    many = [subprocess.Popen([DRIVER, "in", b.ws, b.store], env=ENV, stdout=subprocess.PIPE) for _ in range(5)]
    got = [json.loads(p.communicate(timeout=120)[0]) for p in many]
    assert all(p.returncode == 0 for p in many)
    assert sorted(g["copied_files"] for g in got) == [0, 0, 0, 0, 500], got
    assert len({g["manifest"] for g in got}) == 1
    b.sync()
    b.same()


@test
def cancelled_copy_leaves_the_older_stack(b):
    b.put("a", "1")
    first = b.sync()
    for i in range(3000):
        b.put(f"d{i % 50}/f{i}", "x")
    b.sync("--cancel-after", "32", ok=False)
    assert b.err.startswith("cancelled:"), b.err
    assert sorted(n for n in os.listdir(b.store + "/layers")) == ["1", "1.lock"]
    assert os.path.exists(first["manifest"])
    b.sync()
    b.same()


@test
def store_inside_the_workspace_is_not_sent(b):
    b.put("a")
    b.store = b.ws + "/.state/store"
    r = b.sync()
    assert b.names() == {b"a"} and r["notes"][b".state/store"] == "mount", r
    b.put("b")
    b.sync()
    assert b.names() == {b"a", b"b"}


@test
def git_selection_H2_D5_D7(b):
    b.repo("src/a.c", "src/config/a.txt", "build/tracked.o")
    b.put(".gitignore", "/config\n*.o\nbuild/\n\\*\nsecret.txt\n\\[a\\]\n")
    for n in ["config/x", "src/b.o", "build/out.o", "*", "[a]", "a", "secret.txt", "new/file", "?"]:
        b.put(n)
    os.mkdir(b.ws + "/empty")
    b.put(".env", "S=1")
    b.put("tracked.pem", "cert")
    b.git("add", "-f", "tracked.pem")
    r = b.sync()
    assert b.names() == {b".gitignore", b"src/a.c", b"src/config/a.txt", b"build/tracked.o", b"a",
                         b"new/file", b"?", b"tracked.pem"}, b.names()
    assert b.manifest()[b"empty"][0] == "d"  # F24
    assert r["notes"] == {b".env": "secret"}, r["notes"]
    assert r["is_git"] and r["branch"] == "refs/heads/main" and len(r["head"]) == 40
    b.sync("--include", "build/out.o")
    assert b"build/out.o" in b.names() and b"config/x" not in b.names()
    assert b.ignored(["src/new.o", "config/new", "src/config/new", "build", "build/deep/new", "x.c", ".env",
                      "config", "build/tracked.o", "fresh/dir/y.o"]) == \
        [True, True, False, False, True, False, False, True, False, True]
    assert b.ignored(["build/new", "build/new2"], "--include", "build/new") == [False, True]
    assert b.ignored(["a/b", "c"], "--exclude", "/a/") == [True, False]


@test
def names_that_begin_with_each_other_cost_what_names_cost(b):
    """Whether another path lies below it was asked of all names between: with a byte below '/' each begins the next one."""
    rule = "--exclude", "file/"
    assert b.ignored(["file", "file-a", "file.b", "file!", "file/x", "fil"], *rule) == [True, False, False, False, True, False]
    assert b.ignored(["file", "file-a", "file0", "files/x"], *rule) == [False] * 4

    def cpu(c):
        top, paths = [], []
        for depth in range(6):
            paths += ["/".join(top + [c * k]) for k in range(1, 250)]
            top.append(c * 250)
        paths += ["/".join(top[:5] + [c * 250 + "%05d" % i]) for i in range(20000)]
        before = os.times()
        assert not any(b.ignored(paths))
        after = os.times()
        return after.children_user - before.children_user
    plain, odd = cpu("0"), cpu("-")
    assert odd < 3 * plain + 0.3, (plain, odd)


@test
def git_own_answer_is_the_oracle_B087(b):
    """Random patterns and trees: what travels is what git lists."""
    rnd = random.Random(7)
    alphabet = ["a", "b", "ab", "*", "**", "?", "[ab]", "[!a]", "a*", "*b", ".x", "\\*", "a b", "[a", "a\\"]
    for round_ in range(60):
        ws = b.ws = b.base + "/w%d" % round_
        b.store = b.base + "/s%d" % round_
        os.mkdir(ws)
        b.git("init", "-q")
        names = ["a", "b", "ab", "ba", ".x", "*", "a b", "[a"]
        for _ in range(40):
            p = "/".join(rnd.choice(names) for _ in range(rnd.randint(1, 4)))
            try:
                b.put(p)
            except OSError:
                pass
        dirs = [os.path.relpath(d, ws) for d, _, _ in os.walk(ws) if "/.git" not in d]
        for d in rnd.sample(dirs, min(3, len(dirs))):
            lines = []
            for _ in range(rnd.randint(1, 5)):
                pat = "/".join(rnd.choice(alphabet) for _ in range(rnd.randint(1, 3)))
                lines.append(rnd.choice(["", "", "", "!", "/"]) + pat + rnd.choice(["", "", "/"]))
            b.put(d + "/.gitignore", "\n".join(lines) + rnd.choice(["", "\n"]))
        if round_ % 2:
            b.git("add", ".")
            for d in rnd.sample(dirs, min(2, len(dirs))):
                b.put(d + "/.gitignore", rnd.choice(alphabet) + "\n")
        want = {os.fsencode(p) for p in
                b.git("ls-files", "-z", "-c", "-o", "--exclude-standard").split("\0") if p}
        want = {p for p in want if os.path.lexists(os.path.join(os.fsencode(ws), p))}
        b.sync("--git", "none")
        got = b.names()
        show = {os.path.join(d, ".gitignore"): open(os.path.join(d, ".gitignore")).read()
                for d, _, f in os.walk(ws) if ".gitignore" in f}
        assert got == want, (show, "missing", want - got, "extra", got - want)


@test
def subfolder_of_a_repository_H1(b):
    b.repo("top.txt", "sub/x.c", "sub/deep/y.c")
    b.put(".gitignore", "*.o\n/sub/gone\n")
    b.put("sub/.gitignore", "deep/*.tmp\n")
    for n in ["sub/x.o", "sub/gone/f", "sub/deep/t.tmp", "sub/new"]:
        b.put(n)
    top = b.ws
    r = b.sync(ws=top + "/sub")
    assert b.names() == {b".gitignore", b"x.c", b"deep/y.c", b"new"}, b.names()
    assert r["is_git"] and not any("/git/" in x for x in r["layers"])
    assert not any(k.startswith(b".git/") for k in b.view(git=True))


@test
def repository_inside_says_what_the_host_says_F23_H10(b):
    if os.getuid() != 0:
        return "not root"
    b.repo("a", "b", "c/d", "gone", "staged-gone", "exec")
    b.git("config", "user.name", "Q \"uote\\\n")
    b.git("config", "user.email", "q@example.org")
    b.git("checkout", "-q", "-b", "feature/x")
    b.put("a", "modified\n")
    b.put("staged", "new\n")
    b.git("add", "staged")
    os.unlink(b.ws + "/gone")
    b.git("rm", "-q", "staged-gone")
    os.chmod(b.ws + "/exec", 0o755)
    r = b.sync()
    assert b"gone" not in b.names() and b"staged-gone" not in b.names()
    out = inside(b, "git", "status", "--porcelain", "--branch")
    assert set(out.splitlines()) == {"## feature/x", " M a", " D gone", " D staged-gone", " M exec",
                                     "?? staged"}, out
    out = inside(b, "sh", "-c", "git add -A && git commit -q -m inside && git log --format='%an|%ae|%s' -1 && "
                 "git fsck --strict 2>&1 && git rev-parse HEAD^")
    assert "inside" in out and "|q@example.org|inside" in out and r["head"] in out, out
    assert b.git("diff", "--cached", "--name-only").split() == ["staged", "staged-gone"]
    # Nothing of it is written on the host, and the second pass is a no-op.
    assert b.git("log", "--format=%s").split() == ["first"]
    assert b.sync()["reused"] and b.last["layers"] == r["layers"]


@test
def status_inside_needs_no_content_read(b):
    if os.getuid() != 0:
        return "not root"
    for i in range(300):
        b.put(f"f{i}", "x" * 500)
    b.repo()
    for i in range(300):
        os.utime(b.ws + f"/f{i}", ns=(10**18, 10**18))
    b.git("status")
    b.sync()
    out = inside(b, "sh", "-c", "strace -f -e trace=openat git status --porcelain 2>&1 | grep -c 'f[0-9]*\"' ; :")
    assert out.strip() == "0", out


@test
def hostile_repository_config_is_not_executed_H6_F1_S1_05(b):
    b.repo("a", "sub/b")
    b.put(".gitattributes", "* filter=x diff=x\n")
    b.put("a", "changed\n")
    os.utime(b.ws + "/sub/b")
    flag = canary(b)
    nested = b.ws + "/nested"
    os.mkdir(nested)
    b.git("init", "-q", cwd=nested)
    b.put("nested/x")
    canary(b, cwd=nested)
    for policy in ["shallow", "full", "none"]:
        r = b.sync("--git", policy)
        assert not os.path.exists(flag), policy
        assert ("git_failed" in r["notes"].values()) is False, r
    b.ignored(["new", "nested/new"])
    assert not os.path.exists(flag)
    assert b"nested/x" in b.names()


@test
def nothing_secret_in_the_repository_inside_F25(b):
    b.repo("a")
    for name, url in [("o1", "https://u:tok@h/r?x=1#f"), ("o2", "/srv/r.git"), ("o3", "user:pw@h:p"),
                      ("o4", "git@h:p"), ("o5", "ssh://me:pw@h:22/p?q"), ("o6", "ext::sh -c x"),
                      ("o7", "http://h/@r"), ("o8", "https://tok@h")]:
        b.git("config", "remote.%s.url" % name, url)
    b.git("config", "http.extraHeader", "Authorization: tok")
    b.git("config", "url.https://tok@h/.insteadOf", "h:")
    b.git("config", "credential.helper", "store")
    b.put(".git/hooks/post-commit", "tok", 0o755)
    b.put(".git/COMMIT_EDITMSG", "tok")
    r = b.sync()
    seed = [x for x in r["layers"] if "/git/" in x][0] + "/.git"
    urls = b.git("config", "-f", seed + "/config", "--get-regexp", r"remote\..*\.url").split("\n")
    assert sorted(u for u in urls if u) == [
        "remote.o1.url https://h/r", "remote.o4.url git@h:p", "remote.o5.url ssh://me@h:22/p",
        "remote.o7.url http://h/@r", "remote.o8.url https://h"], urls
    for d, _, files in os.walk(seed):
        assert not d.endswith("hooks")
        for f in files:
            assert b"tok" not in open(os.path.join(d, f), "rb").read(), f


@test
def unborn_detached_bare_F19(b):
    b.git("init", "-q")
    b.put("a")
    r = b.sync()
    assert r["is_git"] and r["head"] == "" and r["branch"] == "refs/heads/main" and b.names() == {b"a"}
    if os.getuid() == 0:
        assert "No commits yet" in inside(b, "git", "status")
    b.git("add", "a")
    b.git("commit", "-q", "-m", "x")
    b.git("checkout", "-q", "--detach")
    r = b.sync()
    assert r["branch"] == "" and len(r["head"]) == 40
    b.git("clone", "-q", "--bare", ".", b.base + "/bare")
    b.sync(ws=b.base + "/bare", ok=False)
    assert "bare git repository" in b.err, b.err


@test
def linked_work_tree_FR_B041_F20(b):
    b.repo("a", "d/b")
    main = b.ws
    b.git("worktree", "add", "-q", "-b", "side", b.base + "/linked")
    b.ws = b.base + "/linked"
    b.put("c", "untracked")
    r = b.sync()
    assert r["is_git"] and r["branch"] == "refs/heads/side" and b.names() == {b"a", b"d/b", b"c"}
    if os.getuid() == 0:
        assert inside(b, "git", "status", "--porcelain") == "?? c\n"
    # A relative pointer is as good.
    with open(b.ws + "/.git", "w") as f:
        f.write("gitdir: ../ws/.git/worktrees/linked\n")
    assert b.sync()["branch"] == "refs/heads/side"
    # Forged: to somebody's repository, to no repository, to a worktree that is not this one.
    other = b.base + "/other"
    os.mkdir(other)
    b.git("init", "-q", cwd=other)
    b.git("worktree", "add", "-q", b.base + "/third", cwd=main)
    for target in [other + "/.git", "/etc", main + "/.git", main + "/.git/worktrees/third", "nowhere", "x" * 5000]:
        with open(b.ws + "/.git", "w") as f:
            f.write("gitdir: %s\n" % target)
        r = b.sync()
        assert not r["is_git"] and r["head"] == "" and r["notes"][b".git"] == "git_pointer", target
        assert not any("/git/" in x for x in r["layers"]) and b"a" in b.names()
    os.unlink(b.ws + "/.git")
    os.symlink(other + "/.git", b.ws + "/.git")
    assert b.sync()["notes"][b".git"] == "git_pointer"


@test
def submodules_and_nested_repositories_F21_F5_W2(b):
    lib = b.base + "/lib"
    os.mkdir(lib)
    open(lib + "/lib.c", "w").write("lib\n")
    open(lib + "/kept.o", "w").write("tracked though ignored\n")
    open(lib + "/.gitignore", "w").write("*.o\n")
    b.git("init", "-q", cwd=lib)
    b.git("add", "-f", ".", cwd=lib)
    b.git("commit", "-q", "-m", "lib", cwd=lib)
    b.repo("a")
    b.put(".gitignore", "*.tmp\n")
    b.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "sm")
    b.git("commit", "-q", "-am", "sub")
    b.put("sm/new.o")
    b.put("sm/new.tmp")
    os.makedirs(b.ws + "/nest/in")
    b.git("init", "-q", cwd=b.ws + "/nest")
    b.put("nest/.gitignore", "out/\n")
    b.put("nest/out/x")
    b.put("nest/in/y.tmp")
    b.git("init", "-q", "--bare", "bare")
    r = b.sync()
    n = b.names()
    assert {b"sm/lib.c", b"sm/kept.o", b"sm/.gitignore", b"sm/new.tmp", b"nest/in/y.tmp", b"nest/.gitignore",
            b"bare/HEAD", b".gitmodules", b"a"} <= n, n
    assert b"sm/new.o" not in n and b"nest/out/x" not in n
    assert not any(b".git" in p.split(b"/") for p in b.manifest())
    assert r["notes"][b"sm"] == "submodule_git" and r["notes"][b"nest"] == "submodule_git"
    if os.getuid() == 0:
        out = inside(b, "git", "status", "--porcelain")
        assert " M a" not in out and "sm" not in out.replace(".gitmodules", ""), out
    assert b.ignored(["sm/z.o", "sm/z.tmp", "nest/out/q", "z.tmp"]) == [True, False, True, True]


@test
def sparse_checkout_F20(b):
    b.repo("in/a", "out/b", "top")
    b.git("sparse-checkout", "set", "in")
    assert not os.path.exists(b.ws + "/out/b")
    r = b.sync()
    assert b.names() == {b"in/a", b"top"}
    if os.getuid() == 0:
        assert inside(b, "git", "status", "--porcelain") == ""
        inside(b, "sh", "-c", "echo x > in/a && git -c user.name=x -c user.email=x commit -qam y && "
               "git cat-file -e HEAD:out/b")


@test
def what_was_held_back_is_not_deleted_by_a_commit_inside(b):
    if os.getuid() != 0:
        return "not root"
    b.repo("a", "keep/secret", "keep/other", "big/x")
    b.put(".airlockignore", "/keep/secret\n")
    r = b.sync("--exclude", "/big/")
    assert b.names() == {b"a", b"keep/other", b".airlockignore"}
    assert inside(b, "git", "status", "--porcelain") == "?? .airlockignore\n"
    inside(b, "sh", "-c", "git add -A && git -c user.name=x -c user.email=x commit -qm y && "
           "git cat-file -e HEAD:keep/secret && git cat-file -e HEAD:big/x")


@test
def many_deletions_and_long_lists_E5_FR_B073(b):
    for i in range(4000):
        b.put("with spaces and 'quotes' that make a long name of sixty letters %d\n" % i)
    b.repo()
    for i in range(4000):
        os.unlink(b.ws + "/with spaces and 'quotes' that make a long name of sixty letters %d\n" % i)
    b.put("left")
    r = b.sync()
    assert b.names() == {b"left"} and r["is_git"]
    if os.getuid() == 0:
        assert inside(b, "git", "status", "--porcelain").count(" D ") == 4000


@test
def history_policies(b):
    b.repo("a")
    for i in range(5):
        b.put("a", str(i))
        b.git("commit", "-q", "-am", "c%d" % i)
    b.git("tag", "-a", "-m", "t", "v1", "HEAD~2")
    b.git("branch", "other", "HEAD~1")
    if os.getuid() != 0:
        return "not root"
    b.sync()
    assert inside(b, "git", "log", "--format=%s").split() == ["c4"]
    assert inside(b, "git", "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]
    b.sync("--git", "full")
    assert inside(b, "git", "log", "--format=%s").split() == ["c4", "c3", "c2", "c1", "c0", "first"]
    assert inside(b, "git", "for-each-ref", "--format=%(refname)").split() == \
        ["refs/heads/main", "refs/heads/other", "refs/tags/v1"]
    inside(b, "git", "fsck", "--strict")
    r = b.sync("--git", "none")
    assert not any("/git/" in x for x in r["layers"]) and r["is_git"]
    # Shallow hosts stay shallow; alternates and packs are read through.
    b.git("clone", "-q", "--depth", "2", "file://" + b.ws, b.base + "/clone")
    b.git("clone", "-q", "--shared", b.ws, b.base + "/shared")
    for d, n in [("/clone", 2), ("/shared", 6)]:
        b.ws = b.base + d
        b.sync("--git", "full")
        assert len(inside(b, "git", "log", "--format=%s").split()) == n
        inside(b, "git", "fsck")


@test
def partial_clone_F20(b):
    b.repo("a", "d/b")
    b.put("a", "two")
    b.git("commit", "-q", "-am", "two")
    b.git("config", "uploadpack.allowFilter", "true")
    b.git("clone", "-q", "--filter=blob:none", "file://" + b.ws, b.base + "/partial")
    b.ws = b.base + "/partial"
    for policy in ["shallow", "full"]:
        r = b.sync("--git", policy)
        assert "git_failed" not in r["notes"].values()
        assert any("/git/" in x for x in r["layers"])
        if os.getuid() == 0:
            assert inside(b, "git", "status", "--porcelain") == ""


@test
def sha256_repository(b):
    b.git("init", "-q", "--object-format=sha256")
    b.put("a")
    b.git("add", "a")
    b.git("commit", "-q", "-m", "x")
    r = b.sync()
    assert len(r["head"]) == 64 and not r["notes"], r
    if os.getuid() == 0:
        assert inside(b, "git", "status", "--porcelain") == ""


@test
def git_missing_on_the_host(b):
    b.repo("a")
    b.put(".gitignore", "*.o\n")
    b.put("x.o")
    os.mkdir(b.base + "/bin")
    r = b.sync(env=dict(ENV, PATH=b.base + "/bin"))
    assert r["notes"][b".git"] == "git_missing" and not r["is_git"]
    assert b.names() == {b"a", b".gitignore"}
    # A "git" in the workspace is never run, wherever PATH points.
    b.put("git", "#!/bin/sh\ntouch %s/ran\n" % b.base, 0o755)
    r = b.sync(env=dict(ENV, PATH=b.ws + ":."))
    assert r["notes"][b".git"] == "git_missing" and not os.path.exists(b.base + "/ran")


@test
def checkout_owned_by_another_user_FR_B052(b):
    if os.getuid() != 0:
        return "not root"
    b.repo("a")
    b.put("x")
    for d, dirs, files in os.walk(b.ws):
        for n in dirs + files:
            os.lchown(os.path.join(d, n), 12345, 12345)
    os.chown(b.ws, 12345, 12345)
    r = b.sync("--owner", "1879050001")
    assert r["is_git"] and not r["notes"] and b.names() == {b"a", b"x"}
    seed = [x for x in r["layers"] if "/git/" in x][0]
    for d, dirs, files in os.walk(seed):
        for n in dirs + files:
            assert os.lstat(os.path.join(d, n)).st_uid == 1879050001


@test
def broken_repository_still_sends_files(b):
    b.repo("a", "b")
    head = b.git("rev-parse", "HEAD").strip()
    os.unlink(b.ws + "/.git/objects/%s/%s" % (head[:2], head[2:]))
    r = b.sync()
    assert b.names() == {b"a", b"b"} and r["notes"][b".git"] == "git_failed", r


@test
def held_stacks_survive_until_released(b):
    b.repo("a")
    b.sync()
    first = b.last
    hold = os.open(b.store + "/layers/1.lock", os.O_RDONLY)
    import fcntl
    fcntl.flock(hold, fcntl.LOCK_SH)
    for i in range(16):
        b.put("f%d" % i, str(i))
        b.sync()
    for x in first["layers"] + [first["manifest"]]:
        assert os.path.exists(x), x
    os.close(hold)
    b.put("last")
    b.sync()
    assert not os.path.exists(first["manifest"]) and not os.path.exists(b.store + "/layers/1.lock")
    b.same()


@test
def directories_read_ahead_are_judged_as_alone(b):
    """A tree large enough for the second thread: rules of inner directories hold, names stay out."""
    want = set()
    for i in range(60):
        for sub in ["", ".x", "-y", "/in", "/in/deep"]:
            d = "d%02d%s" % (i, sub)
            for k in range(4):
                b.put("%s/f%d" % (d, k))
                want.add(("%s/f%d" % (d, k)).encode())
        b.put("d%02d/node_modules/m/n" % i)
        b.put("d%02d/.ssh/id" % i)
    b.put("d07/.airlockignore", "in/\n")
    b.put("d09/in/.airlockignore", "f1\n/deep\n")
    want = {p for p in want if not p.startswith((b"d07/in/", b"d09/in/deep/"))} - {b"d09/in/f1"}
    want |= {b"d07/.airlockignore", b"d09/in/.airlockignore"}
    os.mkfifo(b.ws + "/d30/in/pipe")
    os.symlink("/etc", b.ws + "/d31/in/link")
    want.add(b"d31/in/link")
    notes = {b"d%02d/.ssh" % i: "secret" for i in range(60)}
    notes[b"d30/in/pipe"] = "fifo"
    r = b.sync()
    assert b.names() == want, b.names() ^ want
    notes |= {b"d%02d/node_modules" % i: "heavy" for i in range(60)}
    assert r["notes"] == notes, r["notes"]
    order = list(b.manifest())
    assert order == sorted(order)
    b.same()
    assert b.sync()["reused"]
    os.unlink(b.ws + "/d07/.airlockignore")
    b.put("d40/in/deep/f2", "other\n")
    r = b.sync()
    assert r["copied_files"] == 9 and b"d07/in/deep/f3" in b.names(), r
    b.same()


ONE = ["--one-file", "yes"]


@test
def a_layer_that_is_sent_is_one_file_S1(b):
    for i in range(300):
        b.put(f"d{i % 7}/f{i}", f"{i}\n" * (i % 90))
    os.symlink("../d1", b.ws + "/d2/link")
    os.makedirs(b.ws + "/empty/deep")
    # Larger than what is gathered, with holes, and one of the very size.
    b.put("big", random.randbytes(3_000_001))
    b.put("edge", random.randbytes(1 << 20))
    with open(b.ws + "/holes", "wb") as f:
        f.write(b"x" * 100)
        f.seek(40 << 20)
        f.write(b"y")
    r = b.sync(*ONE)
    assert len(r["layers"]) == 1 and os.path.isfile(r["layers"][0]), r
    assert os.stat(r["layers"][0]).st_blocks * 512 < 10 << 20, "the holes were filled"
    assert stat.S_IMODE(os.stat(r["layers"][0]).st_mode) == 0o600
    b.same(b.parts())
    assert b.sync(*ONE)["reused"]
    b.put("d0/f0", "changed")
    os.unlink(b.ws + "/d1/f1")
    shutil.rmtree(b.ws + "/d3")
    b.put("d3", "now a file")
    r = b.sync(*ONE)
    assert len(r["layers"]) == 2 and r["copied_files"] == 2, r
    b.same(b.parts())
    # Something went and nothing came: other names all the same.
    os.unlink(b.ws + "/d3")
    r = b.sync(*ONE)
    assert not r["reused"] and r["copied_files"] == 0 and b"d3" not in b.names(), r
    b.same(b.parts())
    for i in range(16):
        b.put("d0/f0", "round %d" % i)
        assert len(b.sync(*ONE)["layers"]) <= 13
        b.same(b.parts())
    assert len(os.listdir(b.store + "/trash")) < 16
    assert len([n for n in os.listdir(b.store + "/layers") if n.isdigit()]) == len(b.last["layers"])


@test
def what_is_mounted_is_never_one_file(b):
    """The same store, should an environment's driver change."""
    for i in range(40):
        b.put(f"f{i}", str(i))
    trees = b.sync()["layers"]
    b.put("f1", "x")
    r = b.sync(*ONE)
    assert r["layers"][1:] == trees and os.path.isfile(r["layers"][0]), r
    r = b.sync()
    assert all(os.path.isdir(l) for l in r["layers"]) and r["copied_files"] == 40, r
    b.same()


@test
def files_that_change_while_they_are_gathered_are_as_they_were_hashed(b):
    """One that grows for ever among others: noted, and what is recorded is what is there."""
    for i in range(200):
        b.put(f"f{i:03d}", f"{i}\n" * 50)
    b.put("grows", b"0" * (8 << 20))
    code = "import os,sys\nwith open(sys.argv[1],'ab',0) as f:\n while os.getppid() == int(sys.argv[2]): f.write(b'x')"
    p = subprocess.Popen([sys.executable, "-c", code, b.ws + "/grows", str(os.getpid())])
    try:
        while os.path.getsize(b.ws + "/grows") == 8 << 20:
            assert p.poll() is None
        r = b.sync(*ONE)
    finally:
        p.kill()
        p.wait()
    assert r["notes"] == {b"grows": "changed"}, r["notes"]
    import hashlib
    for path, data in b.parts().items():
        if data is not None:
            assert hashlib.blake2b(data, digest_size=32).hexdigest() == b.manifest()[path][4], path
    assert not b.sync(*ONE)["reused"]
    b.same(b.parts())


@test
def a_sync_in_of_one_file_that_is_stopped_or_killed_leaves_the_old_base(b):
    for i in range(400):
        b.put(f"d{i % 9}/f{i}", f"{i}\n" * 300)
    b.sync(*ONE)
    old = b.parts()
    for i in range(400):
        b.put(f"d{i % 9}/f{i}", f"{i} other\n" * 30000)
    b.sync(*ONE, "--cancel-after", "64", ok=False)
    assert all(os.path.exists(l) for l in b.last["layers"]) and b.parts() == old
    assert not [n for n in os.listdir(b.store + "/layers") if n.startswith(".new-")]
    for k in range(8):
        p = subprocess.Popen([DRIVER, "in", b.ws, b.store, *ONE], env=ENV, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        time.sleep(k * 0.003)
        p.kill()
        p.wait()
    b.sync(*ONE)
    b.same(b.parts())
    assert not [n for n in os.listdir(b.store + "/layers") if n.startswith(".new-")]


def main():
    want = sys.argv[2:]
    failures = len(set(want) - {fn.__name__ for fn in TESTS})
    for fn in TESTS:
        if want and fn.__name__ not in want:
            continue
        base = scratch.directory(prefix="airlock-syncin-")
        try:
            skip = fn(Box(base))
            print(("SKIP %s: %s" % (fn.__name__, skip)) if skip else "ok   " + fn.__name__, flush=True)
        except Exception:
            failures += 1
            print("FAIL " + fn.__name__, flush=True)
            traceback.print_exc()
        finally:
            scratch.remove(base)
    return failures


sys.exit(min(main(), 99))
