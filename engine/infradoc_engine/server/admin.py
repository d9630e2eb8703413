"""/admin/config, /admin/blocks, /admin/requests, /admin/drain and /admin/defragment; each checks the token first."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from infradoc_engine import pool_changes
from infradoc_engine.config import LONGEST_DRAIN
from infradoc_engine.core.defragment import Defragmentation, LeakedBlock
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.owner_map import Holders
from infradoc_engine.frontend import Frontend
from infradoc_engine.requests import Choice
from infradoc_engine.server.body import parse_json, read_body
from infradoc_engine.server.drain import Drainer
from infradoc_engine.server.errors import ApiError, json_response
from infradoc_engine.server.live_config import LiveConfig
from infradoc_engine.server.token import AdminToken
from infradoc_engine.server.turns import Turns
from infradoc_engine.snapshot import Snapshot

Hints = Callable[[], dict[str, object]]

_MAX_PATCH_BYTES = 64 * 1024
_SHOWN_LEAKS = 100


class AdminRoutes:
    def __init__(
        self,
        frontend: Frontend,
        live: LiveConfig,
        token: AdminToken,
        *,
        version: str,
        hints: Hints,
        turns: Turns,
        drainer: Drainer,
    ) -> None:
        self._frontend = frontend
        self._engine = frontend.engine
        self._live = live
        self._token = token
        self._version = version
        self._hints = hints
        self._turns = turns
        self._drainer = drainer
        self._unix_offset = time.time() - time.monotonic()
        self._blocks = Snapshot(self._engine.lock, self._read_blocks)
        self._requests = Snapshot(self._engine.lock, self._read_requests)

    async def config(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        return self._config_response()

    async def patch_config(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        patch = parse_json(await read_body(request, _MAX_PATCH_BYTES))
        headers = request.headers
        seconds = None
        for name, sent in (
            ("drain_seconds", request.query_params.get("drain_seconds")),
            ("X-Infradoc-Drain-Seconds", headers.get("x-infradoc-drain-seconds")),
        ):
            if sent is not None:
                seconds = _seconds(sent, name)

        async def change() -> None:
            await self._live.change(patch, headers.get("if-match"), headers.get("x-infradoc-lease"), seconds)

        await self._turns.take(change)
        return self._config_response()

    def _config_response(self) -> Response:
        described = self._live.describe()
        body = {"version": described["version"], "engine": "infradoc", "engine_version": self._version} | described
        return json_response(body | {"hints": self._hints()}, headers={"etag": f'"{described["version"]}"'})

    async def blocks(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        told, holders = self._blocks()
        owners = holders.rows()  # with the engine's lock free again
        return json_response(told | {"owners": owners.rows, "owners_step": owners.step})

    def _read_blocks(self) -> tuple[dict[str, object], Holders]:
        cache = self._engine.cache  # a drain may put another in its place
        ledger = cache.ledger()
        try:
            cache.check_integrity(leaks_allowed=True)  # leaks are told apart: everything else may well add up
            leaks = cache.num_leaked
            integrity = f"ok, but {leaks} of {cache.num_blocks} blocks are leaked" if leaks else "ok"
        except IntegrityError as error:
            integrity = str(error)
        told = {
            "now": time.time(),
            "ledger": ledger.by_state(),
            "num_blocks": ledger.num_blocks,
            "block_size": ledger.block_size,
            "tail_waste_tokens": ledger.tail_waste_tokens,
            "runs": cache.block_map(),
            "integrity": integrity,
            "leaked": [_leaked_block(item) for item in cache.leaked_blocks()[:_SHOWN_LEAKS]],
            "host": {
                "num_blocks": cache.host_blocks,
                "free": cache.host_free_blocks,
                "usage_ratio": cache.host_usage_ratio,
                "swapped_requests": self._engine.scheduler.num_swapped,
            },
        }
        return told, cache.holders()

    async def drain(self, request: Request, send: Send) -> Response:
        """{"seconds": 10}: admit nothing and wait for what runs; {"resume": true}: admit again."""
        self._token.check(request)
        body = await _body(request)
        unknown = set(body) - {"seconds", "resume"}
        if unknown:
            message = f"/admin/drain takes seconds and resume, not {reprlib.repr(min(unknown))}."
            raise ApiError(422, message, code="invalid_value")
        resume = body.get("resume", False)
        if not isinstance(resume, bool):
            message = f"resume cannot be {reprlib.repr(resume)}; give true or false."
            raise ApiError(422, message, code="invalid_value", param="resume")
        if resume:
            await self._turns.on_loop(self._drainer.release())
            await self._turns.take(self._drainer.resume)
            running = self._engine.num_running
        else:
            seconds = _seconds(body["seconds"], "seconds") if "seconds" in body else None
            running = await self._turns.take(lambda: self._drainer.hold(seconds))
        waiting = self._engine.num_waiting
        return json_response({"draining": self._engine.draining, "running": running, "waiting": waiting})

    async def defragment(self, request: Request, send: Send) -> Response:
        """Reclaim leaked blocks and move the others together, between two steps."""
        self._token.check(request)
        if body := await _body(request):
            message = f"/admin/defragment takes no settings, not {reprlib.repr(min(body))}."
            raise ApiError(422, message, code="invalid_value")
        try:
            done, ledger = await self._turns.take(lambda: self._drainer.call(self._defragmented))
        except MemoryError as error:
            message = f"{error} Running requests are computed again."
            raise ApiError(409, message, code="not_possible") from None
        return json_response(
            {
                "reclaimed": [_leaked_block(item) for item in done.reclaimed],
                "moves": len(done.moves),
                "ledger": ledger,
            }
        )

    def _defragmented(self) -> tuple[Defragmentation, Mapping[Any, int]]:
        done = pool_changes.defragment(self._engine)
        with self._engine.lock:
            return done, self._engine.cache.ledger().by_state()

    async def requests(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        return json_response(self._requests())

    def _read_requests(self) -> dict[str, object]:
        choices = [*list(self._frontend.in_flight.values()), *list(self._frontend.finished)]
        return {"now": time.time(), "requests": [self._describe(choice) for choice in choices]}

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
                    "mode": preemption.mode,
                }
                for preemption in request.preemptions
            ],
        }


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; none at all is an empty one. Raises ApiError."""
    return parse_json(await read_body(request, _MAX_PATCH_BYTES) or b"{}")


def _leaked_block(item: LeakedBlock) -> dict[str, object]:
    return {"block": item.block, "owner": item.owner, "age_seconds": round(item.age_seconds, 3)}


def _seconds(value: object, name: str) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):  # no number, or one beyond any float
        seconds = -1.0
    if 0 <= seconds <= LONGEST_DRAIN:
        return seconds
    message = f"{name} cannot be {reprlib.repr(value)}; give 0 to {LONGEST_DRAIN:g} seconds."
    raise ApiError(422, message, code="invalid_value", param=name)
