"""Secrets do not get into recordings; figures do."""

from __future__ import annotations

import pytest

from infradoc.sources.redact import redact, redact_line


def test_secrets_are_taken_out() -> None:
    words = "vllm serve --api-key abc --hf-token=xyz HF_TOKEN=tok --max-num-batched-tokens 5 --tokenizer-mode auto http://u:p@h/"
    shown = redact(words.split())
    for secret in ("abc", "xyz", "=tok", "u:p"):
        assert secret not in shown
    assert "--max-num-batched-tokens 5" in shown and "--tokenizer-mode auto" in shown


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("non-default args: {'api_key': ['s3cret', 's3cret2'], 'max_model_len': 512}", "'max_model_len': 512"),
        ("args: Namespace(api_key='s3cret', hf_token=s3cret, max_num_seqs=4)", "max_num_seqs=4"),
        ("vllm serve m --api-key s3cret --port 1", "--port 1"),
        ('{"authorization": "Bearer s3cret", "tokens": 7}', '"tokens": 7'),
        ("fetching https://me:s3cret@host/x", "@host/x"),
        ("password = s3cret", "password"),
    ],
)
def test_keys_in_log_lines(line: str, kept: str) -> None:
    shown = redact_line(line)
    assert "s3cret" not in shown and kept in shown


@pytest.mark.parametrize(
    "line",
    [
        "Avg prompt throughput: 24.0 tokens/s, GPU KV cache usage: 99.0%, Running: 5 reqs",
        "max_num_batched_tokens=2048, tokenizer='m', num_tokens: 17",
    ],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert redact_line(line) == line


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["api_key=[", "api_key ", "secret='", "://", " "])
def test_hostile_lines_take_no_quadratic_time(piece: str) -> None:
    assert redact_line("secret" + piece * 100_000)
