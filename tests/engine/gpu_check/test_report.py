"""From the rows of a run to the table: figures that are there, figures that are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infradoc_engine.gpu_check import report

PAGE = Path(__file__).parents[3] / "bench" / "results" / "gpu.md"


def run_of(**steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": 1,
        "started": "2026-01-02T03:04:05+00:00",
        "dry_run": False,
        "steps": {name: {"rows": rows, "finished": True} for name, rows in steps.items()},
    }


def test_nothing_measured_reads_so() -> None:
    page = report.table(None)
    figures = [line for line in page.splitlines() if line.startswith("| ") and "figure" not in line]
    assert len(figures) == len(report.FIGURES) > 20
    assert all(line.endswith(f"| {report.NOT_MEASURED} |") for line in figures)


def test_rows_become_figures_and_the_rest_stays_open() -> None:
    decode = {"kv_heads": 8, "batch": 32, "context": 8192, "block_size": 16, "gigabytes_per_second": 1234.4}
    step = {
        "model": report.LARGE,
        "what": "decode",
        "batch": 1,
        "mode": "graph",
        "tokens_per_second": 50.4,
        "step_ms": 19.8,
    }
    data = run_of(
        environment=[{"device": "Some GPU", "torch": "2.11.0"}],
        copy=[{"bytes": 1 << 20, "gigabytes_per_second": 9999.0}, {"bytes": 1 << 30, "gigabytes_per_second": 1500.0}],
        correctness=[{"seed": 1}, {"kernel": "rope", "ok": True}, {"kernel": "top_p_mask", "ok": False}],
        decode=[{**decode, "share_of_copy": 0.823}],
        model=[{**step, "weights_share_of_copy": 0.7}],
    )
    data["steps"]["tune"] = {"rows": [], "finished": False, "error": "RuntimeError: broke"}
    page = report.table(data)
    assert "Some GPU" in page and "torch 2.11.0" in page
    assert "| copy on the device, read and written bytes |  | 1,500 GB/s |" in page
    assert "| kernels against float64 | all | 1 of 2 hold |" in page
    assert "batch 32, context 8192 | 85 % of the copy | 1,234 GB/s, 82% of the copy |" in page
    assert "50 tokens/s (19.80 ms), weights at 70% of the copy |" in page
    assert page.count(report.NOT_MEASURED) == len(report.FIGURES) - 4
    assert "- step `tune`: RuntimeError: broke" in page and '"top_p_mask"' in page


def test_a_dry_run_is_no_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dry.json"
    path.write_text(json.dumps({**run_of(), "dry_run": True}))
    assert report.main([str(path)]) == 2
    assert "dry run" in capsys.readouterr().err
    assert report.main([str(tmp_path / "none.json")]) == 2


def test_the_committed_page_is_what_the_writer_writes() -> None:
    """Either no run was committed, or the page comes from the run beside it."""
    run = PAGE.with_name("gpu-check.json")
    assert PAGE.read_text() == report.table(json.loads(run.read_text()) if run.exists() else None)
