"""The application over recordings: deterministic, with nothing to wait for but its own workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from infradoc.fleet.replaying import ReplayView
from infradoc.tui.app import DoctorApp
from infradoc.tui.screens.base import DoctorScreen
from infradoc_rules.catalog import Catalog, load_catalog

Settle = Callable[[Any], Awaitable[None]]


@pytest.fixture(autouse=True)
def _alone(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No journal and no terminal of the machine leaks in."""
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(clean_environment / "state"))
    for name in ("NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The rules."""
    return load_catalog()


@pytest.fixture(scope="session")
def replay(recordings_dir: Path, catalog: Catalog) -> Callable[[str, str], ReplayView]:
    """A recording read to its end; each is read once for all tests."""
    read: dict[tuple[str, str], ReplayView] = {}

    def get(name: str, lang: str) -> ReplayView:
        if (name, lang) not in read:
            read[name, lang] = ReplayView(recordings_dir / name, catalog, lang)
            read[name, lang].load()
        return read[name, lang]

    return get


@pytest.fixture
def make_app(replay: Callable[[str, str], ReplayView], tmp_path: Path) -> Callable[..., DoctorApp]:
    """An application over recordings, read to their ends."""

    def make(*names: str, lang: str = "en", at: float | None = None) -> DoctorApp:
        views = []
        for name in names or ("vllm-05",):
            view = replay(name, lang)
            view.seek(None if at is None else view.span[0] + at)
            views.append(view)
        return DoctorApp(views, lang=lang, export_dir=tmp_path)

    return make


@pytest.fixture
def settle() -> Settle:
    """Wait until the screen shows what was asked for last."""

    async def wait(pilot: Any) -> None:
        for _ in range(500):
            await pilot.pause()
            screen = pilot.app.screen
            if not isinstance(screen, DoctorScreen) or screen.settled:
                await pilot.pause()
                if not isinstance(screen, DoctorScreen) or screen.settled:
                    return
            await asyncio.sleep(0.01)
        raise AssertionError("the screen did not settle")

    return wait
