from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.errors import InfradocError
from infradoc.load.record import RequestRecord
from infradoc.remediation.client_log import ClientLog


def test_the_file_is_followed(tmp_path: Path, make_records: Callable[..., list[RequestRecord]]) -> None:
    path = tmp_path / "client.jsonl"
    log = ClientLog(path)
    assert log.records() == []
    lines = [record.to_line() for record in make_records(0, 10)]
    path.write_text("\n".join(lines[:3]) + "\n" + lines[3][:20])
    assert len(log.records()) == 3
    with path.open("a") as handle:
        handle.write(lines[3][20:] + "\nnot json\n" + lines[4] + "\n")
    assert len(log.records()) == 5
    log.forget(before=log.records()[2].end)
    assert len(log.records()) <= 3


def test_a_replaced_file_is_read_again(tmp_path: Path, make_records: Callable[..., list[RequestRecord]]) -> None:
    path = tmp_path / "client.jsonl"
    lines = [record.to_line() for record in make_records(0, 10)]
    path.write_text("\n".join(lines) + "\n")
    log = ClientLog(path)
    assert len(log.records()) == len(lines)
    path.write_text(lines[0] + "\n")
    assert len(log.records()) == len(lines) + 1


@pytest.mark.parametrize("what", ["folder", "device", "pipe"])
def test_what_is_no_file_is_one_sentence(tmp_path: Path, what: str) -> None:
    path = {"folder": tmp_path, "device": Path("/dev/zero"), "pipe": tmp_path / "pipe"}[what]
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(InfradocError, match="cannot be read: it is"):
        ClientLog(path).records()
