"""Windows read from the server's own series, beside the same windows measured at the client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Auth, Config, TargetConfig
from infradoc.load.record import RequestRecord
from infradoc.load.run import run_load
from infradoc.load.spec import LoadSpec, parse_class
from infradoc.model import Reading, Sample
from infradoc.remediation.journal import Journal
from infradoc.remediation.measure import ClientMeasured, ServerMeasured
from infradoc.remediation.run import Timing
from infradoc.remediation.session import Session
from infradoc.signals.store import Store
from infradoc_rules.schema import VerifyMetric

TTFT = VerifyMetric(signal="client_time_to_first_token_seconds", quantile=0.5, at_most=1.0)
BOUNDS = (0.1, 0.2, 0.5, 1.0)


def store_of(per_second: int, ttft: float, seconds: int = 40) -> Store:
    """A server that answers `per_second` requests of 10 tokens a second, each with the same time to first token."""
    store = Store("infradoc", 1.0)
    for second in range(seconds):
        total = per_second * second
        samples = [
            Sample("llm_time_to_first_token_seconds_bucket", (("le", f"{b:g}"),), second, total * (ttft <= b))
            for b in BOUNDS
        ]
        samples += [Sample("llm_time_to_first_token_seconds_bucket", (("le", "+Inf"),), second, total)]
        for name, value in (
            ("llm_time_to_first_token_seconds_count", total),
            ("llm_request_seconds_count", total),
            ("llm_request_prompt_tokens_count", total),
            ("llm_request_prompt_tokens_sum", total * 24),
            ("llm_generation_tokens_total", total * 10),
            ("llm_requests_running", 4),
            ("llm_requests_waiting", 2),
        ):
            samples.append(Sample(name, (), second, value))
        for code, share in (("200", 0.9), ("503", 0.1)):
            labels = (("code", code), ("path", "/v1/completions"))
            samples.append(Sample("llm_http_requests_total", labels, second, total * share))
        store.add(Reading("metrics", second, samples))
    return store


def test_the_servers_counters_give_a_window() -> None:
    window = ServerMeasured(store_of(10, 0.3).frame(39.0), 20.0, 35.0)
    ttft = window.metric(TTFT)
    assert ttft.value == pytest.approx(0.35)  # the middle of its bucket
    assert ttft.n == 150
    assert window.tokens_per_second().value == pytest.approx(100)
    assert window.documents_per_second().value is None
    assert window.errors() == (15, 150)
    shape = window.load()["all"]
    assert (shape.concurrency, shape.prompt) == (pytest.approx(6), pytest.approx(24))


def test_a_quantile_needs_its_samples_from_the_server_too() -> None:
    window = ServerMeasured(store_of(1, 0.3).frame(39.0), 20.0, 35.0)
    assert window.metric(TTFT).value is not None
    assert window.metric(replace(TTFT, quantile=0.99)).value is None


def test_an_idle_server_has_no_load() -> None:
    window = ServerMeasured(Store("infradoc", 1.0).frame(39.0), 20.0, 35.0)
    assert window.load() == {}
    assert window.metric(TTFT).n == 0
    assert window.errors() == (0, 0)


def test_counters_beside_client_latencies(make_records: Callable[..., list[RequestRecord]]) -> None:
    window = ClientMeasured(make_records(15, 40), 20.0, 35.0, store_of(10, 0.3).frame(39.0))
    assert window.metric(TTFT).value == pytest.approx(0.5)
    rate = window.metric(VerifyMetric(signal="llm_generation_tokens_total", at_least=1.0))
    assert rate.value == pytest.approx(100)
    assert ClientMeasured([], 20.0, 35.0).metric(VerifyMetric(signal="llm_requests_running", at_most=1.0)).value is None


@pytest.mark.parametrize("with_clients", [True, False])
def test_a_control_run_on_a_real_engine(engine: Any, journal: Journal, tmp_path: Path, with_clients: bool) -> None:
    """Nothing is changed, the same light load throughout: the judge must not see a fix."""
    client_file = tmp_path / "client.jsonl"
    spec = LoadSpec(
        (parse_class("chat:closed=2,kind=completion,prompt_tokens=8,max_tokens=8,ignore_eos=true"),), duration=60
    )
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    load = threading.Thread(
        target=lambda: loop.run_until_complete(run_load(engine.url, spec, client_out=client_file, stop=stop)),
        daemon=True,
    )
    load.start()
    target = TargetConfig(url=engine.url, client=str(client_file) if with_clients else "", auth=Auth())
    said: list[str] = []
    try:
        with Session("t", Config({"t": target}), journal=journal) as session:
            session.watch(2.0)
            fixer = session.fixer(Timing(baseline=6, hold=6, tail_limit=1), said.append)
            outcome = fixer.run(session.rule("kv-thrashing-preemption"), None)
    finally:
        loop.call_soon_threadsafe(stop.set)
        load.join(20)
        loop.close()
    verdict = outcome.verdict
    assert verdict.facts["measured_at"] == ("client" if with_clients else "server")
    assert verdict.verdict != "fixed"  # the rule is quiet, but nothing became better
    assert outcome.before.load() and outcome.after.load()
    assert outcome.after.errors()[0] == 0
    assert (outcome.after.tokens_per_second().value or 0) > 0
    assert outcome.applied is None and journal.changes() == []
    others = outcome.neighbours  # the load runs in this process: whoever is busy beside it is not
    assert others is not None and 0 <= others.before.others <= others.before.cores
    assert ("Other programs took" in verdict.reason) == others.moved
    if not with_clients:
        assert "Measured by the server itself" in verdict.reason
    assert time.time() - outcome.after.end < 30
