"""Matrix multiplication by a fixed weight."""

from __future__ import annotations

import torch

from infradoc_engine.kv_pages import empty_pages
from infradoc_engine.memory import host_room

# The row count that oneDNN lays the packed weight out for. Measured on a 2-core EPYC with AVX-512: a layout for 64
# rows is within noise of the best at 1, 8, 32, 128 and 500 rows, one for 1 row is 30 % slower at all others.
PACK_ROWS_HINT = 64


# oneDNN writes code for each new row count. Refused memory while it does so ends the process, or its thread can write
# no code any more (seen up to 1.7 MB short, oneDNN of torch 2.13): so the first time asks for room and fails by itself,
# and is given that room again while it writes: what was free when it asked may be taken, or was another's for a moment.
CODE_BYTES = 4 << 20
_KNOWN_ROW_COUNTS = 100  # oneDNN keeps 1024 pieces of code; a model has about five shapes, each with its row counts


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """True where torch has oneDNN's packed linear: 1.5 to 3.5 times the speed of a plain float32 matmul on CPU."""
    return (
        device.type == "cpu"
        and dtype == torch.float32
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


class Linear:
    """y = x @ weight.T for weight: [out_features, in_features]. Keeps only the packed copy where packing helps."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.num_bytes = weight.numel() * weight.element_size()
        self._packed = can_pack(weight.device, weight.dtype)
        self._weight: torch.Tensor = weight
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS_HINT)
        self._row_counts: set[int] = set()  # that there is code for

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [num_rows, in_features] -> [num_rows, out_features], x's dtype. MemoryError when there is no room."""
        if not self._packed:
            return torch.nn.functional.linear(x, self._weight)
        if x.shape[0] in self._row_counts:
            return self._multiply(x)
        if len(self._row_counts) >= _KNOWN_ROW_COUNTS:
            self._row_counts.clear()
        num_bytes = x.shape[0] * self.out_features * x.element_size() + CODE_BYTES
        empty_pages((num_bytes,), torch.uint8, x.device)
        with host_room(num_bytes):
            out = self._multiply(x)
        self._row_counts.add(x.shape[0])
        return out

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return out


class FusedRows:
    """Collects weights that share their input into one taller weight, so that one matmul does for all."""

    def __init__(self, parts: dict[str, int], in_features: int, dtype: torch.dtype, device: torch.device) -> None:
        """`parts`: name -> rows, in the order in which the outputs shall stand."""
        self._weight = torch.empty(sum(parts.values()), in_features, dtype=dtype, device=device)
        self._places: dict[str, slice] = {}
        start = 0
        for name, rows in parts.items():
            self._places[name] = slice(start, start + rows)
            start += rows

    def put(self, name: str, weight: torch.Tensor) -> bool:
        """Copies one part in; true when it was the last that was missing."""
        self._weight[self._places.pop(name)] = weight
        return not self._places

    def finish(self) -> Linear:
        """The linear layer over all parts. Call once, when `put` said true."""
        return Linear(self._weight)
