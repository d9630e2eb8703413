"""What broken or worse answers come from, and what does not run at all."""

from __future__ import annotations

import pytest

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import scan
from infradoc_rules.summaries import quality

BROKEN = 'output: "!!!!!!!!!!!!!!!!!!!!!!!!"'
CAST = "WARNING 04-25 03:30:10 [config.py:1] Casting torch.bfloat16 to torch.float16."
UNSCALED = "Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0."


def facts_of(*lines, events=(), **facts):
    read = scan(lines)
    rows = [*read.events, *events]
    ordered = [Event(e.name, i, e.fields, e.time, e.phase, e.source, e.text, e.repeat) for i, e in enumerate(rows, 1)]
    held = {**read.facts, **{name.replace("__", "."): Fact(name, value, "flag") for name, value in facts.items()}}
    return {fact.name: fact.value for fact in quality.summary(ordered, held, None)}


def score(value, reference, **fields):
    return Event(
        "eval_score", 0, {"task": "gsm8k", "score": value, "reference": reference, "metric": "higher", **fields}
    )


@pytest.mark.parametrize(
    ("lines", "facts", "cause"),
    [
        ([CAST, BROKEN], {}, "fp16"),
        ([BROKEN], {"dtype": "half"}, "fp16"),
        ([CAST, BROKEN], {"quantization": "fp8"}, "fp16"),
        ([BROKEN], {"quantization": "awq", "dtype": "half"}, "quantization"),
        ([UNSCALED, BROKEN], {}, "kv_scales"),
        ([CAST], {}, "none"),
        ([BROKEN], {}, "unknown"),
        (
            ["RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"],
            {"dtype": "float16"},
            "fp16",
        ),
    ],
)
def test_broken_answers(lines, facts, cause):
    assert facts_of(*lines, **facts)["quality.cause"] == cause


@pytest.mark.parametrize(
    ("dtype", "tokens", "cause"),
    [("float16", 256, "fp16"), ("float16", 4, None), ("bfloat16", 256, "none")],
)
def test_an_answer_of_many_tokens_and_no_character(dtype, tokens, cause):
    void = Event("request_finished", 0, {"empty": True, "reason": "length", "output_tokens": tokens})
    assert facts_of(events=[void], dtype=dtype).get("quality.cause") == cause


def test_some_sound_answers_speak_for_the_weights():
    facts = facts_of(CAST, BROKEN, quantization="awq", quality__samples_sound=3)
    assert facts["quality.cause"] == "quantization"


@pytest.mark.parametrize(
    ("value", "facts", "cause"),
    [(61.0, {"quantization": "awq"}, "quantization"), (74.5, {"quantization": "awq"}, "none"), (61.0, {}, "unknown")],
)
def test_scores(value, facts, cause):
    found = facts_of(events=[score(value, 75.0)], **facts)
    assert found["quality.cause"] == cause


def test_one_noisy_task_among_many_is_no_loss():
    rows = [score(10.0, 11.0)] + [score(75.0, 75.0)] * 9
    assert facts_of(events=rows, quantization="gptq")["quality.cause"] == "none"


def test_perplexity_goes_the_other_way():
    found = facts_of(events=[score(9.0, 6.0, metric="lower")], quantization="gptq")
    assert found["quality.cause"] == "quantization"
    assert facts_of(events=[score(6.1, 6.0, metric="lower")], quantization="gptq")["quality.cause"] == "none"


def test_two_tables_are_paired_by_task():
    base = Event("eval_score", 0, {"task": "gsm8k", "score": 0.75, "quantized": False, "model": "m"})
    mine = Event("eval_score", 0, {"task": "gsm8k", "score": 0.59, "quantized": True, "model": "m-gptq"})
    assert facts_of(events=[mine, base])["quality.drop"] == pytest.approx(0.2133, abs=1e-3)


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([score(76.7, 95.3)], "worse"),
        ([score(95.0, 95.3)], "same"),
        ([], "alone"),
        ([Event("cuda_oom", 0, {"phase": "serving"})], "same"),
        ([Event("stats_line", 0, {"running": 9, "waiting": 4})], "same"),
    ],
)
def test_a_cache_without_scales(rows, state):
    assert facts_of(UNSCALED, events=rows)["quality.kv_scales"] == state


def test_only_the_cache_is_quantized():
    assert facts_of(events=[score(0.4, 40.0)], kv_cache_dtype=4)["quality.kv_scales"] == "worse"
    assert facts_of(events=[score(0.4, 40.0)], kv_cache_dtype="auto", quantization="awq")["quality.kv_scales"] == "none"


@pytest.mark.parametrize(
    ("line", "problem", "least"),
    [
        (
            "The quantization method awq is not supported for the current GPU. "
            "Minimum capability: 75. Current capability: 70.",
            "capability",
            75.0,
        ),
        (
            "RuntimeError: ('Quantization scheme is not supported for ', 'the current GPU. Min capability: 80. ', "
            "'Current capability: 75.')",
            "capability",
            80.0,
        ),
        (
            "torch.bfloat16 is not supported for quantization method gptq. Supported dtypes: [torch.float16]",
            "dtype",
            None,
        ),
        (
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
            "Your Tesla T4 GPU has compute capability 7.5.",
            "capability",
            80.0,
        ),
        (
            "Quantization method specified in the model config (gptq) does not match the quantization method specified "
            "in the `quantization` argument (awq).",
            "mismatch",
            None,
        ),
        (
            "type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')",
            "capability",
            89.0,
        ),
        (
            "ValueError: FP8 quantized models is only supported on GPUs with compute capability >= 9.0 (e.g H100)",
            "capability",
            89.0,
        ),
        ("fp8e4nv data type is not supported on CUDA arch < 89", "method", None),
        ("Error: Quantization type `eetq` requires compute capability >= 7.5", "capability", 75.0),
        ("NotImplementedError: \"addmm_cuda\" not implemented for 'Float8_e4m3fn'", "method", None),
        ("ValueError: FP8 is not possible here: compute capability 8.0 < 8.9", "capability", 89.0),
        ("Assertion failed: W4A(fp)8 kernel is unsupported on pre-Ada (sm<89) architectures!", "capability", 89.0),
        ("ValueError: Marlin does not support weight_bits = uint4b8. Only types = [] are supported", "method", None),
        (
            "ValueError: Weight output_partition_size = 10944 is not divisible by weight quantization block_n = 128.",
            "shape",
            None,
        ),
    ],
)
def test_what_does_not_run(line, problem, least):
    facts = facts_of(line)
    assert facts["quant.problem"] == problem
    assert facts.get("quant.capability_min") == least


@pytest.mark.parametrize(
    "lines",
    [
        ["WARNING Your GPU does not have native support for FP8 computation but FP8 quantization is being used."],
        ["WARNING awq quantization is not fully optimized yet. The speed can be slower than non-quantized models."],
        [
            "INFO fp8 is not supported on this GPU (capability 80), falling back to weight-only",
            "INFO:     Application startup complete.",
        ],
    ],
)
def test_a_slower_way_is_no_failure(lines):
    assert "quant.problem" not in facts_of(*lines)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("/m/qwen-32b-AWQ", "awq"),
        ("TheBloke/Llama-2-GPTQ", "gptq"),
        ("m-FP8-dynamic", "fp8"),
        ("m.Q4_K_M.gguf", "q4_k_m"),
        ("plain-7b", None),
    ],
)
def test_the_method_in_a_name(name, method):
    assert quality.quantization({"model_checkpoint": Fact("model_checkpoint", name, "flag")}) == method


def test_nothing_of_the_subject_gives_no_fact():
    assert facts_of("INFO:     Application startup complete.") == {}


@pytest.mark.parametrize(
    ("forms", "cause"),
    [(("F16", "IQ2_XXS"), "quantization"), (("F16", "BF16"), "none"), (("Q4_K_M", "IQ2_XXS"), "none")],
)
def test_perplexities_of_files_whose_format_the_tool_names(forms, cause):
    lines = []
    for form, value in zip(forms, (6.2331, 15.1184), strict=True):
        lines += [f"llm_load_print_meta: model ftype      = {form}", f"Final estimate: PPL = {value} +/- 0.04"]
    assert facts_of(*lines)["quality.cause"] == cause


@pytest.mark.parametrize(
    "line",
    [
        "tensor([[nan, nan, nan,  ..., nan]], device='cuda:0', dtype=torch.float16)",
        "'<pad><pad><pad><pad><pad><pad>'",
        "!!!!!!!!!!!!!!!!!!!!!!!!",
    ],
)
def test_broken_values_in_a_console(line):
    code = 'model = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float16)'
    assert facts_of(code, line)["quality.cause"] == "fp16"


def test_perplexity_of_two_formats_of_the_cache():
    lines = [
        "llama-perplexity -m qwen2.5-7b-q8_0.gguf -f wiki.test.raw",
        "KV self size  =  112.00 MiB, K (f16):   56.00 MiB, V (f16):   56.00 MiB",
        "Final estimate: PPL = 7.05 +/- 0.04",
        "llama-perplexity -m qwen2.5-7b-q8_0.gguf -f wiki.test.raw -ctk q4_0 -ctv q4_0",
        "KV self size  =   31.50 MiB, K (q4_0):   15.75 MiB, V (q4_0):   15.75 MiB",
    ]
    read = scan([*lines, "Final estimate: PPL = 1480.21 +/- 12.6"], system="llamacpp")
    found = {fact.name: fact.value for fact in quality.summary(list(read.events), read.facts, "llamacpp")}
    assert (found["quality.cause"], found["quality.kv_scales"]) == ("kv_scales", "worse")
    read = scan([*lines, "Final estimate: PPL = 7.09 +/- 0.04"], system="llamacpp")
    found = {fact.name: fact.value for fact in quality.summary(list(read.events), read.facts, "llamacpp")}
    assert found["quality.cause"] == "none"
