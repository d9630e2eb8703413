"""Actions on where text is tokenized."""

from __future__ import annotations

from infradoc.remediation.actions.base import LiveAction, by_name

TOKENIZER = by_name(
    LiveAction(
        "set_tokenizer_workers",
        "tokenizer_workers",
        loser="the model's compute threads, where no core is free; and some memory for each worker",
    ),
)
