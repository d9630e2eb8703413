"""Why answers are broken or worse: facts quality.*, quant.*, model.half.

Broken numbers in float16, scales of a quantized KV cache and a quantized checkpoint show alike (a row of "!", lower
scores); what the launch and the log say about formats tells them apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_OWN = frozenset(
    {"output_invalid", "eval_score", "kv_scales_missing", "dtype_cast", "quantization_unsupported", "calibration"}
)
_HALF = frozenset({"float16", "half", "fp16", "torch.float16"})
_NONE = frozenset({"", "none", "null", "auto", "false"})
_NAMED = lazy(
    r"(?i)(?:^|[-_./])(awq|gptq|fp8|int8|int4|w4a16|w8a8|w4a8|nvfp4|mxfp4|bnb|i?q[1-8]_\w+|quantized)(?:$|[-_./])"
)
_FITTED = lazy(r"(?i)awq|gptq|marlin|int4|int8|w4a|w8a8|nvfp4|mxfp4|smooth|compressed|modelopt|exl|q[1-4]")
_KV_BITS = lazy(r"^(?:fp8\w*|float8\w*|int8|int4|q[45]_\w+|[48]|fp4\w*|nvfp4|turboquant\w*)$")
_KV_LABEL = lazy(
    r"(?i)kv[_ -]?cache(?:_dtype)?[ =:_-]*(?:fp8|e[45]m\d|int8|int4|q[458]_)|\b(?:fp8\w*|int8|int4|q[458]_\d)[ _-]kv\b"
)
_WHOLE = lazy(r"(?i)(?:all )?(?:b?f16|f32|mostly_b?f16|q8_0)\b")  # formats without a loss that scores show
_WORSE = 0.04  # relative; methods that work lose 1 or 2 percent
_WORSE_MEAN = 0.02
_LONG = 16  # tokens of an answer in which nothing can be read
_PERPLEXITY = 0.10
_TROUBLE = frozenset(
    {
        "cuda_oom",
        "traceback",
        "engine_failed",
        "worker_died",
        "kv_no_memory",
        "preempted",
        "host_oom_kill",
        "nccl_timeout",
    }
)
_SOFT = lazy(r"(?i)\b(?:INFO|WARNING|WARN)\b")
_ON = lazy(r"(?i)fall(?:ing)? ?back|will be used|weight-only|instead|performance")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """quality.cause and what it rests on; nothing where no line speaks of quality or formats."""
    if not any(event.name in _OWN or _is_void(event, _LONG) for event in events):
        return
    bad = [event for event in events if event.name == "output_invalid"]
    method = quantization(facts)
    if _is_cast(facts) or (method is None and "dtype" in facts and _is_half(facts)):
        least = 0 if _is_cast(facts) else _LONG  # a short one may be meant
        bad += [event for event in events if _is_void(event, least)]
    half = _is_half(facts)
    drop, worst = _drop(events)
    yield Fact("quality.bad_outputs", sum(event.repeat for event in bad), "derived", bad[0].source if bad else None)
    yield Fact("quant.used", method or "none", "derived")
    yield Fact("model.half", half, "derived")
    if drop is not None:
        yield Fact("quality.drop", round(drop, 4), "derived", worst.source if worst is not None else None)
        yield Fact("quality.drop_percent", round(100 * drop, 1), "derived", worst.source if worst is not None else None)
    cause = _cause(events, facts, bad, method, half, drop)
    first = bad[0] if bad else worst
    yield Fact("quality.cause", cause, "derived", first.source if first is not None else None)
    yield Fact("quality.kv_scales", _kv_scales(events, facts, cause, drop), "derived")
    yield from _unsupported(events, facts)


def quantization(facts: Mapping[str, Fact]) -> str | None:
    """The method in lower case: from the log, the flag, or the checkpoint's name; None for none."""
    for name in ("quant.method", "quantization"):
        value = str(facts[name].value).lower() if name in facts else ""
        if value and value not in _NONE:
            return value
    for name in ("model_checkpoint", "model.name", "model"):
        found = _NAMED.search(str(facts[name].value)) if name in facts else None
        if found is not None and found.group(1):
            return found.group(1).lower()
    return None


def _is_half(facts: Mapping[str, Fact]) -> bool:
    """Whether activations are float16: as cast, as the engine says, or as asked for."""
    names = ("model.cast_to", "model.dtype", "dtype")
    return any(str(facts[name].value).lower() in _HALF for name in names if name in facts)


def _is_void(event: Event, least: int) -> bool:
    """An answer up to the limit without a character: only special tokens, such as the token 0 that NaN turns into."""
    return (
        event.name == "request_finished"
        and event.fields.get("empty") is True
        and event.fields.get("reason") == "length"
        and (least == 0 or (isinstance(tokens := event.fields.get("output_tokens"), int) and tokens >= least))
    )


def _is_cast(facts: Mapping[str, Fact]) -> bool:
    return "model.cast_from" in facts and "bfloat16" in str(facts["model.cast_from"].value) and _is_half(facts)


def _drop(events: Sequence[Event]) -> tuple[float | None, Event | None]:
    """The largest relative loss against the reference over all tasks, where the mean agrees; None without a pair."""
    losses: list[tuple[float, Event]] = []
    rows = _formatted(events)
    bases = {e.fields["task"]: e.fields["score"] for e in rows if e.fields.get("quantized") is False}
    for event in rows:
        score, ref = event.fields["score"], event.fields.get("reference")
        if ref is None and event.fields.get("quantized") is True:
            ref = bases.get(event.fields["task"])
        if not isinstance(score, int | float) or not isinstance(ref, int | float) or ref <= 0:
            continue
        lower = event.fields.get("metric") == "lower"
        lost = (score - ref) / ref * (_WORSE / _PERPLEXITY) if lower else (ref - score) / ref
        losses.append((lost, event))
    if not losses:
        return None, None
    worst = max(losses, key=lambda pair: pair[0])
    mean = statistics.fmean(lost for lost, _ in losses)
    return (worst[0], worst[1]) if mean >= _WORSE_MEAN or worst[0] < _WORSE else (mean, worst[1])


def _formatted(events: Sequence[Event]) -> list[Event]:
    """The scores; those of a tool that first names its formats know whether they are the reference.

    The format of the cache is what differs where runs with the same weights have several.
    """
    caches = _caches(events)
    rows: list[Event] = []
    form = cache = ""
    for event in events:
        if event.name == "model_format":
            form, cache = str(event.fields["format"]), ""
        elif event.name == "kv_allocated" and event.fields.get("dtype"):
            cache = str(event.fields["dtype"])
        elif event.name == "eval_score":
            if "quantized" not in event.fields and "reference" not in event.fields and (form or cache):
                label, quantized = form, _WHOLE.match(form) is None
                if len(caches) > 1 and cache:
                    label, quantized = f"kv_cache={cache}", _KV_BITS.match(cache) is not None
                known: dict[str, Value] = {"model": label, "quantized": quantized}
                event = replace(event, fields={**event.fields, **known})
            rows.append(event)
    return rows


def _caches(events: Sequence[Event]) -> set[str]:
    """The formats of the cache in the runs of one format of weights; empty where the weights differ as well."""
    if len({event.fields.get("format") for event in events if event.name == "model_format"}) > 1:
        return set()
    return {str(e.fields["dtype"]) for e in events if e.name == "kv_allocated" and e.fields.get("dtype")}


def _cause(
    events: Sequence[Event],
    facts: Mapping[str, Fact],
    bad: Sequence[Event],
    method: str | None,
    half: bool,
    drop: float | None,
) -> str:
    """ "fp16", "quantization", "kv_scales", "unknown" (broken, reason not visible) or "none"."""
    worse = drop is not None and drop >= _WORSE
    if not bad and not worse:
        return "none"
    unscaled = _is_unscaled(events, facts, method)
    fitted = method is not None and _FITTED.search(method) is not None
    if bad and _is_cast(facts) and not (fitted and _some_sound(events, facts)):
        return "fp16"
    if unscaled:
        return "kv_scales"
    if bad and half and not fitted:
        return "fp16"
    if (bad and fitted) or (worse and (method is not None or _scored_quantized(events))):
        return "quantization"
    return "fp16" if bad and half else "unknown"


def _is_unscaled(events: Sequence[Event], facts: Mapping[str, Fact], method: str | None) -> bool:
    """Whether the KV cache is quantized without scales; where the log is silent, if only the cache is quantized."""
    if any(event.name == "kv_scales_missing" for event in events):
        return True
    computed = facts.get("calculate_kv_scales")
    if computed is not None and computed.value is True:
        return False
    labels = [str(event.fields.get("model", "")) for event in _formatted(events)]
    if labels and all(_KV_LABEL.search(label) or label.startswith("kv_cache=") for label in labels):
        return True  # what is compared differs in the cache alone, whatever the weights are
    if method is None and any(_KV_LABEL.search(label) for label in labels):
        return True
    value = str(facts["kv_cache_dtype"].value).lower() if "kv_cache_dtype" in facts else ""
    # Weights of five bits and more, or of a format without fitted scales, are not what breaks an answer.
    return (method is None or _FITTED.search(method) is None) and _KV_BITS.match(value) is not None


def _some_sound(events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Some answers are fine, or the calibration is known: a cast that overflows breaks all alike."""
    return "quality.samples_sound" in facts or any(event.name == "calibration" for event in events)


def _scored_quantized(events: Sequence[Event]) -> bool:
    rows = _formatted(events)
    if any(event.fields.get("quantized") is True for event in rows):
        return True
    labels = [str(event.fields.get("model", "")) for event in rows]
    return any(_FITTED.search(label) or "fp8" in label.lower() or "quant" in label.lower() for label in labels)


def _kv_scales(events: Sequence[Event], facts: Mapping[str, Fact], cause: str, drop: float | None) -> str:
    """ "worse" with scores or answers to prove it, "alone" where nothing else is wrong, "same" if scores hold."""
    if cause == "kv_scales":
        return "worse"
    if not any(event.name == "kv_scales_missing" for event in events):
        return "none"
    if drop is not None or cause != "none":
        return "same"
    queue = any(event.name == "stats_line" and (event.fields.get("waiting") or 0) != 0 for event in events)
    return "same" if queue or any(event.name in _TROUBLE for event in events) else "alone"


def _unsupported(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterable[Fact]:
    """quant.problem and the numbers of the first line that is an error and no note on a fallback."""
    rows = [event for event in events if event.name == "quantization_unsupported"]
    rows = [e for e in rows if not (_SOFT.search((e.text or "")[:80]) and _ON.search(e.text or ""))]
    if quantization(facts) is None:  # a build without code for this device fails alike
        rows = [event for event in rows if event.fields.get("method") != "no_kernel_image"]
    ready = next((event.order for event in events if event.name == "engine_ready"), None)
    rows = [event for event in rows if ready is None or (event.order < ready and _failed_after(events, event))]
    if not rows:
        return
    first = next((event for event in rows if "capability" in event.fields), rows[0])
    method = str(first.fields.get("method", "")).lower()
    kind = "shape" if method == "shape" else "capability" if "minimum_capability" in first.fields else "dtype"
    if "minimum_capability" not in first.fields and "dtype" not in first.fields and kind != "shape":
        kind = "mismatch" if "quant.checkpoint_method" in facts else "method"
    yield Fact("quant.problem", kind, "derived", first.source)
    yield Fact("quant.refused", method, "derived", first.source)
    for field, name in (("minimum_capability", "quant.capability_min"), ("capability", "quant.capability_now")):
        value = first.fields.get(field)
        if isinstance(value, int | float):
            yield Fact(name, float(value), "derived", first.source)


def _failed_after(events: Sequence[Event], event: Event) -> bool:
    return any(e.name in ("engine_failed", "worker_died", "traceback") and e.order >= event.order for e in events)
