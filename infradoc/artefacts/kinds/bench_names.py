"""What load generators call their results, as fields of `bench_result` in base units."""

from __future__ import annotations

import re

from infradoc_rules.lazy_pattern import lazy

_STEMS = (
    ("ttft", re.compile(r"ttft|time_?to_?first_?(?:output_?)?token|first_token_latency")),
    ("itl", re.compile(r"\bitl|inter_?token|itl_|token_gap|gap")),
    ("tpot", re.compile(r"tpot|time_?per_?output_?token")),
    ("latency", re.compile(r"e2e|end_?to_?end|request_latency|\blatency|^p\d\d|^median_s|^mean_s")),
)
_PARTS = (
    ("p99", re.compile(r"p99")),
    ("median", re.compile(r"p50|median")),
    ("mean", re.compile(r"mean|avg|average")),
    ("max", re.compile(r"max")),
)
_SKIPPED = lazy(r"p90|p95|p75|p25|p1\b|p5\b|p10\b|std|min|steady|peak|slo|goodput")
_UNITS = ((re.compile(r"[_(\[ ](?:ms|msec|milliseconds?)\b"), 1e-3), (re.compile(r"[_(\[ ](?:us|µs)\b"), 1e-6))
# Whole names: (field, pattern). Rates are told from counts by the word for time in them.
_NAMES = (
    ("failed", r"(?:failed|errored?|error)_?(?:requests|request_count|count)?$"),
    ("requests", r"(?:successful_requests|completed|requests|request_count|num_requests|successes)$"),
    (
        "seconds",
        r"(?:benchmark_duration|duration|wall_?clock|elapsed|wall_time|total_time)(?:_?\(?s(?:ec|econds)?\)?)?$",
    ),
    ("offered_rate", r"(?:traffic_request_rate|request_rate_configured|offered_rate|target_rate)"),
    ("concurrency", r"(?:max(?:imum)?_(?:request_)?concurrency|concurrency|num_workers|clients|users|parallel)$"),
    ("request_rate", r"(?:request_throughput|req_s|requests?_per_s(?:ec(?:ond)?)?|rps|qps)"),
    ("total_rate", r"(?:total_tokens?_throughput|total_tok_s|total_throughput)"),
    (
        "generation_rate",
        r"(?:output_token_throughput|output_throughput|out(?:put)?_tok_s|(?:aggregate_)?decode_tok_?s)",
    ),
    ("generation_rate", r"(?:gen(?:eration)?_tok_s|output_tokens_per_s(?:ec(?:ond)?)?|tok_s|tokens_per_second)"),
    ("prompt_rate", r"(?:input_token_throughput|input_throughput|prefill_tok_s|prompt_tok_s)"),
    ("prompt_tokens_all", r"total_input_tokens$"),
    ("output_tokens_all", r"total_(?:generated|output)_tokens$"),
    (
        "prompt_tokens",
        r"(?:isl|input_sequence_length|prompt_tokens|input_len(?:gth)?|mean_prompt_tokens|random_input_len)",
    ),
    ("output_tokens", r"(?:osl|output_sequence_length|output_tokens|output_len(?:gth)?|mean_output_tokens)"),
    ("prefix_hit", r"(?:cache_hit|prefix_cache_hit|hit_rate|prefix_hit)"),
    ("shared_prefix", r"(?:shared_prefix(?:_len|_tokens)?|prefix_len|random_prefix_len|(?:gsp_)?system_prompt_len)"),
)


def plain(name: str) -> str:
    """ "Mean TTFT (ms)" as "mean_ttft_(ms)"."""
    return re.sub(r"[\s\-./]+", "_", name.strip().lower()).strip("_:")


def field_of(name: str, heading: str = "") -> tuple[str, float] | None:
    """(field, factor to base units) of a result's name; `heading` is the section or the row that it stands in.

    None for what is no result, and for the percentiles that are not kept.
    """
    word = plain(name)
    if _SKIPPED.search(word):
        return None
    for field, pattern in _NAMES:
        if re.match(pattern, word):
            return field, 0.01 if word.endswith("%") else 1.0
    text = f"{word} {plain(heading)}"
    stem = next((stem for stem, pattern in _STEMS if pattern.search(word)), None)
    stem = stem or next((stem for stem, pattern in _STEMS if pattern.search(plain(heading))), None)
    part = next((part for part, pattern in _PARTS if pattern.search(word)), None)
    if stem is None or (part is None and stem != "itl" and word.strip("_()ms") not in ("ttft", "tpot", "latency")):
        return None
    factor = next((factor for pattern, factor in _UNITS if pattern.search(f"_{text}")), 1.0)
    return f"{stem}_{part or 'mean'}", factor
