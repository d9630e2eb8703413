"""JSON bodies of LLM servers' APIs: OpenAI's, TGI's, SGLang's, llama.cpp's, Ollama's, and their errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infradoc.artefacts.kinds.quality import invalid_output
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value
from infradoc_rules.patterns import length_error

_LENGTH = lazy(r"^(?:length|max_tokens|max_length|max_output_tokens|MAX_TOKENS|model_length|limit)$")
_BY_ITSELF = lazy(r"^(?:stop|eos|eos_token|stop_sequence|end_turn|tool_calls|function_call|tool_use|word|completed)$")
# As gateways and hosted services word it; the engines' own words are in their log patterns.
_GATEWAY = lazy(
    r"(?i)(?:maximum|max) (?:context|input|sequence) length (?:is|of) (?P<limit>\d+)[^\d].{0,120}?"
    r"(?P<tokens>\d+) (?:\w+ )?tokens"
)
_OVER = lazy(r"context_length_exceeded|exceed_context_size|context window|ContextWindowExceeded")
_ANSWER_KEYS = (
    "choices",
    "generated_text",
    "done",
    "meta_info",
    "stop_reason",
    "text_output",
    "outputs",
    "tokens_predicted",
)
_REQUEST_KEYS = ("messages", "prompt", "inputs", "input", "text")
_ASKS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict", "max_output_tokens", "num_predict")
_PROMPT = ("prompt_tokens", "input_tokens", "prompt_eval_count", "tokens_evaluated")
_OUTPUT = ("completion_tokens", "output_tokens", "generated_tokens", "eval_count", "tokens_predicted")
_CUTS = ("truncate", "truncate_prompt_tokens", "truncation")
_OVERLOADED = frozenset({429, 503})
_WORD = lazy(r"\S+")


def is_body(value: object) -> bool:
    """Whether a JSON value is a request or an answer of one of the APIs."""
    if isinstance(value, list):
        return 0 < len(value) <= 10_000 and all(isinstance(item, dict) and is_body(item) for item in value)
    if not isinstance(value, dict) or "log_history" in value:
        return False
    if isinstance(value.get("response"), dict) and "body" in value["response"]:  # a line of a batch
        return True
    return _is_error(value) or _is_answer(value) or _is_request(value)


def events(value: object) -> list[Event]:
    """The events of one body."""
    if isinstance(value, list):
        return [event for item in value for event in events(item)]
    if not isinstance(value, dict):
        return []
    inner = value.get("response")
    if isinstance(inner, dict) and isinstance(inner.get("body"), dict):
        return events(inner["body"])
    if _is_error(value):
        return list(_refused(value))
    if _is_answer(value):
        return list(_answered(value))
    return list(_sent(value))


def _is_error(value: Mapping[str, Any]) -> bool:
    error = value.get("error")
    if value.get("object") == "error" or "error_type" in value:
        return True
    if isinstance(error, dict):
        return "message" in error or "type" in error
    if isinstance(error, str):
        return bool(error) and len(value) <= 6
    return isinstance(value.get("detail"), str) and len(value) <= 3


def _is_answer(value: Mapping[str, Any]) -> bool:
    choices = value.get("choices")
    if isinstance(choices, list):
        return all(isinstance(choice, dict) for choice in choices)
    if "done" in value and ("response" in value or "message" in value):
        return True
    if value.get("object") == "response" and isinstance(value.get("status"), str):
        return True
    return any(key in value for key in _ANSWER_KEYS if key not in ("choices", "done", "outputs"))


def _is_request(value: Mapping[str, Any]) -> bool:
    asked = any(key in value for key in (*_ASKS, *_CUTS, "parameters", "options", "sampling_params", "model"))
    return asked and any(isinstance(value.get(key), str | list) for key in _REQUEST_KEYS)


def _refused(value: Mapping[str, Any]) -> Iterator[Event]:
    raw = value.get("error")
    error: Mapping[str, Any] = raw if isinstance(raw, dict) else value
    text = " ".join(str(part) for part in (raw, value.get("message"), value.get("detail")) if isinstance(part, str))
    text = text or str(error.get("message", ""))
    code = error.get("code", value.get("code"))
    found = refusal_in(text)
    numbers = {"tokens": error.get("n_prompt_tokens"), "limit": error.get("n_ctx")}
    if found is not None:
        yield _event("request_rejected_length", {**numbers, **found.fields})
    elif _OVER.search(json.dumps(value)[:4_000]):
        yield _event("request_rejected_length", numbers)
    elif _is_overload(code) or "overloaded" in (str(value.get("error_type")), str(error.get("type"))):
        yield _event("request_rejected_load", {"code": code if isinstance(code, int) else 429})
    elif "Out of range float values" in text:  # logits that are no numbers cannot be written as JSON
        yield _event("output_invalid", {"what": "nan"})
    elif isinstance(code, int) and code >= 500:
        yield _event("request_failed", {"error": text[:200]})


def _is_overload(code: object) -> bool:
    return isinstance(code, int) and code in _OVERLOADED


def refusal_in(text: str) -> Event | None:
    """The `request_rejected_length` event in a refusal's text, whoever worded it; None when it is another error."""
    found = length_error(text)
    if found is not None:
        return found
    worded = _GATEWAY.search(text[:16_384])
    if worded is None:
        return None
    return _event("request_rejected_length", {"tokens": int(worded["tokens"]), "limit": int(worded["limit"])})


def _answered(value: Mapping[str, Any]) -> Iterator[Event]:
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    meta = value.get("meta_info") or value.get("details") or {}
    meta = meta if isinstance(meta, dict) else {}
    settings = value.get("generation_settings")
    settings = settings if isinstance(settings, dict) else {}
    prompt = _one(_first(usage, _PROMPT), _first(meta, _PROMPT), _first(value, _PROMPT))
    output = _one(_first(usage, _OUTPUT), _first(meta, _OUTPUT), _first(value, _OUTPUT))
    for reason, text in _ends(value, meta):
        if reason is not None:
            fields = {"prompt_tokens": prompt, "output_tokens": output, "reason": reason}
            fields["asked_tokens"] = _first(settings, ("n_predict", "max_tokens"))
            fields["empty"] = None if text is None else not text.strip()
            fields["ended"] = _whole(text)
            yield _event("request_finished", fields)
        what = invalid_output(text) if text else None
        if what is not None and text is not None:
            yield _event("output_invalid", {"what": what, "sample": text[:80]})
    if value.get("truncated") is True:
        limit = _first(settings, ("n_ctx",))
        yield _event("request_truncated", {"tokens": prompt, "limit": limit, "part": "prompt", "policy": "flag"})


def _ends(value: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None]]:
    """(why it ended, text) of each answer in a body; why is None in the middle of a stream."""
    choices = value.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            message = choice.get("message") or choice.get("delta") or {}
            text = choice.get("text", message.get("content") if isinstance(message, dict) else None)
            yield reason_of(choice.get("finish_reason")), text if isinstance(text, str) else None
        return
    if value.get("object") == "response":
        yield _end_of_response(value)
        return
    message = value.get("message")
    text = value.get("generated_text", value.get("response", value.get("text", value.get("text_output"))))
    text = message.get("content") if isinstance(message, dict) else text
    text = text if text is not None else value.get("content")
    reason = meta.get("finish_reason", value.get("done_reason", value.get("stop_reason")))
    if reason is None:
        reason = "length" if value.get("stopped_limit") is True else value.get("stop_type")
    if reason is None and value.get("stopped_eos") is True:
        reason = "stop"
    yield reason_of(reason), text if isinstance(text, str) else None


def _end_of_response(value: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """OpenAI's newer form: a status, the details of an incomplete answer, and a list of output items."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else value.get("status")
    items = value.get("output")
    parts = [
        str(part.get("text", ""))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and isinstance(item.get("content"), list)
        for part in item["content"]
        if isinstance(part, dict)
    ]
    return reason_of(reason), "".join(parts) if parts else None


def reason_of(value: object) -> str | None:
    """ "length", "stop" or what else is said; None where nothing is."""
    if isinstance(value, dict):
        value = value.get("type")
    if not isinstance(value, str) or not value or value == "none":
        return None
    return "length" if _LENGTH.match(value) else "stop" if _BY_ITSELF.match(value) else value


def _whole(text: str | None) -> bool | None:
    """Whether a text ends as sentences, code and JSON do."""
    if text is None or not text.strip():
        return None
    return text.rstrip()[-1] in ".!?。！？”\"')]}`*"


def _sent(value: Mapping[str, Any]) -> Iterator[Event]:
    inner: dict[str, Any] = {}
    for key in ("parameters", "options", "sampling_params"):
        if isinstance(value.get(key), dict):
            inner |= value[key]
    both = {**value, **inner}
    cut = next((str(both[key]) for key in _CUTS if both.get(key) not in (None, False, "none", "NONE")), None)
    fields: dict[str, Any] = {"words": _words(value), "asked_tokens": _first(both, _ASKS), "truncation": cut}
    fields["context_tokens"] = _first(both, ("num_ctx",))
    fields["fixed"] = True if both.get("ignore_eos") is True else None
    yield _event("request_sent", fields)


def _words(value: Mapping[str, Any]) -> int:
    text = next((value[key] for key in _REQUEST_KEYS if key in value), "")
    held = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return len(_WORD.findall(held[: 1 << 20]))


def _first(value: Mapping[str, Any], names: Sequence[str]) -> int | None:
    for name in names:
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
    return None


def _one(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _event(name: str, fields: Mapping[str, Value | None]) -> Event:
    return Event(name, 0, {key: value for key, value in fields.items() if value is not None})
