"""Which tests want the machine for themselves: the rest may run side by side (`make test`)."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# They start engines with compute threads of their own, judge latency, or measure memory: beside a busy neighbour they
# would take longer than one after the other, or say something about the neighbour.
SERIAL = (
    "engine/server",
    "engine/test_memory.py",
    "engine/test_runner.py",
    "engine/gpu_check",
    "infradoc/cli",
    "infradoc/demo",
    "infradoc/load",
    "infradoc/remediation",
    "infradoc/sources/test_nvml_diagnose.py",
    "scenarios",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder, so that a new test file need not think of it."""
    for item in items:
        place = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
        if any(place == name or place.startswith(f"{name}/") for name in SERIAL):
            item.add_marker(pytest.mark.serial)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by their argument: those that were packed hold the time, and two workers would collect different
    names when a second passes between them."""
    return argname if isinstance(val, bytes) else None
