"""Lengths from JSON lines and logs of many hands."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.lengths.files import MAX_LINE_BYTES, LengthsError, add_line, read_file
from infradoc.lengths.measured import Measured


def lengths_of(line: str) -> tuple[list[int], list[int], list[int]]:
    found = Measured("x")
    add_line(found, line.encode())
    return found.prompts, found.outputs, found.totals


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"prompt_tokens": 12, "completion_tokens": 5}', ([12], [5], [17])),
        ('{"usage": {"prompt_tokens": 12, "completion_tokens": 5}}', ([12], [5], [17])),
        ('{"response": {"body": {}, "usage": {"input_tokens": 9, "output_tokens": 1}}}', ([9], [1], [10])),
        ('{"meta_info": {"prompt_tokens": 3, "completion_tokens": 4}}', ([3], [4], [7])),
        ('{"total_tokens": 40}', ([], [], [40])),
        ("INFO Finish: obj='meta_info': {'prompt_tokens': 31, 'completion_tokens': 8}", ([31], [8], [39])),
        ("level=info prompt_tokens=31 completion_tokens=8 status=200", ([31], [8], [39])),
        ("slot release: id 3 | task 2 | stop processing: n_tokens = 81, truncated = 0", ([], [], [81])),
        ("slot release: id 3 | task 2 | stop processing: n_past = 81, truncated = 1", ([], [], [81])),
        ("prompt_tokens=31 and nothing else", ([], [], [])),
        ("max_output_tokens=1024 cached_input_tokens=7 input_tokens=30 output_tokens=5", ([30], [5], [35])),
        ("launch: max_input_tokens: 1024, max_output_tokens: 2048", ([], [], [])),
        ('[{"prompt_tokens": 1, "completion_tokens": 2}, {"total_tokens": 9}, 7]', ([1], [2], [3, 9])),
        ('{"prompt_tokens": 1, "completion_tokens": 2},', ([1], [2], [3])),
        ('{"prompt_tokens": true, "completion_tokens": 5}', ([], [], [])),
        ('{"prompt_tokens": -1, "completion_tokens": 5}', ([], [], [])),
        ('{"prompt_tokens": 1e300, "completion_tokens": 5}', ([], [], [])),
        ('{"prompt_tokens": NaN, "completion_tokens": 5}', ([], [], [])),
        ("[" * 100_000, ([], [], [])),
        ('{"a":' * 100_000 + "}", ([], [], [])),
    ],
)
def test_one_line(line, expected):
    assert lengths_of(line) == expected


@given(st.binary(max_size=300))
def test_no_line_breaks_the_reading(data):
    found = Measured("x")
    add_line(found, data)
    assert len(found.prompts) == len(found.outputs) <= len(found.totals)


def test_a_file_with_long_and_foreign_lines_plain_and_packed(tmp_path):
    row = b'{"prompt_tokens": 10, "completion_tokens": 2}\n'
    data = row * 3 + b"x" * (2 * MAX_LINE_BYTES + 5) + b"\n" + b'{"other": 1}\n' + b"\xff\xfe\n" + row.strip()
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    for path in (plain, packed):
        found = read_file(path)
        assert found.totals == [12, 12, 12, 12]
        assert found.skipped == 2


def test_faults_are_one_sentence(tmp_path):
    with pytest.raises(LengthsError, match="cannot be read: No such file"):
        read_file(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.write_text("nothing here\n")
    with pytest.raises(LengthsError, match="holds no request lengths"):
        read_file(empty)
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b'{"prompt_tokens": 1, "completion_tokens": 2}\n' * 9000)[:60])
    with pytest.raises(LengthsError, match="cannot be read"):
        read_file(torn)
