"""A server that infradoc cannot change: the plan is shown with its own flags, --apply says what to do and leaves."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infradoc.cli import fix

RECORDING = Path(__file__).parents[2] / "data" / "recordings" / "vllm-05"
AFTER_ONSET = 40.0  # seconds into the fault at which the replay begins
SPEED = 2.0  # recorded seconds a second, so that the test takes half as long; rates then read twice as high


class Replay(BaseHTTPRequestHandler):
    """Answers /metrics with the page that a real vLLM showed at that moment of its fault."""

    def do_GET(self) -> None:
        server: Any = self.server
        elapsed = (time.monotonic() - server.began) * SPEED
        page = next((body for t, body in server.pages if t >= server.first + elapsed), server.pages[-1][1])
        found = self.path == "/metrics"
        body = page.encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def thrashing_vllm() -> Iterator[str]:
    """The URL of a replayed vLLM whose requests lose their KV blocks."""
    lines = gzip.decompress((RECORDING / "scrapes.jsonl.gz").read_bytes()).splitlines()
    rows = [row for row in map(json.loads, lines) if row["status"] == 200]
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Replay)
    server.pages = [(row["t"], row["body"]) for row in rows]
    server.first = rows[0]["t"] + AFTER_ONSET
    server.began = time.monotonic()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_vllm_gets_a_plan_with_its_own_flags(
    thrashing_vllm: str, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = fix.run([thrashing_vllm, "--finding", "kv-thrashing-preemption", "--window", "40", "--apply", "--yes"])
    out, err = capsys.readouterr()
    assert code == 2
    assert "kv-thrashing-preemption" in out
    assert "restart" in out and "--max-num-seqs" in out
    assert "vllm takes no change while it runs. Restart it with --" in err
    assert not (state_dir / "journal.jsonl").exists()
