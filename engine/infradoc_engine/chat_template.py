"""Chat messages to prompt text, by the template that the model files bring. Templates are untrusted: sandboxed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEMPLATE_CHARS = 1 << 20


class TemplateError(ValueError):
    """A template or messages that do not go together. One sentence."""


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
    **extra: Any,
) -> str:
    """The prompt text for messages ({"role", "content"}). `extra` is passed to the template. Raises TemplateError."""
    compiled = _compile(template)
    try:
        return compiled.render(
            messages=messages,
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
            **extra,
        )
    except (RecursionError, MemoryError, OverflowError) as error:  # first: an OverflowError is an ArithmeticError too
        raise TemplateError(_sentence("asks for too much", error)) from None
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise TemplateError(_sentence("refuses these messages", error)) from None


@lru_cache(maxsize=8)
def _compile(template: str) -> jinja2.Template:
    if len(template) > MAX_TEMPLATE_CHARS:
        raise TemplateError(f"The model's chat template has {len(template)} characters; use /v1/completions instead.")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    # What templates in the wild expect to find, after the transformers library's documentation of chat templates.
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(template)
    except (jinja2.TemplateError, RecursionError) as error:
        raise TemplateError(_sentence("is not valid", error)) from None


def _sentence(what: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
    return f"The model's chat template {what}: {reason}; change the messages or use /v1/completions."


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Plain JSON: jinja's own filter would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
