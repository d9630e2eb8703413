"""A damaged file: set aside under a name with the time, and every row that can still be read goes on."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infradoc.sqlite.file import FileError, Kind, SqliteFile
from infradoc.sqlite.mend import mend
from infradoc.sqlite.salvage import salvaged

Filled = Callable[[int], Path]
PAGE = 4096
NOW = 1_700_000_000.0


def anything(table: str, row: Mapping[str, Any]) -> bool:
    return True


def rows(path: Path, kind: Kind) -> tuple[list[int], int]:
    """The numbers of the items, and how many tags there are."""
    box = SqliteFile(path, kind, check=True)
    with box.reading() as link:
        items = [seq for (seq,) in link.execute("SELECT seq FROM item ORDER BY seq")]
        (tags,) = link.execute("SELECT count(*) FROM tag").fetchone()
    box.close()
    return items, tags


def spoil(path: Path, *pages: int) -> None:
    with path.open("r+b") as out:
        for page in pages:
            out.seek(PAGE * page)
            out.write(random.Random(page).randbytes(PAGE))


def leaves(path: Path) -> list[int]:
    """Pages (from 0) that hold rows of a table with numbers."""
    data = path.read_bytes()
    return [page for page in range(1, len(data) // PAGE) if data[PAGE * page] == 13]


def test_without_damage_every_row_goes_on(filled: Filled, kind: Kind) -> None:
    path = filled(500)
    before = path.read_bytes()
    done = mend(path, kind, anything, NOW)
    assert done.aside.name == "box.sqlite.damaged-20231114-221320" and done.aside.read_bytes() == before
    assert done.saved == {"item": 500, "tag": 500}
    assert rows(path, kind) == (list(range(1, 501)), 500)
    assert {one.name for one in path.parent.iterdir()} == {path.name, done.aside.name}


def test_rows_around_damaged_pages_are_saved(filled: Filled, kind: Kind) -> None:
    path = filled(500)
    found = leaves(path)
    spoil(path, found[3], found[len(found) // 2], found[-3])
    done = mend(path, kind, anything, NOW)
    items, tags = rows(path, kind)
    assert 500 - 3 * 14 <= len(items) < 500 and items == sorted(set(items)), "a page holds at most 13 of them"
    assert items[0] == 1 and items[-1] == 500 and tags == 500
    assert done.saved["item"] == len(items)


@pytest.mark.parametrize("beginning", [b"", b"\0" * PAGE, b"\xff" * 100], ids=["random", "zeros", "header"])
def test_a_file_without_its_beginning(filled: Filled, kind: Kind, beginning: bytes) -> None:
    path = filled(300)
    with path.open("r+b") as out:
        out.write(beginning or random.Random(1).randbytes(PAGE))
    assert mend(path, kind, anything, NOW).saved == {"item": 300, "tag": 300}
    assert rows(path, kind) == (list(range(1, 301)), 300)


def test_a_file_that_was_cut(filled: Filled, kind: Kind) -> None:
    path = filled(500)
    os.truncate(path, path.stat().st_size // 2)
    saved = mend(path, kind, anything, NOW).saved
    assert saved["item"] > 100
    assert len(rows(path, kind)[0]) == saved["item"]


def test_what_only_the_log_has_is_saved_and_the_log_goes_along(filled: Filled, kind: Kind, tmp_path: Path) -> None:
    path = filled(10)
    box = SqliteFile(path, kind)
    with box.transaction() as link:
        link.execute("INSERT INTO tag VALUES ('only', 'here')")
    done = mend(path, kind, anything, NOW)  # while somebody has it open
    assert done.saved == {"item": 10, "tag": 11}
    with box.transaction() as link:  # who follows to the new file
        link.execute("INSERT INTO tag VALUES ('and', 'on')")
    assert rows(path, kind)[1] == 12
    link = sqlite3.connect(done.aside)
    assert link.execute("SELECT count(*) FROM tag").fetchone() == (11,)
    link.close()


@pytest.mark.parametrize("data", [b"", b"no database\n" * 2000, b"\0" * 100_000], ids=["empty", "text", "zeros"])
def test_where_nothing_can_be_read_the_new_one_is_empty(tmp_path: Path, kind: Kind, data: bytes) -> None:
    path = tmp_path / "box.sqlite"
    path.write_bytes(data)
    assert mend(path, kind, anything, NOW).saved == {"item": 0, "tag": 0}
    assert rows(path, kind) == ([], 0)


def test_rows_that_make_no_sense_stay_behind(filled: Filled, kind: Kind) -> None:
    path = filled(10)
    link = sqlite3.connect(path)
    link.execute("INSERT INTO item (name, weight) VALUES (?, 1.0)", (b"bytes",))
    link.execute("INSERT INTO item (name, weight) VALUES ('a text', 'no weight')")
    link.commit()
    link.close()
    done = mend(path, kind, lambda table, row: row.get("weight") != 3.0, NOW)
    assert done.saved == {"item": 9, "tag": 10}


def test_what_a_killed_process_left_of_its_mending_goes(filled: Filled, kind: Kind) -> None:
    path = filled(3)
    path.with_name(".box.sqlite.new").write_bytes(b"half of it")
    path.with_name(".box.sqlite.new-wal").write_bytes(b"half of it")
    path.with_name(".box.sqlite.salvage-x").mkdir()
    done = mend(path, kind, anything, NOW)
    assert done.saved == {"item": 3, "tag": 3}
    assert {one.name for one in path.parent.iterdir()} == {path.name, done.aside.name}


def test_a_disk_that_is_full_while_rows_are_saved_is_told_and_nothing_is_half_saved(
    filled: Filled, kind: Kind, tmp_path: Path
) -> None:
    path = filled(300)
    into = SqliteFile(tmp_path / "into.sqlite", kind)
    into._link.execute("PRAGMA max_page_count = 12")
    with pytest.raises(FileError, match="the disk under it is full or failing"):
        salvaged(path, kind, into, anything)
    with into.reading() as link:
        assert link.execute("SELECT count(*) FROM item").fetchone() == (0,)
    into.close()


def test_files_that_were_set_aside_keep_their_names(filled: Filled, kind: Kind) -> None:
    path = filled(1)
    names = [mend(path, kind, anything, NOW).aside.name for _ in range(3)]
    assert len(set(names)) == 3


def test_a_file_system_without_links(filled: Filled, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = filled(3)
    monkeypatch.setattr(os, "link", refused)
    assert mend(path, kind, anything, NOW).aside.exists() and rows(path, kind) == ([1, 2, 3], 3)


def test_what_cannot_be_set_aside_is_told_and_stays(
    filled: Filled, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    path = filled(3)
    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(FileError, match=r"The damaged box .* cannot be set aside: No space left on device\. Put it"):
        mend(path, kind, anything, NOW)
    assert rows(path, kind) == ([1, 2, 3], 3)


@pytest.mark.parametrize("seed", range(6))
def test_any_damage_ends_in_a_sound_file_with_rows_that_were_there(filled: Filled, kind: Kind, seed: int) -> None:
    path = filled(300)
    chance = random.Random(seed)
    with path.open("r+b") as out:
        for _ in range(chance.randrange(1, 40)):
            out.seek(chance.randrange(path.stat().st_size))
            out.write(chance.randbytes(chance.choice([1, 8, 500])))
    mend(path, kind, anything, NOW)
    items, tags = rows(path, kind)
    assert len(items) <= 300 + 5 and tags <= 300 + 5, "no row is invented many times over"
