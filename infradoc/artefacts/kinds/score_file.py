"""Result files of lm_eval (`results_*.json`): scores by task and metric, and the model that they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infradoc.artefacts.kinds.score import LOWER_IS_BETTER, is_quantized
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_PLAIN = lazy(r"(?i)\b(?:kv_cache_)?(?:dtype|quantization)=(?:auto|none|bfloat16|float16|half)\b")
_MOST = 500  # scores of one file; leaderboards have a hundred subtasks


class ScoreFileKind:
    """An object with `results` (task -> metric -> number) and a `config`."""

    name = "score_file"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Every such object that begins at the start of a line."""
        if not any('"results"' in line for line in lines):
            return []
        return json_spans(lines, _is_results)

    def read(self, segment: Segment) -> Artefact:
        """An `eval_score` for each metric of each task."""
        out = Artefact()
        try:
            value = json.loads("\n".join(segment.lines))
        except (ValueError, RecursionError):
            out.unparsed = len(segment.lines)
            return out
        if not _is_results(value):
            return out
        model = _model(value)
        quantized = is_quantized(_PLAIN.sub("", model))
        for task, metric, score in _scores(value["results"]):
            kind = "lower" if LOWER_IS_BETTER.search(f"{task} {metric}") else "higher"
            fields: dict[str, Value] = {
                "task": f"{task} {metric}",
                "score": score,
                "model": model,
                "quantized": quantized,
                "metric": kind,
            }
            out.events.append(Event("eval_score", 0, fields, source=segment.place(0), text=f"{task} {metric}: {score}"))
        return out


def _is_results(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("results"), dict):
        return False
    results = value["results"]
    return all(isinstance(task, dict) for task in results.values()) and any(True for _ in _scores(results))


def _model(value: Mapping[str, Any]) -> str:
    config = value.get("config")
    named = config.get("model_args") if isinstance(config, dict) else None
    if isinstance(named, dict):
        named = ",".join(f"{key}={part}" for key, part in named.items())
    return str(named or value.get("model_name") or "")[:160]


def _scores(results: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    count = 0
    for task, metrics in results.items():
        for metric, score in metrics.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or "stderr" in metric:
                continue
            if metric in ("samples", "sample_len") or count >= _MOST:
                continue
            count += 1
            yield str(task)[:80], str(metric)[:60], float(score)
