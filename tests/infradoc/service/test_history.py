"""The history file: what holds, what is over, minutes of vitals, retention, and a disk that fails."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.service.history import History, HistoryError


def finding(name: str) -> dict[str, Any]:
    return {"id": name, "severity": "warning", "title": name.upper(), "confidence": 0.9, "cause": "c", "evidence": []}


def held(*names: str) -> dict[str, dict[str, Any]]:
    return {name: finding(name) for name in names}


def test_a_finding_has_a_begin_and_an_end(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1e9)
    history.note(100.0, "prod", held("a", "b"))
    history.note(101.0, "prod", held("a", "b"))
    history.note(102.0, "prod", held("a"), known=False)
    history.note(103.0, "prod", held("a"))
    rows = {row["id"]: (row["began"], row["ended"]) for row in history.findings(0.0)}
    assert rows == {"a": (100.0, None), "b": (100.0, 103.0)}
    assert [row["id"] for row in history.findings(104.0)] == ["a"]
    assert history.findings(0.0, "other") == []


def test_what_held_at_a_crash_goes_on(tmp_path: Path) -> None:
    History(tmp_path / "h.sqlite", 1e9).note(100.0, "prod", held("a"))
    again = History(tmp_path / "h.sqlite", 1e9)
    again.note(200.0, "prod", held("a"))
    again.note(201.0, "prod", held())
    (row,) = again.findings(0.0)
    assert (row["began"], row["ended"]) == (100.0, 201.0)


def test_vitals_by_the_minute(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1e9)
    for second in range(90):
        history.measure(600.0 + second, "prod", {"queue_depth": float(second), "kv_usage_ratio": None})
    history.close()
    rows = History(tmp_path / "h.sqlite", 1e9).vitals(0.0, "prod", "queue_depth")
    assert [(row["minute"], row["low"], row["mean"], row["high"], row["n"]) for row in rows] == [
        (600.0, 0.0, 29.5, 59.0, 60),
        (660.0, 60.0, 74.5, 89.0, 30),
    ]


def test_old_rows_go(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", retention=3600.0)
    history.note(0.0, "prod", held("old"))
    history.note(1.0, "prod", held())
    history.measure(0.0, "prod", {"queue_depth": 1.0})
    assert history.change("prod", "x", 0.0, "text") and not history.change("prod", "x", 0.0, "text")
    history.measure(10_000.0, "prod", {"queue_depth": 1.0})
    history.measure(20_000.0, "prod", {"queue_depth": 1.0})
    assert history.findings(0.0) == [] and history.changes(0.0) == []
    assert all(row["minute"] > 10_000 - 3600 for row in history.vitals(0.0, "prod", "queue_depth"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=12))
def test_the_file_says_what_was_held(tmp_path_factory: pytest.TempPathFactory, looks: list[set[str]]) -> None:
    history = History(tmp_path_factory.mktemp("h") / "h.sqlite", 1e9)
    for now, names in enumerate(looks):
        history.note(float(now), "prod", held(*names))
    rows = history.findings(-1.0)
    for now, names in enumerate(looks):
        there = {r["id"] for r in rows if r["began"] <= now and (r["ended"] is None or now < r["ended"])}
        assert there == names
    history.close()


def test_a_full_disk_is_one_sentence_and_nothing_is_lost_by_it(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes writes fail as a full disk does, in a process of its own."""
    code = f"""
import resource, signal
from pathlib import Path
from infradoc.service.history import History, HistoryError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
history = History(Path({str(tmp_path / "h.sqlite")!r}), 1e9)
history.note(1.0, "prod", {held("a")!r})
size = max(path.stat().st_size for path in Path({str(tmp_path)!r}).iterdir())
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
failed = []
for number in range(200):
    try:
        history.note(2.0 + number, "prod", {{f"f{{number}}": {finding("x")!r}}})
    except HistoryError as error:
        failed.append(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
history.note(300.0, "prod", {held("a", "last")!r})
history.close()
print(len(failed)); print(failed[0])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, sentence = done.stdout.splitlines()
    assert int(count) > 0 and "the disk under it is full or failing" in sentence
    rows = {row["id"]: row for row in History(tmp_path / "h.sqlite", 1e9).findings(0.0)}
    assert rows["last"]["ended"] is None and rows["a"]["ended"] is None


def test_a_file_of_a_newer_version_and_a_folder_are_refused(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1e9)
    history._file._link.execute("PRAGMA user_version = 99")
    history.close()
    with pytest.raises(HistoryError, match="newer"):
        History(tmp_path / "h.sqlite", 1e9)
    with pytest.raises(HistoryError, match="cannot be"):
        History(tmp_path, 1e9)


def test_what_held_at_a_target_that_is_watched_no_more_is_over(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1e9)
    history.note(100.0, "prod", held("a"))
    history.note(100.0, "gone", held("b"))
    history.end_others(200.0, ["prod"])
    assert {row["id"]: row["ended"] for row in history.findings(0.0)} == {"a": None, "b": 200.0}


def test_a_file_that_was_removed_is_made_again_with_all_that_it_held(tmp_path: Path) -> None:
    path = tmp_path / "state" / "h.sqlite"
    history = History(path, 1e9)
    history.note(100.0, "prod", held("a"))
    shutil.rmtree(path.parent)
    history.note(200.0, "prod", held("a", "b"))
    history.close()
    rows = History(path, 1e9).findings(0.0)
    assert {row["id"]: row["began"] for row in rows} == {"a": 100.0, "b": 200.0}


def test_a_look_without_news_does_not_end_the_trouble(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1e9)
    pages = history._file._link.execute("PRAGMA page_count").fetchone()[0]
    history._file._link.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(HistoryError):
        history.note(100.0, "prod", {name: finding(name) | {"cause": "x" * 9000} for name in "abcdef"})
    history.note(101.0, "other", {})
    assert "full" in history.trouble
    history._file._link.execute("PRAGMA max_page_count = 100000")
    history.note(102.0, "prod", held("a"))
    assert history.trouble == ""


def damage(path: Path, table: str) -> None:
    link = sqlite3.connect(path)
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = link.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    link.close()
    with path.open("r+b") as out:
        out.seek(4096 * (root - 1))
        out.write(b"\x55" * 4096)


def test_a_damaged_file_is_set_aside_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    history = History(path, 1e9)
    history.note(100.0, "prod", held("a"))
    history.change("prod", "x:applied", 100.0, "applied: max_num_seqs 8 -> 16")
    history.close()
    with path.open("r+b") as out:
        out.write(b"\0" * 4096)
    with pytest.raises(HistoryError, match="is damaged"):
        History(path, 1e9)
    again = History(path, 1e9, mends=True)
    (said,) = again.set_aside
    assert "It was set aside as h.sqlite.damaged-" in said and "1 finding, 1 change, 0 minutes of vitals" in said
    assert again.trouble == "" and [row["id"] for row in again.changes(0.0)] == ["x:applied"]
    again.note(200.0, "prod", held("a"))
    again.note(300.0, "prod", held())
    assert [(row["began"], row["ended"]) for row in again.findings(0.0)] == [(100.0, 300.0)]
    again.close()


def test_damage_while_it_is_used_is_mended_by_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    history = History(path, 1e9, mends=True)
    history.note(100.0, "prod", held("a"))
    history.note(100.0, "other", held("b"))
    history.change("prod", "x:applied", 100.0, "text")
    damage(path, "finding")
    with pytest.raises(HistoryError, match="is damaged"):
        history.note(200.0, "prod", held("a", "c"))
    assert len(history.set_aside) == 1 and "is damaged" in history.trouble
    history.note(201.0, "prod", held("a", "c"))
    history.note(201.0, "other", held())
    assert history.trouble == ""
    assert {row["id"]: row["began"] for row in history.findings(0.0)} == {"a": 201.0, "c": 201.0}
    assert len(history.changes(0.0)) == 1 and history.changes(0.0, "other") == []
    history.close()
    assert {row["id"] for row in History(path, 1e9).findings(0.0)} == {"a", "c"}


def test_old_rows_go_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", 1000.0)
    history.measure(1_000_000.0, "prod", {"queue_depth": 1.0})  # looked for old rows at a time that was wrong
    for minute in range(60):
        history.measure(60.0 * minute, "prod", {"queue_depth": 1.0})
    assert min(row["minute"] for row in history.vitals(0.0, "prod", "queue_depth")) > 3600.0 - 1000.0 - 600.0 - 120.0
    history.close()
