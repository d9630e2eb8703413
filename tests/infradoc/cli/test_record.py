"""`infradoc record`: what it writes is read back, with the same diagnosis and without secrets."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infradoc.cli import app
from infradoc.cli.record import out_paths
from infradoc.config import load_config
from infradoc.monitor.attach import attach
from infradoc.monitor.recorder import Recorder
from infradoc.sources.recording import Recording
from infradoc.sources.writer import RecordingWriter

pytestmark = pytest.mark.usefixtures("clean_environment")

BARE_KEY = "hf_" + "aBcDeFgHiJkLmNoPqRsT"  # known by its shape alone, no name before it


def bodies(path: Path) -> list[bytes]:
    with gzip.open(path / "scrapes.jsonl.gz") as lines:
        return [json.loads(line)["body"].encode() for line in lines]


@pytest.fixture
def thrashing(server: Any, recordings_dir: Path) -> Any:
    """A server that shows the pages of a thrashing vLLM, one per request."""
    pages = iter(bodies(recordings_dir / "vllm-05")[60:])
    last = bodies(recordings_dir / "vllm-05")[-1]
    server.page("/metrics", lambda: next(pages, last))
    server.page("/version", b'{"version": "0.32.0"}', kind="application/json")
    return server


@pytest.mark.parametrize("name", ["rec", "rec.tar.gz"])
def test_round_trip(thrashing: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / name
    assert app.dispatch(["record", thrashing.url, "-o", str(out), "--for", "4s", "--every", "100ms"]) == 0
    assert "pages" in capsys.readouterr().err
    recording = Recording(out)
    assert {"scrapes.jsonl.gz", "host.jsonl.gz", "meta.json"} <= recording.names
    assert recording.meta["system"] == "vllm" and recording.meta["version"] == "0.32.0"
    ticks = list(recording.ticks())
    assert len(ticks) >= 20 and recording.bad_lines == 0
    sources = {reading.source for tick in ticks for reading in tick.readings}
    assert {"metrics", "host"} <= sources
    assert sorted(path.name for path in tmp_path.iterdir() if "infradoc-" in path.name) == []


def test_recorded_fault_is_diagnosed(thrashing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages that are a second apart, recorded fast, are put back to their distance: the diagnosis must be the same."""
    out = tmp_path / "rec"
    writer = RecordingWriter(out)
    target = attach(thrashing.url, load_config(None), 0.1)
    recorder = Recorder(target, writer)
    for _ in range(50):  # by number and not by time: a busy machine looks more slowly
        recorder.look(time.time())
    recorder.finish()
    writer.close()
    target.close()
    with gzip.open(out / "scrapes.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    with gzip.open(out / "scrapes.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps({**row, "t": 1000.0 + place}) + "\n" for place, row in enumerate(rows))
    (out / "host.jsonl.gz").unlink()
    capsys.readouterr()
    assert app.dispatch(["diagnose", str(out), "--format", "json"]) == 10
    assert json.loads(capsys.readouterr().out)["findings"][0]["id"] == "kv-thrashing-preemption"


def test_interrupt_finishes_the_recording(thrashing: Any, tmp_path: Path) -> None:
    out = tmp_path / "rec.tar.gz"
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "infradoc", "record", thrashing.url, "-o", str(out), "--every", "100ms"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "INFRADOC_CONFIG": ""},
    )
    deadline = time.monotonic() + 60
    while sum(path == "/metrics" for path, _ in thrashing.requests) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0 and "Traceback" not in err
    assert len(list(Recording(out).ticks())) >= 3


def test_client_log_and_launch_are_kept_without_secrets(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    server.page("/metrics", vllm_page)
    row = {"id": 1, "start": 1.0, "e2e": 1.0, "ttft": 0.1, "status": 200, "finish_reason": "stop", "class": "c"}
    (tmp_path / "client.jsonl").write_text(json.dumps(row) + "\n")
    stamp = "(APIServer pid=1) INFO 11-29 20:50:38"
    (tmp_path / "server.log").write_text(
        f"{stamp} [api_utils.py:286]  version 0.32.0\n{stamp} [utils.py:1] args: {{'api_key': ['s3cret']}}\n"
        f"{stamp} [hub.py:1] using {BARE_KEY} for downloads\n{stamp} [app.py:1] Authorization: Basic czNjcmV0OnM=\n"
    )
    (tmp_path / "launch.txt").write_text(f"vllm serve m --api-key s3cret --max-num-seqs 4 --comment {BARE_KEY}\n")
    config = tmp_path / "infradoc.toml"
    config.write_text(
        f'[targets.t]\nurl = "{server.url}"\nclient = "client.jsonl"\nlog = "server.log"\nlaunch = "launch.txt"\n'
        "[targets.t.auth]\napi_key_env = 'MY_KEY'\n"
    )
    out = tmp_path / "rec"
    os.environ["MY_KEY"] = "k3y"
    try:
        assert (
            app.dispatch(["record", "t", "--config", str(config), "-o", str(out), "--for", "1s", "--every", "200ms"])
            == 0
        )
    finally:
        del os.environ["MY_KEY"]
    assert Recording(out).names >= {"client.jsonl", "server.log", "launch.txt"}
    assert "--max-num-seqs 4" in (out / "launch.txt").read_text()
    for path in out.iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for secret in ("s3cret", "k3y", BARE_KEY, "czNjcmV0"):
            assert secret.encode() not in data, path.name


def test_what_was_seen_is_packed_although_the_recording_fails(
    server: Any, vllm_page: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.page("/metrics", vllm_page)
    look = Recorder.look

    def third_fails(self: Recorder, now: float) -> None:
        if self.looks == 2:
            raise OSError(28, "No space left on device")
        look(self, now)

    monkeypatch.setattr(Recorder, "look", third_fails)
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "r.tar.gz"
    assert app.dispatch(["record", server.url, "-o", str(out), "--for", "5s", "--every", "100ms"]) == 1
    assert "The output or a file cannot be written: the disk under it is full." in capsys.readouterr().err
    assert list(folder.iterdir()) == [out]
    assert len(list(Recording(out).ticks())) == 2


@pytest.mark.parametrize("name", ["rec", "rec.tar.gz"])
def test_a_dead_server_leaves_no_file_in_the_way_of_a_retry(
    closed_port: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / name
    url = f"http://127.0.0.1:{closed_port}"
    for _ in range(2):
        assert app.dispatch(["record", url, "-o", str(out), "--for", "1s", "--every", "200ms"]) == 30
        err = capsys.readouterr().err
        assert "was not written: no page came" in err and "refuses" in err
    assert not out.exists() and not list(tmp_path.glob(".infradoc-*"))


def test_the_log_of_a_dead_server_is_kept(closed_port: int, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("INFO 11-29 20:50:38 [api_utils.py:286]  version 0.32.0\n")
    config = tmp_path / "infradoc.toml"
    config.write_text(f'[targets.t]\nurl = "http://127.0.0.1:{closed_port}"\nlog = "server.log"\n')
    out = tmp_path / "rec"
    arguments = ["record", "t", "--config", str(config), "-o", str(out), "--for", "1s", "--every", "200ms"]
    assert app.dispatch(arguments) == 30
    assert "version 0.32.0" in (out / "server.log").read_text()


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "there.tar.gz").write_text("x")
    for arguments, part in (
        (["http://127.0.0.1:1", "-o", str(tmp_path / "full")], "is not empty"),
        (["http://127.0.0.1:1", "-o", str(tmp_path / "there.tar.gz")], "exists already"),
        (["http://127.0.0.1:1", "-o", str(tmp_path / "no" / "such" / "r.tar.gz")], "cannot be written"),
        ([str(tmp_path / "full"), "-o", "x"], "not a server"),
        (["http://127.0.0.1:1"], "-o"),
        (["http://127.0.0.1:1", "-o", "x", "--every", "1ms"], "at least 100ms"),
    ):
        assert app.dispatch(["record", *arguments]) == 2
        assert part in capsys.readouterr().err


def test_one_file_per_target() -> None:
    assert out_paths(Path("a/r.tar.gz"), ["http://h:1", "prod"]) == [Path("a/r-h_1.tar.gz"), Path("a/r-prod.tar.gz")]
    assert out_paths(Path("r"), ["x"]) == [Path("r")]


@pytest.mark.parametrize("specs", [["http://h:1", "http://h:1/"], ["prod", "prod"], ["http://h:1", "https://h:1"]])
def test_recordings_of_one_name_are_refused(specs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["record", *specs, "-o", "r.tar.gz", "--for", "1s"]) == 2
    assert "would have one name" in capsys.readouterr().err
