"""A prefix cache that forgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from infradoc_engine.engine import Engine
from infradoc_engine.faults.base import Parameter, Target


class DropPrefixHits:
    """All cached content is forgotten before each step, so that lookups miss although prompts share their prefixes."""

    name: ClassVar[str] = "drop_prefix_hits"
    means: ClassVar[str] = "lookups in the prefix cache find nothing"
    provokes: ClassVar[str] = "prefix-cache-ineffective"
    parameters: ClassVar[Mapping[str, Parameter]] = {}

    def start(self, target: Target, values: Mapping[str, float]) -> None:
        self._engine: Engine = target.engine
        self._engine.before_step.append(self._forget)

    def _forget(self) -> None:
        with self._engine.lock:
            self._engine.cache.pool.clear_hashes()

    def stop(self) -> None:
        self._engine.before_step.remove(self._forget)
