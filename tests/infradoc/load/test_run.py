from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from infradoc.cli import bench
from infradoc.errors import InfradocError
from infradoc.load.record import RequestRecord, from_line, said
from infradoc.load.run import ClientFile, Load, LoadResult, model_in, run_load
from infradoc.load.spec import LoadSpec, parse_class
from infradoc.load.summary import summarise


def go(server: Any, *classes: str, **settings: Any) -> LoadResult:
    spec = LoadSpec(tuple(parse_class(text) for text in classes), **settings)
    return asyncio.run(run_load(server.url, spec))


def test_closed_loop_keeps_its_clients_busy(tiny_server: Any) -> None:
    tiny_server.gap = 0.002
    result = go(tiny_server, "chat:closed=5,max_tokens=4,count=40", duration=None)
    assert len(result.records) == 40 and all(record.ok for record in result.records)
    assert tiny_server.most_in_flight == 5
    assert tiny_server.connections == 5  # the first of them asked /v1/models


def test_several_classes_at_once(tiny_server: Any) -> None:
    tiny_server.gap = 0.002
    result = go(
        tiny_server,
        "chat:closed=2,count=6,max_tokens=3",
        "docs:closed=1,kind=tokenize,bytes=500,count=4",
        duration=None,
    )
    summary = summarise(result)
    assert {name: data["finished"] for name, data in summary["classes"].items()} == {"chat": 6, "docs": 4}
    assert summary["total"]["finished"] == 10
    assert summary["classes"]["chat"]["ttft_seconds"]["n"] == 6
    assert summary["classes"]["chat"]["ttft_seconds"]["p99"] is None
    assert summary["classes"]["docs"]["documents_per_second"] > 0


def test_open_loop_does_not_wait_for_answers(tiny_server: Any) -> None:
    tiny_server.behaviour = "stall"
    result = go(tiny_server, "chat:open=60", duration=0.6, timeout=0.3)
    assert tiny_server.most_in_flight > 5
    assert {record.error_kind for record in result.records} == {"timeout"}


def test_same_seed_same_requests(tiny_server: Any) -> None:
    sent = []
    for seed in (4, 4, 5):
        tiny_server.bodies.clear()
        go(tiny_server, "chat:closed=3,count=20,max_tokens=1-9,prompt_tokens=3-9", duration=None, seed=seed)
        sent.append(sorted(json.dumps(body) for body in tiny_server.bodies))
    assert sent[0] == sent[1] != sent[2]


def test_paced_clients_send_once_a_slot(tiny_server: Any) -> None:
    result = go(tiny_server, "docs:closed=4,kind=tokenize,bytes=100,pace=0.2", duration=2.0)
    assert 36 <= len(result.records) <= 40
    starts = sorted(record.start for record in result.records)
    gaps = sorted(later - earlier for earlier, later in pairwise(starts))
    assert gaps[-1] > 3 * gaps[len(gaps) // 2]  # not in step


def test_warm_up_is_sent_but_not_measured(tiny_server: Any) -> None:
    tiny_server.gap = 0.005
    result = go(tiny_server, "chat:closed=1,max_tokens=2", duration=0.6, warmup=0.3)
    measured = summarise(result)["total"]
    assert 0 < measured["finished"] < len(result.records)
    assert summarise(result)["measured"]["seconds"] == pytest.approx(0.3, abs=0.01)


def test_a_dead_server_is_not_hammered(tiny_server: Any) -> None:
    spec = LoadSpec((parse_class("chat:closed=1"),), duration=0.7)
    tiny_server.stop()
    result = asyncio.run(run_load(tiny_server.url, spec, model="tiny"))
    assert 1 <= len(result.records) <= 4
    with pytest.raises(InfradocError, match="No connection to"):
        asyncio.run(run_load(tiny_server.url, spec))


def test_bench_writes_json_and_the_client_file(
    tiny_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "client.jsonl"
    code = bench.run(
        [tiny_server.url, "--class", "chat:closed=2,count=8,max_tokens=3", "--json", "-", "--client-out", str(out)]
    )
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert code == 0
    assert (summary["schema"], summary["seed"], summary["model"]) == ("infradoc.bench/v1", 1, "tiny")
    assert set(summary["versions"]) == {"infradoc", "python", "platform"}
    lines = [from_line(line) for line in out.read_text().splitlines()]
    assert len(lines) == 8 and all(line is not None and line.ok and line.cls == "chat" for line in lines)


def test_the_client_file_can_be_followed_and_a_signal_keeps_the_result(tiny_server: Any, tmp_path: Path) -> None:
    tiny_server.gap = 0.01
    out = tmp_path / "client.jsonl"
    code = "import sys; from infradoc.cli.bench import run; sys.exit(run(sys.argv[1:]))"
    flags = ["--class", "chat:closed=2,max_tokens=3", "--duration", "60", "--client-out", str(out), "--json", "-"]
    child = subprocess.Popen([sys.executable, "-c", code, tiny_server.url, *flags], stdout=subprocess.PIPE, text=True)
    try:
        while not (out.exists() and len(out.read_text().splitlines()) >= 4):
            assert child.poll() is None
        os.kill(child.pid, signal.SIGTERM)
        printed, _ = child.communicate(timeout=20)
    finally:
        child.kill()
    summary = json.loads(printed)
    assert child.returncode == 0
    assert summary["total"]["finished"] >= 4
    assert summary["total"]["errors"] == {}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--class", "a:closed=1", "--class", "a:closed=2"], "named a"),
        (["--class", "a:closed=1", "--duration", "0"], "never end"),
        (["--spec", "x.toml", "--class", "a:closed=1"], "both given"),
        (["--spec", "missing.toml"], "missing.toml"),
        (["--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
    ],
)
def test_bad_usage_is_one_sentence(flags: list[str], says: str) -> None:
    with pytest.raises(InfradocError) as caught:
        bench.run(["http://127.0.0.1:9", *flags])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://host/a b",
        "http://host/\x1b[31m",
        "http://host/\u00fc",
        f"http://{'a' * 300}.com",
    ],
)
def test_a_bad_url_is_one_sentence(url: str) -> None:
    with pytest.raises(InfradocError, match="no URL of a server"):
        bench.run([url])


def test_a_password_in_the_url_is_neither_shown_nor_dropped_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InfradocError, match="user name or password") as caught:
        bench.run(["http://user:geheim@127.0.0.1:9"])
    assert "geheim" not in str(caught.value) + capsys.readouterr().err


def test_a_model_list_nested_too_deep_is_one_sentence() -> None:
    with pytest.raises(InfradocError, match="without a model list"):
        model_in(b"[" * 100_000, 200, "http://h/v1/models")


def test_requests_that_end_too_late_are_told(tiny_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_server.gap = 0.2
    spec = "chat:closed=2,max_tokens=4"
    assert bench.run([tiny_server.url, "--class", spec, "--duration", "300ms"]) == 1
    assert "2 requests begun, none finished within the 0.3 s measured; answers took " in capsys.readouterr().out


def test_the_servers_words_are_shown_and_an_unknown_model_ends_the_run(
    tiny_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    record = RequestRecord(
        1, "/v1/x", 0.0, "c", error='{"error": {"message": "Not  so.", "code": 5', error_kind="http_4xx"
    )
    assert said(record) == "Not so."
    tiny_server.behaviour = "503"
    assert bench.run([tiny_server.url, "--class", "chat:closed=1,count=1"]) == 1
    assert "first http_5xx: " in capsys.readouterr().out
    load = Load(LoadSpec(()), "m", FakeSender(), ClientFile(None))  # type: ignore[arg-type]
    asyncio.run(load.one(parse_class("chat:closed=1"), 0))
    assert load.stopping.is_set() and load.no_model is not None


class FakeSender:
    """Answers as a server that has no such model."""

    async def measure(self, spec: object, prepared: object, request_id: int) -> RequestRecord:
        text = '{"error": {"message": "The model m does not exist."}}'
        return RequestRecord(request_id, "/v1/x", 0.0, "c", status=404, error=text, error_kind="http_4xx")
