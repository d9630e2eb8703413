"""Writes a recording: the raw pages and rows of one target, in the files that `Recording` reads."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from infradoc.errors import InfradocError

_FLUSH_ROWS = 5


class RecordingWriter:
    """Collects into a folder; when the name asks for an archive, packs the folder at the end and removes it.

    Pages are flushed every few rows, so that a recorder that is killed loses seconds, not the recording.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.packed = out.name.endswith((".tar.gz", ".tgz"))
        if self.packed and out.exists():
            raise InfradocError(f"{out} exists already.", "Give another name with -o.")
        if not self.packed and out.is_dir() and any(out.iterdir()):
            raise InfradocError(f"{out} is not empty.", "Give another folder with -o.")
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".infradoc-", dir=out.parent)) if self.packed else out
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InfradocError(f"{out} cannot be written: {error.strerror}.", "Give another place with -o.") from error
        self._streams: dict[str, TextIO] = {}
        self._pending: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self._unwanted = False

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def row(self, name: str, row: dict[str, Any]) -> None:
        """Append one JSON line to a `.jsonl.gz` file."""
        self.line(name, json.dumps(row, ensure_ascii=False, separators=(",", ":")))

    def line(self, name: str, line: str) -> None:
        """Append one line to a file."""
        stream = self._streams.get(name)
        if stream is None:
            path = self._folder / name
            if name.endswith(".gz"):
                stream = io.TextIOWrapper(gzip.GzipFile(path, "wb"), encoding="utf-8")
            else:
                stream = path.open("w", encoding="utf-8")
            self._streams[name] = stream
        stream.write(line + "\n")
        self.rows[name] = self.rows.get(name, 0) + 1
        self._pending[name] = self._pending.get(name, 0) + 1
        if self._pending[name] >= _FLUSH_ROWS:
            stream.flush()
            self._pending[name] = 0

    def text(self, name: str, text: str) -> None:
        """Write a whole small file."""
        (self._folder / name).write_text(text, encoding="utf-8")

    def discard(self) -> None:
        """Leave nothing at the end: nobody diagnoses what holds no page, and it would stand in the way of a retry."""
        self._unwanted = True

    def close(self) -> None:
        """Finish all files and pack them if asked to. May be called twice."""
        for stream in self._streams.values():
            stream.close()
        self._streams = {}
        if not self._folder.exists():
            return
        if self.packed and not self._unwanted:
            self._pack()
        if self.packed or self._unwanted:
            self._remove()

    def _pack(self) -> None:
        part = self.out.with_name(self.out.name + ".part")
        root = self.out.name.removesuffix(".tar.gz").removesuffix(".tgz")
        with tarfile.open(part, "w:gz", compresslevel=6) as archive:
            for path in sorted(self._folder.iterdir()):
                archive.add(path, arcname=f"{root}/{path.name}")
        part.replace(self.out)

    def _remove(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()
