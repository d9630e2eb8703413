"""The engine's own knob table: names as in knobs.yaml, bounds, and how a change takes effect."""

from __future__ import annotations

import difflib
import reprlib
from dataclasses import dataclass
from typing import Literal

Change = Literal["live", "drain", "restart"]
Kind = Literal["int", "float", "bool", "choice", "str"]
KnobValue = int | float | bool | str | None


class KnobError(ValueError):
    """A knob name or value that cannot be used; the text is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob. `bounds` is [lowest, highest] for numbers and the list of values for choices.

    `change` says when a new value takes effect: live (at the next step), drain (once what runs has finished or was
    preempted; the change sees to that) or restart (refused while serving).
    `optional` knobs may be unset (None): the engine then derives the value at start.
    """

    name: str
    kind: Kind
    default: KnobValue
    bounds: tuple[int | float | str | bool, ...]
    change: Change
    means: str
    optional: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def check(self, value: object) -> KnobValue:
        """The value in the knob's own type; raises KnobError naming the knob, the value and the bounds."""
        if value is None:
            if self.optional:
                return None
            raise KnobError(f"{self.name} cannot be unset; give {self._wanted()}.")
        if self.kind in ("int", "float"):
            return self._check_number(value)
        if self.kind == "bool" and isinstance(value, bool):
            return value
        if self.kind == "choice" and isinstance(value, str) and value in self.bounds:
            return value
        if self.kind == "str" and isinstance(value, str) and value:
            return value
        raise self._refusal(value)

    def _refusal(self, value: object) -> KnobError:
        # reprlib: what a client sent may be long, or nested deeper than repr can go.
        return KnobError(f"{self.name} cannot be {reprlib.repr(value)}; give {self._wanted()}.")

    def _check_number(self, value: object) -> int | float:
        low, high = self.bounds
        assert isinstance(low, int | float) and isinstance(high, int | float)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:  # NaN is not
            if self.kind == "float":
                return float(value)
            if value == int(value):
                return int(value)
        raise self._refusal(value)

    def _wanted(self) -> str:
        if self.kind == "int":
            return f"a whole number from {self.bounds[0]} to {self.bounds[1]}"
        if self.kind == "float":
            return f"a number from {self.bounds[0]} to {self.bounds[1]}"
        if self.kind == "bool":
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join(str(b) for b in self.bounds)
        return "a text"


_TERA = 2**42  # an upper bound for counts of bytes that is far above any host, so that typing errors are caught
_MANY = 2**31 - 1

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("max_num_seqs", "int", 16, (1, 1024), "live", "most requests in one running batch"),
        Knob("max_num_batched_tokens", "int", 512, (1, 65536), "live", "most tokens of one step: the prefill chunk"),
        Knob("watermark", "float", 0.0, (0.0, 0.9), "live", "share of KV blocks kept free at admission"),
        Knob("chunked_prefill", "bool", True, (False, True), "live", "split long prompts over several steps"),
        Knob("prefix_caching", "bool", True, (False, True), "live", "reuse the KV blocks of shared prefixes"),
        Knob("tokenizer_workers", "int", 0, (0, 64), "live", "processes that tokenize; 0 = on the event loop"),
        Knob(
            "truncation_policy",
            "choice",
            "reject",
            ("reject", "left", "right", "middle"),
            "live",
            "what happens to a prompt over the limit",
        ),
        Knob(
            "kv_pool_tokens",
            "int",
            None,
            (1, _MANY),
            "live",
            "tokens that the KV pool holds; unset = derived from memory",
            optional=True,
        ),
        Knob(
            "max_queued_requests",
            "int",
            None,
            (0, _MANY),
            "live",
            "requests that may wait before new ones get 429; unset = no limit",
            optional=True,
        ),
        Knob(
            "max_model_len",
            "int",
            None,
            (2, _MANY),
            "drain",
            "longest prompt + output of one request; unset = what the model was trained for",
            optional=True,
        ),
        Knob("block_size", "int", 16, (1, 256), "drain", "tokens per KV block"),
        Knob(
            "gpu_memory_utilization",
            "float",
            0.9,
            (0.01, 1.0),
            "drain",
            "share of device memory for weights, activations and KV pool",
        ),
        Knob(
            "cuda_graph_max_bs",
            "int",
            64,
            (1, 1024),
            "drain",
            "largest decode batch that runs as a CUDA graph",
        ),
        Knob("enforce_eager", "bool", False, (False, True), "live", "run without CUDA graphs; no effect on the CPU"),
        Knob(
            "preemption_mode",
            "choice",
            "recompute",
            ("recompute", "swap"),
            "live",
            "what happens to a request that loses its blocks: computed again, or kept in swap_space while it has room",
        ),
        Knob("swap_space", "int", 0, (0, _TERA), "live", "bytes of host memory for the KV of preempted requests"),
        Knob(
            "activation_profile",
            "choice",
            "measure",
            ("measure", "trust"),
            "restart",
            "measure a step and leave room for it, or trust gpu_memory_utilization to leave enough",
        ),
        Knob(
            "device_memory_bytes",
            "int",
            None,
            (1, _TERA),
            "restart",
            "memory that the engine may see; on CPU a hard limit; unset = what the device has",
            optional=True,
        ),
        Knob("dtype", "choice", "auto", ("auto", "float32", "bfloat16"), "restart", "number format"),
        Knob(
            "omp_num_threads",
            "int",
            None,
            (1, 1024),
            "restart",
            "compute threads on the CPU; unset = the cores that this process may use",
            optional=True,
        ),
    )
}


def find(name: str) -> Knob:
    """The knob called `name`; raises KnobError naming the nearest valid one."""
    knob = KNOBS.get(name)
    if knob is not None:
        return knob
    near = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "valid knobs: " + ", ".join(KNOBS) + "."
    raise KnobError(f"unknown knob {reprlib.repr(name)}; {hint}")
