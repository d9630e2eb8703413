"""A damaged file is set aside under a name with the time, and a new one with what could be saved takes its place."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infradoc.sqlite.file import Kind, SqliteFile
from infradoc.sqlite.salvage import Sound, salvaged

_BESIDES = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done: the file's new name, and how many rows of each table were saved."""

    aside: Path
    saved: dict[str, int]

    def sentence(self, why: str, kept: Sequence[str]) -> str:
        """For people: `why` is a sentence, `kept` says in words what was saved."""
        saved = f"saved from it: {', '.join(kept)}" if any(self.saved.values()) else "nothing could be read from it"
        return f"{why} It was set aside as {self.aside.name}; {saved}."


def mend(path: Path, kind: Kind, sound: Sound, now: float) -> Mended:
    """Put a sound file in the place of a damaged one. Raises the error of `kind`; then the damaged one is still there.

    In this order: at no moment is there no file of that name, for whoever has it open would make one.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        for name in ("", *_BESIDES):
            fresh.with_name(fresh.name + name).unlink(missing_ok=True)
        made = SqliteFile(fresh, kind)
        try:
            saved = salvaged(path, kind, made, sound)
        finally:
            made.close()
        aside = _free_name(path, now)
        _link(path, aside)
        for name in _BESIDES:  # a log of the old file would be taken for one of the new file
            with suppress(FileNotFoundError):
                path.with_name(path.name + name).rename(aside.with_name(aside.name + name))
        fresh.replace(path)
    except OSError as error:
        message = f"The damaged {kind.what} {path} cannot be set aside: {error.strerror}."
        raise kind.error(message, kind.elsewhere) from error
    return Mended(aside, saved)


def _link(path: Path, aside: Path) -> None:
    try:
        os.link(path, aside)
    except OSError:  # a file system without links
        path.rename(aside)


def _free_name(path: Path, now: float) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    name = f"{path.name}.damaged-{stamp}"
    number = 1
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.damaged-{stamp}-{number}"
    return path.with_name(name)
