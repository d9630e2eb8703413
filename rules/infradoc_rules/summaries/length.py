"""Lengths: requests refused, cut or ended at a limit, and how the limit compares with what is served.

Facts, always stated once any event was read unless marked ?:
    length.refused          requests refused for their length; what a server's log and its client both tell counts once
    length.refused_share    of all requests that are seen
    length.cut              prompts or contexts cut without an error and without the request asking for it
    length.cut_share        of all requests that are seen
    length.unseen_cut       an answer counts far fewer prompt tokens than the words that were sent
    length.answers          answers that say why they ended
    length.capped_share     of them, that ended at a token limit with something in them
    length.capped_broken    an answer at its limit does not end as whole ones do: it breaks off, or it is empty
    length.cap?             their usual output tokens
    length.capped_by        "context" where prompt + output fill the window, "request" otherwise
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.summaries.window import fact_of, number_of, oversized, total_of, window_of

_MANY = 50  # answers that a metrics page counts, from which on a share says something
_WORDS = 1.25  # sent for each token that was counted: a token is hardly ever more than a word
_LEAST_WORDS = 200
_SMALL_CAP = 4  # output tokens; labels, scores and yes or no are asked for by wish
_NEAR = 16  # tokens; the window counts as full this close to it
_ALL = 0.97  # of the answers; above it nobody stops by itself, as with ignore_eos
_DEFAULT_CAP = 18.0  # tokens; 16 is what the completions API gives a client that names no max_tokens
_HALF_OF = 0.5  # of the asked answer; what is left above it is seldom missed
_NO_ROOM = 0.1  # of the window, where nobody says what was asked for
_USED = 0.6  # of the mean limit that the mean answer takes
_OLLAMA_WINDOWS = (2048, 4096)  # its defaults; a prompt that counts exactly that many was cut


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """All facts on lengths."""
    if not events:
        # A metrics page alone counts how answers ended; of the rest it says nothing here.
        if _counted(facts):
            yield from _capped((), {}, facts)
        return
    by_name: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_name[event.name].append(event)
    answers = [event for event in by_name["request_finished"] if "reason" in event.fields]
    # vLLM V0 and LMDeploy answer a prompt that is too long with success, nothing, and the reason "length".
    emptied = [e for e in answers if e.fields.get("reason") == "length" and number_of(e, "output_tokens") == 0]
    refused = max(_distinct(by_name["request_rejected_length"]), sum(event.repeat for event in emptied))
    ended = _counted(facts)
    requests = max(_requests(by_name), sum(event.repeat for event in answers), round(sum(ended.values())))
    yield Fact("length.refused", refused, "derived", _place(by_name["request_rejected_length"] or emptied))
    yield Fact("length.refused_share", refused / max(requests, refused, 1), "derived")
    yield from _cuts(by_name, answers, requests, facts, system)
    yield from _capped(answers, by_name, facts)
    yield from oversized(by_name, facts, system)


def _place(events: Sequence[Event]) -> str | None:
    return events[0].source if events else None


def _distinct(events: Sequence[Event]) -> int:
    """Refusals; the same numbers in several places (log, traceback, client) count as often as in one of them."""
    counts: dict[tuple[Value | None, ...], Counter[str]] = defaultdict(Counter)
    # A line without numbers is the echo of one with numbers, where there is one.
    telling = [event for event in events if "tokens" in event.fields] or events
    for event in telling:
        key = (event.fields.get("tokens"), event.fields.get("limit"))
        # A server prints one refusal as error, as traceback and as response within a few lines of one file.
        counts[key][f"{str(event.source).rpartition(':')[0]} {event.fields.get('output_tokens')}"] += event.repeat
    return sum(max(places.values()) for places in counts.values())


def _requests(by_name: Mapping[str, Sequence[Event]]) -> int:
    """Requests that are seen: by access lines of generating routes, else by what finished."""
    access = sum(e.repeat for e in by_name.get("http_access", ()) if _generates(str(e.fields.get("path", ""))))
    finished = [
        e for e in by_name.get("request_finished", ()) if e.fields.get("phase") not in ("prompt eval", "prompt")
    ]
    return max(access, sum(e.repeat for e in finished), len(by_name.get("slot_released", ())))


def _generates(path: str) -> bool:
    return any(part in path for part in ("completion", "generate", "/chat", "/infer", "/responses", "embed"))


def _cuts(
    by_name: Mapping[str, list[Event]],
    answers: Sequence[Event],
    requests: int,
    facts: Mapping[str, Fact],
    system: str | None,
) -> Iterator[Fact]:
    sent = by_name.get("request_sent", [])
    asked = any("truncation" in event.fields for event in sent) or _asked_by_launch(facts, system)
    cut = [e for e in by_name.get("request_truncated", ()) if e.fields.get("part") != "output" or _far_below(e)]
    kept = [] if asked else cut
    shifts = sum(event.repeat for event in by_name.get("context_shifted", ()))
    # A client's own count of an answer need not say why it ended; llama.cpp's phases leave out what was cached.
    told = [e for e in by_name.get("request_finished", ()) if "output_tokens" in e.fields and "phase" not in e.fields]
    short = not asked and _fewer_than_sent(sent, told, facts, system)
    place = _place(kept) or _place(by_name.get("context_shifted", []))
    # One request that runs on shifts its slot many times; a shift is no request.
    number = sum(event.repeat for event in kept) + (1 if shifts and not kept else 0) + (1 if short and not kept else 0)
    yield Fact("length.cut", number, "derived", place)
    yield Fact("length.cut_share", number / max(requests, number, 1), "derived", place)
    yield Fact("length.shifts", shifts, "derived", _place(by_name.get("context_shifted", [])))
    yield Fact("length.unseen_cut", short, "derived", _place(answers))


def _far_below(event: Event) -> bool:
    """Whether the room that was left for an answer is less than half of what the request asked for, or next to none."""
    asked, kept, limit = (number_of(event, name) for name in ("tokens", "kept_tokens", "limit"))
    if asked is None:
        return kept is not None and limit is not None and kept < _NO_ROOM * limit
    return kept is not None and kept < _HALF_OF * asked


def _asked_by_launch(facts: Mapping[str, Fact], system: str | None) -> bool:
    """TGI cuts only where a request says `truncate`; its log shows the parameters."""
    return system == "tgi" and "request.truncate" in facts


def _fewer_than_sent(
    sent: Sequence[Event], answers: Sequence[Event], facts: Mapping[str, Fact], system: str | None
) -> bool:
    """Whether some answer counts far fewer prompt tokens than were sent."""
    for request, answer in zip(sent, answers, strict=False):
        words, tokens = number_of(request, "words"), number_of(answer, "prompt_tokens")
        if words and tokens and words >= _LEAST_WORDS and words > _WORDS * tokens:
            return True
    window = facts.get("max_model_len")
    windows = _OLLAMA_WINDOWS if window is None else (int(window.value),) if isinstance(window.value, int) else ()
    return system == "ollama" and any(number_of(answer, "prompt_tokens") in windows for answer in answers)


def _capped(answers: Sequence[Event], by_name: Mapping[str, list[Event]], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """Answers that ended at their limit, where that was not the aim."""
    wish = any(event.fields.get("fixed") is True for event in by_name.get("request_sent", ()))
    broken = bool(by_name.get("output_invalid"))  # noise never ends by itself
    ended = [e for e in answers if e.fields.get("reason") in ("length", "stop")]
    full = [e for e in ended if e.fields.get("reason") == "length" and number_of(e, "output_tokens") != 0]
    full = [e for e in full if not (e.fields.get("empty") is True and "output_tokens" not in e.fields)]
    caps = [tokens for e in full if (tokens := number_of(e, "output_tokens")) is not None]
    labels = bool(caps) and median(caps) <= _SMALL_CAP
    total = sum(event.repeat for event in ended)
    capped = 0 if wish or broken or labels else sum(event.repeat for event in full)
    counted = _counted(facts)
    if not total and sum(counted.values()) >= _MANY:
        total, capped = round(sum(counted.values())), 0 if wish or broken else _capped_by_count(counted, facts)
    yield Fact("length.answers", total, "derived", _place(answers))
    yield Fact("length.capped_share", capped / total if total else 0.0, "derived", _place(full))
    stops = any(e.fields.get("ended") is not True for e in full)
    yield Fact("length.capped_broken", bool(capped) and stops, "derived", _place(full))
    if caps:
        yield Fact("length.cap", round(median(caps)), "derived", _place(full))
    window = window_of(by_name, facts)
    filled = [e for e in full if window and total_of(e) is not None and window - _NEAR <= (total_of(e) or 0) <= window]
    by_context = bool(full) and len(filled) * 2 > len(full)
    yield Fact("length.capped_by", "context" if by_context else "request", "derived", _place(full))


def _counted(facts: Mapping[str, Fact]) -> dict[str, float]:
    """Answers by how they ended, as a pasted metrics page counts them."""
    names = {reason: f"metrics.llm_requests_finished_total.{reason}" for reason in ("length", "stop")}
    return {reason: number for reason, name in names.items() if (number := fact_of(facts, name)) is not None}


def _capped_by_count(counted: Mapping[str, float], facts: Mapping[str, Fact]) -> int:
    """Of a metrics page: a benchmark with ignore_eos ends all its answers at the limit, whatever the limit is."""
    asked, given = (fact_of(facts, f"metrics.llm_request_{part}_tokens.mean") for part in ("max", "output"))
    share = counted.get("length", 0.0) / sum(counted.values())
    small = asked is not None and _SMALL_CAP < asked <= _DEFAULT_CAP
    if (share > _ALL and not small) or (asked and given and given < _USED * asked):
        return 0
    return round(counted.get("length", 0.0))
