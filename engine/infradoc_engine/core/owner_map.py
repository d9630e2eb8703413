"""Who holds each block and for how long: the second picture of the pool, beside the states of `block_map`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

# A pool of 100,000 blocks in which 256 requests decode has a row per block, 4 MB of JSON for a map that no screen can
# show: with at most 10,000 rows it is 0.4 MB.
MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class OwnerMap:
    """rows: (owner, age in seconds, blocks in a row) in the order of block ids; they cover the pool.

    owner: the request whose table has the block, "3 requests" for a block in three tables, the last one to have had it
    for a leaked block; None where nobody ever did, and for free and cached blocks, which have no age either.
    age: since the block came into use, whoever held it in between.
    step: 1 where rows are exact. Else every `step` blocks are told as one, by the owner of most of them that are held
    and the age of its oldest, so that there are never more than `most_rows`.
    """

    rows: list[tuple[str | None, float | None, int]]
    step: int


@dataclass(frozen=True, slots=True)
class Holders:
    """What an owner map is made from, copied at one moment: whoever holds the engine's lock need not wait for rows."""

    names: list[str | None]  # by block id
    since: list[float | None]  # seconds of the engine's clock; None for a block without a reference
    now: float

    def rows(self, most_rows: int = MOST_ROWS) -> OwnerMap:
        """The map; O(num_blocks)."""
        return owner_map(self.names, self.since, self.now, most_rows)


def name_blocks(num_blocks: int, tables: Iterable[tuple[str, Sequence[int]]]) -> list[str | None]:
    """The owner of each block by id, from (request id, its blocks); None for a block that is in no table."""
    names: list[str | None] = [None] * num_blocks
    more: list[int] = []
    for request_id, blocks in tables:
        for block in blocks:
            if names[block] is None:
                names[block] = request_id
            else:
                more.append(block)
    for block, others in Counter(more).items():
        names[block] = f"{others + 1} requests"
    return names


def owner_map(
    names: Sequence[str | None], since: Sequence[float | None], now: float, most_rows: int = MOST_ROWS
) -> OwnerMap:
    """From the owner of each block and when it came into use, None for one that is not; O(num_blocks)."""
    starts = _starts(names, since, most_rows)
    if starts is not None:
        ends = [*starts[1:], len(names)]
        rows = [(names[at], _age(since[at], now), end - at) for at, end in zip(starts, ends, strict=True)]
        return OwnerMap(rows, 1)
    step = -(-len(names) // most_rows)
    rows = []
    for at in range(0, len(names), step):
        owner, oldest = _most(names[at : at + step], since[at : at + step])
        rows.append((owner, _age(oldest, now), min(step, len(names) - at)))
    return OwnerMap(rows, step)


def _starts(names: Sequence[str | None], since: Sequence[float | None], most: int) -> list[int] | None:
    """The first block of each run of blocks with one owner that came into use together; None for more than `most`."""
    starts: list[int] = []
    last: tuple[str | None, float | None] | None = None
    for block, pair in enumerate(zip(names, since, strict=True)):
        if pair != last:
            if len(starts) == most:
                return None
            starts.append(block)
            last = pair
    return starts


def _most(names: Sequence[str | None], since: Sequence[float | None]) -> tuple[str | None, float | None]:
    """The owner of most of these blocks, the first one of equals, and when its oldest came into use."""
    counts: dict[str | None, int] = {}
    oldest: dict[str | None, float] = {}
    for name, taken in zip(names, since, strict=True):
        if taken is not None:
            counts[name] = counts.get(name, 0) + 1
            if taken < oldest.get(name, inf):
                oldest[name] = taken
    if not counts:
        return None, None
    owner = max(counts, key=counts.__getitem__)
    return owner, oldest[owner]


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(now - since, 0.0), 1)
