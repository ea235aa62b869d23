#!/usr/bin/env python3
"""Kept roots (provider/native/skeleton.h): the same names, read-only, never stale, never removed under a sandbox (B-05, RT-01).

usage: test_roots.py AIRLOCK root|user [unittest arguments]
"""
import fcntl, os, re, struct, subprocess, sys, tempfile, time, unittest

from run_box import DEADLINE, UserHost, snapshot, until
import scratch

AIRLOCK, WHO = os.path.realpath(sys.argv[1]), sys.argv[2]
DAY = 86400
NAMES = r"""find / -maxdepth 2 \( -path '/usr/*' -o -path '/workspace/*' -o -path '/tmp/*' -o -path '/home/agent' -o -path '/proc/*' \) -prune \
  -o -printf '%p %y %m %u %g %l\n' | sort; ls -n /etc/ssl
for f in passwd group hosts hostname nsswitch.conf resolv.conf; do echo "== $f"; cat /etc/$f; done"""
ROOT = "grep -E '^[0-9]+ [0-9]+ [0-9:]+ [^ ]+ / ' /proc/self/mountinfo"
LEASE = r"""for f in /etc/passwd /opt/own; do perl -e 'open(F, "<", $ARGV[0]) or die; print fcntl(F, 1024, 1) ? "held" : $!{EINVAL} ? "refused" : "$!", "\n"' $f; done"""


class Roots(unittest.TestCase):
    def setUp(self):
        self.box = UserHost(os.path.dirname(AIRLOCK), "airlock-roots-", {"f": b"a\n"}, WHO)
        self.roots = self.box.state + "/roots"

    def tearDown(self):
        self.box.remove()

    def inside(self, script, *opts):
        r = self.box.airlock("run", "-q", *opts, "--", script)
        self.assertEqual(r.returncode, 0, r.stderr.decode())
        return r.stdout.decode()

    def kept(self, *opts):
        """The kept root that a start used, or None: it had a tmpfs of its own."""
        line = self.inside(ROOT, *opts)
        m = re.search(r"/roots/([0-9a-f]{32})/root / ", line)
        self.assertTrue(m or " / / " in line and " - tmpfs " in line, line)
        return m and m.group(1)

    def first(self, *opts):
        """Where something of the host changed in the last seconds, nothing is kept yet."""
        return until("a kept root", lambda: self.kept(*opts))

    def test_same_names(self):
        name = self.first()
        there = self.inside(NAMES)
        os.rename(self.roots, self.roots + ".away")
        with open(self.roots, "w", encoding="ascii"):
            pass
        self.assertIsNone(self.kept())
        self.assertEqual(self.inside(NAMES), there)
        self.assertIn("\n/etc/passwd f 444 agent agent \n", there)
        self.assertIn("\n== hosts\n127.0.0.1 localhost", there)
        os.unlink(self.roots)
        os.rename(self.roots + ".away", self.roots)
        self.assertEqual(self.kept(), name)

    def test_one_for_all_of_a_kind(self):
        names = {self.first() for _ in range(3)}
        self.assertEqual(len(names), 1)
        self.assertEqual(set(os.listdir(self.roots)), names)
        with open(self.box.top + "/own", "w", encoding="ascii"):
            pass
        bind = "--bind-ro", self.box.top + "/own:/opt/own"
        names.add(self.first(*bind))
        names.add(self.first("--net", "host"))
        self.assertEqual(len(names), 3)
        self.assertEqual(self.kept(*bind), self.kept(*bind))
        self.assertEqual(set(os.listdir(self.roots)), names)

    def test_nothing_inside_changes_it(self):
        """B-05: not a byte, not a name, not a mode, not a time."""
        self.first()
        before = snapshot(self.roots), self.times()
        out = self.inside(r"""
for c in 'touch /x' 'touch -c /etc/passwd' 'rm -f /etc/passwd' 'mv /etc/hosts /etc/h' 'mkdir /etc/d' 'rmdir /srv' 'chmod 777 /etc' \
  'chmod 666 /etc/passwd' 'ln /etc/passwd /tmp/p' 'ln -s x /etc/l' 'mount -o remount,rw /' 'mount -o bind,remount,rw /' 'umount /etc/ssl/certs' \
  'setfattr -n user.x -v y /etc/passwd' 'sh -c ">> /etc/passwd"' 'mount -t tmpfs t /etc' 'unshare -Ur mount -o remount,rw /' 'truncate -s0 /etc/hosts'; do
  $c 2>/dev/null && command -v ${c%% *} >/dev/null && echo "did: $c"
done
ls -lR /etc > /dev/null; cat /etc/passwd /etc/hosts > /dev/null; true""")
        self.assertEqual(out, "")
        self.assertEqual((snapshot(self.roots), self.times()), before)

    def times(self):
        return {p: (s.st_mtime_ns, s.st_ctime_ns, s.st_mode) for here, dirs, files in os.walk(self.roots)
                for p in [here] + [os.path.join(here, n) for n in dirs + files] for s in [os.lstat(p)]}

    def test_no_lease_on_what_others_open(self):
        """A lease makes whoever opens the file wait: other sandboxes here, the host below a read-only bind."""
        self.first()
        own = self.box.top + "/own"
        with open(own, "w", encoding="ascii"):
            pass
        uid = os.stat(self.box.state).st_uid
        os.chown(own, uid, uid)
        self.assertEqual(self.inside(LEASE, "--bind-ro", own + ":/opt/own"), "refused\nrefused\n")

    def test_places_of_binds(self):
        """What is bound may lie where only the caller may walk."""
        own = self.box.top + "/own"
        os.makedirs(own + "/tool")
        with open(own + "/tool/say", "w", encoding="ascii") as out:
            out.write("said\n")
        os.chmod(own, 0o700)
        if WHO == "user":
            subprocess.run(["chown", "-R", str(os.stat(self.box.ws).st_uid), own], check=True)
        opts = ("--bind-ro", own + "/tool:/opt/tool", "--bind-ro", own + "/tool/say:/opt/say")
        self.first(*opts)
        self.assertEqual(self.inside("cat /opt/tool/say /opt/say", *opts), "said\nsaid\n")

    def test_without_the_filter_nothing_is_shared(self):
        self.first()
        self.assertIsNone(self.kept("--without", "seccomp"))

    def with_own_etc(self, script, *words):
        """The script with an /etc of its own, its words from $3 on; $1 is airlock. What its looks said, each ended by END."""
        if os.geteuid() != 0:
            self.skipTest("needs root, for an /etc of its own")
        etc = self.box.top + "/etc"
        subprocess.run(["cp", "-aT", "/etc", etc], check=True)
        r = subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$2" /etc || exit 99\n' + script, "sh", self.box.bin + "/airlock", etc, *words],
                           cwd=self.box.ws, env=self.box.env, capture_output=True, text=True, timeout=3 * DEADLINE, check=False)
        return r.stdout.split("END\n")[:-1], r.stdout + r.stderr

    def test_host_changes(self):
        """What the host's /etc has now is what a sandbox sees, at once and when it is kept again."""
        script = r"""
try() { "$1" run -q -- "$4"; echo END; }
for change in true 'mkdir /etc/php-new' 'rmdir /etc/php-new' 'ln -sfn /usr/share/zoneinfo/Africa/Abidjan /etc/localtime' 'touch /etc/java-new'; do
	$change; try "$@"; i=0
	until try "$@" >"$3" && grep -q /roots/ "$3" || [ $((i += 1)) -gt 500 ]; do :; done
	cat "$3"
done"""
        look = "ls -d /etc/php* /etc/java-new 2>/dev/null; readlink /etc/localtime; " + ROOT
        looks, why = self.with_own_etc(script, self.box.top + "/last", look)
        self.assertEqual(len(looks), 10, why)
        for i, look in enumerate(looks):
            self.assertEqual("/etc/php-new" in look, i in (2, 3), (i, look))
            self.assertEqual("/etc/java-new" in look, i >= 8, (i, look))
            self.assertEqual("Abidjan" in look, i >= 6, (i, look))
            if i % 2:
                self.assertIn("/roots/", look, i)
        self.assertEqual(len({re.search("/roots/([0-9a-f]+)", look).group(1) for look in looks[1::2]}), 5)

    def test_what_a_link_of_the_host_leads_to(self):
        """Nothing in /etc changes: what is behind a link there appears, becomes a directory, and goes."""
        script = r"""
ln -sfn "$3/behind" /etc/ssl/cert.pem
kept() { i=0; until "$1" run -q -- "$2" >"$3" && grep -q /roots/ "$3" || [ $((i += 1)) -gt 500 ]; do :; done; }
kept "$1" "$4" "$3/last"
for change in true 'touch $3/behind' 'rm $3/behind; mkdir $3/behind $3/behind/in' 'rm -r $3/behind' 'touch $3/behind; echo text >$3/behind'; do
	eval "$change"; "$1" run -q -- "$4"; echo END
done"""
        look = "find /etc/ssl/cert.pem -maxdepth 0 -printf '%y ' 2>/dev/null; cat /etc/ssl/cert.pem 2>/dev/null; ls /etc/ssl/cert.pem/ 2>/dev/null; " + ROOT
        looks, why = self.with_own_etc(script, self.box.top, look)
        self.assertEqual(len(looks), 5, why)
        for look, there in zip(looks, ("", "f ", "d in\n", "", "f text\n")):
            self.assertRegex(look, "^%s[0-9]+ [0-9]+ [0-9:]+ /.*/roots/" % there, why)

    def test_an_etc_that_lists_no_types(self):
        """A link of the host's is one inside, there too."""
        disk = self.disk("-O", "^filetype")
        os.mkdir(self.box.top + "/etc")
        self.mount(self.box.top + "/etc", "-o", "loop", disk)
        looks, why = self.with_own_etc('ln -sfn /usr/lib/os-release /etc/os-release; "$1" run -q -- "$3"; echo END',
                                       "readlink /etc/os-release; head -c 1 /etc/os-release | wc -c; stat -c %F /etc/alternatives /etc/services")
        self.assertEqual(looks, ["/usr/lib/os-release\n1\ndirectory\nregular file\n"], why)

    def disk(self, *opts):
        disk = self.box.top + "/disk"
        with open(disk, "wb") as f:
            f.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", *opts, disk], check=True)
        return disk

    def mount(self, place, *how):
        """Until the end of the test."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to mount a file system")
        r = subprocess.run(["mount", *how, place], stderr=subprocess.PIPE, check=False)
        if r.returncode:
            self.skipTest("this machine does not mount it: " + r.stderr.decode().strip())
        # Once more, when it is no longer in the way.
        self.addCleanup(scratch.remove, self.box.top)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)

    def state_on(self, *how):
        """The state directory on a file system of its own."""
        self.inside("true")
        self.mount(self.box.top + "/state", *how)
        os.chown(self.box.top + "/state", self.box.uid, self.box.uid)

    def test_where_links_are_not_followed(self):
        self.state_on("-t", "tmpfs", "-o", "nosymfollow,mode=700", "tmpfs")
        for _ in range(2):
            self.assertIsNone(self.kept())
        subprocess.run(["mount", "-o", "remount,symfollow", self.box.top + "/state"], check=True)
        name = self.first()
        subprocess.run(["mount", "-o", "remount,nosymfollow", self.box.top + "/state"], check=True)
        self.assertIsNone(self.kept())
        self.assertEqual(os.listdir(self.roots), [name])

    def test_a_disk_that_went_away_without_a_boot(self):
        """Its names are there again, and so is what is in the files."""
        disk = self.disk()
        self.state_on("-o", "loop", disk)
        name = self.first()
        there = self.inside(NAMES)
        place = os.open(self.box.top + "/state", os.O_RDONLY | os.O_DIRECTORY)
        # What has names is on the disk now; bytes that the kernel has still to find a place for are not.
        with open(self.roots + "/mark", "wb") as f:
            os.fsync(f.fileno())
        try:
            fcntl.ioctl(place, 0x8004587D, struct.pack("I", 2))  # EXT4_IOC_SHUTDOWN, no flush of the log
        finally:
            os.close(place)
        subprocess.run(["umount", self.box.top + "/state"], check=True)
        subprocess.run(["mount", "-o", "loop", disk, self.box.top + "/state"], check=True)
        self.assertEqual(set(os.listdir(self.roots)), {name, "mark"})
        self.assertEqual(self.kept(), name)
        self.assertEqual(self.inside(NAMES), there)

    def test_a_start_removes_some_and_waits_for_no_thousand(self):
        self.first()
        for i in range(60):
            at = "%s/%032x" % (self.roots, i)
            os.makedirs(at + "/root")
            for n in range(98):
                os.mknod("%s/root/%d" % (at, n))
            os.utime(at, (time.time() - 8 * DAY,) * 2)
        if self.box.uid:
            self.box.give(self.roots)
        self.first("--net", "host")
        self.assertGreaterEqual(sum(n.startswith("0" * 30) for n in os.listdir(self.roots)), 54)
        left = [set(os.listdir(self.roots))]
        for i in range(2):
            self.another()
            left.append(set(os.listdir(self.roots)))
            self.assertTrue(left[i] - left[i + 1], left)

    def another(self):
        """A root of a kind that there was none of."""
        own = tempfile.mkdtemp(dir=self.box.top)
        os.chmod(own, 0o755)
        return self.first("--bind-ro", own + ":/opt/" + os.path.basename(own))

    def test_only_unused_ones_go(self):
        used = self.first()
        p = self.box.start("run", "-q", "--", "echo up; cat; ls /etc/passwd /usr/bin/env /etc/ssl/certs | head -3")
        self.assertEqual(p.stdout.readline(), b"up\n")
        idle, fresh = "0" * 32, "1" * 32
        for n in idle, fresh, ".new-old", ".new-fresh":
            os.makedirs(self.roots + "/" + n + "/root/etc")
        for n in used, idle, ".new-old":
            os.utime(self.roots + "/" + n, (time.time() - 8 * DAY,) * 2)
        if self.box.uid:
            self.box.give(self.roots)
        # Each takes away one at least.
        others = {self.another() for _ in range(2)}
        self.assertEqual(set(os.listdir(self.roots)), {used, fresh, ".new-fresh", *others})
        out, _ = p.communicate(b"", DEADLINE)
        self.assertIn(b"/usr/bin/env\n", out)
        self.assertEqual(p.returncode, 0)
        # Whoever uses it next says so: a day is the grain.
        self.assertEqual(self.kept(), used)
        self.assertLess(time.time() - os.stat(self.roots + "/" + used).st_mtime, DAY)

    def test_where_none_can_be_kept(self):
        """No right to write there: the start is as it would be without, and nothing is left."""
        self.inside("true")
        subprocess.run(["rm", "-rf", self.roots], check=True)
        os.symlink("/nowhere", self.roots)
        self.assertIsNone(self.kept())
        os.unlink(self.roots)
        os.mkdir(self.roots, 0o500)
        if self.box.uid:
            self.box.give(self.roots)
            self.assertIsNone(self.kept())
            self.assertEqual(os.listdir(self.roots), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
