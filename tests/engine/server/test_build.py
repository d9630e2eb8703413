"""What the start leaves behind for the engine thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: the teams of this one belong to other tests.
SCRIPT = """
import os, torch
torch.set_num_threads(2)
a = torch.randn(512, 512)
(a @ a).relu_().sum()
def tasks(): return len(os.listdir("/proc/self/task"))
from infradoc_engine.server.build import leave_threads
before = tasks()
left = leave_threads()
print(int(left), before - tasks())
(a @ a).relu_().sum()  # and it can be had again
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_the_loading_thread_keeps_no_compute_threads() -> None:
    """A second OpenMP team beside an idle one makes every barrier of a step sleep: 20.2 ms a step instead of 14.9."""
    done = subprocess.run([sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    left, ended = done.stdout.split()
    assert left == "1"  # torch's Linux wheels bring libgomp
    assert int(ended) >= 1
