"""Directories of tests that go with the test's process, also when it failed, was interrupted or took too long.

A forked child removes nothing, and a directory that the test removed itself is no error. scratch.c does it for C.
"""
import atexit
import os
import shutil
import signal
import subprocess
import tempfile

_made = []  # with the process that made it


def directory(prefix, dir=None):  # pylint: disable=redefined-builtin
    """As tempfile.mkdtemp."""
    if not _made:
        atexit.register(remove_all)
        # What meson sends when the time is over. Children start with the default, as if this were not here.
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _ended)
    _made.append((os.getpid(), tempfile.mkdtemp(prefix=prefix, dir=dir)))
    return _made[-1][1]


def remove(path):
    """With whatever modes are in it: an overlay's own directory has none, and an ordinary user could not walk it."""
    if os.path.lexists(path):
        subprocess.run(["chmod", "-R", "u+rwX", path], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(path, ignore_errors=True)


def remove_all():
    """What this process made; for a child that ends with os._exit, too."""
    for maker, path in _made:
        if maker == os.getpid():
            remove(path)


def _ended(signo, _frame):
    remove_all()
    signal.signal(signo, signal.SIG_DFL)
    os.kill(os.getpid(), signo)
