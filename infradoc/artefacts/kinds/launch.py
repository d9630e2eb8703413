"""The command or file that starts a server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, command_spans
from infradoc.sources.launch import launch_facts, system_of

_COMMAND = re.compile(
    r"^(?:[A-Z_][A-Z0-9_]*=\S* +|(?:sudo|nohup|exec|time|env|export) +)*"
    r"(?:(?:docker|podman|nerdctl) run |vllm |(?:\S*/)?python[\d.]* |sglang |text-generation-launcher"
    r"|(?:\S*/)?llama\S* |lmdeploy |trtllm-serve |ollama |lemonade\S* |llm ?= ?LLM\()"
)


class LaunchKind:
    """A shell command that starts a server we know."""

    name = "launch"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Commands that name an engine, with their continuation lines and the comments right around them."""
        found = command_spans(lines, _COMMAND.match)
        return [_with_comments(lines, span) for span in found if system_of("\n".join(lines[span[0] : span[1]]))]

    def read(self, segment: Segment) -> Artefact:
        """A fact for each flag that names a knob."""
        text = "\n".join(segment.lines)
        return Artefact([], launch_facts(text, segment.source), [], system_of(text), 0)


def _with_comments(lines: Sequence[str], span: Span) -> Span:
    start, end = span
    while start and lines[start - 1].startswith(("# ", "export ")):
        start -= 1
    while end < len(lines) and lines[end].startswith("# "):
        end += 1
    return start, end
