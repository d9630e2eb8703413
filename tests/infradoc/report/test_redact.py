"""What leaves the house in a page or an issue holds no host, address, user, prompt or key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.report.redact import redact_text, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://gpu-17.corp.example:8000/v1 failed", "GET http://HOST:8000/v1 failed"),
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://[fd00::1]:8000/x", "http://HOST:8000/x"),
        ("client 10.3.4.5:5123 connected", "client ADDRESS:5123 connected"),
        ("driver 570.86.10.01, vllm 0.11.0", "driver 570.86.10.01, vllm 0.11.0"),
        ("/home/alice/models/x", "/home/USER/models/x"),
        ("prompt: 'tell me a secret', params: x", "prompt: [16 characters], params: x"),
        ('{"content": "a \\"b\\" c", "n": 1}', '{"content": [9 characters], "n": 1}'),
        ("16 prompt tokens were cut", "16 prompt tokens were cut"),
        ("server.log:11", "server.log:11"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def report(name: str, text: str) -> dict:
    return {"target": {"name": name}, "not_visible": [text], "vitals": {"queue_depth": 1.0}}


def test_the_targets_host_goes_wherever_it_stands() -> None:
    cleaned = redacted(report("gpu-17.corp.example:8000", "gpu-17.corp.example does not answer"))
    assert cleaned == report("HOST:8000", "HOST does not answer")


def test_a_name_from_the_configuration_stays() -> None:
    assert redacted(report("prod", "prod is down")) == report("prod", "prod is down")


@given(st.text(max_size=300))
def test_any_text_is_survived_and_done_once(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "text",
    ["a." * 50_000, "'" * 100_000, "prompt: '" * 20_000, "://" * 50_000, "1." * 50_000],
    ids=["dots", "quotes", "prompts", "schemes", "numbers"],
)
def test_a_long_line_takes_linear_time(text: str) -> None:
    assert redact_text(text)  # the suite's timeout is the bound: quadratic patterns take minutes here
