"""A score of one task, and the words that tell a quantized model from its reference."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_rules.lazy_pattern import lazy

REFERENCE = lazy(
    r"(?i)\b(?:ref(?:erence)?|base(?:line)?|original|official|bf16|fp16|fp32|bfloat16|float16|full[ _]precision"
    r"|unquantized|expected|published|reported|before|vanilla)\b|base_|原始|基线|官方"
)
QUANTIZED = lazy(
    r"(?i)awq|gptq|fp8|int8|int4|w4a16|w8a8|w4a8|nvfp4|mxfp4|\bi?q[1-8]_|\bquant|-quant|measured|served|\bours\b|after"
    r"|量化|实测|bnb|4bit|8bit|4-bit|8-bit"
)
LOWER_IS_BETTER = lazy(r"(?i)ppl|perplexity|wer\b|loss|bits_per_byte")


@dataclass(frozen=True, slots=True)
class Score:
    """One score of one task; `reference` is the same of the unquantized model where one row names both."""

    line: int
    task: str
    score: float
    reference: float | None = None
    model: str = ""
    quantized: bool | None = None


def is_quantized(label: str) -> bool:
    """Whether the name of a model, or what it was loaded with, says that it is quantized."""
    return QUANTIZED.search(label) is not None
