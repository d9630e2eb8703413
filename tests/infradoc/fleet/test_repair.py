"""Planning before a screen: what the engine would take, and what the configuration forbids."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infradoc.config import Config, Permissions, TargetConfig
from infradoc.errors import InfradocError
from infradoc.fleet.repair import Repair, Stopped, _Stoppable
from infradoc.fleet.steps import Move, shown_step
from infradoc_rules.model import Action, Finding

ACTION = Action("max_num_seqs", "decrease", "fewer", 16, 8, "--max-num-seqs 8", True, name="lower_max_num_seqs")
FINDING = Finding("kv-thrashing-preemption", "warning", 0.9, "t", "c", "i", "f", actions=(ACTION,))
KNOB = {"value": 16, "origin": "flag", "bounds": [1, 64], "change": "live", "flag": "--max-num-seqs 16"}
PAGE = b"# TYPE llm_requests_running gauge\nllm_requests_running 1\nllm_requests_waiting 0\n"


@pytest.fixture
def engine(server: Any, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pages of a bundled engine with one knob."""
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "secret-1")
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(clean_environment / "state"))
    config = {"version": 3, "engine": "infradoc", "knobs": {"max_num_seqs": KNOB}}
    server.page("/metrics", PAGE)
    server.page("/admin/config", json.dumps(config).encode())
    server.page("/admin/blocks", b"{}")
    return server


def configured(url: str, **permissions: Any) -> Config:
    return Config({"t": TargetConfig(url=url, host=False, permissions=Permissions(**permissions))})


def test_a_permitted_change_is_the_first_step(engine: Any) -> None:
    planned = Repair("t", configured(engine.url, apply=True), FINDING.id).plan([FINDING])
    assert planned.live and planned.first is not None
    shown = shown_step(planned.first)
    assert shown.moves == (Move("max_num_seqs", 16, 8),) and shown.live and shown.loser and shown.why == "fewer"


@pytest.mark.parametrize("permissions", [{}, {"apply": True, "knobs": ("block_size",)}])
def test_what_the_configuration_forbids_cannot_be_applied(engine: Any, permissions: dict[str, Any]) -> None:
    planned = Repair("t", configured(engine.url, **permissions), FINDING.id).plan([FINDING])
    assert planned.first is None and not planned.live
    ((knob, reason),) = planned.plan.refused
    assert knob == "max_num_seqs" and "permit" in reason


def test_a_server_that_is_no_bundled_engine_takes_nothing(engine: Any, vllm_page: bytes) -> None:
    engine.page("/metrics", vllm_page)
    planned = Repair("t", configured(engine.url, apply=True), FINDING.id).plan([FINDING])
    assert planned.system == "vllm" and planned.plan.steps and planned.first is None


def test_a_plan_that_changed_meanwhile_is_not_carried_out(engine: Any) -> None:
    repair = Repair("t", configured(engine.url, apply=True), FINDING.id)
    step = repair.plan([FINDING]).first
    assert step is not None
    engine.page("/admin/config", json.dumps({"version": 4, "engine": "infradoc", "knobs": {}}).encode())
    with pytest.raises(InfradocError, match="another by now"):
        repair.run(step, [FINDING], lambda text: None)


def test_nothing_to_take_back_is_said(engine: Any) -> None:
    repair = Repair("t", configured(engine.url, apply=True), FINDING.id)
    with pytest.raises(InfradocError, match="no change to take back"):
        repair.undo()


def test_a_stopped_run_ends_at_its_next_look() -> None:
    repair, looks = Repair("t", Config(), "x"), []
    monitor: Any = SimpleNamespace(tick=looks.append)
    watcher = _Stoppable(monitor, repair._stop)
    watcher.tick(1.0)
    repair.stop()
    with pytest.raises(Stopped):
        watcher.tick(2.0)
    assert looks == [1.0]
