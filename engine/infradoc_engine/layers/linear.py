"""Matrix multiplication by a fixed weight."""

from __future__ import annotations

import torch

# The row count that oneDNN lays the packed weight out for. Measured on a 2-core EPYC with AVX-512: a layout for 64
# rows is within noise of the best at 1, 8, 32, 128 and 500 rows, one for 1 row is 30 % slower at all others.
PACK_ROWS_HINT = 64


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

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [num_rows, in_features] -> [num_rows, out_features], x's dtype."""
        if self._packed:
            out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
            return out
        return torch.nn.functional.linear(x, self._weight)


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
