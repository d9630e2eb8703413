"""What a client asks for, and whether its prompt fits: limits, refusals, truncation. No event loop, no engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from infradoc_engine.sampler import SamplingParams

RefusalReason = Literal["length", "queue_full", "invalid", "draining", "overloaded"]


class Refused(Exception):
    """A request that is not taken in; `reason` is the label of llm_requests_rejected_total."""

    def __init__(self, reason: RefusalReason, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.param = param


class Limits(Protocol):
    """The live settings that admission reads anew for every request."""

    @property
    def max_model_len(self) -> int: ...
    @property
    def truncation_policy(self) -> str: ...
    @property
    def max_queued_requests(self) -> int | None: ...
    @property
    def max_num_seqs(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What a client asked for. `max_tokens` None = `default_max_tokens`, but no more than there is room for."""

    sampling: SamplingParams
    max_tokens: int | None = None
    default_max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    ignore_eos: bool = False
    truncate_prompt_tokens: int | None = None
    n: int = 1


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt was shortened; `requested` when the client asked for it itself."""

    policy: str
    original_tokens: int
    kept_tokens: int
    requested: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that fits, and the most tokens its answer may have."""

    token_ids: list[int]
    max_tokens: int
    cut: Cut | None = None


def fit_prompt(token_ids: list[int], options: GenerationOptions, limits: Limits, vocab_size: int) -> Prompt:
    """Check a prompt against the limits and cut it where the client or the policy says so; raises Refused."""
    _check_ids(token_ids, vocab_size)
    limit = limits.max_model_len
    room = limit - (options.max_tokens or 1)  # for the prompt
    if room < 1:
        raise Refused(
            "length",
            f"max_tokens is {options.max_tokens}, but prompt and answer together may have {limit} tokens; "
            f"ask for {limit - 1} or fewer.",
            "max_tokens",
        )
    cut = None
    asked = options.truncate_prompt_tokens
    if asked is not None:
        kept = room if asked == -1 else asked
        if len(token_ids) > kept:
            cut = Cut("left", len(token_ids), kept, requested=True)
            token_ids = token_ids[-kept:]
    if len(token_ids) > room:
        token_ids, cut = _cut_to_room(token_ids, room, options, limits)
    left = limit - len(token_ids)
    return Prompt(token_ids, options.max_tokens or min(left, options.default_max_tokens or left), cut)


def wanted_length(token_ids: list[int], options: GenerationOptions) -> int:
    """Tokens of a prompt that its client wants read: all, or as many as it asked to keep; the policy cut none yet."""
    asked = options.truncate_prompt_tokens
    return len(token_ids) if asked is None or asked < 0 else min(asked, len(token_ids))


def _check_ids(token_ids: list[int], vocab_size: int) -> None:
    if not token_ids:
        raise Refused("invalid", "The prompt is empty: it has 0 tokens; send at least one.", "prompt")
    lowest, highest = min(token_ids), max(token_ids)
    if lowest < 0 or highest >= vocab_size:
        worst = lowest if lowest < 0 else highest
        raise Refused(
            "invalid", f"Token id {worst} is out of range; this model has ids 0 to {vocab_size - 1}.", "prompt"
        )


def _cut_to_room(token_ids: list[int], room: int, options: GenerationOptions, limits: Limits) -> tuple[list[int], Cut]:
    policy, count = limits.truncation_policy, len(token_ids)
    if policy != "reject":
        return truncate(token_ids, room, policy), Cut(policy, count, room)
    answer = options.max_tokens or 1
    raise Refused(
        "length",
        f"This model's maximum context length is {limits.max_model_len} tokens, but the prompt has {count} tokens and "
        f"the answer {answer} ({count + answer} in all); shorten the prompt to {room} tokens or fewer.",
        "prompt",
    )


def truncate(token_ids: list[int], keep: int, policy: str) -> list[int]:
    """`keep` tokens of a prompt: left cuts its beginning, right its end, middle keeps both ends."""
    if policy == "left":
        return token_ids[-keep:]
    if policy == "right":
        return token_ids[:keep]
    if policy == "middle":
        head = (keep + 1) // 2
        return token_ids[:head] + (token_ids[-(keep - head) :] if keep > head else [])
    raise ValueError(f"no truncation policy {policy!r}")
