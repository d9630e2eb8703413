"""What stands beside the findings: diagnoses that were set aside, and what had changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from infradoc.plurals import agreeing
from infradoc.report.artefact_words import artefact_words
from infradoc.sources.secrets import clean_report
from infradoc_rules.considered import Considered
from infradoc_rules.model import Value
from infradoc_rules.summaries.changed import MOST, PACKAGE, Changed, differ, place_of, tells

if TYPE_CHECKING:
    from infradoc.signals.store import Store

# In the first looks the server's own word takes the place of its launch command's: that is no change.
_FIRST_LOOKS = 3
_OLDEST = 1_262_304_000.0  # 2010: no log of what infradoc knows is older


def considered_part(found: Iterable[Considered]) -> list[dict[str, Any]]:
    """The report's `considered`."""
    return [{"id": one.id, "title": one.title, "why": agreeing(one.why), "source": one.source} for one in found]


def changed_part(found: Iterable[Changed]) -> list[dict[str, Any]]:
    """The report's `changed`. No value holds a secret."""
    rows = [
        {"what": one.what, "before": one.before, "after": one.after, "source": one.source, "time": _known(one.time)}
        for one in found
    ]
    cleaned: list[dict[str, Any]] = clean_report(rows)
    return cleaned


def changes_seen(store: Store, now: float) -> list[Changed]:
    """What changed during a watch, from the store's change marks: the last change of each setting, newest first."""
    looks = store.look_times(now)
    settled = looks[_FIRST_LOOKS - 1] if len(looks) >= _FIRST_LOOKS else now
    found: dict[str, Changed] = {}
    for mark in store.marks:
        if settled < mark.time <= now and tells(mark.name) and differ(mark.before, mark.after):
            found[mark.name] = Changed(mark.name, mark.before, mark.after, None, round(mark.time, 3))
    return sorted(found.values(), key=lambda one: (-(one.time or 0.0), place_of(one.what), one.what))[:MOST]


def changed_line(one: Mapping[str, Any], lang: str) -> str:
    """`engine version 0.8.4 -> 0.9.1 (server.log:120, 2025-11-30 06:00:12 UTC)`."""
    label = artefact_words(lang).get(f"what_{one['what']}", str(one["what"]).removeprefix(PACKAGE))
    where = [str(part) for part in (one["source"], _moment(one["time"])) if part]
    return f"{label} {_shown(one['before'])} -> {_shown(one['after'])}" + (f" ({', '.join(where)})" if where else "")


def considered_line(one: Mapping[str, Any]) -> str:
    """`oom-sampler-warmup: the allocation was refused while ... (server.log:14)`."""
    return f"{one['id']}: {one['why']}" + (f" ({one['source']})" if one["source"] else "")


def _known(time: float | None) -> float | None:
    """None for stamps without a year: they are read as of a year that nobody means."""
    return time if time is not None and time >= _OLDEST else None


def _moment(time: float | None) -> str | None:
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
