"""The latency ledger of one request: nine stages, each measured by itself between two clock readings of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Stage = Literal["receive", "template", "tokenize", "queue", "prefill", "preempted", "decode", "detokenize", "send"]
STAGES: tuple[Stage, ...] = get_args(Stage)
_ENGINE_STAGES: tuple[Stage, ...] = ("queue", "prefill", "preempted", "decode")


class LatencyLedger:
    """Seconds per stage. No stage is computed as a remainder: the sum against `end_to_end` is a check.

    receive     body read, parsed and checked
    template    chat template rendered
    tokenize    compute of the encoder alone
    queue       waiting for a tokenizer worker, then for the scheduler's first admission
    prefill     first admission to first token
    preempted   loss of the blocks to the next new token: the wait and the recomputation
    decode      first token to last token, without preempted spans
    detokenize  compute of the decoder; overlaps with decode by a few microseconds a token
    send        last token computed to last byte handed to the socket

    The event loop writes all but prefill, preempted and decode; the engine thread writes those and ends queue. A key is
    written by one thread at a time, so plain float additions are enough.
    """

    __slots__ = ("_clock", "_open", "arrival", "engine_end", "finished", "stages")

    def __init__(self, clock: Callable[[], float], arrival: float | None = None) -> None:
        self._clock = clock
        self.arrival = clock() if arrival is None else arrival
        self.finished: float | None = None
        self.engine_end: float | None = None  # when the last token was computed
        self.stages: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._open: dict[Stage, float] = {}

    def add(self, stage: Stage, seconds: float) -> None:
        self.stages[stage] += max(0.0, seconds)

    def begin(self, stage: Stage, at: float | None = None) -> None:
        """Open a span; a span of this stage that is already open keeps its start."""
        self._open.setdefault(stage, self._clock() if at is None else at)

    def end(self, stage: Stage, at: float | None = None) -> None:
        """Close the span of `stage`; nothing happens when none is open."""
        start = self._open.pop(stage, None)
        if start is not None:
            self.add(stage, (self._clock() if at is None else at) - start)

    @contextmanager
    def measure(self, stage: Stage) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self.add(stage, self._clock() - start)

    # --- transitions on the engine thread ---

    # After `engine_done` they do nothing: a request that ended at a stop string may still be in the step that runs.

    def admitted(self, at: float) -> None:
        if self.engine_end is not None:
            return
        self.end("queue", at)
        self.begin("prefill", at)

    def preempted(self, at: float) -> None:
        if self.engine_end is not None:
            return
        self.end("prefill", at)
        self.end("decode", at)
        self.begin("preempted", at)

    def token(self, at: float) -> None:
        """A new token was computed: whatever the request was doing before, it decodes from here."""
        if self.engine_end is not None:
            return
        self.end("prefill", at)
        self.end("preempted", at)
        self.begin("decode", at)

    def engine_done(self, at: float) -> None:
        """The engine is finished with the request, by whatever reason; closes every engine-side span."""
        if self.engine_end is not None:
            return
        for stage in _ENGINE_STAGES:
            self.end(stage, at)
        self.engine_end = at

    # --- reading ---

    def send_span(self, start: float, stop: float) -> None:
        """Count a write to the socket as far as it lies after the last token: before, it overlaps with decode."""
        if self.engine_end is not None:
            self.add("send", stop - max(start, self.engine_end))

    def finish(self, at: float | None = None) -> float:
        """End of the request; returns the end-to-end seconds."""
        self.finished = self._clock() if at is None else at
        return self.finished - self.arrival

    def snapshot(self) -> dict[str, float]:
        """Seconds per stage, with spans that are still open counted up to now."""
        now = self._clock()
        seconds: dict[str, float] = {str(stage): value for stage, value in self.stages.items()}
        for stage, start in list(self._open.items()):
            seconds[stage] += max(0.0, now - start)
        return seconds

    @property
    def end_to_end(self) -> float:
        return (self._clock() if self.finished is None else self.finished) - self.arrival
