"""A failure that no rule explains: what was read of it, how far the start had come, and what would decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infradoc.report.artefact_words import artefact_words
from infradoc.report.quoting import quoted
from infradoc_rules.fatal import END_A_RUN
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.start import attempts, first_served, shown_phase
from infradoc_rules.units import size_text
from infradoc_rules.values import number

_ECHOES = ("engine_failed", "worker_died")


def unexplained_failure(events: Sequence[Event], facts: Mapping[str, Fact]) -> Event | None:
    """The failure that what was given ends with: the start's, else a fatal event; None where nothing failed."""
    survived = _survived(events)
    fatal = [event for event in events if event.name in END_A_RUN and event.order not in survived]
    if _failed(facts):
        stop = facts["start.failed"].source
        return next((event for event in events if event.source == stop), fatal[0] if fatal else None)
    return fatal[0] if fatal else None


def _failed(facts: Mapping[str, Fact]) -> bool:
    failed = facts.get("start.failed")
    return failed is not None and failed.value is True


def _survived(events: Sequence[Event]) -> set[int]:
    """The orders of refused allocations of a start that then served: it was tried again with less."""
    refused = [event for event in events if event.name == "cuda_oom"]
    if not refused:
        return set()
    run = attempts(events)[-1]
    ready = first_served(run)
    if ready is None:
        return set()
    return {event.order for event in refused if run[0].order <= event.order < ready.order}


def unexplained_lines(
    failure: Event, events: Sequence[Event], facts: Mapping[str, Fact], lang: str = "en"
) -> Iterator[str]:
    """What failed, in which phase where something shows it, and what would decide the cause."""
    say = artefact_words(lang)
    if _failed(facts):
        phase = shown_phase(failure, attempts(events)[-1])
        key = "failed_start" if phase is not None else "failed_at"
        yield say[key].format(phase=phase, **quoted(failure))
    else:
        yield say["broke_off"].format(**quoted(failure))
    if failure.name == "cuda_oom":
        numbers = ("；" if lang == "zh" else "; ").join(_numbers(failure, say))
        if numbers:
            yield say["oom_what"].format(numbers=numbers)
        yield say["oom_decides"]
    elif failure.name in _ECHOES and not failure.fields.get("error"):
        yield say["echo_decides"]


def _numbers(failure: Event, say: Mapping[str, str]) -> Iterator[str]:
    want, free, total, own = (
        number(failure.fields.get(name)) for name in ("want_bytes", "free_bytes", "total_bytes", "process_bytes")
    )
    if want is not None:
        yield say["oom_wanted"].format(size=size_text(want))
    if free is not None and total is not None:
        yield say["oom_free"].format(size=size_text(free), total=size_text(total))
    if own is not None:
        yield say["oom_own"].format(size=size_text(own))
