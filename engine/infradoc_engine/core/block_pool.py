"""The blocks of the KV pool: free list, reference counts, eviction order, and the hash of each cached block.

A block is in exactly one of three places: the free list (no reference, no hash), the cached order (no reference, but
a hash by which it can be found again), or in use (one reference or more, hash or not).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from infradoc_engine.core.errors import IntegrityError, NoFreeBlocks


class BlockPool:
    """Block ids 0 .. num_blocks - 1; every operation is O(1)."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        self._refs: list[int] = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}
        self._free: deque[int] = deque(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._num_used = 0

    @property
    def num_blocks(self) -> int:
        """All blocks."""
        return len(self._refs)

    @property
    def num_free(self) -> int:
        """Blocks with neither a reference nor a hash."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks with a hash and no reference: found by content, or taken when the free list is empty."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out."""
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks with a reference; counted by itself, so that it can be checked against the other two."""
        return self._num_used

    def ref_count(self, block: int) -> int:
        """References to `block`."""
        return self._refs[block]

    def ref_counts(self) -> Iterable[int]:
        """References to each block, by id."""
        return iter(self._refs)

    def hash_of(self, block: int) -> bytes | None:
        """The content hash that `block` is found under, or None."""
        return self._hashes[block]

    def find(self, digest: bytes) -> int | None:
        """The block that holds this content, in use or cached; no reference is taken."""
        return self._by_hash.get(digest)

    def free_order(self) -> Iterable[int]:
        """Free blocks, the next one to hand out first."""
        return iter(self._free)

    def cached_order(self) -> Iterable[int]:
        """Cached blocks, the next one to evict first."""
        return iter(self._cached)

    def allocate(self) -> int:
        """Take a block with one reference and no hash: a free one, else the least recently used cached one.

        Raises NoFreeBlocks.
        """
        if self._free:
            block = self._free.popleft()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            self._forget_hash(block)  # its content is about to change: a later lookup must not find it
        else:
            raise NoFreeBlocks(f"all {self.num_blocks} blocks are in use")
        self._refs[block] = 1
        self._num_used += 1
        return block

    def touch(self, block: int) -> None:
        """Add a reference to a block in use or cached. IntegrityError for a free one: it has no content to share."""
        if self._refs[block] == 0:
            if block not in self._cached:
                raise IntegrityError(f"block {block} is free and cannot be shared")
            del self._cached[block]
            self._num_used += 1
        self._refs[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference; the last one puts the block at the recent end of the cached order, or in the free list.

        Raises IntegrityError on a second release (double free).
        """
        if self._refs[block] == 0:
            raise IntegrityError(f"block {block} is released twice")
        self._refs[block] -= 1
        if self._refs[block]:
            return
        self._num_used -= 1
        if self._hashes[block] is None:
            self._free.append(block)
        else:
            self._cached[block] = None

    def reclaim(self, block: int) -> None:
        """Free a block that nobody will ever release, whatever its references. The caller knows that no table has it.

        Its content goes too: where the accounts of a block went wrong, what it holds is not to be trusted either.
        """
        if self._refs[block] == 0:
            raise IntegrityError(f"block {block} is not in use and cannot be reclaimed")
        self._refs[block] = 0
        self._num_used -= 1
        self._forget_hash(block)
        self._free.append(block)

    def refresh(self, block: int) -> None:
        """Make a cached block the last one to be evicted; no change for a block in use."""
        if block in self._cached:
            self._cached.move_to_end(block)

    def set_hash(self, block: int, digest: bytes) -> bool:
        """Make a block in use findable by content; False, and no change, when another block has this content."""
        if self._refs[block] == 0 or self._hashes[block] is not None:
            raise IntegrityError(f"block {block} cannot take a hash: it is not in use, or has one")
        if digest in self._by_hash:
            return False
        self._hashes[block] = digest
        self._by_hash[digest] = block
        return True

    def clear_hashes(self) -> None:
        """Forget all content: cached blocks become free, those in use lose their hash and keep their references."""
        self._by_hash.clear()
        self._hashes = [None] * self.num_blocks
        self._free.extend(self._cached)
        self._cached.clear()

    def grow(self, num_blocks: int) -> None:
        """Raise the number of blocks to `num_blocks`; the new ones are free. ValueError when that is no growth."""
        old = self.num_blocks
        if num_blocks <= old:
            raise ValueError(f"a pool of {old} blocks can only grow, not become {num_blocks}")
        self._refs.extend([0] * (num_blocks - old))
        self._hashes.extend([None] * (num_blocks - old))
        self._free.extend(range(old, num_blocks))

    def shrink(self, num_blocks: int) -> None:
        """Cut the pool to `num_blocks`; free and cached blocks beyond are gone.

        ValueError, and no change, when that is no shrinking or a block beyond is in use.
        """
        if not 1 <= num_blocks < self.num_blocks:
            raise ValueError(f"a pool of {self.num_blocks} blocks cannot shrink to {num_blocks}")
        beyond = sum(1 for refs in self._refs[num_blocks:] if refs)
        if beyond:
            way_out = "defragment first" if self._num_used <= num_blocks else "let requests finish or preempt them"
            raise ValueError(f"{beyond} of {self._num_used} blocks in use lie beyond {num_blocks}: {way_out}")
        for block in [block for block in self._cached if block >= num_blocks]:
            del self._cached[block]
            self._forget_hash(block)
        del self._refs[num_blocks:], self._hashes[num_blocks:]
        self._free = deque(block for block in self._free if block < num_blocks)

    def relocate(self, target: Sequence[int]) -> None:
        """Give every block the new id target[id], a permutation of all. References, hashes and eviction order follow.

        Free blocks are handed out from the lowest on afterwards. O(num_blocks).
        """
        refs, hashes = list(self._refs), list(self._hashes)
        for block, place in enumerate(target):
            self._refs[place], self._hashes[place] = refs[block], hashes[block]
        self._by_hash = {digest: target[block] for digest, block in self._by_hash.items()}
        self._cached = OrderedDict((target[block], None) for block in self._cached)
        self._free = deque(sorted(target[block] for block in self._free))

    def _forget_hash(self, block: int) -> None:
        digest = self._hashes[block]
        if digest is not None:
            self._hashes[block] = None
            del self._by_hash[digest]

    def check_integrity(self) -> None:
        """Check every invariant of the pool itself, O(num_blocks); IntegrityError names the first broken one."""
        free = set(self._free)
        used = {block for block, refs in enumerate(self._refs) if refs > 0}
        if len(free) != len(self._free):
            raise IntegrityError("a block is twice in the free list")
        for name, both in (
            ("free and in use", free & used),
            ("free and cached", free & self._cached.keys()),
            ("cached and in use", used & self._cached.keys()),
        ):
            if both:
                raise IntegrityError(f"block {min(both)} is {name}")
        if len(free) + len(used) + self.num_cached != self.num_blocks:
            raise IntegrityError(f"free, cached and used blocks do not sum to {self.num_blocks}")
        if self._num_used != len(used):
            raise IntegrityError(f"{len(used)} blocks have references, but {self._num_used} were counted")
        if min(self._refs) < 0:
            raise IntegrityError(f"block {self._refs.index(min(self._refs))} has a negative reference count")
        self._check_hashes(free)

    def _check_hashes(self, free: set[int]) -> None:
        for digest, block in self._by_hash.items():
            if self._hashes[block] != digest:
                raise IntegrityError(f"a cached hash points to block {block}, which has other content")
        hashed = {block for block, digest in enumerate(self._hashes) if digest is not None}
        if len(hashed) != len(self._by_hash):
            raise IntegrityError("a block has a hash that no lookup finds")
        if hashed & free:
            raise IntegrityError(f"block {min(hashed & free)} is free but keeps its hash")
        if self._cached.keys() - hashed:
            raise IntegrityError(f"block {min(self._cached.keys() - hashed)} is cached without a hash")
