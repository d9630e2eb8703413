"""Lines of clients: objects as Python prints them, exceptions of client libraries, tallies of finish reasons."""

from __future__ import annotations

import re
from dataclasses import replace

from infradoc.artefacts.kinds.quality import invalid_output
from infradoc.artefacts.kinds.response_body import reason_of, refusal_in
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_LINE = 16_384  # characters of a line that are looked at
_REASON = lazy(
    r"(?:finish|stop|done)(?:ed)?[_ ]?reason['\"]?\s*(?:[=:]|->)\s*"
    r"(?:<\w+\.|\{['\"]type['\"]: )?['\"]?(?P<reason>[A-Za-z_]+)"
)
_SHORT = lazy(r"\bfinish=(?P<reason>length|stop|eos_token)\b")
_TALLY = lazy(r"['\"]?\b(?P<reason>length|stop|max_tokens|eos_token|tool_calls)\b['\"]?\s*[:=]\s*(?P<count>\d{1,9})\b")
_TALLIED = lazy(r"(?i)finish[_ ]?reasons?|stop[_ ]?reasons?|\bCounter\(\{")
_CLIENT = lazy(
    r"(?:Error(?: code)?: 4\d\d|BadRequestError|ContextWindowExceeded|UnprocessableEntity|HTTPStatusError|HTTPError"
    r"|ResponseError|GenerationError|ValidationError|APIStatusError|ApiError|APIError|status_?code[=: ]+4\d\d"
    r"|HTTP/[12](?:\.\d)? 4\d\d|HTTP 4\d\d|\b4(?:00|13|22) (?:Bad Request|Unprocessable)|\"(?:error|message|detail)\":)"
)
_OUTPUT = lazy(
    r"(?<!prompt_)(?:completion_tokens|output_tokens|eval_count|generated_tokens|\btokens)"
    r"['\"]?\s*[=:]\s*(?P<n>\d+)"
)
_PROMPT = lazy(r"(?:prompt_tokens|input_tokens|prompt_eval_count)['\"]?\s*[=:]\s*(?P<n>\d+)")
_ASKED = lazy(r"(?:max_tokens|max_new_tokens|max_completion_tokens|n_predict|num_predict)['\"]?\s*[=:]\s*(?P<n>\d+)")
_TEXT = lazy(r"\b(?:text|content)['\"]?\s*[=:]\s*(?P<q>['\"])(?P<text>.*?)(?<!\\)(?P=q)\s*[,)}]")
_WORDS = ("length", "context", "exceed", "ContextWindow", "must be", "must have")
# What client libraries say of an answer that is not whole: they parse it into a schema, or look at why it ended.
_LIMIT = r"(?:max_?(?:output_|completion_|new_)?tokens?|(?:output |completion )?token (?:length )?limit|output limit)"
_REACHED = lazy(
    r"(?i)length limit was reached|has been truncated before reaching a natural stopping point"
    rf"|\b(?:output|response|completion|answer|generation|reply|message)s?\b[^.;{{}}]{{0,40}}"
    r"\b(?:incomplete|truncated|cut(?: off| short)?|stopped|ended)\b"
    rf"[^.;{{}}]{{0,20}}\b(?:because|due to|since|by|at|as)\b[^.;{{}}]{{0,40}}\b{_LIMIT}\b"
    r"|token limit \(\d+\) exceeded (?:before any response|while)|possibly exceeded output limit"
    rf"|\b(?:hit|reached|exceeded) (?:a |the |its |your )?(?:model'?s )?(?:output |maximum output |max output )"
    r"token limit"
)
_REACHED_WORDS = ("limit", "natural stopping", "max_tokens", "max_output_tokens", "max_new_tokens", "maxTokens")
_NO_TOKENS = lazy(r"token_ids=(?:\[\]|\(\)|array\('l'\))")


def telling(line: str) -> bool:
    """Whether a line quotes how an answer ended, or a client's exception for a length."""
    text = line[:_LINE]
    if ("eason" in text or "Counter({" in text) and (
        _REASON.search(text) or (_TALLIED.search(text) and _TALLY.search(text))
    ):
        return True
    if any(word in text for word in _REACHED_WORDS) and _REACHED.search(text):
        return True
    if "finish=" in text and _SHORT.search(text):
        return True
    # The words first: a log has an access line for every refusal, and all engines' patterns are asked for a refusal.
    return any(word in text for word in _WORDS) and bool(_CLIENT.search(text)) and _refusal(text) is not None


def events(line: str) -> list[Event]:
    """The events of one line."""
    text = line[:_LINE]
    refused = _refusal(text) if _CLIENT.search(text) else None
    if refused is not None:
        return [replace(refused, fields=dict(refused.fields))]
    counts = list(_TALLY.finditer(text)) if _TALLIED.search(text) else []
    if counts and not _REASON.search(text):
        return [_tallied(found) for found in counts if int(found["count"]) > 0]
    return list(_finished(text))


def _refusal(text: str) -> Event | None:
    found = refusal_in(text)
    if found is not None:
        return found
    return Event("request_rejected_length", 0, {}) if "ContextWindowExceeded" in text else None


def _tallied(found: re.Match[str]) -> Event:
    fields: dict[str, Value] = {"reason": reason_of(found["reason"]) or found["reason"]}
    return Event("request_finished", 0, fields, repeat=int(found["count"]))


def _finished(text: str) -> list[Event]:
    found = _REASON.search(text) or _SHORT.search(text)
    reason = reason_of(found["reason"].lower()) if found else "length" if _REACHED.search(text) else None
    if reason is None:
        return []
    fields: dict[str, Value] = {"reason": reason}
    for name, pattern in (("output_tokens", _OUTPUT), ("prompt_tokens", _PROMPT), ("asked_tokens", _ASKED)):
        number = pattern.search(text)
        if number:
            fields[name] = int(number["n"])
    if _NO_TOKENS.search(text):
        fields["output_tokens"] = 0
    said = _TEXT.search(text)
    out = []
    if said:
        fields["empty"] = not said["text"].strip()
        if not fields["empty"]:
            fields["ended"] = said["text"].rstrip()[-1] in ".!?。！？”\"')]}`*"
        what = invalid_output(said["text"])
        if what is not None:
            out.append(Event("output_invalid", 0, {"what": what, "sample": said["text"][:80]}))
    return [Event("request_finished", 0, fields), *out]
