"""A real Alertmanager (Debian's prometheus-alertmanager): push, route, group, silence, resolve; and what it sends."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.sinks.alertmanager_webhook import payload
from infradoc.alerts.timing import Timing

BINARY = shutil.which("prometheus-alertmanager")
AMTOOL = shutil.which("amtool")
pytestmark = pytest.mark.skipif(
    not (BINARY and AMTOOL), reason="needs Debian's prometheus-alertmanager (apt-get install prometheus-alertmanager)"
)
Finding = dict[str, Any]
CONFIG = """\
route:
  receiver: fallback
  group_by: [target]
  group_wait: 1s
  group_interval: 1s
  repeat_interval: 1h
  routes:
    - matchers: ['source="infradoc"']
      receiver: ours
receivers:
  - name: fallback
    webhook_configs: [{url: "%(url)s/fallback", send_resolved: true}]
  - name: ours
    webhook_configs: [{url: "%(url)s/ours", send_resolved: true}]
"""


@pytest.fixture
def alertmanager(tmp_path: Path, receiver: Any) -> Iterator[str]:
    """Its base address; it sends to `receiver`."""
    (tmp_path / "am.yml").write_text(CONFIG % {"url": receiver.url})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "am.log").open("w")
    child = subprocess.Popen(
        [
            str(BINARY),
            f"--config.file={tmp_path / 'am.yml'}",
            f"--storage.path={tmp_path / 'am'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 30
        while True:
            assert child.poll() is None and time.monotonic() < end, (tmp_path / "am.log").read_text()
            try:
                if httpx.get(f"{url}/-/ready", timeout=1, trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield url
    finally:
        child.kill()
        child.wait()
        log.close()


@pytest.fixture
def alerting(write_config: Callable[[str], AlertsConfig], alertmanager: str) -> Iterator[Alerting]:
    config = write_config(
        f'[alerts]\nstate = "state"\n[alerts.sinks.am]\nkind = "alertmanager"\nurl = "{alertmanager}"\n'
        "allow_private = true\n"
    )
    made = Alerting(replace(config, timing=Timing(group_wait=0, group_interval=0.2, resolve_after=0.2)))
    made.start()
    yield made
    made.stop(1)


def active(url: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{url}/api/v2/alerts", params=query, timeout=5, trust_env=False).json()
    return found


def sent(receiver: Any, path: str = "/ours") -> list[dict[str, Any]]:
    return [json.loads(body) for where, _, body in receiver.got if where == path]


def amtool(url: str, *words: str) -> str:
    done = subprocess.run(
        [str(AMTOOL), f"--alertmanager.url={url}", *words], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shape(value: Any) -> Any:
    """Keys and kinds of a payload, lists by their first item; labels and annotations are free and left out."""
    if isinstance(value, dict):
        free = ("labels", "annotations", "groupLabels", "commonLabels", "commonAnnotations")
        return {key: "map" if key in free else shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def test_push_route_group_silence_resolve(
    alerting: Alerting, alertmanager: str, receiver: Any, finding: Callable[..., Finding], message: Any, wait_until: Any
) -> None:
    found = [finding("kv-thrashing-preemption"), finding("queue-saturation", "critical")]
    alerting.observe(alerting.clock(), "prod", "vllm", found)
    wait_until(lambda: len(active(alertmanager)) == 2)
    wait_until(lambda: len(sent(receiver)) >= 1, 20)
    told = sent(receiver)[-1]
    assert told["receiver"] == "ours" and sent(receiver, "/fallback") == []
    assert {alert["labels"]["alertname"] for alert in told["alerts"]} == {found[0]["id"], found[1]["id"]}
    assert told["groupLabels"] == {"target": "prod"} and told["alerts"][0]["annotations"]["summary"]

    ours = payload(message(), "ours", "en")
    assert shape(ours) == shape(told) and ours["version"] == told["version"] == "4"
    assert ours["alerts"][0]["endsAt"] == told["alerts"][0]["endsAt"]

    amtool(alertmanager, "silence", "add", "--comment=t", "--author=t", "--duration=1h", "alertname=queue-saturation")
    wait_until(lambda: [a["labels"]["alertname"] for a in active(alertmanager, silenced="false")] == [found[0]["id"]])
    assert "queue-saturation" in amtool(alertmanager, "silence", "query")

    alerting.observe(alerting.clock() + 1, "prod", "vllm", [])
    wait_until(lambda: sent(receiver)[-1]["status"] == "resolved", 20)
    over = sent(receiver)[-1]
    assert [alert["status"] for alert in over["alerts"]] == ["resolved"]
    wait_until(lambda: active(alertmanager) == [])
    assert shape(payload(message(ends=True), "ours", "en")) == shape(over)


def test_what_fires_is_said_again_so_that_it_does_not_end_there(
    write_config: Callable[[str], AlertsConfig], alertmanager: str, finding: Callable[..., Finding], wait_until: Any
) -> None:
    """Two heartbeats later, by a clock that runs ahead, its end there lies a minute later each time."""
    config = write_config(
        f'[alerts]\nstate = "state"\n[alerts.sinks.am]\nkind = "alertmanager"\nurl = "{alertmanager}"\n'
        "allow_private = true\n"
    )
    begin = time.time()
    ahead = [0.0]
    alerting = Alerting(replace(config, timing=Timing(group_wait=0)), clock=lambda: begin + ahead[0])
    alerting.start()
    try:
        ends = []
        for minutes in range(3):
            ahead[0] = 61.0 * minutes
            alerting.observe(alerting.clock(), "prod", None, [finding()])
            before = ends[-1] if ends else ""
            wait_until(lambda before=before: any(a["endsAt"] > before for a in active(alertmanager)))  # type: ignore[misc]
            ends.append(active(alertmanager)[0]["endsAt"])
        assert ends == sorted(set(ends)) and len(active(alertmanager)) == 1
    finally:
        alerting.stop(1)
