"""Result files of lm_eval."""

from __future__ import annotations

import json
from functools import partial

import pytest

from infradoc.artefacts.kinds.score_file import ScoreFileKind

KIND = ScoreFileKind()


def results(score, args):
    metrics = {"alias": "gsm8k", "exact_match,strict-match": score, "exact_match_stderr,strict-match": 0.01}
    return {"results": {"gsm8k": metrics}, "config": {"model": "vllm", "model_args": args}}


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "results.json")


@pytest.mark.parametrize(
    ("args", "quantized"),
    [
        ("pretrained=m,kv_cache_dtype=fp8", True),
        ("pretrained=m-AWQ,dtype=float16", True),
        ("pretrained=m,kv_cache_dtype=auto,quantization=None", False),
        ({"pretrained": "m", "load_in_4bit": True}, True),
    ],
)
def test_scores_and_whose_they_are(read, args, quantized):
    (event,) = read(json.dumps(results(0.71, args), indent=1).splitlines()).events
    assert (event.fields["task"], event.fields["score"]) == ("gsm8k exact_match,strict-match", 0.71)
    assert event.fields["quantized"] is quantized


@pytest.mark.parametrize("value", [{"results": []}, {"results": {"a": 1}}, {"results": {}}, {"x": {"results": {}}}])
def test_other_objects_with_results_are_left_alone(value):
    assert KIND.spans([json.dumps(value)]) == []
