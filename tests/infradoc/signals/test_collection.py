"""Series in tables are the series that rings of their own would have been, whatever sources show and in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.model import Reading, Sample
from infradoc.signals.collection import Collection
from infradoc.signals.ring import Ring
from infradoc.signals.store import Store
from infradoc.signals.table import Row
from infradoc_rules.promql import STALE_NAN

SAMPLES, SERIES = 7, 6
NAMES = ("llm_a", "llm_b", "host_c")


class Plain:
    """The plain way: a ring for every series, and a stale marker for each that its source shows no more."""

    def __init__(self) -> None:
        self.rings: dict[tuple[str, str], Ring] = {}
        self.live: dict[str, set[tuple[str, str]]] = {}
        self.late = 0

    def add(self, source: str, time: float, rows: list[tuple[str, str, float, float]] | None) -> None:
        before, now = self.live.pop(source, set()), set()
        for name, label, moment, value in rows or ():
            now.add((name, label))
            if (name, label) in self.rings or len(self.rings) < SERIES:
                ring = self.rings.setdefault((name, label), Ring(SAMPLES))
                self.late += not ring.append(moment, value)
        for key in before - now:
            if key in self.rings:
                self.rings[key].append(time, STALE_NAN)
        if rows is not None:
            self.live[source] = now


@st.composite
def looks(draw: st.DrawFn) -> list[tuple[str, float, list[tuple[str, str, float, float]] | None]]:
    """Looks of two sources: mostly the same series again, now and then other ones, late ones, mixed times, failures."""
    usual = {
        source: draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from("xyz")), max_size=4))
        for source in ("one", "two")
    }
    found = []
    for number in range(draw(st.integers(1, 40))):
        source = draw(st.sampled_from(("one", "two")))
        time = float(number - draw(st.sampled_from((0, 0, 0, 0, 3))))
        if draw(st.integers(0, 9)) == 0:
            found.append((source, time, None))
            continue
        if draw(st.integers(0, 5)) == 0:
            usual[source] = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from("xyz")), max_size=4))
        back = draw(st.sampled_from((0.0, 0.0, 0.0, 1.0)))
        moments = [time] * len(usual[source])
        if moments:
            moments[0] -= back
        rows = [(*key, moment, float(number)) for key, moment in zip(usual[source], moments, strict=True)]
        found.append((source, time, rows))
    return found


@settings(max_examples=300)
@given(looks())
def test_tables_hold_what_rings_would(given_looks: list) -> None:
    held, plain = Collection(SAMPLES, SERIES), Plain()
    shown = []
    for source, time, rows in given_looks:
        samples = [Sample(name, (("k", label),), moment, value) for name, label, moment, value in rows or ()]
        if rows is None:
            held.fail(source, time)
        else:
            held.add(source, time, samples)
        plain.add(source, time, rows)
        for until in (time, 1e9):
            expected = {key: pairs(*ring.view(until)) for key, ring in plain.rings.items()}
            places = {(name, labels["k"]): place for name in NAMES for labels, place in held.listing(name)}
            views = {key: place.view(until) for key, place in places.items()}
            assert {key: pairs(*view) for key, view in views.items()} == expected
            shown += [(view, pairs(*view)) for view in views.values()]
    assert held.late == plain.late
    for view, before in shown:  # views given out earlier still say what they said
        assert pairs(*view) == before


def pairs(times: object, values: object) -> list[tuple[float, str]]:
    return [(float(time), str(value)) for time, value in zip(times, values, strict=True)]  # type: ignore[call-overload]


def test_series_of_one_source_share_their_times() -> None:
    store = Store()
    for time in range(5):
        values = [Sample(name, (), float(time), float(time)) for name in NAMES]
        store.add(Reading("metrics", float(time), values))
    axes = [store.series(name, 9.0)[0].times for name in NAMES]
    assert list(axes[0]) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert all(axis is axes[0] for axis in axes)


def test_a_failed_look_does_not_take_series_out_of_their_table() -> None:
    store = Store()
    for time in (1.0, 2.0, 3.0):
        store.add(Reading("metrics", time, [Sample("llm_a", (), time, 1.0)]))
        store.add(Reading("metrics", time + 0.5, error="It refuses."))
    assert isinstance(store._series.listing("llm_a")[0][1], Row)
    assert len(store.series("llm_a", 9.0)[0].times) == 6
