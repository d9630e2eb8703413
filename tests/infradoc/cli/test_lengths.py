"""`infradoc lengths` on files, recordings and servers."""

from __future__ import annotations

import json
import math

import pytest

from infradoc.cli.lengths import run
from infradoc.demo.children import start_engine
from infradoc.errors import InfradocError
from infradoc.lengths.measured import quantile_bound
from infradoc.load.spec import LoadSpec, parse_class


def test_json_lines(tmp_path, clean_environment, capsys):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"prompt_tokens": 10 + n, "completion_tokens": 5}) + "\n" for n in range(200)))
    assert run([str(path), "--max-model-len", "4096", "--kv-pool-tokens", "8192"]) == 0
    text = capsys.readouterr().out
    assert "200 requests from requests.jsonl (each request counted)" in text
    assert "max_model_len  4,096 -> 224" in text
    assert "requests of full length that fit at once: 2.0 -> 36.6" in text
    assert run([str(path), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["total"] == {"p50": 114.0, "p90": 194.0, "p99": 212.0, "max": 214}
    assert data["proposal"]["tokens"] == 224


def test_one_of_a_kind_is_said_in_the_singular(tmp_path, clean_environment, capsys):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"prompt_tokens": 10, "completion_tokens": 5}\n{"other": 1}\n')
    assert run([str(path)]) == 30
    text = capsys.readouterr().out
    assert text.startswith("1 request from requests.jsonl")
    assert "1 row without usable lengths" in text and "there is 1 (longest so far: 15 tokens)" in text


def test_a_recorded_vllm_has_too_few_requests_for_a_p99(recordings_dir, clean_environment, capsys):
    assert run([str(recordings_dir / "llamacpp-01" / "server.log")]) == 30
    assert "a P99 needs 100 requests, there are 86" in capsys.readouterr().out


def test_a_live_vllm_by_its_histograms_and_its_model_card(server, vllm_page, clean_environment, capsys):
    server.page("/metrics", vllm_page)
    card = {"object": "list", "data": [{"id": "m", "max_model_len": 2048}]}
    server.page("/v1/models", json.dumps(card).encode(), kind="application/json")
    code = run([server.url, "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    assert data["exact"] is False
    assert code == (0 if data["requests"] >= 100 else 30)
    assert data["prompt"]["p50"] is not None
    if data["proposal"] is not None:
        assert data["proposal"]["present"] == 2048


def test_the_bundled_engine_tells_each_request(clean_environment, tmp_path, capsys):
    """100 real requests, then the P99 of their own lengths."""
    from asyncio import run as run_async

    from infradoc.load.run import run_load

    runtime = tmp_path / "runtime"
    child, url = start_engine("smollm2-135m", ("--omp-num-threads", "1", "--max-model-len", "256"), runtime)
    with child:
        spec = LoadSpec(
            (parse_class("a:closed=8,kind=completion,prompt_tokens=8-24,max_tokens=2,ignore_eos=true,count=100"),),
            seed=3,
            duration=None,
        )
        result = run_async(run_load(url, spec))
        totals = sorted((r.prompt_tokens or 0) + (r.completion_tokens or 0) for r in result.records if r.ok)
        assert len(totals) == 100
        assert run([url, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["exact"] is True and data["requests"] == 100
    assert data["total"]["p99"] == totals[98] and data["total"]["max"] == totals[-1]
    assert data["proposal"]["present"] == 256 and data["proposal"]["change"] == "decrease"


def test_a_server_that_is_not_there(closed_port, clean_environment):
    with pytest.raises(InfradocError, match="refuses the connection"):
        run([f"http://127.0.0.1:{closed_port}"])


@pytest.mark.parametrize("flag", ["0", "4.5", "many", "9" * 12])
def test_a_bad_number_is_one_sentence(flag, clean_environment):
    with pytest.raises(InfradocError, match="is no number of tokens"):
        run(["x.jsonl", "--max-model-len", flag])


def test_what_never_ends_is_refused_at_once(clean_environment):
    with pytest.raises(InfradocError, match="cannot be read: it is no regular file"):
        run(["/dev/zero"])


def test_long_numbers_do_not_run_together(tmp_path, clean_environment, capsys):
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps({"prompt_tokens": 2_000_000_000, "completion_tokens": 5}) + "\n")
    run([str(path)])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("prompt + output"))
    assert row.split()[-1] == "2,000,000,005"


def test_quantiles_of_histograms_are_upper_bounds():
    """All have 30 tokens: interpolated inside the bucket (16, 32] the P50 would be 24, below every request."""
    buckets = {16.0: 0.0, 32.0: 200.0, math.inf: 200.0}
    assert quantile_bound(buckets, 0.5) == quantile_bound(buckets, 0.99) == 32.0
    assert quantile_bound({16.0: 0.0, math.inf: 200.0}, 0.5) is None
