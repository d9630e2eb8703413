"""Lines that a terminal or a mail program broke are put together, and nothing else is."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.text import clean
from infradoc.artefacts.unwrap import Unwrap

LOG = [
    "INFO 11-29 20:34:30 [gpu_worker.py:298] Available KV cache memory: 1.68 GiB, which is said at some length here",
    "(EngineCore_DP0 pid=88) ERROR 11-29 20:34:31 [core.py:708] EngineCore failed to start, which ends what follows.",
    "(EngineCore_DP0 pid=88) ERROR 11-29 20:34:31 [core.py:708] Traceback (most recent call last):",
    '(EngineCore_DP0 pid=88) ERROR 11-29 20:34:31 [core.py:708]   File "/opt/venv/lib/python3.12/packages/vllm/a.py", '
    "line 699, in run_engine_core",
    "(EngineCore_DP0 pid=88) ERROR 11-29 20:34:31 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.10 GiB is free.",
]


def _cut(lines: list[str], width: int) -> list[str]:
    return [line[at : at + width] for line in lines for at in range(0, len(line), width)]


@pytest.mark.parametrize("width", [80, 100, 91, 132])
def test_a_terminal_s_breaks_are_undone_and_numbers_hold(width):
    broken = _cut(LOG, width)
    whole = clean(broken)
    assert len(whole) == len(broken)
    assert [line for line in whole if line] == LOG


def test_blanks_that_copying_stripped_are_back():
    broken = [line.rstrip() for line in _cut(LOG, 80)]
    assert [line for line in clean(broken) if line] == LOG


def test_each_part_of_a_paste_has_a_width_of_its_own():
    prose = ["We run this on two machines, and since the upgrade of last week it does not start any more. " * 2]
    whole = clean([*prose, "", *_cut(LOG, 80), "", "Any idea?"])
    assert [line for line in whole if line] == [prose[0].rstrip(), *LOG, "Any idea?"]


def test_a_mail_s_breaks_are_undone():
    broken = [part for line in LOG for part in textwrap.wrap(line, 76, break_long_words=False, break_on_hyphens=False)]
    whole = [line for line in clean(broken) if line]
    assert [" ".join(line.split()) for line in whole] == [" ".join(line.split()) for line in LOG]


def test_a_command_broken_once_is_one():
    command = "vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4 --max-model-len 9000"
    assert [line for line in clean(_cut([command], 80)) if line] == [command]
    assert clean(["vllm serve some/model", "  --max-model-len 4096"]) == [
        "vllm serve some/model   --max-model-len 4096",
        "",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ['INFO:     10.0.0.7:41122 - "POST /v1/chat/completions HTTP/1.1" 200 OK and more of it'] * 6,
        [
            f'vllm:e2e_seconds_bucket{{le="{n}.0",model_name="org/a-model-with-a-name"}} {n}.0 of no meaning'
            for n in range(6)
        ],
        [
            "              total        used        free      shared  buff/cache   available",
            *["Mem:  251Gi  248Gi  1.1Gi  310Mi  1.9Gi"] * 3,
        ],
        ["|" + " " * 78 + "|", "|  0  NVIDIA" + " " * 67 + "|"] * 3,
        ["    raise ValueError('" + "x" * 56 + "')", "ValueError: what it says", "and what was printed then"] * 3,
        ["vllm serve a/model \\", "  --max-model-len 4096 \\", "  --port 8000"],
        ["vllm serve a/model ^", "  --max-model-len 4096"],
    ],
)
def test_what_was_not_broken_stays(lines):
    assert clean(lines) == [line.rstrip() for line in lines]


@given(st.lists(st.text(alphabet="ab:=,.0123 ", min_size=1, max_size=130), max_size=40))
def test_no_character_is_lost(lines):
    unwrap = Unwrap(lines)
    whole = unwrap.lines(lines)
    assert len(whole) == len(lines)
    assert "".join("".join(whole).split()) == "".join("".join(lines).split())
