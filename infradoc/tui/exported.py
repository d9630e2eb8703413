"""What a screen shows, written as SVG and its figures as CSV."""

from __future__ import annotations

from pathlib import Path

from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.tui import export
from infradoc.tui.messages import Told
from infradoc.tui.screens.base import DoctorScreen
from infradoc.tui.screens.finding import FindingScreen
from infradoc.tui.screens.fleet import FleetScreen
from infradoc.tui.screens.target import TargetScreen


def written(screen: DoctorScreen, folder: Path, svg: str) -> Told:
    """Write the files into `folder`; tells their names, or why there are none. For threads: files may be slow."""
    say, lang = screen.doctor.say, screen.doctor.lang
    try:
        name, text, blocks = _figures(screen)
        files = ", ".join(str(path) for path in export.write(folder, name, svg, text, blocks))
        return Told(say["exported"].format(files=files))
    except InfradocError as error:
        return Told(say["not_exported"].format(why=in_language(str(error), lang)), "error")


def _figures(screen: DoctorScreen) -> tuple[str, str, str]:
    """A name, the figures of a screen, its map of blocks or "". Raises InfradocError when there are none yet."""
    if isinstance(screen, FleetScreen):
        return "fleet", export.fleet_csv(screen.rows), ""
    if isinstance(screen, TargetScreen) and screen.painted is not None:
        shown = screen.painted
        figures = export.series_csv(shown.frame, shown.marks)
        return f"target-{shown.state.name}", figures, export.blocks_csv(shown.blocks)
    if isinstance(screen, FindingScreen) and screen.finding is not None:
        return f"finding-{screen.finding_id}", export.finding_csv(screen.finding), ""
    raise InfradocError("There is nothing to export yet.")
