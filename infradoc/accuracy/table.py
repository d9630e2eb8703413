"""docs/accuracy.md: what the rules get right and wrong on labelled cases, finding by finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from infradoc.accuracy.first_runs import FirstRun, first_run_lines
from infradoc.accuracy.score import SHARES, Row, shares

_MEANS = {
    "top1": "the first finding at warning or above is the expected one (or one that the label accepts)",
    "any": "an expected or accepted finding is among those at warning or above",
    "forbid": "a finding that the label forbids is among them; lower is better",
    "false_alarm": "a healthy case has any finding at warning or above; lower is better",
    "fix": "one of the first two actions changes a labelled knob in the labelled direction",
}


def markdown(rows: Sequence[Row], command: str, first_runs: Sequence[FirstRun] = ()) -> str:
    """The page. command: how to make it again; first_runs: how batches were scored before they were learnt from."""
    unseen = first_run_lines(first_runs)
    known = (*_head(rows, command), *unseen, "## Cases that the rules know", "", *_summary(rows))
    return "\n".join([*known, *_findings(rows), *_misses(rows), *_reading(rows), ""])


def line(rows: Sequence[Row]) -> str:
    """One line with all shares and their numbers of cases."""
    parts = [f"{name} {_share(value)} (n={n})" for name, (value, n) in shares(rows).items()]
    return f"{len(rows)} cases: {', '.join(parts)}, errors {sum(1 for row in rows if row.error)}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _head(rows: Sequence[Row], command: str) -> Iterator[str]:
    yield "# Accuracy of post-mortems"
    yield ""
    yield f"Made by `{command}` from {len(rows)} labelled cases. Do not edit: run it again."
    yield ""


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "| share | value | cases | what it counts |"
    yield "|---|---|---|---|"
    for name, (value, n) in shares(rows).items():
        yield f"| {name} | {_share(value)} | {n} | {_MEANS[name]} |"
    yield ""


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    """Per finding: how often it was expected and came first, how often it came where it was not accepted."""
    expected = Counter(row.label.expect[0] for row in rows)
    first = Counter(row.label.expect[0] for row in rows if row.votes["top1"])
    fixes = Counter(row.label.expect[0] for row in rows if "fix" in row.votes)
    fixed = Counter(row.label.expect[0] for row in rows if row.votes.get("fix"))
    wrong: Counter[str] = Counter()
    for row in rows:
        accepted = {*row.label.expect, *row.label.also_ok}
        wrong.update(name for name in set(row.ids) if name not in accepted)
    yield "| finding | cases | right first | error rate | fix right | said where not accepted |"
    yield "|---|---|---|---|---|---|"
    for name in sorted({*expected, *wrong}):
        count = expected[name]
        rate = f"{1 - first[name] / count:.2f}" if count else "-"
        fix = f"{fixed[name]}/{fixes[name]}" if fixes[name] else "-"
        yield f"| {name} | {count} | {first[name]} | {rate} | {fix} | {wrong[name]} |"
    yield ""


def _misses(rows: Sequence[Row]) -> Iterator[str]:
    short = [row.short for row in rows if row.short]
    yield "## Cases that fall short"
    yield ""
    yield from (f"- {text}" for text in short) if short else ("None.",)
    yield ""


def _reading(rows: Sequence[Row]) -> Iterator[str]:
    healthy = sum(row.label.healthy for row in rows)
    yield "## What the numbers mean"
    yield ""
    interval = _interval(0.95, len(rows))
    yield (
        f"With {len(rows)} cases a share of 0.95 has a 95 % interval of about {interval}, and no false alarm in "
        f"{healthy} healthy cases still allows a true rate of up to {_none_seen(healthy)}. Most findings have one or "
        "two cases: a row of the second table says that the rule can see its cause, not how often "
        "it errs. Rules were written with these cases in view, so a share on cases that "
        "nobody has seen is lower; add your own (below) to know yours."
    )
    yield ""
    yield "## Add your own"
    yield ""
    yield "A folder a case: the files as they were, and a `label.yaml`:"
    yield ""
    yield "```yaml"
    yield "system: vllm"
    yield "expect: [oom-no-kv-blocks]       # or [healthy]; the first one is the cause"
    yield "also_ok: []                      # accepted as well"
    yield "forbid: [oom-sampler-warmup]     # must not be said"
    yield "fix: {gpu_memory_utilization: increase}   # knob: increase, decrease, enable, disable, fix or {set: VALUE}"
    yield "```"
    yield ""
    yield "`infradoc rules test --cases DIR` prints a line for each case that falls short. No label is read as input."


def _interval(share: float, n: int) -> str:
    """Wilson's 95 % interval."""
    if not n:
        return "0 to 1"
    z = 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * ((share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5) / (1 + z * z / n)
    return f"{middle - half:.2f} to {min(1.0, middle + half):.2f}"


def _none_seen(n: int) -> str:
    """The rate that would show itself in n cases with a probability of 95 %."""
    return f"{1 - 0.05 ** (1 / n):.2f}" if n else "1"


__all__ = ["SHARES", "line", "markdown"]
