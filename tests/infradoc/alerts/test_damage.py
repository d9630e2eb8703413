"""A damaged database of alerts: set aside in one sentence, and undelivered messages, incidents, silences go on."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.backoff import Pace
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.damage import mended, sound_database
from infradoc.alerts.database import FILE_NAME, Database, StoreError
from infradoc.alerts.deliver import Deliverer
from infradoc.alerts.desk import rows
from infradoc.alerts.matchers import parse_matcher
from infradoc.alerts.outbox import Outbox
from infradoc.alerts.records import add_silence, load_incidents, load_silences
from infradoc.alerts.timing import Timing

Finding = dict[str, Any]
Make = Callable[..., Finding]
NOW = time.time()


@pytest.fixture
def config(write_config: Callable[[str], AlertsConfig], receiver: Any) -> AlertsConfig:
    made = write_config(
        f'[alerts]\nstate = "state"\n[alerts.sinks.ops]\nkind = "webhook"\nurl = "{receiver.url}/hook"\n'
        "allow_private = true\n"
    )
    return replace(made, timing=Timing(group_wait=0, group_interval=0.1, resolve_after=0.1))


@pytest.fixture
def filled(config: AlertsConfig, finding: Make) -> Path:
    """The file of a watch that ended with 40 incidents told of, and their messages not delivered."""
    alerting = Alerting(config)
    for number in range(40):
        alerting.observe(NOW - 90 + number, f"t{number}", "vllm", [finding("a")])
    alerting.step(NOW - 50)
    alerting.stop(0)
    database = Database(Path(config.state))
    add_silence(database, [parse_matcher("target=other")], 0.0, 1e10, "me", "why")
    with database.transaction() as link:
        link.execute("UPDATE outbox SET state = 'dead' WHERE seq <= 5")
        link.execute("DELETE FROM lane WHERE lane = 'group:t39'")
    database.close()
    return Path(config.state) / FILE_NAME


def spoil(path: Path, table: str) -> None:
    """Overwrite a page in the middle of a table's rows."""
    link = sqlite3.connect(path)
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    row = link.execute("SELECT body FROM outbox WHERE seq = 20").fetchone()[0] if table == "outbox" else ""
    (root,) = link.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    link.close()
    data = path.read_bytes()
    at = data.index(row.encode()[:200]) // 4096 if row else root - 1
    with path.open("r+b") as out:
        out.seek(at * 4096)
        out.write(b"\x55" * 4096)


@pytest.mark.parametrize("damage", ["page", "beginning"])
def test_what_waits_is_saved_and_the_rest_said(filled: Path, config: AlertsConfig, damage: str) -> None:
    if damage == "page":
        spoil(filled, "outbox")
    else:
        with filled.open("r+b") as out:
            out.write(b"\0" * 4096)
    database, said = sound_database(filled.parent, NOW)
    least = 30 if damage == "page" else 35
    found = re.search(
        r"^The alerts' database .* is damaged: .*\. It was set aside as (alerts\.sqlite\.damaged-\S+); saved from it: "
        r"(\d+) messages that wait, (\d+) messages that were given up, (\d+) incidents, 1 silence\.$", said,
    )  # fmt: skip
    assert found is not None, said
    assert least <= int(found[2]) <= 35 and int(found[3]) == 5 and int(found[4]) == 40
    assert (filled.parent / found[1]).is_file()
    heads = Outbox(database).heads("ops", NOW, 99, ())
    assert len(heads) == int(found[2]), "each in a lane of its own, and all of them due"
    assert all(json.loads(head.body)["schema"] == "infradoc.notification/v1" for head in heads)
    assert len(rows(database, "dead")) == 5 and len(load_silences(database, NOW)) == 1
    database.close()
    assert sound_database(filled.parent, NOW + 100)[1] == ""


def test_a_watch_starts_delivers_what_was_saved_and_tells_no_incident_twice(
    filled: Path, config: AlertsConfig, receiver: Any, finding: Make, wait_until: Any
) -> None:
    spoil(filled, "outbox")
    alerting = Alerting(config, clock=lambda: NOW)
    assert len(alerting.set_aside) == 1 and alerting.trouble == ""
    assert len(alerting.incidents()) == 40
    alerting.start()
    wait_until(lambda: len(receiver.got) >= 30)
    alerting.observe(NOW, "t7", "vllm", [finding("a")])
    alerting.stop(2)
    bodies = [json.loads(body)["data"] for _, _, body in receiver.got]
    targets = [incident["target"] for body in bodies for incident in body["incidents"]]
    assert len(targets) == len(set(targets)) <= 35


@pytest.mark.parametrize("data", [b"a text, and no database\n" * 400, b""], ids=["text", "nothing"])
def test_another_file_of_that_name(config: AlertsConfig, data: bytes) -> None:
    path = Path(config.state) / FILE_NAME
    path.parent.mkdir()
    path.write_bytes(data)
    alerting = Alerting(config)
    assert len(alerting.set_aside) == bool(data)
    assert all(said.endswith("; nothing could be read from it.") for said in alerting.set_aside)
    alerting.stop(0)


@pytest.mark.parametrize("data", ["{", "[]", '{"target": "a"}'])
def test_an_incident_that_is_none(config: AlertsConfig, data: str) -> None:
    database = Database(Path(config.state))
    with database.transaction() as link:
        link.execute("INSERT INTO incident VALUES ('x', ?)", (data,))
    with pytest.raises(StoreError, match="is damaged: a row in it cannot be read"):
        load_incidents(database)
    database.close()
    alerting = Alerting(config)
    assert "nothing could be read from it" in alerting.set_aside[0] and alerting.incidents() == []
    alerting.stop(0)


def test_rows_that_make_no_sense_are_damage_and_stay_behind(filled: Path, config: AlertsConfig) -> None:
    database = Database(filled.parent)
    with database.transaction() as link:
        link.execute("UPDATE incident SET data = '{' WHERE fingerprint = (SELECT min(fingerprint) FROM incident)")
        link.execute("UPDATE outbox SET body = '[]' WHERE seq = 30")
        link.execute("UPDATE sink SET buckets = 'x'")
        link.execute("UPDATE outbox SET state = 'lost' WHERE seq = 31")
    with pytest.raises(StoreError, match="a row in it cannot be read"):
        load_incidents(database)
    database.close()
    database, said = sound_database(filled.parent, NOW)
    assert "33 messages that wait" in said and "39 incidents" in said
    assert len(load_incidents(database)) == 39
    database.close()


def test_damage_while_it_runs(
    filled: Path, config: AlertsConfig, receiver: Any, finding: Make, wait_until: Any
) -> None:
    quick = Pace(base=0.02, cap=0.2, breaker_base=0.02, breaker_cap=0.1, idle=0.1)
    receiver.answers(503)
    alerting = Alerting(config, deliverer=lambda folder, sinks, **other: Deliverer(folder, sinks, pace=quick))
    alerting.start()
    wait_until(lambda: len(receiver.got) >= 5)
    with alerting._guard:  # nobody writes now
        spoil(filled, "silence")
    wait_until(lambda: bool(alerting.set_aside))
    (said,) = alerting.set_aside
    assert "35 messages that wait, 5 messages that were given up, 40 incidents, 0 silences" in said
    taken: set[str] = set()

    def take(path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        taken.update(incident["target"] for incident in json.loads(body)["data"]["incidents"])
        return 200, {}, b"ok"

    receiver.reply = take
    wait_until(lambda: len(taken) == 35)
    wait_until(lambda: alerting.trouble == "")
    alerting.observe(alerting.clock(), "new", "vllm", [finding("a", "critical")])
    wait_until(lambda: "new" in taken)
    alerting.stop(2)
    database = Database(filled.parent)
    assert len(load_incidents(database)) == 41, "what the core knows is in the new file"
    database.close()


def test_damage_that_only_the_deliverer_meets(
    filled: Path, config: AlertsConfig, receiver: Any, wait_until: Any
) -> None:
    link = sqlite3.connect(filled)
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = link.execute("SELECT rootpage FROM sqlite_master WHERE name = 'lane_due'").fetchone()
    link.close()
    alerting = Alerting(config)
    with filled.open("r+b") as out:  # after the start has read everything
        out.seek((root - 1) * 4096)
        out.write(b"\x55" * 4096)
    alerting.start()
    wait_until(lambda: len(receiver.got) >= 35)
    assert len(alerting.set_aside) == 1 and "35 messages that wait" in alerting.set_aside[0]
    wait_until(lambda: alerting.trouble == "")
    alerting.stop(1)


def test_a_disk_that_damages_every_file_is_not_filled_with_them(filled: Path, config: AlertsConfig) -> None:
    alerting = Alerting(config, clock=lambda: NOW)
    for now in (NOW, NOW + 1, NOW + 2):
        spoil(filled, "silence")
        alerting.step(now)
    assert len(alerting.set_aside) == 1 and "is damaged" in alerting.trouble
    assert len(list(filled.parent.glob("*.damaged-*[0-9]"))) == 1
    alerting.stop(0)


def test_a_sound_file_in_use_is_left_alone(filled: Path) -> None:
    assert mended(filled.parent, NOW) == ""
    assert not list(filled.parent.glob("*.damaged-*"))


def test_others_are_told_and_leave_the_file_alone(filled: Path) -> None:
    filled.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=r"is damaged: file is not a database\. `infradoc watch` sets it aside"):
        Database(filled.parent)
    assert not list(filled.parent.glob("*.damaged-*"))
