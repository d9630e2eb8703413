"""Apply and undo on a real engine: versions, leases, crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from infradoc.cli import fix, undo
from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.admin import AdminClient, AdminConflict, AdminError
from infradoc.remediation.change import UndoError, apply, take_back
from infradoc.remediation.guard import Guard
from infradoc.remediation.journal import Journal, intent
from infradoc.remediation.plan import Context, make_plan
from infradoc_rules.model import Action

LOWER = PlanStep("f", Action("max_num_seqs", "decrease", "", 16, 8, name="lower_max_num_seqs", live=True), 16)


def value(engine: Any, knob: str) -> Any:
    with engine.client() as admin:
        return admin.config().knobs[knob].value


def test_apply_changes_the_engine_and_take_back_restores_it(engine: Any, journal: Journal) -> None:
    with engine.client() as admin:
        applied = apply(admin, journal, LOWER)
        assert (value(engine, "max_num_seqs"), applied.entry.old, applied.entry.new) == (8, 16, 8)
        (change,) = journal.changes(engine.url)
        assert (change.open, change.last.kind) == (True, "applied")
        assert "16 again" in take_back(admin, journal, change)
        assert value(engine, "max_num_seqs") == 16
        assert admin.config().lease is None
    assert not journal.changes()[0].open


def test_a_stale_version_changes_nothing(engine: Any) -> None:
    with engine.client() as admin:
        version = admin.config().version
        admin.set("max_num_seqs", 12, version)
        with pytest.raises(AdminConflict, match="changed by somebody else"):
            admin.set("max_num_seqs", 4, version)
        admin.release()
    assert value(engine, "max_num_seqs") == 12


def test_a_write_in_between_is_a_conflict_and_in_the_journal(
    engine: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.client() as other, engine.client() as admin:
        seen = admin.config()
        monkeypatch.setattr(admin, "config", lambda: seen)  # what was read before the other wrote
        other.set("tokenizer_workers", 0, other.set("max_queued_requests", 99, seen.version).version)
        other.release()
        with pytest.raises(AdminConflict):
            apply(admin, journal, LOWER)
    assert journal.changes()[0].last.kind == "failed"
    assert value(engine, "max_num_seqs") == 16


def test_a_lease_keeps_others_out_until_it_is_given_back(engine: Any) -> None:
    with engine.client() as one, engine.client() as other:
        one.holder, other.holder = "one", "other"
        one.set("max_num_seqs", 12, one.config().version)
        with pytest.raises(AdminConflict, match="lease"):
            other.set("max_num_seqs", 4, other.config().version)
        one.release()
        other.set("max_num_seqs", 10, other.config().version)
        other.release()
    assert value(engine, "max_num_seqs") == 10


@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_the_token_nothing_is_told(engine: Any, token: str | None) -> None:
    with AdminClient(engine.url, token) as admin, pytest.raises(AdminError, match="token is missing or wrong"):
        admin.config()


@pytest.mark.parametrize(("knob", "new"), [("max_num_seqs", 0), ("max_model_len", 1), ("kv_pool_tokens", 16)])
def test_a_refusal_carries_the_engines_sentence(engine: Any, knob: str, new: int) -> None:
    with engine.client() as admin:
        with pytest.raises(AdminError) as caught:
            admin.set(knob, new, admin.config().version)
        admin.release()
    assert knob in caught.value.message


def test_an_engine_that_is_gone_is_one_sentence() -> None:
    with AdminClient("http://127.0.0.1:9", "t") as admin, pytest.raises(AdminError, match="No connection to"):
        admin.config()


def test_a_pool_grows_live_and_shrinks_again(engine: Any, journal: Journal) -> None:
    now = value(engine, "kv_pool_tokens")
    step = PlanStep(
        "f", Action("kv_pool_tokens", "increase", "", now, now + 100, name="raise_kv_capacity", live=True), None
    )
    with engine.client() as admin:
        applied = apply(admin, journal, step)
        assert applied.entry.new == -(-(now + 100) // 16) * 16  # whole blocks
        assert value(engine, "kv_pool_tokens") == applied.entry.new
        assert f"{now} again" in take_back(admin, journal, journal.changes()[0])
    assert value(engine, "kv_pool_tokens") == now


def test_what_somebody_else_set_since_is_left_alone(engine: Any, journal: Journal) -> None:
    with engine.client() as admin:
        applied = apply(admin, journal, LOWER)
        admin.set("max_num_seqs", 5, applied.state.version)
        with pytest.raises(UndoError, match="somebody changed it since"):
            take_back(admin, journal, journal.changes()[0])
        admin.release()
    assert value(engine, "max_num_seqs") == 5


CRASH = """
import os, signal, sys
from infradoc.model import PlanStep
from infradoc.remediation import change
from infradoc.remediation.admin import AdminClient
from infradoc.remediation.journal import Journal
from infradoc_rules.model import Action

moment, url = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "before":
    AdminClient.set_all = die
if moment == "between":
    real = AdminClient.set_all
    AdminClient.set_all = lambda *args: (real(*args), die())
step = PlanStep("f", Action("max_num_seqs", "decrease", "", 16, 8, name="lower_max_num_seqs"), 16)
change.apply(AdminClient(url, os.environ["INFRADOC_ADMIN_TOKEN"]), Journal(), step)
die()
"""


@pytest.mark.parametrize(("moment", "in_force"), [("before", 16), ("between", 8), ("after", 8)])
def test_undo_after_kill_9(
    engine: Any, journal: Journal, capsys: pytest.CaptureFixture[str], moment: str, in_force: int
) -> None:
    crashed = subprocess.run([sys.executable, "-c", CRASH, moment, engine.url], env=os.environ)
    assert crashed.returncode == -signal.SIGKILL
    assert value(engine, "max_num_seqs") == in_force
    assert journal.changes(engine.url)[0].open
    assert undo.run([engine.url]) == 0  # under the dead process's lease
    assert value(engine, "max_num_seqs") == 16
    assert not journal.changes(engine.url)[0].open
    with pytest.raises(InfradocError, match="no change to take back"):
        undo.run([engine.url])
    assert undo.run(["--list"]) == 0
    assert "max_num_seqs 16 -> " in capsys.readouterr().out


def test_undo_of_an_engine_that_is_gone_keeps_the_change_open(journal: Journal) -> None:
    journal.begin(intent("http://127.0.0.1:9", LOWER, 16, 8, "h"))
    with pytest.raises(InfradocError, match="No connection to"):
        undo.run([])
    assert journal.changes()[0].open
    with pytest.raises(InfradocError, match="no change nosuch"):
        undo.run(["--change", "nosuch"])


def test_the_guard_knows_what_was_done(engine: Any, journal: Journal, make_finding: Callable[..., Any]) -> None:
    with engine.client() as admin:
        apply(admin, journal, LOWER)
        back = Action("max_num_seqs", "increase", "", 8, 16, name="raise_max_num_seqs", live=True)
        changes = journal.changes(engine.url)
        now = changes[0].last.time + 400
        plan = make_plan([make_finding("batch", back)], Context(engine.url, Guard(changes), now, admin.config()))
        admin.release()
    assert plan.steps == ()
    assert "reverse the change" in plan.refused[0][1]


def test_in_flight_requests_are_seen(engine: Any) -> None:
    body = {"model": "smollm2-135m", "prompt": "one two three", "max_tokens": 60, "stream": True, "ignore_eos": True}
    with engine.client() as admin, httpx.Client(base_url=engine.url, timeout=60) as http:
        assert admin.in_flight().received == {}
        with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            seen = admin.in_flight()
            assert len(seen.received) == 1
            assert all(received <= seen.now for received in seen.received.values())
            assert len(list(lines)) > 60
        assert admin.in_flight().received == {}


def test_fix_of_a_quiet_engine_has_nothing_to_do(
    engine: Any, state_dir: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix.run([engine.url, "--window", "3", "--apply", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": "infradoc.fix/v1", "plan": None, "outcome": None}


def test_fix_of_a_dead_server_cannot_tell(state_dir: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert fix.run(["http://127.0.0.1:9", "--window", "1"]) == 30
    assert "cannot be judged: 127.0.0.1:9 refuses the connection" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["no-such-target"], "no-such-target"),
        (["http://127.0.0.1:9", "--finding", "kv-trashing-preemption"], "did you mean 'kv-thrashing-preemption'"),
        (["http://127.0.0.1:9", "--hold", "x"], "no duration"),
    ],
)
def test_bad_input_to_fix_is_one_sentence(state_dir: Any, argv: list[str], says: str) -> None:
    with pytest.raises(InfradocError) as caught:
        fix.run(argv)
    assert says in str(caught.value)
