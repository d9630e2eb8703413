"""The end of the process while a thread of it still works."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress


def leave_behind_threads(code: int) -> None:
    """End the process with `code` when only daemon threads are left at work; else return, for the usual end.

    Python stops such a thread by unwinding its stack. In the middle of a match that goes through C++ (RE2), whose
    runtime takes this for a fault: "terminate called without an active exception", and the exit code is 134.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not others or not all(thread.daemon for thread in others):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # told by the command already, or closed
            stream.flush()
    os._exit(code)
