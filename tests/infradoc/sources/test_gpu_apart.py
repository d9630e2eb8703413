"""A driver that hangs, played by the fake library: the watch goes on, says so, and comes back when the driver does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infradoc.model import Reading, Sample
from infradoc.signals.store import Store
from infradoc.sources.gpu_apart import ApartSource, Patience
from infradoc.sources.gpu_rows import GpuRows
from infradoc_rules.model import Event

Looks = Callable[..., list[dict[str, Any]]]
GPU = "0 0 used 1000\n0 0 reasons 0\n0 0 power 5000\n"


class Driver:
    """A source whose looks wait for `answers` to be set."""

    name = "nvml"
    interval = 0.0
    provides: frozenset[str] = frozenset({"gpu_power_watts"})
    row_file = "gpu.jsonl.gz"

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.last_row: dict[str, Any] = {}
        self.closed = 0
        self.threads: set[str] = set()
        self.fails = False

    def is_supported(self) -> bool:
        return bool(self.answers.wait(30)) and not self.closed

    def why_not(self) -> str | None:
        return "as the source says"

    def read(self, now: float) -> Reading:
        self.threads.add(threading.current_thread().name)
        self.answers.wait(30)
        if self.fails:
            raise RuntimeError("a bug of the source")
        self.last_row = {"t": now, "gpus": [{"gpu": 0}]}
        return Reading(self.name, now, [Sample("gpu_power_watts", (), now, now)], [Event("xid", 1, {}, now)])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def pair(clock: list[float]) -> tuple[Driver, ApartSource]:
    driver = Driver()
    source = ApartSource(driver, Patience(open=20, look=0.05, silent=3), clock=lambda: clock[0])
    assert source.is_supported()
    return driver, source


def resume(driver: Driver, source: ApartSource) -> None:
    """Let the look under way end."""
    driver.answers.set()
    assert source._looking is not None
    source._looking.result(timeout=20)


def test_a_source_that_answers_is_read_as_it_is(pair: tuple[Driver, ApartSource]) -> None:
    driver, source = pair
    reading = source.read(7.0)
    assert reading.samples[0].value == 7 and reading.error is None and source.last_row["t"] == 7
    assert source.why_not() == "as the source says" and driver.threads == {"infradoc-nvml"}
    source.close()
    source.close()
    assert driver.closed == 1 and not source.is_supported()


def test_the_last_rows_hold_for_a_moment_then_they_are_stale(
    pair: tuple[Driver, ApartSource], clock: list[float]
) -> None:
    driver, source = pair
    store = Store()
    store.add(source.read(1.0))
    driver.answers.clear()
    store.add(source.read(2.0))
    (series,) = store.series("gpu_power_watts", 9)
    assert list(series.times) == [1.0] and not store.errors and source.last_row == {}
    clock[0] = 4.0
    store.add(source.read(3.0))
    assert "NVML has not answered for 4 s" in store.errors["nvml"] and source.why_not() == store.errors["nvml"]
    (series,) = store.series("gpu_power_watts", 9)
    assert list(series.times) == [1.0, 3.0] and series.values[1] != series.values[1]  # the stale marker is a NaN
    assert GpuRows().reading(source.last_row).error == store.errors["nvml"]  # a recording tells the same


def test_figures_of_before_the_silence_are_dropped_and_its_events_kept(
    pair: tuple[Driver, ApartSource], clock: list[float]
) -> None:
    driver, source = pair
    source.read(1.0)
    driver.answers.clear()
    source.read(2.0)
    clock[0] = 9.0
    assert source.read(3.0).error is not None
    resume(driver, source)
    reading = source.read(4.0)
    if reading.error is not None:  # the new look may take longer than a busy machine lets it
        resume(driver, source)
        reading = source.read(5.0)
    assert reading.error is None and reading.samples[0].time >= 4.0 and source.why_not() == "as the source says"
    assert next(event.time for event in reading.events) == 2.0


def test_a_late_answer_within_patience_is_taken_with_its_own_time(pair: tuple[Driver, ApartSource]) -> None:
    driver, source = pair
    source.read(1.0)
    driver.answers.clear()
    again = source.read(2.0)
    assert again.time == 1.0 and again.events == []
    resume(driver, source)
    assert source.read(3.0).time == 2.0


def test_a_fault_of_the_source_itself_is_not_swallowed(pair: tuple[Driver, ApartSource]) -> None:
    driver, source = pair
    driver.fails = True
    with pytest.raises(RuntimeError, match="a bug of the source"):
        source.read(1.0)


def test_closing_does_not_wait_for_a_driver_that_hangs(pair: tuple[Driver, ApartSource], clock: list[float]) -> None:
    driver, source = pair
    source.read(1.0)
    driver.answers.clear()
    source.read(2.0)
    source.close()
    assert driver.closed == 0
    driver.answers.set()  # the library is given back when the driver is there again
    deadline = time.monotonic() + 20
    while not driver.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert driver.closed == 1


def test_a_host_without_a_gpu_keeps_no_thread(clock: list[float]) -> None:
    driver = Driver()
    driver.closed = 1  # so that it says that it is not supported
    driver.name = "nvml-none"
    source = ApartSource(driver, clock=lambda: clock[0])
    assert not source.is_supported() and not source.is_supported()
    deadline = time.monotonic() + 20
    while any(t.name == "infradoc-nvml-none" for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(t.name == "infradoc-nvml-none" for t in threading.enumerate())


def test_a_wedged_driver_through_the_real_pynvml(nvml_looks: Looks) -> None:
    """Power hangs from 0.3 s on and answers again at 1.9 s; looks go on all the time."""
    hang = "0.3 * hang:nvmlDeviceGetPowerUsage 1\n1.9 * hang:nvmlDeviceGetPowerUsage 0\n"
    looks = nvml_looks(GPU + hang, 30, 0.12, 1, "", "", 0.6)
    errors = [look["error"] for look in looks]
    assert errors[0] is None and errors[-1] is None
    told = [look for look in looks if look["error"]]
    assert told and all(look["why"] == look["error"] and "NVML has not answered" in look["error"] for look in told)
    assert all(look["samples"] == [] for look in told)
    assert looks[-1]["why"] is None and any(name == "gpu_power_watts" for name, *_ in looks[-1]["samples"])


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetName"])
def test_a_driver_that_never_answers_ends_the_command_all_the_same(
    nvml_environment: Callable[..., dict[str, str]], function: str
) -> None:
    environment = nvml_environment(f"{GPU}0 * hang:{function} 1\n")
    probe = Path(__file__).parent / "fake_nvml" / "probe.py"
    command = [sys.executable, "-P", str(probe), "2", "0", "1", "", "", "0.5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "NVML has not answered" in json.loads(done.stdout.splitlines()[-1])["why"]


def test_diagnose_names_a_driver_that_hangs(
    nvml_environment: Callable[..., dict[str, str]], page_process: tuple[int, int], tmp_path: Path
) -> None:
    environment = {
        **nvml_environment(f"{GPU}1 * hang:nvmlDeviceGetPowerUsage 1\n"), "XDG_CONFIG_HOME": str(tmp_path),
    }  # fmt: skip
    environment.pop("INFRADOC_CONFIG", None)
    url = f"http://127.0.0.1:{page_process[0]}"
    command = [sys.executable, "-P", "-m", "infradoc", "diagnose", url, "--window", "7s", "--format", "json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    report = json.loads(done.stdout)
    said = [line for line in report["not_visible"] if line.startswith("nvml")]
    assert len(said) == 1 and "NVML has not answered for" in said[0], report["not_visible"]
    assert report["observed"]["looks"] >= 5 and "metrics" in report["observed"]["sources"]
