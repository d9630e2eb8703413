"""Opens what was given: a file, a folder, an archive, standard input. Nothing is written under a name.

Whatever cannot be read becomes one sentence in `Opening.notes`; archives are untrusted: names that lead out of them,
links, devices and members that unpack to far more than they weigh are refused by name.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from infradoc.artefacts import magic, richtext
from infradoc.artefacts.decode import HoleyFile, LineReader, Readable
from infradoc.artefacts.dense import Runs
from infradoc.artefacts.notes import Notes
from infradoc.artefacts.rotation import ending_of, group_of, most_telling, order_key
from infradoc.artefacts.unpack import BROKEN, MAX_UNPACKED, Bounded, Budget, seekable, unpacker
from infradoc.errors import InfradocError, visible

MAX_FILES = 2_000
MAX_LISTED = 50_000  # of which the most telling MAX_FILES are read
MAX_DEPTH = 8
MAX_NESTING = 2  # a .gz in a .tar in a .zip is the deepest that is opened
_LABEL = re.compile(rb"^expect *:", re.MULTILINE)


class ArtefactError(InfradocError):
    """There is nothing to read; says why and what would help."""


@dataclass(slots=True)
class Text:
    """One text: its name, and its lines in batches. `group` is the log that it is a rotated part of."""

    name: str
    group: str
    reader: LineReader


@dataclass
class Opening:
    """What was found. `texts` opens one after another, so only one is held at a time."""

    name: str
    notes: Notes = field(default_factory=Notes)
    budget: Budget = field(default_factory=Budget)
    runs: Runs = field(default_factory=Runs)
    _listed: int = 0

    def texts(self, path: Path | None, endings: tuple[str, ...] = ("",)) -> Iterator[Text]:
        """The texts below `path`; None is standard input. Of a folder only files whose names end so.

        Raises ArtefactError for a path that is not there.
        """
        if path is None and sys.stdin is None:
            raise ArtefactError("Standard input is closed.", "Pipe the text into it, or give a file.")
        if path is None:
            yield from self._stream("(stdin)", sys.stdin.buffer)
            return
        if not path.exists():
            raise ArtefactError(f"There is no {path}.", "Check the path.")
        try:
            found = self._files(path) if path.is_dir() else [path]
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror}.", "Check its rights.") from error
        for file in found:
            if not file.name.endswith(endings) and file != path:
                continue
            yield from self._file(file, str(file.relative_to(path)) if file != path else path.name)

    def _files(self, root: Path) -> list[Path]:
        """The files of a folder, parts of a rotated log oldest first; of too many those that look most like logs."""
        kept, left = most_telling(list(self._walk(root, root, 0)), MAX_FILES, str)
        if left or self._listed >= MAX_LISTED:
            self.notes.add("surplus", self.name, limit=MAX_FILES)
        return sorted(kept, key=lambda file: order_key(str(file)))

    def _walk(self, root: Path, folder: Path, depth: int) -> Iterator[Path]:
        if depth > MAX_DEPTH:
            self.notes.add("deep", str(folder.relative_to(root)), limit=MAX_DEPTH)
            return
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            if folder == root:
                raise
            self.notes.add("unreadable", str(folder.relative_to(root)), why=error.strerror)
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.is_symlink():
                    self.notes.add("link", str(entry.relative_to(root)))
                else:
                    yield from self._walk(root, entry, depth + 1)
            elif self._listed >= MAX_LISTED:
                return
            else:
                self._listed += 1
                yield entry

    def _file(self, file: Path, name: str) -> Iterator[Text]:
        try:
            mode = file.stat().st_mode
            if not stat.S_ISREG(mode):
                self.notes.add("special", name)
                return
            with open(file, "rb", opener=_at_once) as handle:
                yield from self._stream(name, handle)
        except OSError as error:
            self.notes.add("unreadable", name, why=error.strerror or error)

    def _stream(self, name: str, handle: IO[bytes], nesting: int = 0) -> Iterator[Text]:
        source: Readable = handle
        if nesting == 0 and name != "(stdin)" and HoleyFile.wanted(handle):
            source = HoleyFile(handle)
        head = _head(source)
        if not head:
            # What breaks off at once, or may give nothing any more, is named by who unpacks it.
            if not getattr(source, "broken", "") and not getattr(source, "stopped", False):
                self.notes.add("zeros" if isinstance(source, HoleyFile) else "empty", name)
            return
        if head.startswith(magic.RTF):
            whole = _up_to(source, head, richtext.MOST_BYTES)
            yield Text(visible(name), group_of(name), LineReader(io.BytesIO(), richtext.text_of(whole).encode()))
            return
        document = magic.document_kind(head)
        if document is not None:
            self.notes.add("document", name, what=document)
            return
        packing = magic.packing_of(head)
        if packing is not None:
            yield from self._packed(name, handle, head, packing, nesting)
            return
        if magic.is_image(head):
            self.notes.add("image", name)
            return
        kind = magic.binary_kind(head)
        if kind is not None:
            self.notes.add("binary", name, what=kind)
            return
        if PurePosixPath(name).name == "label.yaml" and _LABEL.search(head):
            self.notes.add("label", name)
            return
        reader = LineReader(source, head, self.runs)
        yield Text(visible(name), group_of(name), reader)
        if reader.cut:
            self.notes.add("long", name, count=reader.cut)
        if reader.thinned.cut:
            self.notes.add("short", name, count=reader.thinned.cut)
        if reader.thinned.unread:
            self.notes.add("dense", name, count=reader.thinned.unread)
        if reader.failed:
            self.notes.add("unreadable", name, why=reader.failed)

    def _packed(
        self, name: str, handle: IO[bytes], head: bytes, packing: magic.Packing, nesting: int
    ) -> Iterator[Text]:
        """What is packed in `handle`, of which `head` was read."""
        if nesting >= MAX_NESTING:
            self.notes.add("nested", name)
            return
        try:
            with seekable(handle, head) as whole:
                share = handle.share if isinstance(handle, Bounded) else 1.0
                if packing == "zip":
                    yield from self._zip(name, whole, nesting, share)
                elif packing == "tar":
                    yield from self._tar(name, whole, nesting, share)
                else:
                    yield from self._compressed(name, whole, packing, nesting, share)
        except BROKEN as error:
            why = " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
            self.notes.add("damaged", name, why=why)

    def _compressed(
        self, name: str, whole: IO[bytes], packing: magic.Packing, nesting: int, share: float
    ) -> Iterator[Text]:
        whole.seek(0)
        opener = unpacker(packing)
        if opener is None:
            self.notes.add("zstd", name)
            return
        bounded = Bounded(opener(whole), self.budget, whole.tell, share=share)
        inner = name[: -len(ending)] if (ending := ending_of(name)) else name
        inner = inner + ".tar" if name.endswith(".tgz") else inner
        yield from self._bounded(inner, bounded, nesting)

    def _bounded(self, name: str, bounded: Bounded, nesting: int) -> Iterator[Text]:
        yield from self._stream(name, bounded, nesting + 1)  # type: ignore[arg-type]
        if bounded.stopped:
            self.notes.add("bomb" if self.budget.left > 0 else "budget", name, limit=MAX_UNPACKED >> 30)
        if bounded.broken:
            self.notes.add("broken" if bounded.given else "damaged", name, why=bounded.broken)

    def _tar(self, name: str, whole: IO[bytes], nesting: int, share: float) -> Iterator[Text]:
        whole.seek(0)
        with tarfile.open(fileobj=whole, mode="r:") as archive:
            members = self._members(name, archive)
            size = whole.seek(0, io.SEEK_END)
            for member in sorted(members, key=lambda one: order_key(one.name)):
                handle = archive.extractfile(member)
                if handle is not None:
                    there = member.size if member.sparse else min(member.size, size - member.offset_data)
                    bounded = Bounded(handle, self.budget, most=there, share=share)
                    yield from self._bounded(f"{name}/{member.name}", bounded, nesting)

    def _members(self, name: str, archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
        """The files of an archive, also of one that was cut off: then those before that place."""
        members: list[tarfile.TarInfo] = []
        count = 0
        try:
            for member in archive:
                count += 1
                if count > MAX_LISTED:
                    break
                if self._allowed(name, member.name, member.isreg(), member.isdir(), member.issym() or member.islnk()):
                    members.append(member)
        except tarfile.TarError as error:
            self.notes.add("broken" if count else "damaged", name, why=str(error).rstrip("."))
        kept, left = most_telling(members, MAX_FILES, lambda member: member.name)
        if left or count > MAX_LISTED:
            self.notes.add("surplus", name, limit=MAX_FILES)
        return kept

    def _zip(self, name: str, whole: IO[bytes], nesting: int, share: float) -> Iterator[Text]:
        whole.seek(0)
        with zipfile.ZipFile(whole) as archive:
            infos, left = most_telling(archive.infolist(), MAX_FILES, lambda one: one.filename)
            if left:
                self.notes.add("surplus", name, limit=MAX_FILES)
            kept = [
                one
                for one in infos
                if self._allowed(
                    name, one.filename, not one.is_dir(), one.is_dir(), stat.S_ISLNK(one.external_attr >> 16)
                )
            ]
            for info in sorted(kept, key=lambda one: order_key(one.filename)):
                if info.flag_bits & 1:
                    self.notes.add("locked", f"{name}/{info.filename}")
                    continue
                with archive.open(info) as handle:
                    start = whole.tell()
                    used: Callable[[], int] = lambda start=start: whole.tell() - start  # type: ignore[misc]  # noqa: E731
                    bounded = Bounded(handle, self.budget, used, share=share)
                    yield from self._bounded(f"{name}/{info.filename}", bounded, nesting)

    def _allowed(self, archive: str, name: str, regular: bool, folder: bool, link: bool) -> bool:
        parts = PurePosixPath(name.replace("\\", "/"))
        if link:
            self.notes.add("link", f"{archive}/{name}")
        elif ".." in parts.parts or parts.is_absolute() or re.match(r"^[A-Za-z]:", name):
            self.notes.add("path", f"{archive}/{name}")
        elif not regular and not folder:
            self.notes.add("special", f"{archive}/{name}")
        else:
            return regular and not any(part.startswith((".", "__MACOSX")) for part in parts.parts)
        return False


def _at_once(path: str, flags: int) -> int:
    """Opens a file so that no read waits: some below /proc call themselves ordinary and wait for what never comes."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _head(source: Readable) -> bytes:
    return _up_to(source, b"", magic.HEAD)


def _up_to(source: Readable, data: bytes, most: int) -> bytes:
    """`data` and what follows, up to `most` bytes."""
    held = bytearray(data)
    while len(held) < most:
        more = source.read(min(1 << 20, most - len(held)))
        if not more:
            break
        held += more
    return bytes(held)
