"""Environment variables of a server's start as facts: `env.NAME`, and the knob that a variable sets."""

from __future__ import annotations

from collections.abc import Iterator

from infradoc.sources.launch_flags import flag_facts, is_secret, typed
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_KEPT = lazy(
    r"(?:NCCL|RCCL|VLLM|SGL|SGLANG|TORCH|PYTORCH|CUDA|NVIDIA|OMP|MKL|OPENBLAS|OLLAMA|LLAMA_ARG|GGML|TRTLLM|TLLM|RAY|LMDEPLOY"
    r"|HIP|ROCR|HSA|NUMEXPR|TOKENIZERS|UCX|GLOO|MASTER|TRITON|GPTQ|FLASHINFER|XFORMERS|LOCAL|WORLD|INFRADOC|CUBLAS|OMPI)"
    r"_[A-Z0-9_]+|HF_HUB_OFFLINE|HF_HOME|WORLD_SIZE|RANK|LD_PRELOAD|KMP_[A-Z_]+"
)
# text-generation-launcher reads each of its flags from a variable of the same name as well.
_BY_NAME = frozenset({"tgi"})
_SETS = frozenset(
    {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PREFILL_CHUNKING", "ATTENTION"}
)


def env_facts(system: str | None, name: str, text: str, source: str | None) -> Iterator[Fact]:
    """`env.NAME` for the variables that engines, torch, NCCL and CUDA read, and the knob where one sets a knob.

    VLLM_USE_V1 also gives target.engine_api. Secrets give nothing.
    """
    if is_secret(name):
        return
    text = text.strip().strip("\"'")
    if _KEPT.fullmatch(name):
        yield Fact(f"env.{name}", typed(text), "flag", source)
    if name == "VLLM_USE_V1" and text in ("0", "1"):
        yield Fact("target.engine_api", f"V{text}", "flag", source)
    if name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        yield from _devices(name, text, source)
        return
    if name.startswith("LLAMA_ARG_") and system in (None, "llamacpp"):
        yield from flag_facts("llamacpp", _llama(name), text, source)
    elif _KEPT.fullmatch(name) or system in _BY_NAME or name in _SETS:
        yield from flag_facts(system, name, text, source)


def _devices(name: str, text: str, source: str | None) -> Iterator[Fact]:
    given = [part for part in text.split(",") if part.strip() and part.strip() not in ("all", "none", "void", "-1")]
    yield Fact("container_devices", text, "flag", source)
    if given:
        yield Fact("gpu.visible", len(given), "flag", source)


def _llama(name: str) -> str:
    word = name.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
    return "--" + {"n-parallel": "parallel", "batch": "batch-size", "ubatch": "ubatch-size", "model": "model"}.get(
        word, word
    )
