"""Finished requests keep some of their KV blocks for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.core.request import Request
from infradoc_engine.engine import Engine
from infradoc_engine.faults.base import Parameter, Target


class LeakBlocks:
    """Takes references on the last blocks of running requests and forgets them, as code with a missing free does.

    The blocks leak when the request gives them back; `defragment` finds and reclaims them.
    """

    name: ClassVar[str] = "leak_blocks"
    means: ClassVar[str] = "each n-th request keeps its last KV blocks when it ends"
    provokes: ClassVar[str] = "memory-leak"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "every": Parameter("one request in so many leaks", 1, 1, 1000),
        "blocks": Parameter("blocks that it leaks", 1, 1, 1000),
        "requests": Parameter("requests that leak in all; 0 = no end", 0, 0, 1_000_000),
    }

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._engine: Engine = target.engine
        self._every, self._blocks = int(values["every"]), int(values["blocks"])
        self._last = self._every * int(values["requests"]) or None  # the last one that is counted
        self._leaked: dict[str, int] = {}  # running request -> blocks it has leaked; those that leak none have enough
        self._count = 0
        self._engine.before_step.append(self._leak)

    def stop(self) -> None:
        self._engine.before_step.remove(self._leak)

    def _leak(self) -> None:
        with self._engine.lock:
            scheduler = self._engine.scheduler
            for request in scheduler.running:
                if request.output_token_ids:
                    self._leak_of(request)
            alive = {request.request_id for request in (*scheduler.running, *scheduler.waiting)}
            self._leaked = {name: leaked for name, leaked in self._leaked.items() if name in alive}

    def _leak_of(self, request: Request) -> None:
        """Leak what is still missing of the newest blocks: a short request has them only as it grows."""
        leaked = self._leaked.get(request.request_id)
        if leaked is None:
            self._count += 1
            over = self._last is not None and self._count > self._last
            leaked = 0 if self._count % self._every == 0 and not over else self._blocks
        wanted = min(self._blocks, len(request.block_table)) - leaked
        if wanted > 0:
            leaked += len(self._engine.cache.leak(wanted, request))
        self._leaked[request.request_id] = leaked
