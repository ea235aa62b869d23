#!/usr/bin/env python3
"""--net allow=: real sandboxes, the real proxy, servers and a name server of our own (S2-09, B-05; DESIGN.md, section 9).

usage: test_net.py AIRLOCK [TEST...]
As root a part runs in network and mount namespaces of its own, where public addresses, port 443 and /etc/resolv.conf are
ours: unshare starts this file again.
"""
import array
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from run_box import DEADLINE, Host, confined, look, parent, pids, until  # noqa: E402

AIRLOCK = os.path.realpath(sys.argv[1])
BIG = 3 << 20
PUBLIC, OWN = "93.184.216.34", "93.184.216.1"
INSIDE = "AIRLOCK_TEST_NET"


class Echo(http.server.BaseHTTPRequestHandler):
    """Says back what it heard, as JSON."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def body(self):
        if self.headers.get("transfer-encoding") == "chunked":
            data = b""
            while True:
                n = int(self.rfile.readline(), 16)
                data += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return data
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_GET(self):
        data = self.body()
        said = json.dumps({"line": self.requestline, "headers": [(k.lower(), v) for k, v in self.headers.items()],
                           "body": len(data)}).encode()
        if self.path == "/big":
            said = b"x" * BIG
        self.server.heard.append(self.requestline)
        self.server.before(self.path)
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_GET


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address="127.0.0.1", port=0, tls=None):
        super().__init__((address, port), Echo)
        self.heard = []
        self.before = lambda path: None
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Box(unittest.TestCase):
    def setUp(self):
        self.host = Host(os.path.dirname(AIRLOCK), "airlock-net-test.", {"a.txt": b"a\n"})
        self.addCleanup(self.host.remove)

    def run_in(self, words, script, status=0):
        """The record, standard output and standard error of one run."""
        r = self.host.airlock("run", *words, "--timeout", "50", "--json=" + self.host.top + "/record", "--", script)
        self.assertEqual(r.returncode, status, r.stderr.decode() + r.stdout.decode())
        with open(self.host.top + "/record", encoding="utf-8") as f:
            return json.load(f), r.stdout.decode(), r.stderr.decode()

    def audit(self, record):
        r = self.host.airlock("audit", "--json", record["run"])
        return [json.loads(line) for line in r.stdout.splitlines()]


CURL = "c() { curl -sS -m 40 \"$@\"; }; "


class Plain(Box):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.port = self.server.server_port
        self.place = "api.test:%d" % self.port
        self.words = ["--net", "allow=" + self.place, "--resolve", self.place + ":127.0.0.1"]

    def test_allowed_http_and_connect(self):
        rec, out, err = self.run_in(self.words, CURL + (
            "c -H 'X-Hop: 1' -H 'Connection: x-hop' -H 'Proxy-Authorization: Basic eA==' http://P/a?b=1; echo; "
            "head -c 100000 /dev/zero | c -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue' --data-binary @- http://P/b; echo; "
            "c -d x=1 http://P/c; echo; c -p http://P/d; echo; c -p http://P/big | wc -c; c http://P/big | wc -c"
        ).replace("P", self.place))
        a, b, c, d = [json.loads(line) for line in out.splitlines()[:4]]
        self.assertEqual(a["line"], "GET /a?b=1 HTTP/1.1")
        names = [k for k, _ in a["headers"]]
        self.assertNotIn("x-hop", names)
        self.assertNotIn("proxy-authorization", names)
        self.assertEqual([v for k, v in a["headers"] if k == "host"], [self.place])
        self.assertEqual(b["body"], 100000)
        self.assertEqual(c["body"], 3)
        self.assertEqual(d["line"], "GET /d HTTP/1.1")
        self.assertEqual(out.split()[-2:], [str(BIG), str(BIG)])
        net = rec["network"]
        self.assertEqual((net["connections"], net["allowed"], net["refused"]), (6, 6, 0))
        self.assertGreater(net["bytes_down"], 2 * BIG)
        self.assertGreater(net["bytes_up"], 100000)
        self.assertEqual(rec["isolation"]["network"], "allow")
        self.assertIn("NETWORK: --resolve", err)
        self.assertIn("6 connections, 0 refused", err)
        lines = self.audit(rec)
        self.assertEqual([x["rule"] for x in lines], ["allow"] * 6)
        self.assertEqual({x["target"] for x in lines}, {self.place})
        self.assertEqual({x["route"] for x in lines}, {self.place})

    def test_refused_is_told_with_the_flag_that_would_allow_it(self):
        rec, out, err = self.run_in(self.words + ["--net", "allow=localhost:%d" % self.port], CURL + (
            "c http://other.test/; echo; c -p http://other.test:81/ 2>&1; c --noproxy '' http://localhost:%d/; echo; "
            "c --noproxy '' http://127.0.0.1:%d/; echo; c -H 'Host: evil.test' http://%s/; echo; c http://169.254.169.254/latest; echo; "
            "c http://2130706433/; echo; c http://[::ffff:127.0.0.1]:%d/"
        ) % (self.port, self.port, self.place, self.port))
        self.assertEqual(self.server.heard, [])
        for word in "net.host", "net.address", "proxy.host":
            self.assertIn('"code":"%s"' % word, out)
        self.assertIn("--net allow=other.test:80", out)
        self.assertIn("--net allow=other.test:81 would let it through", err)
        self.assertIn("--resolve localhost:%d:ADDRESS would let it through" % self.port, err)
        places = {x["place"]: x for x in rec["network"]["refused_places"]}
        self.assertEqual(places["other.test:80"]["allowed_by"], "--net allow=other.test:80")
        self.assertEqual(places["localhost:%d" % self.port]["rule"], "net.address")
        self.assertIn("169.254.169.254:80", places)
        self.assertEqual(rec["network"]["allowed"], 0)
        self.assertEqual(rec["network"]["refused"], len(self.audit(rec)))

    def test_literal_address_is_an_opt_in_and_loud(self):
        place = "127.0.0.1:%d" % self.port
        _, out, err = self.run_in(["--net", "allow=" + place], CURL + "c --noproxy '' http://%s/; c --noproxy '' http://localhost:%d/" % (place, self.port))
        self.assertIn("GET / HTTP/1.1", out)
        self.assertIn("localhost:%d is not in the allow-list" % self.port, out)
        self.assertIn("NETWORK: --net allow=%s lets the command reach an address that is not public (loopback)" % place, err)

    def test_no_allow_list_no_proxy(self):
        rec, out, _ = self.run_in([], "env | grep -ic proxy; cat /proc/net/dev | wc -l")
        self.assertEqual(out.split(), ["0", "3"])
        self.assertIsNone(rec["network"])

    def test_words_that_are_no_rules(self):
        for words in (["--net", "allow="], ["--net", "allow=*"], ["--net", "allow=*.com"], ["--net", "allow=a,,b"], ["--net", "allow=0x7f.1:80"],
                      ["--net", "what"], ["--resolve", "a:1:127.0.0.1"], ["--net", "allow=a", "--resolve", "a:1"],
                      ["--provider", "local", "--net", "allow=a"]):
            r = self.host.airlock("run", *words, "--", "true")
            self.assertEqual(r.returncode, 2, words)
        self.assertEqual(self.host.rows(), [])

    def test_hostile_clients_are_bounded(self):
        """Silent, slow and many connections hold up nobody else; descriptors and rubbish on the channel end the network only."""
        rec, out, _ = self.run_in(self.words, """python3 - <<'E'
import os, socket
port = int(os.environ['http_proxy'].rsplit(':', 1)[1])
idle = [socket.create_connection(('127.0.0.1', port)) for _ in range(200)]
for s in idle[:100]:
    s.send(b'GET http://')
def ask(data):
    s = socket.create_connection(('127.0.0.1', port))
    s.settimeout(40)
    s.sendall(data)
    got = b''
    while True:
        k = s.recv(65536)
        if not k:
            return got
        got += k
P = '%s'.encode()
print(ask(b'GET http://' + P + b'/ok HTTP/1.1\\r\\nHost: ' + P + b'\\r\\n\\r\\n').split(b' ')[1].decode())
print(ask(b'GET http://' + P + b'/ok HTTP/1.1\\r\\nHost: ' + P + b'\\r\\nContent-Length: 1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n').split(b' ')[1].decode())
print(ask(b'GET http://' + P + b'/' + b'a' * 20000 + b' HTTP/1.1\\r\\n').split(b' ')[1].decode())
print(ask(b'POST http://' + P + b'/ok HTTP/1.1\\r\\nHost: ' + P + b'\\r\\nContent-Length: 2\\r\\n\\r\\nabGET /smuggled HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').split(b' ')[1].decode())
E""" % self.place)
        self.assertEqual(out.split(), ["200", "400", "414", "200"])
        self.assertEqual(self.server.heard, ["GET /ok HTTP/1.1", "POST /ok HTTP/1.1"])
        self.assertFalse(rec["network"]["lost"])

    def test_proxy_dies_and_the_run_says_so(self):
        p = subprocess.Popen([self.host.bin + "/airlock", "run", *self.words, "--", "echo up; read x; curl -sS -m 20 http://%s/; true" % self.place],
                             cwd=self.host.ws, env=self.host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"up\n")
        helper = [q for q in pids() if look(q, "cmdline").split(b"\0")[0] == (self.host.bin + "/airlock-proxy").encode() and parent(q) == p.pid]
        self.assertEqual(len(helper), 1)
        marks = (("NoNewPrivs", b"1"), ("Seccomp", b"2"), ("CapEff", b"0000000000000000")) if confined(AIRLOCK) else ()
        for key, want in marks:
            line = [x for x in look(helper[0], "status").splitlines() if x.startswith(key.encode() + b":")]
            self.assertEqual(line[0].split()[1], want, key)
        os.kill(helper[0], 9)
        out, err = p.communicate(b"x\n", timeout=DEADLINE)
        self.assertEqual(p.returncode, 0)
        self.assertIn(b"the network proxy is lost", err)
        until("the resolver's end", lambda: not [q for q in pids() if look(q, "cmdline").startswith((self.host.bin + "/airlock-proxy").encode())])

    def test_kept_sandbox_keeps_its_list(self):
        rec, _, _ = self.run_in(self.words + ["--keep"], "true")
        r = self.host.airlock("exec", rec["run"], "--", CURL + "c http://%s/again; c http://other.test/" % self.place)
        self.assertIn(b"GET /again HTTP/1.1", r.stdout)
        self.assertIn(b"net.host", r.stdout)




def name_server(table):
    """UDP, A records. table: name to a list of answers, of which the last one stays."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((PUBLIC, 53))

    def serve():
        while True:
            q, who = s.recvfrom(512)
            at, labels = 12, []
            while q[at]:
                labels.append(q[at + 1:at + 1 + q[at]].decode().lower())
                at += q[at] + 1
            kind = struct.unpack(">H", q[at + 1:at + 3])[0]
            answers = table.get(".".join(labels), [[]])
            now = answers[0]
            if kind == 1 and len(answers) > 1:
                answers.pop(0)
            rr = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(a) for a in now) if kind == 1 else b""
            n = len(now) if kind == 1 else 0
            s.sendto(q[:2] + (b"\x81\x80" if ".".join(labels) in table else b"\x81\x83") + b"\0\1" + struct.pack(">H", n) + b"\0\0\0\0" + q[12:at + 5] + rr, who)

    threading.Thread(target=serve, daemon=True).start()


class Resolved(Box):
    """Inside the namespaces: public addresses, port 443 and names are ours."""

    def curl(self, allow, script):
        return self.run_in(["--net", "allow=" + allow], CURL + script)

    def test_names_are_resolved_outside_and_addresses_judged(self):
        rec, out, _ = self.curl("good.test:80,bad.test:80,own.test:80,mixed.test:80,none.test:80,*.wild.test:80",
                                "for h in good bad own mixed none a.wild absent.wild; do c -o /dev/null -w \"$h %{http_code}\\n\" http://$h.test/; done; "
                                "cat /etc/resolv.conf 2>/dev/null | grep -c 93.184; true")
        self.assertEqual(out.split()[:14], ["good", "200", "bad", "403", "own", "403", "mixed", "200", "none", "502", "a.wild", "200", "absent.wild", "502"])
        places = {x["place"]: x["rule"] for x in rec["network"]["refused_places"]}
        self.assertEqual(places, {"bad.test:80": "net.address", "own.test:80": "net.address"})

    def test_the_machine_s_own_addresses_whenever_they_came_and_however_many(self):
        """A hundred of them, a whole range that is routed here, one that is added while the run goes on."""
        def add(what):
            subprocess.run("ip -batch -", shell=True, check=True, input="".join(w + "\n" for w in what).encode())
        add(["addr add 93.184.217.%d/32 dev lo" % i for i in range(1, 100)] + ["route add local 93.184.219.0/24 dev lo"])
        # The operator wrote this one down: it may be reached, and tells that it is time.
        server = Server(OWN, 8080)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.before = lambda path: add(["addr add 93.184.218.7/32 dev lo"])
        rec, out, _ = self.curl("many.test:80,range.test:80,late.test:80,%s:8080" % OWN,
                                "for u in many.test range.test late.test %s:8080 late.test; do c -o /dev/null -w '%%{http_code}\\n' http://$u/; done" % OWN)
        self.assertEqual(out.split(), ["403", "403", "502", "200", "403"])
        self.assertEqual([(x["place"], x["rule"]) for x in rec["network"]["refused_places"]],
                         [(n + ".test:80", "net.address") for n in ("many", "range", "late")])

    def test_rebinding_between_two_looks_changes_nothing(self):
        """The first answer is public, later ones are loopback: the address that was judged is kept."""
        _, out, _ = self.curl("rebind.test:80", "for i in 1 2 3; do c -o /dev/null -w '%{http_code}\\n' http://rebind.test/; done")
        self.assertEqual(out.split(), ["200"] * 3)

    def test_tls_name_must_be_the_allowed_one(self):
        rec, out, _ = self.curl("good.test,a.wild.test",
                                "c -k -o /dev/null -w '%{http_code}\\n' https://good.test/; "
                                "c -k -o /dev/null -w '%{http_code}\\n' https://GOOD.test./; "
                                "c -k --connect-to evil.test:443:good.test:443 https://evil.test/ 2>&1; "
                                "c -k -p http://good.test:443/ 2>&1; true")
        self.assertEqual(out.split()[:2], ["200", "200"])
        self.assertEqual([x["rule"] for x in self.audit(rec)], ["allow", "allow", "tls.name", "tls.not_tls"])


def certificate(where):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=good.test", "-keyout", where + "/key", "-out", where + "/cert"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(where + "/cert", where + "/key")
    return c


def far_side(where):
    """The other end of the cable, in a network namespace of its own."""
    table = {"good.test": [[PUBLIC]], "bad.test": [["10.1.2.3", "127.0.0.1"]], "own.test": [[OWN]], "mixed.test": [["169.254.169.254", PUBLIC]],
             "many.test": [["93.184.217.99"]], "range.test": [["93.184.219.5"]], "late.test": [["93.184.218.7"]], "none.test": [[]], "absent.wild.test.corp.test": [[PUBLIC]], "a.wild.test": [[PUBLIC]], "rebind.test": [[PUBLIC], ["127.0.0.1"]]}
    subprocess.run("ip link set lo up", shell=True, check=True)
    print("here", flush=True)
    sys.stdin.readline()
    subprocess.run("ip addr add %s/24 dev far && ip link set far up" % PUBLIC, shell=True, check=True)
    name_server(table)
    Server(PUBLIC, 80)
    Server(PUBLIC, 443, certificate(where))
    print("up", flush=True)
    sys.stdin.readline()


def near_side(where):
    subprocess.run("mount --make-rprivate / && ip link set lo up", shell=True, check=True)
    with open(where + "/resolv.conf", "w", encoding="ascii") as f:
        f.write("nameserver %s\nsearch corp.test\noptions timeout:2 attempts:2\n" % PUBLIC)
    with open(where + "/nsswitch.conf", "w", encoding="ascii") as f:
        f.write("hosts: files dns\n")
    for name in "resolv.conf", "nsswitch.conf":
        subprocess.run(["mount", "--bind", where + "/" + name, os.path.realpath("/etc/" + name)], check=True)
    far = subprocess.Popen(["unshare", "-n", sys.executable, os.path.realpath(__file__), AIRLOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           env=dict(os.environ, **{INSIDE: "far " + where}))
    far.stdout.readline()
    subprocess.run("ip link add near type veth peer name far && ip addr add %s/24 dev near && ip link set near up && ip link set far netns %d" % (OWN, far.pid),
                   shell=True, check=True)
    far.stdin.write(b"go\n")
    far.stdin.flush()
    if far.stdout.readline() != b"up\n":
        raise AssertionError("the far side does not come up")
    return far


class Audited(unittest.TestCase):
    """The proxy by itself, as the client of the engine speaks to it (bridge/proxy_proto.h)."""

    def ask(self, port):
        self.channel.send(b"c")
        _, anc, _, _ = self.channel.recvmsg(1, socket.CMSG_SPACE(4))
        with socket.socket(fileno=array.array("i", anc[0][2])[0]) as c:
            c.settimeout(60)
            c.sendall(b"GET http://good.test:%d/ HTTP/1.0\r\n\r\n" % port)
            return b"".join(iter(lambda: c.recv(4096), b"")).split(b" ")[1]

    def start(self, place, audit):
        """The proxy by itself, with one rule; takes audit."""
        self.control, theirs = socket.socketpair()
        ours, self.channel = socket.socketpair()
        p = subprocess.Popen([os.path.join(os.path.dirname(AIRLOCK), "airlock-proxy")], stdin=theirs, env={})
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        for s in self.control, self.channel:
            s.settimeout(60)
            self.addCleanup(s.close)
        text = lambda b: struct.pack("<I", len(b)) + b
        setup = bytes(2) + text(b"run1") + text(place + b"\0") + text(place + b":127.0.0.1\0")
        self.control.sendmsg([struct.pack("<IBBBB", len(setup), 1, 1, 2, 0) + setup],
                             [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ours.fileno(), audit]))])
        for s in ours, theirs:
            s.close()
        os.close(audit)

    def counts(self):
        """Stops it; what it counted."""
        self.control.sendall(struct.pack("<IBBBB", 0, 1, 2, 0, 0))
        data = b"".join(iter(lambda: self.control.recv(65536), b""))
        while True:
            n, _, kind = struct.unpack_from("<IBB", data)
            if kind == 36:
                names = "connections", "allowed", "refused", "failed", "bytes_up", "bytes_down", "audit_lost"
                return dict(zip(names, struct.unpack_from("<%dQ" % len(names), data, 8)))
            data = data[8 + n:]

    def test_B10_nothing_goes_out_that_cannot_be_recorded(self):
        server = Server()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.start(b"good.test:%d" % server.server_port, os.open("/dev/full", os.O_WRONLY))
        # The first finds out that nothing can be written, when its line is.
        until("a refusal for want of an audit", lambda: self.ask(server.server_port) == b"503")
        heard = len(server.heard)
        self.assertEqual(self.ask(server.server_port), b"503")
        self.assertEqual(len(server.heard), heard)
        counts = self.counts()
        self.assertEqual(counts["audit_lost"], counts["connections"])

    def test_B10_what_a_server_has_seen_the_start_of_was_forwarded(self):
        """A PUT whose client leaves in the middle: refused requests must not use up the room of such lines. The file is so
        full that a forwarded one is counted and written last, a refused one, which has a smaller share, still at once."""
        with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile() as log:
            port, size = server.getsockname()[1], (54 << 20) - (256 << 10)
            os.truncate(log.name, size)
            self.start(b"good.test:%d" % port, os.open(log.name, os.O_WRONLY | os.O_APPEND))
            self.channel.send(b"c")
            _, anc, _, _ = self.channel.recvmsg(1, socket.CMSG_SPACE(4))
            with socket.socket(fileno=array.array("i", anc[0][2])[0]) as c:
                c.sendall(b"PUT http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\nContent-Length: 10\r\n\r\nhalf" % (port, port))
                s, _ = server.accept()
                s.settimeout(60)
                seen = b""
                while not seen.endswith(b"half"):
                    seen += s.recv(4096)
            while s.recv(4096):
                pass
            s.close()
            self.assertEqual(self.ask(1), b"403")
            self.assertEqual(self.counts()["audit_lost"], 0)
            log.seek(size)
            first, last = [json.loads(l) for l in log]
            self.assertEqual((first["method"], first["status"], first["target"]), ("GET", 403, "good.test:1"))
            self.assertEqual((last["method"], last["status"], last["bytes_in"], last["target"]), ("PUT", 0, 4, "good.test:%d" % port))


class Namespaces(unittest.TestCase):
    def test_names_and_tls(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
            self.skipTest("needs root and namespaces")
        host = Host(os.path.dirname(AIRLOCK), "airlock-net-test.", {})
        try:
            r = subprocess.run(["unshare", "-n", "-m", sys.executable, os.path.realpath(__file__), AIRLOCK], check=False,
                               env=dict(os.environ, **{INSIDE: "near " + host.top}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        finally:
            host.remove()
        self.assertEqual(r.returncode, 0, r.stdout.decode())
        self.assertIn(b"Ran 4 tests", r.stdout)


if __name__ == "__main__":
    side, _, place = os.environ.get(INSIDE, "").partition(" ")
    if side == "far":
        far_side(place)
        sys.exit(0)
    names = [n for n in sys.argv[2:]]
    if side == "near":
        cable = near_side(place)
        names = ["Resolved"]
    elif not names:
        names = ["Plain", "Audited", "Namespaces"]
    unittest.main(argv=[sys.argv[0], *names], verbosity=2)
