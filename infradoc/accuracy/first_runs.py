"""What the rules got right on cases that nobody had seen when they were written: each batch as it was first scored.

The file lies beside the cases and is kept by hand, one row a batch, written before anything was mended. It is the error
rate to expect; the shares on cases that the rules have learnt from are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from infradoc.accuracy.score import LabelError
from infradoc_rules.yaml_file import YamlError, load_marked

FILE_NAME = "first_runs.yaml"


@dataclass(frozen=True, slots=True)
class FirstRun:
    """One batch, as counts of cases: `right` and `forbidden` of `sick`, `fixed` of `fixes`, `alarms` of `healthy`."""

    batch: str
    date: str
    sick: int
    right: int
    forbidden: int
    fixes: int
    fixed: int
    healthy: int
    alarms: int


def read_first_runs(folders: Sequence[Path]) -> list[FirstRun]:
    """The batches of every folder that keeps them. Raises LabelError for a file that cannot be used."""
    return [row for folder in folders if (folder / FILE_NAME).is_file() for row in _rows(folder / FILE_NAME)]


def _rows(path: Path) -> Iterator[FirstRun]:
    names = {field.name for field in fields(FirstRun)}
    try:
        data = load_marked(path).data
    except (YamlError, OSError) as error:
        raise LabelError(f"{path} cannot be read: {error}.", "Write a list of batches.") from error
    for number, row in enumerate(data if isinstance(data, list) else [None], 1):
        if not isinstance(row, dict) or set(row) != names:
            raise LabelError(f"{path}: batch {number} needs exactly {', '.join(sorted(names))}.", "Mend the file.")
        counts = {key: row[key] for key in names - {"batch", "date"}}
        if not all(isinstance(value, int) and value >= 0 for value in counts.values()):
            raise LabelError(f"{path}: batch {number} has a count that is no whole number.", "Mend the file.")
        yield FirstRun(str(row["batch"]), str(row["date"]), **counts)


def first_run_lines(runs: Sequence[FirstRun]) -> Iterator[str]:
    """The section of the page; empty when no batch is kept."""
    if not runs:
        return
    yield "## Cases that nobody had seen"
    yield ""
    yield "Each batch as it was first scored, before anything was mended: what to expect on an incident of yours."
    yield ""
    yield "| batch | date | right first | forbidden said | fix right | false alarms |"
    yield "|---|---|---|---|---|---|"
    for run in [*runs, _total(runs)]:
        shares = ((run.right, run.sick), (run.forbidden, run.sick), (run.fixed, run.fixes), (run.alarms, run.healthy))
        yield f"| {run.batch} | {run.date} | " + " | ".join(_share(part, whole) for part, whole in shares) + " |"
    yield ""


def _total(runs: Sequence[FirstRun]) -> FirstRun:
    counts = {
        field.name: sum(getattr(run, field.name) for run in runs)
        for field in fields(FirstRun)
        if field.name not in ("batch", "date")
    }
    return FirstRun("**all**", "", **counts)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.2f})" if whole else "-"
