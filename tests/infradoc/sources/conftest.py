"""A libnvidia-ml.so.1 that plays a script, built once a run, and children of infradoc that load it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).parent / "fake_nvml"
# C type -> pynvml's ctypes class: the layouts must be the same, or the fake would test itself.
_TYPES = {
    "utilization_t": "c_nvmlUtilization_t",
    "memory_t": "c_nvmlMemory_t",
    "memory_v2_t": "c_nvmlMemory_v2_t",
    "process_t": "c_nvmlProcessInfo_t",
    "field_t": "c_nvmlFieldValue_t",
    "event_t": "c_nvmlEventData_t",
    "metric_t": "c_nvmlGpmMetric_t",
    "gpm_support_t": "c_nvmlGpmSupport_t",
    "pci_t": "nvmlPciInfo_t",
}


def _abi() -> str:
    """Static assertions on size and offsets, from pynvml's declarations."""
    import pynvml

    lines = []
    for ours, theirs in _TYPES.items():
        layout: Any = getattr(pynvml, theirs)
        lines.append(f'_Static_assert(sizeof({ours}) == {ctypes.sizeof(layout)}, "{theirs}");')
        offsets = [getattr(layout, name).offset for name, *_ in layout._fields_]
        first, last = layout._fields_[0][0], layout._fields_[-1][0]
        for name, offset in ((first, offsets[0]), (last, offsets[-1])):
            ours_name = {"memory": "used"}.get(name, name) if ours == "utilization_t" else name
            if ours != "metric_t" or name != "metricInfo":
                lines.append(f'_Static_assert(offsetof({ours}, {ours_name}) == {offset}, "{theirs}.{name}");')
    metrics = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
    lines.append(f'_Static_assert(offsetof(metrics_t, metrics) == {metrics}, "c_nvmlGpmMetricsGet_t");')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the built library. Its layouts are checked against pynvml's while it compiles."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc or gcc) to build the fake libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "abi.h").write_text(_abi())
    source, built = str(FAKE / "fake_nvml.c"), str(folder / "libnvidia-ml.so.1")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-I{folder}", source, "-o", built]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def script_text(name_or_text: str, places: Mapping[str, int]) -> str:
    """A script of the folder, or lines of one, with `@include` and `@SERVER@` filled in."""
    text = (FAKE / name_or_text).read_text() if name_or_text.endswith(".txt") else name_or_text
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(script_text(line.split()[1], places) if line.startswith("@include ") else line)
    text = "\n".join(lines) + "\n"
    for place, value in places.items():
        text = text.replace(f"@{place}@", str(value))
    return text


def child_environment(library: Path, folder: Path, script: str, name: str, **places: int) -> dict[str, str]:
    """Environment of a child that finds the library with a script; `places` fills in PIDs."""
    path = folder / f"{name}.nvml"
    path.write_text(script_text(script, {"SERVER": 1, "OTHER": 2, **places}))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library),
        "FAKE_NVML_SCRIPT": str(path),
        "FAKE_NVML_COUNTS": str(folder / f"{name}.counts"),
    }


@pytest.fixture
def nvml_environment(nvml_library: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Makes the environment of a child from a script and the PIDs in it."""

    def make(script: str, name: str = "script", **places: int) -> dict[str, str]:
        return child_environment(nvml_library, tmp_path, script, name, **places)

    return make


@pytest.fixture(scope="module")
def nvml_runner(
    nvml_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Mapping[str, tuple[str, list[str]]]], dict[str, tuple[int, str]]]:
    """Runs infradoc on a busy server's page, all jobs at the same time: name -> (exit code, stdout).

    A job is a script and arguments, in which URL stands for the server.
    """

    def run(jobs: Mapping[str, tuple[str, list[str]]]) -> dict[str, tuple[int, str]]:
        folder = tmp_path_factory.mktemp("runs")
        with page_server() as (port, pid), sleeper() as other:
            children = {}
            for name, (script, arguments) in jobs.items():
                environment = child_environment(nvml_library, folder, script, name, SERVER=pid, OTHER=other)
                environment.update(XDG_CONFIG_HOME=str(folder), OMP_NUM_THREADS="1")
                environment.pop("INFRADOC_CONFIG", None)
                filled = [f"http://127.0.0.1:{port}" if word == "URL" else word for word in arguments]
                command = [sys.executable, "-P", "-m", "infradoc", *filled]
                children[name] = subprocess.Popen(
                    command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True
                )
            outputs = {name: child.communicate(timeout=120)[0] for name, child in children.items()}
        return {name: (child.returncode, outputs[name]) for name, child in children.items()}

    return run


@pytest.fixture
def nvml_looks(nvml_environment: Callable[..., dict[str, str]]) -> Callable[..., list[dict[str, Any]]]:
    """What `probe.py` sees in a child: a dict a look."""

    def look(script: str, *arguments: object, **places: int) -> list[dict[str, Any]]:
        command = [sys.executable, "-P", str(FAKE / "probe.py"), *map(str, arguments)]
        done = subprocess.run(
            command, env=nvml_environment(script, **places), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return look


# Plays the pages of a recorded vLLM under a light healthy load, a second a second, after its first quarter of a minute.
_PAGE_SERVER = """
import gzip, http.server, json, sys, time
bodies = [json.loads(line)["body"].encode() for line in gzip.open(sys.argv[1], "rt")][15:]
start = time.time()

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = bodies[min(int(time.time() - start), len(bodies) - 1)] if self.path == "/metrics" else b""
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
RECORDED = Path(__file__).resolve().parents[2] / "data" / "recordings" / "vllm-01" / "scrapes.jsonl.gz"


@contextmanager
def page_server() -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-P", "-c", _PAGE_SERVER, str(RECORDED)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield int(child.stdout.readline()), child.pid
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


@contextmanager
def sleeper() -> Iterator[int]:
    child = subprocess.Popen(["sleep", "300"])
    try:
        yield child.pid
    finally:
        child.terminate()
        child.wait()


@pytest.fixture
def page_process() -> Iterator[tuple[int, int]]:
    """(port, PID) of a busy server's metrics page in a process of its own, as a GPU server is one."""
    with page_server() as found:
        yield found


@pytest.fixture
def other_process() -> Iterator[int]:
    """PID of a process that has nothing to do with the server."""
    with sleeper() as pid:
        yield pid
