"""A frame that remembers gives the answers of one that does not, and series with other times are not mixed up."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.model import Series
from infradoc_rules.promql import evaluate, parse

QUESTIONS = (
    "sum(rate(x_total[10s]))",
    "sum by (k) (increase(x_total[20s])) / 2",
    "max(rate(x_total[10s])) > 0.5",
    "sum(rate(x_total[10s])) - sum(rate(x_total[10s]))",
    "avg_over_time(x_total[7s])",
    "avg_over_time(x_total[7s] offset 3s)",
    "count(x_total)",
)


@dataclass
class Remembering:
    """A frame with a memo, as the store's has."""

    series: list[Series]
    memo: dict[object, object] = field(default_factory=dict)

    def select(self, name: str) -> list[Series]:
        return [one for one in self.series if one.name == name]


@dataclass
class Plain:
    """The same without one, and with one series at a time, so that nothing can be shared."""

    series: list[Series]

    def select(self, name: str) -> list[Series]:
        return [one for one in self.series if one.name == name]


@st.composite
def scraped(draw):
    """Series of one scrape loop; some miss scrapes, begin late, or end early."""
    moments = [100.0 + second + draw(st.sampled_from((0.0, 0.0004, 0.0006, 0.3))) for second in range(30)]
    found = []
    for number in range(draw(st.integers(1, 5))):
        kept = (
            draw(st.lists(st.sampled_from(moments), min_size=1, max_size=30, unique=True))
            if draw(st.booleans())
            else list(moments)
        )
        kept.sort()
        values = [float(draw(st.integers(0, 50))) for _ in kept]
        found.append(Series("x_total", {"k": str(number)}, kept, values))
    return found


@given(scraped(), st.integers(100, 131))
def test_the_memo_changes_no_answer(series, now):
    remembering = Remembering(series)
    for _ in range(2):
        for text in QUESTIONS:
            expr = parse(text)
            assert evaluate(expr, remembering, now) == evaluate(expr, Plain(series), now), text


@given(scraped(), st.integers(100, 131))
def test_series_are_cut_by_their_own_times(series, now):
    together = evaluate(parse("avg_over_time(x_total[7s])"), Plain(series), now)
    alone = [element for one in series for element in evaluate(parse("avg_over_time(x_total[7s])"), Plain([one]), now)]
    assert sorted(together, key=str) == sorted(alone, key=str)


def test_negative_zero_is_not_taken_for_zero():
    frame = Remembering([])
    signs = [evaluate(parse(f"1 / sum(vector({zero}))"), frame, 100.0)[0].value for zero in ("0", "-0", "0")]
    assert signs == [float("inf"), float("-inf"), float("inf")]


def test_equal_parts_of_different_texts_are_one_object():
    one, other = (
        parse("sum(rate(x_total{k=~'a|b'}[10s])) > 1").root,
        parse("sum(rate(x_total{k=~'a|b'}[10s])) * 2").root,
    )
    assert one.left is other.left
    assert parse("sum(rate(x_total{k=~'a|c'}[10s])) > 1").root.left is not one.left
