"""Which device and which number format a runner computes on."""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """The device called auto, cpu or cuda. ValueError for another name, or without a GPU that can be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device {name!r} is not known; use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: this PyTorch finds no GPU that it can use; use --device cpu or auto")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The format called auto, float32 or bfloat16; auto is what `device` is fast in. ValueError for another name."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in known:
        raise ValueError(f"dtype {name!r} is not known; use auto, {' or '.join(known)}")
    return known[name]
