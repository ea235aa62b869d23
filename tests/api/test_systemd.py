#!/usr/bin/env python3
"""The shipped units under a real systemd: as the first process of namespaces of the test's own (pid, mount, cgroup, network), as root.

usage: test_systemd.py DIRECTORY_OF_PROGRAMS
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
UNITS = HERE + "/../../packaging/systemd"
SYSTEMD = next((x for x in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if os.path.exists(x)), None)
INSIDE = "AIRLOCK_TEST_INSIDE"
UID = 1234
THERE = "/run/t"  # where the directory of the test is, inside
# Nothing of this machine can be written from there: all of it is read-only before systemd begins, what must be written is memory, and
# what an ordinary start does (temporary files, sysctl, devices) is not even known. Checked, for a systemd that empties /tmp is no test.
BOOT = r"""set -e
mount --make-rprivate /
cut -d' ' -f2 /proc/self/mounts | grep -vE '^/(proc|sys/fs/cgroup)(/|$)' | while read -r m; do mount -o remount,bind,ro "$m"; done
# As they are seen from the control group of the test: nothing beside it is in reach.
mount -t tmpfs -o size=64k tmpfs /run
grep -E ' cgroup2? ' /proc/self/mounts | grep ' /sys/fs/cgroup' >/run/groups
while read -r _ at type opts _; do
	case $type in
	cgroup2) umount $at; mount -t cgroup2 cgroup $at ;;
	cgroup) umount $at; mount -t cgroup -o "$(basename $at | sed 's/^systemd$/none,name=systemd/')" cgroup $at ;;
	esac
done </run/groups
umount /run
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/lock /run/t
mount --bind "$TOP" /run/t
mount -o remount,bind,rw /run/t
for d in /tmp /var /etc/systemd/system /lib/systemd/system-generators /lib/systemd/system/*.wants /lib/systemd/system/*.requires; do
	test ! -d $d || mount -t tmpfs tmpfs $d
done
mkdir -p /var/lib /var/tmp /etc/systemd/system/airlockd.service.d
for p in / /root /etc /usr /home /opt /srv /dev /sys /mnt; do
	if (: >$p/.airlock-written) 2>/dev/null; then rm -f $p/.airlock-written; echo "$p can be written"; exit 99; fi
done
for p in /tmp /var /run; do test "$(stat -f -c %T $p)" = tmpfs; done
ip link set lo up
cp /run/t/units/* /etc/systemd/system/
for f in passwd group; do mount --bind /run/t/$f /etc/$f; done
unset XDG_RUNTIME_DIR NOTIFY_SOCKET
export container=lxc
test -z "$ONLY_CHECK" || exit 0
exec $SYSTEMD --system --unit=walk.service --log-target=console --log-level=notice
"""
WALK = """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Environment={inside}={top} PYTHONDONTWRITEBYTECODE=1
StandardOutput=file:{top}/out
StandardError=file:{top}/err
ExecStart={python} {test} {top}/bin
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >{top}/status; systemctl exit 0'
"""
LOG = "[Service]\nStandardError=append:{top}/log\n"


class Groups:
    """A control group of its own in every hierarchy: what systemd makes lies below it, and goes with it."""

    def __init__(self):
        with open("/proc/self/mounts", encoding="utf-8") as file:
            roots = [x.split()[1] for x in file if x.split()[2] in ("cgroup", "cgroup2")]
        self.dirs = []
        for root in roots:
            # Some (cpuset) want more than a process before they take one.
            path = f"{root}/airlock-test-{os.getpid()}"
            os.mkdir(path)
            self.dirs.append(path)

    def enter(self):
        for path in self.dirs:
            try:
                with open(path + "/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            except OSError:
                pass

    def remove(self):
        for path in self.dirs:
            for where, _, _ in os.walk(path, topdown=False):
                wait_for("the end of " + where, lambda where=where: gone(where))


def gone(path):
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def wait_for(what, ask):
    end = time.monotonic() + 30
    while not ask():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within 30 s")
        time.sleep(0.02)


def boot(top, programs, check=""):
    os.makedirs(top + "/units")
    os.makedirs(top + "/bin")
    os.chmod(top, 0o755)
    for name in os.listdir(programs):
        if os.path.isfile(f"{programs}/{name}"):
            shutil.copy(f"{programs}/{name}", top + "/bin")
    for name in ("airlockd.service", "airlockd.socket"):
        with open(f"{UNITS}/{name}", encoding="utf-8") as file, open(f"{top}/units/{name}", "w", encoding="utf-8") as out:
            out.write(file.read().replace("ExecStart=/usr/sbin/airlockd", f"ExecStart={THERE}/bin/airlockd"))
    with open(top + "/units/walk.service", "w", encoding="utf-8") as out:
        out.write(WALK.format(inside=INSIDE, top=THERE, python=sys.executable, test=THERE + "/" + os.path.basename(__file__)))
    shutil.copy(__file__, top)
    for name, line in (("passwd", f"airlock:x:{UID}:{UID}::/nonexistent:/usr/sbin/nologin\n"), ("group", f"airlock:x:{UID}:\n")):
        with open(f"/etc/{name}", encoding="utf-8") as file, open(f"{top}/{name}", "w", encoding="utf-8") as out:
            out.write("".join(x for x in file if not x.startswith("airlock:")) + line)
    groups = Groups()
    try:
        return start(top, groups, check)
    finally:
        groups.remove()


def start(top, groups, check):
    return subprocess.run(["unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--ipc", "--uts", "--cgroup", "--net",
                           "sh", "-c", BOOT], env={"PATH": os.environ["PATH"], "TOP": top, "SYSTEMD": SYSTEMD, "ONLY_CHECK": check}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100, check=False, preexec_fn=groups.enter)


@unittest.skipIf(INSIDE in os.environ, "inside")
class Outside(unittest.TestCase):
    @unittest.skipUnless(SYSTEMD and os.geteuid() == 0, "no systemd, or not root")
    def test_units_under_systemd(self):
        """B-05: socket activation, readiness, hardening that leaves sandboxes what they need, restart, credentials."""
        top = tempfile.mkdtemp(prefix="airlock-systemd-", dir="/var/tmp")
        try:
            r = boot(top, os.path.realpath(sys.argv[1]))
            said = [r.stdout, r.stderr]
            for name in ("out", "err", "log", "status"):
                if os.path.exists(f"{top}/{name}"):
                    with open(f"{top}/{name}", encoding="utf-8", errors="replace") as file:
                        said.append(f"--- {name}\n" + file.read())
            if not os.path.exists(top + "/status"):
                self.skipTest("systemd does not run in namespaces here: " + (r.stderr or r.stdout)[-300:])
            with open(top + "/status", encoding="ascii") as file:
                self.assertEqual(file.read().strip(), "0", "\n".join(said))
        finally:
            shutil.rmtree(top, ignore_errors=True)


@unittest.skipUnless(INSIDE in os.environ, "for systemd")
class Inside(unittest.TestCase):
    key = None

    def setUp(self):
        self.top = os.environ[INSIDE]

    def ctl(self, *words, ok=True):
        r = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=60, check=False)
        if ok:
            self.assertEqual(r.returncode, 0, (words, r.stdout, r.stderr))
        return r.stdout.strip()

    def show(self, name):
        return self.ctl("show", "-P", name, "airlockd.service")

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", 3100, timeout=60)
        c.request(method, path, None if body is None else json.dumps(body),
                  ({"Authorization": "Bearer " + self.key} if self.key else {}) | ({"Content-Type": "application/json"} if body is not None else {}))
        r = c.getresponse()
        status, data = r.status, r.read()
        c.close()
        return status, json.loads(data)

    def airlock(self, *words):
        r = subprocess.run(["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", self.top + "/bin/airlock", *words], text=True,
                           env={"PATH": os.environ["PATH"], "XDG_STATE_HOME": "/var/lib/airlockd", "HOME": "/nonexistent"}, capture_output=True,
                           timeout=60, check=False)
        self.assertEqual(r.returncode, 0, (words, r.stderr))
        return r.stdout.strip()

    def log(self):
        with open(self.top + "/log", encoding="utf-8") as file:
            return file.read()

    def drop_in(self, text):
        with open("/etc/systemd/system/airlockd.service.d/test.conf", "w", encoding="ascii") as out:
            out.write(LOG.format(top=self.top) + text)
        self.ctl("daemon-reload")

    def credential(self, name, digit):
        with open(f"{self.top}/{name}", "w", encoding="ascii") as out:
            out.write(digit * 64)
        os.chmod(f"{self.top}/{name}", 0o600)  # root's: only systemd reads it
        return f"LoadCredential=airlock-{name}:{self.top}/{name}\n"

    def gives_credentials(self):
        """Some kernels without ramfs and without ACLs of tmpfs: there systemd cannot show a credential to another user."""
        with open("/etc/systemd/system/given.service", "w", encoding="ascii") as out:
            out.write(f"[Service]\nType=oneshot\nUser=airlock\nExecStart=/bin/sh -c 'cat $CREDENTIALS_DIRECTORY/*'\n{self.credential('seal-key', '1')}")
        self.ctl("daemon-reload")
        return subprocess.run(["systemctl", "start", "given.service"], check=False, capture_output=True, timeout=60).returncode == 0

    def test_walk(self):
        given = self.gives_credentials()
        print("credentials:", given, flush=True)
        self.drop_in(self.credential("seal-key", "1") if given else "")
        # The first connection starts it, and it says when it is ready.
        self.ctl("start", "airlockd.socket")
        self.assertEqual(self.ctl("is-active", "airlockd.service", ok=False), "inactive")
        self.assertEqual(self.ask("GET", "/api/health")[0], 200)
        self.assertEqual((self.ctl("is-active", "airlockd.service"), self.show("Type"), self.show("User")), ("active", "notify", "airlock"))
        pid = self.show("MainPID")
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = dict(x.rstrip("\n").split(":\t", 1) for x in file if ":\t" in x)
        self.assertEqual((status["Uid"].split()[0], int(status["CapBnd"], 16), status["Umask"]), (str(UID), 0, "0077"))
        self.assertEqual(os.stat("/var/lib/airlockd").st_mode & 0o777, 0o700)
        company = self.airlock("company", "add", "Acme")
        self.airlock("user", "add", "--admin", "alice")
        self.key = self.airlock("token", "create", "--user", "alice")
        # Its key is the credential alone.
        self.assertEqual(self.ask("POST", f"/api/companies/{company}/secrets", {"name": "s", "value": "v"})[0], 201)
        self.assertEqual(os.path.exists("/var/lib/airlockd/airlock/seal.key"), not given)
        # A sandbox, within what the unit allows; it outlives the daemon.
        status, env = self.ask("POST", f"/api/companies/{company}/environments",
                               {"name": "sandbox", "driver": "sandbox", "config": {"provider": "native"}})
        self.assertEqual(status, 201, env)
        status, probe = self.ask("POST", f"/api/environments/{env['id']}/probe")
        self.assertEqual((status, probe["ok"]), (200, True), (probe, self.log()))
        status, lease = self.ask("POST", f"/api/environments/{env['id']}/leases", {"companyId": company})
        self.assertEqual(status, 201, (lease, self.log()))
        self.ctl("restart", "airlockd.service")
        self.assertNotEqual(self.show("MainPID"), pid)
        self.assertEqual(self.ask("GET", "/api/environment-leases/" + lease["id"])[1]["status"], "active")
        if given:
            # A new key, with the old one beside it, and then without.
            self.drop_in(self.credential("seal-key", "2") + self.credential("seal-key-old", "1"))
            self.ctl("restart", "airlockd.service")
            self.assertIn("1 values of secrets are sealed with the new key", self.log())
            self.drop_in(self.credential("seal-key", "2"))
            self.ctl("restart", "airlockd.service")
            self.assertNotIn("cannot be opened", self.log())
        status, gone = self.ask("DELETE", "/api/environment-leases/" + lease["id"])
        self.assertEqual((status, gone["cleanupStatus"]), (200, "success"), self.log())
        # Killed, it comes back; reload is a signal; the end is a clean one.
        os.kill(int(self.show("MainPID")), 9)
        self.assertEqual(self.ask("GET", "/api/environments/" + env["id"])[0], 200)
        self.ctl("reload", "airlockd.service")
        self.ctl("stop", "airlockd.socket", "airlockd.service")
        self.assertEqual((self.show("Result"), self.show("ExecMainStatus")), ("success", "0"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
