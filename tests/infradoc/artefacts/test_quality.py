"""Scores beside their reference, samples by hand, and what an answer looks like that is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.quality import QualityKind, invalid_output
from infradoc.artefacts.model import Segment

KIND = QualityKind()


def read(lines):
    return KIND.read(Segment("quality", "eval.txt", 1, lines))


def scores(lines):
    return [
        (e.fields["task"], e.fields["score"], e.fields.get("reference"), e.fields.get("quantized"))
        for e in read(lines).events
    ]


@pytest.mark.parametrize(
    "text",
    [
        "!!!!!!!!!!!!!!!!",
        "????????????",
        "GGGGGGGGGGGGGGGGGGGG",
        "! ! ! ! ! ! ! ! ! !",
        "<unk><unk><unk><unk><unk><unk>",
        "The answer is" + "!" * 60,
    ],
)
def test_broken(text):
    assert invalid_output(text) is not None


@pytest.mark.parametrize(
    "text", ["", "Hello!!!", "No", "----------------", "================", "Aaaah, I see.", "12", "哈哈哈哈哈", "a" * 5]
)
def test_language_or_decoration(text):
    assert invalid_output(text) is None


def test_columns_with_a_reference():
    lines = ["task          measured  reference", "aime26        76.7      95.3", "gpqa_diamond  71.2      86.2"]
    assert scores(lines) == [("aime26", 76.7, 95.3, True), ("gpqa_diamond", 71.2, 86.2, True)]
    assert KIND.spans(["$ cat eval.txt", *lines, "done"]) == [(1, 4)]


def test_the_reference_may_stand_first():
    assert scores(["| benchmark | bf16 | awq-int4 |", "|---|---|---|", "| ceval | 74.9 | 61.2 |"]) == [
        ("ceval", 61.2, 74.9, True)
    ]


def test_rows_by_format():
    lines = ["acc | hellaswag | piqa", "-- | -- | --", "bf16 | 0.60 | 0.80", "fp8 | 0.55 | 0.79"]
    assert scores(lines) == [("hellaswag", 0.55, 0.60, True), ("piqa", 0.79, 0.80, True)]


def test_tables_of_lm_eval_name_their_model():
    head = [
        "|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|",
        "|-----|------:|---|---|---|---|---|---|---|",
    ]
    row = "|gsm8k|      3|flexible-extract|     5|exact_match|↑  |{}|±  |0.0118|"
    lines = [
        "vllm (pretrained=/m/a,dtype=auto), limit: None",
        *head,
        row.format("0.75"),
        "vllm (pretrained=/m/a-gptq-int4)",
        *head,
        row.format("0.59"),
    ]
    assert [(s, q) for _, s, _, q in scores(lines)] == [(0.75, False), (0.59, True)]
    assert len(KIND.spans(lines)) == 2


def test_lists_under_a_caption_and_scores_with_official_ones():
    assert scores(["auto_gptq results:", "arc-c: 0.49", "winogrande: 0.72"]) == [
        ("arc-c", 0.49, None, True),
        ("winogrande", 0.72, None, True),
    ]
    assert scores(["aime26: 76.7 (official: 95.3)"]) == [("aime26", 76.7, 95.3, True)]


def test_samples_count_sound_and_broken():
    found = read(["prompt 1 -> normal answer", "prompt 2 -> !!!!!!!!!!!!!!!!!!!!", "prompt 3 -> fine"])
    assert [e.name for e in found.events] == ["output_invalid"]
    assert {f.name: f.value for f in found.facts} == {"quality.samples_sound": 2}


@pytest.mark.parametrize(
    "lines",
    [
        ["INFO 01-01 model loaded: 12", "step: 10"],
        ["model: /m/x", "gpu_memory_utilization: 0.9"],
        ["Q1: what is new?", "A1: nothing"],
        ["task started", "task ended"],
        ["per_device_train_batch_size: 1", "gradient_accumulation_steps: 32"],
    ],
)
def test_other_text_is_left_alone(lines):
    assert KIND.spans(lines) == []


@given(st.lists(st.text(max_size=80), max_size=15))
def test_any_text_is_survived(lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)
    read(lines)


@pytest.mark.parametrize(
    ("lines", "scores"),
    [
        (
            ["| | FP16 | GPTQ-4bit | AWQ-4bit |", "|---|---|---|---|", "| MMLU | 0.603 | 0.591 | 0.452 |"],
            [("MMLU", 0.591, 0.603), ("MMLU", 0.452, 0.603)],
        ),
        (
            [
                "+-----------+---------+------+-------+",
                "| Model     | Dataset |  Num | Score |",
                "+===========+=========+======+=======+",
                "| qwen-7b   | gsm8k   | 1319 | 0.852 |",
                "| qwen-7b   | mmlu    | 9000 | 0.700 |",
                "| qwen-7b-AWQ | gsm8k | 1319 | 0.611 |",
                "| qwen-7b-AWQ | mmlu  | 9000 | 0.690 |",
            ],
            [("gsm8k Score", 0.611, 0.852), ("mmlu Score", 0.69, 0.7)],
        ),
        (
            [
                "| Model | tokens/s | Memory (GB) |",
                "| --- | --- | --- |",
                "| m-7b | 900 | 15.2 |",
                "| m-7b-AWQ | 400 | 6.1 |",
            ],
            [],
        ),
        (
            ["wikitext ppl fp16: 5.47", "wikitext ppl int4-awq: 16.38"],
            [("wikitext ppl", 5.47, None), ("wikitext ppl", 16.38, None)],
        ),
        (["fp16 latency: 12.1", "awq latency: 7.0"], []),
        (["awq gsm8k: 0.5", "awq mmlu: 0.6"], []),  # nothing to compare with
        (
            [
                "| Model | KV Cache | Avg Score |",
                "|---|---|---|",
                "| m BF16 | FP16 (baseline) | 4.61 |",
                "| m BF16 | FP8 | 1.07 |",
                "| other AWQ | FP8 | 4.71 |",
            ],
            [("m BF16 Avg Score", 1.07, 4.61)],
        ),
        (
            ["| arm | score |", "|---|---:|", "| bf16 KV control | 96.44 |", "| fp8 KV, no scales | 74.45 |"],
            [("score", 74.45, 96.44)],
        ),
        (["| Model | pp512 | tg128 |", "|---|---|---|", "| m BF16 | 5200 | 80.1 |", "| m Q4_K_M | 4100 | 70.3 |"], []),
        (["| Benchmark | BF16 | FP8 |", "|---|---|---|", "| TFLOPS | 400 | 300 |", "| points | 1830 | 1400 |"], []),
        (
            ["| Model | GPUs | OCR points |", "|---|---|---|", "| m BF16 | 8 | 822 |", "| m AWQ | 4 | 610 |"],
            [("OCR points", 610.0, 822.0)],
        ),
        (["kv cache   PPL", "auto       8.21", "fp8        34.84"], [("PPL", 34.84, 8.21)]),
        (
            ["quant_policy   gsm8k   mmlu", "0 (fp16)       0.790   0.701", "4 (int4)       0.022   0.254"],
            [("gsm8k", 0.022, 0.79), ("mmlu", 0.254, 0.701)],
        ),
        (
            [
                "| m-13B | branch | Bits | group | PPL(c4) |",
                "|---|---|---|---|---|",
                "| FP16 | x | 16 | - | 6.96 |",
                "| GPTQ | x | 4 | 128 | 19069 |",
            ],
            [("x PPL(c4)", 19069.0, 6.96)],
        ),
        (
            ["gsm8k with kv-cache-dtype auto: 0.79", "gsm8k with kv-cache-dtype fp8: 0.11"],
            [("gsm8k with kv-cache-dtype", 0.79, None), ("gsm8k with kv-cache-dtype", 0.11, None)],
        ),
        (["BF16: ppl 6.02", "GPTQ-4bit: ppl 14.9"], [("ppl", 6.02, None), ("ppl", 14.9, None)]),
    ],
)
def test_tables_of_many_hands(lines, scores):
    found = [event for event in read(lines).events if event.name == "eval_score"]
    assert [(e.fields["task"], e.fields["score"], e.fields.get("reference")) for e in found] == scores


def test_an_answer_of_each_format_of_one_model():
    lines = ["q4_0 : " + "is " * 20, "f16  : 'The capital of France is Paris.'"]
    assert QualityKind().spans(lines) == [(0, 2)]
    read = QualityKind().read(Segment("quality", "t", 1, lines))
    assert [event.fields["what"] for event in read.events] == ["repeated"]
    assert [fact.value for fact in read.facts if fact.name == "quant.method"] == ["q4_0"]
    whole = QualityKind().read(Segment("quality", "t", 1, ["f16 : " + "is " * 20, "q4_0 : 'Paris is the capital.'"]))
    assert not [fact for fact in whole.facts if fact.name == "quant.method"]
