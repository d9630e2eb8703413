"""What of a GPU's memory goes where when an engine of vLLM's kind starts, and whether a longest request fits. Pure.

Per GPU: budget = memory x fraction; what weights, activations, the engine and (from 0.21 on) the CUDA graphs leave of
it is the KV cache. Beside the budget the driver's context needs room, and before 0.21 the graphs. How far the parts are
off on start-up lines that they were not fitted on is in bench/results/fit.json and docs/fit.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.parts import (
    activation_bytes,
    engine_bytes,
    graph_bytes,
    kv_of_request,
    kv_of_token,
    weight_bytes,
)
from infradoc_rules.sizing.setting import Setting, check
from infradoc_rules.units import GIB

# Share by which the truth may lie under and above each estimate: the KV cache of all held-out starts but one is within
# what these make of it together.
ERRORS = {
    "weights": (0.025, 0.015),
    "kv": (0.06, 0.01),
    "activation": (0.15, 0.3),
    "engine": (0.8, 1.0),
    "graphs": (0.75, 0.4),
}
# The KV cache that vLLM printed beside the estimate, over starts that no constant was set on (bench/results/fit.json):
# how many, and GiB that nine of ten and the worst were off.
HELD_OUT = (29, 0.3, 2.5)
CONTEXT = int(0.5 * GIB)  # the driver's: 0.45 GiB of a 4090, 0.49 of an L40S, 0.61 of an H100 before anything is loaded


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes on one GPU (the fullest one). problem: "" | "weights" | "no_kv" | "kv_too_small" | "beyond_fraction".

    needed: KV of one longest request, of which `requests` fit at once; graphs_inside: the budget holds the graphs.
    kv_low and kv_high: the KV cache when all estimates err to the bad and to the good side.
    """

    max_model_len: int
    total: int
    budget: int
    weights: int
    activation: int
    engine: int
    graphs: int
    graphs_inside: bool
    kv_per_token: int
    needed: int
    kv_low: int
    kv_high: int

    @property
    def kv(self) -> int:
        """Bytes left for the KV cache; negative when the rest is too much already."""
        inside = self.graphs if self.graphs_inside else 0
        return self.budget - self.weights - self.activation - self.engine - inside

    @property
    def beyond(self) -> int:
        """Bytes needed beside the budget."""
        return CONTEXT + (0 if self.graphs_inside else self.graphs)

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return max(0, self.kv // self.kv_per_token)

    @property
    def requests(self) -> float:
        """Longest requests at once."""
        return max(0.0, self.kv / self.needed)

    @property
    def problem(self) -> str:
        """The first part that does not fit."""
        if self.weights + self.engine > self.budget:
            return "weights"
        if self.kv <= 0:
            return "no_kv"
        if self.kv < self.needed:
            return "kv_too_small"
        return "beyond_fraction" if self.budget + self.beyond > self.total else ""

    @property
    def certain(self) -> bool:
        """The verdict stays the same at both ends of the stated errors."""
        return (self.kv_low >= self.needed) == (self.kv_high >= self.needed)


def account(model: Model, setting: Setting) -> Account:
    """The account of one launch. Raises SizingError when the model cannot be shared or stored that way."""
    check(model, setting)
    total = setting.gpu.memory_bytes
    budget = int(total * setting.share)
    length = setting.length(model)
    graphs = graph_bytes(model, setting)
    parts = {
        "weights": weight_bytes(model, setting),
        "activation": activation_bytes(model, setting),
        "engine": engine_bytes(setting),
    }
    inside = parts | ({"graphs": graphs} if setting.behaviour.graphs_inside else {})
    return Account(
        max_model_len=length,
        total=total,
        budget=budget,
        **parts,
        graphs=graphs,
        graphs_inside=setting.behaviour.graphs_inside,
        kv_per_token=kv_of_token(model, setting),
        needed=kv_of_request(model, setting, length, setting.batch(model)[1]),
        kv_low=budget
        - setting.behaviour.unseen
        - sum(int(part * (1 + ERRORS[name][1])) for name, part in inside.items()),
        kv_high=budget - sum(int(part * (1 - ERRORS[name][0])) for name, part in inside.items()),
    )
