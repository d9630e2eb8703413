"""`nvidia-smi` in every form: the table, -q, csv queries, dmon and pmon."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.kinds import nvidia_query, nvidia_series, nvidia_table
from infradoc.artefacts.kinds.nvidia_state import facts_of
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span

_FORMS = (nvidia_table, nvidia_query, nvidia_series)
_SIGNS = (
    *("NVSMI", "SMI", "MiB", "utilization", "clocks", "Clocks ", "memory.", "power.", "# gpu", "GPU ", "pcie."),
    *("Slowdown", "Power Cap", "Remapped Rows", "Retired Pages", "ECC Errors"),  # of a part without its head
)


class NvidiaSmiKind:
    """Snapshots of devices, one or many."""

    name = "nvidia_smi"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """The ranges of all forms."""
        if not any(sign in line for line in lines for sign in _SIGNS):
            return []
        return sorted(span for form in _FORMS for span in form.spans(lines))

    def read(self, segment: Segment) -> Artefact:
        """`gpu_state`, `gpu_process` and `gpu_clocks_reason` events; facts gpu.*."""
        found = [event for form in _FORMS if form.spans(segment.lines) for event in form.events(segment)]
        return Artefact(found, facts_of(found, segment))
