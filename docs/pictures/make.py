"""The pictures of the README: `infradoc tui` over the bundled engine under a load that has trouble, and a page of it.

usage: python docs/pictures/make.py [--out docs/pictures] [--size 120x38]

Starts the engine and the load of the demo's `kv` fault (a KV pool that is too small), watches until the finding is
there, and writes fleet.svg, target.svg and finding.svg. Two recordings of other engines stand beside it in the table.
`diagnose --format html` of the same engine is drawn by Chromium as report.png (left as it is where there is none).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from infradoc.config import Config, Permissions, TargetConfig
from infradoc.demo.children import start_engine, start_load
from infradoc.demo.faults import KV, MODEL
from infradoc.fleet.replaying import ReplayView
from infradoc.fleet.watcher import TargetWatcher
from infradoc.tui.app import DoctorApp
from infradoc.tui.screens.base import DoctorScreen
from infradoc.tui.screens.finding import FindingScreen
from infradoc_rules.catalog import load_catalog

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("vllm-07", "llamacpp-01")
_FONTS = re.compile(r"@font-face\s*\{[^}]*\}\s*")
PATIENCE = 120.0  # seconds until the finding is there
FINDING_HEIGHT = 58  # so that the plan is in the picture
FILLED = 45.0  # seconds of load before the pictures, so that the plots have something to show


async def settled(pilot: Any) -> None:
    """Wait for what the screen asked for last."""
    for _ in range(500):
        await pilot.pause()
        screen = pilot.app.screen
        if not isinstance(screen, DoctorScreen) or screen.settled:
            return
        await asyncio.sleep(0.02)


async def pictures(app: DoctorApp, chat: TargetWatcher, out: Path, size: tuple[int, int]) -> None:
    """Wait for the finding, then take the three screens as a person would reach them."""
    async with app.run_test(size=size) as pilot:
        waited = 0.0
        while not any(one["id"] == KV.finding for one in chat.state.findings) or waited < FILLED:
            await asyncio.sleep(0.5)
            waited += 0.5
            if waited > PATIENCE:
                raise SystemExit(f"{KV.finding} was not found in {PATIENCE:g} s; found: {chat.state.findings}")
        while app.screen.chosen != chat.spec:  # type: ignore[attr-defined]
            await pilot.press("down")
        await settled(pilot)
        save(app, out / "fleet.svg")
        await pilot.press("enter")
        await settled(pilot)
        await asyncio.sleep(3.0)  # the engine's block map and requests
        await settled(pilot)
        save(app, out / "target.svg")
        await pilot.resize_terminal(size[0], FINDING_HEIGHT)
        await pilot.press("f", "enter")
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, FindingScreen)
        for _ in range(200):
            if screen.planned is not None:
                break
            await asyncio.sleep(0.1)
        await settled(pilot)
        save(app, out / "finding.svg")


def save(app: DoctorApp, path: Path) -> None:
    """One picture; fonts that would be fetched from elsewhere are left out."""
    drawn = _FONTS.sub("", app.export_screenshot(title="infradoc tui"))
    path.write_text(drawn, encoding="utf-8")
    print(path)


def page(url: str, out: Path, folder: Path) -> None:
    """The report in HTML as a picture of its first screens."""
    command = [sys.executable, "-P", "-m", "infradoc", "diagnose", url, "--window", "40s", "--format", "html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (folder / "report.html").write_text(done.stdout, encoding="utf-8")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium: report.png is left as it is", file=sys.stderr)
        return
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    flags += [f"--user-data-dir={folder / 'chromium'}", "--window-size=900,1500", f"--screenshot={out}"]
    subprocess.run([chromium, *flags, (folder / "report.html").as_uri()], capture_output=True, timeout=120, check=True)
    print(out)


def main() -> None:
    """Run engine, load and screen, and end them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--size", default="120x38")
    args = parser.parse_args()
    width, height = (int(part) for part in args.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["INFRADOC_STATE_DIR"] = os.environ["INFRADOC_RUNTIME_DIR"] = folder
        engine, url = start_engine(MODEL, KV.serve, Path(folder))
        with engine, start_load(url, KV.load, 1, 400.0, Path(folder) / "client.jsonl"):
            config = Config({"chat": TargetConfig(url=url, permissions=Permissions(apply=True))})
            catalog = load_catalog()
            chat = TargetWatcher("chat", config, catalog)
            beside = [ReplayView(ROOT / "tests/data/recordings" / name, catalog) for name in BESIDE]
            for view in (chat, *beside):
                view.start()
            try:
                asyncio.run(pictures(DoctorApp([chat, *beside], config), chat, args.out, (width, height)))
                page(url, args.out.resolve() / "report.png", Path(folder))
            finally:
                for view in (chat, *beside):
                    view.stop(2.0)


if __name__ == "__main__":
    main()
