"""Reports as one HTML page: no script, nothing loaded from elsewhere, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape as escape_markup
from importlib import resources
from typing import Any

from markdown_it import MarkdownIt

import infradoc_playbooks
from infradoc import __version__
from infradoc.errors import visible
from infradoc.report.asides import changed_line, considered_line
from infradoc.report.html.svg import to_svg
from infradoc.report.html.words import page_words
from infradoc.report.model import Report
from infradoc.report.plots import Plot
from infradoc.report.text import in_words, status_text, vitals_pairs
from infradoc.report.words import words

# Log lines, model names and metrics are untrusted: even an escape that was forgotten could load or run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def escape(text: str, quote: bool = True) -> str:
    """Text of others as text: no markup, and no characters that turn the direction of what stands beside them."""
    return escape_markup(visible(text), quote)


def to_html(reports: Sequence[Report], plots: Sequence[Sequence[Plot]], lang: str = "en", redacted: bool = True) -> str:
    """The page on one or more targets; `plots` has those of each report."""
    say = page_words(lang)
    style = resources.files("infradoc.report.html").joinpath("style.css").read_text(encoding="utf-8")
    names = ", ".join(report["target"]["name"] for report in reports)
    foot = say["made" if redacted else "made_full"].format(version=__version__)
    parts = [
        f'<!doctype html><html lang="{"zh-CN" if lang == "zh" else "en"}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(say['title'])}: {escape(names)}</title><style>{style}</style></head><body><main>",
    ]
    for report, drawn in zip(reports, plots, strict=True):
        parts += _report(report, drawn, lang)
    return "".join([*parts, f"</main><footer>{escape(foot)}</footer></body></html>\n"])


def _report(report: Report, plots: Sequence[Plot], lang: str) -> Iterator[str]:
    say, page = words(lang), page_words(lang)
    target = report["target"]
    what = " ".join(str(part) for part in (target["system"], target["version"]) if part)
    yield f"<section><h1>{escape(target['name'])} <span class='soft'>{escape(what)}</span></h1>"
    yield f"<p class='status {report['status']}'>{escape(status_text(report, say))}</p>"
    yield f"<p class='soft'>{escape(_watched(report, say))}</p>"
    yield "<dl>" + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in vitals_pairs(report, say))
    yield "</dl>"
    if not report["findings"]:
        yield f"<p>{escape(page['nothing_found'])}</p>"
    for place, finding in enumerate(report["findings"], 1):
        yield from _finding(place, finding, [plot for plot in plots if plot.finding == finding["id"]], report, lang)
    yield from _entries(page["changed"], [changed_line(row, lang) for row in report.get("changed", [])])
    yield from _entries(page["considered"], [considered_line(row) for row in report.get("considered", [])])
    checked = escape(", ".join(report["checked"]) or say["nothing"])
    yield f"<h3>{escape(say['checked'])}</h3><p class='soft'>{checked}</p>"
    yield from _entries(say["not_visible"], report["not_visible"])
    yield "</section>"


def _watched(report: Report, say: Mapping[str, str]) -> str:
    observed = report.get("observed")
    if not observed or not observed.get("looks"):
        return ""
    end = datetime.fromtimestamp(observed["end"], UTC).isoformat(timespec="seconds")
    return f"{say['watched'].format(seconds=observed['seconds'], ticks=observed['looks'])}, {end}"


def _entries(heading: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"<h3>{escape(heading)}</h3><ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _finding(place: int, finding: Mapping[str, Any], plots: Sequence[Plot], report: Report, lang: str) -> Iterator[str]:
    say, page = words(lang), page_words(lang)
    severity = finding["severity"]
    anchor, title = escape(finding["id"], quote=True), escape(finding["title"])
    yield f"<article class='{severity}' id='{anchor}'><h2>{place}. {title}</h2>"
    confidence = f"{say['confidence']} {finding['confidence']:.0%}"
    yield f"<p><b class='{severity}'>{escape(say[severity])}</b> <span class='soft'>{escape(confidence)}, "
    yield f"{escape(finding['id'])}</span></p>"
    yield f"<h3>{escape(say['cause'])}</h3><p>{escape(finding['cause'])}</p>"
    yield f"<h3>{escape(say['impact'])}</h3><p>{escape(finding['impact'])}</p>"
    if finding["explains"]:
        titles = {one["id"]: one["title"] for one in report["findings"]}
        chain = [finding["title"], *(titles.get(name, name) for name in finding["explains"])]
        yield f"<h3>{escape(page['chain'])}</h3><ul class='chain'>"
        yield "".join(f"<li>{escape(name)}</li>" for name in chain) + "</ul>"
    yield f"<h3>{escape(say['evidence'])}</h3><ul>" + "".join(_evidence(one) for one in finding["evidence"]) + "</ul>"
    if plots:
        yield f"<h3>{escape(page['evidence_plots'])}</h3>"
        yield from (_figure(plot, page) for plot in plots)
    if finding["actions"]:
        yield f"<h3>{escape(page['change'])}</h3>"
        yield from (_action(action, number, say) for number, action in enumerate(finding["actions"]))
    yield f"<h3>{escape(say['falsifier'])}</h3><p>{escape(finding['falsifier'])}</p>"
    yield from _playbook(finding["playbook"], say, lang)
    yield "</article>"


def _figure(plot: Plot, page: dict[str, str]) -> str:
    return f"<figure>{to_svg(plot, page)}<figcaption><code>{escape(plot.title)}</code></figcaption></figure>"


def _evidence(entry: Mapping[str, Any]) -> str:
    where = ", ".join(str(part) for part in (entry["signal"], entry["source"]) if part)
    aside = f" <span class='soft'>({escape(where)})</span>" if where else ""
    return f"<li>{escape(str(entry['text']))}{aside}</li>"


def _action(action: Mapping[str, Any], number: int, say: Mapping[str, str]) -> str:
    """One change as a diff: what stands there now, and what is to stand there."""
    moves = [action, *action.get("also", [])]
    gone = [f"- {move['knob']} = {move['from']}" for move in moves if move.get("from") is not None]
    come = [f"+ {move['knob']} = {move['to']}" for move in moves if move.get("to") is not None]
    typed = str(action["flag"] or in_words(action, say["lang"]))
    lines = [f"<span class='gone'>{escape(line)}</span>" for line in gone]
    lines += [f"<span class='come'>{escape(line)}</span>" for line in come]
    diff = f"<pre>{chr(10).join(lines)}</pre>" if come else ""
    label = say["action"] if number == 0 else say["or"]
    how = say["live"] if action["live"] else action["risk"]
    texts = escape(str(action["why"]))
    if action["cost"]:
        texts += f"<br><span class='soft'>{escape(say['cost'] + str(action['cost']))}</span>"
    head = f"<b>{escape(label)}</b> <code>{escape(typed)}</code> <span class='soft'>{escape(str(how))}</span>"
    return f"<p>{head}</p>{diff}<p>{texts}</p>"


def _playbook(name: str, say: Mapping[str, str], lang: str) -> Iterator[str]:
    try:
        text = infradoc_playbooks.get(name, lang)
    except infradoc_playbooks.PlaybookError:
        return
    made = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    yield f"<details><summary>{escape(say['playbook'])}: {escape(name)}</summary>{made}</details>"
