"""A client that hangs up frees its blocks, streaming or not."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest


@pytest.mark.parametrize("stream", [True, False])
def test_hang_up_frees_the_blocks(server: Any, stream: bool) -> None:
    server.set(prefix_caching=False)  # else freed blocks stay cached and the ledgers differ
    server.wait_idle()
    before = server.admin("blocks")["ledger"]
    aborted = server.metric("llm_requests_finished_total", reason="abort")
    body = json.dumps({"prompt": "Once upon a time " * 20, "max_tokens": 400, "ignore_eos": True, "stream": stream})
    request = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request.encode())
        deadline = time.monotonic() + 20
        while server.admin("blocks")["ledger"]["live"] == 0:
            assert time.monotonic() < deadline, "the request never held a block"
            time.sleep(0.02)
    server.wait_idle(10)
    blocks = server.admin("blocks")
    assert blocks["ledger"] == before
    assert blocks["integrity"] == "ok"
    assert server.metric("llm_requests_finished_total", reason="abort") == aborted + 1
    server.set(prefix_caching=True)
