"""The block tables of all requests that hold blocks, and the empty token places at their ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infradoc_engine.core.clock import Clock
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.ledger import BlockLedger
from infradoc_engine.core.owner_map import name_blocks
from infradoc_engine.core.request import Request


class BlockTables:
    """Adds blocks to `Request.block_table` and takes them out again; nothing else writes to it.

    A table "holds" the tokens that were given a place: those computed, and those about to be in this step or, while a
    prompt is prefilled in chunks, in a later one.
    """

    def __init__(self, ledger: BlockLedger, block_size: int, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._block_size = block_size
        self._requests: dict[str, Request] = {}
        self._held: dict[str, int] = {}
        self.tail_waste_tokens = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    def open(self, request: Request, blocks: list[int], num_tokens: int) -> None:
        """Give `request` a table of `blocks` with places for `num_tokens`; it must have none (IntegrityError)."""
        if request.request_id in self._requests or request.block_table:
            raise IntegrityError(f"request {request.request_id} has a block table already")
        self._requests[request.request_id] = request
        self._held[request.request_id] = num_tokens
        request.block_table.extend(blocks)
        attach, owner, now = self._ledger.attach, request.request_id, self._clock.now()
        for block in blocks:
            attach(block, owner, now)
        self.tail_waste_tokens += len(blocks) * self._block_size - num_tokens

    def held(self, request: Request) -> int:
        """Tokens that have a place in the table of `request`."""
        return self._held[request.request_id]

    def extend(self, request: Request, block: int | None, num_tokens: int) -> None:
        """Give places to tokens up to `num_tokens`, with one more block or, for None, in the last one."""
        if block is not None:
            request.block_table.append(block)
            self._ledger.attach(block, request.request_id, self._clock.now())
            self.tail_waste_tokens += self._block_size
        self.tail_waste_tokens -= num_tokens - self._held[request.request_id]
        self._held[request.request_id] = num_tokens

    def close(self, request: Request) -> list[int]:
        """Take the table away and return its blocks, whose references the caller must drop; empty if it has none."""
        if self._requests.get(request.request_id) is not request:
            return []
        del self._requests[request.request_id]
        blocks = list(request.block_table)
        request.block_table.clear()
        for block in blocks:
            self._ledger.detach(block, request.request_id)
        self.tail_waste_tokens -= len(blocks) * self._block_size - self._held.pop(request.request_id)
        return blocks

    def relocate(self, target: Sequence[int]) -> None:
        """Rewrite the tables after `BlockPool.relocate`."""
        for request in self._requests.values():
            request.block_table[:] = [target[block] for block in request.block_table]

    def counts(self) -> Counter[int]:
        """Block -> tables it is in, counted anew from the tables."""
        return Counter(block for request in self._requests.values() for block in request.block_table)

    def owners(self) -> dict[int, list[str]]:
        """Block -> ids of the requests whose tables it is in."""
        owners: dict[int, list[str]] = {}
        for request_id, request in self._requests.items():
            for block in request.block_table:
                owners.setdefault(block, []).append(request_id)
        return owners

    def names(self, num_blocks: int) -> list[str | None]:
        """The owner of each block by id, as `OwnerMap` names it."""
        return name_blocks(num_blocks, ((name, request.block_table) for name, request in self._requests.items()))

    def check_integrity(self) -> None:
        """Each table covers its tokens with no block to spare; the waste equals its count. Raises IntegrityError."""
        waste = 0
        for request_id, request in self._requests.items():
            held = self._held[request_id]
            empty = len(request.block_table) * self._block_size - held
            if not 0 <= empty < self._block_size:
                raise IntegrityError(f"{len(request.block_table)} blocks of {request_id} do not fit its {held} tokens")
            if request.num_computed_tokens > held:
                raise IntegrityError(f"request {request_id} computed more tokens than its {held} places")
            if len(set(request.block_table)) != len(request.block_table):
                raise IntegrityError(f"the table of {request_id} lists a block twice")
            waste += empty
        if waste != self.tail_waste_tokens:
            raise IntegrityError(f"{waste} places in last blocks are empty, but {self.tail_waste_tokens} were counted")
