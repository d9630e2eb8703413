"""The decodes of a step: running requests that need one token computed to sample the next."""

from __future__ import annotations

from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.lifecycle import Lifecycle
from infradoc_engine.core.scheduler.step import StepDraft


def is_decode(request: Request) -> bool:
    """Whether only the newest sampled token of a running request is still to be computed."""
    return bool(request.output_token_ids) and request.num_computed_tokens == request.num_tokens - 1


class DecodeStage:
    """Gives each decode a place for its token; when blocks run out, the last admitted request loses its own."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._last_turn: dict[str, int] = {}  # request -> number of its last turn, while not all can have one
        self._turn = 0

    def run(self, step: StepDraft, ready: list[Request]) -> None:
        """Schedule as many of `ready` (in order of admission) as the budget allows.

        Older requests get their place first and victims are taken from the young end: so what is in the step already
        is never a victim, and the oldest always moves on.
        """
        for request in self._turns(step, ready):
            if request.state == "running" and self._make_room(step, request):
                step.add_decode(request)

    def _turns(self, step: StepDraft, ready: list[Request]) -> list[Request]:
        """Those whose turn it is: all, or those that waited longest for one, the oldest first among equals."""
        if len(ready) <= step.budget:
            if self._last_turn:
                self._last_turn = {}
            return ready
        last_turn = {request.request_id: self._last_turn.get(request.request_id, -1) for request in ready}
        chosen = set()
        for request_id in sorted(last_turn, key=last_turn.__getitem__)[: step.budget]:
            self._turn += 1  # a number each, not one per step: so nobody overtakes within a step
            last_turn[request_id] = self._turn
            chosen.add(request_id)
        self._last_turn = last_turn
        return [request for request in ready if request.request_id in chosen]

    def _make_room(self, step: StepDraft, request: Request) -> bool:
        lifecycle = self._lifecycle
        while not lifecycle.cache.append_slot(request):
            step.ran_out = True
            victim = lifecycle.last_admitted()
            if victim is request and len(lifecycle.running) == 1:
                step.finished.append((request.request_id, lifecycle.finish_stuck(request)))
                return False
            preemption = lifecycle.preempt(victim, "kv_full", request.request_id, step)
            step.preempted.append((victim.request_id, preemption))
            if victim is request:
                return False
        return True
