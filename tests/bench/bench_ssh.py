"""./do bench ssh: runs on another machine over a real sshd on loopback, beside ssh, tar and rsync over the same sshd.

One round trip is that of a byte through `ssh ... cat` over a shared connection: what no one who uses ssh can be below. The anchors have
a warm shared connection, as ours has.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "integ"))
import ssh_box

CALLS = r'''
import os, socket, time, urllib.parse
u = urllib.parse.urlparse(os.environ["PAPERCLIP_API_URL"])
s = socket.create_connection((u.hostname, u.port))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
q = ("GET /api/agents/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n\r\n" % os.environ["PAPERCLIP_API_KEY"]).encode()
took = []
for i in range(400):
    t = time.monotonic()
    s.sendall(q)
    got = b""
    while b"\r\n\r\n" not in got:
        got += s.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    n = [int(l.split(b":")[1]) for l in head.lower().split(b"\r\n") if l.startswith(b"content-length:")][0]
    while len(body) < n:
        body += s.recv(65536)
    assert b" 200 " in head[:20], head
    took.append(time.monotonic() - t)
print(sorted(took[50:])[175] * 1e3)
'''


class Rig:
    def __init__(self, b, run):
        self.b, self.run = b, run
        if not ssh_box.SSHD:
            raise run.Missing("sshd is not installed (./do setup)")
        run.tool("rsync"), run.tool("ssh")
        self.top = run.make_dir(b.fresh("ssh"))
        self.sshd = ssh_box.Sshd(run.make_dir(self.top + "/s"))
        self.there = run.make_dir(self.top + "/there")
        s = self.sshd
        self.words = ["--ssh", f"127.0.0.1:{s.port}:{self.there}", "--ssh-key", s.top + "/id", "--ssh-known-hosts", s.top + "/known",
                      "--ssh-config", "/dev/null"]
        self.control = f"/tmp/airlock-bench-ssh.{os.getpid()}"
        self.ssh = ["ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={s.top}/known", "-i", s.top + "/id", "-p", str(s.port),
                    "-o", "ControlMaster=auto", "-o", f"ControlPath={self.control}", "-o", "ControlPersist=600"]
        self.host = "127.0.0.1"
        subprocess.run([*self.ssh, self.host, "true"], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # The guest program goes there once, and is no part of what is measured.
        b.record(self.small(), "true", *self.words)

    def small(self):
        path = self.run.make_dir(self.b.fresh("small"))
        with open(path + "/a", "w", encoding="ascii") as f:
            f.write("a\n")
        return path

    def round_trip(self, n=300):
        p = subprocess.Popen([*self.ssh, self.host, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        took = []
        for _ in range(n):
            t = time.monotonic()
            p.stdin.write(b"x")
            if p.stdout.read(1) != b"x":
                raise self.run.Missing("ssh cat gave nothing back")
            took.append((time.monotonic() - t) * 1e3)
        p.stdin.close()
        p.wait(60)
        return statistics.median(took[n // 10:])

    def there_in(self, record):
        """What a run takes until its first command can start: the workspace is read here and is there."""
        return self.run.phase_ms(record, "sync_in") + self.run.phase_ms(record, "start")

    def close(self):
        subprocess.run([*self.ssh, "-O", "exit", self.host], stderr=subprocess.DEVNULL, check=False)
        self.sshd.stop()


def rows(b, run):
    rig = Rig(b, run)
    try:
        yield from command_rows(rig, run)
        yield from sync_rows(rig, run)
        yield from bridge_rows(rig, run)
        yield from memory_rows(rig, run)
    finally:
        rig.close()


def command_rows(rig, run):
    # Programs find each other beside themselves.
    at = run.make_dir(rig.b.fresh("programs"))
    for name in "airlock-guest", "airlock-remote":
        shutil.copy(run.need(f"{run.BUILD}/src/prog/{name}"), at)
    shutil.copy(run.need(f"{run.BENCH}/bench_ssh"), at)
    trip = rig.round_trip()
    j = run.helper(at + "/bench_ssh", run.make_dir(rig.b.fresh("live")), "200", rig.words[1], "key=" + rig.words[3],
                   "known-hosts=" + rig.words[5], "config=/dev/null")
    trip = (trip + rig.round_trip()) / 2
    live, plain = j["live_ns"] / 1e6, j["sh_ns"] / 1e6
    master = statistics.median(run.timed([*rig.ssh, rig.host, "true"], stdin=subprocess.DEVNULL) for _ in range(30))
    yield run.Row("ssh: sh -c true over a live helper, less a round trip", live - trip, "one round trip", trip, 1.5, absolute=True)
    yield run.Row("  the same, whole", live, "ssh true over a ControlMaster", master, None)
    yield run.Row("  the same, whole", live, "sh -c true here", plain, None)


def sync_rows(rig, run):
    files = int(os.environ.get("BENCH_FILES", "20000"))
    first, tars, same, rsyncs, back = [], [], [], [], []
    for i in range(3):
        # One that nobody has seen: nothing of it is there, and nothing is known of it here.
        tree = rig.b.fresh(f"ssh-tree{i}")
        run.make_tree(tree, files)
        there = rig.b.fresh(f"tar{i}")
        os.mkdir(there)
        t = time.monotonic()
        a = subprocess.Popen(["tar", "-C", tree, "-cf", "-", "."], stdout=subprocess.PIPE)
        subprocess.run([*rig.ssh, rig.host, f"tar -C {there} -xf -"], stdin=a.stdout, check=True)
        a.wait()
        tars.append((time.monotonic() - t) * 1e3)
        first.append(rig.there_in(rig.b.record(tree, "true", *rig.words)))
    rsync = ["rsync", "-a", "-e", " ".join(rig.ssh), tree + "/", f"{rig.host}:{there}/"]
    subprocess.run(rsync, check=True)
    command = "for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do echo $i >>d00$((10+i))/f00$((10+i))00.txt; done"
    for _ in range(5):
        same.append(rig.there_in(rig.b.record(tree, "true", *rig.words)))
        rsyncs.append(run.timed(rsync))
    for _ in range(5):
        back.append(run.phase_ms(rig.b.record(tree, command, *rig.words), "sync_out"))
    mid = statistics.median
    yield run.Row(f"ssh: first sync in of {files} files", mid(first), "tar | ssh tar", mid(tars), 1.1, pairs=list(zip(first, tars)))
    yield run.Row(f"ssh: sync in of {files} files, nothing changed", mid(same), "rsync -a over ssh", mid(rsyncs), 1.0, pairs=list(zip(same, rsyncs)))
    yield run.Row(f"ssh: 20 of {files} files changed, back here", mid(back), "", None, 100, absolute=True)


def bridge_rows(rig, run):
    api = run.BridgeRig(rig.b)
    try:
        api.start()
        took, trips = [], []
        key = api.d + "/key"
        os.chmod(key, 0o600)
        for _ in range(3):
            trips.append(rig.round_trip())
            r = rig.b.airlock(["run", "--quiet", *rig.words, "--api", f"unix:{api.d}/api", "--api-key-file", key, "--", "python3", "-c", CALLS],
                              rig.small(), check=False)
            if r.returncode:
                raise run.Missing(f"the bridge over ssh: {r.stderr.strip()[-300:]}")
            took.append(float(r.stdout.split()[-1]))
        trip = statistics.median(trips)
        yield run.Row("ssh: bridge, one request at a time, p50 less a round trip", statistics.median(took) - trip, "one round trip", trip, 1,
                      absolute=True)
    finally:
        api.close()


def memory_rows(rig, run):
    peak, _ = run.watched([run.need(f"{run.BIN}/airlock"), "run", "--quiet", *rig.words, "--", "sh", "-c",
                           "dd if=/dev/zero of=big bs=1M count=300 2>/dev/null; mkdir d; i=0; while [ $i -lt 5000 ]; do "
                           "echo $i >d/$i; i=$((i+1)); done"], cwd=rig.small(), env=rig.b.env)
    for name in ("airlock-unpack", "airlock-remote"):
        if name in peak:
            yield run.Row(f"ssh: {name}, peak resident memory", peak[name] / 1024, "", None, 8, "MiB", absolute=True)
