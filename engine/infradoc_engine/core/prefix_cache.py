"""Which full blocks of a token sequence are already in the pool: hashes chained from the first block on."""

from __future__ import annotations

import hashlib
from array import array

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.request import Request

_DIGEST_BYTES = 16


def block_digest(parent: bytes, token_ids: list[int]) -> bytes:
    """Hash of one full block: its tokens and, through `parent`, everything before it.

    A cryptographic hash, for a collision would give a request another one's KV: prompts are untrusted input.
    """
    return hashlib.blake2b(parent + array("q", token_ids).tobytes(), digest_size=_DIGEST_BYTES).digest()


class PrefixCache:
    """Finds and registers blocks by content. Holds the hash chain of each known request, so that none is hashed twice.

    `enabled` off: nothing is found, nothing is registered.
    """

    def __init__(self, pool: BlockPool, block_size: int, *, enabled: bool = True) -> None:
        self._pool = pool
        self._block_size = block_size
        self._chains: dict[str, list[bytes]] = {}
        self._enabled = enabled

    @property
    def enabled(self) -> bool:
        """Whether blocks are found and registered."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if self._enabled and not value:
            self._pool.clear_hashes()
            self._chains.clear()
        self._enabled = value

    def match(self, request: Request) -> list[int]:
        """The longest run of blocks, from position 0, that hold the request's tokens. Takes no reference.

        The run may cover all tokens; the caller must then still compute the last one to get logits.
        """
        hits: list[int] = []
        if not self._enabled:
            return hits
        chain = self._chain(request, request.num_tokens // self._block_size)
        for digest in chain:
            block = self._pool.find(digest)
            if block is None:
                break
            hits.append(block)
        return hits

    def register(self, request: Request, start: int, stop: int) -> None:
        """Make the blocks that became full while positions [start, stop) were computed findable.

        Content that is already known under another block stays there: this request keeps its own copy, unregistered.
        """
        first, last = start // self._block_size, stop // self._block_size
        if not self._enabled or first == last:
            return
        chain = self._chain(request, last)
        for index in range(first, last):
            block = request.block_table[index]
            if self._pool.hash_of(block) is None:
                self._pool.set_hash(block, chain[index])

    def forget(self, request_id: str) -> None:
        """Drop the hash chain of a request that is finished; its blocks stay findable."""
        self._chains.pop(request_id, None)

    def _chain(self, request: Request, num_blocks: int) -> list[bytes]:
        chain = self._chains.setdefault(request.request_id, [])
        size = self._block_size
        for index in range(len(chain), num_blocks):
            parent = chain[-1] if chain else b""
            chain.append(block_digest(parent, request.tokens(index * size, (index + 1) * size)))
        return chain if len(chain) == num_blocks else chain[:num_blocks]

    @property
    def num_chains(self) -> int:
        """Requests whose hash chain is held; zero when idle."""
        return len(self._chains)
