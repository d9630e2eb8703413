"""The admin token: from the environment, else generated into a file that only this user can read."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from starlette.requests import Request

from infradoc_engine.server.errors import ApiError

_LOOPBACK = ("127.", "::1", "::ffff:127.")


class AdminToken:
    """Checks requests to /admin. Loopback is no exemption: every process of the host can reach it."""

    def __init__(self, given: str | None, *, remote: bool) -> None:
        self.token = given or secrets.token_urlsafe(32)
        self._generated = given is None
        self._remote = remote
        self.path: Path | None = None

    def write(self, runtime_dir: Path, port: int) -> None:
        """Write a generated token to `<runtime_dir>/engine-<port>.token`, mode 0600; raises OSError."""
        if not self._generated:
            return
        runtime_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = runtime_dir / f"engine-{port}.token"
        path.unlink(missing_ok=True)  # of a server that was killed
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.token + "\n")
        self.path = path

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def check(self, request: Request) -> None:
        """ApiError 401 without the right bearer token, 403 from another host unless that is allowed."""
        host = request.client.host if request.client is not None else ""
        if not self._remote and not host.startswith(_LOOPBACK):
            raise ApiError(
                403, "/admin answers this host only; start with --admin-remote to open it.", code="forbidden"
            )
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), self.token.encode()):
            return
        where = f"the token is in {self.path}" if self.path is not None else "the token is in INFRADOC_ADMIN_TOKEN"
        what = "The bearer token is wrong" if sent else "/admin needs 'Authorization: Bearer <token>'"
        raise ApiError(401, f"{what}; {where}.", code="unauthorized", headers={"www-authenticate": "Bearer"})
