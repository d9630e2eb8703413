"""What the watch says, when nobody can hear it any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infradoc.service.journal_lines import Lines


def test_a_reader_that_went_away_ends_no_watch(capfd: pytest.CaptureFixture[str]) -> None:
    there, here = os.pipe()
    os.close(there)
    stream = os.fdopen(here, "w")
    lines = Lines(stream=stream)
    for _ in range(3):
        lines.say(0.0, "fired", "prod: something")
    told = capfd.readouterr().err
    assert "Broken pipe" in told and "goes on" in told and len(told.splitlines()) == 1
    with pytest.raises(BrokenPipeError):
        stream.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_ends_no_watch(capfd: pytest.CaptureFixture[str]) -> None:
    stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    lines = Lines(stream=stream)
    lines.say(0.0, "fired", "prod: something")
    assert "No space left" in capfd.readouterr().err
    with pytest.raises(OSError, match="No space"):
        stream.close()
