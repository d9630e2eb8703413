"""Flags to configuration, with origins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from infradoc_engine.config import add_arguments, from_arguments, parse_size
from infradoc_engine.knobs import KNOBS, KnobError


def _parse(*flags: str, **environment: str) -> object:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(flags), environment)


def test_defaults_and_flags_have_their_origin() -> None:
    config = _parse("--max-num-seqs", "4", "--no-prefix-caching", "--device-memory-bytes", "2GiB")
    assert config.model == "smollm2-135m"  # type: ignore[attr-defined]
    knobs, origins = config.knobs, config.origins  # type: ignore[attr-defined]
    assert set(knobs) == set(origins) == set(KNOBS)
    assert (knobs["max_num_seqs"], origins["max_num_seqs"]) == (4, "flag")
    assert (knobs["prefix_caching"], origins["prefix_caching"]) == (False, "flag")
    assert knobs["device_memory_bytes"] == 2 * 2**30
    assert (knobs["watermark"], origins["watermark"]) == (0.0, "default")
    assert knobs["kv_pool_tokens"] is None


def test_environment_is_read() -> None:
    config = _parse(OMP_NUM_THREADS="3", INFRADOC_ADMIN_TOKEN="t", INFRADOC_RUNTIME_DIR="/some/where")
    assert config.knobs["omp_num_threads"] == 3  # type: ignore[attr-defined]
    assert config.origins["omp_num_threads"] == "config"  # type: ignore[attr-defined]
    assert config.server.admin_token == "t"  # type: ignore[attr-defined]
    assert config.server.runtime_dir == Path("/some/where")  # type: ignore[attr-defined]
    flag = _parse("--omp-num-threads", "1", OMP_NUM_THREADS="3")
    assert flag.knobs["omp_num_threads"] == 1  # type: ignore[attr-defined]


def test_a_flag_out_of_bounds_is_refused() -> None:
    with pytest.raises(KnobError, match="watermark cannot be 2"):
        _parse("--watermark", "2")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("2GiB", 2**31), ("2G", 2**31), ("800MB", 800_000_000), ("1.5KiB", 1536), ("7b", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1PB", "1 2", "1e9", "9" * 400])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("flag", ["--drain-seconds", "--health-stall-seconds"])
@pytest.mark.parametrize("seconds", ["inf", "-inf", "nan", "-1", "-0.001", "1e9", "soon", ""])
def test_a_patience_that_makes_no_sense_is_refused(flag: str, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        _parse(f"{flag}={seconds}")
    assert refused.value.code == 2
    error = capsys.readouterr().err
    assert f"{flag}: {seconds!r} is not a time; give 0 to " in error and error.rstrip().endswith("seconds")


def test_faults_and_patience_come_from_flags() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = ["--enable-faults", "--fault", "stall", "--fault", "slow_step:seconds=1", "--drain-seconds", "2.5"]
    config = from_arguments(parser.parse_args([*given, "--swap-space", "64MiB"]), {})
    assert config.server.enable_faults and config.server.faults == ("stall", "slow_step:seconds=1")
    assert config.server.drain_seconds == 2.5
    assert config.knobs["swap_space"] == 64 << 20
    plain = from_arguments(parser.parse_args([]), {})
    assert not plain.server.enable_faults and plain.server.faults == () and plain.server.drain_seconds == 10.0
