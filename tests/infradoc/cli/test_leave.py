"""The end of a command while a thread is in the middle of a match."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """
import atexit, sys, threading, time
import re2
from infradoc.cli.leave import leave_behind_threads

text, started = "ab" * 2_000_000, threading.Event()
pattern = re2.compile("(a|b|ab|ba)*c")

def match():
    while True:
        started.set()
        pattern.search(text)

atexit.register(lambda: print("tidied", flush=True))
threading.Thread(target=match, daemon={daemon}).start()
started.wait()
time.sleep(0.05)
print("told", end=" ")
leave_behind_threads(7)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("_", range(3))
def test_a_thread_in_a_match_does_not_abort_the_end(_: int) -> None:
    done = run(WORK.replace("{daemon}", "True"))
    assert (done.returncode, done.stdout, done.stderr) == (7, "told tidied\n", "")


def test_without_threads_or_with_work_to_finish_the_end_is_the_usual_one() -> None:
    assert run("from infradoc.cli.leave import leave_behind_threads as leave; leave(7); print(1)").stdout == "1\n"
    waits = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start()\n"
    done = run(f"{waits}from infradoc.cli.leave import leave_behind_threads as leave; leave(7); print(1)")
    assert (done.returncode, done.stdout) == (0, "1\ndone\n")
