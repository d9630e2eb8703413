"""Report v1 follows its schema, whatever was seen."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest

from infradoc.model import Reading, Sample
from infradoc.monitor.findings import FindingLog
from infradoc.monitor.loop import Evaluator
from infradoc.report.build import (
    Observation,
    build_report,
    finding_part,
    needs_lines,
    number,
    plain,
    status_of,
    unknown_report,
)
from infradoc.report.markdown import to_markdown
from infradoc.report.model import Report, exit_code
from infradoc.report.text import action_line
from infradoc.report.vitals import read_vitals
from infradoc.report.words import words
from infradoc.signals.store import Store
from infradoc_rules.catalog import load_catalog
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Action, Evidence, Fact, Finding

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


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_named_already_is_not_asked_for_again(lang: str) -> None:
    say = words(lang)
    blind = {"a": ["log_event_total"], "b": ["client_requests_total", "config_max_num_seqs"]}
    for kind, line in (("log", "log = ..."), ("client", "client = ..."), ("settings", "launch = ...")):
        assert line in " ".join(needs_lines(blind, say))
        assert line not in " ".join(needs_lines(blind, say, {kind}))
    assert "infradoc.toml" not in " ".join(needs_lines(blind, say, {"log", "client", "settings"}))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_all_knobs_of_a_change_are_told() -> None:
    """In the data with the values that they have now, and in both texts, each flag once."""
    flag = "--max-model-len 320 --truncation-policy reject"
    also = (("truncation_policy", "reject"), ("max_num_seqs", 8), ("prefix_caching", True))
    action = Action("max_model_len", "increase", "why", 128, 320, flag, also=also, name="raise_max_model_len")
    found = Finding("silent-truncation", "warning", 0.9, "t", "c", "i", "f", actions=(action,))
    facts = {
        "truncation_policy": Fact("truncation_policy", "left", "api"),
        "max_num_seqs": Fact("max_num_seqs", 16, "api"),
    }
    [part] = finding_part(found, MemoryFrame(0.0, facts=facts, system="infradoc"))["actions"]
    assert part["also"] == [
        {
            "knob": "truncation_policy",
            "change": "set",
            "from": "left",
            "to": "reject",
            "flag": "--truncation-policy reject",
        },
        {"knob": "max_num_seqs", "change": "decrease", "from": 16, "to": 8, "flag": "--max-num-seqs 8"},
        {"knob": "prefix_caching", "change": "enable", "from": None, "to": True, "flag": "--prefix-caching"},
    ]
    report = unknown_report("t", [])
    report["findings"] = [finding_part(found, MemoryFrame(0.0, facts=facts, system="infradoc")), finding_part(found)]
    valid(report)
    line = action_line(part, words("en"))
    assert line.startswith(f"{flag} --max-num-seqs 8 --prefix-caching  (max_model_len 128 -> 320 and truncation_policy")
    assert "left -> reject and max_num_seqs 16 -> 8 and prefix_caching -> True" in line
    assert "max_num_seqs 16 -> 8" in to_markdown(report) and "且" in action_line(part, words("zh"))


@pytest.mark.parametrize(
    ("version", "flag"), [("0.5.13", "--cuda-graph-max-bs 8"), ("0.5.14", "--cuda-graph-max-bs-decode 8")]
)
def test_a_further_knob_is_spelled_as_the_running_version_takes_it(version: str, flag: str) -> None:
    action = Action("max_num_seqs", "decrease", "why", 16, 8, "f", also=(("cuda_graph_max_bs", 8),), name="lower")
    found = Finding("kv-thrashing-preemption", "warning", 0.9, "t", "c", "i", "f", actions=(action,))
    facts = {"target.version": Fact("target.version", version, "api")}
    [part] = finding_part(found, MemoryFrame(0.0, facts=facts, system="sglang"))["actions"]
    assert part["also"][0]["flag"] == flag


def test_an_action_that_moves_one_knob_is_as_before() -> None:
    assert "also" not in finding_part(finding())["actions"][0]


def test_texts_agree_with_their_number() -> None:
    one = replace(finding(), cause="1 requests wait", evidence=(Evidence("1 statistics lines show it"),))
    part = finding_part(one)
    assert (part["cause"], part["evidence"][0]["text"]) == ("1 request waits", "1 statistics line shows it")


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
    assert "{" not in hidden and "_bucket" not in hidden  # words for people, no expressions
    for rule in (rule for rule in load_catalog().rules if rule.live is not None):
        blind = any(rule.id in re.split(r"[:,] ?", line) for line in report["not_visible"])
        assert (rule.id in report["checked"]) != blind, rule.id


def test_an_idle_server_is_not_called_healthy_without_a_word() -> None:
    """Nothing was asked of it: what only requests can show was not checked."""
    still = [Sample("llm_requests_running", (), 0.0, 0.0), Sample("llm_requests_waiting", (), 0.0, 0.0)]
    counted = [Sample("llm_generation_tokens_total", (), 0.0, 7.0)]
    looks = [[replace(s, time=float(t)) for s in still + counted] for t in range(1, 20)]
    report = observed([Reading("metrics", float(t), look) for t, look in enumerate(looks, 1)])
    valid(report)
    assert report["observed"]["idle"] is True and "no request came" in report["not_visible"][0]
    assert "queue-saturation" not in report["checked"]
    assert "as far as an idle server shows" in to_markdown(report)
    busy = [[*look[:2], replace(look[2], value=7.0 + look[2].time)] for look in looks]
    report = observed([Reading("metrics", float(t), look) for t, look in enumerate(busy, 1)])
    assert "idle" not in report["observed"]


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
