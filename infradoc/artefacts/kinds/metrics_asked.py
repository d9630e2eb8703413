"""Answers of Prometheus' HTTP API (`query`, `query_range`) as the lines of a page, each sample with its time stamp."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from infradoc.artefacts.spans import Span, json_spans

_SIGN = '"resultType"'
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_MOST = 20_000  # samples; a longer range is cut at its end


def spans(lines: Sequence[str]) -> list[Span]:
    """Each answer that holds series with names; what an expression made of them has none."""
    if not any(_SIGN in line for line in lines):
        return []
    return json_spans(lines, lambda value: next(_samples(value), None) is not None)


def as_page(lines: Sequence[str]) -> list[str]:
    """The samples of an answer, one a line; the lines themselves where they are none."""
    if not lines or not lines[0].lstrip().startswith("{") or not any(_SIGN in line for line in lines):
        return list(lines)
    try:
        value = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return list(lines)
    return [line for line, _ in zip(_samples(value), range(_MOST), strict=False)]


def _samples(value: object) -> Iterator[str]:
    data = value.get("data") if isinstance(value, dict) else None
    results = data.get("result") if isinstance(data, dict) else None
    for result in results if isinstance(results, list) else ():
        metric = result.get("metric") if isinstance(result, dict) else None
        name = metric.get("__name__") if isinstance(metric, dict) else None
        if not isinstance(metric, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        series = name + _labels(metric)
        points = result.get("values", [result.get("value")])
        for point in points if isinstance(points, list) else ():
            if isinstance(point, list) and len(point) == 2 and isinstance(point[0], int | float):
                yield f"{series} {point[1]} {round(point[0] * 1000)}"


def _labels(metric: Mapping[str, object]) -> str:
    cleaned = {key: re.sub(r'["{}\\\n]', "", str(text)) for key, text in metric.items() if key != "__name__"}
    return "{" + ",".join(f'{key}="{text}"' for key, text in cleaned.items()) + "}" if cleaned else ""
