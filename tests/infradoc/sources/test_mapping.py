"""Pages of servers that are several processes: what counts once, and what adds up."""

from __future__ import annotations

import pytest

from infradoc.sources.mapping import PageMapper

BUCKETS = (("0.1", 3), ("1", 7), ("+Inf", 9))


def sglang_page(tensor: int, data: int = 1, lag: int = 0) -> str:
    """A page with `--enable-metrics-for-all-schedulers`; the ranks after the first lag behind by `lag` requests."""
    lines = ['sglang:prompt_tokens_total{model_name="m"} 1000']
    for replica in range(data):
        for rank in range(tensor):
            labels = f'engine_type="unified",model_name="m",moe_ep_rank="{rank}",pp_rank="0",tp_rank="{rank}"'
            labels += f',dp_rank="{replica}"' if data > 1 else ""
            behind = lag if rank else 0
            lines += [
                f'sglang:num_running_reqs{{{labels},priority=""}} {8 - behind}',
                f'sglang:num_running_reqs{{{labels},priority="0"}} 5',
                f'sglang:num_running_reqs{{{labels},priority="7"}} 3',
                f"sglang:token_usage{{{labels}}} 0.5",
                f"sglang:max_total_num_tokens{{{labels}}} 4096",
                f"sglang:num_retracted_requests_total{{{labels}}} {6 - behind}",
                f'sglang:cached_tokens_total{{{labels},cache_source="device"}} 100',
                f'sglang:cached_tokens_total{{{labels},cache_source="host"}} 20',
                f"sglang:queue_time_seconds_sum{{{labels}}} 4.5",
                f"sglang:queue_time_seconds_count{{{labels}}} {9 - behind}",
            ]
            for bound, count in BUCKETS:
                lines.append(f'sglang:queue_time_seconds_bucket{{{labels},le="{bound}"}} {max(0, count - behind)}')
    return "\n".join(lines) + "\n"


def totals(page: str) -> dict[str, float]:
    """Signal -> sum over its series, as rules take it."""
    mapper = PageMapper()
    mapper.page(page.encode(), 0.0)
    found: dict[str, float] = {}
    for sample in mapper.page(page.encode(), 1.0).samples:  # the second page goes the remembered way
        labels = dict(sample.labels)
        assert not {"tp_rank", "pp_rank", "moe_ep_rank", "priority"} & set(labels), sample
        key = " ".join([sample.name, *(labels[name] for name in ("tier", "le") if name in labels)])
        found[key] = found.get(key, 0.0) + sample.value
    return found


def test_tensor_parallel_ranks_of_one_replica_count_once() -> None:
    assert totals(sglang_page(tensor=4)) == totals(sglang_page(tensor=1))
    one = totals(sglang_page(tensor=4))
    assert one["llm_requests_running"] == 8 and one["llm_kv_pool_tokens"] == 4096
    assert one["llm_preemptions_total"] == 6 and one["llm_prompt_tokens_total"] == 1000
    assert one["llm_prefix_cache_hit_tokens_total device"] == 100
    assert [one[f"llm_request_stage_seconds_bucket {bound}"] for bound, _ in BUCKETS] == [3, 7, 9]


def test_the_rank_that_is_furthest_is_the_one_that_counts() -> None:
    assert totals(sglang_page(tensor=4, lag=2)) == totals(sglang_page(tensor=1))


def test_data_parallel_replicas_add_up() -> None:
    found = totals(sglang_page(tensor=2, data=2))
    assert found["llm_requests_running"] == 16 and found["llm_preemptions_total"] == 12
    assert found["llm_kv_pool_tokens"] == 8192 and found["llm_request_stage_seconds_count"] == 18
    engines = {
        dict(sample.labels).get("engine") for sample in PageMapper().page(sglang_page(2, 2).encode(), 0.0).samples
    }
    assert engines == {None, "0", "1"}


def test_what_differs_by_more_than_the_rank_adds_up_over_the_largest_of_each() -> None:
    page = "".join(
        f'sglang:num_retracted_requests_total{{engine_type="{kind}",model_name="m",tp_rank="{rank}"}} {count}\n'
        for kind, count in (("prefill", 5), ("decode", 2))
        for rank in range(4)
    )
    assert totals(page) == {"llm_preemptions_total": 7}


def test_the_engines_of_one_vllm_are_replicas() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} 4\n' for engine in range(4))
    assert totals(page) == {"llm_requests_running": 16}


@pytest.mark.parametrize("value", ["-1", "-0.5", "+Inf", "-Inf"])
def test_a_value_that_cannot_be_is_left_out_and_counted(value: str) -> None:
    page = f"vllm:num_requests_running 3\nvllm:num_requests_waiting {value}\nvllm:kv_cache_usage_perc {value}\n"
    found = PageMapper().page(page.encode(), 0.0)
    assert {sample.name: sample.value for sample in found.samples} == {"llm_requests_running": 3.0}
    assert found.garbage == 2


def test_an_impossible_term_spoils_no_sum() -> None:
    good = totals(sglang_page(1, data=2))["llm_preemptions_total"]
    bad = sglang_page(1, data=2).replace("} 6\n", "} -6\n", 1)
    assert totals(bad)["llm_preemptions_total"] == good / 2
