"""vLLM's periodic line in all its forms, down to the first releases."""

from __future__ import annotations

import pytest

from infradoc_rules.patterns import LogScanner

TAIL = "Running: 12 reqs, Swapped: 1 reqs, Pending: 3 reqs, GPU KV cache usage: 95.1%, CPU KV cache usage: 2.0%"


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        (f"INFO 06-21 10:00:00 scheduler.py:254] Throughput: 1021.4 tokens/s, {TAIL}", None),
        (f"INFO 12-01 10:00:00 llm_engine.py:624] Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 40.6 "
         f"tokens/s, {TAIL}", 40.6),
        (f"INFO 05-12 20:01:19 [metrics.py:486] Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 40.6 "
         f"tokens/s, {TAIL}.", 40.6),
    ],
)  # fmt: skip
def test_the_state_of_the_scheduler(line, rate):
    (event,) = LogScanner("vllm").feed(line)
    fields = event.fields
    assert event.name == "stats_line" and event.phase == "serving"
    assert (fields["running"], fields["swapped"], fields["waiting"]) == (12, 1, 3)
    assert fields["kv_usage"] == pytest.approx(0.951) and fields["host_kv_usage"] == pytest.approx(0.02)
    # The first release counted prompts and answers together: no rate of generation follows from that.
    assert fields.get("generation_rate") == rate
