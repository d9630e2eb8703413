"""Parsing: the tree, what it needs, and errors that say where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc_rules.promql import SUBSET, PromqlError, needed_names, parse
from infradoc_rules.promql.nodes import Aggregate, Binary, Call, Matching, Negate, Number, Selector, String

ERRORS = [
    ("", 0, "no expression"),
    ("a +", 3, "unexpected end"),
    ("a b", 2, "unexpected 'b'"),
    ("a + * b", 4, "unexpected '*'"),
    ("sum by (x) a", 11, "unexpected 'a'"),
    ("rate(a", 4, "unclosed"),
    ("a)", 1, "right parenthesis"),
    ('a{b="c"', 1, "inside braces"),
    ('a > "x', 4, "unterminated"),
    ("a ? b", 2, "'?'"),
    ("foo(a)", 0, "function foo() is outside the subset"),
    ("1 + ratee(a[5m])", 4, "the nearest is rate()"),
    ("abs(holt_winters(a[5m], 0.1, 0.1))", 4, "holt_winters()"),
    ("max_over_time(a[5m:1m])", 18, "subqueries"),
    ("max_over_time(a[5m:])", 18, "subqueries"),
    ("b + a @ 5", 6, "@ modifier"),
    ("a[5m]", 0, "a range vector is no result"),
    ('"x"', 0, "a string is no result"),
    ("rate(a)", 0, "expected type matrix"),
    ("a and 1", 2, "set operator"),
    ("1 > 2", 2, "BOOL"),
    ("a + bool b", 4, "bool modifier"),
    ("a atan2 b", 2, "operator atan2"),
    ("1 + limitk by (x) (1, a)", 4, "limitk"),
    ('1 + a{b=~"("}', 9, "regex"),
    ('label_replace(a, "1", "x", "y", "z")', 17, "invalid label name '1'"),
    ('label_replace(a, "b", "x", "y", "(")', 32, "invalid regular expression"),
    (r'label_replace(a, "b", "x", "y", "\\d(")', 32, "invalid regular expression"),
    ('label_join(a, "b", "-", "not ok")', 24, "invalid label name"),
    ('count_values("1", a)', 13, "invalid label name"),
    ('{__name__=~"a.*"}', 1, "write the name"),
    ('1 + {job="x"}', 4, "without a metric name"),
    ('a{x="1" or y="2"}', 8, "between matchers"),
    ("a > $x", 4, "unknown variable $x"),
    ("a + on (x) group_left (x) b", 8, "'x'"),
    ("(" * 100 + "a" + ")" * 100, 60, "brackets nest"),
    ("+".join(["a"] * 1000), 201, "more than 100 operators"),
    ("-" * 1000 + "a", 100, "more than 100 operators"),
    ("a" * 30_000, 20_000, "20000 characters"),
]


@pytest.mark.parametrize(("text", "position", "part"), ERRORS, ids=[text[:40] for text, _, _ in ERRORS])
def test_errors_say_what_and_where(text: str, position: int, part: str) -> None:
    with pytest.raises(PromqlError) as caught:
        parse(text)
    assert part in caught.value.message
    assert caught.value.position == position
    assert caught.value.text == text


def test_the_tree() -> None:
    left = Aggregate("sum", Call("rate", (Selector("a", (), 10_500, -1000),), "vector"), None, ("x",), False)
    right = Negate(Selector("b"))
    expected = Binary("/", left, right, False, Matching("many-to-one", True, ("x",), ("y", "z")))
    assert parse("sum by (x) (rate(a[10s500ms] offset -1s)) / on (x) group_left (y, z) -b").root == expected


def test_precedence_and_associativity() -> None:
    two, three = Number(2.0), Number(3.0)
    assert parse("-2 ^ 3").root == Negate(Binary("^", two, three))
    assert parse("2 ^ 3 ^ 2").root == Binary("^", two, Binary("^", three, two))
    assert parse("2 - 3 - 2").root == Binary("-", Binary("-", two, three), two)


def test_matchers_and_strings_are_unescaped() -> None:
    root = parse(r"""label_join({__name__="a", b!="\"x\n"}, 'c', `\n`)""").root
    assert isinstance(root, Call)
    selector = root.args[0]
    assert isinstance(selector, Selector)
    assert (selector.name, selector.matchers[0].op, selector.matchers[0].value) == ("a", "!=", '"x\n')
    assert root.args[1:] == (String("c"), String("\\n"))


def test_needs() -> None:
    expr = parse("rate(a[1m] offset 30s) + on () b offset 1m and rate(a[2m]) > c offset -1h")
    assert expr.selectors() == {"a": 120.0, "b": 360.0, "c": 300.0}
    assert needed_names(expr) == {"a", "b", "c"}


def test_window_may_come_later() -> None:
    expr = parse("rate(a[$window]) > $x", {"x": 2})
    assert expr.window_open
    assert expr.with_window(15).selectors() == {"a": 15.0}
    assert expr.with_window(15) is expr.with_window(15.0)
    bound = parse("rate(a[$window]) > $x", {"x": 2, "window": "20s"})
    assert not bound.window_open
    assert bound.selectors() == {"a": 20.0}
    assert bound.promql() == "rate(a[20s]) > 2.0"
    assert bound.with_window(15) is bound


def test_parsed_expressions_are_cached() -> None:
    assert parse("rate(a[10s])") is parse("rate(a[10s])")


def _accepted(text: str) -> bool:
    try:
        parse(text, {"x": 1.0})
    except PromqlError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(text)
        return False
    return True


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused_with_a_position(text: str) -> None:
    _accepted(text)


WORDS = sorted(
    SUBSET.names() | {"a", "b", "(", ")", "{", "}", "[", "]", "5m", "1", '"x"', ",", "$x", "$y", "@", ":", "atan2"}
)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=20))
def test_any_order_of_known_words_is_parsed_or_refused_with_a_position(words: list[str]) -> None:
    _accepted(" ".join(words))


@given(
    st.recursive(st.sampled_from(["a", "1", "a{b='c'}", "rate(a[1m])"]), lambda e: st.builds("({} + {})".format, e, e))
)
def test_sums_of_anything_are_accepted(text: str) -> None:
    assert _accepted(text)
