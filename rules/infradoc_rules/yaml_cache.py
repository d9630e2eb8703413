"""Packaged YAML, already parsed: rules, patterns and tables take a third of a command's time to read otherwise.

Kept where Python keeps its compiled modules, in `__pycache__`, under the same switch (`PYTHONDONTWRITEBYTECODE`) and
with the same trust; where the installation is another one's, in the user's own cache folder. Nothing but plain data is
in it (marshal, no pickle), and a file that somebody else than this user, root or the owner of the program has written
or may write is not read. An entry counts only while its file has the size and the time of change that it was made from.
"""

from __future__ import annotations

import atexit
import marshal
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_NAME = f"yaml.{sys.implementation.cache_tag}.marshal"
_FILE = Path(__file__).with_name("__pycache__") / _NAME

State = tuple[int, ...]  # time of change in ns and size, of each file that an entry was made from
Entry = tuple[State, bytes]


def _own_file() -> Path:
    """Where this user's cache lies. Asked for only by installations that are not this user's."""
    import platformdirs

    folder = platformdirs.user_cache_path("infradoc")
    return folder / _NAME if folder.is_absolute() else _FILE  # of a user without a home it is "~", below here


class YamlCache:
    """Documents by path. Read when first asked; written at the end of the process if anything was new.

    `file` is beside the program, `own` the user's, read when the first has not what is asked for and written when the
    first cannot be. `by` names the files of the program that made something else of a document: when they change, it
    is made anew.
    """

    def __init__(self, file: Path = _FILE, own: Callable[[], Path] = _own_file) -> None:
        self._file, self._own = file, own
        self._read: list[dict[str, Entry]] = []  # of the first file, then of the user's
        self._new: dict[str, Entry] = {}
        self._states: dict[Path, State] = {}

    def get(self, path: Path, by: Sequence[Path] = ()) -> tuple[bool, Any]:
        """Whether what was made of `path` is here and current, and it itself."""
        key, state = _key(path, by), self._state(path, by)
        for held in self._layers():
            entry = held.get(key)
            if entry is not None and entry[0] == state:
                return True, marshal.loads(entry[1])
        return False, None

    def put(self, path: Path, document: Any, by: Sequence[Path] = ()) -> None:
        """Keep what was made of `path`. What marshal cannot hold (a date) is made anew each time."""
        try:
            data = marshal.dumps(document)
        except ValueError:
            return
        if not self._new:
            atexit.register(self.save)
        self._new[_key(path, by)] = (self._state(path, by), data)

    def _layers(self) -> Iterator[dict[str, Entry]]:
        yield self._new
        if not self._read:
            self._read.append(_entries(self._file))
        yield self._read[0]
        if len(self._read) == 1:
            self._read.append(_entries(self._own()))
        yield self._read[1]

    def _state(self, path: Path, by: Sequence[Path]) -> State:
        made = [self._states.get(file) or self._states.setdefault(file, _seen(file)) for file in by]
        return sum(made, _seen(path))

    def save(self) -> None:
        """Write what is held, all or nothing. Where that is allowed nowhere the next start takes as long as this."""
        if not self._new or sys.dont_write_bytecode:
            return
        now = _entries(self._file)  # another process may have written since
        held = {key: entry for layer in (*self._read, now, self._new) for key, entry in layer.items()}
        data = marshal.dumps(held)
        # Readable as the program is, which may be root's and run by others.
        mode = stat.S_IMODE(Path(__file__).stat().st_mode) & 0o644 | 0o200
        if not _written(self._file, data, mode):
            _written(self._own(), data, 0o600)


def _entries(file: Path) -> dict[str, Entry]:
    try:
        held = marshal.loads(_trusted(file))
    except (OSError, ValueError, EOFError, TypeError):  # not there yet, or cut off: it is made again
        return {}
    return held if isinstance(held, dict) else {}


def _written(file: Path, data: bytes, mode: int) -> bool:
    """Whether the whole file could be written."""
    try:
        file.parent.mkdir(mode=0o755 if mode & 0o044 else 0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)
    except OSError:  # an installation that only its owner may write to
        return False
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).chmod(mode)
        Path(name).replace(file)
    except OSError:  # a full disk
        Path(name).unlink(missing_ok=True)
        return False
    return True


def _trusted(file: Path) -> bytes:
    """The bytes of a file that no stranger wrote or may write. Raises OSError for another one."""
    with file.open("rb") as handle:
        seen = os.fstat(handle.fileno())
        if hasattr(os, "geteuid"):
            owners = {os.geteuid(), 0, Path(__file__).stat().st_uid}
            if seen.st_uid not in owners or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(f"{file} may be written by others")
        return handle.read()


def _key(path: Path, by: Sequence[Path]) -> str:
    return "\n".join(map(str, (path, *by)))


def _seen(path: Path) -> State:
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_size


CACHE = YamlCache()
