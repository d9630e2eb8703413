"""Nothing lost, doubled or out of order: a receiver at its worst, and a sender that is killed at random."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts.database import Database
from infradoc.alerts.desk import rows, sinks

HERE = Path(__file__).parent
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONFIG = """\
[alerts]
state = "state"
[alerts.sinks.hook]
kind = "webhook"
url = "http://127.0.0.1:{port}/hook"
secret_env = "HOOK_SECRET"
allow_private = true
timeout = "1s"
concurrency = 16
[alerts.sinks.events]
kind = "cloudevents"
url = "http://127.0.0.1:{port}/events"
allow_private = true
timeout = "1s"
concurrency = 16
[alerts.sinks.wecom]
kind = "wecom"
url_env = "WECOM_URL"
allow_private = true
timeout = "1s"
rate = "100000/s"
concurrency = 16
"""


@pytest.mark.parametrize(
    ("targets", "rounds", "kills"),
    [
        pytest.param(140, 6, 6, id="5000", marks=pytest.mark.timeout(600)),
        pytest.param(1400, 12, 40, id="100000", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_hostile_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: int, rounds: int, kills: int
) -> None:
    taken = tmp_path / "taken.jsonl"
    server = subprocess.Popen(
        [sys.executable, "-P", str(HERE / "hostile_receiver.py"), "7", str(taken)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        (tmp_path / "infradoc.toml").write_text(CONFIG.format(port=port))
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        monkeypatch.setenv("WECOM_URL", f"http://127.0.0.1:{port}/wecom")
        _send(tmp_path, targets, rounds, kills)
    finally:
        server.kill()
        server.communicate()
    _check_outbox(tmp_path, 3 * 2 * targets * rounds)
    got = [json.loads(line) for line in taken.read_text().splitlines()]
    assert not [path for path, _ in got if path == "/stolen"], "a redirect was followed"
    _check_hook([body for path, body in got if path == "/hook"], targets, rounds)
    _check_events([body for path, body in got if path == "/events"], targets, rounds)
    assert sum(path == "/wecom" for path, _ in got) >= 2 * targets * rounds


def _send(folder: Path, targets: int, rounds: int, kills: int) -> None:
    """Run the sender; kill it at random moments, start it again, and let the last one finish."""
    arguments = [str(folder / "infradoc.toml"), str(folder / "progress"), str(targets), str(rounds)]
    chance = random.Random(3)
    for number in range(kills + 1):
        sender = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "hostile_sender.py"), *arguments], stderr=subprocess.PIPE, text=True
        )
        try:
            if number < kills:
                time.sleep(chance.uniform(0.8, 3.0))
            else:
                _, told = sender.communicate(timeout=3000)
                assert sender.returncode == 0, told
        finally:
            sender.kill()
            sender.communicate()


def _check_outbox(folder: Path, expected: int) -> None:
    database = Database(folder / "state")
    counts = sinks(database)
    assert not rows(database, "dead") and not rows(database, "waiting")
    assert sum(state["delivered"] for state in counts.values()) == expected
    database.close()


def _check_hook(bodies: list[dict[str, Any]], targets: int, rounds: int) -> None:
    seen: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    ids: set[str] = set()
    for body in bodies:
        if body["data"]["id"] in ids:
            continue  # what a receiver does: the same id again is the same message
        ids.add(body["data"]["id"])
        for incident in body["data"]["incidents"]:
            seen[incident["target"]].append((incident["sequence"], incident["status"], incident["incident"]))
    _check_each(seen, targets, rounds)


def _check_events(bodies: list[dict[str, Any]], targets: int, rounds: int) -> None:
    seen: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    ids: set[str] = set()
    for body in bodies:
        if body["id"] not in ids:
            ids.add(body["id"])
            seen[body["data"]["target"]].append((int(body["sequence"]), body["data"]["status"], body["subject"]))
    _check_each(seen, targets, rounds)


def _check_each(seen: dict[str, list[tuple[int, str, str]]], targets: int, rounds: int) -> None:
    assert len(seen) == targets
    for events in seen.values():
        assert [sequence for sequence, _, _ in events] == [1, 2] * rounds
        assert [status for _, status, _ in events] == ["firing", "resolved"] * rounds
        names = [name for _, _, name in events]
        assert names[::2] == names[1::2] and len(set(names)) == rounds
