"""Packaged YAML, already parsed: rules, patterns and tables take a third of a command's time to read otherwise.

Kept where Python keeps its compiled modules, in `__pycache__`, under the same switch (`PYTHONDONTWRITEBYTECODE`) and
with the same trust. An entry counts only while its file has the size and the time of change that it was made from.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("__pycache__") / f"yaml.{sys.implementation.cache_tag}.marshal"

Entry = tuple[int, int, bytes]  # time of change in ns, size, the document


class YamlCache:
    """Documents by path. Read when first asked; written at the end of the process if anything was new."""

    def __init__(self, file: Path = _FILE) -> None:
        self._file = file
        self._entries: dict[str, Entry] | None = None
        self._new = False

    def get(self, path: Path) -> tuple[bool, Any]:
        """Whether the document of `path` is here and current, and the document."""
        entry = self._held().get(str(path))
        if entry is None or entry[:2] != _state(path):
            return False, None
        return True, marshal.loads(entry[2])

    def put(self, path: Path, document: Any) -> None:
        """Keep the document of `path`. One that marshal cannot hold (a date) is read anew each time."""
        try:
            data = marshal.dumps(document)
        except ValueError:
            return
        self._held()[str(path)] = (*_state(path), data)
        if not self._new:
            self._new = True
            atexit.register(self.save)

    def _held(self) -> dict[str, Entry]:
        if self._entries is None:
            try:
                held = marshal.loads(self._file.read_bytes())
                self._entries = held if isinstance(held, dict) else {}
            except (OSError, ValueError, EOFError, TypeError):  # not there yet, or cut off: it is made again
                self._entries = {}
        return self._entries

    def save(self) -> None:
        """Write what is held, all or nothing. Where that is not allowed the next start takes as long as this one."""
        if not self._new or sys.dont_write_bytecode:
            return
        try:
            self._file.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent)
            with os.fdopen(handle, "wb") as out:
                out.write(marshal.dumps(self._held()))
            Path(name).replace(self._file)
        except OSError:  # an installation that only its owner may write to, as with compiled modules
            return


def _state(path: Path) -> tuple[int, int]:
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_size


CACHE = YamlCache()
