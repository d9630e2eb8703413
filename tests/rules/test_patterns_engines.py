"""Lines of SGLang, TGI, llama.cpp, LMDeploy, TensorRT-LLM, Ollama and the kernel, in the forms of many versions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infradoc_rules.patterns import LogScanner, detect, scan
from infradoc_rules.patterns.sizes import number_of

TABLE = yaml.safe_load((Path(__file__).parent / "engine_lines.yaml").read_text(encoding="utf-8"))
LOST = {"host_oom_kill", "host_alloc_failed", "shm_short", "worker_died"}


@pytest.mark.parametrize("row", TABLE["engines"], ids=lambda row: f"{row['system']} {row['event']}")
def test_a_line_of_each_form(row):
    found = [event.fields for event in LogScanner(row["system"]).feed(row["line"]) if event.name == row["event"]]
    assert any(row["fields"].items() <= fields.items() for fields in found), found


@pytest.mark.parametrize("row", TABLE["lookalikes"], ids=lambda row: row["line"][:40])
def test_a_line_that_only_looks_like_lost_host_memory(row):
    assert not {event.name for event in LogScanner(row["system"]).feed(row["line"])} & LOST


@pytest.mark.parametrize("row", TABLE["processes"], ids=lambda row: row["line"][:40])
def test_lines_of_the_kernel_and_of_process_managers(row):
    found = [event.fields for event in LogScanner(None).feed(row["line"]) if event.name == row["event"]]
    assert any(row["fields"].items() <= fields.items() for fields in found), found


@pytest.mark.parametrize("row", TABLE["detected"], ids=lambda row: row["system"])
def test_the_engine_is_recognised(row):
    assert detect([row["line"]]) == row["system"]


def test_settings_of_an_argument_line_become_facts():
    line = (
        "[2025-11-01 16:50:30] server_args=ServerArgs(model_path='/m/x', tokenizer_worker_num=2, context_length=None, "
        "mem_fraction_static=0.717, max_running_requests=None, chunked_prefill_size=4096, schedule_policy='fcfs', "
        "page_size=1, tp_size=4, disable_radix_cache=True, disable_cuda_graph=False, kv_cache_dtype='fp8_e5m2')"
    )
    scanned = scan([line])
    facts = {name: fact.value for name, fact in scanned.facts.items()}
    assert scanned.system == "sglang"
    wanted = {
        "gpu_memory_utilization": 0.717,
        "max_num_batched_tokens": 4096,
        "tensor_parallel_size": 4,
        "tokenizer_workers": 2,
        "enforce_eager": False,
        "kv_cache_dtype": "fp8_e5m2",
        "block_size": 1,
    }
    assert wanted.items() <= facts.items()
    assert not {"max_num_seqs", "max_model_len"} & set(facts)


@pytest.mark.parametrize(
    ("component", "phase"),
    [("Model", "load_weights"), ("KV cache", "kv_allocate"), ("Model resources created during usage", "profile")],
)
def test_a_component_that_could_not_be_created_gives_the_phase(component, phase):
    lines = [
        "[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1",
        "",
        f"The following component could not be created: {component}",
        "Total GPU memory (GiB): 23.99",
        "Free GPU memory before component creation attempt (GiB): 3.11",
    ]
    [refused] = [event for event in scan(lines, "trtllm").events if event.name == "cuda_oom"]
    assert refused.phase == phase
    assert refused.fields["free_bytes"] == round(3.11 * (1 << 30))


@pytest.mark.parametrize(
    ("text", "number"),
    [("20.3ms", 0.0203), ("1h24m39s", 5079.0), ("300\u00b5s", 3e-4), ("5m", 300.0), ("64M", 64 << 20), ("3kB", 3072.0)],
)
def test_durations_and_bare_sizes(text, number):
    assert number_of(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "1.2s3", "12 parsecs", "ms"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="is no number"):
        number_of(text)
