"""One wrapper for all SQLite files: what goes wrong is one sentence, and nothing is half done."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.sqlite.file import FileError, Kind, SqliteFile

Filled = Callable[[int], Path]


def test_it_is_made_kept_and_for_its_user_only(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "new" / "box.sqlite"
    box = SqliteFile(path, kind)
    with pytest.raises(ZeroDivisionError), box.transaction() as link:
        link.execute("INSERT INTO tag VALUES ('a', 'b')")
        raise ZeroDivisionError
    with box.transaction() as link:
        link.execute("INSERT INTO tag VALUES ('c', 'd')")
    box.close()
    with SqliteFile(path, kind, check=True).reading() as link:
        assert link.execute("SELECT * FROM tag").fetchall() == [("c", "d")]
        assert link.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert path.stat().st_mode & 0o77 == 0


def test_a_file_of_a_newer_version(filled: Filled, kind: Kind) -> None:
    path = filled(1)
    link = sqlite3.connect(path)
    link.execute("PRAGMA user_version = 9")
    link.close()
    with pytest.raises(FileError, match=r"written by a newer infradoc \(version 9, known is 3\)\. Update") as caught:
        SqliteFile(path, kind)
    assert not caught.value.damaged


def test_a_folder_that_is_none(tmp_path: Path, kind: Kind) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"The box .* cannot be used: .*\. Put it elsewhere"):
        SqliteFile(tmp_path / "file" / "box.sqlite", kind)
    with pytest.raises(FileError, match=r"The box .* cannot be opened: unable to open"):
        SqliteFile(tmp_path, kind)


def test_a_lock_of_somebody_else(filled: Filled, kind: Kind) -> None:
    box, other = SqliteFile(filled(1), kind), SqliteFile(filled(0), kind)
    box._link.execute("PRAGMA busy_timeout = 10")
    with other.transaction(), pytest.raises(FileError, match="is locked by another process"), box.transaction():
        pass
    with box.transaction() as link:
        assert link.execute("SELECT count(*) FROM item").fetchone() == (1,)


def test_a_full_disk(filled: Filled, kind: Kind) -> None:
    box = SqliteFile(filled(1), kind)
    pages = box._link.execute("PRAGMA page_count").fetchone()[0]
    box._link.execute(f"PRAGMA max_page_count = {pages}")
    says = r"cannot be written: the disk under it is full or failing\. Free the disk; things wait until then"
    with pytest.raises(FileError, match=says), box.transaction() as link:
        link.execute("INSERT INTO item (name) VALUES (?)", ("x" * 9000,))
    box._link.execute("PRAGMA max_page_count = 100000")
    with box.transaction() as link:
        assert link.execute("SELECT count(*) FROM item").fetchone() == (1,)


def test_a_removed_file_is_made_again_with_all_it_held(filled: Filled, kind: Kind) -> None:
    path = filled(5)
    box = SqliteFile(path, kind)
    with box.transaction() as link:
        link.execute("INSERT INTO tag VALUES ('last', 'one')")
    path.unlink()
    with box.reading() as link:
        assert link.execute("SELECT count(*) FROM tag").fetchone() == (6,)
    box.close()
    with SqliteFile(path, kind).reading() as link:
        assert link.execute("SELECT count(*) FROM tag").fetchone() == (6,)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"no database at all, but a text " * 300, "file is not a database"),
        (lambda data: b"\xff" * 4096 + data[4096:], "file is not a database"),
        (lambda data: data[: len(data) // 2], "malformed"),
    ],
    ids=["another file", "no beginning", "cut"],
)
def test_damage_is_known_as_such(filled: Filled, kind: Kind, damage: Callable[[bytes], bytes], says: str) -> None:
    path = filled(200)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=r"The box .* is damaged: .*\. `infradoc watch` sets it aside") as caught:
        SqliteFile(path, kind, check=True)
    assert caught.value.damaged and says in caught.value.message


def test_a_damaged_page_is_found_by_a_check_or_by_reading_it(
    filled: Filled, kind: Kind, root_page: Callable[[Path, str], int]
) -> None:
    path = filled(3)
    with path.open("r+b") as out:
        out.seek(4096 * root_page(path, "item"))
        out.write(b"\x77" * 4096)
    with pytest.raises(FileError, match="is damaged"):
        SqliteFile(path, kind, check=True)
    box = SqliteFile(path, kind)
    with pytest.raises(FileError, match="is damaged") as caught, box.reading() as link:
        link.execute("SELECT * FROM item").fetchall()
    assert caught.value.damaged


def test_a_database_of_somebody_else_is_damage(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "box.sqlite"
    link = sqlite3.connect(path)
    link.executescript("CREATE TABLE mine (x); PRAGMA user_version = 3;")
    link.close()
    with pytest.raises(FileError, match="it has no table item") as caught:
        SqliteFile(path, kind)
    assert caught.value.damaged


def test_rows_that_are_none_are_damage(filled: Filled, kind: Kind) -> None:
    with (
        pytest.raises(FileError, match="a row in it cannot be read") as caught,
        SqliteFile(filled(0), kind).rows_read(),
    ):
        int("x")
    assert caught.value.damaged


def test_a_closed_file_is_told(filled: Filled, kind: Kind, tmp_path: Path) -> None:
    box = SqliteFile(filled(1), kind)
    box.close()
    with pytest.raises(FileError, match="closed database"), box.reading() as link:
        link.execute("SELECT 1")
    shutil.rmtree(tmp_path)
