"""What a terminal, a web page or a container tool adds to lines is taken off again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.text import clean
from infradoc_rules.patterns.prefix import take_off
from infradoc_rules.patterns.stamps import unix_time


@pytest.mark.parametrize(
    ("line", "out"),
    [
        ("\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO x", "(EngineCore_DP0 pid=7) INFO x"),
        ("[1;36m(EngineCore_DP0 pid=7)[0;0m INFO x", "(EngineCore_DP0 pid=7) INFO x"),
        ("^[[32mINFO^[[0m x", "INFO x"),
        ("\x1b]0;title\x07hello", "hello"),
        ("Loading:  10%|#  |\rLoading: 100%|###|\r", "Loading: 100%|###|"),
        ("a\x00b\x07c", "abc"),
        ("KeyError:\u00a0\u2018a\u2019 \u201cb\u201d", "KeyError: 'a' \"b\""),
        ("\u663e\u5b58\u00a0\u201c\u4e0d\u8db3\u201d", "\u663e\u5b58 \u201c\u4e0d\u8db3\u201d"),
        ("&amp;amp;lt;a&amp;gt; &amp;#x27;", "<a> '"),
        ("torch.cuda.empty_cache() [2] m[0]", "torch.cuda.empty_cache() [2] m[0]"),
    ],
)
def test_terminal_control(line, out):
    assert clean([line]) == [out]


def test_markdown_and_html():
    pasted = [
        "> ```bash",
        "> vllm serve a &amp;&amp; b",
        "> ```",
        "> <details><summary>log</summary>",
        "> INFO x &lt;y&gt;",
        "> </details>",
    ]
    assert clean(pasted) == ["", "vllm serve a && b", "", "log", "INFO x <y>", ""]


def test_prompts_and_indented_pastes():
    assert clean(["root@box:/srv# nvidia-smi", "$ vllm serve m", "# a comment"]) == [
        "nvidia-smi",
        "vllm serve m",
        "# a comment",
    ]
    assert clean(["    INFO a", "      File x", "    INFO b"]) == ["INFO a", "  File x", "INFO b"]


@pytest.mark.parametrize(
    "lines",
    [
        ["web-1  | INFO a", "web-1  | INFO b", "db-1   | up"],
        ["vllm  | INFO a", "vllm  | INFO b", "vllm  | INFO c"],
        ["[pod/vllm-0/vllm] INFO a", "[pod/vllm-0/vllm] INFO b"],
    ],
)
def test_container_prefixes(lines):
    assert clean(lines)[:2] == ["INFO a", "INFO b"]


def test_tables_keep_their_bars():
    table = ["| NVIDIA-SMI 550 |", "|  0  N/A | 10MiB |", "a | b"]
    assert clean(table) == table


def test_log_records_are_unpacked_and_answers_are_not():
    docker = json.dumps({"log": "INFO 1\n", "stream": "stderr", "time": "2025-01-01T00:00:00Z"})
    tgi = json.dumps(
        {
            "timestamp": "2025-01-01T00:00:00.1Z",
            "level": "ERROR",
            "fields": {"message": "Shard 0 failed"},
            "target": "text_generation_launcher",
        }
    )
    answer = json.dumps({"object": "error", "message": "too long", "code": 400})
    assert clean([docker])[0].endswith("INFO 1")
    assert clean([tgi]) == ["2025-01-01T00:00:00.1Z ERROR text_generation_launcher: Shard 0 failed"]
    assert clean([answer]) == [answer]


@given(st.lists(st.text(max_size=60), max_size=30))
def test_no_line_is_lost(lines):
    assert len(clean([line.replace("\n", " ") for line in lines])) == len(lines)


MESSAGE = "Available KV cache memory: 1.0 GiB"


@pytest.mark.parametrize(
    ("prefix", "process"),
    [
        ("INFO 11-29 20:34:30 [worker.py:335] ", "worker.py"),
        ("(EngineCore_DP0 pid=7) INFO 11-29 20:34:30 [worker.py:335] ", "EngineCore_DP07worker.py"),
        ("INFO 12-19 22:58:02 worker.py:241] ", "worker.py"),
        ("(VllmWorkerProcess pid=12) INFO 12-19 22:58:02 worker.py:241] ", "VllmWorkerProcess12worker.py"),
        ("[2026-06-26 03:12:40 TP0] ", "TP0"),
        ("[2026-06-26 03:12:40 DP1 TP0 EP3] ", "DP1 TP0 EP3"),
        ("2024-08-26 19:21:02,114 - INFO - ", ""),
        ("2024-08-26T19:21:02.123456Z  INFO ", ""),
        ("Nov 30 12:00:00 gpu-7 vllm[123]: INFO 11-30 12:00:00 [worker.py:1] ", "vllm123worker.py"),
        ("[rank3]: ", "rank3"),
        ("[default2]:", "default2"),
        ("W0618 10:20:30.123456 1234 torch/distributed/run.py:779] ", ""),
        ("2026-01-01T00:00:00.1Z stdout F INFO ", ""),
        ("ERROR: ", ""),
    ],
)
def test_prefixes_of_loggers_and_launchers(prefix, process):
    seen = take_off(prefix + MESSAGE)
    assert seen.message == MESSAGE
    assert seen.process.replace("(", "").replace(" pid=", "").replace(")", "") == process


def test_the_indentation_of_a_traceback_stays():
    assert take_off('(Worker pid=1) ERROR 11-29 20:34:30 [a.py:1]   File "x.py", line 1, in f').message.startswith(
        "  File"
    )
    assert take_off('[rank0]:   File "x.py", line 1, in f').message.startswith("  File")


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("[2025-11-30 12:00:00] x", 1764504000.0),
        ("2025-11-30T13:00:00.5+01:00 x", 1764504000.5),
        ("2025/11/30 12:00:00 x", 1764504000.0),
        ("[11/30/2025-12:00:00] x", 1764504000.0),
        ("INFO 11-30 12:00:00 [a.py:1] x", 1764504000.0),
        ("Nov 30 12:00:00 host a[1]: x", 1764504000.0),
        ("[2025-02-30 12:00:00] x", None),
        ("[2025-13-01 12:00:00] x", None),
    ],
)
def test_stamps(line, seconds):
    form, text = take_off(line).stamp
    assert unix_time(form, text, 2025) == seconds


@given(st.text(max_size=300))
def test_any_prefix_is_survived(text):
    seen = take_off(text)
    assert text.endswith(seen.message)
    if seen.stamp is not None:
        unix_time(*seen.stamp, 2025)
