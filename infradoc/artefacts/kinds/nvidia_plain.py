"""`nvidia-smi --format=csv,noheader`: columns that the command above names, or what the units of a row give away."""

from __future__ import annotations

from infradoc_rules.lazy_pattern import lazy

_QUERY = lazy(r"\bnvidia-smi\b.{0,200}--query-(?:gpu|compute-apps)=([\w.,]+)")
# A row of `noheader` above which no command tells the columns: the units say which readings some of its cells are.
_PLAIN_CELL = lazy(
    r"^(?:\d{1,3}|(?:NVIDIA|Tesla|Quadro|GeForce|RTX) ?[\w .-]{1,60}|\d+ MiB|\d+(?:\.\d+)? W|\d+ %|\d+ MHz"
    r"|P\d+|GPU-[0-9a-f-]{8,40}|\[N/A\]|N/A|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)$"
)


def asked_columns(line: str) -> list[str]:
    """The columns that a command asks for; empty when the line is no such command."""
    found = _QUERY.search(line) if "--query-" in line else None
    return found[1].split(",") if found else []


def sure_cells(line: str) -> dict[str, str]:
    """What a row without a header surely says; empty when it is none.

    Of two sizes the larger is the whole; the smaller counts as used only where it comes first, as in
    `memory.used,memory.total`: after the whole it may as well be what is free.
    """
    cells = [cell.strip() for cell in line.split(",")] if "MiB" in line and len(line) < 300 else []
    if len(cells) < 3 or not all(_PLAIN_CELL.match(cell) for cell in cells):
        return {}
    sizes = [cell for cell in cells if cell.endswith(" MiB")]
    if len(sizes) < 2:
        return {}
    whole = max(sizes, key=lambda size: int(size.split()[0]))
    out = {"memory.total": whole} | ({"memory.used": sizes[0]} if len(sizes) == 2 and sizes[0] != whole else {})
    out |= {"index": cells[0]} if cells[0].isdigit() else {}
    shares = [cell for cell in cells if cell.endswith(" %")]
    powers = [cell for cell in cells if cell.endswith(" W")]
    out |= {"utilization.gpu": shares[0]} if len(shares) == 1 else {}
    out |= {"power.draw": powers[0], "power.limit": powers[1]} if len(powers) == 2 else {}
    name = next((cell for cell in cells if cell[:1].isalpha() and " " in cell and not cell.startswith("P")), None)
    return out | ({"name": name} if name else {})
