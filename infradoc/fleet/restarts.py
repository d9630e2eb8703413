"""Whether the server was started again, told by its start time, or where none is told by a counter that began anew."""

from __future__ import annotations

import math

from infradoc.remediation.process import is_same, started_at
from infradoc_rules.model import SignalFrame

_COUNTERS = ("llm_generation_tokens_total", "llm_prompt_tokens_total", "llm_requests_finished_total")


class ProcessWatch:
    """Follows the process of one server. `started` is when it began (Unix seconds), as last told."""

    def __init__(self) -> None:
        self.started: float | None = None
        self._counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def look(self, frame: SignalFrame) -> bool:
        """Whether it is another process than at the looks before. A server that was only out of sight is the same."""
        started, fell = started_at(frame), self._fell(frame)
        if started is None:
            if fell:
                self.started = None  # whatever it was, it is over
            return fell
        is_other = not is_same(started, self.started)
        if is_other or self.started is None:
            self.started = started
        return is_other

    def _fell(self, frame: SignalFrame) -> bool:
        """Whether a counter is lower than it was."""
        fell = False
        for name in _COUNTERS:
            for series in frame.select(name):
                value = float(series.values[-1]) if len(series.values) else math.nan
                if math.isnan(value):
                    continue
                key = (name, tuple(sorted(series.labels.items())))
                fell = fell or value < self._counts.get(key, 0.0)
                self._counts[key] = value
        return fell
