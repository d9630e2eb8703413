"""Secrets of a launch command do not get into facts and recordings; figures do."""

from __future__ import annotations

from infradoc.sources.redact import redact


def test_secrets_are_taken_out() -> None:
    words = "vllm serve --api-key abc --hf-token=xyz HF_TOKEN=tok --max-num-batched-tokens 5 --tokenizer-mode auto http://u:p@h/"
    assert "hf_" not in redact(["serve", "--env", "X=1", "hf_abcdefghijklmnopqrstuv"])
    shown = redact(words.split())
    for secret in ("abc", "xyz", "=tok", "u:p"):
        assert secret not in shown
    assert "--max-num-batched-tokens 5" in shown and "--tokenizer-mode auto" in shown
