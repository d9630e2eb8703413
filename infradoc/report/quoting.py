"""How a sentence quotes the line that it rests on."""

from __future__ import annotations

from infradoc_rules.model import Event


def quoted(event: Event, most: int = 160) -> dict[str, str]:
    """`source` and `text` of an event for a sentence's fields, the text cut to `most` characters."""
    return {"source": event.source or "?", "text": (event.text or event.name)[:most]}
