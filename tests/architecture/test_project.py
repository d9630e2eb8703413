"""The repository speaks of itself alone, and its metadata stays light."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_base_install_is_light() -> None:
    names = {re.split(r"[<>=;\[ ]", d)[0].lower() for d in PROJECT["dependencies"]}
    assert not names & {"torch", "triton", "tokenizers", "starlette", "uvicorn"}


def test_lock_covers_every_dependency_with_exact_pins() -> None:
    lines = [x for x in (ROOT / "requirements.cpu.lock").read_text().splitlines() if x and not x.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-]+==[A-Za-z0-9_.]+( ;.*)?", x) for x in lines), lines
    locked = {x.split("==")[0].lower().replace("_", "-") for x in lines}
    wanted = PROJECT["dependencies"] + [d for extra in PROJECT["optional-dependencies"].values() for d in extra]
    missing = {re.split(r"[<>=;\[ ]", d)[0].lower() for d in wanted} - locked
    assert not missing


def test_version_is_one() -> None:
    text = (ROOT / "infradoc" / "__init__.py").read_text()
    assert f'__version__ = "{PROJECT["version"]}"' in text
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
