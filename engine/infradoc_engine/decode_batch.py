"""Decode steps in buffers that never move: which step may be replayed as a CUDA graph, and what its graph reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_kernels.paged_batch import PagedBatch

UNUSED = -1  # as a slot: written nowhere; as a request: no attention. Rows that pad a step up to its graph's size
_ALIGN = 16  # rows; parts of the buffers then start at multiples of 16 bytes, as the kernels' eager launches see them


def ladder(max_batch: int) -> tuple[int, ...]:
    """Batch sizes that get a graph, ascending: 1, 2, 4, 8, then every 8 up to `max_batch`, which is always one.

    A step runs in the next larger one: at most 7 rows of padding above 8, whose cost is that of the matmuls' rows.
    """
    if max_batch < 1:
        return ()
    sizes = [size for size in (1, 2, 4) if size < max_batch] + list(range(8, max_batch, 8))
    return (*sizes, max_batch)


def rung(sizes: Sequence[int], rows: int) -> int | None:
    """The smallest of the ascending `sizes` that holds `rows`; None when none does."""
    place = bisect_left(sizes, rows)
    return sizes[place] if rows > 0 and place < len(sizes) else None


def may_replay(scheduled: Sequence[ScheduledRequest]) -> bool:
    """Whether each request has one token and samples: what a graph was captured for."""
    return all(len(request.token_ids) == 1 and request.samples for request in scheduled)


class StaticBatch:
    """The inputs of a decode step of up to `capacity` rows: filled on the host, copied without waiting.

    Host and device each have one buffer for all numbers of a step and one for block tables. A table is sent only when
    it is not what the row had before: a request's grows once in block_size steps.
    """

    def __init__(self, capacity: int, max_model_len: int, block_size: int, device: torch.device) -> None:
        self.capacity = -(-capacity // _ALIGN) * _ALIGN
        self.max_model_len, self.block_size, self.device = max_model_len, block_size, device
        self.width = -(-max_model_len // block_size)
        self._on_gpu = device.type == "cuda"
        self._host = self._buffer(torch.device("cpu"))
        self._device = self._buffer(device)
        self._host_tables = self._tables(torch.device("cpu"))
        self._device_tables = self._tables(device)
        self._sent: list[list[int]] = [[] for _ in range(self.capacity)]  # tables as the device has them
        self._starts = torch.arange(self.capacity + 1, dtype=torch.int32, device=device)
        self._none = torch.empty(0, dtype=torch.int32, device=device)
        self._copied = torch.cuda.Event() if self._on_gpu else None  # type: ignore[no-untyped-call]
        self.clear()

    def _buffer(self, device: torch.device) -> torch.Tensor:
        pinned = self._on_gpu and device.type == "cpu"
        return torch.zeros(self.capacity * (3 * 8 + 2 * 4), dtype=torch.uint8, device=device, pin_memory=pinned)

    def _tables(self, device: torch.device) -> torch.Tensor:
        pinned = self._on_gpu and device.type == "cpu"
        return torch.zeros(self.capacity, self.width, dtype=torch.int32, device=device, pin_memory=pinned)

    def _wide(self, buffer: torch.Tensor) -> torch.Tensor:
        """int64 [3, capacity]: token ids, positions, slots."""
        return buffer[: self.capacity * 24].view(torch.int64).view(3, self.capacity)

    def _narrow(self, buffer: torch.Tensor) -> torch.Tensor:
        """int32 [2, capacity]: context lengths, decode requests."""
        return buffer[self.capacity * 24 :].view(torch.int32).view(2, self.capacity)

    @property
    def num_bytes(self) -> int:
        """On the device."""
        parts = (self._device, self._device_tables, self._starts)
        return sum(part.numel() * part.element_size() for part in parts)

    # -- what a graph reads, first `size` rows -----------------------------------------------------------------------

    def token_ids(self, size: int) -> torch.Tensor:
        """int64 [size]."""
        return self._wide(self._device)[0, :size]

    def positions(self, size: int) -> torch.Tensor:
        """int64 [size]."""
        return self._wide(self._device)[1, :size]

    def slots(self, size: int) -> torch.Tensor:
        """int64 [size]; UNUSED in padding."""
        return self._wide(self._device)[2, :size]

    def plan(self, size: int) -> PagedBatch:
        """Attention over `size` rows of one query each, any of which may be padding."""
        lens, requests = self._narrow(self._device)
        return PagedBatch(
            block_tables=self._device_tables[:size],
            query_starts=self._starts[: size + 1],
            context_lens=lens[:size],
            decode_requests=requests[:size],
            prefill_requests=self._none,
            max_query_len=1,
            max_context_len=self.max_model_len,
            captured=True,
        )

    # -- filling -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Makes every row padding: a pass over it touches no KV."""
        self._write([])

    def fill(self, scheduled: Sequence[ScheduledRequest]) -> None:
        """The first rows are the requests in their order, the others padding. One token each (see may_replay).

        Raises ValueError for more requests than rows, or a position beyond max_model_len.
        """
        if len(scheduled) > self.capacity:
            raise ValueError(f"{len(scheduled)} requests do not fit {self.capacity} rows")
        last = max((request.start for request in scheduled), default=0)
        if last >= self.max_model_len:
            raise ValueError(f"position {last} is beyond max_model_len {self.max_model_len}")
        self._write(scheduled)

    def _write(self, scheduled: Sequence[ScheduledRequest]) -> None:
        if self._copied is not None:
            self._copied.synchronize()  # the copy before has long left the host buffers, unless its step failed
        rows, size = len(scheduled), self.block_size
        starts = [request.start for request in scheduled]
        wide, narrow = self._wide(self._host).numpy(), self._narrow(self._host).numpy()
        wide[:2, rows:], wide[2, rows:] = 0, UNUSED
        narrow[0, rows:], narrow[1, rows:] = 1, UNUSED
        if rows:
            wide[0, :rows] = [request.token_ids[0] for request in scheduled]
            wide[1, :rows] = starts
            wide[2, :rows] = [r.block_table[r.start // size] * size + r.start % size for r in scheduled]
            narrow[0, :rows] = wide[1, :rows] + 1
            narrow[1, :rows] = range(rows)
        self._write_tables(
            [request.block_table[: start // size + 1] for request, start in zip(scheduled, starts, strict=True)]
        )
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def _write_tables(self, tables: list[list[int]]) -> None:
        changed = [row for row, table in enumerate(tables) if table != self._sent[row]]
        if not changed:
            return
        host = self._host_tables.numpy()
        for row in changed:
            host[row, : len(tables[row])] = tables[row]
            self._sent[row] = tables[row]
        part = slice(changed[0], changed[-1] + 1)  # whole rows: one copy of one piece
        self._device_tables[part].copy_(self._host_tables[part], non_blocking=True)
