"""A start that a parser refused: never healthy, and the spelling which that version knows."""

from __future__ import annotations

import pytest

VLLM = "INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version {}\n"


@pytest.fixture
def told(pasted):
    """(status, the sentences on refused flags) of a log's text."""

    def read(text, lang="en"):
        report = pasted(text, lang=lang)
        return report["status"], [line for line in report["not_visible"] if "server.log:" in line]

    return read


@pytest.mark.parametrize(
    ("text", "flag", "hint"),
    [
        (VLLM.format("0.18.0") + "vllm serve: error: unrecognized arguments: --swap-space 4", "--swap-space", "0.11.0"),
        (
            "api_server.py: error: unrecognized arguments: --mem-fraction-static 0.8",
            "--mem-fraction-static",
            "--gpu-memory-utilization",
        ),
        (
            "launch_server.py: error: unrecognized arguments: --max-model-len 4096",
            "--max-model-len",
            "--context-length",
        ),
        ("vllm serve: error: unrecognized arguments: --max-model-length 4096", "--max-model-length", "--max-model-len"),
        (
            "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp7' (choose from 'auto', 'fp8')",
            "--kv-cache-dtype",
            "value",
        ),
        (
            "$ trtllm-serve m\nError: No such option: --max_batch (Possible options: --max_batch_size)",
            "--max_batch",
            "--max_batch_size",
        ),
        (
            "text-generation-launcher x\nerror: unexpected argument '--max-model-len' found",
            "--max-model-len",
            "--max-total-tokens",
        ),
        ("build: 6123 (79c1160b) with cc\nerror: invalid argument: --flash-attn-x", "--flash-attn-x", "--flash-attn"),
        ("lmdeploy: error: unrecognized arguments: --tensor-parallel-size 2", "--tensor-parallel-size", "--tp"),
        ("TypeError: EngineArgs.__init__() got an unexpected keyword argument 'swap_space'", "swap_space", "0.11.0"),
        ("ollama serve\nError: unknown flag: --num-parallel", "--num-parallel", "OLLAMA_NUM_PARALLEL"),
    ],
)
def test_which_flag_and_how_it_is_written_there(text, flag, hint, told):
    status, lines = told(text)
    assert status == "unknown"
    assert flag in lines[0] and hint in lines[0]


def test_in_chinese(told):
    _, lines = told("vllm serve: error: unrecognized arguments: --max-model-length 4096", "zh")
    assert lines[0].startswith("启动被拒绝：vLLM 不认识参数 --max-model-length")


def test_a_client_s_slip_stops_no_server(told):
    status, lines = told("benchmark_serving.py: error: unrecognized arguments: --foo")
    assert lines == []
    assert status == "unknown"


def test_a_start_that_followed_and_served_is_what_counts(told):
    served = (
        "INFO:     Application startup complete.\n"
        "INFO 11-30 10:02:00 [loggers.py:1] Engine 0: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
        "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
    )
    status, lines = told("vllm serve: error: unrecognized arguments: --x 1\n" + VLLM.format("0.11.0") + served)
    assert (status, lines) == ("ok", [])
