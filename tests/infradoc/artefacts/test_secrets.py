"""No secret of what was pasted reaches a report."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.catalog import load_rules
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc.sources.secrets import clean_report, without_secrets

SECRETS = [
    "hf_" + "aBcDeFgHiJkLmNoPqRsT",
    "sk-" + "proj-abcdefghij0123456789",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "abcdefghijklmnopqrstuvwx",
    "nvapi-" + "abcdefghijklmnopqrstuvwx",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "token {} failed", "x={}", '"{}"', "https://h/?k={}&z=1"])
def test_keys_are_told_by_their_shape(secret, around):
    assert secret not in without_secrets(around.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "--api-key hunter2secret",
        "--api-key=hunter2secret",
        "-e HF_TOKEN=hunter2secret",
        "AWS_SECRET_ACCESS_KEY=hunter2secret",
        "export VLLM_API_KEY='hunter2secret'",
        "'api_key': ['hunter2secret']",
        "Authorization: Bearer hunter2secret",
        "http://me:hunter2secret@proxy:3128/",
        "PGPASSWORD: hunter2secret",
    ],
)
def test_values_of_named_secrets(text):
    assert "hunter2secret" not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192",
        "--max-model-len 4096 --tokenizer org/model",
        "Available KV cache memory: 1.9 GiB",
        "GPU KV cache size: 2,131,968 tokens",
        "num_tokens=77, token usage: 0.11",
    ],
)
def test_plain_settings_stay(text):
    assert without_secrets(text) == text


@given(st.text(max_size=400))
def test_any_text_is_survived(text):
    assert isinstance(without_secrets(text), str)


def test_clean_report_goes_everywhere():
    part = {"a": [{"b": f"x {SECRETS[0]}"}], "n": 3, "none": None}
    assert SECRETS[0] not in json.dumps(clean_report(part)) and clean_report(part)["n"] == 3


def test_a_whole_report(write):
    lines = f"(EngineCore pid=1) ERROR 11-29 20:00:00 [core.py:1] EngineCore failed to start. {SECRETS[0]} --api-key hunter2secret"
    case = write(**{"server.log": lines, "launch": f"HF_TOKEN={SECRETS[0]} vllm serve m --api-key hunter2secret\n"})
    for lang in ("en", "zh"):
        said = json.dumps(diagnose_artefacts(case, load_rules(), lang))
        assert "hunter2secret" not in said and SECRETS[0] not in said
