"""One HTTP request in flight: its answers (choices) and the stream of pieces that the engine's tokens become."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from infradoc_engine.core.request import Request
from infradoc_engine.detokenizer import IncrementalDetokenizer
from infradoc_engine.jobs import EngineFailure, TokenEvent
from infradoc_engine.latency import LatencyLedger
from infradoc_engine.prompts import Prompt
from infradoc_engine.sampler import Sampled


class ClientGone(Exception):
    """The client hung up before the end of its answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A step of one answer: text that is safe to send (often empty), the token behind it, the end."""

    choice: Choice
    text: str
    token: Sampled | None
    finish_reason: str | None = None
    failure: EngineFailure | None = None


@dataclass(slots=True, eq=False)
class Choice:
    """One answer: one request of the engine."""

    index: int
    prompt: Prompt
    request: Request
    detokenizer: IncrementalDetokenizer
    ledger: LatencyLedger
    received: float  # Unix time
    done: bool = False
    num_tokens: int = 0
    first_token: float | None = None
    last_token: float | None = None
    outcome: str | None = None
    generation: Generation | None = None


class Generation:
    """The answers to one HTTP request, as one stream of pieces.

    `take` turns an event of the engine into a piece and marks the choice done at its end; `drop` aborts a choice.
    """

    def __init__(
        self,
        choices: list[Choice],
        take: Callable[[Choice, TokenEvent], Piece],
        drop: Callable[[Choice], None],
    ) -> None:
        self.choices = choices
        self._take = take
        self._drop = drop
        self._mail: deque[tuple[Choice, TokenEvent]] = deque()
        self._arrived = asyncio.Event()
        self._gone = False

    def put(self, choice: Choice, event: TokenEvent) -> None:
        self._mail.append((choice, event))
        self._arrived.set()

    def hang_up(self) -> None:
        """The client is gone: `pieces` raises ClientGone at its next turn."""
        self._gone = True
        self._arrived.set()

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces of all choices in the order of their steps, until every choice has its last one."""
        open_choices = sum(not choice.done for choice in self.choices)
        while open_choices:
            await self._arrived.wait()
            self._arrived.clear()
            while self._mail or self._gone:
                if self._gone:
                    raise ClientGone
                choice, event = self._mail.popleft()
                if choice.done:
                    continue
                piece = self._take(choice, event)
                open_choices -= choice.done
                yield piece

    def close(self) -> None:
        """Abort whatever is still running; to be called in a finally."""
        for choice in self.choices:
            self._drop(choice)
