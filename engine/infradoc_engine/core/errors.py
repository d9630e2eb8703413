"""What the core raises: broken invariants, refused requests, an empty pool."""

from __future__ import annotations


class IntegrityError(RuntimeError):
    """An invariant of the block accounting does not hold; the text names it and a block at fault."""


class StepUnderWay(RuntimeError):
    """Blocks cannot change places now: a step that uses them was scheduled and is neither updated nor abandoned."""


class NoFreeBlocks(RuntimeError):
    """A block was asked for while none is free or evictable; callers check `num_available` first."""


class BlocksLeaked(MemoryError):
    """The pool is large enough for the request, but too many of its blocks are leaked: it has to be defragmented."""


class RequestTooLong(ValueError):
    """The prompt leaves no room for one output token, in `max_model_len` or in the whole block pool.

    `prompt_tokens` is what was asked, `limit_tokens` the longest prompt that would have been taken.
    """

    def __init__(self, message: str, *, prompt_tokens: int, limit_tokens: int) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens
