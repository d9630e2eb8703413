"""A small kind of file, and ways to damage one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.sqlite.file import FileError, Kind, SqliteFile


class BoxError(FileError):
    """Of the test's kind."""


BOX = Kind(
    what="box",
    schema="CREATE TABLE item (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, weight REAL);"
    "CREATE TABLE tag (a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID; CREATE INDEX by_name ON item (name);",
    version=3,
    synchronous="FULL",
    error=BoxError,
    elsewhere="Put it elsewhere.",
    meanwhile="things wait",
)


@pytest.fixture
def kind() -> Kind:
    """A table with numbers, one without."""
    return BOX


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[int], Path]:
    """A closed file with so many items and tags."""

    def make(count: int) -> Path:
        path = tmp_path / "box.sqlite"
        box = SqliteFile(path, BOX)
        with box.transaction() as link:
            names = [(f"item {number:04d} " + "x" * 300, float(number)) for number in range(count)]
            link.executemany("INSERT INTO item (name, weight) VALUES (?, ?)", names)
            link.executemany("INSERT INTO tag VALUES (?, ?)", [(f"{n % 7}", f"{n:04d}") for n in range(count)])
        box.close()
        return path

    return make


@pytest.fixture
def root_page() -> Callable[[Path, str], int]:
    """The page (from 0) on which a table begins."""

    def find(path: Path, table: str) -> int:
        link = sqlite3.connect(path)
        (number,) = link.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        link.close()
        return int(number) - 1

    return find
