"""Numbers that nothing real has neither stop a diagnosis nor take part in it."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest

from infradoc.artefacts.sound import is_sound, sound_event
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc_rules.model import Event

DIGITS = "9" * 5_000
CSV = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n0, NVIDIA H100, {}, 81559 MiB, 5 %\n"
PS = "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nroot 7 0.1 1.0 9 {} ? S 10:00 0:01 vllm serve m --port 8000\n"
REPLY = '{{"choices": [{{"finish_reason": "length", "text": ""}}], "usage": {{"completion_tokens": {}, "prompt_tokens": 3}}}}\n'
BENCH = (
    '{{"request_throughput": 1.5, "completed": {}, "mean_ttft_ms": 10.0, "p99_ttft_ms": 20.0, "request_rate": 1.0}}\n'
)
PAGE = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {}\nvllm:kv_cache_usage_perc {}\n"
SCORE = '{{"results": {{"gsm8k": {{"acc,none": {}, "alias": "gsm8k"}}}}, "config": {{"model": "m"}}}}\n'


@pytest.mark.parametrize("number", ["1e308", "1e999", "NaN", "-Infinity", "9" * 30, "9" * 400, DIGITS, "-1"])
@pytest.mark.parametrize("text", [CSV, PS, REPLY, BENCH, PAGE, SCORE, "vLLM API server version {}.1.0\n"])
def test_one_impossible_number_costs_nothing_beside_it(text, number, write, catalog, cases_dir):
    log = (cases_dir / "a006" / "server.log").read_text()
    odd = text.format(*[number] * text.replace("{{", "").count("{"))
    report = diagnose_artefacts(write(**{"server.log": log, "odd": odd}), catalog)
    assert "oom-kv-cache-too-small-for-max-len" in [finding["id"] for finding in report["findings"]]
    json.dumps(report["vitals"], allow_nan=False)


def test_what_is_sound():
    assert all(map(is_sound, [True, "text", 0, -1, 1.5, 1_760_000_000_000_000_000, "9" * 200, "a" * 5_000]))
    assert not any(map(is_sound, [float("inf"), float("nan"), 1e30, 1 << 70, int("9" * 400), DIGITS]))


def test_a_failure_stays_without_its_impossible_number():
    failed = Event("cuda_oom", 1, {"want_bytes": float("inf"), "gpu": 0}, text="CUDA out of memory. Tried to allocate")
    assert sound_event(failed).fields == {"gpu": 0}
    assert sound_event(Event("gpu_state", 1, {"used_bytes": float("inf")}, text="0, H100")) is None


def test_metrics_pages_pasted_years_apart(write, catalog):
    pages = "".join(f'vllm:num_requests_waiting{{engine="0"}} {n}.0 {when}\n' for n, when in ((1, 9e11), (2, 17e11)))
    pages = (
        pages.replace("e+", "")
        .replace(".0 900000000000.0", ".0 900000000000")
        .replace("1700000000000.0", "1700000000000")
    )
    report = diagnose_artefacts(write(page="# TYPE vllm:num_requests_waiting gauge\n" + pages), catalog)
    assert report["status"] in ("ok", "unknown")
