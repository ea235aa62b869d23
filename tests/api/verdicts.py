"""What these tests show, written down for the agent-access map of the build that they ran (src/api/access.h).

A test says in its name or the first lines of its doc text which requirements it shows ("CF-01", "test_PR_09_..."). With
AIRLOCK_ACCESS_RESULTS=FILE its outcome goes there, under the build id of the airlockd that was tested: outcomes of another
build that lie in FILE are dropped, those of other test programs stay. Names are sorted and there are no times, so that
the same outcomes are the same bytes.
"""
import fcntl
import hashlib
import json
import os
import re
import subprocess
import unittest

IDS = re.compile(r"\b(?:CF|CP|PR|AS|IM)[-_]\d\d(?!\d)")
ACTORS = {"N": "anonymous", "A": "agent_key", "J": "agent_jwt", "U": "board_without_company", "M": "board_member",
          "V": "board_viewer"}
_denials = {}


def ids_of(test):
    method = getattr(test, "_testMethodName", "")
    # A name is one word: boundaries are its underscores.
    return sorted({x.replace("_", "-") for x in re.findall(r"(?<![A-Za-z])(?:CF|CP|PR|AS|IM)_\d\d(?!\d)", method)}
                  | set(IDS.findall(getattr(test, "_testMethodDoc", None) or "")))


def denial(operation, who, outcome):
    """An actor asks for what is not for it: failed until it is shown."""
    _denials[operation, ACTORS[who]] = outcome


def shown(operation, who):
    denial(operation, who, "passed")


class Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen, self.ran = {}, set()

    def note(self, test, outcome):
        test = getattr(test, "test_case", test)  # of a subtest
        self.ran.add(test.id())
        if self.seen.get(test.id()) != "failed" and ids_of(test):
            self.seen[test.id()] = outcome
            self.seen[test.id(), "ids"] = ids_of(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.note(test, "failed")

    def checks(self, name):
        """What they said, and the names of all that ran."""
        def of(key):
            return f"{name}.{key.removeprefix('__main__.')}"
        return [{"id": i, "test": of(key), "outcome": self.seen[key]}
                for key in self.seen if isinstance(key, str) for i in self.seen[key, "ids"]], {of(key) for key in self.ran}


def digest(doc):
    text = json.dumps({k: v for k, v in doc.items() if k != "digest"}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(doc):
    return {**doc, "digest": digest(doc)}


def build_id(programs):
    out = subprocess.run([programs + "/airlockd", "--access-map", "--json"], capture_output=True, check=True).stdout
    return json.loads(out)["build"]


def write(path, build, checks, denials, ran=()):
    """Adds to what was said of the same build before, but for the tests that ran again."""
    with open(path + ".lock", "a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(path, encoding="utf-8") as f:
                old = json.load(f)
        except (OSError, ValueError):
            old = {}
        if old.get("build") != build or old.get("digest") != digest(old):
            old = {}
        checks = checks + [c for c in old.get("checks", []) if c["test"] not in ran]
        there = {(x["operation"], x["actor"]): x["outcome"] for x in old.get("denials", [])} | denials
        doc = sealed({"format": 1, "build": build,
                      "checks": sorted(checks, key=lambda c: (c["id"], c["test"])),
                      "denials": [{"operation": o, "actor": a, "outcome": x} for (o, a), x in sorted(there.items())]})
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(doc, f, indent=1, sort_keys=True)
            f.write("\n")
        os.rename(path + ".new", path)


def main(argv, name, programs):
    """unittest.main, with AIRLOCK_ACCESS_RESULTS obeyed. AIRLOCK_ACCESS_ONLY: only tests that show a requirement."""
    path = os.environ.get("AIRLOCK_ACCESS_RESULTS")
    loader = unittest.TestLoader()
    if os.environ.get("AIRLOCK_ACCESS_ONLY"):
        names = loader.getTestCaseNames
        loader.getTestCaseNames = lambda case: [n for n in names(case) if ids_of(case(n))]
    runner = unittest.TextTestRunner(resultclass=Result)
    p = unittest.main(argv=argv, testRunner=runner, testLoader=loader, exit=False)
    if path:
        checks, ran = p.result.checks(name)
        write(path, build_id(programs), checks, _denials, ran)
    raise SystemExit(not p.result.wasSuccessful())
