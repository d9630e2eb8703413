"""How long requests are as their clients send them: a server that cuts prompts only knows what it kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from infradoc.lengths.measured import nearest_rank
from infradoc.load.record import RequestRecord

LEAST_REQUESTS = 20  # below it a high quantile is the longest request and nothing more
_LIKE_THE_LONGEST = 0.5  # of the uncut prompts, the longer ones: a template's own tokens weigh least in them


def sent_tokens(records: Sequence[RequestRecord], q: float) -> int | None:
    """Quantile `q` (nearest rank) of prompt as sent + max_tokens, in tokens; None below LEAST_REQUESTS answers.

    A prompt is counted in words by its client. Tokens per word come from answers whose usage counts no fewer tokens
    than words: those were not cut. None where there is no such answer.
    """
    known = [
        (record.prompt_words, record.prompt_tokens, record.max_tokens or 0)
        for record in records
        if record.ok and record.prompt_words and record.prompt_tokens
    ]
    whole = sorted((words, tokens) for words, tokens, _ in known if tokens >= words)
    if len(known) < LEAST_REQUESTS or not whole:
        return None
    longer = whole[int(len(whole) * _LIKE_THE_LONGEST) :]
    per_word = sum(tokens for _, tokens in longer) / sum(words for words, _ in longer)
    lengths = [max(tokens, words * per_word) + answer for words, tokens, answer in known]
    return math.ceil(nearest_rank(lengths, q) - 1e-6)
