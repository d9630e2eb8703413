"""Bodies that are wrong, too large or meant to hurt: one sentence each, and the server lives on."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest


def _post(server: Any, path: str, body: bytes) -> Any:
    return server.http.post(path, content=body, headers={"content-type": "application/json"})


@pytest.fixture(autouse=True)
def _still_serves(server: Any) -> Any:
    yield
    assert server.http.get("/health").status_code == 200
    assert server.complete("Hello", max_tokens=1)["usage"]["completion_tokens"] == 1


def _error(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"] and "\n" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"{", "line 1"),
        (b"[1]", "JSON object"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        (b'{"prompt": ' + b"[" * 100_000, "JSON"),
        (b'{"prompt": "x", "max_tokens": 0}', "max_tokens"),
        (b'{"prompt": "x", "max_tokens": "many"}', "max_tokens"),
        (b'{"prompt": "x", "temperature": NaN}', "temperature"),
        (b'{"prompt": "x", "temperature": -1}', "temperature"),
        (b'{"prompt": "x", "n": 1000000}', "n:"),
        (b'{"prompt": "x", "echo": true}', "echo"),
        (b'{"prompt": "x", "stop": ""}', "stop"),
        (b'{"prompt": 5}', "prompt"),
        (b'{"prompt": null}', "prompt"),
        (b'{"prompt": ""}', "0 tokens"),
        (b'{"prompt": []}', "0 tokens"),
        (b'{"prompt": [1, 2, "x"]}', "prompt"),
        (b'{"prompt": [1.5]}', "prompt"),
        (b'{"prompt": [-1]}', "-1"),
        (b'{"prompt": [49152]}', "0 to 49151"),
        (b'{"prompt": [123456789012345678901234567890]}', "out of range"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "x", "max_tokens": 512}', "512"),
    ],
)
def test_bad_completion_bodies(server: Any, body: bytes, says: str) -> None:
    assert says in _error(_post(server, "/v1/completions", body), 400)["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3}, "logprobs"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, "tools"),
    ],
)
def test_bad_chat_bodies(server: Any, body: dict[str, Any], says: str) -> None:
    assert says in _error(_post(server, "/v1/chat/completions", json.dumps(body).encode()), 400)["message"]


def test_prompt_over_the_limit_is_refused_with_the_counts(server: Any) -> None:
    before = server.metric("llm_requests_rejected_total", reason="length")
    answer = server.http.post("/v1/completions", json={"prompt": [5] * 600, "max_tokens": 10})
    error = _error(answer, 400)
    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"] and "600" in error["message"] and "610" in error["message"]
    assert server.metric("llm_requests_rejected_total", reason="length") == before + 1


def test_huge_body_is_413_and_a_large_document_is_not(server: Any) -> None:
    error = _error(_post(server, "/tokenize", b'{"prompt": "' + b"x" * 50_000_000 + b'"}'), 413)
    assert "larger than 8 MiB" in error["message"] and "--max-body-bytes" in error["message"]
    document = "word " * 200_000  # 1 MB
    answer = server.http.post("/tokenize", json={"prompt": document})
    assert answer.status_code == 200
    assert answer.json()["count"] == len(answer.json()["tokens"]) > 200_000 - 1


def test_body_without_length_is_bounded_too(server: Any) -> None:
    def endless() -> Any:
        yield b'{"prompt": "'
        for _ in range(200):
            yield b"x" * 100_000

    assert _error(server.http.post("/tokenize", content=endless()), 413)["code"] == "body_too_large"


def test_unknown_path_and_method(server: Any) -> None:
    assert "/v1/completions" in _error(server.http.get("/v2/nothing"), 404)["message"]
    assert "POST" in _error(server.http.get("/v1/completions"), 405)["message"]


def test_garbage_and_silence_on_the_socket_block_nobody(server: Any) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    partial = socket.create_connection(("127.0.0.1", server.port))
    partial.sendall(b"GET /metr")
    garbage = socket.create_connection(("127.0.0.1", server.port))
    garbage.sendall(b"\x16\x03\x01\x00\xff\x01 not http\r\n\r\n")
    assert server.http.get("/health", timeout=1.5).status_code == 200
    partial.sendall(b"ics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    partial.settimeout(5)
    assert partial.recv(15).startswith(b"HTTP/1.1 200")
    for connection in (*silent, partial, garbage):
        connection.close()


def test_traceback_never_reaches_the_log(server: Any) -> None:
    assert not [line for line in server.log if "Traceback" in line or 'File "' in line]
