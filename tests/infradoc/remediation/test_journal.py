from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.model import PlanStep
from infradoc.remediation.journal import Entry, Journal, JournalError, intent, parse
from infradoc_rules.model import Action

STEP = PlanStep("kv-thrashing-preemption", Action("max_num_seqs", "decrease", "", name="lower_max_num_seqs"), 16)


def entry() -> Entry:
    return intent("http://x:1", STEP, 16, 8, "infradoc-1")


def test_a_change_is_told_in_order(journal: Journal) -> None:
    first = journal.begin(entry())
    journal.follow(first, "applied")
    journal.follow(first, "verdict", "not_fixed")
    (change,) = journal.changes("http://x:1")
    assert (change.intent, change.last.kind, change.verdict, change.open) == (first, "applied", "not_fixed", True)
    journal.follow(first, "undo_intent")
    assert journal.changes()[0].open  # killed here, the engine has to be asked
    journal.follow(first, "undone")
    assert not journal.changes()[0].open
    assert journal.changes("http://other:1") == []


def test_the_journal_is_private(journal: Journal) -> None:
    journal.begin(entry())
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_torn_line_costs_only_itself(journal: Journal) -> None:
    journal.begin(entry())
    whole = journal.path.read_bytes()
    with journal.path.open("ab") as handle:
        handle.write(whole[: len(whole) // 2])
    last = journal.begin(entry())
    assert [e.change for e in journal.entries()] == [journal.entries()[0].change, last.change]


@given(st.binary(max_size=60))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    assert parse(line) is None or isinstance(parse(line), Entry)


def test_writers_do_not_tear_each_other(journal: Journal) -> None:
    threads = [threading.Thread(target=lambda: [journal.begin(entry()) for _ in range(30)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.entries()) == 120


def test_a_journal_that_cannot_be_written_stops_the_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="nothing was changed"):
        Journal(tmp_path / "file").begin(entry())


def test_an_intent_survives_kill_9(state_dir: Path) -> None:
    code = (
        "import sys, os, time\n"
        "from infradoc.model import PlanStep\n"
        "from infradoc.remediation.journal import Journal, intent\n"
        "from infradoc_rules.model import Action\n"
        "step = PlanStep('f', Action('max_num_seqs', 'decrease', '', name='lower_max_num_seqs'), 16)\n"
        "journal = Journal()\n"
        "for i in range(1000000):\n"
        "    journal.begin(intent('http://x:1', step, 16, 8, 'h'))\n"
        "    print(i, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(20):
        last = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split()
    child.wait()
    told = int(rest[-1]) if rest else last
    changes = Journal().changes()
    assert len(changes) >= told + 1  # all that were acknowledged, and perhaps one more
    assert all(change.open for change in changes)
    Journal().begin(entry())
    assert len(Journal().changes()) == len(changes) + 1


def test_a_line_nested_too_deep_is_no_entry() -> None:
    assert parse(b"[" * 100_000) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": 1e300}, {"time": float("nan")}, {"time": "soon"}, {"time": True}, {"change": 5}, {"target": None},
        {"old": {}}, {"kind": "maybe"}, {"also": [["a", [], 1]]}, {"holder": ["h"]},
    ],
)  # fmt: skip
def test_a_line_with_wrong_types_or_a_time_beyond_any_calendar_is_no_entry(wrong: dict[str, object]) -> None:
    good = dataclasses.asdict(entry())
    assert parse(json.dumps(good).encode()) is not None
    assert parse(json.dumps(good | wrong).encode()) is None


def test_the_changed_process_is_kept_and_older_lines_without_it_are_read(journal: Journal) -> None:
    first = journal.begin(dataclasses.replace(entry(), started=123.5))
    journal.follow(first, "applied")
    (change,) = journal.changes()
    assert change.intent.started == change.last.started == 123.5
    assert change.is_of(124.0) and change.is_of(None) and not change.is_of(900.0)
    older = {name: value for name, value in dataclasses.asdict(entry()).items() if name != "started"}
    read = parse(json.dumps(older).encode())
    assert read is not None and read.started is None
    for wrong in ("soon", True, -1.0, 1e300):
        assert parse(json.dumps({**older, "started": wrong}).encode()) is None
