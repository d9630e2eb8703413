"""Requests on the event loop: prompt to tokens, tokens to the engine, the engine's tokens back to text."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence

from infradoc_engine.core.request import Request
from infradoc_engine.detokenizer import Decode, IncrementalDetokenizer
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import EngineFailure, Job, TokenEvent
from infradoc_engine.latency import LatencyLedger
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.prompts import GenerationOptions, Limits, Prompt, Refused, fit_prompt, wanted_length
from infradoc_engine.requests import Choice, Generation, Piece
from infradoc_engine.tokenizer_pool import Encoded, TokenizeError, TokenizerPool

_REMEMBERED = 128  # finished requests that /admin/requests still shows


class Frontend:
    """Runs on the main event loop. Counts, refuses, cuts and hands on; keeps the requests in flight."""

    def __init__(
        self,
        engine: Engine,
        pool: TokenizerPool,
        *,
        decode: Decode,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        limits: Limits,
        metrics: EngineMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.pool = pool
        self.decode = decode
        self.metrics = metrics
        self.limits = limits
        self.draining = False
        self._vocab_size = vocab_size
        self._eos = eos_token_ids
        self._clock = clock
        self._unix_offset = time.time() - clock()
        self.in_flight: dict[str, Choice] = {}
        self.finished: deque[Choice] = deque(maxlen=_REMEMBERED)

    def ledger(self, arrival: float | None = None) -> LatencyLedger:
        return LatencyLedger(self._clock, arrival)

    # --- admission ---

    def check_admission(self, n: int) -> None:
        """Raises Refused when the server drains, the engine is dead or the queue has no place for `n` more."""
        if self.draining:
            raise Refused("draining", "The server is shutting down and takes no new requests.")
        if (ended := self.engine.ended) is not None:
            raise Refused("overloaded", ended)
        limit = self.limits.max_queued_requests
        if limit is None:
            return
        waiting = self.engine.num_waiting
        seats = max(0, self.limits.max_num_seqs - self.engine.num_running) if waiting == 0 else 0
        if waiting + n > limit + seats:
            raise Refused(
                "queue_full",
                f"{waiting} requests are waiting and max_queued_requests is {limit}; try again later.",
            )

    async def encode(self, text: str, ledger: LatencyLedger, *, add_special: bool = True) -> list[int]:
        """Token ids of `text`, encoded once; the wait for a worker counts as queue, the compute as tokenize."""
        encoded = await self.encode_raw(text, ledger, add_special=add_special, render=False)
        assert encoded.ids is not None
        return encoded.ids

    async def encode_raw(self, text: str, ledger: LatencyLedger, *, add_special: bool, render: bool) -> Encoded:
        asked = self._clock()
        try:
            encoded = await self.pool.encode(text, add_special=add_special, render=render)
        except TokenizeError as error:
            raise Refused("invalid", str(error), "prompt") from error
        seconds = encoded.end - encoded.start
        ledger.add("queue", encoded.start - asked)
        ledger.add("tokenize", seconds)
        ledger.begin("queue", encoded.end)
        self.metrics.stage_seconds.observe(seconds, "tokenize")
        return encoded

    def fit(self, token_ids: list[int], options: GenerationOptions) -> Prompt:
        """A prompt that fits, cut where the client or the policy says so (which is counted); raises Refused."""
        try:
            prompt = fit_prompt(token_ids, options, self.limits, self._vocab_size)
        except Refused as refused:
            if refused.reason == "length":
                self.metrics.uncut_tokens.observe(wanted_length(token_ids, options))
            raise
        self.metrics.uncut_tokens.observe(wanted_length(token_ids, options))
        if prompt.cut is not None and not prompt.cut.requested:
            self.metrics.truncated.inc(prompt.cut.policy)
            lost = prompt.cut.original_tokens - prompt.cut.kept_tokens
            self.metrics.truncated_tokens.inc(prompt.cut.policy, by=lost)
        return prompt

    # --- running ---

    def start(self, prompts: Sequence[tuple[Prompt, LatencyLedger]], options: GenerationOptions) -> Generation:
        """Hand every prompt, `options.n` times, to the engine."""
        choices: list[Choice] = []
        for prompt, ledger in prompts:
            for copy in range(options.n):
                own = ledger if copy == 0 else self.ledger()
                own.begin("queue")
                choices.append(self._choice(len(choices), copy, prompt, own, options))
        generation = Generation(choices, self.take, self.drop)
        for choice in choices:
            choice.generation = generation
            self.in_flight[choice.request.request_id] = choice
            sampling = options.sampling
            if sampling.seed is not None and choice.index:  # else n answers would be n times the same
                sampling = dataclasses.replace(sampling, seed=sampling.seed + choice.index)
            self.metrics.received.inc()
            self.metrics.max_tokens.observe(choice.prompt.max_tokens)
            self.engine.submit(Job(choice.request, sampling, choice.ledger))
        return generation

    def _choice(
        self, index: int, copy: int, prompt: Prompt, ledger: LatencyLedger, options: GenerationOptions
    ) -> Choice:
        stop_ids = options.stop_token_ids if options.ignore_eos else options.stop_token_ids | self._eos
        request = Request(
            request_id=f"req-{uuid.uuid4().hex[:20]}",
            prompt_token_ids=list(prompt.token_ids) if copy else prompt.token_ids,
            max_tokens=prompt.max_tokens,
            arrival_time=ledger.arrival,
            stop_token_ids=stop_ids,
            min_tokens=options.min_tokens,
        )
        detokenizer = IncrementalDetokenizer(self.decode, prompt.token_ids, options.stop)
        return Choice(index, prompt, request, detokenizer, ledger, self._unix_offset + ledger.arrival)

    def deliver(self, events: Sequence[TokenEvent]) -> None:
        """Everything one engine step produced; one call per step."""
        for event in events:
            choice = self.in_flight.get(event.request_id)
            if choice is not None and choice.generation is not None:
                choice.generation.put(choice, event)

    def take(self, choice: Choice, event: TokenEvent) -> Piece:
        """Turn an event into a piece; marks the choice done at its end."""
        now = self._clock()
        if event.failure is not None:
            choice.done, choice.outcome = True, "error"
            if event.failure.kind in ("length", "memory") and choice.request.state == "waiting":
                # The scheduler never took it in.
                self.metrics.rejected.inc("length" if event.failure.kind == "length" else "overloaded")
            return Piece(choice, "", None, "error", event.failure)
        if event.token is not None:
            self._note_token(choice, now)
        at_stop_token = event.token is None or event.finish_reason == "stop"  # a stop token is no part of the text
        text = "" if at_stop_token or event.token is None else choice.detokenizer.add(event.token.token_id)
        reason: str | None = event.finish_reason
        if choice.detokenizer.stopped and reason is None:
            self.engine.finish(choice.request.request_id)
            choice.ledger.engine_done(event.time)
        if reason is not None:
            text += choice.detokenizer.finish()
        if choice.detokenizer.stopped:
            reason = "stop"
        choice.ledger.add("detokenize", self._clock() - now)
        if reason is not None:
            choice.ledger.add("send", now - event.time)  # the last token waited for the event loop
            choice.done, choice.outcome = True, reason
        return Piece(choice, text, None if at_stop_token else event.token, reason)

    def _note_token(self, choice: Choice, now: float) -> None:
        choice.num_tokens += 1
        if choice.last_token is None:
            choice.first_token = now
            self.metrics.ttft.observe(now - choice.ledger.arrival)
        else:
            self.metrics.itl.observe(now - choice.last_token)
        choice.last_token = now

    def complete(self, choice: Choice) -> None:
        """The last byte of this answer is with the socket: close the ledger and account for it."""
        if self.in_flight.pop(choice.request.request_id, None) is None:
            return
        choice.ledger.finish()
        self.finished.append(choice)
        if choice.outcome not in ("stop", "length"):
            return
        self.metrics.request_done(choice.ledger, len(choice.prompt.token_ids), choice.num_tokens)
        stages = choice.ledger.stages
        self.metrics.inference_seconds.observe(stages["prefill"] + stages["preempted"] + stages["decode"])
        if choice.first_token is not None and choice.last_token is not None and choice.num_tokens > 1:
            self.metrics.tpot.observe((choice.last_token - choice.first_token) / (choice.num_tokens - 1))

    def abort_all(self, message: str) -> None:
        """End every request in flight with an error; their handlers answer 503."""
        failure = EngineFailure("shutdown", message)
        for name, choice in list(self.in_flight.items()):
            self.engine.abort(name)
            if choice.generation is not None:
                choice.generation.put(choice, TokenEvent(name, None, "error", self._clock(), failure))

    def drop(self, choice: Choice) -> None:
        """Forget a choice whose client is gone or whose siblings failed; a running one is aborted."""
        if self.in_flight.pop(choice.request.request_id, None) is None:
            return
        if not choice.done:
            self.engine.abort(choice.request.request_id)
            choice.outcome = "abort"
        choice.ledger.finish()
        self.finished.append(choice)
