"""Request bodies of the OpenAI-compatible API. Unknown fields are ignored, as other servers do; a field that would
change the answer and is not supported is refused, never dropped in silence."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

_SEED_LIMIT = 2**63 - 1
_UNSUPPORTED: dict[str, tuple[object, ...]] = {  # field -> values that mean "not asked for"
    "echo": (None, False),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "repetition_penalty": (None, 1, 1.0),
    "tools": (None, []),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
    "guided_json": (None,),
    "prompt_logprobs": (None, False),
}

StopText = Annotated[str, Field(min_length=1, max_length=1000)]


class StreamOptions(BaseModel):
    include_usage: bool = False


class SamplingFields(BaseModel):
    """Fields that completions and chat share."""

    model_config = ConfigDict(allow_inf_nan=False, strict=False)

    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = Field(default=None, ge=-_SEED_LIMIT, le=_SEED_LIMIT)
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=64)] | None = None
    n: int | None = Field(default=None, ge=1, le=64)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    min_tokens: int | None = Field(default=None, ge=0)
    ignore_eos: bool = False
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, harmless in _UNSUPPORTED.items():
                if name in data and data[name] not in harmless:
                    raise ValueError(f"{name} is not supported by this server; leave it out")
            if data.get("truncate_prompt_tokens") == 0:
                raise ValueError("truncate_prompt_tokens must be -1 or at least 1")
        return data

    @property
    def stop_texts(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionBody(SamplingFields):
    prompt: Any = None  # str, token ids, or a list of either: checked by `prompts`, element types cost too much here
    logprobs: int | None = Field(default=None, ge=0, le=20)
    add_special_tokens: bool = True

    def prompts(self) -> list[str | list[int]]:
        """One entry per prompt; ValueError says what is wrong."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not isinstance(prompt, list):
            raise ValueError("prompt must be a text, a list of token ids, or a list of those")
        if all(_is_id(item) for item in prompt):
            return [prompt]  # an empty list too: refused later as a prompt of 0 tokens
        if len(prompt) > 64:
            raise ValueError(f"prompt holds {len(prompt)} prompts; at most 64 are taken at once")
        for item in prompt:
            if not isinstance(item, str) and not (isinstance(item, list) and all(_is_id(i) for i in item)):
                raise ValueError("each prompt of a list must be a text or a list of token ids (whole numbers)")
        return list(prompt)


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: str = Field(min_length=1, max_length=64)
    content: str | list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _only_text(self) -> ChatMessage:
        for part in self.content if isinstance(self.content, list) else []:
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise ValueError("only text parts are supported in content")
        return self

    def plain(self) -> dict[str, str]:
        """Role and text, as chat templates expect them."""
        content = self.content
        text = "".join(str(part["text"]) for part in content) if isinstance(content, list) else content or ""
        return {"role": self.role, "content": text}


class ChatBody(SamplingFields):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    add_generation_prompt: bool = True

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> ChatBody:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        return self


class TokenizeBody(BaseModel):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    add_special_tokens: bool = True
    add_generation_prompt: bool = True

    @model_validator(mode="after")
    def _one_of_two(self) -> TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt (a text) or messages")
        return self


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)
