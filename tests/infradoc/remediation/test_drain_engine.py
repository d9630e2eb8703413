"""Changes through a drain on a real engine: running requests survive, lost answers are settled, undo is complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from infradoc.cli import undo
from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.admin import AdminBusy, AdminClient, AdminError, AdminLost
from infradoc.remediation.change import apply, restore, take_back
from infradoc.remediation.journal import Journal
from infradoc.remediation.table import reclaimed_blocks
from infradoc_rules.model import Action

SMALLER = PlanStep("f", Action("block_size", "decrease", "", 16, 8, name="lower_block_size", live=True), 16)


def longer(to: int = 192, policy: str = "left") -> PlanStep:
    also = (("truncation_policy", policy),)
    action = Action("max_model_len", "increase", "", 128, to, name="raise_max_model_len", live=True, also=also)
    return PlanStep("f", action, 128, (("truncation_policy", "reject"),))


def values(engine: Any, *knobs: str) -> list[Any]:
    with engine.client() as admin:
        state = admin.config()
    return [state.knobs[knob].value for knob in knobs]


@contextmanager
def requests_in_flight(engine: Any, tokens: int, count: int = 2) -> Iterator[list[dict[str, Any]]]:
    """Requests that run while the body does; their answers are there afterwards."""
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        body = {"model": "smollm2-135m", "prompt": "one two three", "max_tokens": tokens, "ignore_eos": True}
        answers.append(httpx.post(f"{engine.url}/v1/completions", json=body, timeout=120).json())

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    with engine.client() as admin:
        while len(admin.in_flight().received) < count:
            time.sleep(0.01)
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join()


def test_a_smaller_block_size_under_load_and_back(engine: Any, journal: Journal) -> None:
    with engine.client() as admin:
        with requests_in_flight(engine, 30) as answers:
            applied = apply(admin, journal, SMALLER)
            assert (applied.entry.old, applied.entry.new) == (16, 8)
        assert [answer["usage"]["completion_tokens"] for answer in answers] == [30, 30]
        assert values(engine, "block_size") == [8]
        assert "block_size is 16 again" in take_back(admin, journal, journal.changes()[0])
    assert values(engine, "block_size") == [16]


def test_several_knobs_move_in_one_request_and_back(engine: Any, journal: Journal) -> None:
    with engine.client() as admin:
        version = admin.config().version
        applied = apply(admin, journal, longer())
        assert applied.state.version == version + 1
        assert applied.entry.moves == (("max_model_len", 128, 192), ("truncation_policy", "reject", "left"))
        assert values(engine, "max_model_len", "truncation_policy") == [192, "left"]
        said = take_back(admin, journal, journal.changes()[0])
        assert said == "max_model_len is 128 and truncation_policy is reject again."
    assert values(engine, "max_model_len", "truncation_policy") == [128, "reject"]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (longer(policy="throw"), "truncation_policy cannot be throw"),
        (longer(to=500_000), "max_model_len"),  # refused by the engine, which then has touched neither
    ],
)
def test_all_or_nothing(engine: Any, journal: Journal, step: PlanStep, says: str) -> None:
    with engine.client() as admin:
        with pytest.raises(InfradocError, match=says):
            apply(admin, journal, step)
        admin.release()
    assert values(engine, "max_model_len", "truncation_policy") == [128, "reject"]
    assert not any(change.open for change in journal.changes())


def test_half_a_change_is_set_back(engine: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    real = AdminClient.set_all
    sent: list[dict[str, Any]] = []

    def half(admin: AdminClient, wanted: Any, version: int) -> Any:
        sent.append(dict(wanted))
        if len(sent) > 1:
            return real(admin, wanted, version)
        real(admin, {"truncation_policy": "left"}, version)
        raise AdminError("the other knob was refused")

    monkeypatch.setattr(AdminClient, "set_all", half)
    with engine.client() as admin:
        with pytest.raises(AdminError, match="refused"):
            apply(admin, journal, longer())
        admin.release()
    assert sent[1] == {"truncation_policy": "reject"}
    assert values(engine, "max_model_len", "truncation_policy") == [128, "reject"]
    assert journal.changes()[0].last.kind == "failed"


def test_a_lost_answer_is_waited_for(engine: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine still drains when the connection breaks: the change is neither there nor refused yet."""
    real = AdminClient.set_all
    seen: list[Any] = []

    def lossy(admin: AdminClient, wanted: Any, version: int) -> Any:
        threading.Thread(target=lambda: seen.append(real(engine.client(), wanted, version))).start()
        time.sleep(0.3)
        seen.append(admin.config().knobs["block_size"].value)
        raise AdminLost("the connection broke")

    with requests_in_flight(engine, 60), engine.client() as admin:
        monkeypatch.setattr(AdminClient, "set_all", lossy)
        applied = apply(admin, journal, SMALLER)
        monkeypatch.undo()
        assert (seen[0], applied.entry.new) == (16, 8)
        take_back(admin, journal, journal.changes()[0])
    assert values(engine, "block_size") == [16]


CRASH = """
import os, signal, sys, threading, time
from infradoc.model import PlanStep
from infradoc.remediation import change
from infradoc.remediation.admin import AdminClient
from infradoc.remediation.journal import Journal
from infradoc_rules.model import Action

real = AdminClient.set_all
def killed(*args):
    threading.Thread(target=lambda: real(*args), daemon=True).start()
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
AdminClient.set_all = killed
also = (("truncation_policy", "left"),)
step = PlanStep("f", Action("max_model_len", "increase", "", 128, 192, name="raise_max_model_len", also=also), 128)
change.apply(AdminClient(sys.argv[1], os.environ["INFRADOC_ADMIN_TOKEN"]), Journal(), step)
"""


def test_undo_after_kill_9_in_the_middle_of_a_drain(
    engine: Any, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    with requests_in_flight(engine, 60):
        crashed = subprocess.run([sys.executable, "-c", CRASH, engine.url], env=os.environ)
        assert crashed.returncode == -signal.SIGKILL
        assert values(engine, "max_model_len") == [128]  # it will change, in a moment
        assert undo.run([engine.url]) == 0
    assert "max_model_len is 128 and truncation_policy is reject again." in capsys.readouterr().out
    assert values(engine, "max_model_len", "truncation_policy") == [128, "reject"]
    assert undo.run(["--list"]) == 0
    assert "max_model_len 128 -> 192, truncation_policy reject -> left" in capsys.readouterr().out


def test_leaked_blocks_come_back_with_owner_and_age(
    engine: Any, journal: Journal, make_action: Callable[..., Action]
) -> None:
    step = PlanStep("memory-leak", make_action("defragment_kv", "defragment", "enable", None, True), None)
    with engine.client() as admin:
        admin.switch_fault("leak_blocks", {"every": 1, "blocks": 1, "requests": 2})
        with requests_in_flight(engine, 4):
            pass
        applied = apply(admin, journal, step)
        rows = reclaimed_blocks(applied.told)
        assert len(rows) == 2 and all(row["owner"] and row["age_seconds"] >= 0 for row in rows)
        assert "reclaimed 2" in applied.entry.note
        assert reclaimed_blocks(apply(admin, journal, step).told) == []
        assert "nothing to take back" in take_back(admin, journal, journal.changes()[0])


class Busy:
    """An engine that cannot go back for a while."""

    def __init__(self, times: int) -> None:
        self.times = times

    def set_all(self, wanted: Any, version: int) -> None:
        self.times -= 1
        if self.times >= 0:
            raise AdminBusy("a request of 180 tokens is under way and 128 would be too few for it")


def test_going_back_waits_for_what_needs_the_new_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from infradoc.remediation import change

    monkeypatch.setattr(change, "_BUSY_PAUSE", 0.0)
    state: Any = type("State", (), {"version": 1})
    busy: Any = Busy(3)
    restore(busy, {"max_model_len": 128}, state)
    assert busy.times == -1
    monkeypatch.setattr(change, "BUSY_SECONDS", 0.0)
    stuck: Any = Busy(9)
    with pytest.raises(AdminBusy, match="under way"):
        restore(stuck, {"max_model_len": 128}, state)
