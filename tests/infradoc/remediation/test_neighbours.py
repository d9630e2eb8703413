"""What others took of the machine, and what a verdict is worth beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from infradoc.load.record import RequestRecord
from infradoc.model import Verdict
from infradoc.remediation.data import outcome_json
from infradoc.remediation.measure import ClientMeasured
from infradoc.remediation.neighbours import MOVED, Neighbours, Snapshot, Use, rests_on_speed, share_before, use_between
from infradoc.remediation.run import Outcome
from infradoc.remediation.table import outcome_lines
from infradoc.remediation.verify import Case, judge
from infradoc_rules.catalog import load_catalog
from infradoc_rules.schema import Verify, VerifyMetric

Make = Callable[..., list[RequestRecord]]
SERVER, CLIENT = (10, 0.0), (11, 0.0)
TTFT = VerifyMetric(signal="client_time_to_first_token_seconds", quantile=0.5, at_most=0.75, request_class="chat")
SPEED = Verify(metrics=(TTFT,))
cores = st.floats(0, 2)


def snapshots(busy: float, server: float, seconds: int = 15, waited: float = 1.0) -> list[Snapshot]:
    """One a second on two cores; all in cores."""
    return [Snapshot(100.0 + t, 2, 50 + busy * t, waited * t, {SERVER: 7 + server * t}) for t in range(seconds + 1)]


def neighbours(before: float, after: float, waited: float | None = 0.9) -> Neighbours:
    return Neighbours(Use(2, before, waited), Use(2, after, waited))


@given(cores, cores)
def test_others_are_what_is_busy_less_our_own(busy: float, share: float) -> None:
    server = busy * share / 2
    use = use_between(snapshots(busy, server), 100, 115)
    assert use is not None and use.waited == pytest.approx(1.0)
    assert use.others == pytest.approx(busy - server, abs=1e-6)


@given(cores, cores, st.floats(0, 1))
def test_a_fix_that_makes_the_server_faster_or_slower_moves_no_neighbour(one: float, two: float, others: float) -> None:
    uses = [use_between(snapshots(own + others, own), 100, 115) for own in (one, two)]
    found = Neighbours.of(*uses)
    assert found is not None and not found.moved


@given(cores, cores)
def test_moved_is_the_same_both_ways_and_never_without_a_difference(before: float, after: float) -> None:
    assert neighbours(before, after).moved == neighbours(after, before).moved
    assume(before < 2)
    assert not neighbours(before, before).moved
    assert neighbours(before, after).moved == (abs(after - before) >= MOVED * (2 - min(before, after)))


def test_a_machine_at_rest_and_one_with_a_busy_neighbour() -> None:
    assert not neighbours(0.016, 0.03).moved
    assert neighbours(0.02, 0.67).moved and neighbours(1.0, 0.0).moved
    assert neighbours(1.6, 1.5).moved  # a quarter more than what was left
    assert neighbours(2.0, 2.0).moved  # nothing was left: nothing can be told


def test_where_nobody_waits_for_a_core_nothing_is_taken_away() -> None:
    assert not Neighbours(Use(64, 2.0, 0.01), Use(64, 20.0, 0.09)).moved
    assert Neighbours(Use(64, 2.0, 0.01), Use(64, 20.0, 0.2)).moved
    assert Neighbours(Use(64, 2.0, None), Use(64, 20.0, None)).moved


def test_a_worker_that_a_fix_started_counts_as_ours_from_its_first_second() -> None:
    born = [replace(one, own={**one.own, (12, 103.0): 0.5 * (one.time - 103.0)}) for one in snapshots(1.0, 0.5)[6:]]
    seen = [*snapshots(1.0, 0.5)[:6], *born]
    use = use_between(seen, 100, 115)
    assert use is not None and use.others * 15 == pytest.approx(15 * 0.5 - 0.5 * 12)
    late = use_between(seen, 104, 115)  # it was there at 104 and is known from 106 on
    assert late is not None and late.others == pytest.approx(0.0)


def test_a_number_given_out_again_is_another_process() -> None:
    seen = snapshots(1.0, 0.5)
    seen[8:] = [replace(one, own={(10, 108.0): 0.5 * (one.time - 108.0)}) for one in seen[8:]]
    use = use_between(seen, 100, 115)
    assert use is not None and 0.5 <= use.others <= 0.5 + 0.5 / 15 + 1e-6


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_share_is_a_share(begin: float, created: float, seen: float) -> None:
    assert 0 <= share_before(begin, created, seen) <= 1


def test_a_busy_loop_on_a_real_machine() -> None:
    """Recorded: tokens a second fell to a ninth, and nothing had been changed."""
    recorded = json.loads((Path(__file__).parent / "recorded_neighbours.json").read_text(encoding="utf-8"))
    seen = [
        Snapshot(row["time"], row["cores"], row["busy"], row["waited"], {(p, c): s for p, c, s in row["own"]})
        for row in recorded["snapshots"]
    ]
    quiet, busy = (use_between(seen, *window) for window in recorded["windows"])
    assert quiet is not None and busy is not None
    assert quiet.others < 0.3 and recorded["busy_loop_cores"] < busy.others < busy.cores
    assert Neighbours(quiet, busy).moved and Neighbours(busy, quiet).moved and not Neighbours(quiet, quiet).moved


def test_too_little_seen_says_nothing() -> None:
    assert use_between([], 100, 115) is None
    assert use_between(snapshots(1, 0.5, seconds=5), 100, 115) is None
    assert use_between(snapshots(1, 0.5), 200, 215) is None
    assert use_between(snapshots(1, 0.5)[:1], 100, 100) is None
    assert Neighbours.of(None, Use(2, 0.1, None)) is None


def case(
    before: list[RequestRecord],
    after: list[RequestRecord],
    others: Neighbours | None,
    quiet: bool | None = True,
    lang: str = "en",
) -> Case:
    """Baseline in [0, 15), hold in [30, 50)."""
    windows = ClientMeasured(before, 0, 15), ClientMeasured(after, 30, 50)
    return Case(*windows, quiet, "a-rule", SPEED, lang=lang, neighbours=others)


ENDED, CAME, SAME = neighbours(1.0, 0.02), neighbours(0.02, 0.67), neighbours(0.02, 0.03)


@pytest.mark.parametrize(
    ("after", "quiet", "as_today"),
    [({"ttft": 0.2}, True, "fixed"), ({}, False, "not_fixed"), ({"ttft": 2.0, "gap": 0.3}, False, "worse")],
)
@pytest.mark.parametrize("others", [ENDED, CAME])
def test_a_verdict_by_speed_does_not_stand_beside_others(
    make_records: Make, others: Neighbours, after: dict[str, float], quiet: bool, as_today: str
) -> None:
    before, later = make_records(-5, 20), make_records(25, 55, **after)
    assert judge(case(before, later, None, quiet=quiet)).verdict == as_today
    assert judge(case(before, later, SAME, quiet=quiet)).verdict == as_today
    verdict = judge(case(before, later, others, quiet=quiet))
    assert verdict.verdict == "inconclusive"
    assert verdict.reason == (
        f"Other programs took {others.before.others:.2f} of 2 cores before and {others.after.others:.2f} after, "
        "so speeds cannot be compared. Run it again when the machine is quiet."
    )


def test_in_chinese(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20), make_records(25, 55, ttft=0.2), ENDED, lang="zh"))
    assert verdict.reason == (
        "本机其他程序在更改前占用 2 个核中的 1.00 个，更改后占用 0.02 个，因此速度无法比较。请在机器空闲时重新运行。"
    )


def test_requests_that_fail_are_no_neighbours_doing(make_records: Make) -> None:
    after = make_records(25, 55, ttft=0.2)
    many = [
        replace(one, status=503, error="busy", ttft=None, itl=[]) if i % 3 == 0 else one for i, one in enumerate(after)
    ]
    verdict = judge(case(make_records(-5, 20), many, CAME))
    assert verdict.verdict == "worse" and "errors rose" in verdict.reason and "Other programs" in verdict.reason


def test_another_load_is_told_first_and_the_neighbours_with_it(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20), make_records(25, 55, clients=2), CAME))
    assert verdict.reason.startswith("The load changed") and "Other programs took 0.02 of 2 cores" in verdict.reason


class Counting(ClientMeasured):
    """A window in which the server counted its refused steps too."""

    refused = 0.0

    def metric(self, metric: VerifyMetric) -> Any:
        found = super().metric(metric)
        return found if metric.quantile is not None else replace(found, value=self.refused, n=15)


REFUSED = Verify(metrics=(VerifyMetric(signal="llm_oom_total", at_most=0.05),), throughput_at_least=0.85)


def counted(
    make_records: Make, refused: float, others: Neighbours | None, quiet: bool = True, **after: float
) -> Verdict:
    before, later = Counting(make_records(-5, 20), 0, 15), Counting(make_records(25, 55, **after), 30, 50)
    before.refused, later.refused = 5.0, refused
    return judge(Case(before, later, quiet, "a-rule", REFUSED, neighbours=others))


def test_counts_that_a_fix_takes_to_nothing_stand(make_records: Make) -> None:
    verdict = counted(make_records, 0.0, ENDED)
    assert verdict.verdict == "fixed" and verdict.reason.endswith("so speeds cannot be compared.")
    assert counted(make_records, 5.0, ENDED, quiet=False).verdict == "not_fixed"
    assert counted(make_records, 0.0, CAME, quiet=False).verdict == "not_fixed"


def test_its_price_in_throughput_may_be_the_neighbours(make_records: Make) -> None:
    assert counted(make_records, 0.0, None, gap=0.3).verdict == "worse"
    assert counted(make_records, 0.0, CAME, gap=0.3).verdict == "inconclusive"
    beside = counted(make_records, 5.0, CAME, quiet=False, gap=0.3)  # it still refuses: that is no neighbour's doing
    assert beside.verdict == "not_fixed" and "tokens/s" not in beside.reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # a factory without a state
@given(before=cores, after=cores, ttft=st.floats(0.05, 3), quiet=st.booleans() | st.none())
def test_beside_others_speed_alone_never_concludes(
    make_records: Make, before: float, after: float, ttft: float, quiet: bool | None
) -> None:
    others = neighbours(before, after)
    made = case(make_records(-5, 20), make_records(25, 55, ttft=ttft), others, quiet=quiet)
    verdict = judge(made)
    if others.moved:
        assert verdict.verdict == "inconclusive"
    else:
        assert verdict == judge(replace(made, neighbours=None))


def test_which_rules_of_the_catalog_rest_on_counts_and_states() -> None:
    steady = {rule.id for rule in load_catalog().rules if rule.verify.metrics and not rests_on_speed(rule.verify)}
    assert steady == {
        "fragmentation-allocator",
        "memory-leak",
        "oom-activation-peak",
        "oom-utilization-too-high",
        "silent-truncation",
    }


def test_table_and_data_show_both_windows(make_records: Make) -> None:
    made = case(make_records(-5, 20), make_records(25, 55, ttft=0.2), ENDED)
    outcome = Outcome(judge(made), made.before, made.after, None, 1.0, True, False, "note", ENDED)
    (row,) = [line.split() for line in outcome_lines(outcome) if line.strip().startswith("other programs")]
    assert row == ["other", "programs", "1.00", "of", "2", "cores", "0.02", "of", "2", "cores"]
    assert any(
        line.split() == ["其他程序", "2", "核中的", "1.00", "2", "核中的", "0.02"]
        for line in outcome_lines(outcome, "zh")
    )
    assert outcome_json(outcome)["other_programs"] == {
        "cores": 2,
        "moved": True,
        "before": {"cores": 1.0, "waited": 0.9},
        "after": {"cores": 0.02, "waited": 0.9},
    }
    assert outcome_json(replace(outcome, neighbours=None))["other_programs"] is None
    assert not any("other programs" in line for line in outcome_lines(replace(outcome, neighbours=None)))
