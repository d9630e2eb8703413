"""The launcher's argument block over many lines, alone and inside a log."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.tgi_args import TgiArgsKind
from infradoc.artefacts.model import Segment

BLOCK = """
2024-10-10T10:00:00.110912Z  INFO text_generation_launcher: Args {
    model_id: "meta-llama/Llama-3.1-8B-Instruct",
    num_shard: Some(
        2,
    ),
    quantize: None,
    max_input_tokens: Some(
        4096,
    ),
    max_batch_prefill_tokens: None,
    cuda_memory_fraction: 0.95,
}
2024-10-10T10:00:01.110912Z  INFO text_generation_launcher: Sharding model on 2 processes
""".strip().splitlines()


def _facts(lines):
    kind = TgiArgsKind()
    [(start, end)] = kind.spans(lines)
    artefact = kind.read(Segment(kind.name, "server.log", start + 1, lines[start:end]))
    return {fact.name: fact.value for fact in artefact.facts}, artefact


def test_values_inside_some_are_read():
    facts, artefact = _facts(BLOCK)
    assert facts == {
        "model_checkpoint": "meta-llama/Llama-3.1-8B-Instruct",
        "tensor_parallel_size": 2,
        "max_input_tokens": 4096,
        "gpu_memory_utilization": 0.95,
    }
    assert artefact.system == "tgi"
    assert not artefact.events


def test_a_record_that_holds_all_lines_is_read_whole():
    facts, artefact = _facts(["x", "\n".join(BLOCK[:-1])])
    assert facts["max_input_tokens"] == 4096
    assert [event.name for event in artefact.events] == ["launched"]


def test_the_lines_around_it_stay_in_the_log():
    [(start, end)] = TgiArgsKind().spans(BLOCK)
    assert (start, end) == (1, len(BLOCK) - 1)


def test_a_block_that_is_never_closed_is_not_claimed():
    assert TgiArgsKind().spans(BLOCK[:5] + ["x"] * 1000) == []
    assert TgiArgsKind().spans(["Args { model_id: 1 }"]) == []


@given(st.lists(st.sampled_from([*BLOCK, "", "}", "Args {"]), max_size=60))
def test_spans_are_in_order_and_apart(lines):
    spans = TgiArgsKind().spans(lines)
    assert all(0 <= start < end <= len(lines) for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    for start, end in spans:
        TgiArgsKind().read(Segment("tgi_args", "x", start + 1, lines[start:end]))
