"""Prompts and documents as functions of a seed and an index only: the same load can be sent again at any time.

The words are shipped in `words.json`. Documents mix common words with technical terms, names, figures and codes, so
that SmolLM2's tokenizer cuts them as it cuts natural reports: about 3.8 bytes a token, 52,000 tokens for 200 KB.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from random import Random

SENTENCES_IN_BANK = 400
SENTENCES_IN_PARAGRAPH = 6
VALUES_IN_ROW = 5


@lru_cache(maxsize=1)
def words() -> dict[str, list[str]]:
    """The shipped word list by word class."""
    text = resources.files("infradoc.load").joinpath("words.json").read_text(encoding="utf-8")
    listed: dict[str, list[str]] = json.loads(text)
    return listed


def prompt(seed: int, stream: str, index: int, num_words: int, shared_words: int = 0) -> str:
    """A prompt of `num_words` plain words, most of them one token each.

    The first `shared_words` are the same for every index, all others differ. `stream` separates request classes that
    share a seed.
    """
    plain = words()["plain"]
    own = Random(f"{seed}/{stream}/{index}/prompt").choices(plain, k=num_words - shared_words)
    shared = Random(f"{seed}/{stream}/shared").choices(plain, k=shared_words)
    return " ".join(shared + own)


def document(seed: int, index: int, num_bytes: int) -> str:
    """A text of exactly `num_bytes` UTF-8 bytes that reads like a report.

    Sentences come from a bank that depends on the seed; their order on the index. Composing words afresh for each
    document would take the client a tenth of a core at five documents a second, and it shares the box with the server.
    """
    bank = sentence_bank(seed)
    source = Random(f"{seed}/{index}/document")
    parts: list[str] = []
    size = 0
    while size < num_bytes:
        row = " | ".join(f"{source.uniform(0, 999):.2f}" for _ in range(VALUES_IN_ROW))
        paragraph = " ".join(source.choices(bank, k=SENTENCES_IN_PARAGRAPH)) + f"\n{row}\n\n"
        parts.append(paragraph)
        size += len(paragraph.encode())
    return cut("".join(parts), num_bytes)


def cut(text: str, num_bytes: int) -> str:
    """The first `num_bytes` bytes of `text`, padded with dots where a multi-byte character had to go."""
    kept = text.encode()[:num_bytes].decode(errors="ignore")
    return kept + "." * (num_bytes - len(kept.encode()))


@lru_cache(maxsize=8)
def sentence_bank(seed: int) -> tuple[str, ...]:
    """The sentences that documents of one seed are made of."""
    source = Random(f"{seed}/bank")
    return tuple(sentence(source) for _ in range(SENTENCES_IN_BANK))


def sentence(source: Random) -> str:
    """One sentence: clause, sometimes a second one, sometimes a figure or a reference in brackets."""
    text = clause(source)
    if source.random() < 0.4:
        text += f", {source.choice(words()['connective'])} {clause(source)}"
    if source.random() < 0.5:
        text += f" {figure(source)}"
    return text[0].upper() + text[1:] + "."


def clause(source: Random) -> str:
    """Subject, verb and object, with optional adverb and place."""
    listed = words()
    subject = source.choice(listed["name"]) if source.random() < 0.35 else noun_phrase(source)
    adverb = f"{source.choice(listed['adverb'])} " if source.random() < 0.25 else ""
    text = f"{subject} {adverb}{source.choice(listed['verb'])} {noun_phrase(source)}"
    if source.random() < 0.6:
        text += f" {source.choice(listed['preposition'])} {noun_phrase(source)}"
    return text


def noun_phrase(source: Random) -> str:
    """Determiner, often an adjective, and a noun, plain or technical."""
    listed = words()
    adjective = f"{source.choice(listed['adjective'])} " if source.random() < 0.5 else ""
    noun = source.choice(listed["noun"] if source.random() < 0.5 else listed["plain"])
    return f"{source.choice(listed['determiner'])} {adjective}{noun}"


def figure(source: Random) -> str:
    """A quantity, a date or a reference, as reports have them."""
    kind = source.randrange(3)
    if kind == 0:
        return f"({source.uniform(0.1, 900):.1f} {source.choice(words()['unit'])})"
    if kind == 1:
        return f"on {source.randint(1, 28)}.{source.randint(1, 12)}.{source.randint(1950, 2025)}"
    return f"[{source.choice('ABCDEFGH')}-{source.randint(100, 99999)}]"
