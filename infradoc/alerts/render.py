"""A message as titled paragraphs of (label, text) lines: what the chat sinks put into their own markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infradoc.alerts.incident import OPEN
from infradoc.alerts.message import text_of, worst
from infradoc.alerts.words import COLON, COMMA, clock, verdict, word

MOST_STILL = 10


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One incident (or a list of further ones): a title and labelled lines. Nothing is escaped yet."""

    title: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A whole message. `mood`: the worst severity of what is open, or "resolved"."""

    headline: str
    mood: str
    paragraphs: tuple[Paragraph, ...]


def render(message: Mapping[str, Any], lang: str) -> Rendered:
    """The message in words."""
    if message["kind"] == "change":
        return _render_change(message, lang)
    views: Sequence[Mapping[str, Any]] = message["incidents"]
    news = [view for view in views if view["news"]]
    still = [view for view in views if not view["news"]]
    opened = [view for view in views if view["status"] in OPEN]
    paragraphs = [incident(view, lang) for view in news]
    if still:
        paragraphs.append(_still(still, lang))
    return Rendered(_headline(message, news, lang), worst(opened) if opened else "resolved", tuple(paragraphs))


def _headline(message: Mapping[str, Any], news: Sequence[Mapping[str, Any]], lang: str) -> str:
    counts = [(status, sum(v["status"] == status for v in news)) for status in ("firing", "flapping", "resolved")]
    said = COMMA[lang].join(
        f"{n} {word(s, lang)}" if lang == "en" else f"{n} 项{word(s, lang)}" for s, n in counts if n
    )
    where = f"infradoc: {message['group']}" if message["kind"] == "incidents" else "infradoc"
    repeat = f" ({word('repeat', lang)})" if message["repeat"] else ""
    return f"{where}: {said}{repeat}"


def incident(view: Mapping[str, Any], lang: str) -> Paragraph:
    """One incident with all that a reader at night needs."""
    text = text_of(view, lang)
    title = f"[{word(view['severity'], lang)}] {text['title']}"
    if view["status"] != "firing":
        title = f"[{word(view['status'], lang)}] {text['title']}"
    system = f" ({view['system']})" if view["system"] else ""
    lines = [("where", f"{view['target']}{system}"), ("since", clock(view["since"]))]
    if view["status"] == "resolved":
        lines += [("ended", clock(view["ended"]))] if view["ended"] else []
        lines += [("carried", view["carried_by"])] if view["carried_by"] else []
    else:
        lines += _diagnosis(view, text, lang)
    lines.append(("incident", view["id"]))
    return Paragraph(title, tuple((word(label, lang) if label else "", value) for label, value in lines if value))


def _diagnosis(view: Mapping[str, Any], text: Mapping[str, Any], lang: str) -> list[tuple[str, str]]:
    evidence = (text.get("evidence") or [])[:2]
    lines = [("", word("held", lang))] if view["status"] == "flapping" else []
    lines.append(("cause", text.get("cause") or ""))
    lines += [("evidence", evidence_line(item)) for item in evidence]
    lines += action_lines(text.get("action"), lang)
    lines.append(("falsifier", text.get("falsifier") or ""))
    lines.append(("carries", COMMA[lang].join(carried_titles(view, lang))))
    page_lang = " --lang zh" if lang == "zh" else ""
    lines.append(("playbook", f"infradoc playbook {view['playbook']}{page_lang}" if view["playbook"] else ""))
    return lines


def evidence_line(item: Mapping[str, Any]) -> str:
    """A piece of evidence with where it was read."""
    return f"{item['text']} ({item['source']})" if item.get("source") else str(item["text"])


def action_lines(action: Mapping[str, Any] | None, lang: str) -> list[tuple[str, str]]:
    """The one change and its price."""
    if not action:
        return []
    return [("action", action_text(action, lang)), ("cost", str(action.get("cost") or ""))]


def action_text(action: Mapping[str, Any], lang: str) -> str:
    """The change as the user of that engine types it, and whether it needs a restart."""
    knob, to = action.get("knob"), action.get("to")
    values = f"{action['from']} → {to}" if action.get("from") is not None else str(to)
    does = action.get("flag") or (f"{knob}: {values}" if to is not None else f"{action.get('change')} {knob}")
    return f"{does} ({word('live', lang) if action.get('live') else word('restart', lang)})"


def carried_titles(view: Mapping[str, Any], lang: str) -> list[str]:
    """Titles of the symptoms that this root explains."""
    return [str(other["titles"].get(lang) or other["finding"]) for other in view["carries"]]


def _still(views: Sequence[Mapping[str, Any]], lang: str) -> Paragraph:
    shown = [(word(view["severity"], lang), f"{text_of(view, lang)['title']} ({view['target']})") for view in views]
    if len(shown) > MOST_STILL:
        shown = [*shown[:MOST_STILL], ("", word("more", lang).format(n=len(views) - MOST_STILL))]
    return Paragraph(word("still", lang), tuple(shown))


def _render_change(message: Mapping[str, Any], lang: str) -> Rendered:
    change = message["change"]
    lines = [(word("where", lang), change["target"]), (word("verdict", lang), verdict(change["verdict"], lang))]
    shown = tuple((label, value) for label, value in lines if value)
    return Rendered(
        f"infradoc: {change['target']}: {word('changed', lang)}", "info", (Paragraph(change["summary"], shown),)
    )


def plain_lines(paragraph: Paragraph, lang: str) -> list[str]:
    """`Label: text` lines."""
    return [f"{label}{COLON[lang]}{value}" if label else value for label, value in paragraph.lines]
