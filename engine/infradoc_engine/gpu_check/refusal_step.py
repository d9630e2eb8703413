"""A start beside another process that holds nearly all of the device: refused with an account and settings that fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.random_model import TINY, RandomModel
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner

LEFT = 8 << 30
WAIT_SECONDS = 20.0
HOLD = f"""
import sys
import torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(max(free - {LEFT}, 0), dtype=torch.uint8, device="cuda")
print(held.numel(), flush=True)
sys.stdin.read()
"""


def run(look: Look) -> Iterator[Row]:
    """The refusal, and a start with the share that it names."""
    if look.device.type != "cuda":
        yield {"skipped": "there is no device to share"}
        return
    look.free_bytes()
    with _other_process() as held:
        try:
            _start(look, 0.5)
            yield {"what": "refused start", "held_bytes": held, "ok": False}
            return
        except NotEnoughMemory as error:
            refusal = error
        named = refusal.account.get("other", 0)
        yield {
            "what": "refused start",
            "held_bytes": held,
            "message": refusal.message,
            "account": refusal.account,
            "fits": refusal.fits,
            "ok": named >= held and "\n" not in refusal.message and "gpu_memory_utilization" in refusal.fits,
        }
        # A little above: what the driver holds of this process grows between two starts.
        share = min(refusal.fits.get("gpu_memory_utilization", 1.0) + 0.01, 1.0)
        runner = _start(look, share)
        yield {"what": "start", "gpu_memory_utilization": share, "account": runner.memory_account(), "ok": True}


def _start(look: Look, share: float) -> ModelRunner:
    return ModelRunner(
        RandomModel(TINY, look.dtype, look.device),
        device="cuda",
        max_num_seqs=4,
        max_model_len=256,
        gpu_memory_utilization=share,
        enforce_eager=True,
    )


@contextmanager
def _other_process() -> Iterator[int]:
    """Bytes that a child holds of the device until this ends."""
    child = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        first = child.stdout.readline()
        if not first.strip():
            raise RuntimeError("the process that was to hold the device's memory did not start")
        yield int(first)
    finally:
        child.communicate("", timeout=WAIT_SECONDS)
