"""Plans, windows and verdicts as text, the same for `fix`, `demo` and the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width

from infradoc.load.stats import percentile, shown
from infradoc.model import Plan, PlanStep, Verdict
from infradoc.remediation.measure import CLIENT_LATENCIES, ClientMeasured, Measured, Quantity
from infradoc.remediation.neighbours import Neighbours
from infradoc.remediation.plan import is_drain, is_live, is_order, loser
from infradoc.remediation.run import Outcome
from infradoc.remediation.words import LATENCIES as CALLED
from infradoc.remediation.words import agreeing_in, check_text, say
from infradoc_rules.actions import means
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Finding
from infradoc_rules.schema import VerifyMetric

SHOWN_BLOCKS = 5  # of those that were given back; the data has them all
COLUMN = 20  # places of a column of numbers
QUANTILES = (0.5, 0.9, 0.99)
LEAST_SAMPLES = 2  # in either window: a row of "-" says nothing
LATENCIES = tuple((CALLED[signal], signal, key) for signal, key in CLIENT_LATENCIES.items())
Row = tuple[str, str, str]


def finding_lines(finding: Finding, lang: str = "en") -> list[str]:
    """A finding with its evidence."""
    severity, confidence = say(lang, finding.severity), f"{finding.confidence:.2f}"
    lines = [say(lang, "finding", id=finding.id, severity=severity, confidence=confidence, title=finding.title)]
    lines += [say(lang, "evidence", text=agreeing_in(lang, item.text)) for item in finding.evidence]
    lines += [say(lang, "cause", text=agreeing_in(lang, finding.cause)), say(lang, "falsifier", text=finding.falsifier)]
    return lines


def plan_lines(plan: Plan, lang: str = "en") -> list[str]:
    """A plan: what would be done first, the alternatives, and what was left out."""
    if not plan.steps and not plan.refused:
        return [say(lang, "plan_empty")]
    lines = [say(lang, "plan")]
    for place, step in enumerate(plan.steps, 1):
        lines += step_lines(place, step, lang)
    lines += [say(lang, "left_out", knob=knob_text(knob), reason=reason) for knob, reason in plan.refused]
    return lines


def knob_text(knob: str) -> str:
    """A knob of the engine by its name; what is no setting of it in words."""
    known = knob in knob_table() and knob_table()[knob].engine is not None
    return knob if known else knob.replace("_", " ")


def step_lines(place: int, step: PlanStep, lang: str = "en") -> list[str]:
    """One step with its cost and who pays."""
    action = step.action
    live = action.live and is_live(action)
    how = ("drain" if is_drain(action) else "live") if live else "restart" if action.flag else "by_hand"
    risk = say(lang, action.risk)
    head = {
        "place": place,
        "change": change_of(step, lang),
        "how": say(lang, how),
        "risk": say(lang, "no_way_back", risk=risk) if is_order(action) else risk,
        "flag": say(lang, "step_flag", flag=action.flag) if action.flag else "",
        "finding": step.finding,
    }
    lines = [say(lang, "step", **head), say(lang, "why", text=agreeing_in(lang, action.why))]
    if action.cost:
        lines.append(say(lang, "cost", text=agreeing_in(lang, action.cost)))
    if loser(action):
        lines.append(say(lang, "loser", text=loser(action, lang)))
    return lines


def change_of(step: PlanStep, lang: str = "en") -> str:
    """What a step changes, all its knobs; what has no values, such as an order, in words."""
    action = step.action
    if is_order(action) or (action.from_value is None and action.to_value is None):
        return means(action.name, lang) or say(lang, action.change, knob=knob_text(action.knob))
    old = dict(step.undo_also)
    moves = [(action.knob, action.from_value, action.to_value)]
    moves += [(knob, old.get(knob), value) for knob, value in action.also if knob in old or not old]
    texts = [f"{knob} {plain(before, lang)} -> {plain(after, lang)}" for knob, before, after in moves]
    return say(lang, "and").join(texts)


def plain(value: object, lang: str = "en") -> str:
    """A knob's value for people."""
    return say(lang, "unset") if value is None else str(value)


def compare_lines(
    before: Measured, after: Measured, lang: str = "en", neighbours: Neighbours | None = None
) -> list[str]:
    """The before/after table of two windows, with what other programs took where that is known."""
    if not before.load() and not after.load():
        return [say(lang, "no_load")]
    spans = [f"{window.end - window.begin:.0f}" for window in (before, after)]
    rows = [("", say(lang, "before", seconds=spans[0]), say(lang, "after", seconds=spans[1]))]
    rows += latency_rows(before, after, lang)
    rows += [throughput_row(say(lang, "tokens/s"), before.tokens_per_second(), after.tokens_per_second())]
    documents = before.documents_per_second(), after.documents_per_second()
    if documents[0].n or documents[1].n:
        rows.append(throughput_row(say(lang, "documents/s"), *documents))
    rows.append(shares_row(lang, "failed_requests", before.errors(), after.errors()))
    if before.cut_prompts()[0] or after.cut_prompts()[0]:
        rows.append(shares_row(lang, "cut_prompts", before.cut_prompts(), after.cut_prompts()))
    if neighbours is not None:
        rows.append(neighbours_row(lang, neighbours))
    width = max(cell_len(row[0]) for row in rows)
    head = say(lang, "at_client" if after.source == "client" else "by_server")
    return [head] + [f"  {padded(name, width)}  {flush(one)}  {flush(two)}" for name, one, two in rows]


def neighbours_row(lang: str, neighbours: Neighbours) -> Row:
    """Cores that other programs took, before and after."""
    uses = (neighbours.before, neighbours.after)
    texts = [say(lang, "of_cores", count=f"{use.others:.2f}", total=use.cores) for use in uses]
    return say(lang, "other_programs"), texts[0], texts[1]


def shares_row(lang: str, key: str, before: tuple[int, int], after: tuple[int, int]) -> Row:
    """So many of so many, before and after."""
    texts = [say(lang, "of", count=count, total=total) for count, total in (before, after)]
    return say(lang, key), texts[0], texts[1]


def padded(text: str, width: int) -> str:
    """Text in a column; a Chinese character takes two places of a terminal."""
    return text + " " * (width - cell_len(text))


def flush(text: str) -> str:
    """Text at the right end of its column."""
    return " " * (COLUMN - cell_len(text)) + text


def cell_len(text: str) -> int:
    """Places that the text takes on a terminal."""
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def latency_rows(before: Measured, after: Measured, lang: str = "en") -> list[Row]:
    """P50, P90 and P99 of each latency, by class where the clients say it."""
    found: list[tuple[str, Quantity, Quantity, float]] = []
    if isinstance(before, ClientMeasured) and isinstance(after, ClientMeasured):
        found = [
            (
                f"{cls} {check_text(lang, title)} P{q * 100:.0f}",
                exact(before, cls, key, q),
                exact(after, cls, key, q),
                q,
            )
            for cls in sorted({*before.load(), *after.load()})
            for title, _, key in LATENCIES
            for q in QUANTILES
        ]
    else:
        for title, signal, _ in LATENCIES:
            for q in QUANTILES:
                metric = VerifyMetric(signal=signal, quantile=q, at_most=1.0)
                name = f"{check_text(lang, title)} P{q * 100:.0f}"
                found.append((name, before.metric(metric), after.metric(metric), q))
    shown_rows = [row for row in found if max(row[1].n, row[2].n) >= LEAST_SAMPLES]
    return [(name, cell(one, q, lang), cell(two, q, lang)) for name, one, two, q in shown_rows]


def exact(measured: ClientMeasured, cls: str, key: str, q: float) -> Quantity:
    """One quantile of one class."""
    samples: Sequence[float] = sorted(getattr(measured.window(cls), key))
    return Quantity(percentile(samples, q), len(samples))


def cell(quantity: Quantity, q: float, lang: str = "en") -> str:
    """A quantile with its number of samples."""
    value = shown(quantity.value, quantity.n, q)
    if quantity.value is None:
        return f"{value} (n {quantity.n})"
    return say(lang, "seconds_cell", value=value, n=quantity.n)


def throughput_row(name: str, before: Quantity, after: Quantity) -> Row:
    """A rate before and after."""
    texts = ["-" if q.value is None else f"{q.value:.2f} (n {q.n})" for q in (before, after)]
    return name, texts[0], texts[1]


def check_lines(verdict: Verdict, lang: str = "en") -> list[str]:
    """Each condition of a verdict with its bound."""
    words = {True: "met", False: "not_met", None: "cannot_tell"}
    lines = []
    for check in verdict.checks:
        bound = "" if check.ratio_limit is None else say(lang, "bound", limit=f"{check.ratio_limit:g}")
        ends = {"before": number(check.before), "after": number(check.after)}
        silent = check.before is None and check.after is None
        numbers = "" if silent else say(lang, "numbers", bound=bound, **ends)
        lines.append(f"  {padded(say(lang, words[check.passed]), 11)} {check_text(lang, check.name)}{numbers}")
    return lines


def number(value: float | None) -> str:
    """A number of any size, short."""
    return "-" if value is None else f"{value:.3g}"


def outcome_lines(outcome: Outcome, lang: str = "en") -> list[str]:
    """Table, checks, and what became of the change; without the verdict line.

    The reason and the note are in the language that the fix was run in.
    """
    lines = told_lines(outcome, lang)
    lines += compare_lines(outcome.before, outcome.after, lang, outcome.neighbours)
    lines += [say(lang, "checks"), *check_lines(outcome.verdict, lang)]
    return [*lines, f"  {outcome.verdict.reason}", f"  {outcome.note}"]


def verdict_line(verdict: Verdict, lang: str = "en") -> str:
    """The last line."""
    return say(lang, "verdict", verdict=verdict.verdict, word=say(lang, verdict.verdict))


def told_lines(outcome: Outcome, lang: str = "en") -> list[str]:
    """What the engine told when it did something once: blocks with their last owner and age."""
    told = outcome.applied.told if outcome.applied is not None else {}
    blocks = reclaimed_blocks(told)
    lines = [
        say(lang, "block", block=row["block"], owner=row["owner"], age=f"{float(row['age_seconds']):.1f}")
        for row in blocks[:SHOWN_BLOCKS]
    ]
    more = len(blocks) - len(lines)
    lines += [say(lang, "more", n=more)] if more > 0 else []
    return [agreeing_in(lang, say(lang, "given_back", n=len(blocks))), *lines] if blocks else []


def reclaimed_blocks(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Leaked blocks of an answer of /admin/defragment, the oldest first; without those that lack a field."""
    rows = told.get("reclaimed")
    blocks = [row for row in (rows if isinstance(rows, list) else []) if isinstance(row, dict)]
    known = [
        row for row in blocks if "block" in row and "owner" in row and isinstance(row.get("age_seconds"), int | float)
    ]
    return sorted(known, key=lambda row: -float(row["age_seconds"]))
