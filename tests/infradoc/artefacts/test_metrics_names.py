import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.metrics import MetricsKind
from infradoc.artefacts.kinds.metrics_names import places, usual


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('sglang_num_queue_reqs{worker="a"} 3', 'sglang:num_queue_reqs{worker="a"} 3'),
        ("# TYPE ray_vllm_num_requests_running gauge", "# TYPE vllm:num_requests_running gauge"),
        ('nv_trt_llm_request_metrics{model="m",request_type="waiting"} 9', "trtllm_num_requests_waiting 9"),
        ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 40', "trtllm_kv_cache_max_blocks 40"),
        ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free"} 40', None),
        ("vllm:num_requests_running 1", None),
        ("my_sglang_thing 1", None),
    ],
)
def test_a_line_gets_the_engines_own_name(line, wanted):
    assert usual(line) == (wanted or line)


def test_places_are_read_where_a_page_has_them():
    assert places('sglang:max_running_requests{tp_rank="0"} 24.0') == 24
    assert places('nv_trt_llm_request_metrics{model="m",request_type="max"} 64') == 64
    assert places("sglang:num_running_reqs 24") is None


@given(st.text(max_size=300))
def test_any_line_is_taken(line):
    assert isinstance(usual(line), str)
    places(line)


def test_a_page_of_one_scrape_is_a_look_and_one_of_two_is_not(read_kind):
    page = 'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_waiting{engine="0"} 7\n'
    page += 'vllm:generation_tokens_total{engine="0"} 40'
    looks = [event for event in read_kind(MetricsKind(), page)[0] if event.name == "metrics_page"]
    assert [dict(look.fields) for look in looks] == [{"running": 2.0, "waiting": 7.0, "generated": 40.0}]
    twice = read_kind(MetricsKind(), f"{page}\n{page}")[0]
    assert not [event for event in twice if event.name == "metrics_page"]
