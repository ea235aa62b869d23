#!/usr/bin/env python3
"""System images: import, store, use, removal. IM-*, PR-08 (what an image is named by), B-05, S1-03 and S1-04 for archives of images.

usage: test_image.py AIRLOCK root|user [unittest arguments]
"""
import gzip, hashlib, io, json, os, platform, shutil, signal, subprocess, sys, tarfile, unittest

from run_box import DEADLINE, Host, link, pids, until

AIRLOCK, WHO = os.path.realpath(sys.argv[1]), sys.argv[2]
USER = 54322  # of nobody
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")
WORDS = "sh", "cat", "ls", "touch", "tar", "id", "sleep", "mkdir", "readlink"


def busybox():
    """A program that needs no library of the host."""
    for p in "/bin/busybox", "/usr/bin/busybox":
        if os.path.exists(p) and b"not a dynamic" in subprocess.run(["ldd", p], capture_output=True, check=False).stderr:
            with open(p, "rb") as f:
                return f.read()
    return None


BUSYBOX = busybox()


def member(name, kind=tarfile.REGTYPE, data=b"", mode=0o644, link_to="", **kw):
    t = tarfile.TarInfo(name)
    t.type, t.mode, t.linkname, t.mtime = kind, mode, link_to, 1_600_000_000
    t.size = len(data) if kind == tarfile.REGTYPE else 0
    for k, v in kw.items():
        setattr(t, k, v)
    return t, data


def archive(members, fmt=tarfile.PAX_FORMAT):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=fmt) as t:
        for info, data in members:
            t.addfile(info, io.BytesIO(data))
    return b.getvalue()


def system(program=b"#!/bin/false\n"):
    """A root file system."""
    v = [member("bin", tarfile.DIRTYPE, mode=0o755), member("bin/busybox", data=program, mode=0o755)]
    v += [member("bin/" + w, tarfile.SYMTYPE, link_to="busybox") for w in WORDS]
    return v + [member("etc/motd", data=b"of the image\n"), member("etc/passwd", data=b"never shown\n"),
                member("etc/ssl/mark", data=b"ssl\n"), member("var/lib/mark", data=b"lib\n"), member("srv/mark", data=b"srv\n"),
                member("app/mark", data=b"app\n"), member("opt/own/mark", data=b"opt\n")]


class Layout:
    """An OCI layout in memory."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def blob(self, data):
        h = hashlib.sha256(data).hexdigest()
        self.files["blobs/sha256/" + h] = data
        return {"digest": "sha256:" + h, "size": len(data)}

    def json(self, value, **more):
        return {**self.blob(json.dumps(value).encode()), **more}

    def manifest(self, layers, arch=ARCH, name=None):
        config = self.json({"architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
        m = self.json({"schemaVersion": 2, "config": config, "layers": [self.blob(x) for x in layers]},
                      mediaType="application/vnd.oci.image.manifest.v1+json", platform={"os": "linux", "architecture": arch})
        if name:
            m["annotations"] = {"org.opencontainers.image.ref.name": name}
        return m

    def index(self, *manifests):
        self.files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
        return self

    def tar(self):
        return archive([member(n, data=d) for n, d in self.files.items()])


class Box(Host):
    def __init__(self):
        super().__init__(os.path.dirname(AIRLOCK), "airlock-image-", {"f": b"a\n"})
        shutil.copy(os.path.join(self.programs, "airlock-image"), self.bin)
        self.uid = USER if WHO == "user" and os.geteuid() == 0 else 0
        if self.uid:
            for here, _, names in os.walk(self.top):
                for n in [here] + [os.path.join(here, x) for x in names]:
                    os.lchown(n, self.uid, self.uid)

    def become(self):
        if self.uid:
            os.setgroups([])
            os.setgid(self.uid)
            os.setuid(self.uid)

    def airlock(self, *words, **kw):
        if "input" in kw:
            kw["stdin"] = None
        return super().airlock(*words, preexec_fn=self.become, **kw)

    def start(self, *words, **kw):
        return subprocess.Popen([self.bin + "/airlock", *words], cwd=self.ws, env=self.env, preexec_fn=self.become, **kw)

    def images(self):
        return sorted(n for n in os.listdir(self.state + "/images") if n not in ("names", ".lock"))


class Images(unittest.TestCase):
    def setUp(self):
        self.box = Box()

    def tearDown(self):
        self.box.remove()

    def ok(self, *words, **kw):
        r = self.box.airlock(*words, **kw)
        self.assertEqual(r.returncode, 0, (words, r.stderr.decode(errors="replace")))
        return r.stdout.decode()

    def bad(self, text, *words, **kw):
        r = self.box.airlock(*words, **kw)
        self.assertNotEqual(r.returncode, 0, words)
        self.assertIn(text, r.stderr.decode(errors="replace"))
        return r

    def put(self, data, *words):
        """Imports; the facts."""
        if isinstance(data, list):
            data = archive(data)
        with open(self.box.top + "/in.tar", "wb") as f:
            f.write(data)
        with open(self.box.top + "/in.tar", "rb") as f:
            r = self.box.airlock("image", "import", "--json", *words, "-", stdin=f)
        self.assertEqual(r.returncode, 0, r.stderr.decode(errors="replace"))
        return json.loads(r.stdout)

    def refuse(self, data, text, *words):
        if isinstance(data, list):
            data = archive(data)
        with open(self.box.top + "/in.tar", "wb") as f:
            f.write(data)
        self.bad(text, "image", "import", *words, self.box.top + "/in.tar")
        self.assertEqual(self.box.images(), [])

    def tree(self, facts):
        return self.box.state + "/images/" + facts["digest"].split(":")[1] + "/tree"

    def read(self, facts, name):
        with open(self.tree(facts) + "/" + name, "rb") as f:
            return f.read()

    # --- what an image is ---------------------------------------------------------------------

    def test_same_contents_same_digest_whichever_way(self):
        """PR-08: named by contents: order, compression, owners, times and transport change nothing, one byte does."""
        v = system()
        plain = self.put(v)
        self.assertRegex(plain["digest"], "^sha256:[0-9a-f]{64}$")
        for t, _ in v:
            t.uid, t.gid, t.uname, t.mtime = 7, 8, "somebody", 5
        for data in gzip.compress(archive(v)), archive(list(reversed(v[1:])) + v[:1], tarfile.GNU_FORMAT), \
                subprocess.run(["zstd", "-q", "-c"], input=archive(v), stdout=subprocess.PIPE, check=True).stdout \
                if shutil.which("zstd") else archive(v):
            self.assertEqual(self.put(data)["digest"], plain["digest"])
        lay = Layout()
        lay.index(lay.manifest([archive(v[:4]), gzip.compress(archive(v[4:]))]))
        oci = self.put(lay.tar())
        self.assertEqual(oci["digest"], plain["digest"])
        self.assertEqual(len(self.box.images()), 1)
        self.assertNotEqual(self.put(v + [member("x", data=b"1")])["digest"], plain["digest"])
        self.assertNotEqual(self.put(v + [member("x", data=b"1", mode=0o755)])["digest"], self.put(v + [member("x", data=b"1")])["digest"])

    def test_nothing_privileged_comes_in(self):
        """S1-04: devices, FIFOs, set-id bits and owners never reach the host; each is told."""
        f = self.put(system() + [member("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3), member("p", tarfile.FIFOTYPE),
                                 member("su", data=b"x", mode=0o4755), member("sg", data=b"x", mode=0o2711),
                                 member("secret", data=b"s", mode=0o600)])
        self.assertEqual((f["leftOutSpecial"], f["takenAwaySetId"]), (2, 2))
        for here, dirs, files in os.walk(self.tree(f)):
            for n in dirs + files:
                st = os.lstat(os.path.join(here, n))
                self.assertEqual(st.st_mode & 0o7000, 0, n)
                self.assertIn(st.st_mode & 0o170000, (0o100000, 0o040000, 0o120000))
                self.assertEqual(st.st_uid, self.box.uid)
        self.assertFalse(os.path.lexists(self.tree(f) + "/p"))

    def test_hostile_archives(self):
        """S1-03, S1-04: what would leave the tree is refused whole, and nothing of it stays."""
        out = self.box.top + "/home/escaped"
        for v, text in (([member("../escaped", data=b"x")], "rule dotdot"), ([member("/escaped", data=b"x")], "rule absolute"),
                        ([member("l", tarfile.SYMTYPE, link_to=self.box.top + "/home"), member("l/escaped", data=b"x")], "no directory"),
                        ([member("l", tarfile.SYMTYPE, link_to=".."), member("l/x", tarfile.DIRTYPE, mode=0o755)], "no directory"),
                        ([member("h", tarfile.LNKTYPE, link_to="../../airlock.db")], "hard link"),
                        ([member("l", tarfile.SYMTYPE, link_to="/etc/passwd"), member("h", tarfile.LNKTYPE, link_to="l")], "hard link"),
                        ([member("h", tarfile.LNKTYPE, link_to="h")], "hard link"),
                        ([member("x", data=b"y", pax_headers={"AIRLOCK.op": "delete"})], "bad_op")):
            with self.subTest(text=text, first=v[0][0].name):
                self.refuse(system() + v, text)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(os.listdir(self.box.top + "/home"), [])

    def test_damaged_and_strange_archives(self):
        whole = gzip.compress(archive(system() + [member("big", data=os.urandom(300000))]))
        for data, text in ((b"", "archive"), (b"not a tar", "archive"), (whole[:-20], "cut short"), (whole[:5000], "cut short"),
                           (archive(system())[:2000], "ends before"), (b"\xfd7zXZ\0" + b"x" * 600, "compressed with xz"),
                           (whole[:4000] + b"\0" * 400 + whole[4400:], "damaged"), (archive([member("a", data=b"b")]), "no program /bin/sh"),
                           (archive([member("manifest.json", data=b"[]"), member("x/layer.tar", data=b"")]), "docker save")):
            with self.subTest(text=text, n=len(data)):
                self.refuse(data, text)

    def test_later_members_replace_earlier_ones(self):
        f = self.put(system() + [member("a", data=b"1"), member("h", tarfile.LNKTYPE, link_to="a"), member("a", data=b"2"),
                                 member("d/e", data=b"3"), member("d", data=b"4"), member("l", tarfile.SYMTYPE, link_to="/etc"),
                                 member("l", data=b"5")])
        # Through no name is another one written.
        self.assertEqual([self.read(f, n) for n in ("a", "h", "d", "l", "etc/motd")], [b"2", b"1", b"4", b"5", b"of the image\n"])

    def test_times_before_1970_are_kept(self):
        f = self.put(system() + [member("early", data=b"1", pax_headers={"mtime": "-1.5"}), member("late", data=b"1", mtime=9_000_000_000)])
        self.assertEqual([os.stat(self.tree(f) + "/" + n).st_mtime_ns for n in ("early", "late")], [-1_500_000_000, 9_000_000_000 * 10 ** 9])

    # --- OCI ----------------------------------------------------------------------------------

    def test_oci_layers_and_whiteouts(self):
        lay = Layout()
        low = archive(system() + [member("gone", data=b"x"), member("d/one", data=b"1"), member("d/two", data=b"2"), member("o/low", data=b"l")])
        # The marks come after what the layer brings, and take away only what lies below it.
        high = archive([member("o/high", data=b"h"), member("gone2", data=b"new"), member("o/.wh..wh..opq"), member(".wh.gone"),
                        member("d/.wh.one"), member(".wh.gone2"), member(".wh..wh.plnk", tarfile.DIRTYPE, mode=0o700)])
        lay.index(lay.manifest([low, gzip.compress(high)]))
        f = self.put(lay.tar())
        t = self.tree(f)
        self.assertEqual(sorted(os.listdir(t + "/o")) + sorted(os.listdir(t + "/d")), ["high", "two"])
        self.assertEqual((os.path.exists(t + "/gone"), self.read(f, "gone2"), f["layers"]), (False, b"new", 2))
        self.assertFalse([n for _, d, n in os.walk(t) for x in d + n if x.startswith(".wh.")])
        self.assertRegex(f["source"], "^sha256:[0-9a-f]{64}$")
        # The same as a directory.
        d = self.box.top + "/layout"
        for n, data in lay.files.items():
            os.makedirs(os.path.dirname(d + "/" + n), exist_ok=True)
            with open(d + "/" + n, "wb") as out:
                out.write(data)
        self.assertEqual(json.loads(self.ok("image", "import", "--json", d))["digest"], f["digest"])

    def test_oci_choice(self):
        lay = Layout()
        a, b = lay.manifest([archive(system())], name="a"), lay.manifest([archive(system() + [member("b", data=b"b")])], name="b")
        other = lay.manifest([archive(system() + [member("o", data=b"o")])], arch="s390x")
        attest = {**lay.json({"schemaVersion": 2}), "platform": {"os": "unknown", "architecture": "unknown"}}
        lay.index(a, b, other, attest)
        self.refuse(lay.tar(), "--ref")
        self.refuse(lay.tar(), "no image for", "--ref", "c")
        self.assertEqual(len(self.box.images()), 0)
        self.assertEqual(self.put(lay.tar(), "--ref", "b")["files"], self.put(lay.tar(), "--ref", "a")["files"] + 1)
        # One index inside of another, for several machines.
        two = Layout()
        inner = two.json({"schemaVersion": 2, "manifests": [two.manifest([archive(system())]), two.manifest([b"x"], arch="s390x")]},
                         mediaType="application/vnd.oci.image.index.v1+json")
        self.put(two.index(inner).tar())

    def test_oci_hostile(self):
        def made(change):
            lay = Layout()
            lay.index(lay.manifest([archive(system())]))
            change(lay)
            return lay.tar()

        def other_bytes(lay):
            big = max((n for n in lay.files if n.startswith("blobs/")), key=lambda n: len(lay.files[n]))
            lay.files[big] = lay.files[big][:-1] + b"\1"

        def rewrite(entry):
            return lambda lay: lay.index(entry(lay))

        for change, text in (
                (other_bytes, "other contents"),
                (rewrite(lambda lay: {"digest": "sha256:../../../../etc/passwd", "size": 1}), "something else than sha256"),
                (rewrite(lambda lay: {"digest": "md5:" + "0" * 64, "size": 1}), "something else than sha256"),
                (rewrite(lambda lay: {"digest": "sha256:" + "0" * 64, "size": 1}), "blobs/sha256/000"),
                (rewrite(lambda lay: lay.manifest([])), "0 layers"),
                (rewrite(lambda lay: lay.manifest([archive([member("x", data=b"y")])] * 129)), "129 layers"),
                (rewrite(lambda lay: lay.manifest([archive(system()), archive([member(".wh...", data=b"")])])), "takes away no name"),
                (rewrite(lambda lay: lay.manifest([archive(system()), archive([member("../.wh.x")])])), "'..'"),
                (rewrite(lambda lay: {**lay.blob(b"[]")}), "not a JSON object"),
                (rewrite(lambda lay: {**lay.manifest([archive(system())]), "urls": ["http://x/"]}), "nothing is fetched"),
                (lambda lay: lay.files.update({"index.json": b'{"manifests":[' + b"[" * 5000}), "not a JSON object"),
                (lambda lay: lay.files.update({"index.json": b'{"a":1,"a":2}'}), "not a JSON object")):
            with self.subTest(text=text):
                self.refuse(made(change), text)
        lay = Layout()
        lay.index({**lay.manifest([archive(system())], arch="x\x1b]0;t\x07"), "platform": None})
        self.refuse(lay.tar(), "linux/x\\x1b]0;t\\x07,")

    def test_bounds(self):
        """S1-04: what costs no byte of an archive is counted: names of one file, and mounts that a sandbox would need."""
        large = member("big", pax_headers={"GNU.sparse.size": str(20 << 30), "GNU.sparse.numblocks": "0", "GNU.sparse.map": ""})
        self.refuse(system() + [large, member("again", tarfile.LNKTYPE, link_to="big")], "over 34359738368 bytes")
        for first, second in ("", "etc/"), ("opt/", "var/"):
            self.refuse(system() + [member(f"{(first, second)[i % 2]}{i}", tarfile.SYMTYPE, link_to="x") for i in range(4096)], "at most 4096")
        # Elsewhere there may be any number.
        self.put(system() + [member(f"usr/{i}", tarfile.SYMTYPE, link_to="x") for i in range(5000)])
        strange = self.put(system() + [member("x\x1b[31m", data=b"y")])
        os.remove(self.tree(strange) + "/x\x1b[31m")
        os.mkfifo(self.tree(strange) + "/x\x1b[31m")
        self.assertNotIn(b"\x1b", self.bad("/x\\x1b[31m is neither", "image", "verify", strange["digest"]).stderr)

    # --- the store ----------------------------------------------------------------------------

    def test_names_list_show_verify_rm(self):
        f = self.put(system(), "--name", "one")
        self.ok("image", "name", "one", "two")
        self.assertEqual(json.loads(self.ok("image", "show", "--json", f["digest"][:17]))["names"].__len__(), 2)
        g = self.put(system() + [member("x", data=b"y")], "--name", "one")
        self.assertEqual(json.loads(self.ok("image", "show", "--json", "one"))["digest"], g["digest"])
        self.assertEqual({i["digest"] for i in json.loads(self.ok("image", "list", "--json"))}, {f["digest"], g["digest"]})
        self.assertIn("two", self.ok("image", "list"))
        self.ok("image", "verify", "two")
        for name in "../x", ".hidden", "a/b", "deadbeef01", "x" * 65, "":
            self.bad("image", "image", "name", "two", name)
        for word in "nobody", "sha256:00000000", "sha256:" + "0" * 64, "sha256:x/../y", f["digest"][:12]:
            self.bad("there is no image", "image", "show", word)
        # Somebody who may write there changed it: told, and never after the fact.
        with open(self.tree(f) + "/etc/motd", "ab") as out:
            out.write(b"!")
        self.bad("was changed on the disk", "image", "verify", "two")
        self.ok("image", "rm", "two")
        self.bad("there is no image", "image", "show", "two")
        self.assertEqual(self.box.images(), [g["digest"].split(":")[1]])

    def test_killed_imports_leave_nothing(self):
        """IM: kill -9 at any time: no half image, and what it left goes with the next use."""
        self.ok("image", "list")
        for helper_too, verb in (False, ("image", "list")), (True, ("image", "list")), (False, ("recover", "nothing")):
            p = self.box.start("image", "import", "-", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            p.stdin.write(archive(system())[:3000])
            p.stdin.flush()
            until("the import has begun", lambda: [n for n in self.box.images() if os.path.exists(self.box.state + "/images/" + n + "/tree/bin/busybox")])
            # One that lives is left alone.
            self.ok("image", "list")
            self.assertEqual(len(self.box.images()), 1)
            helpers = [q for q in pids() if link(q, "exe") == self.box.bin + "/airlock-image"]
            self.assertEqual(len(helpers), 1)
            if helper_too:
                os.kill(helpers[0], signal.SIGKILL)
                p.wait(DEADLINE)
            else:
                p.kill()
                p.wait()
            p.stdin.close()
            until("the helper has ended", lambda: not [q for q in pids() if link(q, "exe") == self.box.bin + "/airlock-image"])
            self.box.airlock(*verb)
            self.assertEqual(self.box.images(), [])

    def test_removal_that_was_cut(self):
        f = self.put(system(), "--name", "one")
        d = self.box.state + "/images/"
        h = f["digest"].split(":")[1]
        os.rename(d + h, d + ".gone-" + h)
        self.ok("image", "list")
        self.assertEqual((self.box.images(), os.listdir(d + "names")), ([], []))

    # --- in a sandbox -------------------------------------------------------------------------

    def run_in(self, script, *opts):
        r = self.box.airlock("run", "-q", "--image", "box", *opts, "--", script)
        self.assertEqual(r.returncode, 0, r.stderr.decode(errors="replace"))
        return r.stdout.decode()

    @unittest.skipUnless(BUSYBOX, "no static busybox")
    def test_run(self):
        """IM, B-05: the image is the system, read-only; what says who and where one is stays ours; its links mean nothing here."""
        f = self.put(system(BUSYBOX) + [member("usr/mark", data=b"usr\n"), member("etc/resolv.conf", tarfile.SYMTYPE, link_to="/etc/motd"),
                                        member("home", tarfile.SYMTYPE, link_to=self.box.top), member("proc", tarfile.SYMTYPE, link_to="/"),
                                        member("long", tarfile.SYMTYPE, link_to="l" * 2000), member("tmp/x", data=b"hidden"), member("workspace/x", data=b"hidden"),
                                        member("out", tarfile.SYMTYPE, link_to="/")], "--name", "box")
        out = self.run_in("cat /etc/motd /etc/ssl/mark /var/lib/mark /srv/mark /app/mark /opt/own/mark /usr/mark; cat /etc/passwd; ls /tmp .; "
                          "for p in /bin/x /etc/x /srv/x /app/x /opt/own/x /usr/x; do touch $p 2>/dev/null && echo WRITTEN $p; done; "
                          "ls -d /sbin /lib64 /usr/bin/python3 2>/dev/null; echo b > made; readlink /out; readlink /long")
        self.assertEqual(out.split()[:9], ["of", "the", "image", "ssl", "lib", "srv", "app", "opt", "usr"])
        self.assertIn("agent:x:", out)
        self.assertIn("\n" + "l" * 2000 + "\n", out)
        for word in "never shown", "hidden", "WRITTEN", "python3", "\n/sbin\n", "lib64":
            self.assertNotIn(word, out)
        self.assertEqual(self.box.read("made"), b"b\n")
        self.ok("image", "verify", "box")
        r = json.loads(self.ok("run", "-q", "--json", "--image", "box", "--", "true"))
        self.assertEqual(r["image"], f["digest"])
        # With a copy instead of an overlay, and with the workspace's own binds.
        os.mkdir(self.box.top + "/bound")
        self.run_in("ls -d /opt/bound /data/in", "--without", "overlay", "--bind-ro", self.box.top + "/bound:/opt/bound",
                    "--bind-ro", self.box.top + "/bound:/data/in")
        # A bind through a link of the image would make its place on the host.
        r = self.box.airlock("run", "-q", "--image", "box", "--bind-ro", self.box.top + "/bound:/out" + self.box.top + "/home/made", "--", "true")
        self.assertNotEqual(r.returncode, 0)
        self.assertFalse(os.path.lexists(self.box.top + "/home/made"))
        # And one into the image is no way to change it.
        r = self.box.airlock("run", "-q", "--image", "box", "--bind-ro", self.box.top + "/bound:/app/new", "--", "true")
        self.assertNotEqual(r.returncode, 0)
        self.ok("image", "verify", "box")

    @unittest.skipUnless(BUSYBOX, "no static busybox")
    def test_in_use(self):
        """IM: an image that a lease needs stays, also when its name moves on; kept sandboxes go on with the one they have."""
        f = self.put(system(BUSYBOX), "--name", "box")
        run = json.loads(self.ok("run", "-q", "--keep", "--image", "box", "--json", "--", "true"))["run"]
        g = self.put(system(BUSYBOX) + [member("etc/motd", data=b"newer\n")], "--name", "box")
        self.bad("is needed by lease", "image", "rm", f["digest"])
        self.assertEqual(self.ok("exec", "-q", run, "--", "cat /etc/motd"), "of the image\n")
        self.assertEqual(self.run_in("cat /etc/motd"), "newer\n")
        self.ok("image", "rm", g["digest"])
        self.ok("rm", "--force", run)
        self.ok("image", "rm", f["digest"])
        self.assertEqual(self.box.images(), [])

    def test_refusals(self):
        self.put(system(), "--name", "box")
        self.bad("there is no image", "run", "--image", "nobody", "--", "true")
        self.bad("--image", "run", "--provider", "local", "--net", "host", "--image", "box", "--", "true")
        for words in ("import",), ("list", "x"), ("frob",), ("show", "--name", "x", "box"), ("import", "--without", "seccomp", "-"):
            self.assertEqual(self.box.airlock("image", *words).returncode, 2, words)
        self.bad("holds no OCI layout", "image", "import", self.box.ws)
        self.bad("open", "image", "import", self.box.top + "/nothing")


if __name__ == "__main__":
    sys.argv[1:3] = []
    unittest.main(verbosity=1)
