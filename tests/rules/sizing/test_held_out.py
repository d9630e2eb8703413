"""The account beside start-up lines that no constant was set on, and the error that `infradoc fit` states."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from infradoc_rules.sizing.account import HELD_OUT, account
from infradoc_rules.units import GIB

ROOT = Path(__file__).parents[3]
ROWS = yaml.safe_load((ROOT / "tests/data/fit/vllm.yaml").read_text("utf-8"))["starts"]
HELD = [row for row in ROWS if not row.get("set")]


@pytest.fixture(scope="module")
def bench():
    """The bench that made the results."""
    spec = importlib.util.spec_from_file_location("bench_fit", ROOT / "bench/bench_fit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_enough_starts_are_held_out():
    assert len(HELD) >= 40
    assert len({row["model"] for row in HELD}) >= 20 and len({row["gpu"] for row in HELD}) >= 8
    assert all(row["from"] and row["printed"] for row in ROWS)


def test_the_printed_caches_are_within_the_stated_span(bench):
    out = []
    for row in HELD:
        made = account(*bench.start_of(row))
        if "kv" in row["printed"] and not made.kv_low <= row["printed"]["kv"] * GIB <= made.kv_high:
            out.append(row["model"])
    assert out == ["Mistral-Small-3.2-24B"]  # its own tokenizer mode takes half of the logits


def test_the_results_are_those_of_these_starts(bench):
    written = json.loads((ROOT / "bench/results/fit.json").read_text("utf-8"))
    again = bench.compared(ROWS)
    assert written["errors"] == again["errors"]
    assert written["kv_within_stated_span"] == again["kv_within_stated_span"]


def test_the_error_that_is_stated_is_the_measured_one(bench):
    found = bench.compared(ROWS)["errors"]["kv_gib"]
    starts, nine, worst = HELD_OUT
    assert starts == found["starts"]
    assert nine - 0.1 <= max(abs(found["p10"]), abs(found["p90"])) <= nine
    assert worst - 0.1 <= abs(found["worst"]) <= worst


def test_a_distribution():
    spec = importlib.util.spec_from_file_location("bench_fit", ROOT / "bench/bench_fit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.distribution([-2.0, 0.0, 1.0])["worst"] == -2.0
    assert module.distribution([3.0])["median"] == 3.0
    with pytest.raises(ValueError, match="no table"):
        module.start_of({"model": "nothing", "gpu": "H100"})
