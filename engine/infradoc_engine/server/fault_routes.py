"""/admin/faults: which faults there are, which are on, and the switch."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from infradoc_engine.faults.base import FaultError
from infradoc_engine.faults.board import FaultBoard
from infradoc_engine.server.body import parse_json, read_body
from infradoc_engine.server.errors import ApiError, json_response
from infradoc_engine.server.token import AdminToken

_MAX_BODY_BYTES = 16 * 1024


class FaultRoutes:
    def __init__(self, board: FaultBoard, token: AdminToken) -> None:
        self._board = board
        self._token = token

    async def show(self, request: Request, send: Send) -> Response:
        self._token.check(request)
        return json_response(self._board.describe())

    async def switch(self, request: Request, send: Send) -> Response:
        """{"name", "active": true, "parameters": {...}} -> the list of faults as GET shows it."""
        self._token.check(request)
        body = parse_json(await read_body(request, _MAX_BODY_BYTES))
        name, active = body.get("name"), body.get("active", True)
        parameters = {} if body.get("parameters") is None else body["parameters"]
        # An unknown key may be a misspelt "active": false, and the default would break what was to be mended.
        known = set(body) <= {"name", "active", "parameters"}
        if not (known and isinstance(name, str) and isinstance(active, bool) and isinstance(parameters, dict)):
            message = 'A fault is switched with {"name": text, "active": true or false, "parameters": object}.'
            raise ApiError(422, message, code="invalid_fault")
        try:  # in a thread of its own: memory that is touched and processes that end take their time
            await asyncio.to_thread(self._board.set, name, active, parameters)
        except FaultError as error:
            code = {403: "faults_disabled", 409: "not_possible"}.get(error.status, "invalid_fault")
            raise ApiError(error.status, str(error), code=code) from None
        return json_response(self._board.describe())
