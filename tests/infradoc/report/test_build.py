"""Report v1 follows its schema, whatever was seen."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest

from infradoc.model import Reading, Sample
from infradoc.monitor.findings import FindingLog
from infradoc.monitor.loop import Evaluator
from infradoc.report.build import Observation, build_report, finding_part, number, plain, status_of, unknown_report
from infradoc.report.markdown import to_markdown
from infradoc.report.model import Report, exit_code
from infradoc.report.vitals import read_vitals
from infradoc.signals.store import Store
from infradoc_rules.catalog import load_catalog
from infradoc_rules.model import Action, Evidence, Finding

SCHEMA = json.loads((resources.files("infradoc.report") / "report.schema.json").read_text())


def valid(report: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(report)))


def finding(severity: Any = "warning") -> Finding:
    action = Action(
        "max_num_seqs", "decrease", "why", 16, np.float64(8.0), "--max-num-seqs 8", True, cost="c", name="n"
    )
    evidence = Evidence("text", "server.log:3", "llm_x", math.inf, "tokens", -1.0)
    return Finding(
        "kv-thrashing-preemption", severity, 0.91234, "t", "c", "i", "f", evidence=(evidence,), actions=(action,)
    )


def observed(readings: list[Reading]) -> Report:
    store = Store()
    evaluator = Evaluator(store, load_catalog())
    for reading in readings:
        tick = evaluator.feed([reading], reading.time)
    return build_report(Observation("t", store, evaluator.log, tick.frame, 30.0, ["client: there is no file x"], 3))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_finding_part_is_plain_json() -> None:
    part = finding_part(finding())
    assert part["evidence"][0]["value"] is None and part["confidence"] == 0.912
    assert part["actions"][0]["to"] == 8 and type(part["actions"][0]["to"]) in (int, float)
    assert (number(math.nan), plain(True), plain(None), plain("x")) == (None, True, None, "x")


@pytest.mark.parametrize(
    ("severities", "could_judge", "status", "code"),
    [([], True, "ok", 0), (["info"], True, "ok", 0), (["warning", "info"], True, "degraded", 10),
     (["critical", "warning"], False, "unhealthy", 20), ([], False, "unknown", 30)],
)  # fmt: skip
def test_status_and_exit_code(severities: list[Any], could_judge: bool, status: str, code: int) -> None:
    assert status_of([finding(severity) for severity in severities], could_judge) == status
    assert exit_code([{**unknown_report("t", []), "status": status}]) == code  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(["ok", "degraded"], 10), (["degraded", "unknown"], 30), (["unknown", "unhealthy"], 20), (["ok", "ok"], 0)],
)
def test_worst_of_several(statuses: list[Any], code: int) -> None:
    assert exit_code([{**unknown_report("t", []), "status": status} for status in statuses]) == code


def test_unknown_report_has_null_vitals() -> None:
    report = unknown_report("http://h", ["h:1 refuses the connection."])
    valid(report)
    valid({"schema": "infradoc.reports/v1", "reports": [report, report]})
    assert set(report["vitals"].values()) == {None} and report["not_visible"] == ["h:1 refuses the connection."]


def test_healthy_says_what_was_checked_and_what_was_not_seen() -> None:
    samples = [Sample("llm_requests_waiting", (), 1.0, 2.0), Sample("llm_kv_cache_usage_ratio", (), 1.0, math.nan)]
    report = observed([Reading("metrics", 1.0, samples)])
    valid(report)
    assert report["vitals"]["queue_depth"] == 2.0 and report["vitals"]["kv_usage_ratio"] is None
    hidden = "\n".join(report["not_visible"])
    for name, value in report["vitals"].items():
        assert (value is None) == (name in hidden), name
    assert "there is no file x" in hidden and report["unparsed_lines"] == 3
    for rule in load_catalog().rules:
        assert (rule.id in report["checked"]) != (f"{rule.id}: needs" in hidden)


def test_server_that_went_away_is_not_healthy() -> None:
    report = observed(
        [
            Reading("metrics", 1.0, [Sample("llm_requests_waiting", (), 1.0, 0.0)]),
            Reading("metrics", 2.0, error="Gone."),
        ]
    )
    assert report["status"] == "unknown" and "metrics: Gone." in report["not_visible"]


def test_no_p99_from_few_samples_and_client_figures_where_the_server_has_none() -> None:
    store = Store()
    for time, count in ((0.0, 0.0), (10.0, 50.0), (20.0, 120.0)):
        buckets = [
            Sample("client_time_to_first_token_seconds_bucket", (("le", le),), time, count) for le in ("1", "+Inf")
        ]
        store.add(Reading("client", time, buckets))
    few = read_vitals(store.frame(10.0), 30.0)
    assert few.values["ttft_p99_seconds"] is None and "50 of 100 samples" in few.missing["ttft_p99_seconds"]
    assert few.values["ttft_p50_seconds"] == 0.5 and few.samples["ttft_p50_seconds"] == 50
    many = read_vitals(store.frame(20.0), 30.0)
    assert many.values["ttft_p99_seconds"] == 0.99 and many.sources["ttft_p99_seconds"] == "client"


def test_markdown_is_harmless() -> None:
    report = unknown_report("<script>*x*", ["a|b"])
    report["findings"] = [finding_part(finding())]
    text = to_markdown(report)
    assert "\\<script\\>\\*x\\*" in text and "a\\|b" in text and "`--max-num-seqs 8" in text


def test_log_of_nothing() -> None:
    assert FindingLog().reported() == []
