"""Another configuration in a running service: what was decided stays, and a fault leaves everything as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.database import Database, StoreError
from infradoc.alerts.desk import rows
from infradoc.alerts.timing import Timing
from infradoc.sources.credentials import SecretError

Finding = dict[str, Any]
QUICK = Timing(group_wait=0, group_interval=0.1, resolve_after=0.1)


@pytest.fixture
def make(write_config: Callable[[str], AlertsConfig], receiver: Any) -> Callable[..., AlertsConfig]:
    def write(name: str, more: str = "", top: str = "") -> AlertsConfig:
        text = f'[alerts]\nstate = "state"\n{top}[alerts.sinks.{name}]\nkind = "webhook"\nallow_private = true\n'
        return replace(write_config(f'{text}url = "{receiver.url}/{name}"\n{more}'), timing=QUICK)

    return write


def paths(receiver: Any) -> list[str]:
    return [path for path, _, _ in receiver.got]


def test_the_new_sinks_hear_what_comes_and_the_old_ones_messages_are_laid_aside(
    make: Callable[..., AlertsConfig], receiver: Any, finding: Callable[..., Finding], wait_until: Any
) -> None:
    receiver.reply = lambda path, headers, body: (503 if path == "/old" else 200, {}, b"")
    alerting = Alerting(make("old"))
    alerting.start()
    alerting.observe(alerting.clock(), "prod", "vllm", [finding("a")])
    wait_until(lambda: "/old" in paths(receiver))
    alerting.reconfigure(make("new", top='group_by = "incident"\n'))
    assert alerting.core.group_by == "incident" and [sink.name for sink in alerting.sinks] == ["new"]
    alerting.observe(alerting.clock(), "prod", "vllm", [finding("a"), finding("b")])
    wait_until(lambda: "/new" in paths(receiver))
    alerting.stop(2)
    told = [json.loads(body)["data"]["incidents"] for path, _, body in receiver.got if path == "/new"]
    assert [[one["finding"] for one in incidents] for incidents in told] == [["b"]], "a was told of before"
    database = Database(alerting.folder)
    assert {row["sink"] for row in rows(database, "dead")} == {"old"} and rows(database, "waiting") == []
    database.close()


def test_a_secret_that_is_not_there_changes_nothing(
    make: Callable[..., AlertsConfig], receiver: Any, finding: Callable[..., Finding], wait_until: Any
) -> None:
    alerting = Alerting(make("old"))
    alerting.start()
    with pytest.raises(SecretError):
        alerting.reconfigure(make("new", more='bearer_env = "NO_SUCH_VARIABLE"\n'))
    alerting.observe(alerting.clock(), "prod", "vllm", [finding("a")])
    wait_until(lambda: "/old" in paths(receiver))
    alerting.stop(1)


def test_a_database_that_cannot_be_opened_changes_nothing(
    make: Callable[..., AlertsConfig],
    receiver: Any,
    finding: Callable[..., Finding],
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alerting = Alerting(make("old"))
    alerting.start()
    with monkeypatch.context() as patched:
        patched.setattr("infradoc.alerts.deliver.Database", _full)
        with pytest.raises(StoreError):
            alerting.reconfigure(make("new"))
    assert [sink.name for sink in alerting.sinks] == ["old"]
    alerting.observe(alerting.clock(), "prod", "vllm", [finding("a")])
    wait_until(lambda: "/old" in paths(receiver))
    alerting.stop(1)


def _full(folder: Path) -> Database:
    raise StoreError(f"The disk of {folder} is full.")


def test_what_a_full_disk_held_back_is_told_by_the_new_configuration(
    make: Callable[..., AlertsConfig], receiver: Any, finding: Callable[..., Finding], wait_until: Any
) -> None:
    alerting = Alerting(make("old"))
    alerting.start()
    with alerting._guard:
        pages = alerting._database._link.execute("PRAGMA page_count").fetchone()[0]
        alerting._database._link.execute(f"PRAGMA max_page_count = {pages}")
    alerting.observe(alerting.clock(), "prod", "vllm", [finding(f"f{n}", cause="x" * 900) for n in range(30)])
    wait_until(lambda: "full or failing" in alerting.trouble)
    alerting.reconfigure(make("new"))
    with alerting._guard:
        alerting._database._link.execute("PRAGMA max_page_count = 1000000")
    wait_until(lambda: "/new" in paths(receiver))
    alerting.stop(1)
    (body,) = [json.loads(body) for path, _, body in receiver.got if path == "/new"]
    assert len(body["data"]["incidents"]) == 30 and "/old" not in paths(receiver)


def test_it_may_be_changed_before_the_start(
    make: Callable[..., AlertsConfig], receiver: Any, finding: Callable[..., Finding], wait_until: Any
) -> None:
    alerting = Alerting(make("old"))
    alerting.reconfigure(make("new"))
    alerting.start()
    alerting.observe(alerting.clock(), "prod", "vllm", [finding("a")])
    wait_until(lambda: "/new" in paths(receiver))
    alerting.stop(1)
