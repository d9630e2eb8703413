"""Errors in the OpenAI shape: one clear sentence, never a traceback."""

from __future__ import annotations

import json

from starlette.responses import Response

from infradoc_engine.jobs import EngineFailure
from infradoc_engine.prompts import Refused


class ApiError(Exception):
    """An HTTP error answer; `message` is one sentence for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    def body(self) -> dict[str, object]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return json_response(self.body(), self.status, self.headers)


_RETRY = {"retry-after": "1"}  # seconds

_REFUSALS = {  # reason -> (status, code)
    "length": (400, "context_length_exceeded"),
    "invalid": (400, "invalid_value"),
    "queue_full": (429, "queue_full"),
    "overloaded": (503, "overloaded"),
    "draining": (503, "draining"),
}


def from_refusal(refused: Refused) -> ApiError:
    status, code = _REFUSALS[refused.reason]
    return ApiError(
        status, str(refused), code=code, param=refused.param, headers=_RETRY if status in (429, 503) else None
    )


def from_failure(failure: EngineFailure) -> ApiError:
    """What the client sees when the engine gave its request up."""
    if failure.kind == "length":
        return ApiError(400, failure.message, code="context_length_exceeded", param="prompt")
    if failure.kind == "memory":
        return ApiError(503, failure.message, code="out_of_memory", headers=_RETRY)
    if failure.kind == "shutdown":
        return ApiError(503, failure.message, code="draining", headers=_RETRY)
    return ApiError(500, failure.message, code="engine_error")


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(content), status, headers, media_type="application/json")


def json_bytes(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
