"""What changed before it: true differences between a good run and the failing one, and nothing else."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.gather import gather
from infradoc.catalog import load_rules
from infradoc.model import Reading
from infradoc.report.asides import changed_line, changed_part, changes_seen
from infradoc.report.markdown import to_markdown
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc.report.text import make_console, print_report
from infradoc.signals.store import Store
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.changed import Changed, changes, differ, tells

CASES = Path(__file__).parents[2] / "data" / "own_cases"
BANNER = "INFO 11-29 {at}:01 [api_server.py:1] vLLM API server version {version}\n"
ARGS = (
    "INFO 11-29 {at}:02 [api_server.py:2] args: Namespace(model='Qwen/Qwen2.5-14B-Instruct', max_model_len=16384,"
    " gpu_memory_utilization={share}, max_num_seqs={seqs}, tensor_parallel_size=1, api_key='sk-abcdefghijklmnop1234')\n"
)
LOADED = "INFO 11-29 {at}:40 [gpu_model_runner.py:1] Model loading took 27.5 GiB and 20.1 seconds\n"
READY = "INFO:     Application startup complete.\n"
STATS = (
    "INFO 11-29 {at}:50 [loggers.py:1] Engine 000: Avg prompt throughput: 50.0 tokens/s, Avg generation throughput:"
    " 300.0 tokens/s, Running: 10 reqs, Waiting: 0 reqs, GPU KV cache usage: 30.0%, Prefix cache hit rate: 0.0%\n"
)
REFUSED = (
    "ERROR 11-29 {at}:55 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has"
    " a total capacity of 39.39 GiB of which 20.00 MiB is free.\n"
)


def start(at: str, version: str = "0.8.4", share: float = 0.9, seqs: int = 128, ends: str = READY + STATS) -> str:
    text = BANNER + ARGS + LOADED + ends
    return text.format(at=at, version=version, share=share, seqs=seqs)


def found(folder: Path) -> dict[str, tuple[object, object]]:
    gathered = gather(folder)
    return {one.what: (one.before, one.after) for one in changes(gathered.events, gathered.stated)}


@pytest.fixture
def folder(tmp_path: Path):
    def write(**files: str) -> Path:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return tmp_path

    return write


def test_an_upgrade_with_other_settings(folder):
    log = start("08:00") + start("09:00", "0.9.1", 0.97, 512, REFUSED)
    assert found(folder(server_log=log)) == {
        "target.version": ("0.8.4", "0.9.1"),
        "gpu_memory_utilization": (0.9, 0.97),
        "max_num_seqs": (128, 512),
    }


def test_what_stayed_is_no_change(folder):
    assert found(folder(server_log=start("08:00") + start("09:00", ends=REFUSED))) == {}
    assert found(folder(server_log=start("08:00"))) == {}


def test_the_first_failure_counts_and_not_what_was_tried_after_it(folder):
    log = start("08:00") + start("09:00", share=0.97, ends=REFUSED) + start("10:00", share=0.5, ends=REFUSED)
    assert found(folder(server_log=log)) == {"gpu_memory_utilization": (0.9, 0.97)}


def test_no_good_run_no_change(folder):
    """Settings tried one after the other, none of which ever worked, caused nothing."""
    log = start("08:00", share=0.97, ends=REFUSED) + start("09:00", share=0.9, ends=REFUSED)
    assert found(folder(server_log=log)) == {}


def test_slower_since_a_restart(folder):
    """Nothing fails; the last start is compared with the one before."""
    assert found(folder(server_log=start("08:00") + start("09:00", "0.9.1"))) == {"target.version": ("0.8.4", "0.9.1")}


def test_two_logs_one_after_the_other(folder):
    path = folder(a_log=start("08:00"), b_log=start("09:00", share=0.97, ends=REFUSED))
    assert found(path) == {"gpu_memory_utilization": (0.9, 0.97)}


def test_two_servers_at_the_same_time_are_no_change(folder):
    path = folder(a_log=start("08:00") + STATS.format(at="10:00"), b_log=start("09:00", share=0.97, ends=REFUSED))
    assert found(path) == {}


def test_a_launch_command_that_calls_itself_old(folder):
    path = folder(
        **{
            "launch-old_sh": "vllm serve m/x --max-model-len 8192 --max-num-seqs 64\n",
            "launch_sh": "vllm serve m/x --max-model-len 32768 --max-num-seqs 64 --api-key sk-0123456789abcdef0123\n",
            "server_log": start("08:00", ends=REFUSED),
        }
    )
    assert found(path) == {"max_model_len": (8192, 32768)}


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("changed-seqs-raised", ("max_num_seqs", 48, 256, "vllm.out:21")),
        ("changed-window-of-the-new-script", ("max_model_len", 8192, 65536, "serve.sh")),
        ("changed-driver-then-lost-card", ("driver_version", "550.90.07", "570.124.06", "kern.log:3")),
    ],
)
def test_own_cases(case, change):
    report = diagnose_artefacts(CASES / case, load_rules())
    assert [(one["what"], one["before"], one["after"], one["source"]) for one in report["changed"]] == [change]


def test_another_model_of_ollama_is_no_change():
    rows = []
    for order, (name, fields) in enumerate(
        [("launched", {"system": "ollama", "version": "0.6.2"}), ("engine_ready", {})]
        + [("launched", {"system": "ollama"}), ("model_loaded", {}), ("http_access", {"path": "/x", "code": 200})] * 2
    ):
        rows.append(Event(name, order, fields, source=f"o.log:{10 * order + 1}"))
    stated = [Fact("max_model_len", value, "log", f"o.log:{line}") for value, line in ((2048, 22), (8192, 52))]
    assert changes(rows, stated) == []
    rows[5] = replace(rows[5], fields={"system": "ollama", "version": "0.7.0"})
    assert [one.what for one in changes(rows, stated)] == ["max_model_len"]


def test_cases_without_a_change_tell_of_none():
    catalog = load_rules()
    for case in sorted(CASES.glob("healthy-*")):
        assert diagnose_artefacts(case, catalog)["changed"] == [], case.name


def test_two_launch_commands_without_an_order_are_no_change(folder):
    path = folder(router_sh="vllm serve m/x --max-model-len 8192\n", worker_sh="vllm serve m/x --max-model-len 32768\n")
    assert found(path) == {}


def test_another_driver(folder):
    line = "[ 3.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {}  Sat Aug 19 01:15:15 UTC 2023\n"
    lost = "[ 9.2] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n"
    path = folder(dmesg_txt=line.format("535.104.05") + line.format("570.86.15") + lost)
    assert found(path) == {"driver_version": ("535.104.05", "570.86.15")}


def test_what_pip_put_in_place_of_what(folder):
    pip = (
        "Attempting uninstall: vllm\n  Found existing installation: vllm 0.8.4\n    Uninstalling vllm-0.8.4:\n"
        "Successfully installed torch-2.7.0 vllm-0.9.1 xformers-0.0.30\n"
    )
    path = folder(pip_txt=pip, server_log=start("09:00", "0.9.1", ends=REFUSED))
    assert found(path) == {"package.vllm": ("0.8.4", "0.9.1")}


@pytest.mark.parametrize(
    "line",
    [
        "2025-11-28 06:11:02 upgrade nvidia-driver-535:amd64 535.104.05-0ubuntu1 535.183.01-0ubuntu0.22.04.1\n",
        "Upgrade: curl:amd64 (7.81.0, 7.81.1), nvidia-driver-535:amd64 (535.104.05-0ubuntu1, 535.183.01-0ubuntu1)\n",
    ],
)
def test_a_driver_that_the_distribution_upgraded(folder, line):
    path = folder(dpkg_log=line, server_log=start("09:00", ends=REFUSED))
    assert found(path) == {"driver_version": ("535.104.05", "535.183.01")}


@pytest.mark.parametrize(
    ("lang", "words"), [("en", "engine version 0.8.4 -> 0.9.1"), ("zh", "引擎版本 0.8.4 -> 0.9.1")]
)
def test_it_stands_beside_the_first_finding(folder, lang, words):
    path = folder(server_log=start("08:00") + start("09:00", "0.9.1", 0.97, 512, REFUSED))
    report = diagnose_artefacts(path, load_rules(), lang)
    assert [one["what"] for one in report["changed"]][:2] == ["target.version", "gpu_memory_utilization"]
    assert report["changed"][0]["time"] is None  # the stamps have no year
    assert report["changed"][0]["source"] == "server.log:6"
    out = io.StringIO()
    print_report(report, lang, make_console(out))
    assert words in out.getvalue()
    assert words.replace(">", "\\>") in to_markdown(report, lang)
    assert "sk-abcdefghijklmnop1234" not in str(report) + out.getvalue()


@pytest.mark.parametrize(
    ("before", "after", "different"),
    [(16, 16.0, False), ("16", 16, False), ("'A/b'", "A/b", False), (True, False, True), (0.9, "0.95", True)],
)
def test_true_differences(before, after, different):
    assert differ(before, after) is different


def test_secrets_and_what_came_out_are_no_settings():
    assert not tells("env.HF_TOKEN") and not tells("env.OPENAI_API_KEY") and not tells("kv_pool_tokens")
    assert tells("env.NCCL_P2P_DISABLE") and tells("max_num_batched_tokens") and tells("gpu.name")
    assert not tells("serving.kv_max")


def test_a_secret_in_a_value_is_hidden():
    shown = changed_part([Changed("env.URL", "http://u:p@h", "sk-0123456789abcdef0123", "x:1", 1_760_000_000.0)])
    assert "sk-0123456789abcdef0123" not in str(shown)
    assert shown[0]["time"] == 1_760_000_000.0


def test_a_change_during_a_watch():
    store = Store()
    for second in range(10):
        value = 16 if second < 6 else 8
        store.add(Reading("metrics", float(second), [], facts=[Fact("max_num_seqs", value, "metrics")]))
    assert changes_seen(store, 9.0) == [Changed("max_num_seqs", 16, 8, None, 6.0)]
    assert changes_seen(store, 5.0) == []


def test_the_servers_own_word_at_the_first_look_is_no_change():
    store = Store()
    store.add(Reading("launch", 0.0, [], facts=[Fact("max_num_seqs", 256, "flag")]))
    for second in range(1, 10):
        store.add(Reading("metrics", float(second), [], facts=[Fact("max_num_seqs", 128, "metrics")]))
    assert changes_seen(store, 9.0) == []


def test_a_line_for_people():
    one = {"what": "max_num_seqs", "before": 16, "after": 8.5, "source": "a.log:3", "time": 1_760_000_000.0}
    assert changed_line(one, "en") == "max_num_seqs 16 -> 8.5 (a.log:3, 2025-10-09 08:53:20 UTC)"
    assert changed_line({**one, "what": "driver_version", "source": None, "time": None}, "zh") == "GPU 驱动 16 -> 8.5"


SOURCES = st.one_of(
    st.none(), st.text(max_size=8), st.builds("{}:{}".format, st.sampled_from("ab"), st.integers(0, 30))
)
EVENTS = st.builds(
    Event,
    st.sampled_from(["launched", "stats_line", "cuda_oom", "model_loaded", "traceback", "http_access"]),
    st.integers(0, 99),
    st.just({}),
    st.one_of(st.none(), st.floats(0, 1e9)),
    source=SOURCES,
)
FACTS = st.builds(
    Fact,
    st.sampled_from(["max_num_seqs", "target.version", "driver_version", "env.HF_TOKEN", "serving.kv_max"]),
    st.one_of(st.booleans(), st.floats(), st.text(max_size=4), st.integers()),
    st.sampled_from(["log", "flag", "file", "derived"]),
    SOURCES,
)


@given(st.lists(EVENTS, max_size=30), st.lists(FACTS, max_size=30))
def test_whatever_is_given_only_differences_come_out(events, facts):
    ordered = [replace(event, order=place) for place, event in enumerate(events)]
    for one in changes(ordered, facts):
        assert differ(one.before, one.after)
        assert one.what not in ("env.HF_TOKEN", "serving.kv_max")
