"""The deliverer against real receivers: order, retries, switching off, rate, slow ones beside quick ones."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts import desk
from infradoc.alerts.attempt import attempt, result_of
from infradoc.alerts.backoff import Limit, Pace
from infradoc.alerts.config import SinkConfig
from infradoc.alerts.database import Database, StoreError
from infradoc.alerts.deliver import Deliverer
from infradoc.alerts.message import trial_message
from infradoc.alerts.outbox import HEARTBEAT, Outbox, Result, Row, SinkState, put
from infradoc.alerts.post import Poster
from infradoc.alerts.sinks.all import make_sink
from infradoc.alerts.sinks.base import Outcome

PACE = Pace(base=0.02, cap=0.1, trips=5, breaker_base=0.05, breaker_cap=0.1, idle=0.05)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "state")
    yield made
    made.close()


def queue(database: Database, sink: str, lane: str, number: int, kind: str = "", give_up: float = 86_400.0) -> str:
    message = {**trial_message(time.time(), f"{sink}{lane}{number}"), "group": f"{lane}/{number}"}
    with database.transaction() as link:
        put(link, message, sink, lane, message["created"] + give_up, kind)
    return str(message["id"])


@pytest.fixture
def run(tmp_path: Path, database: Database) -> Iterator[Callable[..., Deliverer]]:
    """Start a deliverer with these sinks; all are stopped at the end."""
    started: list[Deliverer] = []

    def go(*configs: SinkConfig, pace: Pace = PACE) -> Deliverer:
        made = Deliverer(tmp_path / "state", [make_sink(config) for config in configs], pace=pace)
        made.start()
        started.append(made)
        return made

    yield go
    for one in started:
        one.stop(0)


def hook(name: str, receiver: Any, **options: Any) -> SinkConfig:
    return SinkConfig(name, "webhook", url=f"{receiver.url}/{name}", allow_private=True, timeout=5.0, **options)


def groups(receiver: Any) -> list[str]:
    return [json.loads(body)["data"]["group"] for _, _, body in receiver.got]


def test_a_lane_keeps_its_order_through_failures(run: Any, database: Database, receiver: Any, wait_until: Any) -> None:
    chance = random.Random(1)
    taken: list[str] = []

    def reply(path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if chance.random() < 0.5:
            return 503, {}, b""
        taken.append(json.loads(body)["data"]["group"])
        return 200, {}, b""

    receiver.reply = reply
    for number in range(5):
        for lane in "abcdef":
            queue(database, "ops", lane, number)
    run(hook("ops", receiver))
    wait_until(lambda: len(taken) == 30, 30)
    for lane in "abcdef":
        assert [name for name in taken if name.startswith(lane)] == [f"{lane}/{number}" for number in range(5)]


def test_a_retry_carries_the_same_id(run: Any, database: Database, receiver: Any, wait_until: Any) -> None:
    receiver.reply = lambda path, headers, body: (500 if len(receiver.got) < 4 else 200, {}, b"")
    message_id = queue(database, "ops", "a", 0)
    run(hook("ops", receiver))
    wait_until(lambda: desk.sinks(database).get("ops", {}).get("delivered") == 1)
    assert {headers["webhook-id"] for _, headers, _ in receiver.got} == {message_id} and len(receiver.got) == 4


def test_gone_switches_the_sink_off_until_somebody_switches_it_on(
    run: Any, database: Database, receiver: Any, wait_until: Any
) -> None:
    receiver.answers(410)
    queue(database, "ops", "a", 0)
    queue(database, "ops", "b", 0)
    run(hook("ops", receiver, concurrency=1))
    wait_until(lambda: bool(desk.sinks(database).get("ops", {}).get("disabled")))
    seen = len(receiver.got)
    time.sleep(0.3)
    assert len(receiver.got) == seen == 1 and "gone for good (HTTP 410)" in desk.sinks(database)["ops"]["disabled"]
    receiver.answers(200)
    assert desk.replay(database, time.time(), 100.0, sink="ops").enabled == ("ops",)
    wait_until(lambda: desk.sinks(database)["ops"]["delivered"] == 2)


def test_what_is_refused_is_kept_and_can_be_sent_again(
    run: Any, database: Database, receiver: Any, wait_until: Any
) -> None:
    receiver.answers(400, b"no such field")
    first = queue(database, "ops", "a", 0)
    run(hook("ops", receiver))
    wait_until(lambda: desk.sinks(database).get("ops", {}).get("dead") == 1)
    assert desk.rows(database, "dead")[0]["error"] == "HTTP 400: no such field"
    receiver.answers(200)
    queue(database, "ops", "a", 1)
    wait_until(lambda: desk.sinks(database)["ops"]["delivered"] == 1)
    kept = desk.replay(database, time.time(), 100.0)
    assert (kept.queued, kept.outdated) == (0, 1), "a later state of this lane has been delivered"
    assert desk.replay(database, time.time(), 100.0, row_id=first).queued == 1
    wait_until(lambda: desk.sinks(database)["ops"]["delivered"] == 2)


def test_given_up_after_its_time(run: Any, database: Database, receiver: Any, wait_until: Any) -> None:
    receiver.answers(500)
    queue(database, "ops", "a", 0, give_up=0.3)
    run(hook("ops", receiver))
    wait_until(lambda: desk.sinks(database).get("ops", {}).get("dead") == 1)
    assert desk.rows(database, "dead")[0]["error"].startswith("Given up after ")


def test_retry_after_keeps_off_the_whole_sink_and_no_other(
    run: Any, database: Database, receiver: Any, other_receiver: Any, wait_until: Any
) -> None:
    receiver.answers(429, b"", Retry_After="3600")
    for lane in "abc":
        queue(database, "ops", lane, 0)
        queue(database, "other", lane, 0)
    run(hook("ops", receiver, concurrency=1), hook("other", other_receiver))
    wait_until(lambda: len(other_receiver.got) == 3)
    time.sleep(0.3)
    assert len(receiver.got) == 1
    assert desk.sinks(database)["ops"]["blocked_until"] > time.time() + 3000


def test_a_receiver_that_hangs_holds_up_nobody_else(
    run: Any, database: Database, receiver: Any, other_receiver: Any, wait_until: Any
) -> None:
    gate = threading.Event()
    receiver.reply = lambda path, headers, body: (gate.wait(30) and 200, {}, b"")
    for lane in "abcdefghijkl":
        queue(database, "slow", lane, 0)
        queue(database, "quick", lane, 0)
    deliverer = run(replace(hook("slow", receiver), timeout=100.0), hook("quick", other_receiver))
    wait_until(lambda: len(other_receiver.got) == 12 and len(receiver.got) == 8)
    assert desk.sinks(database)["slow"]["waiting"] == 12
    began = time.monotonic()
    deliverer.stop(0.2)
    assert time.monotonic() - began < 5 and desk.sinks(database)["slow"]["waiting"] == 12
    gate.set()


def test_a_dead_receiver_is_asked_less_and_less(
    run: Any, database: Database, closed_port: int, wait_until: Any
) -> None:
    for lane in range(50):
        queue(database, "ops", f"l{lane}", 0)
    sink = SinkConfig("ops", "webhook", url=f"http://127.0.0.1:{closed_port}/", allow_private=True)
    run(sink, pace=replace(PACE, breaker_base=60, breaker_cap=600))
    wait_until(lambda: desk.sinks(database).get("ops", {}).get("open_until", 0) > time.time())
    time.sleep(0.3)
    state = desk.sinks(database)["ops"]
    assert state["failures"] <= 5 + 8 and state["waiting"] == 50
    assert "refuses the connection" in state["error"]


def test_rates_are_kept_across_restarts(run: Any, database: Database, receiver: Any, wait_until: Any) -> None:
    for lane in range(30):
        queue(database, "ops", f"l{lane}", 0)
    limited = hook("ops", receiver, rate=(Limit(20, 3600.0),))
    first = run(limited)
    wait_until(lambda: len(receiver.got) == 5)
    first.stop(0)
    run(limited)
    time.sleep(0.4)
    assert len(receiver.got) == 5


def test_a_full_disk_sends_nothing_twice(
    run: Any, database: Database, receiver: Any, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a delivery that cannot be stored is kept, and stored when that works again."""
    full = threading.Event()
    real = Outbox.settle

    def settle(self: Outbox, results: Any) -> None:
        if full.is_set():
            raise StoreError("The disk is full.")
        real(self, results)

    full.set()
    monkeypatch.setattr(Outbox, "settle", settle)
    queue(database, "ops", "a", 0)
    deliverer = run(hook("ops", receiver))
    wait_until(lambda: deliverer.trouble == "The disk is full.")
    time.sleep(0.3)
    assert len(receiver.got) == 1
    full.clear()
    wait_until(lambda: desk.sinks(database).get("ops", {}).get("delivered") == 1)
    assert len(receiver.got) == 1 and deliverer.trouble == ""


def test_heartbeats_do_not_pile_up_and_are_not_kept(
    run: Any, database: Database, receiver: Any, wait_until: Any
) -> None:
    for number in range(5):
        queue(database, "ops", "a", number, HEARTBEAT)
    assert desk.sinks(database)["ops"]["waiting"] == 1
    run(hook("ops", receiver))
    wait_until(lambda: len(receiver.got) == 1)
    wait_until(lambda: desk.sinks(database)["ops"].get("waiting", 0) == 0)
    assert not desk.rows(database, "delivered")


def test_finished_messages_are_pruned_and_waiting_ones_never(database: Database) -> None:
    outbox = Outbox(database)
    for lane in "ab":
        queue(database, "ops", lane, 0)
    (row, _) = outbox.heads("ops", time.time(), 9, ())
    outbox.settle([Result(row, "delivered", 1000.0)])
    assert outbox.prune(2000.0, 5000.0) == 0 and outbox.prune(2000.0, 500.0) == 1
    assert desk.sinks(database)["ops"]["waiting"] == 1


def test_what_waits_for_a_sink_that_is_switched_off_is_given_up_in_the_end(database: Database) -> None:
    outbox = Outbox(database)
    queue(database, "ops", "a", 0, give_up=10.0)
    queue(database, "other", "a", 0, give_up=10.0)
    (row,) = outbox.heads("ops", time.time(), 9, ())
    outbox.settle([Result(row, "disable", time.time(), "gone")])
    assert outbox.expire(time.time()) == 0 and outbox.expire(time.time() + 11) == 1
    assert [row["sink"] for row in desk.rows(database, "dead")] == ["ops"]
    assert desk.replay(database, time.time(), 100.0).queued == 1 and len(outbox.heads("ops", time.time(), 9, ())) == 1


def test_a_message_that_cannot_be_rendered_stops_no_other(
    run: Any, database: Database, receiver: Any, wait_until: Any
) -> None:
    with database.transaction() as link:
        put(link, {"id": "x", "kind": "incidents", "created": time.time()}, "ops", "a", time.time() + 100)
    queue(database, "ops", "a", 1)
    run(hook("ops", receiver))
    wait_until(lambda: groups(receiver) == ["a/1"])
    assert "Internal error: KeyError" in desk.rows(database, "dead")[0]["error"]


def test_what_is_noted_of_an_attempt() -> None:
    row = Row(1, "i", "s", "l", "k", "{}", 0.0, 1000.0, 3)
    chance = random.Random(0)
    pace = Pace()

    def noted(outcome: Outcome, failures: int = 0, now: float = 10.0) -> Result:
        return result_of(row, outcome, now, SinkState(failures=failures), pace, chance)

    assert noted(Outcome("delivered")).fate == "delivered"
    later = noted(Outcome("retry", "t", 30.0, True))
    assert later.fate == "retry" and later.due >= 40.0 and later.block == 40.0 and later.open_until == 0.0
    assert noted(Outcome("retry", "t", None, True), failures=4).open_until > 10.0
    assert noted(Outcome("retry", "t", None, False), failures=9).open_until == 0.0
    assert noted(Outcome("retry", "t"), now=2000.0).fate == "dead"
    assert noted(Outcome("disable", "t"), now=2000.0).fate == "disable"


def test_a_secret_that_is_missing_later_is_told_and_waited_for() -> None:
    sink = make_sink(SinkConfig("s", "slack", url_env="NOT_SET_ANYWHERE"))
    outcome = asyncio.run(attempt(sink, Poster(sink.config), trial_message(1.0, "n"), 1.0))
    assert outcome.fate == "retry" and "NOT_SET_ANYWHERE" in outcome.text


def test_a_clock_set_back_puts_no_retry_off(tmp_path: Path, database: Database, receiver: Any, wait_until: Any) -> None:
    ahead = [86_400.0]

    def clock() -> float:
        return time.time() + ahead[0]

    receiver.reply = lambda path, headers, body: (503, {"Retry-After": "3"}, b"")
    made = Deliverer(tmp_path / "state", [make_sink(hook("ops", receiver))], pace=PACE, clock=clock)
    queue(database, "ops", "lane", 1, give_up=10 * 86_400.0)
    made.start()
    try:
        wait_until(lambda: len(receiver.got) >= 1)
        receiver.reply = lambda path, headers, body: (200, {}, b"ok")
        ahead[0] = 0.0
        wait_until(lambda: desk.rows(database, "delivered") != [])
    finally:
        made.stop(0)


def test_a_deliverer_that_cannot_begin_says_so(tmp_path: Path, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop(main: Any) -> None:
        main.close()
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("infradoc.alerts.deliver.asyncio.run", no_loop)
    made = Deliverer(tmp_path / "state", [make_sink(hook("ops", receiver))], pace=PACE)
    with pytest.raises(StoreError, match="Too many open files"):
        made.start()
