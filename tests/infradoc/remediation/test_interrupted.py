"""A fix that is broken off right after its change, on a real engine: nothing stays in force unseen."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infradoc.cli import fix
from infradoc.cli.interrupt import treat_as_interrupt
from infradoc.config import Config
from infradoc.model import PlanStep
from infradoc.remediation.change import take_back
from infradoc.remediation.journal import Entry, Journal, JournalError
from infradoc.remediation.run import Timing
from infradoc.remediation.session import Session
from infradoc_rules.model import Action

LOWER = PlanStep("f", Action("max_num_seqs", "decrease", "", 16, 8, name="lower_max_num_seqs", live=True), 16)
AT_ONCE = Timing(0.0, 0.0, 0.0, 0.0)


def seats(engine: Any) -> Any:
    with engine.client() as admin:
        return admin.config().knobs["max_num_seqs"].value


@pytest.mark.parametrize("error", [BrokenPipeError, KeyboardInterrupt])
def test_broken_off_while_the_change_is_told_it_is_taken_back(
    engine: Any, state_dir: Path, error: type[BaseException]
) -> None:
    seen: list[tuple[str, Any]] = []

    def listener(text: str) -> None:
        seen.append((text, seats(engine)))
        if text.startswith("applied"):
            raise error

    with Session(engine.url, Config()) as session:
        fixer = session.fixer(AT_ONCE, listener)
        with pytest.raises(error):
            fixer.run(session.rule("queue-saturation"), LOWER)
        (change,) = session.journal.changes(engine.url)
    applied = next(found for text, found in seen if text.startswith("applied"))
    assert (applied, seats(engine), change.last.kind) == (8, 16, "undone")


@pytest.mark.parametrize("full_after", ["intent", "applied"])
def test_a_disk_that_fills_up_keeps_no_change_in_force(
    engine: Any, journal: Journal, full_after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLIMIT_FSIZE makes writes fail as a full disk does."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    append = Journal.append

    def then_full(self: Journal, entry: Entry) -> None:
        append(self, entry)
        if entry.kind == full_after:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.path.stat().st_size, kept[1]))

    monkeypatch.setattr(Journal, "append", then_full)
    said: list[str] = []
    try:
        with Session(engine.url, Config(), journal=journal) as session:
            fixer = session.fixer(AT_ONCE, said.append)
            if full_after == "intent":
                with pytest.raises(JournalError, match=r"cannot be written: File too large\. Free the disk"):
                    fixer.run(session.rule("queue-saturation"), LOWER)
            else:
                outcome = fixer.run(session.rule("queue-saturation"), LOWER)
                assert outcome.undone and "is 16 again. The journal" in outcome.note
                assert any("cannot be written: File too large. Free" in text for text in said)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert seats(engine) == 16
    (change,) = journal.changes(engine.url)
    assert change.last.kind == full_after
    with engine.client() as admin:
        assert admin.config().lease is None
        assert "already" in take_back(admin, journal, change)


def test_narration_that_nobody_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        fix.tell("applied")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):  # it was really not to be written
            gone.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), gone.fileno())


@pytest.fixture
def handlers() -> Any:
    """Puts the handlers of the signals back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield kept
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_hang_up_that_nohup_ignores_stays_ignored(handlers: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    treat_as_interrupt()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_hang_up_is_an_interrupt_without_nohup() -> None:
    script = (
        "import signal, sys; from infradoc.cli.interrupt import treat_as_interrupt\n"
        "if sys.argv[1:]: signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup themselves
        "treat_as_interrupt()\n"
        "try: signal.raise_signal(signal.SIGHUP); print('on')\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    run: Callable[..., Any] = subprocess.run
    for before, after, told in (([], ["default"], "interrupted"), (["nohup"], [], "on")):
        command = [*before, sys.executable, "-P", "-c", script, *after]
        done = run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == told
