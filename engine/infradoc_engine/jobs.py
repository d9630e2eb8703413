"""What goes into the step loop and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from infradoc_engine.core.request import FinishReason, Request
from infradoc_engine.latency import LatencyLedger

if TYPE_CHECKING:
    from infradoc_engine.sampler import Sampled, SamplingParams

ErrorKind = Literal["length", "memory", "internal", "shutdown"]


class EngineStopped(RuntimeError):
    """No step will run any more; the message is one sentence that says why.

    A command that leaves nothing to go on with raises it to end the loop; `Engine.call` gives it to whoever comes then.
    """

    def __init__(self, message: str, kind: ErrorKind = "internal") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Why the engine gave a request up; `message` is one sentence for the client."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of a request, its end, or both. `time` is the monotonic second at which the step ended."""

    request_id: str
    token: Sampled | None
    finish_reason: FinishReason | None
    time: float
    failure: EngineFailure | None = None


@dataclass(slots=True, eq=False)
class Job:
    """A request with what the scheduler does not want to know."""

    request: Request
    sampling: SamplingParams
    ledger: LatencyLedger


Deliver = Callable[[Sequence[TokenEvent]], None]
