"""Fewer and shorter runs of the garbage collector while the screen is up.

A frame makes thousands of objects without cycles, and a full collection walks rules, series and all widgets: it
took 100 ms now and then, on the UI thread as likely as not.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def calm_collector() -> Iterator[None]:
    """What is there now is never walked again inside the block; what comes is collected in small portions."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 8, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
