"""What the watch says of an applied change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infradoc.remediation.journal import ChangeRecord, Entry, EntryKind
from infradoc.service.changes import told_change

INTENT = Entry("intent", "c1", 1.0, "http://x:1", "kv_pool_tokens", 768, 1536, finding="kv-thrashing-preemption")


@pytest.mark.parametrize(
    ("kind", "verdict", "summary", "old", "new"),
    [
        ("applied", None, "applied: kv_pool_tokens 768 -> 1536", 768, 1536),
        ("verdict", "fixed", "verdict fixed: kv_pool_tokens 768 -> 1536", 768, 1536),
        ("undone", "not_fixed", "undone: kv_pool_tokens 1536 -> 768", 1536, 768),
    ],
)
def test_each_stage_tells_what_holds_after_it(
    kind: EntryKind, verdict: str | None, summary: str, old: int, new: int
) -> None:
    told = told_change(ChangeRecord(INTENT, replace(INTENT, kind=kind), verdict))
    assert (told["summary"], told["old"], told["new"]) == (summary, old, new)
    assert (told["finding"], told["verdict"]) == ("kv-thrashing-preemption", verdict)


def test_all_knobs_of_one_change_are_told() -> None:
    entry = replace(INTENT, kind="undone", also=(("max_num_seqs", None, 4),))
    assert told_change(ChangeRecord(entry, entry, None))["summary"] == (
        "undone: kv_pool_tokens 1536 -> 768, max_num_seqs 4 -> unset"
    )
