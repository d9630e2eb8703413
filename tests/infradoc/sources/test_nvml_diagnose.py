"""`infradoc diagnose` and `record` as users run them, with the real pynvml over a library that plays a script."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infradoc.sources.gpu_host import has_amd, has_nvidia

WINDOW = "10s"
LIVE = ("healthy", "throttled-heat", "throttled-power", "xid", "lost", "shared")
Run = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Runs:
    """Reports of the live diagnoses by script, and the recording that was made beside them."""

    reports: dict[str, Run]
    recording: Path

    def __getitem__(self, script: str) -> Run:
        return self.reports[script]


@pytest.fixture(scope="module")
def runs(nvml_runner: Callable[..., dict[str, tuple[int, str]]], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All at once: they mostly wait."""
    out = tmp_path_factory.mktemp("recording") / "r"
    diagnose = ["diagnose", "URL", "--window", WINDOW, "--format", "json"]
    jobs = {name: (f"{name}.txt", diagnose) for name in LIVE}
    jobs["record"] = ("throttled-heat.txt", ["record", "URL", "-o", str(out), "--for", WINDOW])
    done = nvml_runner(jobs)
    assert done.pop("record")[0] == 0
    return Runs({name: (code, json.loads(text)) for name, (code, text) in done.items()}, out)


def infradoc(environment: dict[str, str], folder: Path, *arguments: str) -> Run:
    """The command in a child, without the user's configuration."""
    clean = {**environment, "XDG_CONFIG_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    clean.pop("INFRADOC_CONFIG", None)
    command = [sys.executable, "-P", "-m", "infradoc", *arguments, "--format", "json"]
    done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def without_library() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}


def finding(run: Run, name: str) -> dict[str, Any]:
    (found,) = [one for one in run[1]["findings"] if one["id"] == name]
    return found


def texts(found: dict[str, Any]) -> str:
    return "\n".join(one["text"] for one in found["evidence"])


@pytest.mark.parametrize("script", ["healthy", "shared"])
def test_a_gpu_that_is_well_gives_no_hardware_finding(runs: Runs, script: str) -> None:
    code, report = runs[script]
    found = {one["id"] for one in report["findings"]}
    assert not found & {"gpu-throttled", "gpu-hardware-error"}
    assert {"gpu-throttled", "gpu-hardware-error"} <= set(report["checked"])
    assert code == 0 or script == "shared"
    assert not [line for line in report["not_visible"] if "nvml" in line or "gpu" in line]


def test_vitals_come_from_the_gpu(runs: Runs) -> None:
    vitals = runs["healthy"][1]["vitals"]
    assert vitals["gpu_utilization_ratio"] == 0.93 and vitals["gpu_memory_used_bytes"] == 60e9  # the server's GPU
    assert runs["healthy"][1]["observed"]["sources"] == ["host", "launch", "metrics", "nvml"]


def test_a_cooling_fault(runs: Runs) -> None:
    code, report = runs["throttled-heat"]
    found = finding(runs["throttled-heat"], "gpu-throttled")
    assert code == 10 and report["findings"][0] is found
    assert "SM clock is at 33%" in texts(found) and "91 °C" in texts(found) and "hw_thermal" in texts(found)
    assert [action["knob"] for action in found["actions"]] == ["gpu_cooling"]
    assert "GPU 0 slows down for heat (91 °C)" in found["actions"][0]["why"]


def test_a_power_limit_below_the_default(runs: Runs) -> None:
    found = finding(runs["throttled-power"], "gpu-throttled")
    assert runs["throttled-power"][0] == 10
    assert "SM clock is at 53%" in texts(found) and "43% of the board's default" in texts(found)
    action = found["actions"][0]
    assert (action["knob"], action["from"], action["to"]) == ("gpu_power_limit", 300, 700)
    assert action["flag"] == "nvidia-smi -i 0 -pl 700" and not action["live"]


def test_an_uncorrectable_memory_error(runs: Runs) -> None:
    found = finding(runs["xid"], "gpu-hardware-error")
    assert runs["xid"][0] == 20 and runs["xid"][1]["status"] == "unhealthy"
    assert "Xid of an uncorrectable memory error" in texts(found)
    assert "remapped rows are pending" in texts(found)
    assert "Xid 94 on GPU 0 (contained uncorrectable memory error)" in found["actions"][0]["why"]


def test_a_lost_gpu_is_named_and_the_other_goes_on(runs: Runs) -> None:
    code, report = runs["lost"]
    found = finding(runs["lost"], "gpu-hardware-error")
    assert code == 20 and "a GPU stopped answering" in texts(found)
    assert "GPU 1 is lost" in found["actions"][0]["why"] and "power-cycle" in found["actions"][0]["why"]
    (said,) = [line for line in report["not_visible"] if line.startswith("nvml")]
    assert "GPU 1 (00000000:02:00.0) is lost" in said
    assert report["vitals"]["gpu_memory_used_bytes"] == 60e9  # of the GPU that still answers
    assert "gpu-throttled" in report["checked"]


def test_a_recording_keeps_the_gpus_and_gives_the_same_finding(runs: Runs, tmp_path: Path) -> None:
    with gzip.open(runs.recording / "gpu.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    (process,) = rows[-1]["gpus"][0]["procs"]
    assert len(rows) >= 8 and process["owner"] == "server" and process["bytes"] == 59_000_000_000
    run = infradoc(without_library(), tmp_path, "diagnose", str(runs.recording))
    assert run[0] == 10 and "SM clock is at 33%" in texts(finding(run, "gpu-throttled"))
    assert run[1]["vitals"]["gpu_memory_used_bytes"] == 60e9


def test_a_foreign_process_holds_the_memory(runs: Runs) -> None:
    """The rule on shared devices, on what the driver says and /proc shows."""
    code, report = runs["shared"]
    found = finding(runs["shared"], "oom-gpu-shared-with-other-process")
    assert code in (10, 20) and found["evidence"] and report["vitals"]["gpu_memory_used_bytes"] == 76e9


def test_without_a_gpu_there_is_no_noise(page_process: tuple[int, int], tmp_path: Path) -> None:
    if has_nvidia() or has_amd():
        pytest.skip("this host has a GPU")
    url = f"http://127.0.0.1:{page_process[0]}"
    _, report = infradoc(without_library(), tmp_path, "diagnose", url, "--window", "1s")
    assert not [line for line in report["not_visible"] if line.startswith(("nvml", "amdsmi"))]


def test_a_gpu_that_was_asked_for_and_cannot_be_seen_is_named(
    nvml_environment: Callable[..., dict[str, str]], page_process: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "infradoc.toml").write_text(f'[targets.t]\nurl = "http://127.0.0.1:{page_process[0]}"\ngpu = true\n')
    environment = nvml_environment("0 * ret:nvmlInitWithFlags 18\n")
    _, report = infradoc(environment, tmp_path, "diagnose", "t", "--window", "1s")
    (said,) = [line for line in report["not_visible"] if line.startswith("nvml: ")]
    assert "different versions" in said and "reboot" in said
