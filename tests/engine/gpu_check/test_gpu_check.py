"""The whole check without a GPU: dry run, in a fresh interpreter that has torch, triton and numpy only."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from infradoc_engine.gpu_check import __main__ as command
from infradoc_engine.gpu_check import nvml_calls
from infradoc_engine.gpu_check.look import Look
from infradoc_engine.gpu_check.record import Record

# What a bare host lacks; the finder refuses these, whatever is installed here.
BARE = """
import sys
BLOCKED = {"gguf", "safetensors", "psutil", "platformdirs", "tokenizers", "starlette", "pynvml", "uvicorn", "h11",
           "jinja2", "pydantic", "yaml", "httpx", "rich", "re2", "infradoc", "infradoc_rules"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not on a bare host", name=name)
sys.meta_path.insert(0, Refuse())
import importlib.util
real = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name.split(".")[0] in BLOCKED else real(name, package)
importlib.util.find_spec = find_spec
from infradoc_engine.gpu_check.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def bare(*arguments: str, code: str = BARE, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_dry_run_plays_every_step_on_a_bare_host(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    done = bare("--dry-run", "--quick", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(out.read_text())
    assert data["dry_run"] is True and list(data["steps"]) == list(command.STEPS)
    for name, step in data["steps"].items():
        assert step["finished"] and step["rows"] and "error" not in step, (name, step)
    checks = data["steps"]["correctness"]["rows"][1:]
    kernels = {row["kernel"] for row in checks}
    assert kernels >= {"rms_norm", "silu_and_mul", "rope", "kv_cache_write", "top_p_mask"}
    assert kernels >= {"paged_attention_decode", "paged_attention_prefill"}
    assert all(row["ok"] is True for row in checks)
    decodes = [row for row in data["steps"]["model"]["rows"] if row["what"] == "decode"]
    assert {(row["mode"], row["batch"]) for row in decodes} == {("eager", 1), ("eager", 2)}
    assert data["steps"]["tune"]["rows"][-1]["best"] is True


@pytest.mark.skipif(torch.cuda.is_available(), reason="for hosts without a GPU")
def test_without_a_device_it_says_so_and_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--out", str(tmp_path / "no.json")]) == 3
    said = capsys.readouterr().err
    assert "no CUDA device" in said and said.count("\n") == 1
    assert not (tmp_path / "no.json").exists()


@pytest.mark.parametrize("kind", ["device", "folder", "below a file"])
def test_a_place_that_cannot_hold_the_result_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that the command's own setting ends with this test
    out = tmp_path / "out"
    if kind == "device":  # a pipe stands in for one: the rename would put a file in its place
        os.mkfifo(out)
    elif kind == "folder":
        out.mkdir()
    else:
        out.write_text("kept")
        out = out / "check.json"
    before = (tmp_path / "out").stat().st_mode
    assert command.main(["--dry-run", "--steps", "allocator", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert str(out) in said and said.count("\n") == 1
    assert (tmp_path / "out").stat().st_mode == before and [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-5", "soon"])
def test_a_time_that_makes_no_sense_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main([f"--seconds={seconds}", "--list"])
    assert refused.value.code == 2 and "--seconds" in capsys.readouterr().err


def test_steps_are_named_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in command.STEPS)
    assert command.main(["--steps", "copy,fly"]) == 2
    assert "there is no step fly" in capsys.readouterr().err
    assert sum(seconds for seconds, _ in command.STEPS.values()) < 7 * 60 and command.TOTAL_SECONDS < 7 * 60


class Steps:
    """Modules of steps that a test makes up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **steps: Any) -> None:
        made = {
            f"infradoc_engine.gpu_check.{name}_step": type("Step", (), {"run": staticmethod(run)})
            for name, run in steps.items()
        }
        monkeypatch.setattr(command.importlib, "import_module", made.__getitem__)


def test_a_step_that_fails_keeps_its_rows_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(look: Look) -> Any:
        yield {"speed": float("nan")}
        raise RuntimeError("CUDA error: an illegal address\nwith a second line")

    Steps(monkeypatch, copy=breaks, small=lambda look: iter([{"ok": True}]), tune=lambda look: iter([{"ok": False}]))
    record = Record(tmp_path / "deep" / "r.json", [], False, True)
    look = Look(torch.device("cpu"))
    assert [command._step(name, look, record) for name in ("copy", "small", "tune")] == [False, True, False]
    steps = json.loads(record.path.read_text())["steps"]
    assert steps["copy"]["rows"] == [{"speed": "nan"}] and not steps["copy"]["finished"]
    assert steps["copy"]["error"] == "RuntimeError: CUDA error: an illegal address"
    assert steps["small"]["finished"] and steps["small"]["rows"] == [{"ok": True}]


def test_rows_are_on_disk_before_the_step_ends_and_time_cuts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = Record(tmp_path / "r.json", [], False, True)
    look = Look(torch.device("cpu"))
    seen: list[int] = []

    def long(look: Look) -> Any:
        for number in range(100):
            if record.path.exists():
                seen.append(len(json.loads(record.path.read_text())["steps"]["decode"]["rows"]))
            if number == 3:
                look.deadline = 0.0
            yield {"number": number}

    Steps(monkeypatch, decode=long)
    assert command._step("decode", look, record)
    assert seen == [0, 1, 2, 3]
    step = json.loads(record.path.read_text())["steps"]["decode"]
    assert len(step["rows"]) == 4 and "its time was up" in step["cut"] and not step["finished"]


def test_layouts_are_those_of_nvidia_ml_py() -> None:
    pynvml = pytest.importorskip("pynvml")
    same = {
        "Utilization": "c_nvmlUtilization_t",
        "Memory": "c_nvmlMemory_t",
        "MemoryV2": "c_nvmlMemory_v2_t",
        "ProcessInfo": "c_nvmlProcessInfo_t",
        "FieldValue": "c_nvmlFieldValue_t",
        "PciInfo": "nvmlPciInfo_t",
        "Temperature": "c_nvmlTemperature_v1_t",
        "GpmSupport": "c_nvmlGpmSupport_t",
        "GpmMetric": "c_nvmlGpmMetric_t",
        "EventData": "c_nvmlEventData_t",
    }
    for ours, theirs in same.items():
        one, other = getattr(nvml_calls, ours), getattr(pynvml, theirs)
        assert ctypes.sizeof(one) == ctypes.sizeof(other), ours
        offsets = [{name: getattr(kind, name).offset for name, *_ in kind._fields_} for kind in (one, other)]
        assert offsets[0] == offsets[1], ours
    assert nvml_calls.GpmMetricsGet.metrics.offset == pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
    assert ctypes.sizeof(nvml_calls.GpmMetricsGet) >= ctypes.sizeof(pynvml.c_nvmlGpmMetricsGet_t)
    assert pynvml.nvmlMemory_v2 == nvml_calls.MEMORY_V2 and pynvml.nvmlTemperature_v1 == nvml_calls.TEMPERATURE_V1


FAKE = Path(__file__).parents[2] / "infradoc" / "sources" / "fake_nvml"
SNAPSHOT = """
import json
import torch
from infradoc_engine.gpu_check import nvml_step
from infradoc_engine.gpu_check.look import Look
print(json.dumps(list(nvml_step.run(Look(torch.device("cpu"))))))
"""


def test_snapshot_of_a_scripted_library(tmp_path: Path) -> None:
    """Every call of the agent's source, against the library that its tests build."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc or gcc) to build the fake libnvidia-ml.so.1 with")
    (tmp_path / "abi.h").write_text("")
    built = str(tmp_path / "libnvidia-ml.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{tmp_path}", str(FAKE / "fake_nvml.c"), "-o", built], check=True)
    script = tmp_path / "script.txt"
    script.write_text((FAKE / "base.txt").read_text().replace("@SERVER@", "4242"))
    done = bare(code=SNAPSHOT, LD_LIBRARY_PATH=str(tmp_path), FAKE_NVML_SCRIPT=str(script))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    by_call = {(row["call"], row.get("for", "")): row for row in rows}
    value = {call: row["value"] for (call, _), row in by_call.items()}
    assert value["nvmlDeviceGetName"] == "Fake H100" and value["nvmlSystemGetDriverVersion"] == "580.65.06"
    assert value["nvmlDeviceGetMemoryInfo_v2"]["used"] == 60_000_000_000
    assert value["nvmlDeviceGetUtilizationRates"]["gpu"] == 93
    assert by_call["nvmlDeviceGetClockInfo", "sm"]["value"] == 1935
    assert value["nvmlDeviceGetComputeRunningProcesses_v3"][0]["pid"] == 4242
    assert value["nvmlDeviceGetTemperatureV"]["temperature"] == value["nvmlDeviceGetTemperature"] == 58
    assert value["nvmlDeviceGetRemappedRows"] == [0, 0, 0, 0] and value["nvmlDeviceGetCurrPcieLinkWidth"] == 16
    assert value["field 82:0"] == 71 and value["field 163:4294967295"] == 3 and value["gpm 2"] == 81
    assert by_call["nvmlDeviceGetMigDeviceHandleByIndex", ""]["code"] != 0  # the script has no instances


@pytest.mark.parametrize(
    "name", ["nvml.py", "nvml_device.py", "nvml_events.py", "nvml_gpm.py", "nvml_identity.py", "nvml_fields.py"]
)
def test_snapshot_has_every_call_of_the_agent(name: str) -> None:
    package = Path(nvml_calls.__file__).parent
    ours = (package / "nvml_calls.py").read_text() + (package / "nvml_step.py").read_text()
    source = (Path(__file__).parents[3] / "infradoc" / "sources" / name).read_text()
    called = set(re.findall(r"\bnvml[A-Z][A-Za-z]+(?:_v\d)?", source)) - {"nvmlInit", "nvmlClockType"}
    built = ("nvmlDeviceGetCurrPcie", "nvmlDeviceGetMaxPcie")  # two halves of names that the snapshot puts together
    missing = {call for call in called if call not in ours and not call.startswith(built)}
    assert not missing
