"""What vLLM counts and reserves at start, by version. Pure.

Fitted on start-up lines of vLLM 0.6 to 0.19 of which docs/fit.md gives the account: 0.16 and before held 38 to 39 bytes
for each logit of the largest batch while it measured (the logits, a 32-bit copy, sorted values with 64-bit places, and
probabilities), 0.17 holds 15.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """logit_bytes: a logit at the peak; fraction: default; graphs_inside: the fraction holds the CUDA graphs too.

    whole_prompts: prompts up to 32,768 tokens are computed in one step (the V0 engine);
    alone, linked, hopper: GiB outside of torch on one GPU, on each of several with fast links, and on those of compute
    capability 9.0 and up; unseen: bytes that the peak may be larger where few starts of these versions are known (1.44
    GiB for 0.48 on the one of 0.31).
    """

    logit_bytes: float
    fraction: float
    graphs_inside: bool
    whole_prompts: bool
    alone: float
    linked: float
    hopper: float
    unseen: int


def behaviour(version: Version | None) -> Behaviour:
    """Of that version of vLLM; None: of the newest that is known."""
    known = (99,) if version is None else version
    return Behaviour(
        logit_bytes=38.8 if known < (0, 17) else 15.4,
        fraction=0.9 if known < (0, 21) else 0.92,
        graphs_inside=known >= (0, 21),
        whole_prompts=known < (0, 8),
        alone=0.13 if known < (0, 18) else 0.25,
        linked=0.55,
        hopper=0.55 if known < (0, 18) else 2.1,
        unseen=0 if known < (0, 21) else 1 << 30,
    )
