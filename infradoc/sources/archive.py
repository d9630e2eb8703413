"""Reads the files of a recording from a folder or a `.tar.gz`, the latter in memory and without touching the disk.

An archive is untrusted: only known names are taken, by their last path part; links, devices and surplus are skipped,
and the unpacked size is bounded.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from infradoc.errors import InfradocError

KNOWN_FILES = frozenset(
    {
        "scrapes.jsonl.gz",
        "host.jsonl.gz",
        "gpu.jsonl.gz",
        "events.jsonl.gz",
        "client.jsonl",
        "server.log",
        "launch.txt",
        "meta.json",
    }
)
LOG_SUFFIXES = (".log",)
# What only `infradoc record` writes: a folder without any of them is a pile of artefacts, whatever its logs are called.
RECORDED_FILES = frozenset({"scrapes.jsonl.gz", "host.jsonl.gz", "gpu.jsonl.gz", "events.jsonl.gz", "client.jsonl"})
MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_MEMBERS = 10_000
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


class RecordingError(InfradocError):
    """A recording cannot be read; one sentence that names the file."""


def is_archive(path: Path) -> bool:
    """Whether a file looks like an archive by its name."""
    return path.name.endswith(ARCHIVE_SUFFIXES)


def holds_recording(path: Path) -> bool:
    """Whether a folder or an archive is what `infradoc record` wrote; an archive that cannot be read counts as one."""
    if path.is_dir():
        return any((path / name).is_file() for name in RECORDED_FILES)
    if not is_archive(path) or not path.is_file():
        return False
    try:
        with tarfile.open(path, "r:*") as archive:
            names = (PurePosixPath(member.name).name for member, _ in zip(archive, range(MAX_MEMBERS), strict=False))
            return any(name in RECORDED_FILES for name in names)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return True


class RecordingFiles:
    """The known files of one recording by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members: dict[str, bytes | Path] = {}
        if path.is_dir():
            self._from_folder()
        elif path.is_file() and is_archive(path):
            self._from_archive()
        elif path.is_file():
            raise RecordingError(f"{path} is no recording.", "Give a folder or a .tar.gz that `infradoc record` wrote.")
        else:
            raise RecordingError(f"There is no {path}.", "Check the path.")
        if not self._members:
            raise RecordingError(
                f"{path} holds none of the files of a recording ({', '.join(sorted(KNOWN_FILES))}).",
                "Is it the right folder?",
            )

    def _from_folder(self) -> None:
        try:
            for entry in sorted(self.path.iterdir()):
                if (entry.name in KNOWN_FILES or entry.name.endswith(LOG_SUFFIXES)) and entry.is_file():
                    self._members[entry.name] = entry
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _from_archive(self) -> None:
        total = 0
        try:
            with tarfile.open(self.path, "r:*") as archive:
                for count, member in enumerate(archive):
                    if count > MAX_MEMBERS:
                        raise RecordingError(f"{self.path} has more than {MAX_MEMBERS} entries.", "It is no recording.")
                    name = PurePosixPath(member.name).name
                    wanted = name in KNOWN_FILES or name.endswith(LOG_SUFFIXES)
                    if not member.isreg() or not wanted or name in self._members:
                        continue
                    total += member.size
                    if total > MAX_FILE_BYTES:
                        raise RecordingError(
                            f"{self.path} unpacks to more than {MAX_FILE_BYTES >> 20} MiB.", "Split it."
                        )
                    handle = archive.extractfile(member)
                    if handle is not None:
                        self._members[name] = handle.read()
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            why = str(error).partition(":\n")[0].rstrip(".")  # tarfile adds a line for each format it tried
            raise RecordingError(f"{self.path} is no readable archive: {why}.", "Was it copied whole?") from error

    @property
    def names(self) -> frozenset[str]:
        """Known files that are there."""
        return frozenset(self._members)

    @property
    def logs(self) -> list[str]:
        """Log files, `server.log` first."""
        found = [name for name in self._members if name.endswith(LOG_SUFFIXES)]
        return sorted(found, key=lambda name: (name != "server.log", name))

    def lines(self, name: str) -> Iterator[bytes]:
        """Lines of one file, unpacked when it ends in .gz.

        A stream that breaks off ends quietly, because what was written counts. Raises RecordingError when the file is
        too large or is no gzip file at all.
        """
        member = self._members[name]
        raw = io.BytesIO(member) if isinstance(member, bytes) else member.open("rb")
        with raw:
            stream = gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw
            size = 0
            try:
                for line in stream:
                    size += len(line)
                    if size > MAX_FILE_BYTES:
                        raise RecordingError(f"{name} in {self.path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
                    yield line
            except EOFError:  # the recorder was killed: the last gzip block has no end
                return
            except (OSError, zlib.error) as error:
                raise RecordingError(f"{name} in {self.path} is damaged: {error}.", "Was it copied whole?") from error

    def text(self, name: str, limit: int = 1024 * 1024) -> str:
        """The start of one small file as text."""
        data = b""
        for line in self.lines(name):
            data += line
            if len(data) > limit:
                break
        return data[:limit].decode("utf-8", errors="replace")
