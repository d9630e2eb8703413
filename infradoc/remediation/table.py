"""Plans, windows and verdicts as text and as data, the same for `fix` and `demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infradoc.load.stats import percentile, shown
from infradoc.model import Plan, PlanStep, Verdict
from infradoc.plurals import agreeing, counted
from infradoc.remediation.measure import ClientMeasured, Measured, Quantity
from infradoc.remediation.plan import is_drain, is_live, is_order, loser
from infradoc.remediation.run import Outcome
from infradoc_rules.actions import means
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Finding
from infradoc_rules.schema import VerifyMetric

SHOWN_BLOCKS = 5  # of those that were given back; the data has them all
QUANTILES = (0.5, 0.9, 0.99)
LEAST_SAMPLES = 2  # in either window: a row of "-" says nothing
LATENCIES = (
    ("TTFT", "client_time_to_first_token_seconds", "ttft"),
    ("ITL", "client_inter_token_latency_seconds", "itl"),
    ("end-to-end", "client_request_seconds", "e2e"),
)
SAID = {  # as `check` names them in the JSON: as people say them
    **{signal: title for title, signal, _ in LATENCIES},
    "llm_kv_leaked_block_age_seconds": "age of the oldest leaked block (s)",
    "llm_generation_tokens_total": "tokens a second",
    "llm_oom_total": "out-of-memory steps a second",
    "llm_requests_truncated_total": "cut prompts a second",
    "torch_alloc_retries_total": "retries of the allocator a second",
}
Row = tuple[str, str, str]


def finding_lines(finding: Finding) -> list[str]:
    """A finding with its evidence."""
    lines = [f"finding: {finding.id} ({finding.severity}, confidence {finding.confidence:.2f}): {finding.title}"]
    lines += [f"  evidence: {agreeing(item.text)}" for item in finding.evidence]
    lines += [f"  cause:    {agreeing(finding.cause)}", f"  wrong if: {finding.falsifier}"]
    return lines


def plan_lines(plan: Plan) -> list[str]:
    """A plan: what would be done first, the alternatives, and what was left out."""
    if not plan.steps and not plan.refused:
        return ["plan: nothing to change"]
    lines = ["plan:"]
    for place, step in enumerate(plan.steps, 1):
        lines += step_lines(place, step)
    lines += [f"  left out: {knob_text(knob)}: {reason}" for knob, reason in plan.refused]
    return lines


def knob_text(knob: str) -> str:
    """A knob of the engine by its name; what is no setting of it in words."""
    known = knob in knob_table() and knob_table()[knob].engine is not None
    return knob if known else knob.replace("_", " ")


def step_lines(place: int, step: PlanStep) -> list[str]:
    """One step with its cost and who pays."""
    action = step.action
    live = action.live and is_live(action)
    how = ("live, through a drain" if is_drain(action) else "live") if live else "restart" if action.flag else "by hand"
    risk = f"{action.risk}, nothing to take back" if is_order(action) else action.risk
    flag = f"; {action.flag}" if action.flag else ""
    lines = [f"  {place}. {change_of(step)}  [{how}, {risk}{flag}]  for {step.finding}"]
    lines.append(f"     why:   {agreeing(action.why)}")
    if action.cost:
        lines.append(f"     cost:  {agreeing(action.cost)}")
    if loser(action):
        lines.append(f"     loser: {loser(action)}")
    return lines


def change_of(step: PlanStep) -> str:
    """What a step changes, all its knobs; what has no values, such as an order, in words."""
    action = step.action
    if is_order(action) or (action.from_value is None and action.to_value is None):
        return means(action.name) or f"{action.change} {knob_text(action.knob)}"
    old = dict(step.undo_also)
    moves = [(action.knob, action.from_value, action.to_value)]
    moves += [(knob, old.get(knob), value) for knob, value in action.also if knob in old or not old]
    return " and ".join(f"{knob} {plain(before)} -> {plain(after)}" for knob, before, after in moves)


def plain(value: object) -> str:
    """A knob's value for people."""
    return "unset" if value is None else str(value)


def compare_lines(before: Measured, after: Measured) -> list[str]:
    """The before/after table of two windows."""
    where = "at the client" if after.source == "client" else "by the server (no client measurements)"
    if not before.load() and not after.load():
        return ["nothing to compare: no load before or after"]
    rows = [("", f"before ({before.end - before.begin:.0f} s)", f"after ({after.end - after.begin:.0f} s)")]
    rows += latency_rows(before, after)
    rows += [throughput_row("tokens/s", before.tokens_per_second(), after.tokens_per_second())]
    if before.documents_per_second().n or after.documents_per_second().n:
        rows.append(throughput_row("documents/s", before.documents_per_second(), after.documents_per_second()))
    failed = [f"{bad} of {total}" for bad, total in (before.errors(), after.errors())]
    rows.append(("failed requests", failed[0], failed[1]))
    cut = [before.cut_prompts(), after.cut_prompts()]
    if any(count for count, _ in cut):
        rows.append(("cut prompts", f"{cut[0][0]} of {cut[0][1]}", f"{cut[1][0]} of {cut[1][1]}"))
    width = max(len(row[0]) for row in rows)
    return [f"measured {where}:"] + [f"  {name:<{width}}  {one:>20}  {two:>20}" for name, one, two in rows]


def latency_rows(before: Measured, after: Measured) -> list[Row]:
    """P50, P90 and P99 of each latency, by class where the clients say it."""
    found: list[tuple[str, Quantity, Quantity, float]] = []
    if isinstance(before, ClientMeasured) and isinstance(after, ClientMeasured):
        found = [
            (f"{cls} {title} P{q * 100:.0f}", exact(before, cls, key, q), exact(after, cls, key, q), q)
            for cls in sorted({*before.load(), *after.load()})
            for title, _, key in LATENCIES
            for q in QUANTILES
        ]
    else:
        for title, signal, _ in LATENCIES:
            for q in QUANTILES:
                metric = VerifyMetric(signal=signal, quantile=q, at_most=1.0)
                found.append((f"{title} P{q * 100:.0f}", before.metric(metric), after.metric(metric), q))
    shown_rows = [row for row in found if max(row[1].n, row[2].n) >= LEAST_SAMPLES]
    return [(name, cell(one, q), cell(two, q)) for name, one, two, q in shown_rows]


def exact(measured: ClientMeasured, cls: str, key: str, q: float) -> Quantity:
    """One quantile of one class."""
    samples: Sequence[float] = sorted(getattr(measured.window(cls), key))
    return Quantity(percentile(samples, q), len(samples))


def cell(quantity: Quantity, q: float) -> str:
    """A quantile with its number of samples."""
    return (
        f"{shown(quantity.value, quantity.n, q)} s (n {quantity.n})"
        if quantity.value is not None
        else (f"{shown(None, quantity.n, q)} (n {quantity.n})")
    )


def throughput_row(name: str, before: Quantity, after: Quantity) -> Row:
    """A rate before and after."""
    texts = ["-" if q.value is None else f"{q.value:.2f} (n {q.n})" for q in (before, after)]
    return name, texts[0], texts[1]


def check_lines(verdict: Verdict) -> list[str]:
    """Each condition of a verdict with its bound."""
    words = {True: "met", False: "NOT met", None: "cannot tell"}
    lines = []
    for check in verdict.checks:
        bound = "" if check.ratio_limit is None else f", bound {check.ratio_limit:g} x before"
        numbers = (
            ""
            if check.before is None and check.after is None
            else f": {number(check.before)} -> {number(check.after)}{bound}"
        )
        lines.append(f"  {words[check.passed]:<11} {in_words(check.name)}{numbers}")
    return lines


def in_words(text: str) -> str:
    """A check or a reason with names of signals as people say them."""
    for signal, said in SAID.items():
        text = text.replace(signal, said)
    return text


def number(value: float | None) -> str:
    """A number of any size, short."""
    return "-" if value is None else f"{value:.3g}"


def outcome_lines(outcome: Outcome) -> list[str]:
    """Table, checks, and what became of the change; without the verdict line."""
    lines = told_lines(outcome)
    lines += compare_lines(outcome.before, outcome.after)
    lines += ["checks:", *check_lines(outcome.verdict), f"  {in_words(outcome.verdict.reason)}", f"  {outcome.note}"]
    return lines


def told_lines(outcome: Outcome) -> list[str]:
    """What the engine told when it did something once: blocks with their last owner and age."""
    told = outcome.applied.told if outcome.applied is not None else {}
    blocks = reclaimed_blocks(told)
    lines = [
        f"  block {row['block']}, last of request {row['owner']}, lost for {float(row['age_seconds']):.1f} s"
        for row in blocks[:SHOWN_BLOCKS]
    ]
    more = len(blocks) - len(lines)
    lines += [f"  and {more} more"] if more > 0 else []
    return [f"given back: {counted(len(blocks), 'leaked block')}, the oldest first", *lines] if blocks else []


def reclaimed_blocks(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Leaked blocks of an answer of /admin/defragment, the oldest first; without those that lack a field."""
    rows = told.get("reclaimed")
    blocks = [row for row in (rows if isinstance(rows, list) else []) if isinstance(row, dict)]
    known = [
        row for row in blocks if "block" in row and "owner" in row and isinstance(row.get("age_seconds"), int | float)
    ]
    return sorted(known, key=lambda row: -float(row["age_seconds"]))


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The same as data."""
    applied = outcome.applied
    entry = None if applied is None else applied.entry
    return {
        "verdict": outcome.verdict.verdict,
        "reason": outcome.verdict.reason,
        "note": outcome.note,
        "change": None
        if entry is None
        else {
            "knob": entry.knob,
            "from": entry.old,
            "to": entry.new,
            "also": [{"knob": knob, "from": old, "to": new} for knob, old, new in entry.also],
            "id": entry.change,
            "told": dict(applied.told) if applied is not None else {},
        },
        "undone": outcome.undone,
        "settle_seconds": round(outcome.settle_seconds, 2),
        "settled": outcome.settled,
        "measured_at": outcome.after.source,
        "windows": {
            "before": [round(outcome.before.begin, 3), round(outcome.before.end, 3)],
            "after": [round(outcome.after.begin, 3), round(outcome.after.end, 3)],
        },
        "checks": [
            {
                "name": check.name,
                "before": check.before,
                "after": check.after,
                "n_before": check.n_before,
                "n_after": check.n_after,
                "ratio_limit": check.ratio_limit,
                "passed": check.passed,
            }
            for check in outcome.verdict.checks
        ],
        "table": [
            {"name": name, "before": one, "after": two}
            for name, one, two in latency_rows(outcome.before, outcome.after)
        ],
    }


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as data."""
    steps = [
        {
            "finding": step.finding,
            "action": step.action.name,
            "knob": step.action.knob,
            "from": step.action.from_value,
            "to": step.action.to_value,
            "also": dict(step.action.also),
            "flag": step.action.flag,
            "live": step.action.live and is_live(step.action),
            "drain": is_drain(step.action),
            "cost": step.action.cost,
            "loser": loser(step.action),
            "undo_value": step.undo_value,
            "undo_also": dict(step.undo_also),
        }
        for step in plan.steps
    ]
    return {"target": plan.target, "steps": steps, "refused": [{"knob": k, "reason": r} for k, r in plan.refused]}
