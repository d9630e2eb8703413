from __future__ import annotations

import pytest

from infradoc.load.record import RequestRecord, from_line


def test_a_record_survives_its_line() -> None:
    record = RequestRecord(3, "/v1/completions", 1000.5, "kv", 0.25, 1.0, 4, 200, "length", itl=[0.1, 0.2, 0.05])
    again = from_line(record.to_line())
    assert again == record
    assert list(again.token_times()) == pytest.approx([1000.75, 1000.85, 1001.05, 1001.1])


def test_a_line_of_another_generator_is_read() -> None:
    line = (
        '{"id": 1, "path": "/v1/chat/completions", "start": 1795986082.2699, "prompt_words": 40, "max_tokens": 160, '
        '"ttft": 0.4454, "e2e": 0.5642, "output_chunks": 10, "status": 200, "finish_reason": "stop", "error": null, '
        '"prompt_tokens": 71, "completion_tokens": 11, "class": "c0"}'
    )
    record = from_line(line)
    assert record is not None and record.ok and record.cls == "c0" and record.completion_tokens == 11


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "", "{", '{"start": 1', "[]", "3", '{"start": 1, "e2e": null}', '{"start": 1, "e2e": "x"}']
)
def test_torn_and_foreign_lines_are_none(line: str) -> None:
    assert from_line(line) is None
