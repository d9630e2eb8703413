"""/admin/config, /admin/blocks and /admin/requests; every handler checks the token first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.frontend import Frontend
from infradoc_engine.requests import Choice
from infradoc_engine.server.appliers import on_loop
from infradoc_engine.server.body import parse_json, read_body
from infradoc_engine.server.errors import json_response
from infradoc_engine.server.live_config import LiveConfig
from infradoc_engine.server.token import AdminToken

Hints = Callable[[], dict[str, object]]

_MAX_PATCH_BYTES = 64 * 1024


class AdminRoutes:
    def __init__(
        self,
        frontend: Frontend,
        live: LiveConfig,
        token: AdminToken,
        *,
        version: str,
        hints: Hints,
        control_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._frontend = frontend
        self._engine = frontend.engine
        self._live = live
        self._token = token
        self._version = version
        self._hints = hints
        self._control_loop = control_loop
        self._unix_offset = time.time() - time.monotonic()
        self._one_at_a_time = asyncio.Lock()

    async def config(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        return self._config_response()

    async def patch_config(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        patch = parse_json(await read_body(request, _MAX_PATCH_BYTES))
        headers = request.headers
        await on_loop(self._control_loop, self._change(patch, headers.get("if-match"), headers.get("x-infradoc-lease")))
        return self._config_response()

    async def _change(self, patch: dict[str, object], if_match: str | None, lease: str | None) -> None:
        async with self._one_at_a_time:
            await self._live.change(patch, if_match, lease)

    def _config_response(self) -> Response:
        described = self._live.describe()
        body = {"version": described["version"], "engine": "infradoc", "engine_version": self._version} | described
        return json_response(body | {"hints": self._hints()}, headers={"etag": f'"{described["version"]}"'})

    async def blocks(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        cache = self._engine.cache
        with self._engine.lock:
            ledger = cache.ledger()
            runs = cache.block_map()
            try:
                cache.check_integrity()
                integrity = "ok"
            except IntegrityError as error:
                integrity = str(error)
        return json_response(
            {
                "ledger": ledger.by_state(),
                "num_blocks": ledger.num_blocks,
                "block_size": ledger.block_size,
                "tail_waste_tokens": ledger.tail_waste_tokens,
                "runs": runs,
                "integrity": integrity,
            }
        )

    async def requests(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        with self._engine.lock:
            choices = [*list(self._frontend.in_flight.values()), *list(self._frontend.finished)]
            described = [self._describe(choice) for choice in choices]
        return json_response({"now": time.time(), "requests": described})

    def _describe(self, choice: Choice) -> dict[str, object]:
        request = choice.request
        return {
            "id": request.request_id,
            "state": request.state if choice.outcome is None else "finished",
            "finish_reason": choice.outcome,
            "received": choice.received,
            "prompt_tokens": len(request.prompt_token_ids),
            "cached_tokens": request.num_cached_tokens,
            "output_tokens": len(request.output_token_ids),
            "computed_tokens": request.num_computed_tokens,
            "blocks": len(request.block_table),
            "end_to_end_seconds": choice.ledger.end_to_end,
            "stages": choice.ledger.snapshot(),
            "preemptions": [
                {
                    "time": self._unix_offset + preemption.time,
                    "reason": preemption.reason,
                    "lost_tokens": preemption.lost_tokens,
                    "for_request": preemption.for_request,
                }
                for preemption in request.preemptions
            ],
        }
