"""Summaries of access lines, devices' memory over time, prefill lines and statistics that name active requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.advise import ADVISERS, Advice
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import summarise

GIB = 1 << 30


def facts_of(events, system="vllm", **given_facts):
    known = {name: Fact(name, value, "flag") for name, value in given_facts.items()}
    return {name: fact.value for name, fact in summarise(events, known, system).items()}


def answered(*rows, code=200, path="/api/chat"):
    """(end, seconds) an access line."""
    return [
        Event("http_access", order, {"method": "POST", "path": path, "code": code, "seconds": took}, end)
        for order, (end, took) in enumerate(rows)
    ]


def device(sizes, step=600.0, busy=0.7):
    return [
        Event(
            "gpu_state",
            order,
            {"gpu": 0, "sample": order, "used_bytes": round(size * GIB), "total_bytes": 80 * GIB, "utilization": busy},
            order * step,
        )
        for order, size in enumerate(sizes)
    ]


def decodes(*rows):
    """(running, tokens held) a decode line of SGLang."""
    return [
        Event("stats_line", order, {"running": n, "waiting": 0, "used_tokens": held, "kv_usage": 0.1}, 10.0 * order)
        for order, (n, held) in enumerate(rows)
    ]


def test_answers_that_end_in_turn_were_open_together():
    facts = facts_of(answered(*[(6.0 * n, 6.0 * n) for n in range(1, 7)]), "ollama", max_num_seqs=1)
    assert facts["access.in_flight"] == 6
    assert (facts["access.beyond"], facts["access.beyond_share"]) == (6, 1.0)


def test_answers_one_after_another_were_not():
    facts = facts_of(answered(*[(10.0 * n, 9.0) for n in range(1, 7)]), "ollama", max_num_seqs=1)
    assert (facts["access.in_flight"], facts["access.beyond"]) == (1, 0)


def test_listings_and_quick_answers_do_not_count():
    assert "access.in_flight" not in facts_of(answered((1.0, 0.01), (1.0, 0.01)), "ollama")
    assert "access.in_flight" not in facts_of(answered((9.0, 8.0), (9.0, 8.0), path="/api/tags"), "ollama")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=30), st.integers(1, 8))
def test_no_more_are_open_than_there_are(rows, limit):
    facts = facts_of(answered(*rows), "ollama", max_num_seqs=limit)
    if "access.in_flight" in facts:
        assert 1 <= facts["access.in_flight"] <= facts["access.timed"] <= len(rows)
        assert 0 <= facts["access.beyond"] <= facts["access.timed"]


@pytest.mark.parametrize(("system", "code", "refused"), [("ollama", 503, 7), ("vllm", 429, 7), ("vllm", 503, None)])
def test_too_many_by_engine(system, code, refused):
    assert facts_of(answered(*[(1.0, 0.001)] * 7, code=code), system).get("access.refused") == refused


@pytest.mark.parametrize(
    ("sizes", "leaks"),
    [
        ([60 + 0.6 * n for n in range(12)], True),
        ([60 + 0.6 * (n // 3) for n in range(36)], True),  # an allocator grows in pieces
        ([2, 14, 32, 66, *[71.8] * 8], False),
        ([60.0] * 12, False),
        ([60 + (n % 2) for n in range(12)], False),
        ([60, 62, 64, 66, 66, 66, 66, 66, 66, 66, 66, 66], False),
    ],
)
def test_memory_of_a_device(sizes, leaks):
    assert facts_of(device(sizes)).get("growth.leaks") is leaks


def test_memory_of_an_idle_or_new_device_is_no_leak():
    assert facts_of(device([60 + 0.6 * n for n in range(12)], busy=0.0))["growth.leaks"] is False
    assert facts_of(device([60 + 0.6 * n for n in range(12)], step=60.0))["growth.leaks"] is False


def test_memory_of_a_process_on_a_device_over_hours():
    def rows(step):
        fields = [
            {"gpu": 0, "pid": 9, "name": "/bin/llama-server", "bytes": round((25 + n * step) * GIB)} for n in range(9)
        ]
        return [Event("gpu_process", n, known, 3600.0 * n) for n, known in enumerate(fields)]

    grown = facts_of(rows(0.3), "llamacpp")
    assert (grown["growth.device"], grown["growth.samples"], grown["growth.leaks"]) == (True, 9, True)
    assert facts_of(rows(0.0), "llamacpp")["growth.leaks"] is False


def test_one_process_under_two_spellings_is_one_series():
    events = [
        Event("process_usage", n, {"name": name, "pid": 9, "bytes": (5 + n) * GIB, "seconds": 3600.0 * n})
        for n, name in enumerate(["ray::Worker.execute_method", "ray::Worker", "ray::Worker", "ray::Worker.step"])
    ]
    facts = facts_of(events)
    assert (facts["growth.samples"], facts["growth.leaks"]) == (4, True)


def test_held_tokens_that_fall_tell_a_closed_loop_from_one_batch():
    loop = decodes(*[(32, held) for held in (9000, 12000, 8000, 11000, 8500, 12500)])
    batch = decodes(*[(32, held) for held in (9000, 10000, 11000, 12000, 13000, 14000)])
    assert facts_of(loop, "sglang")["serving.steady"] is True
    assert facts_of(batch, "sglang")["serving.steady"] is False


def test_statistics_that_name_active_requests_and_blocks():
    row = {"running": 1, "active": 8, "paused": 0, "blocks_used": 36, "blocks_total": 40}
    facts = facts_of([Event("stats_line", n, row, 1.0 * n) for n in range(5)], "trtllm")
    assert (facts["serving.waiting_median"], facts["serving.kv_median"]) == (7, 0.9)
    assert facts["serving.pool_bound"] is True
    assert facts["preempt.thrashing"] is False


@pytest.mark.parametrize(("paused", "thrashes"), [([3, 2, 4, 1], True), ([0, 0, 0, 0, 0, 3], False), ([1, 0], False)])
def test_paused_requests_are_preempted_ones(paused, thrashes):
    rows = [{"running": 30, "active": 40, "paused": n, "blocks_used": 40, "blocks_total": 40} for n in paused]
    facts = facts_of([Event("stats_line", n, row, 1.0 * n) for n, row in enumerate(rows)], "trtllm")
    assert facts["preempt.thrashing"] is thrashes


def test_prefill_lines_alone_give_the_ratio_and_the_budget():
    step = {"kind": "prefill", "prefill_requests": 2, "prefill_tokens": 8192, "running": 0, "waiting": 90}
    facts = facts_of([Event("step_line", n, step, 1.0 * n) for n in range(10)], "sglang")
    assert (facts["serving.prefill_ratio"], facts["serving.chunk"]) == (4096, 8192)


def test_totals_of_one_page_give_the_ratio():
    page = {"metrics.llm_requests_running": 4.0, "metrics.llm_prompt_tokens_total": 9e6}
    assert facts_of([], **page, **{"metrics.llm_generation_tokens_total": 1e5})["serving.prefill_ratio"] == 90
    assert "serving.prefill_ratio" not in facts_of([], **page)


@pytest.mark.parametrize(
    ("want", "share", "large"),
    [(4.0, None, True), (0.3, None, False), (2.0, 0.97, False), (6.0, 0.97, True), (0.1, 0.7, True)],
)
def test_a_step_is_large_beside_what_a_usual_share_leaves(want, share, large):
    fields = {"want_bytes": round(want * GIB), "free_bytes": GIB // 10, "total_bytes": 48 * GIB}
    given_facts = {} if share is None else {"gpu_memory_utilization": share}
    events = [Event("engine_ready", 0, {}), Event("cuda_oom", 1, fields, phase="serving", source="log:1")]
    assert facts_of(events, **given_facts)["oom.large_step"] is large


def test_a_refusal_without_a_size_while_serving_is_a_step():
    events = [Event("engine_ready", 0, {}), Event("cuda_oom", 1, {}, phase="serving", source="log:1")]
    assert facts_of(events, "llamacpp")["oom.large_step"] is True


@pytest.mark.parametrize(("share", "ran", "steady"), [(64.0, 64, False), (16.0, 64, True)])
def test_a_load_test_that_asked_for_the_batch_explains_it(share, ran, steady):
    lines = [
        Event(
            "stats_line", n, {"running": ran, "waiting": 0, "kv_usage": 0.1, "prompt_rate": 9.0, "generation_rate": 9}
        )
        for n in range(6)
    ]
    told = Event("bench_result", 9, {"concurrency": share, "requests": 100}, source="bench:1")
    facts = facts_of([*lines, told])
    assert facts["serving.few_steady"] is steady
    assert facts["serving.load_chosen"] is not steady


@pytest.mark.parametrize(("device_name", "left"), [("CPU", 171), ("cuda", None)])
def test_one_thread_on_the_cpu(device_name, left):
    cut = Event("omp_threads", 0, {"threads": 1, "cpus": 172}, source="log:1")
    facts = facts_of([cut], **{"omp_num_threads": 1, "target.device": device_name})
    assert facts.get("cpu.threads_left_out") == left


@pytest.mark.parametrize(("placed", "lockstep"), [(0, True), (33, False)])
def test_threads_in_step_matter_where_no_layer_is_on_a_device(placed, lockstep):
    events = [Event("launched", 0, {"system": "ollama"}), Event("layers_placed", 1, {"placed": placed, "layers": 33})]
    assert facts_of(events, "ollama", **{"omp_num_threads": 64, "host.cpus": 24})["cpu.lockstep"] is lockstep


def scraped(first, last, seconds=120.0):
    """Facts of two scrapes: (running, generated, prompts) each."""
    names = ("llm_requests_running", "llm_generation_tokens_total", "llm_prompt_tokens_total")
    pairs = zip(names, first, last, strict=True)
    found = {"metrics.seconds": seconds}
    for name, before, after in pairs:
        found |= {f"metrics.{name}.first": float(before), f"metrics.{name}": float(after)}
    return found


def test_counters_that_stand_still_while_requests_run():
    facts = facts_of([], **scraped((12, 900, 4000), (12, 900, 4000)))
    assert facts["serving.still"] == 120.0 and facts["serving.moves"] is False


@pytest.mark.parametrize(
    ("first", "last", "seconds", "system"),
    [
        ((12, 900, 4000), (12, 901, 4000), 120.0, "vllm"),
        ((12, 900, 4000), (12, 900, 4100), 120.0, "vllm"),
        ((0, 900, 4000), (12, 900, 4000), 120.0, "vllm"),
        ((12, 900, 4000), (0, 900, 4000), 120.0, "vllm"),
        ((12, 900, 4000), (12, 900, 4000), 15.0, "vllm"),
        ((12, 900, 4000), (12, 900, 4000), 120.0, "sglang"),  # it counts tokens when a request is finished
    ],
)
def test_what_is_no_standstill(first, last, seconds, system):
    assert "serving.still" not in facts_of([], system, **scraped(first, last, seconds))


@pytest.mark.parametrize(
    ("running", "waiting", "kv", "taken"),
    [(4, 37, None, True), (4, 1, None, False), (3, 37, None, False), (4, 37, 0.2, False)],
)
def test_all_places_taken_where_nothing_is_said_of_kv(running, waiting, kv, taken):
    page = {"metrics.llm_requests_running": float(running), "metrics.llm_requests_waiting": float(waiting)}
    if kv is not None:
        page["metrics.llm_kv_cache_usage_ratio"] = kv
    assert facts_of([], "llamacpp", max_num_seqs=4, **page)["serving.places_taken"] is taken


@pytest.mark.parametrize(("origin", "context"), [("flag", 131072), ("log", 524288)])
def test_more_slots_keep_the_length_of_each(origin, context):
    facts = [
        Fact("max_model_len", 32768, origin),  # of all slots as a flag, of one slot in a log
        Fact("max_num_seqs", 4, "flag"),
        Fact("batch.running", 4.0, "derived"),
        Fact("serving.waiting_median", 37.0, "derived"),
    ]
    frame = MemoryFrame.build([], now=0.0, facts=facts, events=(), system="llamacpp")
    action = ADVISERS["raise_seqs_for_queue"](Advice(frame, {}, "en"))
    assert action.flag == f"--parallel 16 --ctx-size {context}"
    assert action.why == "no more than 4 requests run at once"
