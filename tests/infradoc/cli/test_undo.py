"""`infradoc undo` without a name: which change it means, and that it asks before it touches anything."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from infradoc.cli import fix, undo
from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.journal import Journal, intent
from infradoc_rules.model import Action

pytestmark = pytest.mark.usefixtures("clean_environment")

LOWER = PlanStep("f", Action("max_num_seqs", "decrease", "", 16, 8, name="lower_max_num_seqs", live=True), 16)
ORDER = PlanStep("memory-leak", Action("defragment", "enable", "", name="defragment_kv", live=True), None)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(tmp_path / "state"))
    return Journal()


def test_a_dead_server_is_passed_over_by_name(
    journal: Journal, closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.begin(intent(f"http://127.0.0.1:{closed_port}", LOWER, 16, 8, "h"))
    with pytest.raises(InfradocError, match=r"No engine with a change in force answers"):
        undo.run([])
    assert "passed over" in capsys.readouterr().err and journal.changes()[0].open


def test_the_change_is_named_and_asked_for(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    change = journal.begin(intent("http://h:1", LOWER, 16, 8, "h"))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal
    with pytest.raises(InfradocError, match=rf"max_num_seqs 16 -> 8 on http://h:1.*--change {change.change}"):
        undo.confirm(journal.changes()[0], yes=False)
    undo.confirm(journal.changes()[0], yes=True)


def test_what_was_done_once_is_listed_in_words(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    first = journal.begin(intent("http://h:1", ORDER, None, True, "h"))
    journal.follow(first, "applied", "moves 3")
    assert undo.run(["--list"]) == 0
    line = capsys.readouterr().out
    assert "give leaked blocks back and compact the pool  done, nothing to take back" in line and "None" not in line
    with pytest.raises(InfradocError, match=r"no change to take back"):
        undo.run([])


def test_a_server_that_was_never_changed_is_named(journal: Journal) -> None:
    with pytest.raises(InfradocError, match=r"infradoc has changed nothing on http://127.0.0.1:9"):
        undo.run(["http://127.0.0.1:9"])


@pytest.mark.parametrize("command", [fix, undo])
def test_a_recording_is_no_live_server(command: object, journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(InfradocError, match=r"needs a live server"):
        command.run([str(tmp_path)])  # type: ignore[attr-defined]


def test_fix_refuses_before_the_watch_what_it_cannot_ask(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr(fix, "Session", lambda *args, **more: pytest.fail("it watched"))
    with pytest.raises(InfradocError, match=r"there is no terminal"):
        fix.run(["http://127.0.0.1:9", "--apply"])


@pytest.mark.parametrize("target", ["", "  "])
def test_an_empty_target_is_not_this_folder(target: str, journal: Journal) -> None:
    with pytest.raises(InfradocError, match=r"is no target"):
        undo.run([target])
