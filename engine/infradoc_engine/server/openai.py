"""/v1/completions, /v1/chat/completions, /v1/models and /tokenize."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from infradoc_engine.frontend import Frontend
from infradoc_engine.latency import LatencyLedger
from infradoc_engine.prompts import GenerationOptions, Prompt, Refused
from infradoc_engine.sampler import SamplingParams
from infradoc_engine.server.answers import EventStream, send_whole, watching
from infradoc_engine.server.body import check, parse_json, read_body
from infradoc_engine.server.errors import ApiError, from_refusal, json_response
from infradoc_engine.server.schemas import (
    ChatBody,
    ChatMessage,
    CompletionBody,
    SamplingFields,
    TokenizeBody,
)
from infradoc_engine.server.shapes import ChatShape, CompletionShape, Shape

RenderChat = Callable[[list[dict[str, str]], bool], str]  # messages, add_generation_prompt; ValueError says why not

_COMPLETION_DEFAULT_TOKENS = 16  # the default of the API that clients were written against


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the routes need to know of the model."""

    name: str
    created: int  # Unix seconds
    render_chat: RenderChat | None  # None: the model has no chat template


class OpenAIRoutes:
    def __init__(self, frontend: Frontend, model: ServedModel, max_body_bytes: int) -> None:
        self._frontend = frontend
        self._model = model
        self._max_body_bytes = max_body_bytes

    async def models(self, request: Request, send: Send) -> Response:
        entry = {
            "id": self._model.name,
            "object": "model",
            "created": self._model.created,
            "owned_by": "infradoc",
            "max_model_len": self._frontend.limits.max_model_len,
        }
        return json_response({"object": "list", "data": [entry]})

    async def completions(self, request: Request, send: Send) -> None:
        ledger = self._frontend.ledger()
        with self._counting_refusals():
            with ledger.measure("receive"):
                body = check(CompletionBody, parse_json(await read_body(request, self._max_body_bytes)))
                self._check_model(body.model)
                try:
                    prompts = body.prompts()
                except ValueError as error:
                    raise ApiError(400, f"{error}.", code="invalid_value", param="prompt") from None
                default = _COMPLETION_DEFAULT_TOKENS
                options = _options(body, body.max_tokens, body.logprobs, default)
            self._frontend.check_admission(len(prompts) * options.n)
            fitted = [
                await self._completion_prompt(prompt, body, options, ledger if index == 0 else self._frontend.ledger())
                for index, prompt in enumerate(prompts)
            ]
        shape = CompletionShape(self._model.name, self._token_text, logprobs=body.logprobs is not None)
        await self._answer(request, send, body, fitted, options, shape)

    async def _completion_prompt(
        self, prompt: str | list[int], body: CompletionBody, options: GenerationOptions, ledger: LatencyLedger
    ) -> tuple[Prompt, LatencyLedger]:
        if isinstance(prompt, str):
            ids = await self._frontend.encode(prompt, ledger, add_special=body.add_special_tokens)
        else:
            ledger.begin("queue")
            ids = prompt
        return self._frontend.fit(ids, options), ledger

    async def chat(self, request: Request, send: Send) -> None:
        ledger = self._frontend.ledger()
        with self._counting_refusals():
            with ledger.measure("receive"):
                body = check(ChatBody, parse_json(await read_body(request, self._max_body_bytes)))
                self._check_model(body.model)
                top = (body.top_logprobs or 0) if body.logprobs else None
                options = _options(body, body.max_completion_tokens or body.max_tokens, top, None)
            self._frontend.check_admission(options.n)
            with ledger.measure("template"):
                text = self._render(body.messages, body.add_generation_prompt)
            ids = await self._frontend.encode(text, ledger, add_special=False)
            fitted = [(self._frontend.fit(ids, options), ledger)]
        shape = ChatShape(self._model.name, self._token_text, logprobs=bool(body.logprobs))
        await self._answer(request, send, body, fitted, options, shape)

    async def tokenize(self, request: Request, send: Send) -> Response:
        ledger = self._frontend.ledger()
        body = check(TokenizeBody, parse_json(await read_body(request, self._max_body_bytes)))
        self._check_model(body.model)
        if body.messages is not None:
            text, special = self._render(body.messages, body.add_generation_prompt), False
        else:
            text, special = body.prompt or "", body.add_special_tokens
        try:
            encoded = await self._frontend.encode_raw(text, ledger, add_special=special, render=True)
        except Refused as refused:
            raise from_refusal(refused) from None
        head = f'{{"count":{encoded.count},"max_model_len":{self._frontend.limits.max_model_len},"tokens":'
        content = head.encode() + (encoded.rendered or b"[]") + b"}"
        return Response(content, media_type="application/json")

    # --- parts ---

    async def _answer(
        self,
        request: Request,
        send: Send,
        body: SamplingFields,
        prompts: list[tuple[Prompt, LatencyLedger]],
        options: GenerationOptions,
        shape: Shape,
    ) -> None:
        generation = self._frontend.start(prompts, options)
        async with watching(generation, request.receive):
            if body.stream:
                include = body.stream_options is not None and body.stream_options.include_usage
                await EventStream(self._frontend, shape, send, include_usage=include).run(generation)
            else:
                await send_whole(self._frontend, generation, shape, send)

    def _counting_refusals(self) -> _CountRefusals:
        return _CountRefusals(self._frontend)

    def _check_model(self, asked: str | None) -> None:
        if asked is not None and asked != self._model.name:
            message = f"The model {asked[:100]!r} is not served here; this server has {self._model.name!r}."
            raise ApiError(404, message, code="model_not_found", param="model")

    def _render(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        if self._model.render_chat is None:
            message = f"The model {self._model.name} has no chat template; use /v1/completions."
            raise ApiError(400, message, code="no_chat_template", param="messages")
        try:
            return self._model.render_chat([message.plain() for message in messages], add_generation_prompt)
        except ValueError as error:
            raise ApiError(400, str(error), code="chat_template", param="messages") from None

    def _token_text(self, token_id: int) -> str:
        return self._frontend.decode([token_id])


class _CountRefusals:
    """Counts every request that is not taken in, with the reason, and gives refusals their HTTP form."""

    def __init__(self, frontend: Frontend) -> None:
        self._metrics = frontend.metrics

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Refused | ApiError):
            self._metrics.received.inc()
            self._metrics.rejected.inc(error.reason if isinstance(error, Refused) else "invalid")
        if isinstance(error, Refused):
            raise from_refusal(error) from None


def _options(
    body: SamplingFields, max_tokens: int | None, logprobs: int | None, default_max_tokens: int | None
) -> GenerationOptions:
    sampling = SamplingParams(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=max(0, body.top_k or 0),
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        logprobs=logprobs,
    )
    return GenerationOptions(
        sampling=sampling,
        max_tokens=max_tokens,
        default_max_tokens=default_max_tokens,
        stop=body.stop_texts,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        min_tokens=body.min_tokens or 0,
        ignore_eos=body.ignore_eos,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        n=body.n or 1,
    )


def served_model(name: str, render_chat: RenderChat | None) -> ServedModel:
    return ServedModel(name, int(time.time()), render_chat)
