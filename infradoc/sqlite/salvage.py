"""What can still be read of a damaged SQLite file, table by table, row by row.

Rows are read from both ends up to the damage, and between them one by one. A file that lost its beginning gets it from
an empty file of the same schema: SQLite gives tables their pages in the order in which they are made.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from infradoc.sqlite.file import FileError, Kind, SqliteFile

Row = Mapping[str, Any]
Sound = Callable[[str, Row], bool]  # whether a row of a table makes sense
MOST_MISSES = 5000  # rows asked for in vain one after the other: a damaged inner page hides some hundred pages of rows
_TYPES: Mapping[str, tuple[type, ...]] = {"TEXT": (str,), "REAL": (float, int), "INTEGER": (int,)}


def salvaged(damaged: Path, kind: Kind, into: SqliteFile, sound: Sound) -> dict[str, int]:
    """Copy into `into` what is whole in `damaged`; how many rows of each table. Raises FileError when `into` fails."""
    prefix = f".{damaged.name}.salvage-"
    for left in damaged.parent.glob(f"{prefix}*"):  # by a process that was killed at it
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=damaged.parent, prefix=prefix) as folder:
        for path in _readable(damaged, kind, Path(folder)):
            saved = {table: _copy(path, table, into, sound) for table in kind.tables}
            if any(saved.values()):
                return saved
    return dict.fromkeys(kind.tables, 0)


def _readable(damaged: Path, kind: Kind, folder: Path) -> Iterator[Path]:
    """The file itself, then a copy with another beginning."""
    yield damaged
    with suppress(OSError, FileError):  # the disk may be full as well
        yield _with_a_beginning(damaged, kind, folder)


def _with_a_beginning(damaged: Path, kind: Kind, folder: Path) -> Path:
    """A copy of `damaged` whose first page is an empty file's (the format: sqlite.org/fileformat2.html, 1.3)."""
    model = folder / "model"
    SqliteFile(model, kind).close()
    first = model.read_bytes()
    size = int.from_bytes(first[16:18], "big")
    page = bytearray(first[:size])
    page[28:32] = (damaged.stat().st_size // size).to_bytes(4, "big")  # pages of the file
    page[32:40] = bytes(8)  # no list of free ones: nothing is written into the copy
    copy = folder / "copy"
    shutil.copyfile(damaged, copy)
    with copy.open("r+b") as out:
        out.write(page)
    log = damaged.with_name(damaged.name + "-wal")
    if log.exists():
        shutil.copyfile(log, copy.with_name("copy-wal"))
    return copy


def _copy(damaged: Path, table: str, into: SqliteFile, sound: Sound) -> int:
    with into.transaction() as link:
        found = link.execute(f"PRAGMA table_info({table})").fetchall()
        columns = [str(row[1]) for row in found]
        key = [str(row[1]) for row in sorted(found, key=lambda row: row[5]) if row[5]]
        numbered = [row[2] for row in found if row[5]] == ["INTEGER"]
        insert = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        count = 0
        with closing(_opened(damaged)) as source:
            for values in _Table(source, table, columns, key, numbered).rows():
                if _typed(values, found) and sound(table, dict(zip(columns, values, strict=True))):
                    count += link.execute(insert, values).rowcount > 0
    return count


def _opened(path: Path) -> sqlite3.Connection:
    link = sqlite3.connect(path, isolation_level=None)
    link.text_factory = lambda data: data.decode(errors="replace")  # one bad letter must not end the reading
    return link


def _typed(values: tuple[Any, ...], columns: list[Any]) -> bool:
    """Whether each value is what its column (a row of table_info) declares."""
    pairs = zip(values, columns, strict=True)
    return all(
        isinstance(value, _TYPES[declared]) or (value is None and not needed and not of_key)
        for value, (_, _, declared, needed, _, of_key) in pairs
    )


class _Table:
    """One table of a damaged file."""

    def __init__(
        self, link: sqlite3.Connection, table: str, columns: list[str], key: list[str], numbered: bool
    ) -> None:
        """`key`: the columns of the primary key; `numbered`: it is one whole number, so that rows can be asked for."""
        self._link = link
        self._key, self._width = ", ".join(key), len(key)
        self._select = f"SELECT {self._key}, {', '.join(columns)} FROM {table}"
        self._numbered = numbered

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row that can be read, each once."""
        low: tuple[Any, ...] | None = None
        whole = True
        for key, values in self._walk(""):
            if values is None:
                whole = False
                break
            low = key
            yield values
        if whole:
            return
        high: tuple[Any, ...] | None = None
        for key, values in self._walk("DESC"):
            if values is None or (low is not None and not _after(key, low)):
                break
            high = key
            yield values
        yield from self._between(low, high)

    def _walk(self, order: str) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...] | None]]:
        """(key, values) from one end on; (key, None) where it cannot be read any further."""
        by = ", ".join(f"{name} {order}" for name in self._key.split(", "))
        last: tuple[Any, ...] | None = None
        try:
            for row in self._link.execute(f"{self._select} ORDER BY {by}"):
                key = row[: self._width]
                if last is not None and not (_after(last, key) if order else _after(key, last)):
                    break  # damage may lead in a circle
                last = key
                yield key, row[self._width :]
            else:
                return
        except sqlite3.Error:
            pass
        yield last or (), None

    def _between(self, low: tuple[Any, ...] | None, high: tuple[Any, ...] | None) -> Iterator[tuple[Any, ...]]:
        if not self._numbered:
            return
        number, end, misses = low[0] if low else 0, high[0] if high else None, 0
        while misses < MOST_MISSES and (end is None or number + 1 < end):
            number, misses = number + 1, misses + 1
            with suppress(sqlite3.Error):
                for row in self._link.execute(f"{self._select} WHERE {self._key} = ?", (number,)):
                    misses = 0
                    yield row[self._width :]


def _after(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether `key` comes after `other`; False where that cannot be said."""
    try:
        return bool(key > other)
    except TypeError:
        return False
