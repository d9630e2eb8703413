"""The queue against a model: first in, first out in every lane, nothing lost, nothing twice."""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.alerts.backoff import Limit
from infradoc.alerts.database import Database, StoreError
from infradoc.alerts.outbox import Outbox, Result, put

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.sampled_from(["one", "two"])),
        st.tuples(st.sampled_from(["delivered", "dead", "retry"]), st.integers(1, 3), st.sampled_from(["one", "two"])),
        st.tuples(st.just("reopen"), st.just(0), st.just("one")),
    ),
    max_size=40,
)


def message(number: int, now: float) -> dict[str, Any]:
    return {"id": f"m{number}", "kind": "incidents", "created": now}


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_lanes_are_queues(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder))
        model: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        now = 1000.0
        for number, (what, value, sink) in enumerate(steps):
            now += 1
            if what == "put":
                with database.transaction() as link:
                    assert put(link, message(number, now), sink, value, now + 100)
                    assert not put(link, message(number, now), sink, value, now + 100), "the same id is one message"
                model[sink, value].append(f"m{number}")
            elif what == "reopen":
                database.close()
                database = Database(Path(folder))
            else:
                _settle(database, model, what, value, sink, now)
            now += 10
            for name in ("one", "two"):
                heads = {row.lane: row.id for row in Outbox(database).heads(name, now, 9, ())}
                assert heads == {lane: queue[0] for (s, lane), queue in model.items() if s == name and queue}
        database.close()


def _settle(database: Database, model: Any, fate: Any, most: int, sink: str, now: float) -> None:
    outbox = Outbox(database)
    rows = outbox.heads(sink, now, most, ())
    outbox.settle([Result(row, fate, now, "e", now + 5) for row in rows])
    for row in rows:
        if fate == "retry":
            assert row.lane not in {other.lane for other in outbox.heads(sink, now, 9, ())}, "not before it is due"
        else:
            assert model[sink, row.lane].popleft() == row.id


def test_busy_lanes_are_left_alone(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.transaction() as link:
        for number, lane in enumerate("aabbcc"):
            put(link, message(number, 1.0), "s", lane, 100.0)
    outbox = Outbox(database)
    assert [row.id for row in outbox.heads("s", 2.0, 2, ())] == ["m0", "m2"]
    assert [row.id for row in outbox.heads("s", 2.0, 2, {"a", "b"})] == ["m4"]
    assert outbox.heads("s", 2.0, 0, {"a"}) == [] and outbox.heads("s", 0.5, 9, ()) == []
    database.close()


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(ZeroDivisionError), database.transaction() as link:
        put(link, message(0, 1.0), "s", "a", 100.0)
        raise ZeroDivisionError
    assert Outbox(database).heads("s", 2.0, 9, ()) == []
    database.close()


def test_tokens_are_counted_across_processes(tmp_path: Path) -> None:
    first, second = Database(tmp_path), Database(tmp_path)
    limits = (Limit(8, 60.0),)
    assert Outbox(first).take_tokens("s", limits, 1.0, 1) == (1, 0.0)
    taken, wait = Outbox(second).take_tokens("s", limits, 1.0, 9)
    assert taken == 1 and wait == pytest.approx(10.0)
    assert Outbox(first).take_tokens("s", (), 1.0, 5) == (5, 0.0)
    first.close()
    second.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.transaction() as link:
        link.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match=r"written by a newer infradoc .* Update infradoc"):
        Database(tmp_path)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"The alerts' database .* cannot be used: .*\. Set \[alerts\] state"):
        Database(tmp_path / "file")
