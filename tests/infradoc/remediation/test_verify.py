from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.load.record import RequestRecord
from infradoc.remediation.measure import ClientMeasured, LoadShape
from infradoc.remediation.verify import Case, differs, judge
from infradoc_rules.schema import Verify, VerifyMetric

Make = Callable[..., list[RequestRecord]]
TTFT = VerifyMetric(signal="client_time_to_first_token_seconds", quantile=0.5, at_most=0.75, request_class="chat")
VERIFY = Verify(metrics=(TTFT,))


def case(
    before: list[RequestRecord], after: list[RequestRecord], quiet: bool | None = True, verify: Verify = VERIFY
) -> Case:
    """Baseline in [0, 15), hold in [30, 50)."""
    return Case(ClientMeasured(before, 0, 15), ClientMeasured(after, 30, 50), quiet, "a-rule", verify)


def failed(record: RequestRecord) -> RequestRecord:
    return replace(record, status=503, error="busy", error_kind="http_5xx", ttft=None, itl=[])


def test_better_and_quiet_is_fixed(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20), make_records(25, 55, ttft=0.2)))
    assert verdict.verdict == "fixed", verdict
    assert all(check.passed for check in verdict.checks)
    assert [check.name for check in verdict.checks] == [
        "a-rule is quiet",
        "chat client_time_to_first_token_seconds P50",
        "tokens/s",
        "share of errors",
    ]


def test_nothing_changed_is_not_fixed(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20), make_records(25, 55), quiet=False))
    assert verdict.verdict == "not_fixed"


def test_a_rule_that_still_fires_is_not_fixed(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20), make_records(25, 55, ttft=0.2), quiet=False))
    assert (verdict.verdict, verdict.reason) == ("not_fixed", "Not met: a-rule is quiet.")


def test_a_rule_that_cannot_be_judged_is_inconclusive(make_records: Make) -> None:
    assert judge(case(make_records(-5, 20), make_records(25, 55, ttft=0.2), quiet=None)).verdict == "inconclusive"


def test_lost_throughput_is_not_fixed_and_a_clear_loss_is_worse(make_records: Make) -> None:
    before = make_records(-5, 20)
    assert judge(case(before, make_records(25, 55, ttft=0.2, gap=0.145))).verdict == "not_fixed"
    verdict = judge(case(before, make_records(25, 55, ttft=0.2, gap=0.3)))
    assert verdict.verdict == "worse"
    assert "tokens/s fell" in verdict.reason


def test_where_nearly_all_fail_the_rate_of_the_few_is_no_baseline(make_records: Make) -> None:
    """Two answers before and one after, of some hundred: tokens/s fell by half, and nothing got worse."""
    before, after = make_records(-5, 20), make_records(25, 55)
    lucky = [record for record in before if 0 <= record.end < 15][:2]
    before = [record if record in lucky else failed(record) for record in before]
    after = [record if record is after[-1] else failed(record) for record in after]
    assert judge(case(before, after, quiet=False)).verdict == "not_fixed"


def test_a_slower_first_token_is_worse(make_records: Make) -> None:
    verdict = judge(case(make_records(-5, 20, gap=0.1), make_records(25, 55, ttft=0.9, gap=0.05), quiet=False))
    assert verdict.verdict == "worse"


def test_errors_up(make_records: Make) -> None:
    before, after = make_records(-5, 20), make_records(25, 55, ttft=0.2)
    few = [failed(record) if i == 40 else record for i, record in enumerate(after)]
    assert judge(case(before, few)).verdict == "not_fixed"
    many = [failed(record) if i % 3 == 0 else record for i, record in enumerate(after)]
    assert judge(case(before, many)).verdict == "worse"


def test_too_few_samples_are_inconclusive(make_records: Make) -> None:
    p99 = Verify(metrics=(replace(TTFT, quantile=0.99),))
    verdict = judge(case(make_records(-5, 20), make_records(25, 55, ttft=0.2), verify=p99))
    assert verdict.verdict == "inconclusive"
    assert "Too few samples" in verdict.reason
    lone = judge(case(make_records(-5, 20, clients=1, ttft=9), make_records(25, 55, clients=1, ttft=0.5)))
    assert lone.verdict == "inconclusive"


def test_another_load_is_inconclusive(make_records: Make) -> None:
    before = make_records(-5, 20)
    fewer = judge(case(before, make_records(25, 55, clients=2, ttft=0.2)))
    assert (fewer.verdict, "requests in flight" in fewer.reason) == ("inconclusive", True)
    shorter = [replace(record, prompt_words=8) for record in make_records(25, 55, ttft=0.2)]
    assert "prompt length" in judge(case(before, shorter)).reason
    other = judge(case(before, make_records(25, 55, ttft=0.2, cls="other")))
    assert other.verdict == "inconclusive"
    assert judge(case(before, [])).verdict == "inconclusive"


def test_paced_clients_of_a_faster_server_are_the_same_load() -> None:
    shape = LoadShape(concurrency=4.0, arrivals=5.2, prompt=None, max_tokens=None, n=80)
    assert differs(shape, replace(shape, concurrency=1.5, arrivals=7.8)) is None
    assert differs(shape, replace(shape, concurrency=1.5, arrivals=2.0)) is not None
    assert differs(shape, replace(shape, concurrency=9.0, arrivals=12.0)) is not None


def test_a_counter_at_least(make_records: Make) -> None:
    up = VerifyMetric(signal="client_request_seconds", quantile=0.5, at_least=0.5)
    assert judge(case(make_records(-5, 20), make_records(25, 55), verify=Verify(metrics=(up,)))).verdict == "fixed"


@given(
    st.floats(0.05, 3),
    st.floats(0.05, 3),
    st.floats(0.02, 0.3),
    st.floats(0.02, 0.3),
    st.integers(1, 8),
    st.booleans() | st.none(),
)
def test_fixed_is_only_said_when_all_of_it_is_true(
    ttft_before: float, ttft_after: float, gap_before: float, gap_after: float, clients: int, quiet: bool | None
) -> None:
    def loop(begin: float, end: float, ttft: float, gap: float) -> list[RequestRecord]:
        found, step = [], ttft + 9 * gap
        for client in range(clients):
            start = begin + client * 0.01
            while start < end:
                found.append(
                    RequestRecord(
                        1, "/v1/c", start, "chat", ttft, step, 10, 200, "length", None, None, 24, 10, 10, 24, [gap] * 9
                    )
                )
                start += step
        return found

    made = case(loop(-30, 30, ttft_before, gap_before), loop(0, 80, ttft_after, gap_after), quiet)
    verdict = judge(made)
    if verdict.verdict == "fixed":
        assert quiet is True
        assert ttft_after <= 0.75 * ttft_before + 1e-9
        assert made.after.tokens_per_second().value >= 0.95 * (made.before.tokens_per_second().value or 0)  # type: ignore[operator]
    if quiet is False:
        assert verdict.verdict in ("not_fixed", "worse", "inconclusive")


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_the_same_windows_are_never_worse(make_records: Make, quantile: float) -> None:
    records = make_records(-5, 60)
    verify = Verify(metrics=(replace(TTFT, quantile=quantile),))
    assert judge(case(records, records, quiet=False, verify=verify)).verdict == "not_fixed"


@pytest.mark.parametrize(("quiet", "name"), [(True, "fixed"), (False, "not_fixed"), (None, "inconclusive")])
def test_what_was_done_once_without_load_is_judged_by_its_rule(
    make_records: Callable[..., list[RequestRecord]], quiet: bool | None, name: str
) -> None:
    empty = ClientMeasured([], 0.0, 10.0)
    verdict = judge(Case(empty, empty, quiet, "memory-leak", Verify(), alone=True))
    assert verdict.verdict == name and (quiet is not True or "Nothing to compare: no load" in verdict.reason)
