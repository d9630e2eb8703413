"""Each screen at three sizes, from recordings at fixed moments: what a person sees does not change unawares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from infradoc.tui.app import DoctorApp

Make = Callable[..., DoctorApp]
Settle = Callable[[Any], Awaitable[None]]
SIZES = [(80, 24), (120, 40), (200, 60)]
FLEET = ("vllm-05", "vllm-07", "llamacpp-03", "vllm-01")
SCREENS = {"fleet": ("escape",), "target": (), "finding": ("f", "enter")}


def name_of(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def keys_then_settle(keys: tuple[str, ...], settle: Settle) -> Callable[[Any], Awaitable[None]]:
    async def run(pilot: Any) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)

    return run


@pytest.mark.parametrize("size", SIZES, ids=name_of)
@pytest.mark.parametrize("screen", SCREENS)
def test_screen(
    snap_compare: Callable[..., bool], make_app: Make, settle: Settle, screen: str, size: tuple[int, int]
) -> None:
    app = make_app(*FLEET) if screen == "fleet" else make_app("vllm-05", at=90.0)
    keys = () if screen == "fleet" else SCREENS[screen]
    assert snap_compare(app, terminal_size=size, run_before=keys_then_settle(keys, settle))


@pytest.mark.parametrize("screen", SCREENS)
def test_chinese(snap_compare: Callable[..., bool], make_app: Make, settle: Settle, screen: str) -> None:
    app = make_app("vllm-05", "vllm-01", lang="zh") if screen == "fleet" else make_app("vllm-05", lang="zh", at=90.0)
    keys = () if screen == "fleet" else SCREENS[screen]
    assert snap_compare(app, terminal_size=(100, 30), run_before=keys_then_settle(keys, settle))


def test_without_colour(
    snap_compare: Callable[..., bool], make_app: Make, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app("vllm-05", at=90.0)
    assert snap_compare(app, terminal_size=(100, 30), run_before=keys_then_settle((), settle))


def test_light_theme(snap_compare: Callable[..., bool], make_app: Make, settle: Settle) -> None:
    app = make_app("vllm-05", at=90.0)
    assert snap_compare(app, terminal_size=(100, 30), run_before=keys_then_settle(("t",), settle))


def test_a_terminal_that_is_too_small(snap_compare: Callable[..., bool], make_app: Make, settle: Settle) -> None:
    assert snap_compare(make_app("vllm-05"), terminal_size=(20, 5), run_before=keys_then_settle((), settle))


def test_help(snap_compare: Callable[..., bool], make_app: Make, settle: Settle) -> None:
    app = make_app("vllm-05", at=90.0)
    run = keys_then_settle(("question_mark",), settle)
    assert snap_compare(app, terminal_size=(100, 30), run_before=run)
