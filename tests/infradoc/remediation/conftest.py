"""Factories for findings, engine states, changes and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infradoc.demo.children import Child, start_engine
from infradoc.load.record import RequestRecord
from infradoc.remediation.admin import AdminClient, EngineState, KnobState
from infradoc.remediation.journal import ChangeRecord, Entry, Journal
from infradoc_rules.model import Action, Change, Finding, Value


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of its own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(folder))
    yield folder


@pytest.fixture
def journal(state_dir: Path) -> Journal:
    """A journal in its own folder."""
    return Journal()


@pytest.fixture
def make_change() -> Callable[..., ChangeRecord]:
    """A change of a knob as the journal would tell it."""

    def make(knob: str, old: Value, new: Value, time: float, last: Any = "applied", ident: str = "c1") -> ChangeRecord:
        first = Entry("intent", ident, time, "http://x:1", knob, old, new)
        return ChangeRecord(first, Entry(last, ident, time, "http://x:1", knob, old, new), None)

    return make


@pytest.fixture
def make_action() -> Callable[..., Action]:
    """An action by name with its numbers."""

    def make(name: str, knob: str, change: Change, old: Value | None, new: Value | None, **more: Any) -> Action:
        return Action(knob, change, "because", old, new, name=name, live=True, cost="something", **more)

    return make


@pytest.fixture
def make_finding() -> Callable[..., Finding]:
    """A finding with actions."""

    def make(ident: str, *actions: Action) -> Finding:
        return Finding(ident, "warning", 0.9, "title", "cause", "impact", "falsifier", actions=actions)

    return make


@pytest.fixture
def engine_state() -> EngineState:
    """The knobs of an engine as /admin/config tells them."""
    rows: list[tuple[str, Value | None, tuple[Value, ...], str]] = [
        ("max_num_seqs", 16, (1, 1024), "live"),
        ("max_num_batched_tokens", 512, (1, 65536), "live"),
        ("tokenizer_workers", 0, (0, 64), "live"),
        ("kv_pool_tokens", 384, (1, 2**31 - 1), "live"),
        ("max_queued_requests", None, (0, 2**31 - 1), "live"),
        ("truncation_policy", "left", ("reject", "left", "right", "middle"), "live"),
        ("max_model_len", 128, (2, 8192), "drain"),
    ]
    knobs = {n: KnobState(n, v, "flag", b, c, "--" + n.replace("_", "-")) for n, v, b, c in rows}
    return EngineState(3, "infradoc", knobs)


@pytest.fixture
def make_records() -> Callable[..., list[RequestRecord]]:
    """A closed loop of requests over a stretch of time with given latencies."""

    def make(
        begin: float,
        end: float,
        *,
        clients: int = 4,
        ttft: float = 0.5,
        gap: float = 0.1,
        tokens: int = 10,
        cls: str = "chat",
    ) -> list[RequestRecord]:
        found = []
        for client in range(clients):
            start = begin + client * 0.01
            while start < end:
                itl = [gap] * (tokens - 1)
                e2e = ttft + sum(itl)
                found.append(
                    RequestRecord(
                        len(found), "/v1/chat/completions", start, cls, ttft, e2e, tokens, 200, "length", None, None,
                        24, tokens, tokens, 24, itl,
                    )
                )  # fmt: skip
                start += e2e
        return found

    return make


@dataclass(frozen=True)
class RunningEngine:
    """A real engine of the bundled kind: its URL, its token, and its process."""

    url: str
    token: str
    child: Child

    def client(self) -> AdminClient:
        return AdminClient(self.url, self.token)


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """One engine with a small KV pool for all tests of this folder."""
    runtime = tmp_path_factory.mktemp("runtime")
    flags = ("--omp-num-threads", "1", "--kv-pool-tokens", "384", "--max-model-len", "128", "--enable-faults")
    child, url = start_engine("smollm2-135m", flags, runtime)
    with child:
        (token_file,) = runtime.glob("engine-*.token")
        yield RunningEngine(url, token_file.read_text().strip(), child)


@pytest.fixture
def engine(real_engine: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> RunningEngine:
    """The engine with its knobs as at its start and no lease."""
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", real_engine.token)
    with real_engine.client() as admin:
        state = admin.config()
        if state.lease is not None:
            admin.holder = state.lease["holder"]
        start: dict[str, Value | None] = {"max_num_seqs": 16, "tokenizer_workers": 0, "max_queued_requests": None}
        start |= {"max_model_len": 128, "block_size": 16, "truncation_policy": "reject", "kv_pool_tokens": 384}
        admin.set_all(start, state.version)
        admin.release()
    return real_engine
