"""systemd units, supervisord programs, Dockerfiles, Ollama's Modelfile and files of variables that start an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc.sources.launch_units import (
    dockerfile_facts,
    modelfile_facts,
    supervisor_facts,
    unit_facts,
    variables_facts,
)
from infradoc_rules.model import Fact

Facts = Callable[[str, str | None], list[Fact]]
_FORMS: tuple[tuple[re.Pattern[str], re.Pattern[str], Facts], ...] = (
    (  # supervisord
        re.compile(r"^command ?=."),
        re.compile(r"^(?:\[(?:program|group|supervisord|unix_http_server)\S*\]$|[a-z_]{3,30} ?=|[ \t]+\S)"),
        supervisor_facts,
    ),
    (  # what a run of lines holds at least once, what its lines look like
        re.compile(r"^(?:ExecStart|Environment|Image) ?=."),
        re.compile(r"^(?:\[(?:Unit|Service|Install|Container)\]$|[A-Z][A-Za-z]{2,30} ?=)"),
        unit_facts,
    ),
    (
        re.compile(r"^(?:CMD|ENTRYPOINT|FROM) "),
        re.compile(
            r"^(?:FROM|RUN|ENV|ARG|CMD|ENTRYPOINT|COPY|ADD|WORKDIR|EXPOSE|LABEL|USER|VOLUME|SHELL|HEALTHCHECK) \S"
        ),
        dockerfile_facts,
    ),
    (
        re.compile(r"^PARAMETER +[a-z_]{3,30} +\S"),
        re.compile(r"^(?:PARAMETER +[a-z_]{3,30} +\S|FROM \S+$|(?:TEMPLATE|SYSTEM|ADAPTER|LICENSE|MESSAGE) )"),
        modelfile_facts,
    ),
    (
        re.compile(r"^(?:export )?(?:OLLAMA|LLAMA_ARG)_[A-Z_]+=\S*$"),
        re.compile(r"^(?:export )?(?:OLLAMA|LLAMA_ARG)_[A-Z_]+=\S*$"),
        variables_facts,
    ),
)


class LaunchUnitsKind:
    """Files that start a server through another tool than a shell."""

    name = "launch_units"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of their lines, with continuations, that name an engine."""
        return [(start, end) for start, end, _ in _found(lines)]

    def read(self, segment: Segment) -> Artefact:
        """Knobs, variables and limits."""
        facts = [
            fact
            for start, end, read in _found(segment.lines)
            for fact in read("\n".join(segment.lines[start:end]), segment.source)
        ]
        system = next((str(fact.value) for fact in facts if fact.name == "target.system"), None)
        return Artefact([], facts, [], system, 0)


def _found(lines: Sequence[str]) -> list[tuple[int, int, Facts]]:
    out: list[tuple[int, int, Facts]] = []
    for needed, mine, read in _FORMS:
        for start, end in _runs(lines, mine):
            if any(needed.match(line) for line in lines[start:end]):
                facts = read("\n".join(lines[start:end]), None)
                if any(fact.name == "target.system" for fact in facts) and not _overlaps(out, start, end):
                    out.append((start, end, read))
    return sorted(out, key=lambda found: found[0])


def _overlaps(out: Sequence[tuple[int, int, Facts]], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last, _ in out)


def _runs(lines: Sequence[str], mine: re.Pattern[str]) -> list[Span]:
    """Runs of such lines with their continuations, and with blank lines and comments between them."""
    out: list[Span] = []
    index, start, last = 0, -1, -1
    while index < len(lines):
        line = lines[index]
        if mine.match(line):
            start = index if start < 0 else start
            while lines[index].rstrip().endswith("\\") and index + 1 < len(lines):
                index += 1
            last = index + 1
        elif start >= 0 and line.strip() and not line.startswith("#"):
            out.append((start, last))
            start = -1
        index += 1
    return [*out, (start, last)] if start >= 0 else out
