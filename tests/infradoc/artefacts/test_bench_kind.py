import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.bench import BenchKind
from infradoc.artefacts.kinds.bench_names import field_of
from infradoc.artefacts.kinds.client_notes import ClientNotesKind
from infradoc.artefacts.model import Segment

SERVING = """============ Serving Benchmark Result ============
Successful requests:                     1000
Benchmark duration (s):                  130.91
Total input tokens:                      220000
Request throughput (req/s):              7.64
Traffic request rate:                    12.0
---------------Time to First Token----------------
Mean TTFT (ms):                          24188.41
P99 TTFT (ms):                           48611.20
---------------Inter-Token Latency----------------
Median ITL (ms):                         3.94
=================================================="""
GENAI = """┃                Statistic ┃      avg ┃     min ┃      max ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│ Time to first token (ms) │   266.56 │  257.79 │   276.91 │   276.73 │
│ Input sequence length    │   550.05 │  550.00 │   553.00 │   551.60 │"""
TABLE = """# concurrency 8, 300 requests, ~5.9k prompt tokens
mode     response_format   p50_s   out_tok_s
free     none              1.35    664
guided   json_schema       7.31    120"""


def rows(text, kind=None):
    kind = kind or BenchKind()
    lines = text.splitlines()
    parts = [kind.read(Segment(kind.name, "b", start + 1, lines[start:end])) for start, end in kind.spans(lines)]
    return [dict(event.fields) for part in parts for event in part.events]


def test_serving_benchmark():
    (row,) = rows(SERVING)
    assert row["ttft_mean"] == pytest.approx(24.18841)
    assert row["itl_median"] == pytest.approx(0.00394)
    assert (row["offered_rate"], row["request_rate"], row["prompt_tokens"]) == (12.0, 7.64, 220.0)


def test_genai_perf_table():
    (row,) = rows(GENAI)
    assert row["ttft_mean"] == pytest.approx(0.26656)
    assert row["ttft_p99"] == pytest.approx(0.27673)
    assert row["prompt_tokens"] == pytest.approx(550.05)


def test_table_with_modes_and_what_its_comment_says():
    free, guided = rows(TABLE)
    assert (free["label"], free["concurrency"], free["prompt_tokens"]) == ("free none", 8.0, 5900.0)
    assert guided["latency_median"] / free["latency_median"] == pytest.approx(7.31 / 1.35)


def test_json_result_and_gaps():
    (row,) = rows(
        '{"completed": 10, "duration": 2.0, "request_throughput": 5.0, "request_rate": 8.0, "mean_ttft_ms": 12.0}'
    )
    assert (row["ttft_mean"], row["offered_rate"]) == (0.012, 8.0)
    (gaps,) = rows("t_s gap_s\n1.0 0.04\n2.0 0.05\n9.0 6.5\n")
    assert (gaps["itl_median"], gaps["itl_max"]) == (0.05, 6.5)


@pytest.mark.parametrize("name", ["P90 TTFT (ms)", "Std ITL (ms)", "colour", "Running"])
def test_names_that_are_left_out(name):
    assert field_of(name) is None


def test_a_log_is_no_benchmark():
    log = "INFO 10-05 02:14:13 metrics.py:351] Avg prompt throughput: 866.1 tokens/s, Running: 11 reqs, Pending: 0 reqs"
    assert BenchKind().spans([log] * 5) == []


def test_notes_on_the_load():
    text = (
        "# load: 24 concurrent agents that share one system prompt\n"
        "vllm bench serve --request-rate 50 --num-prompts 900\n"
    )
    lines = text.splitlines()
    kind = ClientNotesKind()
    facts = {}
    for start, end in kind.spans(lines):
        facts |= {fact.name: fact.value for fact in kind.read(Segment(kind.name, "n", 1, lines[start:end])).facts}
    assert facts == {
        "client.concurrency": 24,
        "client.shared_prefix": True,
        "client.request_rate": 50.0,
        "client.requests": 900,
    }
    assert kind.spans(["# HELP vllm:x Number of requests.", "vllm serve m --port 1"]) == []


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r"), max_size=60), max_size=12
    )
)
def test_any_text_is_survived(lines):
    for kind in (BenchKind(), ClientNotesKind()):
        for start, end in kind.spans(lines):
            kind.read(Segment(kind.name, "x", start + 1, lines[start:end]))
