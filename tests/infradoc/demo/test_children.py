"""The demo's processes: started, watched, and gone afterwards on every way out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infradoc.demo.children import Child, ChildError, start_engine


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="no-such-model"):
        start_engine("no-such-model", (), tmp_path)


def test_a_child_that_ends_is_noticed() -> None:
    with Child("helper", ["--version"]) as child, pytest.raises(ChildError, match="The helper ended with code 0"):
        child.wait_for(re.compile("(never)"), 20.0)
    assert not child.running


def below(pid: int) -> list[psutil.Process]:
    """All processes that a process started, at any depth."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_leaves_nothing_behind(number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-P", "-m", "infradoc", "demo", "--only", "kv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "load starts" in line:
                break
        while len(below(demo.pid)) < 2:  # engine and load
            assert demo.poll() is None
            time.sleep(0.05)
        family = below(demo.pid)
        os.kill(demo.pid, number)
        out, err = demo.communicate(timeout=60)
    finally:
        demo.kill()
    assert demo.returncode == (-9 if number == signal.SIGKILL else 130), err
    assert "Traceback" not in out + err
    gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == [] and len(gone) == len(family)
