"""Reads files that people name and that ought to be small: secrets, launch commands, load specs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 1 << 20  # far above any key or command line that somebody would write down


def read_small(path: Path) -> bytes:
    """The whole content. Raises OSError, whose `strerror` says why: also for what is no file, and beyond MAX_BYTES.

    A pipe without a writer or an endless device would hold the command for ever.
    """
    with open_regular(path) as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(0, f"it is larger than {MAX_BYTES >> 20} MiB")
    return content


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read and closed. Raises OSError as `read_small`: a folder, device or pipe is no regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its writer
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(0, "it is a folder" if stat.S_ISDIR(mode) else "it is no regular file")
    return os.fdopen(handle, "rb")
