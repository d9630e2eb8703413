"""The whole way: findings observed, told once, stored, delivered, restored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.database import Database, StoreError
from infradoc.alerts.desk import rows
from infradoc.alerts.lease import BusyError
from infradoc.alerts.matchers import parse_matcher
from infradoc.alerts.outbox import Outbox, Result
from infradoc.alerts.records import add_silence
from infradoc.alerts.timing import Timing
from infradoc.errors import InfradocError

Finding = dict[str, Any]
QUICK = Timing(group_wait=0, group_interval=0.1, resolve_after=0.1)


@pytest.fixture
def config(write_config: Callable[[str], AlertsConfig], receiver: Any) -> AlertsConfig:
    made = write_config(
        f'[alerts]\nstate = "state"\n[alerts.sinks.ops]\nkind = "webhook"\nurl = "{receiver.url}/hook"\n'
        'allow_private = true\n[alerts.sinks.bad]\nkind = "webhook"\nseverity = "critical"\nsend_resolved = false\n'
        f'match = ["target=prod"]\nallow_private = true\nurl = "{receiver.url}/critical"\n'
    )
    return replace(made, timing=QUICK)


@pytest.fixture
def alerting(config: AlertsConfig) -> Iterator[Alerting]:
    made = Alerting(config)
    yield made
    made.stop(0)


def waiting(config: AlertsConfig) -> list[dict[str, Any]]:
    database = Database(Path(config.state))
    try:
        return rows(database, "waiting", 1000)
    finally:
        database.close()


def sent(receiver: Any, path: str = "/hook") -> list[dict[str, Any]]:
    return [json.loads(body) for where, _, body in receiver.got if where == path]


def test_from_finding_to_receiver_and_back(
    config: AlertsConfig, receiver: Any, finding: Callable[..., Finding], wait_until: Any
) -> None:
    alerting = Alerting(config)
    alerting.start()
    try:
        alerting.observe(alerting.clock(), "prod", "vllm", [finding(severity="critical")])
        wait_until(lambda: len(receiver.got) == 2)
        alerting.observe(alerting.clock() + 1, "prod", "vllm", [])
        wait_until(lambda: len(receiver.got) == 3)
    finally:
        alerting.stop(2)
    first, second = sent(receiver)
    assert (first["type"], first["data"]["status"], second["data"]["status"]) == (
        "infradoc.incidents", "firing", "resolved",
    )  # fmt: skip
    fired, over = first["data"]["incidents"][0], second["data"]["incidents"][0]
    assert fired["incident"] == over["incident"] and over["sequence"] == fired["sequence"] + 1
    assert len(sent(receiver, "/critical")) == 1, "a sink without resolved ones heard only the beginning"
    assert waiting(config) == []


def test_filters_of_a_sink(alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]) -> None:
    alerting.observe(1.0, "prod", None, [finding("a", "warning")])
    alerting.observe(1.0, "lab", None, [finding("a", "critical")])
    alerting.step(1.0)
    assert [row["sink"] for row in waiting(config)] == ["ops", "ops"]
    alerting.observe(2.0, "prod", None, [finding("a", "critical")])
    alerting.step(2.0)
    assert sorted(row["sink"] for row in waiting(config)) == ["bad", "ops", "ops", "ops"]


def test_each_sink_in_its_language(
    config: AlertsConfig, receiver: Any, finding: Callable[..., Finding], chinese: Any, wait_until: Any
) -> None:
    sinks = {"ops": config.sinks["ops"], "bad": replace(config.sinks["ops"], name="bad", lang="zh")}
    alerting = Alerting(replace(config, sinks=sinks))
    alerting.start()
    found = finding("kv-thrashing-preemption", title="Blocks are lost")
    alerting.observe(alerting.clock(), "prod", "vllm", [found], lang="en", also={"zh": [chinese(found)]})
    wait_until(lambda: len(receiver.got) == 2)
    alerting.stop(1)
    titles = {body["data"]["incidents"][0]["title"] for body in sent(receiver)}
    assert titles == {"Blocks are lost", "运行中的请求反复失去 KV 块"}


def test_the_title_is_in_the_language_of_the_sink_even_if_the_watch_was_not(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    alerting.observe(1.0, "prod", None, [finding("kv-thrashing-preemption", title="Blocks")])
    alerting.step(1.0)
    database = Database(Path(config.state))
    with database.reading() as link:
        body = json.loads(link.execute("SELECT body FROM outbox").fetchone()[0])
    database.close()
    assert body["incidents"][0]["titles"] == {"en": "Blocks", "zh": "运行中的请求反复失去 KV 块"}


def test_a_target_that_is_watched_no_more(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    alerting.observe(1.0, "lab", None, [finding("a")])
    alerting.step(1.0)
    alerting.forget(2.0, "lab")
    alerting.step(2.0)
    alerting.step(3.0)
    assert len(waiting(config)) == 2 and [i.state for i in alerting.incidents()] == ["resolved"]


def test_figures_for_a_metrics_page(alerting: Alerting, finding: Callable[..., Finding]) -> None:
    found = [finding("root", "critical", explains=["leaf"]), finding("leaf"), finding("other", "info")]
    alerting.observe(1.0, "prod", None, found)
    alerting.step(1.0)
    figures = alerting.figures()
    assert figures["firing"] == {"info": 1, "warning": 0, "critical": 1}
    assert figures["sinks"]["ops"] == {"waiting": 1, "dead": 0, "delivered": 0, "disabled": "", "last_ok": None}


def test_nothing_secret_lies_in_the_file(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    alerting.observe(1.0, "lab", None, [finding("a", cause="--api-key sk-abcdefghijklmnopqrstuvwxyz")])
    alerting.step(1.0)
    stored = b"".join(path.read_bytes() for path in Path(config.state).iterdir())
    assert b"api-key" in stored and b"sk-abc" not in stored


def test_only_the_newest_look_at_a_target_counts(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    for number in range(1000):
        alerting.observe(float(number), "prod", None, [finding()] if number % 2 else [])
    alerting.step(1000.0)
    assert len(waiting(config)) == 1


def test_repeats_do_not_pile_up_for_a_sink_that_is_down(config: AlertsConfig, finding: Callable[..., Finding]) -> None:
    timing = Timing(group_wait=0, group_interval=1, repeat_interval=10)
    alerting = Alerting(replace(config, timing=timing), clock=lambda: 1.0)
    for now in range(1, 100):
        alerting.observe(float(now), "lab", None, [finding()])
        alerting.step(float(now))
    assert len(waiting(config)) == 1
    database = Database(Path(config.state))
    outbox = Outbox(database)
    outbox.settle([Result(row, "delivered", 99.0) for row in outbox.heads("ops", 200.0, 9, ())])
    alerting.observe(200.0, "lab", None, [finding()])
    alerting.step(200.0)
    (row,) = outbox.heads("ops", 300.0, 9, ())
    assert json.loads(row.body)["repeat"] is True
    database.close()
    alerting.stop(0)


def test_a_second_watch_is_refused_in_one_sentence(alerting: Alerting, config: AlertsConfig) -> None:
    with pytest.raises(BusyError, match=r"already sent by process \d+ .*; this infradoc does not send them"):
        Alerting(config)


def test_the_lease_ends_with_its_holder(config: AlertsConfig) -> None:
    script = (
        "import sys, os\nfrom pathlib import Path\nfrom infradoc.alerts.lease import Lease\n"
        f"lease = Lease(Path({config.state!r}))\nprint('held', flush=True)\nsys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with pytest.raises(BusyError, match=f"process {child.pid}"):
        Alerting(config)
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    Alerting(config).stop(0)


def test_state_survives_and_what_ended_meanwhile_is_told(config: AlertsConfig, finding: Callable[..., Finding]) -> None:
    clock = [1000.0]
    first = Alerting(config, clock=lambda: clock[0])
    first.observe(1000.0, "prod", "vllm", [finding("a"), finding("b")])
    first.step(1000.0)
    first.stop(0)
    clock[0] = 5000.0
    second = Alerting(config, clock=lambda: clock[0])
    assert [i.finding for i in second.incidents()] == ["a", "b"]
    for now in (5000.0, 5001.0, 5002.0):
        second.observe(now, "prod", "vllm", [finding("a")])
        second.step(now)
    second.stop(0)
    bodies = waiting(config)
    assert [row["sink"] for row in bodies] == ["ops", "ops"]
    database = Database(Path(config.state))
    with database.reading() as link:
        body = json.loads(link.execute("SELECT body FROM outbox ORDER BY seq DESC LIMIT 1").fetchone()[0])
    database.close()
    assert [(v["finding"], v["status"]) for v in body["incidents"]] == [("b", "resolved"), ("a", "firing")]


def test_a_silence_of_another_process_is_heard(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    database = Database(Path(config.state))
    add_silence(database, [parse_matcher("finding=a")], 0.0, 100.0, "me", "")
    database.close()
    alerting.observe(1.0, "prod", None, [finding("a"), finding("b")])
    alerting.step(1.0)
    assert len(waiting(config)) == 1
    alerting.step(101.0)
    assert len(waiting(config)) == 2


def test_a_locked_database_holds_up_nobody_and_loses_nothing(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Database(Path(config.state))
    alerting._database._link.execute("PRAGMA busy_timeout = 50")
    with other.transaction():
        alerting.observe(1.0, "prod", None, [finding("a")])
        alerting.step(1.0)
        assert "is locked by another process" in alerting.trouble
    assert waiting(config) == []
    alerting.step(2.0)
    assert len(waiting(config)) == 1 and alerting.trouble == ""
    other.close()


def test_who_observes_never_waits_for_the_database(alerting: Alerting, finding: Callable[..., Finding]) -> None:
    """A step that hangs in the database holds its own lock; observing must need none of it."""
    held, done = threading.Event(), threading.Event()

    def hang() -> None:
        with alerting._guard:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hang)
    thread.start()
    held.wait(30)
    observed = threading.Thread(target=lambda: alerting.observe(1.0, "prod", None, [finding()]), daemon=True)
    observed.start()
    observed.join(20)
    assert not observed.is_alive()
    done.set()
    thread.join()


def test_changes_go_to_those_who_take_them(alerting: Alerting, config: AlertsConfig) -> None:
    alerting.changed(1.0, "prod", {"knob": "max_num_seqs", "old": 64, "new": 32, "verdict": "fixed"})
    alerting.step(1.0)
    assert [(row["sink"], row["kind"]) for row in waiting(config)] == [("bad", "change"), ("ops", "change")]


def test_messages_of_a_sink_that_is_gone_are_laid_aside(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    alerting.observe(1.0, "lab", None, [finding("a")])
    alerting.step(1.0)
    alerting.stop(0)
    second = Alerting(replace(config, sinks={"bad": config.sinks["bad"]}))
    second.step(2.0)
    assert waiting(config) == []
    second.stop(0)


def test_a_missing_secret_is_told_at_the_start(config: AlertsConfig) -> None:
    sink = replace(config.sinks["ops"], secret_env=("NOT_SET_ANYWHERE",))
    with pytest.raises(InfradocError, match="The variable NOT_SET_ANYWHERE, which holds the secret of ops, is not set"):
        Alerting(replace(config, sinks={"ops": sink}))


def test_a_file_of_a_newer_version_is_told_in_one_sentence_and_left_alone(config: AlertsConfig) -> None:
    database = Database(Path(config.state))
    with database.transaction() as link:
        link.execute("PRAGMA user_version = 99")
    database.close()
    for _ in range(2):  # and the lease is given back
        with pytest.raises(StoreError, match="was written by a newer infradoc"):
            Alerting(config)
    assert not list(Path(config.state).glob("*.damaged-*"))


def test_files_are_for_the_user_alone(alerting: Alerting, config: AlertsConfig) -> None:
    folder = Path(config.state)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


FULL = """
import resource, sys, json
from pathlib import Path
from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import alerts_config
from infradoc.alerts.timing import Timing
from infradoc.config import load_config
from dataclasses import replace
config = replace(alerts_config(load_config(sys.argv[1])), timing=Timing(group_wait=0, group_interval=1))
alerting = Alerting(config)
finding = json.loads(sys.argv[2])
alerting.observe(1.0, "prod", None, [finding])
size = max(path.stat().st_size for path in Path(config.state).iterdir())
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
alerting.step(1.0)
print(alerting.trouble, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
alerting.step(2.0)
print(repr(alerting.trouble), flush=True)
alerting.stop(0)
"""


def test_a_full_disk_loses_nothing(config: AlertsConfig, tmp_path: Path, finding: Callable[..., Finding]) -> None:
    """The limit on file sizes stands for the full disk: SQLite's write fails in the same place."""
    found = finding("a", evidence=[{"text": "x" * 400, "source": None} for _ in range(5)])
    arguments = [sys.executable, "-P", "-c", FULL, str(tmp_path / "infradoc.toml"), json.dumps(found)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told, after = done.stdout.splitlines()
    assert "the disk under it is full or failing. Free the disk; alerts wait in memory until then." in told
    assert after == "''" and len(waiting(config)) == 1


def test_a_state_folder_removed_while_it_is_used_loses_nothing(
    alerting: Alerting, config: AlertsConfig, finding: Callable[..., Finding]
) -> None:
    alerting.observe(1.0, "prod", None, [finding("a", "warning")])
    alerting.step(1.0)
    before = waiting(config)
    shutil.rmtree(config.state)
    alerting.observe(2.0, "lab", None, [finding("a", "warning")])
    alerting.step(2.0)
    assert alerting.trouble == ""
    assert len(before) == 1 and before[0]["id"] in [row["id"] for row in waiting(config)]
    assert len(waiting(config)) == 2
    with pytest.raises(BusyError):
        Alerting(config)
