"""One window of measurements, from the clients where they can be seen, else from the server's own histograms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from infradoc.load.record import RequestRecord
from infradoc.load.stats import percentile, samples_needed
from infradoc.load.window import Window, classes_of, cut_window
from infradoc_rules.model import SignalFrame
from infradoc_rules.promql import evaluate, parse
from infradoc_rules.schema import VerifyMetric
from infradoc_rules.signals import signal_table

CLIENT_LATENCIES = {
    "client_time_to_first_token_seconds": "ttft",
    "client_inter_token_latency_seconds": "itl",
    "client_request_seconds": "e2e",
}
SERVER_NAMES = {
    "client_time_to_first_token_seconds": "llm_time_to_first_token_seconds",
    "client_inter_token_latency_seconds": "llm_inter_token_latency_seconds",
    "client_request_seconds": "llm_request_seconds",
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured number with the number of samples behind it; None when there is none or too few."""

    value: float | None
    n: int


@dataclass(frozen=True, slots=True)
class LoadShape:
    """What the load was, for the question whether two windows saw the same one.

    concurrency: mean requests in flight. arrivals: requests ended a second. Lengths are means; None where unknown.
    """

    concurrency: float
    arrivals: float
    prompt: float | None
    max_tokens: float | None
    n: int


class Measured(Protocol):
    """What happened between two moments (Unix seconds)."""

    source: Literal["client", "server"]
    begin: float
    end: float

    def metric(self, metric: VerifyMetric) -> Quantity:
        """The value of a named metric: a quantile, a counter's rate or a gauge's mean."""

    def tokens_per_second(self) -> Quantity:
        """Generated tokens a second."""

    def documents_per_second(self) -> Quantity:
        """Documents tokenized a second."""

    def errors(self) -> tuple[int, int]:
        """Failed requests, and all that ended."""

    def cut_prompts(self) -> tuple[int, int]:
        """Answered requests whose prompt was cut, and all of which that can be told."""

    def load(self) -> dict[str, LoadShape]:
        """The load by request class."""


class ServerMeasured:
    """A window read from the target's series. Percentiles come from histogram buckets."""

    source: Literal["client", "server"] = "server"

    def __init__(self, frame: SignalFrame, begin: float, end: float) -> None:
        self._frame = frame
        self.begin = begin
        self.end = end

    def number(self, expr: str) -> float | None:
        """A PromQL expression at the end of the window; `$span` is its length. None when there is no finite value."""
        span = f"{max(1, round(self.end - self.begin))}s"
        result = evaluate(parse(expr.replace("$span", span)), self._frame, self.end)
        values = [result] if isinstance(result, float) else [element.value for element in result]
        return values[0] if len(values) == 1 and math.isfinite(values[0]) else None

    def metric(self, metric: VerifyMetric) -> Quantity:
        """See `Measured`. A class cannot be told apart by the server and is ignored."""
        name = SERVER_NAMES.get(metric.signal, metric.signal)
        if metric.quantile is not None:
            n = self.number(f"sum(increase({name}_count[$span]))")
            text = f"histogram_quantile({metric.quantile}, sum by (le) (increase({name}_bucket[$span])))"
            return enough(self.number(text), n, metric.quantile)
        spec = signal_table().resolve(name)
        counter = spec is None or spec.kind == "counter"
        value = self.number(f"sum(rate({name}[$span]))" if counter else f"sum(avg_over_time({name}[$span]))")
        looks = self.number(f"max(count_over_time({name}[$span]))")
        return Quantity(value, int(looks or 0))

    def tokens_per_second(self) -> Quantity:
        """See `Measured`."""
        return self._rate("llm_generation_tokens_total", "llm_request_seconds_count")

    def documents_per_second(self) -> Quantity:
        """See `Measured`."""
        selector = 'llm_http_requests_total{path="/tokenize",code=~"2.."}'
        return self._rate(selector, selector)

    def _rate(self, counted: str, sampled: str) -> Quantity:
        value = self.number(f"sum(rate({counted}[$span]))")
        n = self.number(f"sum(increase({sampled}[$span]))")
        return Quantity(value, round(n or 0))

    def errors(self) -> tuple[int, int]:
        """See `Measured`: answers of 4xx and 5xx among all answers under /v1 and /tokenize."""
        paths = 'path=~"/v1/.*|/tokenize"'
        failed = self.number(f'sum(increase(llm_http_requests_total{{{paths},code=~"[45].."}}[$span]))')
        total = self.number(f"sum(increase(llm_http_requests_total{{{paths}}}[$span]))")
        return round(failed or 0), round(total or 0)

    def cut_prompts(self) -> tuple[int, int]:
        """See `Measured`: as the server counts its cuts; (0, 0) where it counts none."""
        cut = self.number("sum(increase(llm_requests_truncated_total[$span]))")
        total = self.number("sum(increase(llm_request_prompt_tokens_count[$span]))")
        return (0, 0) if cut is None else (round(cut), round(total or 0))

    def load(self) -> dict[str, LoadShape]:
        """See `Measured`; the server knows one class only."""
        number = self.number
        running = number("sum(avg_over_time(llm_requests_running[$span]))") or 0.0
        waiting = number("sum(avg_over_time(llm_requests_waiting[$span]))") or 0.0
        ended = number("sum(increase(llm_request_prompt_tokens_count[$span]))") or 0.0
        if not ended:
            return {}
        prompt = number("sum(increase(llm_request_prompt_tokens_sum[$span]))")
        asked = number("sum(increase(llm_request_max_tokens_sum[$span]))")
        return {
            "all": LoadShape(
                running + waiting,
                ended / (self.end - self.begin),
                None if prompt is None else prompt / ended,
                None if asked is None else asked / ended,
                round(ended),
            )
        }


class ClientMeasured:
    """A window measured by those who sent the requests; other signals than theirs come from the target's series."""

    source: Literal["client", "server"] = "client"

    def __init__(
        self, records: Sequence[RequestRecord], begin: float, end: float, frame: SignalFrame | None = None
    ) -> None:
        self._records = records
        self._server = ServerMeasured(frame, begin, end) if frame is not None else None
        self._whole = cut_window(records, begin, end)
        self.begin = begin
        self.end = end

    def window(self, cls: str | None) -> Window:
        """The events of one class, or of all."""
        return self._whole if cls is None else cut_window(self._records, self.begin, self.end, cls)

    def metric(self, metric: VerifyMetric) -> Quantity:
        """See `Measured`. Quantiles of client latencies are exact."""
        if metric.signal not in CLIENT_LATENCIES or metric.quantile is None:
            return self._server.metric(metric) if self._server else Quantity(None, 0)
        samples = sorted(getattr(self.window(metric.request_class), CLIENT_LATENCIES[metric.signal]))
        return Quantity(percentile(samples, metric.quantile), len(samples))

    def tokens_per_second(self) -> Quantity:
        """See `Measured`."""
        return Quantity(self._whole.tokens_per_second, len(self._whole.ttft) + len(self._whole.itl))

    def documents_per_second(self) -> Quantity:
        """See `Measured`."""
        return Quantity(self._whole.documents_per_second, self._whole.documents)

    def errors(self) -> tuple[int, int]:
        """See `Measured`."""
        return self._whole.error_count, self._whole.finished

    def cut_prompts(self) -> tuple[int, int]:
        """See `Measured`: usage counted fewer tokens than the client sent words."""
        known = [
            (record.prompt_words, record.prompt_tokens)
            for record in self._records
            if self._whole.holds(record.end) and record.ok and record.prompt_words and record.prompt_tokens is not None
        ]
        return sum(tokens < words for words, tokens in known), len(known)

    def load(self) -> dict[str, LoadShape]:
        """See `Measured`."""
        return {cls: shape(self.window(cls)) for cls in classes_of(self._records) if self.window(cls).busy > 0}


def shape(window: Window) -> LoadShape:
    """The load of one class in a window."""
    return LoadShape(
        window.concurrency,
        window.finished / window.seconds,
        statistics.fmean(window.prompt_words) if window.prompt_words else None,
        statistics.fmean(window.max_tokens) if window.max_tokens else None,
        window.finished,
    )


def enough(value: float | None, n: float | None, q: float) -> Quantity:
    """A quantile only when there are samples enough for it."""
    count = round(n or 0)
    return Quantity(value if count >= samples_needed(q) else None, count)
