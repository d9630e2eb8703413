from __future__ import annotations

from pathlib import Path

import pytest

from infradoc_engine.chat_template import TemplateError, render
from infradoc_engine.weights import open_model

USER = [{"role": "user", "content": "Hi <b>"}]


def test_real_template(model_path: Path) -> None:
    template = open_model(model_path).chat_template
    assert template is not None
    text = render(template, USER)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n")
    assert not render(template, USER, add_generation_prompt=False).endswith("assistant\n")


def test_helpers_that_templates_expect() -> None:
    assert (
        render("{{ bos_token }}{{ messages | tojson }}", USER, bos_token="<s>")
        == '<s>[{"role": "user", "content": "Hi <b>"}]'
    )
    assert render(
        "{% for m in messages %}{% break %}{% endfor %}x{{ strftime_now('%Y')|length }}{{ tools }}", USER, tools=3
    )
    assert render("  {% if true %}\na\n  {% endif %}", USER) == "a\n"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('only user and assistant') }}", "only user and assistant"),
        ("{% for %}", "is not valid"),
        ("{{ messages[5].content.x }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
        ("{% for i in range(10**9) %}{% endfor %}", "asks for too much"),
        ("{{ 1 / 0 }}", "refuses these messages"),
        ("{{ none + 1 }}", "refuses these messages"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "asks for too much"),
        ("x" * (1 << 21), "characters"),
    ],
)
def test_bad_templates_are_one_sentence(template: str, says: str) -> None:
    with pytest.raises(TemplateError, match=says) as caught:
        render(template, USER)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
