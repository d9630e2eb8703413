"""Everything the bundled engine exposes on /metrics, under the canonical names."""

from __future__ import annotations

from collections.abc import Callable

from infradoc_engine.exposition import Counter, Family, Histogram, fine_buckets
from infradoc_engine.latency import STAGES, LatencyLedger

REJECT_REASONS = ("length", "queue_full", "invalid", "overloaded", "draining")
CUT_POLICIES = ("left", "right", "middle")

_SECONDS = fine_buckets(1e-3, 600.0)
_SHORT_SECONDS = fine_buckets(1e-4, 100.0)
_TOKENS = fine_buckets(1, 1e5)

Collector = Callable[[list[str]], None]


class EngineMetrics:
    """The event-driven families, and the collectors that read state at scrape time.

    Observed from the event loops and the engine thread; rendered from the control thread.
    """

    def __init__(self) -> None:
        self.received = Counter("llm_requests_received_total", "Requests that reached the front end, refused ones too")
        self.rejected = Counter(
            "llm_requests_rejected_total", "Refused at admission", ["reason"], [(r,) for r in REJECT_REASONS]
        )
        self.truncated = Counter(
            "llm_requests_truncated_total", "Prompts cut to fit by policy", ["policy"], [(p,) for p in CUT_POLICIES]
        )
        self.truncated_tokens = Counter(
            "llm_truncated_tokens_total", "Prompt tokens cut away by policy", ["policy"], [(p,) for p in CUT_POLICIES]
        )
        self.step_tokens = Histogram("llm_step_tokens", "Tokens per engine step", fine_buckets(1, 1e5))
        self.step_seconds = Histogram("llm_step_seconds", "Time of a step", _SHORT_SECONDS, ["phase"])
        self.ttft = Histogram("llm_time_to_first_token_seconds", "Arrival to first token", _SECONDS)
        self.itl = Histogram("llm_inter_token_latency_seconds", "Gap between two tokens of a request", _SHORT_SECONDS)
        self.tpot = Histogram(
            "llm_time_per_output_token_seconds", "Mean gap between the tokens of a request", _SHORT_SECONDS
        )
        self.request_seconds = Histogram("llm_request_seconds", "Arrival to last token sent", _SECONDS)
        self.inference_seconds = Histogram("llm_request_inference_seconds", "First admission to last token", _SECONDS)
        self.stage_seconds = Histogram(
            "llm_request_stage_seconds", "The latency ledger", _SHORT_SECONDS, ["stage"], [(s,) for s in STAGES]
        )
        self.prompt_tokens = Histogram("llm_request_prompt_tokens", "Prompt length per request", _TOKENS)
        self.uncut_tokens = Histogram(
            "llm_prompt_tokens_before_truncation",
            "Prompt length before the policy cuts or refuses",
            fine_buckets(1, 1e6),
        )
        self.output_tokens = Histogram("llm_request_output_tokens", "Output length per request", _TOKENS)
        self.max_tokens = Histogram("llm_request_max_tokens", "max_tokens asked by the client", _TOKENS)
        self.http_requests = Counter("llm_http_requests_total", "HTTP responses by status", ["path", "code"])
        self.http_seconds = Histogram("llm_http_request_seconds", "HTTP latency seen by the server", _SECONDS, ["path"])
        self.loop_lag = Histogram(
            "proc_event_loop_lag_seconds", "Delay of the event loop", fine_buckets(1e-4, 60.0), ["role"], [("api",)]
        )
        self._families: list[Family] = [
            value for value in vars(self).values() if isinstance(value, Counter | Histogram)
        ]
        self._collectors: list[Collector] = []

    def add_collector(self, collector: Collector) -> None:
        """`collector(out)` appends text lines; it runs on the scraping thread and must not block."""
        self._collectors.append(collector)

    def request_done(self, ledger: LatencyLedger, prompt_tokens: int, output_tokens: int) -> None:
        """Account for one finished request; the ledger must be finished."""
        self.request_seconds.observe(ledger.end_to_end)
        for stage in STAGES:
            if stage != "tokenize":  # observed where it happens: /tokenize and refused prompts count as well
                self.stage_seconds.observe(ledger.stages[stage], stage)
        self.prompt_tokens.observe(prompt_tokens)
        self.output_tokens.observe(output_tokens)

    def render(self) -> bytes:
        out: list[str] = []
        for family in self._families:
            family.render(out)
        for collector in self._collectors:
            collector(out)
        return "".join(out).encode()
