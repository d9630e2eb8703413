"""The scanner against prometheus-client's parser on generated pages, and on lines that are no samples."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from infradoc.sources.scan import MEMO_LIMIT, PageScanner

NAMES = ["vllm:num_requests_running", "http_requests_total", "a", "b_bucket", "x:y_sum"]
Row = tuple[str, tuple[tuple[str, str], ...], float]


def scanner(wanted: list[str]) -> PageScanner[tuple[str, tuple[tuple[str, str], ...]]]:
    return PageScanner(wanted, lambda name, labels: (name, tuple(sorted(labels.items()))))


def rows(page: str, wanted: list[str], times: int = 1) -> tuple[list[Row], int]:
    one = scanner(wanted)
    for _ in range(times):
        result = one.scan(page.encode())
    return [(name, labels, value) for (name, labels), value in result.samples], result.garbage


def reference(page: str, wanted: list[str]) -> list[Row]:
    found = []
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in wanted:
                found.append((sample.name, tuple(sorted(sample.labels.items())), float(sample.value)))
    return found


def same(left: list[Row], right: list[Row]) -> bool:
    """Equal as multisets, NaN equal to NaN."""

    def key(row: Row) -> tuple[str, str, str]:
        return row[0], repr(row[1]), "nan" if math.isnan(row[2]) else repr(row[2])

    return sorted(map(key, left)) == sorted(map(key, right))


label_text = st.text('ab \\"\n{},=#_1é中\U0001f600\t', max_size=8)
label_name = st.builds(str.__add__, st.sampled_from("aZ_b"), st.text("aZ_09", max_size=5)).filter(
    lambda name: not name.startswith("__")
)
number = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e+06", "0", "-0.0", "1.797693134862315708145274237317043567981e+308"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_line(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    labels = draw(st.dictionaries(label_name, label_text, max_size=4))
    pad = draw(st.sampled_from(["", " "]))
    inner = ",".join(f'{pad}{key}="{escaped(value)}"' for key, value in labels.items())
    comma = draw(st.sampled_from(["", ","])) if labels else ""
    braces = f"{{{inner}{comma}}}" if labels or draw(st.booleans()) else ""
    stamp = draw(st.sampled_from(["", " 1700000000000", "  17 "]))
    gap = draw(st.sampled_from([" ", "  ", "\t"]))
    return f"{name}{braces}{gap}{draw(number)}{stamp}"


other_line = st.sampled_from(["", "# HELP a text with \\n and {x}", "# TYPE a gauge", "# a comment", "#"])


@given(
    st.lists(st.one_of(sample_line(), other_line), max_size=20),
    st.sets(st.sampled_from(NAMES)),
    st.sampled_from([1, 2, 3]),
)
def test_gives_what_a_full_parser_gives(lines: list[str], wanted: set[str], times: int) -> None:
    page = "".join(f"{line}\n" for line in lines)
    names = sorted(wanted)
    found, garbage = rows(page, names, times)
    assert same(found, reference(page, names))
    assert garbage == 0


@given(st.binary(max_size=400))
def test_never_raises_on_bytes(page: bytes) -> None:
    one = scanner(NAMES)
    first = one.scan(page)
    assert one.scan(page).samples == first.samples or any(math.isnan(value) for _, value in first.samples)


@given(
    st.lists(
        st.sampled_from(["a{", 'a{x="1}', "a", "a b c", 'a{x="1"}', "a{x=1} 2", "=", "9a 1", "a 1_0", 'a{x="1"} 1_0']),
        max_size=6,
    )
)
def test_counts_lines_that_are_no_samples(lines: list[str]) -> None:
    found, garbage = rows("\n".join(lines), ["a"])
    assert found == []
    assert garbage == len(lines)


def test_real_pages_agree_with_the_parser(samples_dir: Path) -> None:
    paths = sorted(samples_dir.glob("*_metrics*.txt"))
    assert paths
    for path in paths:
        # Without comments, because the parser renames samples of mistyped counters (llama.cpp has one).
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        page = "".join(line for line in lines if not line.startswith("#"))
        wanted = sorted({sample.name for family in text_string_to_metric_families(page) for sample in family.samples})
        assert wanted
        for times in (1, 2):
            found, garbage = rows(page, wanted, times)
            assert same(found, reference(page, wanted)), path
            assert garbage == 0


def test_memo_does_not_mix_up_series_that_share_a_beginning() -> None:
    one = scanner(["a"])
    assert one.scan(b'a{x="1"} 2\na{x="1"} 3 1700\na{x="1 2"} 4\n').samples == [
        (("a", (("x", "1"),)), 2.0),
        (("a", (("x", "1"),)), 3.0),
        (("a", (("x", "1 2"),)), 4.0),
    ]
    assert one.scan(b'a{x="1"} 5 9\na{x="1"} 6\n').samples == [(("a", (("x", "1"),)), 5.0), (("a", (("x", "1"),)), 6.0)]


def test_exemplars_and_end_mark_of_openmetrics() -> None:
    result = scanner(["b_bucket"]).scan(b'b_bucket{le="1"} 5 # {trace_id="x y"} 0.5 123\n# EOF\n')
    assert result.samples == [(("b_bucket", (("le", "1"),)), 5.0)]
    assert result.complete


def test_resolve_is_asked_once_per_series_and_may_refuse() -> None:
    asked: list[str] = []

    def resolve(name: str, labels: dict[str, str]) -> str | None:
        asked.append(labels["x"])
        return None if labels["x"] == "no" else labels["x"]

    one = PageScanner(["a"], resolve)
    for _ in range(3):
        assert one.scan(b'a{x="yes"} 1\na{x="no"} 2\n').samples == [("yes", 1.0)]
    assert asked == ["yes", "no"]


def test_memo_is_bounded() -> None:
    one = scanner(["a"])
    for start in range(3):
        page = "".join(f'a{{id="{start}-{place}"}} 1\n' for place in range(MEMO_LIMIT // 2 + 10))
        assert len(one.scan(page.encode()).samples) == MEMO_LIMIT // 2 + 10
    assert len(one._memo) <= 1.5 * MEMO_LIMIT + 20
