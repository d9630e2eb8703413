"""The report on artefacts: healthy only where something was understood, else what would decide."""
# ruff: noqa: E501

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from infradoc.artefacts.open import ArtefactError
from infradoc.catalog import load_rules
from infradoc.cli import diagnose as command
from infradoc.report.post_mortem import diagnose_artefacts

SERVING = """\
(APIServer pid=9) INFO 11-29 20:34:00 [api_server.py:1] vLLM API server version 0.11.0
INFO:     Application startup complete.
(APIServer pid=9) INFO 11-29 20:34:10 [loggers.py:257] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%
INFO:     10.0.0.1:55 - "POST /v1/completions HTTP/1.1" 200 OK
"""
FAILED = """\
(APIServer pid=9) INFO 11-29 20:34:00 [api_server.py:1] vLLM API server version 0.11.0
(EngineCore pid=9) ERROR 11-29 20:34:00 [core.py:1] EngineCore failed to start.
(EngineCore pid=9) ERROR 11-29 20:34:00 [core.py:1] Traceback (most recent call last):
(EngineCore pid=9) ERROR 11-29 20:34:00 [core.py:1]   File "/x/gizmo.py", line 1, in turn
(EngineCore pid=9) ERROR 11-29 20:34:00 [core.py:1] KeyError: 'gizmo'
"""


@pytest.fixture
def report(tmp_path: Path):
    def judge(text: str, lang: str = "en"):
        (tmp_path / "paste").write_text(text)
        return diagnose_artefacts(tmp_path, load_rules(), lang)

    return judge


def test_a_server_that_serves(report):
    seen = report(SERVING)
    assert (seen["status"], seen["findings"], seen["target"]["version"]) == ("ok", [], "0.11.0")
    assert (seen["vitals"]["queue_depth"], seen["vitals"]["kv_usage_ratio"]) == (1.0, 0.125)
    assert any("ttft_p99_seconds" in one for one in seen["not_visible"])


def test_a_failure_that_no_rule_explains_is_not_healthy(report):
    seen = report(FAILED)
    assert (seen["status"], seen["findings"]) == ("unknown", [])
    assert any("no rule explains" in one and "paste:" in one for one in seen["not_visible"])
    assert any("没有规则能解释" in one for one in report(FAILED, "zh")["not_visible"])


@pytest.mark.parametrize(
    "text", ["Dear team, our chatbot is slow. Please help.\n", "vllm serve m --tensor-parallel-size 2\n"]
)
def test_nothing_understood_is_unknown(text, report):
    seen = report(text)
    assert seen["status"] == "unknown"
    assert any("What would decide" in one for one in seen["not_visible"])


def test_not_judged_findings_are_named_once(report):
    lines = [one for one in report(SERVING)["not_visible"] if one.startswith("not judged")]
    assert len(lines) <= 1


def test_standard_input_and_exit_codes(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SERVING.encode())))
    assert command.run(["-", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["name"] == "(stdin)"
    (tmp_path / "shot").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    with pytest.raises(ArtefactError, match="text is needed") as failure:
        command.run([str(tmp_path / "shot")])
    assert failure.value.exit_code == 2


def test_markdown_and_rich_of_artefacts(capsys, tmp_path):
    (tmp_path / "paste").write_text(SERVING)
    for style in ("markdown", "rich"):
        assert command.run([str(tmp_path / "paste"), "--format", style, "--lang", "zh"]) == 0
        assert "健康" in capsys.readouterr().out
