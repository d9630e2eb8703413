"""Lines with which a program ends, texts that name their engine, and flags that would be refused without a value."""

from __future__ import annotations

import pytest

from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.flags import with_direction
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.knobs import knob_table
from infradoc_rules.patterns import detect, scan
from infradoc_rules.patterns.sets import SYSTEMS, sole_texts


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("ValueError: heads must be divisible", "exception"),
        ("INFO 06-01 10:00:03 [x.py:1] pkg.mod.OddError: no", "exception"),
        ("[rank0]: RuntimeError: no", "exception"),
        ("some.package.BadError", "exception"),
        ("serve: error: no such file", "error"),
        ("fatal: not a repository", "fatal"),
        ("[Errno 28] No space left on device", "system"),
        ("Illegal instruction (core dumped)", "abort"),
        ("panic: runtime error", "panic"),
        ("docker: Error response from daemon: could not select device driver", "command"),
        ("bash: vllm: command not found", "command"),
        ("/usr/bin/python3: No module named vllm", "command"),
        ("container exited with code 3", "exit"),
    ],
)
def test_a_line_that_ends_a_program(line, what):
    assert [(event.name, event.fields["what"]) for event in scan([line]).events] == [("error_line", what)]


@pytest.mark.parametrize(
    "line",
    [
        "error: 0",
        "exit code 0",
        "finished, 0 errors",
        "no error: all is well",
        "a ValueError: was handled",
        "the exit code of the job is told later",
        "Errors are logged to /var/log/x",
    ],
)
def test_a_line_that_only_speaks_of_errors(line):
    assert scan([line]).events == ()


def test_what_is_known_of_a_line_stands_alone():
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert [event.name for event in scan([line]).events] == ["cuda_oom"]
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x()", "ValueError: no"]
    assert [event.name for event in scan(trace).events] == ["traceback"]


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "vllm"),
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla", "vllm"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "sglang"),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens", "tgi"),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", None),
        ("torch.OutOfMemoryError: CUDA out of memory.", None),
    ],
)
def test_the_engine_that_alone_writes_a_text(line, system):
    assert detect([line]) == system


def test_a_named_engine_goes_before_its_texts():
    assert detect(["sglang 0.4", "No available memory for the cache blocks"]) == "sglang"


def test_no_text_is_of_two_engines():
    texts = [regex.pattern for system in SYSTEMS for regex in sole_texts(system)]
    assert texts
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("name", "flag", "value", "shown"),
    [
        ("lower_max_num_batched_tokens", "--max-num-batched-tokens", None, "--max-num-batched-tokens <less than now>"),
        ("lower_max_num_batched_tokens", "--max-num-batched-tokens", 2048, "--max-num-batched-tokens"),
        ("lower_max_num_batched_tokens", "--max-num-batched-tokens 2048", 2048, "--max-num-batched-tokens 2048"),
        ("lower_max_num_batched_tokens", None, None, None),
        ("limit_queue", "--max-queued-requests", None, "--max-queued-requests <value>"),
        ("use_smaller_checkpoint", "--model", "4-bit weights", "--model <name or path>"),
        ("disable_cuda_graphs", "--enforce-eager", None, "--enforce-eager"),
    ],
)
def test_a_flag_that_takes_a_value_is_not_shown_alone(name, flag, value, shown):
    advice = Advice(MemoryFrame.build((), system="vllm"), {})
    assert ACTIONS[name].knob in knob_table()
    assert with_direction(advice, ACTIONS[name], flag, value) == shown
    if shown and "now" in shown:
        chinese = Advice(MemoryFrame.build((), system="vllm"), {}, "zh")
        assert with_direction(chinese, ACTIONS[name], flag, value) == "--max-num-batched-tokens <比现在小>"


def test_the_name_of_a_unit_is_not_the_engine_s():
    line = "Jun 01 10:00:0{} gpu1 vllm[901]: 2025-06-01T10:00:00.1Z  INFO text_generation_launcher: Starting shard"
    assert detect([line.format(second) for second in range(5)]) == "tgi"
    assert detect(["Jun 01 10:00:00 gpu1 serve[901]: pip install vllm[audio]"]) == "vllm"
