"""The start-up memory account: what of a GPU goes to weights, activations, graphs and the KV cache, and what would fit.

Facts, bytes on one GPU: account.weights_bytes_per_gpu, account.activation_bytes, account.graph_bytes,
account.other_bytes, account.kv_bytes, account.kv_bytes_per_token; account.device_bytes, account.gpus,
account.weights_bytes (on all GPUs), account.weights_share (of a device), account.weights_fit, account.kv_tokens,
account.concurrency (longest requests at once), account.problem ("weights" | "no_kv" | "kv_too_small" |
"beyond_fraction" | ""), account.model, account.exact (whether the log printed the weights), account.hopeless,
account.vocabulary, account.needed_bytes (KV of one longest request), account.activation_from ("requests" | "tokens":
what the peak grows with), account.step_requests, account.request_bytes (of the peak, for each request); and the nearest
settings that fit, each with the longest requests that it holds at once: see `account_fits.fits`.
Only of a start that nothing was served after: what runs needs no account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.sizing.from_facts import CONFIG, gpu_in, implied_gpu, model_in, setting_in
from infradoc_rules.sizing.gpus import Gpu
from infradoc_rules.sizing.model import Model, SizingError
from infradoc_rules.sizing.parts import logit_bytes, step_bytes
from infradoc_rules.sizing.printed import Adjusted, Printed, adjusted
from infradoc_rules.sizing.setting import Setting, check
from infradoc_rules.summaries.account_fits import fits, more_gpus
from infradoc_rules.summaries.start import attempts
from infradoc_rules.units import GIB

# Engines whose memory is a share of the device with the KV cache in what is left of it.
_SHARED_OUT = frozenset({"vllm"})
# Engines that place whole weights: of these only the weights and the bytes of a token are computed.
_WHOLE = frozenset({"sglang", "tgi", "lmdeploy", "trtllm"})
_ABOUT_DEVICES = frozenset({"gpu_state", "gpu_process", "gpu_clocks_reason", "topology_link", "launched"})
_IDLE = 0.1  # of the device: with more in use something was loaded after all
_BEYOND = 0.95  # of the computed weights must be more than the whole device, so that no rounding decides
_TOLD = ("metrics", "api")  # origins of facts that only a server that runs states
_OF_DEVICE = ("device_bytes", "weights_share")  # not told of a device that is only implied
_UNKNOWN = Gpu("GPU", 24 * GIB, None, 0.0)
_ELSEWHERE = 0.88  # of the device for weights and KV cache: SGLang's usual, the others are near
_USEFUL = 4096  # tokens of KV cache that a server is worth starting for
_BLOCK = 16
_ABSURD = float(1 << 50)


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above; none where the model, its width or the device is not known."""
    if not events or system not in _SHARED_OUT | _WHOLE or _says(facts, "start.ready") is True:
        return
    model, printed = model_in(facts), printed_in(attempts(events)[-1], facts)
    if model is None or _says(facts, "weights_cpu_offload"):
        return  # of weights on the host, an unknown part is on the device
    gpu = gpu_in(facts, printed.device_bytes)
    setting = _setting(model, facts, gpu, printed, system)
    made = None if setting is None else adjusted(model, setting, printed)
    if setting is None or made is None or made.odd:
        return
    for name, value in _parts(model, made, system):
        if gpu is not None or name not in _OF_DEVICE:
            yield _fact(name, value, printed.source)
    yield _fact("hopeless", gpu is not None and _hopeless(made, events, facts), None)
    yield from (_fact(name, value, printed.source) for name, value in _nearest(model, setting, printed, facts, system))


def _setting(model: Model, facts: Mapping[str, Fact], gpu: Gpu | None, printed: Printed, system: str) -> Setting | None:
    """The launch on the device that is known, or that the printed figures imply; None where there is no account."""
    setting = setting_in(facts, gpu or _UNKNOWN, printed.share)
    if system not in _SHARED_OUT:
        setting = replace(setting, version=None, fraction=_ELSEWHERE)  # neither is vLLM's
    try:
        check(model, setting)
    except SizingError:
        return None
    if gpu is not None:
        return setting
    if not printed.weights or printed.kv is None or system not in _SHARED_OUT:
        return None
    return replace(setting, gpu=implied_gpu(model, setting, printed.weights, printed.kv))


def _nearest(
    model: Model, setting: Setting, printed: Printed, facts: Mapping[str, Fact], system: str
) -> Iterator[tuple[str, Value]]:
    """What would have fitted. Engines that start with any KV cache need no room for a longest request."""
    most = _number(facts, "gpu.count")
    if system in _SHARED_OUT:
        yield from fits(model, setting, printed, most)
        return
    short = replace(setting, max_model_len=min(setting.length(model), _USEFUL))
    shared = more_gpus(model, short, printed, most)
    yield from [("fit_tp", shared[0])] if shared is not None else []


def printed_in(run: Sequence[Event], facts: Mapping[str, Fact]) -> Printed:
    """What the log of one attempt to start printed of its memory; None where it said nothing."""
    weights = _largest(run, "model_loaded", "bytes") or _last(run, "memory_account", "weights_bytes")
    place = next((event.source for event in reversed(run) if event.name in ("model_loaded", "memory_account")), None)
    blocks = _last(run, "kv_allocated", "blocks")
    tokens = _last(run, "kv_allocated", "tokens") or (blocks * _BLOCK if blocks else None)
    share = _number(facts, "gpu_memory_utilization")
    return Printed(
        device_bytes=_first_of(run, "total_bytes"),
        share=share if share is not None else _last(run, "memory_account", "share"),
        weights=weights,
        activation=_last(run, "memory_account", "activation_bytes"),
        other=_last(run, "memory_account", "other_bytes"),
        graphs=_last(run, "memory_account", "graph_bytes") or _last(run, "graph_capture", "bytes"),
        kv=_number(facts, "kv.available_bytes") or _last(run, "memory_account", "kv_bytes"),
        tokens=tokens,
        needed=_number(facts, "kv.needed_bytes"),
        source=place,
    )


def _parts(model: Model, made: Adjusted, system: str) -> Iterator[tuple[str, Value]]:
    yield "model", model.name
    yield "gpus", made.setting.ranks
    yield "device_bytes", made.account.total
    yield "weights_bytes_per_gpu", made.account.weights
    yield "weights_bytes", made.account.weights * made.setting.ranks
    yield "weights_share", made.account.weights / made.account.total
    yield "exact", made.exact
    yield "kv_bytes_per_token", made.account.kv_per_token
    yield "vocabulary", model.vocab
    if system not in _SHARED_OUT:
        return
    yield "activation_bytes", made.account.activation
    yield "graph_bytes", made.account.graphs
    yield "other_bytes", made.account.engine
    yield "kv_bytes", made.account.kv
    yield "needed_bytes", made.account.needed
    yield "weights_fit", made.account.problem != "weights"
    yield "kv_tokens", made.account.tokens
    yield "concurrency", round(made.account.requests, 2)
    yield "problem", made.account.problem
    by_requests = logit_bytes(model, made.setting) > step_bytes(model, made.setting)
    yield "activation_from", "requests" if by_requests else "tokens"
    yield "step_requests", made.setting.batch(model)[0]
    yield "request_bytes", int(model.vocab * made.setting.behaviour.logit_bytes)


def _hopeless(made: Adjusted, events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Whether no setting of this launch could fit, from the launch and idle devices alone.

    Without a log nothing shows that the start failed, so the weights have to be larger than the whole device, of a
    model that is named beyond doubt, and no sign of a server that runs may be there.
    """
    too_large = made.account.weights * _BEYOND > made.account.total
    alone = all(event.name in _ABOUT_DEVICES for event in events)
    told = any(fact.origin in _TOLD for fact in facts.values())
    used, size = _number(facts, "gpu.used_bytes"), made.account.total
    idle = used is not None and used < _IDLE * size
    return too_large and alone and idle and not told and _surely(facts)


def _surely(facts: Mapping[str, Fact]) -> bool:
    """A local folder may hold anything under a known name; a maker's name with a slash does not."""
    name = str(_says(facts, "model_checkpoint") or _says(facts, "model.name") or "")
    return CONFIG in facts or (name.count("/") == 1 and not name.startswith(("/", ".", "~")))


def _fact(name: str, value: Value, source: str | None) -> Fact:
    return Fact(f"account.{name}", value, "derived", source)


def _says(facts: Mapping[str, Fact], name: str) -> Value | None:
    return facts[name].value if name in facts else None


def _number(facts: Mapping[str, Fact], name: str) -> float | None:
    return _finite(_says(facts, name))


def _finite(value: Value | None) -> float | None:
    """Numbers that a log may state: no truth values, nothing beyond what any device holds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _ABSURD:
        return None
    return float(value)


def _values(run: Sequence[Event], event: str, field: str) -> list[float]:
    found = [_finite(row.fields.get(field)) for row in run if row.name == event]
    return [value for value in found if value is not None]


def _last(run: Sequence[Event], event: str, field: str) -> float | None:
    return next(reversed(_values(run, event, field)), None)


def _largest(run: Sequence[Event], event: str, field: str) -> float | None:
    return max(_values(run, event, field), default=None)


def _first_of(run: Sequence[Event], field: str) -> float | None:
    """The device's memory as the engine itself saw it."""
    names = ("memory_account", "memory_below_request", "cuda_oom")
    return next((found for name in names if (found := _last(run, name, field))), None)
