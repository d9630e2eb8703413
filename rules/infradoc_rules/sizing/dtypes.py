"""Bytes of a number, by the names that engines and checkpoints use for data types and quantizations. Pure."""

from __future__ import annotations

from typing import Any

DTYPES = {
    "float32": 4, "fp32": 4, "float": 4,
    "float16": 2, "fp16": 2, "half": 2, "bfloat16": 2, "bf16": 2,
}  # fmt: skip
KV_DTYPES = DTYPES | {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}

# Bytes a quantized weight with its scales: a 4-bit group of 128 carries a 16-bit scale and a 4-bit zero point
# (4.156 bits), mxfp4 an 8-bit scale for 32, nvfp4 an 8-bit scale for 16, bitsandbytes a 32-bit one for 64.
_EIGHT = 1.0
_FOUR = (4 + 16 / 128 + 4 / 128) / 8
QUANTIZATIONS = {
    "fp8": _EIGHT, "int8": _EIGHT, "awq": _FOUR, "awq_marlin": _FOUR, "gptq": _FOUR, "gptq_marlin": _FOUR,
    "int4": _FOUR, "mxfp4": (4 + 8 / 32) / 8, "nvfp4": (4 + 8 / 16) / 8, "bitsandbytes": (4 + 32 / 64) / 8,
}  # fmt: skip
# What engines call a quantization beside its method, in our widths; of the rest the checkpoint alone says the width.
KERNELS = {"modelopt": "fp8", "modelopt_fp4": "nvfp4", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "marlin": "gptq"}
BY_CHECKPOINT = frozenset({"compressed-tensors", "compressed_tensors", "quark", "moe_wna16"})
EXPERTS_ONLY = frozenset({"mxfp4"})  # gpt-oss: only the experts are in four bits


def quantization_of(raw: Any) -> str | None:
    """Our name of a config.json's `quantization_config`; None when there is none or it has none of our widths."""
    if not isinstance(raw, dict):
        return None
    method = str(raw.get("quant_method", "")).lower()
    bits = raw.get("bits") or raw.get("w_bit") or _group_bits(raw)
    if method in ("gptq", "compressed-tensors", "awq") and bits == 8:
        return "int8"
    if method == "compressed-tensors":
        return "int4" if bits == 4 else None
    if method == "bitsandbytes" and raw.get("load_in_8bit"):
        return "int8"
    return method if method in QUANTIZATIONS else None


def _group_bits(raw: dict[str, Any]) -> Any:
    groups = raw.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    return weights.get("num_bits") if isinstance(weights, dict) else None
