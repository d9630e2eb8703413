"""A refusal in the log and the client's 400 are one refusal."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from infradoc.model import Reading
from infradoc.monitor.replay import Replay
from infradoc.signals.store import Store
from infradoc.signals.twins import Twins
from infradoc_rules.catalog import Catalog
from infradoc_rules.model import Event

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recordings" / "llamacpp-03"


def refusal(tokens: int | None = 1973, name: str = "request_rejected_length") -> Event:
    return Event(name, 0, {"limit": 1024} if tokens is None else {"tokens": tokens, "limit": 1024})


@given(st.lists(st.tuples(st.sampled_from(["log", "client"]), st.integers(1, 3)), max_size=40))
def test_the_source_that_tells_most_counts_whatever_the_order(told: list[tuple[str, int]]) -> None:
    twins, kept = Twins(), 0
    for source, tokens in told:
        kept += len(twins.once(source, [refusal(tokens)]))
    assert kept == sum(max(told.count(("log", n)), told.count(("client", n))) for n in (1, 2, 3))


def test_what_names_no_lengths_or_is_no_refusal_passes() -> None:
    twins = Twins()
    for source in ("log", "client"):
        assert len(twins.once(source, [refusal(None), refusal(None), refusal(name="preempted")])) == 3


def test_the_store_keeps_it_once() -> None:
    store = Store()
    store.add(Reading("log", 1.0, events=[refusal(), refusal()]))
    store.add(Reading("client", 2.0, events=[refusal(), refusal(), refusal()]))
    assert len(store.events) == 3


def test_a_real_server_s_refusals() -> None:
    """Log and clients of the recording tell of the same ones."""
    lines = (RECORDED / "server.log").read_text().splitlines()
    logged = sum("exceeds the available context size" in line for line in lines)
    replay = Replay(RECORDED, Catalog(()))
    replay.run()
    seen = sum(event.name == "request_rejected_length" for event in replay.store.events)
    assert logged > 50 and logged <= seen <= logged * 1.05  # one source may have begun or ended a moment earlier
