"""The engine's own knob table: names as in knobs.yaml, bounds, and how a change takes effect."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Literal

from infradoc_engine.near import near

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
    unset: str = ""  # what an unset knob comes to, for the help

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
        Knob("max_num_seqs", "int", 16, (1, 1024), "live", "most requests that run at once; further ones wait"),
        Knob(
            "max_num_batched_tokens",
            "int",
            512,
            (1, 65536),
            "live",
            "most tokens computed in one step; a longer prompt takes several steps",
        ),
        Knob(
            "watermark",
            "float",
            0.0,
            (0.0, 0.9),
            "live",
            "share of the KV pool, 0 to 0.9, that must stay free when a new request is let in",
        ),
        Knob(
            "chunked_prefill",
            "bool",
            True,
            (False, True),
            "live",
            "compute a long prompt in several steps, so that others go on meanwhile",
        ),
        Knob(
            "prefix_caching",
            "bool",
            True,
            (False, True),
            "live",
            "keep what was computed for the start of a prompt, for requests that begin alike",
        ),
        Knob(
            "tokenizer_workers",
            "int",
            0,
            (0, 64),
            "live",
            "processes that turn text into tokens; 0 = inside the server, which cannot answer meanwhile",
        ),
        Knob(
            "truncation_policy",
            "choice",
            "reject",
            ("reject", "left", "right", "middle"),
            "live",
            "what happens to a prompt that is longer than --max-model-len allows: refused with an error, or cut on "
            "one side",
        ),
        Knob(
            "kv_pool_tokens",
            "int",
            None,
            (1, _MANY),
            "live",
            "tokens of all running requests together that the KV cache holds",
            optional=True,
            unset="as many as fit the memory",
        ),
        Knob(
            "max_queued_requests",
            "int",
            None,
            (0, _MANY),
            "live",
            "requests that may wait; further ones get 429",
            optional=True,
            unset="no limit",
        ),
        Knob(
            "max_model_len",
            "int",
            None,
            (2, _MANY),
            "drain",
            "most tokens of one request, prompt and output together",
            optional=True,
            unset="what the model was trained for",
        ),
        Knob(
            "block_size", "int", 16, (1, 256), "drain", "tokens in a block, the unit in which the KV cache is given out"
        ),
        Knob(
            "gpu_memory_utilization",
            "float",
            0.9,
            (0.01, 1.0),
            "drain",
            "share of the device's memory, 0.01 to 1, that the engine may use in all",
        ),
        Knob(
            "cuda_graph_max_bs",
            "int",
            64,
            (1, 1024),
            "drain",
            "largest number of requests in a step that runs as a CUDA graph; GPU only",
        ),
        Knob("enforce_eager", "bool", False, (False, True), "live", "run without CUDA graphs; GPU only"),
        Knob(
            "preemption_mode",
            "choice",
            "recompute",
            ("recompute", "swap"),
            "live",
            "when the KV cache is full a running request gives its part up: it is computed again later (recompute), or "
            "kept in --swap-space while that has room (swap)",
        ),
        Knob("swap_space", "int", 0, (0, _TERA), "live", "host memory for what such requests give up"),
        Knob(
            "activation_profile",
            "choice",
            "measure",
            ("measure", "trust"),
            "restart",
            "leave room for a step by measuring one at the start (measure), or set nothing aside (trust)",
        ),
        Knob(
            "device_memory_bytes",
            "int",
            None,
            (1, _TERA),
            "restart",
            "device memory that the engine may see; on the CPU a hard limit of this process",
            optional=True,
            unset="what the device has",
        ),
        Knob(
            "dtype",
            "choice",
            "auto",
            ("auto", "float32", "bfloat16"),
            "restart",
            "number format that is computed in; auto = bfloat16 on a GPU, float32 on the CPU",
        ),
        Knob(
            "omp_num_threads",
            "int",
            None,
            (1, 1024),
            "restart",
            "compute threads on the CPU; leave a core free for other busy programs",
            optional=True,
            unset="one for each core",
        ),
    )
}


def find(name: str) -> Knob:
    """The knob called `name`; raises KnobError naming the nearest valid one."""
    knob = KNOBS.get(name)
    if knob is not None:
        return knob
    meant = near(name, KNOBS)
    hint = f"did you mean {meant}?" if meant else "valid knobs: " + ", ".join(KNOBS) + "."
    raise KnobError(f"unknown knob {reprlib.repr(name)}; {hint}")
