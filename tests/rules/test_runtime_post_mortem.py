"""What summaries say of a served load: the facts that the run-time rules match."""

import pytest

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import summarise

GIB = 1 << 30


def lines(*rows):
    """(running, waiting, kv, prompt rate, generation rate) a line, ten seconds apart."""
    names = ("running", "waiting", "kv_usage", "prompt_rate", "generation_rate")
    return [
        Event("stats_line", order, dict(zip(names, row, strict=True)), 10.0 * order, "serving", f"log:{order}")
        for order, row in enumerate(rows)
    ]


def facts_of(events, system="vllm", **given):
    known = {name: Fact(name, value, "flag") for name, value in given.items()}
    return {name: fact.value for name, fact in summarise(events, known, system).items()}


def grown(sizes, step=1800):
    return [
        Event("process_usage", order, {"name": "srv", "bytes": round(size * GIB), "seconds": order * step})
        for order, size in enumerate(sizes)
    ]


def test_medians_not_single_lines():
    facts = facts_of(lines((381, 1549, 0.96, 0, 94), *[(379, 1549, 0.98, 0, 8400)] * 4))
    assert facts["serving.generation_rate"] == 8400
    assert facts["serving.prefill_stalls"] == 0


def test_an_idle_server_is_not_stalled():
    facts = facts_of(lines((1, 0, 0.01, 100, 38), *[(0, 0, 0.0, 0, 0)] * 6))
    assert facts["serving.stalled"] is False
    assert facts["serving.samples"] == 1


def test_requests_without_tokens_are():
    assert facts_of(lines((7, 0, 0.2, 10, 80), *[(7, 0, 0.2, 0, 0)] * 3))["serving.stalled"] is True


@pytest.mark.parametrize(
    ("rows", "queued", "draining"),
    [
        ([(200, 620, 0.95, 900, 1580)] * 5, True, False),
        ([(370, waiting, 0.98, 100, 8400) for waiting in (1500, 900, 300, 10)], False, True),
        ([(30, 0, 0.3, 900, 1500)] * 4 + [(30, 40, 0.3, 900, 1500)], False, False),
        ([(10 + 12 * place, 90 - 12 * place, 0.2 + 0.12 * place, 900, 1500) for place in range(6)], True, False),
    ],
)
def test_a_queue_that_stays_drains_or_moves_into_the_batch(rows, queued, draining):
    facts = facts_of(lines(*rows))
    assert (facts["serving.queued"], facts["serving.draining"]) == (queued, draining)


def test_more_requests_and_less_output():
    rows = [(4, 0, 0.01, 0, 287), *[(12, 0, 0.02, 0, 58)] * 4]
    facts = facts_of(lines(*rows), cpu_limit=10, **{"host.cpus": 192})
    assert facts["serving.falls_with_load"] > 4
    assert facts["cpu.oversubscribed"] is True
    assert facts_of(lines(*rows), cpu_limit=10, omp_num_threads=8)["cpu.oversubscribed"] is False


@pytest.mark.parametrize(
    ("sizes", "leaks"),
    [
        ([11, 25, 38, 52], True),
        ([6.0, 6.05, 6.1, 6.15, 6.2, 6.25, 6.3, 6.4], True),
        ([11, 25, 29, 30, 30.1, 30.1], False),
        ([11, 12, 11, 12, 11], False),
        ([11, 25, 38], False),
    ],
)
def test_memory_that_grows_to_the_end(sizes, leaks):
    assert facts_of(grown(sizes)).get("growth.leaks", False) is leaks


def test_growth_with_the_load_is_no_leak():
    rising = lines(*[(count, 0, 0.1, 100, 100) for count in (2, 2, 20, 20, 60, 60)])
    assert facts_of([*grown([11, 25, 38, 52]), *rising])["growth.leaks"] is False


def test_preemptions_are_judged_by_what_gets_finished():
    rare = {"metrics.llm_preemptions_total": 1531.0, "metrics.llm_requests_finished_total": 19801.0}
    often = {"metrics.llm_preemptions_total": 1058.0, "metrics.llm_requests_finished_total": 446.0}
    none = {"metrics.llm_preemptions_total": 147.0, "metrics.llm_requests_finished_total": 0.0}
    assert [facts_of([], **page)["preempt.thrashing"] for page in (rare, often, none)] == [False, True, True]


def test_one_retraction_in_minutes_is_none():
    rows = lines(*[(250, 100, 0.97, 0, 4700)] * 24)
    single = Event("preempted", 99, {"mode": "recompute", "count": 1}, 120.0)
    many = [Event("preempted", 99, {"mode": "recompute", "count": 4}, 120.0)] * 6
    assert facts_of([*rows, single])["preempt.thrashing"] is False
    assert facts_of([*rows, *many])["preempt.thrashing"] is True


def oom(**fields):
    ready = Event("engine_ready", 0, {}, None, "ready", "log:1")
    return [ready, Event("cuda_oom", 1, {"phase": "serving", **fields}, None, "serving", "log:2")]


@pytest.mark.parametrize(
    ("fields", "given", "large"),
    [
        ({"want_bytes": 4 * GIB, "total_bytes": 80 * GIB}, {}, True),
        ({"want_bytes": GIB // 4, "total_bytes": 80 * GIB}, {}, False),
        ({"want_bytes": GIB // 4, "total_bytes": 80 * GIB}, {"gpu_memory_utilization": 0.7}, True),
        ({"want_bytes": GIB // 4, "functions": "_get_prompt_logprobs_dict"}, {}, True),
        ({"want_bytes": GIB // 16, "functions": "process_mm_data _preprocess"}, {}, True),
    ],
)
def test_a_step_that_no_setting_makes_room_for(fields, given, large):
    assert facts_of(oom(**fields), **given)["oom.large_step"] is large


def test_slots_that_are_refilled_only_after_a_release():
    steps = [
        *[("started", slot) for slot in range(6)],
        ("released", 1),
        ("started", 1),
        ("released", 3),
        ("started", 3),
    ]
    events = [
        Event(f"slot_{what}", order, {"slot": slot}, None, "serving", f"log:{order}")
        for order, (what, slot) in enumerate(steps)
    ]
    facts = facts_of(events, "llamacpp", max_num_seqs=16)
    assert (facts["slots.most_busy"], facts["slots.refilled"], facts["slots.full"]) == (6, 2, False)
