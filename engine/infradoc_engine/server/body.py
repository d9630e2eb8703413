"""Request bodies: read within a bound, parsed and checked, with errors that say where."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from infradoc_engine.requests import ClientGone
from infradoc_engine.server.errors import ApiError
from infradoc_engine.sizes import size_text

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; ApiError 413 as soon as it is known to be longer than `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    except ClientDisconnect:
        raise ClientGone from None
    return b"".join(parts)


def parse_json(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; ApiError 400 with the place of the fault."""
    if not body:
        raise ApiError(400, "The body is empty; send a JSON object.", code="invalid_json")
    try:
        content = json.loads(body.decode())
    except json.JSONDecodeError as error:
        message = f"The body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise ApiError(400, message, code="invalid_json") from None
    except UnicodeDecodeError as error:
        raise ApiError(400, f"The body is not valid UTF-8 (byte {error.start}).", code="invalid_json") from None
    except (RecursionError, ValueError):  # nested a thousand deep; a number of more digits than int takes
        raise ApiError(
            400, "The body is JSON nested too deeply or with a number too long.", code="invalid_json"
        ) from None
    if not isinstance(content, dict):
        raise ApiError(400, f"The body must be a JSON object, not {_kind(content)}.", code="invalid_json")
    return content


def check(model: type[M], content: dict[str, Any]) -> M:
    """`content` as a schema object; ApiError 400 naming the first bad field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise ApiError(400, f"{where}: {_reason(first)}.", code="invalid_value", param=where) from None


def _reason(first: Any) -> str:
    text = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    value = first.get("input")
    if isinstance(value, int | float | bool | str) and first["type"] not in ("missing", "value_error"):
        shown = repr(value)
        return f"{text}, not {shown if len(shown) <= 60 else shown[:57] + '...'}"
    return text


def _kind(content: object) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(content), "a number or a boolean")


def _too_large(limit: int) -> ApiError:
    message = f"The request body is larger than {size_text(limit)}, the most that is taken (--max-body-bytes sets it)."
    return ApiError(413, message, code="body_too_large")
