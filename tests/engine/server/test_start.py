"""Starts that cannot work end with one sentence and exit code 2; an end by signal leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest


def _refused(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-P", "-m", "infradoc_engine", "serve", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=90, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    return done.stderr


def test_two_servers_on_one_port(server: Any) -> None:
    said = _refused("--port", str(server.port))
    assert said.count("\n") == 1
    assert f"port {server.port} is in use" in said and "--port" in said
    assert server.http.get("/health").status_code == 200


def test_pool_smaller_than_one_request_names_settings_that_fit(model_path: Path) -> None:
    said = _refused("--port", "0", "--max-model-len", "512", "--kv-pool-tokens", "128", "--omp-num-threads", "1")
    assert said.count("\n") == 1
    assert "--kv-pool-tokens 512" in said and "--max-model-len 128" in said


def test_no_memory_names_the_account_and_settings_that_fit(model_path: Path) -> None:
    said = _refused("--port", "0", "--max-model-len", "512", "--device-memory-bytes", "300MB")
    assert said.count("\n") == 1
    assert "weights" in said and "--device-memory-bytes" in said


def test_unknown_model_and_missing_file(tmp_path: Path) -> None:
    assert "known names are smollm2-135m" in _refused("no-such-model")
    said = _refused("smollm2-135m", INFRADOC_CACHE_DIR=str(tmp_path))
    assert "infradoc model get smollm2-135m" in said
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    assert str(broken) in _refused(str(broken), "--port", "0")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-num-seqs", "0"], "1 to 1024"),
        (["--max-num-seqs", "many"], "max-num-seqs"),
        (["--max-num-sequences", "4"], "unrecognized"),
        (["--kv-pool-token", "4096"], "unrecognized"),
        (["--device", "tpu"], "auto, cpu or cuda"),
        (["--port", "99999"], "65535"),
        (["--truncation-policy", "centre"], "middle"),
        (["--device-memory-bytes", "lots"], "2GiB"),
        (["--fault", "stall"], "needs --enable-faults"),
        (["--enable-faults", "--fault", "leak_block"], "did you mean leak_blocks"),
        (["--enable-faults", "--fault", "stall:seconds=long"], "'seconds=long' is not KEY=NUMBER"),
        (["--enable-faults", "--fault", "cpu_burn:processes=0"], "from 1 to 256"),
    ],
)
def test_bad_flags(flags: list[str], says: str) -> None:
    assert says in _refused(*flags)


def test_sigterm_ends_the_server_and_removes_the_token(start_server: Any, in_background: Any) -> None:
    server = start_server(
        *("--max-model-len", "512", "--kv-pool-tokens", "1024", "--tokenizer-workers", "1"), "--model-by-path"
    )
    assert server.http.get("/v1/models").json()["data"][0]["id"] == "SmolLM2-135M-Instruct.Q4_1"
    assert server.token_path.exists()
    body = {"prompt": "Once upon a time", "max_tokens": 500, "ignore_eos": True}
    running = in_background(httpx.post, f"{server.url}/v1/completions", json=body, timeout=30)
    while not server.metric("llm_requests_running"):
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    answer = running.result()
    assert answer.status_code in (200, 503)
    assert not server.token_path.exists()
    assert not [line for line in server.log if "Traceback" in line]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
