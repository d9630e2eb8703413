"""A command of infradoc that ends with the process that started it: `python -m infradoc.demo.child COMMAND ...`."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends, even by SIGKILL. Nothing off Linux."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it ended before it was asked
        sys.exit(1)


if __name__ == "__main__":
    end_with_parent()
    runpy.run_module("infradoc", run_name="__main__", alter_sys=True)
