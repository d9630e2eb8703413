"""What every source offers: it says whether it can look, looks, and never raises for a fault of the thing looked at."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from infradoc.model import Reading


class Source(Protocol):
    """One place that samples, events or facts of a target come from.

    `name` labels its `target_up` series and is unique within a target; `interval` is the least time between two looks
    in seconds (0: at every tick). `provides` are canonical signals that it can give at all, some of them only later: a
    counter in it that is absent has not counted yet, one outside it is unknown.
    """

    @property
    def name(self) -> str:
        """Unique name within a target."""

    @property
    def interval(self) -> float:
        """Least seconds between two looks."""

    @property
    def provides(self) -> frozenset[str]:
        """Canonical signals that may come from here."""

    def is_supported(self) -> bool:
        """Whether this source can look at all on this machine (its file is there, its kernel interface exists)."""

    def read(self, now: float) -> Reading:
        """Look once. `now` is Unix seconds and becomes the time of the reading; faults go into `Reading.error`."""

    def close(self) -> None:
        """Give back connections and files. May be called twice."""


@runtime_checkable
class RowSource(Source, Protocol):
    """A source whose looks are kept in a recording as rows of its own: `last_row`, in `row_file`."""

    @property
    def row_file(self) -> str:
        """Name of the `.jsonl.gz` file in a recording."""

    @property
    def last_row(self) -> dict[str, Any]:
        """What the last look saw, before any mapping; empty before the first."""
