"""The diagnoses that come near what was found, each with the reason why it was set aside.

Asked after the verdict, and only of the rules that may be mistaken for a finding: its rivals, what explains it or is
explained by it, and what holds in all but one point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from infradoc_rules.conditions import judge_sign, variables
from infradoc_rules.considered_parts import Part, live_part, match_part
from infradoc_rules.considered_words import fixed, need, place, sentence, table, worded
from infradoc_rules.engine import told_values
from infradoc_rules.model import SEVERITY_RANK, Finding, SignalFrame, Value
from infradoc_rules.schema import Condition, Rule
from infradoc_rules.texts import render

MOST = 4  # more than a reader would weigh
_ALIKE = 2  # of one reason in the same words
_GAPS = 1  # of those that only lack material
_MARGIN = 2.0  # times; a number that misses its limit by more is not near it
_MISS = 1.2  # the same on a healthy target: thresholds are set well above what healthy ones show
_FAILED, _ABSENT, _UNKNOWN = 0.6, 0.2, 0.4  # what a condition counts against its branch; one that holds counts 1 for it
_SIGN = 0.2  # a supporting sign that is there
_RIVAL, _STEP, _EXPLAINS = 1.5, 0.1, 0.3  # a tie: of the likeliest rival, less for each further one, of an explanation


@dataclass(frozen=True, slots=True)
class Considered:
    """A diagnosis that was set aside. `source` is the line that decided, where there is one."""

    id: str
    title: str
    why: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class _Near:
    """A rule's nearest branch after it was looked at."""

    rule: Rule
    parts: tuple[Part, ...]
    score: float

    @property
    def failed(self) -> list[Part]:
        return [part for part in self.parts if part.holds is False]

    @property
    def held(self) -> list[Part]:
        return [part for part in self.parts if part.holds and part.telling >= 1]


def considered(
    found: Sequence[Finding],
    rules: Iterable[Rule],
    frame: SignalFrame,
    lang: str = "en",
    live: bool = False,
) -> list[Considered]:
    """At most MOST diagnoses, the nearest first; none of them is among the findings at warning or above.

    found: ranked and folded. rules: those that could be judged. live: whether the conditions over series are asked
    rather than those over events and facts.
    """
    loud = [finding for finding in found if SEVERITY_RANK[finding.severity] >= 1]
    known = {rule.id: rule for rule in rules}
    symptoms = [finding for finding in found if finding.role == "symptom" and finding not in loud]
    echoes = [echo for finding in symptoms if (echo := _echo(finding, found, lang)) is not None]
    rest = [rule for name, rule in known.items() if all(finding.id != name for finding in found)]
    ties = {rule.id: _tie(rule, loud, known) for rule in rest}
    tied = [rule for rule in rest if ties[rule.id] > 0] if loud else rest
    most = None if loud else 1
    near = [one for rule in tied if (one := _nearest(rule, frame, live, ties[rule.id], most)) is not None]
    kept = [one for one in near if _counts(one, bool(loud), ties[one.rule.id])]
    shared = _shared(loud, known)
    told = ((_set_aside(one, shared, frame, live, lang), bool(one.failed)) for one in sorted(kept, key=_order))
    rest_told = _without_repeats((one, known) for one, known in told if one is not None)
    return [*echoes[:MOST], *islice(rest_told, max(0, MOST - len(echoes)))]


def _order(one: _Near) -> tuple[bool, float, str]:
    """What is known to fail comes before what is not known; the nearest first."""
    return not one.failed, -one.score, one.rule.id


def _echo(finding: Finding, found: Sequence[Finding], lang: str) -> Considered | None:
    root = next((one.id for one in found if finding.id in one.explains), None)
    if root is None:
        return None
    against = next((entry for entry in finding.evidence if entry.weight < 0), None)
    source = next((entry.source for entry in (against, *finding.evidence) if entry and entry.source), None)
    if against is not None:
        why = fixed("echo_against", lang, root=root, text=against.text)
    else:
        why = fixed("echo", lang, root=root)
    return Considered(finding.id, finding.title, why, source)


def _tie(rule: Rule, loud: Sequence[Finding], known: Mapping[str, Rule]) -> float:
    """How easily the rule is taken for one of the findings, the first above all; 0 when it is not."""
    best = 0.0
    for rank, finding in enumerate(loud):
        rivals = table()["rivals"].get(finding.id, ())
        likely = _RIVAL - _STEP * rivals.index(rule.id) if rule.id in rivals else 0.0
        root = known.get(finding.id)
        explains = root is not None and (rule.id in root.explains or root.id in rule.explains)
        best = max(best, (likely + _EXPLAINS * explains) / (1 + rank))
    return best


def _nearest(rule: Rule, frame: SignalFrame, live: bool, tie: float, most: int | None) -> _Near | None:
    """The branch that comes nearest; None where one holds: the rule fires, or fired for too short a time.

    most: how many conditions of a branch may fail; None = all.
    """
    names = variables(rule, frame)
    look = partial(live_part if live else match_part, frame=frame, names=names)
    conditions = rule.live if live else rule.post_mortem
    looked = [_looked(branch.when, look, most) for branch in (conditions.branches if conditions else ())]
    branches = [parts for parts in looked if parts is not None]
    near = [_Near(rule, parts, _closeness(parts) + tie) for parts in branches]
    best = max(near, key=lambda one: one.score, default=None)
    if best is None or any(all(one.holds for one in parts) for parts in branches):
        return None
    signs = [look(sign) for sign in rule.supports if (sign.match is None) is live]
    return replace(best, score=best.score + _SIGN * sum(sign.telling for sign in signs if sign.holds))


def _looked(items: Iterable[Condition], look: Callable[[Condition], Part], most: int | None) -> tuple[Part, ...] | None:
    """The conditions of a branch; None as soon as more than `most` of them do not hold."""
    parts: list[Part] = []
    missed = 0
    for item in items:
        parts.append(look(item))
        missed += not parts[-1].holds
        if most is not None and missed > most:
            return None
    return tuple(parts)


def _closeness(parts: Sequence[Part]) -> float:
    held = sum(part.telling for part in parts if part.holds)
    failed = sum(_weight(part) for part in parts if part.holds is False)
    unknown = sum(_UNKNOWN for part in parts if part.holds is None)
    return (held - failed - unknown) / max(1.0, len(parts) / 2)


def _weight(part: Part) -> float:
    """How much a failed condition speaks against: half where a number misses by little, more where nothing is there."""
    if _by_little(part):
        return 0.5 * _FAILED
    return _FAILED + (_ABSENT if part.event is not None else 0.0)


def _by_little(part: Part, margin: float = _MARGIN) -> bool:
    if not part.numeric or not part.value or not part.limit:
        return False
    ratio = float(part.value) / float(part.limit)
    return 1 / margin <= ratio <= margin


def _counts(one: _Near, sick: bool, tie: float) -> bool:
    """Whether it is worth a line. Beside a finding a rival always is; on a healthy target only a near miss."""
    if sick:
        return tie > _EXPLAINS or (bool(one.held) and all(not part.numeric or _by_little(part) for part in one.failed))
    missing = [part for part in one.parts if not part.holds]
    return len(missing) == 1 and len(one.held) >= 1 and _by_little(missing[0], _MISS)


def _shared(loud: Sequence[Finding], known: Mapping[str, Rule]) -> frozenset[str]:
    """Conditions of the findings themselves: that they hold is said there."""
    rules = [known[finding.id] for finding in loud if finding.id in known]
    parts = [part for rule in rules for part in (rule.post_mortem, rule.live) if part is not None]
    return frozenset(
        item.match or item.expr or "" for part in parts for branch in part.branches for item in branch.when
    )


def _set_aside(one: _Near, shared: frozenset[str], frame: SignalFrame, live: bool, lang: str) -> Considered | None:
    rule = one.rule
    names = variables(rule, frame)
    values: dict[str, Value | None] = dict(told_values(rule, frame, names))
    takes = render(rule.set_aside.get(lang), values) if rule.set_aside is not None else None
    title = render(rule.title.get(lang), values)
    for part in _most_telling(one.failed):
        seen = sentence(part, frame, values, lang)
        if seen is None:
            continue
        text = _with_held(one, seen, shared, frame, values, lang)
        wanted = need(part, lang)
        if takes is not None and not (live and wanted is not None):
            text = fixed("with", lang, seen=text, need=takes)
        elif wanted is not None:
            text = fixed("needs", lang, seen=text, need=wanted)
        return Considered(rule.id, title, text, place(part, frame))
    if not one.failed and takes is not None:
        return Considered(rule.id, title, fixed("not_given", lang, need=takes))
    return _contradicted(rule, title, frame, values, lang)


def _contradicted(
    rule: Rule, title: str, frame: SignalFrame, values: Mapping[str, Value | None], lang: str
) -> Considered | None:
    """Where no condition has words: what speaks against the rule by its own account."""
    for sign in rule.against:
        seen = judge_sign(sign, frame, variables(rule, frame))
        if seen.holds:
            reading = seen.readings[0]
            said = render(sign.text.get(lang), {**values, "value": reading.value})
            return Considered(rule.id, title, said, reading.source)
    return None


def _with_held(
    one: _Near, seen: str, shared: frozenset[str], frame: SignalFrame, values: Mapping[str, Value | None], lang: str
) -> str:
    """What speaks for the diagnosis before what speaks against it."""
    for part in one.held:
        if not worded(part) and (part.condition.match is not None or part is not one.parts[0]):
            continue  # a condition's own text leans on those before it
        said = sentence(part, frame, values, lang)
        if said is not None and said != seen and (part.condition.match or part.condition.expr) not in shared:
            return fixed("but", lang, held=said, seen=seen)
    return seen


def _most_telling(failed: Sequence[Part]) -> list[Part]:
    """Failed conditions: what is not there at all first, as facts on it are empty then; what many lack comes last."""
    return sorted(failed, key=lambda part: (part.fact in ("oom.at_start", "start.failed"), part.event is None))


def _without_repeats(told: Iterable[tuple[Considered, bool]]) -> Iterator[Considered]:
    """Not one reason again and again, and of what the material does not show only the likeliest."""
    said: dict[str, int] = {}
    gaps = 0
    for one, known in told:
        said[one.why] = said.get(one.why, 0) + 1
        gaps += not known
        if said[one.why] <= _ALIKE and (known or gaps <= _GAPS):
            yield one
