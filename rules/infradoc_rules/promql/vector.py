"""Instant vectors while they are computed: samples, their labels and the rule that no two share them.

The metric name is kept beside the labels: functions drop it all the time, and then nothing has to be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from infradoc_rules.promql.errors import PromqlError

NAME = "__name__"

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """One element: metric name ("" when dropped), the other labels (never changed in place), value."""

    name: str
    labels: Labels
    value: float


Vector = list[Sample]


def all_labels(sample: Sample) -> dict[str, str]:
    """A new dict of the labels, with `__name__` where the sample still has it."""
    return {NAME: sample.name, **sample.labels} if sample.name else dict(sample.labels)


def from_labels(labels: dict[str, str], value: float) -> Sample:
    """A sample from a dict that may hold `__name__`; the dict is taken over. Empty labels are absent labels."""
    if "" in labels.values():
        labels = {key: text for key, text in labels.items() if text}
    return Sample(labels.pop(NAME, ""), labels, value)


def get_label(sample: Sample, label: str) -> str:
    """A label's value, "" when absent."""
    return sample.name if label == NAME else sample.labels.get(label, "")


def unnamed(vector: Iterable[Sample]) -> Vector:
    """The vector without metric names. Raises PromqlError when two samples become the same."""
    result = [Sample("", labels, value) for _, labels, value in vector]
    return unique(result)


def unique(vector: Vector) -> Vector:
    """The vector itself. Raises PromqlError, naming the labels, when two samples have the same name and labels."""
    if len(vector) < 2:
        return vector
    seen = set()
    for name, labels, _ in vector:
        key = (name, frozenset(labels.items()))
        if key in seen:
            raise PromqlError(f"vector cannot contain metrics with the same labelset: {show(name, labels)}")
        seen.add(key)
    return vector


def show(name: str, labels: Labels) -> str:
    """Labels as PromQL writes them, for messages."""
    inner = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"
