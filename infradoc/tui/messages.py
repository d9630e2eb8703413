"""What workers tell the screens. Posting a message is the only thing a thread does to the screen."""

from __future__ import annotations

from typing import Any

from textual.message import Message

from infradoc.fleet.repair import Stage


class Done(Message):
    """A worker has what the screen asked for."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Failed(Message):
    """A worker could not do it; one sentence."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class EngineAnswered(Message):
    """The engine's admin API answered, or said why not."""

    def __init__(self, told: Any) -> None:
        super().__init__()
        self.told = told


class PlanReady(Message):
    """The plan for a finding, or why there is none."""

    def __init__(self, planned: Any, error: str = "") -> None:
        super().__init__()
        self.planned, self.error = planned, error


class RepairMoved(Message):
    """A repair said something, began to wait for something else, or ended."""

    def __init__(self, spec: str, text: str = "", ended: bool = False, stage: Stage | None = None) -> None:
        super().__init__()
        self.spec, self.text, self.ended, self.stage = spec, text, ended, stage


class Told(Message):
    """A short note for the person, from a thread."""

    def __init__(self, text: str, severity: str = "information") -> None:
        super().__init__()
        self.text, self.severity = text, severity
