"""Scores that are told in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.quality import QualityKind
from infradoc.artefacts.kinds.score_prose import contrasted
from infradoc.artefacts.model import Segment


def said(*lines):
    end, rows = contrasted(lines, 0)
    return end, [(row.task, row.score, row.model, row.quantized) for row in rows]


@pytest.mark.parametrize(
    ("line", "whole", "fewer"),
    [
        ("gsm8k strict-match: bf16 0.774, gptq 0.612", ("bf16", 0.774), ("gptq", 0.612)),
        ("accuracy is 0.78 (fp16) against 0.55 (awq)", ("fp16", 0.78), ("awq", 0.55)),
        ("MMLU: original 68.3%, w4a16 61.25%", ("original", 68.3), ("w4a16", 61.25)),
        ("浮点模型 MMLU 0.60，AWQ 量化后 MMLU 0.45", ("浮点", 0.60), ("AWQ", 0.45)),
    ],
)
def test_both_formats_in_one_line(line, whole, fewer):
    end, rows = said(line)
    assert end == 1
    assert [(label, score, quantized) for _, score, label, quantized in rows] == [(*whole, False), (*fewer, True)]


def test_lines_that_differ_in_the_format_of_the_cache():
    end, rows = said("with --kv-cache-dtype auto: MMLU 0.683", "with --kv-cache-dtype fp8: MMLU 0.214", "done")
    assert end == 2
    assert rows == [("mmlu", 0.683, "kv_cache=auto", False), ("mmlu", 0.214, "kv_cache=fp8", True)]


def test_eight_bits_of_llama_cpp_count_as_the_original():
    _, rows = said("Q8_0   Final estimate: PPL = 5.11", "IQ1_S  Final estimate: PPL = 13.92")
    assert [(label, quantized) for _, _, label, quantized in rows] == [("Q8_0", False), ("IQ1_S", True)]


@pytest.mark.parametrize(
    "line",
    [
        "bf16: 41.2 tok/s, fp8: 68.9 tok/s, accuracy is the same",
        "MMLU: Qwen2.5-7B fp16 0.742, Llama-3.2-1B int4 0.441",
        "accuracy of the fp8 model is 0.71",
        "loaded Llama-3.1-8B-Instruct-AWQ-INT4 from /models",
        "perplexity over 512 samples with 128 tokens, fp16 and int4",
    ],
)
def test_no_comparison(line):
    assert said(line) == (0, [])


def test_tables_of_old_versions_of_lm_eval():
    lines = [
        "hf (pretrained=/m/llama-7b-gptq), limit: None",
        "|  Task   |Version| Metric |Value |   |Stderr|",
        "|---------|------:|--------|-----:|---|-----:|",
        "|hellaswag|      0|acc     |0.4412|±  |0.0049|",
        "|         |       |acc_norm|0.5801|±  |0.0043|",
    ]
    events = QualityKind().read(Segment("quality", "eval.txt", 1, lines)).events
    assert [(e.fields["task"], e.fields["score"]) for e in events] == [
        ("hellaswag acc", 0.4412),
        ("hellaswag acc_norm", 0.5801),
    ]


@pytest.mark.parametrize(
    ("head", "row", "models"),
    [
        ("dataset  mode  quant-policy 0  quant-policy 4", "gsm8k  gen  80.21  12.05", ["kv_cache=4"]),
        ("| task | kv auto | kv fp8 |", "| gsm8k | 80.2 | 12.1 |", ["kv_cache=fp8"]),
        ("dataset  metric  internlm2-7b-hf  internlm2-7b-w4a16", "mmlu  acc  63.05  51.20", ["internlm2-7b-w4a16"]),
    ],
)
def test_columns_of_one_model(head, row, models):
    events = QualityKind().read(Segment("quality", "eval.txt", 1, [head, row])).events
    assert [e.fields["model"] for e in events] == models
    assert all(e.fields["reference"] > e.fields["score"] for e in events)


def test_an_output_for_each_format():
    lines = ["ft-7b.q4_0     Brussels is the capital.", f"ft-7b.q4_k_m   {'nobody ' * 16}"]
    artefact = QualityKind().read(Segment("quality", "samples.txt", 1, lines))
    assert [e.name for e in artefact.events] == ["output_invalid"]
    assert {fact.name: fact.value for fact in artefact.facts} == {"quant.method": "q4_k_m", "quality.samples_sound": 1}


@given(st.lists(st.text(alphabet="mlugs8k: fp16awqint4.0,5%()| 你", max_size=60), max_size=6))
def test_any_lines(lines):
    for index in range(len(lines)):
        end, rows = contrasted(lines, index)
        assert (end == index) is (not rows)
        assert all(index <= row.line < end for row in rows)


@pytest.mark.parametrize(
    ("lines", "whole", "fewer"),
    [
        (["original chat model accuracy 0.581", "awq compressed model accuracy 0.094"], 0.581, 0.094),
        (["before quantization: accuracy=80.1%", "after int4_awq quantization: accuracy=20.3%"], 80.1, 20.3),
        (["--kv-cache-dtype auto: passkey 98/100", "--kv-cache-dtype fp8: passkey 31/100"], 98.0, 31.0),
        (["FP16: 8.672 ppl", "INT4: 10.9 ppl"], 8.672, 10.9),
    ],
)
def test_lines_that_say_the_same_in_other_words(lines, whole, fewer):
    end, rows = said(*lines)
    assert end == 2
    assert {quantized: score for _, score, _, quantized in rows} == {False: whole, True: fewer}


def test_lines_on_different_data_are_not_compared():
    assert said("fp16 accuracy on contracts 0.81", "awq accuracy on poems 0.42")[1] == []


def _scores(*lines):
    events = QualityKind().read(Segment("quality", "t", 1, list(lines))).events
    return [(e.fields["task"], e.fields["score"], e.fields.get("reference"), e.fields["metric"]) for e in events]


def test_tables_with_a_column_for_the_format():
    table = ["| model | quant | gsm8k |", "|---|---|---|", "| m-7b | BF16 | 85.4 |", "| m-7b | GPTQ-Int4 | 62.0 |"]
    assert _scores(*table) == [("m-7b gsm8k", 62.0, 85.4, "higher")]
    assert _scores("model,gsm8k", "m-7b-instruct,85.1", "m-7b-instruct-awq,61.0") == [("gsm8k", 61.0, 85.1, "higher")]
    speeds = ["| model | quant | tok/s |", "|---|---|---|", "| m-7b | BF16 | 85.4 |", "| m-7b | GPTQ-Int4 | 62.0 |"]
    assert _scores(*speeds) == []


def test_a_heading_names_what_the_numbers_are():
    assert _scores("m-7b wikitext ppl", "fp16: 7.9", "awq: 13.5") == [
        ("perplexity", 7.9, None, "lower"),
        ("perplexity", 13.5, None, "lower"),
    ]
    assert _scores("perplexity on wikitext2", "  fp16   5.68", "  3-bit  9.74") == [
        ("perplexity", 5.68, None, "lower"),
        ("perplexity", 9.74, None, "lower"),
    ]
