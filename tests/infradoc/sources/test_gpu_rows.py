"""Rows about GPUs: to samples and events, whatever a damaged recording holds; whose process; which host has a GPU."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.model import Reading
from infradoc.monitor.loop import Evaluator
from infradoc.monitor.replay import Replay
from infradoc.signals.store import Store
from infradoc.sources.gpu_host import has_amd, has_nvidia
from infradoc.sources.gpu_processes import Family, process_rows
from infradoc.sources.gpu_rows import PROVIDES, GpuRows
from infradoc.sources.xid import xid, xid_table
from infradoc_rules.catalog import load_catalog
from infradoc_rules.model import Fact
from infradoc_rules.signals import signal_table

GPU: dict[str, Any] = {"gpu": 0, "uuid": "a", "mem": {"used": 5, "free": 6, "total": 11}, "util": 0.5}


def row(t: float, **more: Any) -> dict[str, Any]:
    return {"t": t, "source": "nvml", "gpus": [GPU], **more}


def latest(store: Store, name: str, now: float, **labels: str) -> list[float]:
    found = [one for one in store.series(name, now) if labels.items() <= one.labels.items()]
    return [float(one.values[-1]) for one in found]


def test_all_signals_and_labels_are_canonical() -> None:
    assert set(signal_table().signals) >= PROVIDES


def test_a_lost_gpu_leaves_the_others_and_marks_the_source() -> None:
    store, rows = Store(), GpuRows()
    store.add(rows.reading(row(1.0)))
    assert latest(store, "target_up", 1.0, source="nvml") == [1.0]
    store.add(rows.reading(row(2.0, lost=[{"gpu": 1, "pci": "0:2", "code": 15}])))
    assert latest(store, "target_up", 2.0, source="nvml") == [0.0]
    assert latest(store, "gpu_memory_used_bytes", 2.0) == [5.0]
    assert [(event.name, event.fields["gpu"]) for event in store.events] == [("gpu_lost", 1)]
    store.add(rows.reading(row(3.0, lost=[{"gpu": 1, "code": 15}])))
    assert len(store.events) == 1  # told once, not at every look
    for t in (4.0, 5.0):
        store.add(rows.reading({"t": t, "source": "nvml", "lost": [{"gpu": 0}, {"gpu": 1}]}))
    assert "GPU 0, 1 is lost" in store.errors["nvml"] and latest(store, "target_up", 5.0) == [0.0]
    for t in (6.0, 7.0):
        store.add(rows.reading(row(t)))
    assert latest(store, "target_up", 7.0) == [1.0]


def test_a_counter_of_xids_begins_at_zero_and_grows() -> None:
    store, rows = Store(), GpuRows()
    for t in (1.0, 2.0, 3.0, 4.0):
        seen = [{"code": 79, "gpu": 0, "uuid": "a"}] if t in (2.0, 4.0) else []
        store.add(rows.reading(row(t, xids=seen)))
    (series,) = store.series("gpu_xid_errors_total", 4.0)
    assert list(series.times) == [1.0, 2.0, 3.0, 4.0] and list(series.values) == [0.0, 1.0, 1.0, 2.0]
    assert store.late_samples == 0


def test_a_recording_with_a_lost_gpu(recordings_dir: Path, tmp_path: Path) -> None:
    """What the rules make of it at replay, where no driver can be asked."""
    with gzip.open(recordings_dir / "vllm-01" / "scrapes.jsonl.gz", "rt") as lines:
        pages = list(lines)[15:35]
    times = [json.loads(page)["t"] for page in pages]
    rows = [row(t) if place < 8 else row(t, lost=[{"gpu": 1, "code": 15}]) for place, t in enumerate(times)]
    rows[8]["xids"] = [{"code": 79, "gpu": 1, "uuid": "b"}]
    for name, content in (("scrapes.jsonl.gz", pages), ("gpu.jsonl.gz", [json.dumps(one) + "\n" for one in rows])):
        with gzip.open(tmp_path / name, "wt") as out:
            out.writelines([*content, "{broken\n"])
    replay = Replay(tmp_path, load_catalog())
    replay.run()
    assert replay.last is not None and [one.id for one in replay.last.findings][:1] == ["gpu-hardware-error"]
    (finding,) = [one for one in replay.last.findings if one.id == "gpu-hardware-error"]
    assert any("Xid 79" in evidence.text for evidence in finding.evidence)
    assert "GPU 1 is lost" in finding.actions[0].why and replay.recording.bad_lines >= 1
    assert latest(replay.store, "target_up", times[-1], source="nvml") == [0.0]


def test_a_neighbour_s_gpu_counts_with_its_faults_alone() -> None:
    """Two servers on one host, a GPU each: what fills the other GPU takes nothing from this one."""

    def held(gpu: int, owner: str, util: float) -> dict[str, Any]:
        mem = {"used": 93, "free": 7, "total": 100}
        procs = [{"pid": 10 + gpu, "owner": owner, "bytes": 93}]
        return {"gpu": gpu, "uuid": str(gpu), "mem": mem, "util": util, "ecc": {"uncorrected": 0}, "procs": procs}

    store, rows, catalog = Store(), GpuRows(), load_catalog()
    store.add(Reading("metrics", 0.0, facts=[Fact("gpu_memory_utilization", 0.9, "metrics")]))
    evaluator = Evaluator(store, catalog)
    for t in range(1, 30):
        gpus = [held(0, "server", 0.9), held(1, "other", 0.1), {"gpu": 2, "uuid": "2", "util": 0.0}]
        tick = evaluator.feed([rows.reading({"t": float(t), "source": "nvml", "gpus": gpus})], float(t))
    assert tick.findings == ()
    assert latest(store, "gpu_utilization_ratio", 29.0) == [0.9]
    assert latest(store, "gpu_process_memory_bytes", 29.0, owner="other") == []
    assert len(latest(store, "gpu_ecc_errors_total", 29.0)) == 2
    store.add(rows.reading({"t": 30.0, "source": "nvml", "gpus": [{**GPU, "gpu": 1}]}))  # the server restarts
    assert latest(store, "gpu_utilization_ratio", 30.0, gpu="1") == []
    shared = [held(0, "server", 0.9), held(1, "unknown", 0.8)]
    store.add(rows.reading({"t": 31.0, "source": "nvml", "gpus": shared}))
    assert latest(store, "gpu_utilization_ratio", 31.0, gpu="1") == [0.8]  # perhaps a worker of Ray


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*GPU, "gpus", "procs", "code", "reasons", "pid", "bytes", "temp"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(gpus=JSON, xids=JSON, lost=JSON, driver=JSON)
def test_no_row_is_fatal(gpus: Any, xids: Any, lost: Any, driver: Any) -> None:
    reading = GpuRows().reading({"t": 5.0, "gpus": gpus, "xids": xids, "lost": lost, "driver": driver})
    assert isinstance(reading, Reading) and all(abs(one.value) < 1e300 for one in reading.samples)


def proc(folder: Path, *pids: int) -> Path:
    for pid in pids:
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "comm").write_text(f"program{pid}\n")
    return folder


ENGINE, PROXY = Family(frozenset({10}), engine=True), Family(frozenset({10}))


@pytest.mark.parametrize(
    ("held", "family", "host_pids", "owners"),
    [
        ([10, 20, 30], ENGINE, True, ["server", "other", "unknown"]),  # 30 is not in /proc
        ([20], ENGINE, True, ["other"]),  # the engine holds nothing yet
        ([20], PROXY, True, ["unknown"]),  # the listener may be a container's proxy, and 20 the server itself
        ([10, 20], PROXY, True, ["server", "other"]),  # it is no proxy: it holds memory
        ([20], Family(), True, ["unknown"]),  # the server's processes cannot be seen
        ([20, 30], ENGINE, False, ["unknown", "unknown"]),  # a container: the numbers may be others
        ([10, 20], ENGINE, False, ["server", "other"]),  # a container whose numbers are the host's after all
        ([10, 40], ENGINE, True, ["server", "unknown"]),  # 40 is a worker of Ray
    ],
)
def test_whose_process(tmp_path: Path, held: list[int], family: Family, host_pids: bool, owners: list[str]) -> None:
    for pid, name in ((10, "python3"), (20, "trainer"), (40, "ray::RayWorkerW")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(name + "\n")
    rows = process_rows([(pid, None) for pid in held], family, host_pids, tmp_path)
    assert [one["owner"] for one in rows] == owners
    assert all("name" not in one for one in rows if one["owner"] == "unknown")


def test_a_family_is_an_engine_s_by_the_names_of_its_processes() -> None:
    assert Family.of([{"pid": 1, "role": "APIServer"}, {"pid": 2, "role": "python3"}]) == Family(
        frozenset({1, 2}), True
    )
    assert Family.of([{"pid": 1, "role": "docker-proxy"}]) == Family(frozenset({1}))
    assert Family.of([]) == Family()


def device(root: Path, folder: str, vendor: str, kind: str) -> None:
    place = root / folder
    place.mkdir(parents=True)
    (place / "vendor").write_text(vendor + "\n")
    (place / "class").write_text(kind + "\n")


def test_which_hosts_have_a_gpu(tmp_path: Path) -> None:
    assert not has_nvidia(tmp_path) and not has_amd(tmp_path)
    device(tmp_path, "sys/bus/pci/devices/0000:00:01.0", "0x10de", "0x040300")  # its sound part alone is no GPU
    device(tmp_path, "sys/class/drm/card0/device", "0x8086", "0x030000")
    assert not has_nvidia(tmp_path) and not has_amd(tmp_path)
    device(tmp_path, "sys/bus/pci/devices/0000:01:00.0", "0x10de", "0x030200")
    device(tmp_path, "sys/class/drm/card1/device", "0x1002", "0x038000")
    assert has_nvidia(tmp_path) and has_amd(tmp_path)


def test_the_driver_s_files_tell_of_nvidia_as_well(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert has_nvidia(tmp_path)


def test_the_rule_names_the_codes_of_the_table() -> None:
    rule = load_catalog().get("gpu-hardware-error")
    assert rule.live is not None
    named = [set(re.findall(r"\d+", text)) for text in re.findall(r'xid=~"([\d|]+)"', str(rule.live.branches))]
    assert named == [{str(code) for code, known in xid_table().items() if known.severity == "device"}]
    for known in xid_table().values():
        assert known.severity in ("device", "application", "note")
        assert known.action in ("restart", "reset", "reboot", "link", "watch", "follow")
    assert xid(31).severity == "application" and xid(99999).name == "unknown driver error"
