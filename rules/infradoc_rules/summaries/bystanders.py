"""Whether something printed before it explains why a process ended."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc_rules.fatal import END_A_PROCESS
from infradoc_rules.model import Event
from infradoc_rules.summaries.start import SERVING, refuses

# Any of these ends a server by itself: what is killed after it is cleaned up, not the cause.
_CAUSES = END_A_PROCESS | {"traceback"}
_SEGMENTATION = 11
# Work that went on after a fault: the fault did not end the process.
_WORK = SERVING | {"model_loaded", "kv_allocated"}
# Exceptions that only tell of a process that is gone.
_ECHO_WORDS = ("EngineDead", "died", "cancelled", "Cancelled", "ShardCannotStart", "ConnectionReset", "BrokenPipe")


def unexplained(death: Event, events: Sequence[Event]) -> bool:
    """Whether nothing since the last sign of work says why the process of `death` ended."""
    for event in reversed([event for event in events if event.order < death.order]):
        if event.name in _WORK:
            return True
        if event.phase == "shutdown" or refuses(event) or event.fields.get("signal") == _SEGMENTATION:
            return False
        if event.name in _CAUSES and not _echo(event):
            return False
    return True


def _echo(event: Event) -> bool:
    said = f"{event.fields.get('exception', '')} {event.fields.get('message', '')}"
    return event.name == "traceback" and any(word in said for word in _ECHO_WORDS)
