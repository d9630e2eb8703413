"""One grammar of durations for flags and for the configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.alerts.config import alerts_config
from infradoc.cli.args import duration, lasting, window
from infradoc.config import ConfigError, load_config
from infradoc.durations import LONGEST, seconds_of, spoken
from infradoc.service.config import read_watch


@given(st.one_of(st.integers(0, int(LONGEST)), st.integers(1, 999).map(lambda n: n / 1000)))
def test_what_is_spoken_is_read(seconds: float) -> None:
    assert seconds_of(spoken(seconds)) == pytest.approx(seconds)


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_a_sentence(text: str) -> None:
    try:
        assert 0.0 <= seconds_of(text) <= LONGEST
    except ValueError as error:
        assert "is no duration from 0s to 3650d; write for example 500ms, 30s, 5m, 2h or 7d" in str(error)


def _flag(text: str) -> float:
    return duration(text, 1.0, 3600.0)


def _alerts(text: str) -> float:
    Path("infradoc.toml").write_text(f'[alerts]\ngroup_interval = "{text}"\n')
    return alerts_config(load_config("infradoc.toml")).timing.group_interval


def _watch(text: str) -> float:
    Path("infradoc.toml").write_text(f'[targets.a]\nurl = "http://127.0.0.1:1"\n[watch]\nperiod = "{text}"\n')
    return read_watch(load_config("infradoc.toml")).period


@pytest.mark.parametrize("read", [_flag, _alerts, _watch])
@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("1500 ms", 1.5), ("2m", 120.0), ("1.5", 1.5)])
def test_every_place_reads_the_same(
    read: Callable[[str], float], text: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(text) == seconds


@pytest.mark.parametrize("read", [_flag, _alerts, _watch])
@pytest.mark.parametrize("text", ["fast", "9999d", "-1s", "1s 2s", "1w", "0s"])
def test_every_place_refuses_in_the_same_words(
    read: Callable[[str], float], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        (argparse.ArgumentTypeError, ConfigError), match=f"'{text}' is no duration from .* to .*; write"
    ):
        read(text)


def test_spans_that_commands_share() -> None:
    assert window("1d") == 86_400.0 and lasting("1ms") == 0.001
    for call, text in ((window, "25h"), (window, "0.5s"), (lasting, "0")):
        with pytest.raises(argparse.ArgumentTypeError):
            call(text)
