"""Answers in the two OpenAI shapes, whole and as stream chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infradoc_engine.prompts import Cut
from infradoc_engine.requests import Choice, Piece
from infradoc_engine.sampler import Sampled

Json = dict[str, Any]
TokenText = Callable[[int], str]


@dataclass(slots=True)
class Assembled:
    """One choice as it grows, for an answer that is sent whole."""

    text: list[str] = field(default_factory=list)
    tokens: list[Sampled] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece) -> None:
        self.text.append(piece.text)
        if piece.token is not None:
            self.tokens.append(piece.token)
        self.finish_reason = piece.finish_reason or self.finish_reason


class Shape:
    """What completions and chat answers have in common."""

    prefix = ""
    whole = ""
    chunk = ""

    def __init__(self, model: str, token_text: TokenText, *, logprobs: bool) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._token_text = token_text
        self._wants_logprobs = logprobs

    def envelope(self, kind: str, choices: list[Json]) -> Json:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model, "choices": choices}

    def answer(self, choices: Sequence[tuple[Choice, Assembled]]) -> Json:
        """The whole answer, with usage and, where a prompt was cut, the flag that says so."""
        body = self.envelope(self.whole, [self.whole_choice(choice, got) for choice, got in choices])
        body["usage"] = usage([choice for choice, _ in choices])
        return body | truncation_flag([choice for choice, _ in choices])

    def piece(self, piece: Piece) -> Json:
        return self.envelope(self.chunk, [self.chunk_choice(piece)])

    def usage_chunk(self, choices: Sequence[Choice]) -> Json:
        return self.envelope(self.chunk, []) | {"usage": usage(choices)}

    def first_chunk(self, choice: Choice) -> Json | None:
        """A chunk that comes before the first text of a choice, where the shape has one."""
        return None

    def whole_choice(self, choice: Choice, got: Assembled) -> Json:
        raise NotImplementedError

    def chunk_choice(self, piece: Piece) -> Json:
        raise NotImplementedError


class CompletionShape(Shape):
    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, token_text: TokenText, *, logprobs: bool) -> None:
        super().__init__(model, token_text, logprobs=logprobs)
        self._offsets: dict[int, int] = {}

    def whole_choice(self, choice: Choice, got: Assembled) -> Json:
        return {
            "index": choice.index,
            "text": "".join(got.text),
            "logprobs": self._logprobs(choice.index, got.tokens),
            "finish_reason": got.finish_reason,
        }

    def chunk_choice(self, piece: Piece) -> Json:
        tokens = [piece.token] if piece.token is not None else []
        return {
            "index": piece.choice.index,
            "text": piece.text,
            "logprobs": self._logprobs(piece.choice.index, tokens),
            "finish_reason": piece.finish_reason,
        }

    def _logprobs(self, index: int, tokens: Sequence[Sampled]) -> Json | None:
        if not self._wants_logprobs:
            return None
        texts = [self._token_text(token.token_id) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(text)
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {self._token_text(other): value for other, value in token.top_logprobs or []} for token in tokens
            ],
            "text_offset": offsets,
        }


class ChatShape(Shape):
    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def whole_choice(self, choice: Choice, got: Assembled) -> Json:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": "".join(got.text)},
            "logprobs": self._logprobs(got.tokens),
            "finish_reason": got.finish_reason,
        }

    def chunk_choice(self, piece: Piece) -> Json:
        tokens = [piece.token] if piece.token is not None else []
        return {
            "index": piece.choice.index,
            "delta": {"content": piece.text} if piece.text or piece.finish_reason is None else {},
            "logprobs": self._logprobs(tokens),
            "finish_reason": piece.finish_reason,
        }

    def first_chunk(self, choice: Choice) -> Json:
        delta = {"index": choice.index, "delta": {"role": "assistant", "content": ""}}
        return self.envelope(self.chunk, [delta | {"logprobs": None, "finish_reason": None}])

    def _logprobs(self, tokens: Sequence[Sampled]) -> Json | None:
        if not self._wants_logprobs:
            return None
        return {"content": [self._entry(token) for token in tokens], "refusal": None}

    def _entry(self, token: Sampled) -> Json:
        top = [self._one(other, value) for other, value in token.top_logprobs or []]
        return self._one(token.token_id, token.logprob) | {"top_logprobs": top}

    def _one(self, token_id: int, logprob: float | None) -> Json:
        text = self._token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


def usage(choices: Sequence[Choice]) -> Json:
    """Token counts; n answers to one prompt count the prompt once."""
    prompts = {id(choice.prompt): choice for choice in choices}.values()
    prompt = sum(len(choice.prompt.token_ids) for choice in prompts)
    completion = sum(choice.num_tokens for choice in choices)
    cached = sum(choice.request.num_cached_tokens for choice in prompts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def truncation_flag(choices: Sequence[Choice]) -> Json:
    """`{"infradoc": {"truncated": ...}}` for the first prompt that was cut, else nothing."""
    cut: Cut | None = next((choice.prompt.cut for choice in choices if choice.prompt.cut is not None), None)
    if cut is None:
        return {}
    flag: Json = {
        "policy": cut.policy,
        "original_tokens": cut.original_tokens,
        "kept_tokens": cut.kept_tokens,
    }
    if cut.requested:
        flag["requested"] = True
    return {"infradoc": {"truncated": flag}}
