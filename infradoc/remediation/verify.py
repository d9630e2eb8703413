"""The judge: two windows of measurements and a rule's word in, a verdict out. Pure.

`fixed` needs every check: the rule is quiet, the rule's named metrics are better by its stated ratio, throughput is
not below its share of before, errors are not up; and the load must have been the same. `worse` is said only of a
clear loss, because a change without effect also moves by the noise of a short window; a smaller loss is `not_fixed`,
and both are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infradoc.model import Check, Verdict, VerdictName
from infradoc.remediation.measure import LoadShape, Measured, Quantity
from infradoc.remediation.neighbours import Neighbours, others_took, rests_on_speed
from infradoc.remediation.words import check_text, say
from infradoc_rules.model import Value
from infradoc_rules.schema import Verify, VerifyMetric

SAME_LOAD = 0.25  # lengths are drawn at random: two honest windows of 20 requests differ by up to a fifth
CLEAR_LOSS = 0.7  # of throughput
CLEARLY_SLOWER = 1.5  # of a named latency up to the 90th percentile; higher ones are too noisy in short windows
ERRORS_UP = 0.05
MIN_SAMPLES = 5
THROUGHPUTS = ("tokens/s", "documents/s")


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged. `quiet` is None when the rule could not be evaluated after the change."""

    before: Measured
    after: Measured
    quiet: bool | None
    rule: str
    verify: Verify
    alone: bool = False  # something done once on an engine without load: there is nothing to compare
    lang: str = "en"  # of the reason; names of checks are the same in every language
    neighbours: Neighbours | None = None  # what others took of the machine, where that can be told


def judge(case: Case) -> Verdict:
    """The verdict with all its checks; missing samples give `inconclusive`, never `fixed`."""
    if case.alone:
        return judge_alone(case)
    checks = (rule_check(case), *metric_checks(case), *throughput_checks(case), error_check(case), *cut_checks(case))
    facts: dict[str, Value] = {"measured_at": case.after.source, "rule": case.rule}
    difference = load_difference(case.before.load(), case.after.load(), case.lang)
    others = case.neighbours if case.neighbours is not None and case.neighbours.moved else None
    if difference is not None:
        told = [] if others is None else [others_took(others, case.lang)]
        return Verdict("inconclusive", checks, sentences([difference, *told], case.lang), facts)
    name, reason = conclude(case, checks) if others is None else conclude_beside(case, checks, others)
    if case.after.source == "server":
        reason += say(case.lang, "server_only")
    return Verdict(name, checks, reason, facts)


def judge_alone(case: Case) -> Verdict:
    """What can be said without load: whether the rule is quiet, and what it names where that was measured."""
    measured = [check for check in metric_checks(case) if check.passed is not None]
    checks = (rule_check(case), *measured)
    facts: dict[str, Value] = {"measured_at": case.after.source, "rule": case.rule}
    failed = [check.name for check in checks if check.passed is False]
    if failed:
        return Verdict("not_fixed", checks, say(case.lang, "failed_checks", checks=joined(failed, case.lang)), facts)
    if case.quiet is None:
        return Verdict("inconclusive", checks, say(case.lang, "no_judgement", rule=case.rule), facts)
    return Verdict("fixed", checks, say(case.lang, "fixed_alone"), facts)


def conclude(case: Case, checks: tuple[Check, ...]) -> tuple[VerdictName, str]:
    """Name and reason from the checks."""
    losses = clear_losses(case, checks)
    if losses:
        return "worse", say(case.lang, "after_change", losses=say(case.lang, "between").join(losses))
    failed = [check.name for check in checks if check.passed is False]
    if failed:
        return "not_fixed", say(case.lang, "failed_checks", checks=joined(failed, case.lang))
    unknown = [check.name for check in checks if check.passed is None]
    if unknown:
        return "inconclusive", say(case.lang, "too_few", checks=joined(unknown, case.lang))
    return "fixed", say(case.lang, "all_met")


def conclude_beside(case: Case, checks: tuple[Check, ...], others: Neighbours) -> tuple[VerdictName, str]:
    """Name and reason where others took much more or less of the machine in one of the windows.

    Only what speed does not decide is weighed: shares of errors and cut answers, and where the rule names nothing but
    counts and states, those and the rule itself. Such a fix also needs its throughput to be within the bound.
    """
    told = others_took(others, case.lang)
    by_speed = rests_on_speed(case.verify)
    weighed = tuple(check for check in checks if is_share(check) or not (by_speed or check.name in THROUGHPUTS))
    name, reason = conclude(case, weighed)
    within = all(check.passed for check in checks if check.name in THROUGHPUTS)
    if (by_speed and name != "worse") or (name == "fixed" and not within):
        return "inconclusive", told + say(case.lang, "run_again")
    return name, sentences([reason, told], case.lang)


def is_share(check: Check) -> bool:
    """Whether this is a share of requests: of errors or of cut answers."""
    return check.name.startswith("share of ")


def sentences(texts: Sequence[str], lang: str) -> str:
    """Sentences in a row; Chinese ones stand without a space."""
    return ("" if lang == "zh" else " ").join(texts)


def joined(names: Sequence[str], lang: str) -> str:
    """Names of checks in one line."""
    return say(lang, "between").join(check_text(lang, name) for name in names)


def rule_check(case: Case) -> Check:
    """Whether the rule has stopped firing."""
    quiet = case.quiet
    return Check(f"{case.rule} is quiet", 1.0, None if quiet is None else float(not quiet), 1, 1, None, quiet)


def metric_checks(case: Case) -> list[Check]:
    """One check per metric that the rule names."""
    return [
        ratio_check(
            metric_name(metric), case.before.metric(metric), case.after.metric(metric), metric.at_most, metric.at_least
        )
        for metric in case.verify.metrics
    ]


def metric_name(metric: VerifyMetric) -> str:
    """How a metric is shown."""
    parts = [metric.request_class or "", metric.signal]
    if metric.quantile is not None:
        parts.append(f"P{metric.quantile * 100:g}")
    return " ".join(part for part in parts if part)


def ratio_check(name: str, before: Quantity, after: Quantity, at_most: float | None, at_least: float | None) -> Check:
    """after / before against its bound; nothing is said without numbers, or with too few samples on the better side.

    Few samples after many are no excuse: throughput that fell to nothing has failed.
    """
    limit = at_most if at_most is not None else at_least
    passed: bool | None = None
    known = before.n >= MIN_SAMPLES and (after.n >= MIN_SAMPLES or at_least is not None)
    if known and before.value is not None and after.value is not None and limit is not None:
        bound = limit * before.value
        passed = after.value <= bound if at_most is not None else after.value >= bound
    return Check(name, before.value, after.value, before.n, after.n, limit, passed)


def throughput_checks(case: Case) -> list[Check]:
    """Tokens a second, and documents a second where documents are tokenized."""
    pairs = [
        ("tokens/s", case.before.tokens_per_second(), case.after.tokens_per_second()),
        ("documents/s", case.before.documents_per_second(), case.after.documents_per_second()),
    ]
    seen = [pair for pair in pairs if pair[1].value or pair[2].value]
    limit = case.verify.throughput_at_least
    found = []
    for name, before, after in seen or pairs[:1]:
        # Nothing at all where requests did end, every one in an error, is a measurement too.
        asked = Quantity(before.value or 0.0, max(before.n, case.before.errors()[0]))
        check = ratio_check(name, asked, after, None, limit)
        found.append(replace(check, passed=False) if check.passed and not after.value else check)
    return found


def error_check(case: Case) -> Check:
    """The share of failed requests must not rise, or stay below what the rule allows."""
    limit = case.verify.errors_at_most
    if limit is not None:
        return share_check(f"share of errors at most {limit:.0%}", case.before.errors(), case.after.errors(), limit)
    (failed_before, all_before), (failed_after, all_after) = case.before.errors(), case.after.errors()
    before = failed_before / all_before if all_before else None
    after = failed_after / all_after if all_after else None
    passed = None if after is None else after <= (before or 0.0)
    return Check("share of errors", before, after, all_before, all_after, 1.0, passed)


def cut_checks(case: Case) -> list[Check]:
    """The share of answered prompts that were cut, where the rule asks for it."""
    limit = case.verify.cut_at_most
    if limit is None:
        return []
    name = f"share of answers to cut prompts at most {limit:.0%}"
    return [share_check(name, case.before.cut_prompts(), case.after.cut_prompts(), limit)]


def share_check(name: str, before: tuple[int, int], after: tuple[int, int], limit: float) -> Check:
    """A share after the change against a fixed bound; nothing is said of too few."""
    shares = [count / total if total else None for count, total in (before, after)]
    passed = None if shares[1] is None or after[1] < MIN_SAMPLES else shares[1] <= limit
    return Check(name, shares[0], shares[1], before[1], after[1], None, passed)


def clear_losses(case: Case, checks: tuple[Check, ...]) -> list[str]:
    """What is worse beyond noise, in words."""
    metrics = {metric_name(metric): metric for metric in case.verify.metrics}
    failed, finished = case.before.errors()
    steady = finished - failed >= MIN_SAMPLES  # where nearly all fail, the rate of the few that pass is chance
    found = []
    for check in checks:
        if check.before is None or check.after is None or check.passed is not False:
            continue
        metric = metrics.get(check.name)
        loss = min(CLEAR_LOSS, case.verify.throughput_at_least)  # a rule may say that its fix costs more
        if check.name in THROUGHPUTS and steady and check.after < loss * check.before:
            found.append(moved(case, "fell", check_text(case.lang, check.name), check, ".3g"))
        elif check.name.startswith("share of errors") and check.after > check.before + ERRORS_UP:
            found.append(moved(case, "rose", say(case.lang, "errors"), check, ".1%"))
        elif metric is not None and slower(metric, check.before, check.after):
            found.append(moved(case, "rose", check_text(case.lang, check.name), check, ".3g"))
    return found


def moved(case: Case, how: str, what: str, check: Check, form: str) -> str:
    """`what` fell or rose, with both numbers."""
    assert check.before is not None and check.after is not None
    return say(case.lang, how, what=what, before=format(check.before, form), after=format(check.after, form))


def slower(metric: VerifyMetric, before: float, after: float) -> bool:
    """Whether a latency that should fall has clearly risen."""
    return metric.at_most is not None and (metric.quantile or 1.0) <= 0.9 and after > CLEARLY_SLOWER * before


def load_difference(before: dict[str, LoadShape], after: dict[str, LoadShape], lang: str = "en") -> str | None:
    """Why the two windows did not see the same load, as one sentence; None when they did."""
    if not before or not after:
        return say(lang, "no_load_once")
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            return say(lang, "class_missing", name=name)
        what = differs(before[name], after[name], lang)
        if what is not None:
            return say(lang, "load_changed", what=what, name=name)
    return None


def differs(before: LoadShape, after: LoadShape, lang: str = "en") -> str | None:
    """What differs between two shapes.

    A closed loop keeps its concurrency, an open one its arrivals: one is enough. Where clients wait and pace
    themselves, a faster server moves both, but in opposite directions; more or less of both is another load.
    """
    moved = not (near(before.concurrency, after.concurrency) or near(before.arrivals, after.arrivals))
    if moved and (after.concurrency > before.concurrency) == (after.arrivals > before.arrivals):
        return say(lang, "in_flight", before=f"{before.concurrency:.1f}", after=f"{after.concurrency:.1f}")
    if min(before.n, after.n) < MIN_SAMPLES:
        return None
    if before.prompt is not None and after.prompt is not None and not near(before.prompt, after.prompt):
        return say(lang, "prompt_length", before=f"{before.prompt:.0f}", after=f"{after.prompt:.0f}")
    if before.max_tokens is not None and after.max_tokens is not None and not near(before.max_tokens, after.max_tokens):
        return say(lang, "mean_max_tokens", before=f"{before.max_tokens:.0f}", after=f"{after.max_tokens:.0f}")
    return None


def near(one: float, other: float) -> bool:
    """Equal up to the tolerance for the same load."""
    return abs(one - other) <= SAME_LOAD * max(abs(one), abs(other))
