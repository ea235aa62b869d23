#!/usr/bin/env python3
"""The operator's guide, walked: each command of docs/operator.md as it is written, in order, in a state directory of its own.

Written as they are: ports too, in a network namespace of the test's own. Replaced: KEY, COMPANY and ids by those that the commands before
printed; /etc/airlock and /srv by directories of the test. What is said in the text (routes, options, verbs) must be there.

usage: test_guide.py DIRECTORY_OF_PROGRAMS
"""
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from daemon_box import DEADLINE, wait_for  # noqa: E402
import scratch  # noqa: E402

PROGRAMS = os.path.realpath(sys.argv[1])
DOCS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs")
APART = "AIRLOCK_TEST_APART"
# Shown elsewhere, with the reason.
ELSEWHERE = {
    r"\./do install ": "the suites of packaging install",
    r"paperclipai ": "tests/peer has the published package",
    r"systemctl ": "no service manager here; what it does is done by hand below",
}


def guide():
    with open(DOCS + "/operator.md", encoding="utf-8") as file:
        return file.read()


def commands():
    """Indented lines, a continued one with what follows."""
    out, more = [], False
    for line in guide().splitlines():
        if not line.startswith("    "):
            more = False
            continue
        if more:
            out[-1] += "\n" + line[4:]
        else:
            out.append(line[4:])
        more = line.endswith("\\")
    return out


class Walk(unittest.TestCase):
    def setUp(self):
        self.top = scratch.directory(prefix="airlock-guide-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.top, True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("AIRLOCK_", "LISTEN_", "CREDENTIALS_"))}
        self.env |= {"PATH": PROGRAMS + ":" + os.environ["PATH"], "XDG_STATE_HOME": self.top + "/state", "HOME": self.top + "/home"}
        for name in ("state", "home", "etc/airlock", "srv/projects/shop", "srv/theirs"):
            os.makedirs(f"{self.top}/{name}")
        self.known = {"/etc/airlock": self.top + "/etc/airlock", "/srv/": self.top + "/srv/"}
        self.served, self.log = None, []
        self.addCleanup(self.stop)

    def put(self, command):
        for name, value in self.known.items():
            command = command.replace(name, value)
        return command

    def run_it(self, command):
        r = subprocess.run(["sh", "-c", self.put(command)], env=self.env, capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertEqual(r.returncode, 0, (command, r.stderr))
        return r.stdout.strip()

    def serve(self, command):
        """Goes on in the background, until the next one takes its place."""
        self.stop()
        self.log.clear()
        self.served = subprocess.Popen(["sh", "-c", "exec " + self.put(command)], env=self.env, stderr=subprocess.PIPE, text=True)
        for line in self.served.stderr:
            self.log.append(line)
            if "listening at" in line:
                break
        else:
            raise AssertionError((command, self.log))
        stream = self.served.stderr
        threading.Thread(target=lambda: self.log.extend(stream), daemon=True).start()

    def stop(self):
        if self.served:
            self.served.send_signal(signal.SIGTERM)
            self.assertEqual(self.served.wait(timeout=DEADLINE), 0)
            self.served.stderr.close()
            self.served = None

    def ask(self, method, path, body=None, key=True, tls=None):
        c = http.client.HTTPSConnection("127.0.0.1", 3100, timeout=DEADLINE, context=tls) if tls else \
            http.client.HTTPConnection("127.0.0.1", 3100, timeout=DEADLINE)
        try:
            c.request(method, path, None if body is None else body if isinstance(body, str) else json.dumps(body),
                      ({"Authorization": "Bearer " + self.known["KEY"]} if key else {}) | ({"Content-Type": "application/json"} if body else {}))
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def test_every_command(self):
        steps = {
            r"airlock serve$": self.first_start,
            r"airlock company add ": lambda c: self.known.update({"COMPANY": self.run_it(c)}),
            r"airlock user add ": self.run_it,
            r"airlock token create ": lambda c: self.known.update({"KEY": self.run_it(c)}),
            r"airlock serve --mode authenticated$": self.authenticated,
            r"airlock serve .*--tls-cert ": self.with_tls,
            r"curl .*/environments$": self.first_environment,
            r"airlockd --workspace-root ": self.with_roots,
            r"mv /etc/airlock/seal.key ": self.before_rotation,
            r"\(umask 077; head ": self.rotated,
            r"curl -N .*/api/events$": self.watched,
        }
        done = set()
        for command in commands():
            if any(re.match(x, command) for x in ELSEWHERE):
                continue
            # A body of a request is no command: it is asked where its sentence is shown.
            step = [x for x in steps if re.match(x, command, re.S)]
            self.assertEqual(len(step), 1, f"the guide has a command that this test does not know: {command}")
            steps[step[0]](command)
            done.add(step[0])
        self.assertEqual(done, set(steps))

    def first_start(self, command):
        self.serve(command)
        self.assertEqual(self.ask("GET", "/api/health", key=False)[0], 200)
        # Processes of its own user may do everything without a key.
        self.assertEqual(self.ask("GET", "/api/companies", key=False), (200, b"[]"))
        self.stop()

    def authenticated(self, command):
        self.serve(command)
        self.assertEqual([self.ask("GET", "/api/companies", key=k)[0] for k in (True, False)], [200, 403])

    def with_tls(self, command):
        pair = [self.put("/etc/airlock/" + x) for x in ("key.pem", "chain.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", pair[0],
                        "-out", pair[1]], check=True, capture_output=True)
        os.chmod(pair[0], 0o600)
        self.serve(command)
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self.assertEqual(self.ask("GET", "/api/companies", tls=tls)[0], 200)
        self.served.send_signal(signal.SIGHUP)
        wait_for("the certificate", lambda: any("get the certificate of" in x for x in self.log))
        self.assertEqual(self.ask("GET", "/api/companies", tls=tls)[0], 200)
        self.serve("airlock serve --mode authenticated")

    def first_environment(self, command):
        made = json.loads(self.run_it(command.replace("curl ", "curl -sS ")))
        self.assertEqual((made["name"], made["driver"], made["status"]), ("sandbox", "sandbox", "active"))
        self.environment = made["id"]

    def with_roots(self, command):
        self.known = {"3f0c...-company-id": self.known["COMPANY"], **self.known}
        self.serve(command)
        roots = json.loads(self.ask("GET", "/api/workspace-roots")[1])
        self.assertEqual(sorted(x["name"] for x in roots), ["private", "projects"])
        with open(self.top + "/srv/projects/shop/Makefile", "w", encoding="ascii") as out:
            out.write("test:\n\techo done >result\n")
        body = re.search(r"`(\{\"workspaceRoot\".*?\})`", guide(), re.S).group(1)
        status, answer = self.ask("POST", f"/api/environments/{self.environment}/runs?companyId={self.known['COMPANY']}",
                                  body if shutil.which("make") else body.replace("make test", "echo done >result"))
        self.assertEqual(status, 202, answer)
        path = "/api/runs/" + json.loads(answer)["id"]
        run = wait_for("its end", lambda: (lambda r: r if r["endedAt"] else None)(json.loads(self.ask("GET", path)[1])))
        self.assertEqual((run["status"], run["workKept"]), ("succeeded", False), self.log)
        with open(self.top + "/srv/projects/shop/result", encoding="ascii") as got:
            self.assertEqual(got.read(), "done\n")
        # The other body of the text is one that the route takes.
        body = re.search(r"`(\{\"paths\".*?\})`", guide(), re.S).group(1)
        self.assertEqual(self.ask("POST", path + "/apply", body)[0], 200)

    def credentials(self):
        """As systemd would show them."""
        where = self.top + "/credentials"
        shutil.rmtree(where, ignore_errors=True)
        os.mkdir(where)
        for name, file in (("airlock-seal-key", "seal.key"), ("airlock-seal-key-old", "seal-old.key")):
            if os.path.exists(self.put("/etc/airlock/" + file)):
                shutil.copy(self.put("/etc/airlock/" + file), f"{where}/{name}")
        self.env["CREDENTIALS_DIRECTORY"] = where

    def before_rotation(self, command):
        self.stop()
        # A service that has its key as a credential, and a secret that is sealed with it.
        shutil.move(self.top + "/state/airlock/seal.key", self.put("/etc/airlock/seal.key"))
        self.credentials()
        self.serve("airlock serve --mode authenticated")
        status, answer = self.ask("POST", f"/api/companies/{self.known['COMPANY']}/secrets", {"name": "s", "value": "v"})
        self.assertEqual(status, 201, answer)
        self.run_it(command)

    def rotated(self, command):
        self.run_it(command)
        self.assertEqual(os.stat(self.put("/etc/airlock/seal.key")).st_mode & 0o777, 0o600)
        self.credentials()
        self.serve("airlock serve --mode authenticated")
        self.assertTrue(any("sealed with the new key" in x for x in self.log), self.log)
        os.unlink(self.put("/etc/airlock/seal-old.key"))
        self.credentials()
        self.serve("airlock serve --mode authenticated")
        self.assertFalse(any("sealed" in x for x in self.log), self.log)

    def watched(self, command):
        p = subprocess.Popen(["sh", "-c", "exec " + self.put(command).replace("curl ", "curl -sS ")], env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            self.assertTrue(p.stdout.readline())
        finally:
            p.kill()
            p.wait()
            p.stdout.close()


class Words(unittest.TestCase):
    def test_routes_are_there(self):
        there = json.loads(subprocess.run([PROGRAMS + "/airlockd", "--openapi"], capture_output=True, check=True).stdout)["paths"]
        routes = [re.sub(r"\{[^}]*\}", "*", x) for x in there] + ["/metrics", "/api/health", "/api/ready"]
        named = re.findall(r"`(?:(?:GET|POST|PATCH|DELETE)\s+)?(/(?:api/|metrics)[^`?\s]*)", guide())
        self.assertGreater(len(named), 12)
        for path in named:
            self.assertIn(re.sub(r"/ID(?=/|$)", "/*", path), routes)

    def test_options_and_verbs_are_there(self):
        def said(*words):
            return subprocess.run([PROGRAMS + "/" + words[0], *words[1:]], capture_output=True, text=True, check=False).stdout
        verbs = set(re.findall(r"`airlock ([a-z][a-z-]*)", guide())) | set(re.findall(r"^    airlock ([a-z-]+)", guide(), re.M))
        helps = {v: said("airlock", "help", v) for v in verbs}
        self.assertGreater(len(verbs), 6)
        self.assertEqual([v for v, text in helps.items() if "Usage" not in text], [])
        every = said("airlockd", "--help") + "".join(helps.values())
        for option in set(re.findall(r"`(--[a-z][a-z-]*)", guide())) | set(re.findall(r" (--[a-z][a-z-]*)", "\n".join(
                x for x in commands() if x.startswith("airlock")))):
            self.assertRegex(every, re.escape(option) + r"\b", option)


if __name__ == "__main__":
    if APART not in os.environ:
        os.environ[APART] = "1"
        words = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        os.execvp("unshare", [*words, "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", sys.executable, *sys.argv])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
