"""Log records in JSON, as collectors write them: the message of one, with its time and level in front."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

RECORD_LIMIT = 1 << 20
_MESSAGE_KEYS = ("log", "MESSAGE", "message", "msg", "textPayload", "line", "_raw", "@message", "event", "body")
_TIME_KEYS = (
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "_time",
    "@t",
    "timeUnixNano",
    "ingestionTime",
    "__REALTIME_TIMESTAMP",
)
_LEVEL_KEYS = ("level", "severity", "levelname", "log.level", "severityText")
_SIGNS = (*_TIME_KEYS, *_LEVEL_KEYS, "stream", "PRIORITY", "_PID", "logger", "logName", "insertId")
# Where a message lies deeper: TGI, Google, Elasticsearch, Splunk, OpenTelemetry, Loki.
_HOLDERS = ("fields", "jsonPayload", "_source", "result", "attributes", "entry", "record")
_SECONDS = (
    1e9,
    1e12,
    1e15,
    1e18,
)  # from which a number of seconds, milli-, micro- and nanoseconds is a date of our days


def message_of(line: str) -> str | None:
    """The message of a line that is one JSON log record, with its time and level; None when it is none."""
    if not (line.startswith("{") and line.rstrip().endswith("}")) or len(line) > RECORD_LIMIT:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = record(data) if isinstance(data, dict) else None
    return None if found is None else found[1]


def record(data: Mapping[str, Any]) -> tuple[float | None, str] | None:
    """(Unix seconds or None, the message with what stands in front of it) of a log record; None for other objects."""
    holders = [data, *(inner for key in _HOLDERS if isinstance(inner := data.get(key), dict))]
    for holder in holders:
        text = next((holder[key] for key in _MESSAGE_KEYS if isinstance(holder.get(key), str)), None)
        if text is None:
            text = _body(holder)
        if text is not None and _is_log(data, holder):
            return time_of(_first(holders, _TIME_KEYS)), _with_head(holders, text)
    return None


def _body(holder: Mapping[str, Any]) -> str | None:
    """OpenTelemetry: {"body": {"stringValue": ...}}; journald: a message with control characters as a list of bytes."""
    body = holder.get("body")
    if isinstance(body, dict) and isinstance(body.get("stringValue"), str):
        return str(body["stringValue"])
    message = holder.get("MESSAGE")
    if isinstance(message, list) and message and all(isinstance(one, int) and 0 <= one < 256 for one in message):
        return bytes(message).decode("utf-8", errors="replace")
    return None


def _is_log(data: Mapping[str, Any], holder: Mapping[str, Any]) -> bool:
    """A bare {"message": ...} may be a server's answer; a log record has a time, a level or a stream beside it."""
    return "log" in holder or any(key in data or key in holder for key in _SIGNS)


def _first(holders: list[Mapping[str, Any]], keys: tuple[str, ...]) -> Any:
    return next(
        (holder[key] for holder in holders for key in keys if isinstance(holder.get(key), str | int | float)), ""
    )


def _with_head(holders: list[Mapping[str, Any]], message: str) -> str:
    stamp = _first(holders, _TIME_KEYS)
    level = next((holder[key] for holder in holders for key in _LEVEL_KEYS if isinstance(holder.get(key), str)), "")
    target = holders[0].get("target")
    parts = [stamp if isinstance(stamp, str) and not stamp.isdigit() else "", str(level).upper()] if level else []
    if isinstance(target, str):
        parts.append(f"{target}:")
    return " ".join([*(part for part in parts if part), message.rstrip("\r\n")])


def time_of(stamp: object) -> float | None:
    """Unix seconds of a record's time: ISO 8601, or a number of seconds, milli-, micro- or nanoseconds."""
    if isinstance(stamp, bool):
        return None
    if isinstance(stamp, str):
        try:
            return _counted(float(stamp))
        except ValueError:
            return _dated(stamp)
    # A row of hundreds of digits is no time, and no number that a float can hold.
    return _counted(float(stamp)) if isinstance(stamp, int | float) and abs(stamp) < 10 * _SECONDS[-1] else None


def _counted(number: float) -> float | None:
    for power, least in enumerate(_SECONDS):
        if least <= number < 10 * least:
            return number / 1000.0**power
    return None


def _dated(text: str) -> float | None:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    try:
        return when.timestamp() if when.tzinfo else when.replace(tzinfo=UTC).timestamp()
    except (OverflowError, ValueError):
        return None
