"""A real vLLM: set INFRADOC_PEER_VLLM to the URL of a running server and select with `-m peer`."""

from __future__ import annotations

import json
import os

import pytest

from infradoc.cli import app

pytestmark = pytest.mark.peer


def test_real_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    url = os.environ.get("INFRADOC_PEER_VLLM", "")
    if not url:
        pytest.skip("INFRADOC_PEER_VLLM names no server")
    code = app.dispatch(["diagnose", url, "--window", "12s", "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["target"]["system"] == "vllm" and report["target"]["version"].startswith("0.")
    assert code in (0, 10, 20) and len(report["checked"]) >= 6
    assert report["vitals"]["kv_usage_ratio"] is not None and report["vitals"]["queue_depth"] is not None
