"""Fetches secrets at the moment of use: from a variable, from a file, or from the engine's runtime folder."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from infradoc.config import Auth
from infradoc.errors import InfradocError

ADMIN_TOKEN_ENV = "INFRADOC_ADMIN_TOKEN"
RUNTIME_DIR_ENV = "INFRADOC_RUNTIME_DIR"


class SecretError(InfradocError):
    """A configured secret cannot be had; names the variable or file, never its content."""


def read_secret(env: str, file: str, what: str) -> str | None:
    """The secret named by `env` or `file`; None when neither is configured. Raises SecretError when it is missing."""
    if env:
        value = os.environ.get(env, "")
        if not value:
            raise SecretError(f"The variable {env}, which holds the {what}, is not set.", f"Export {env} first.")
        return value.strip()
    if file:
        try:
            value = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SecretError(f"The {what} file {file} cannot be read: {error}.") from error
        if not value:
            raise SecretError(f"The {what} file {file} is empty.", "Write the secret into it.")
        return value
    return None


def request_headers(auth: Auth) -> dict[str, str]:
    """The Authorization header for the server's own pages, if credentials are configured."""
    token = _header_secret(auth.bearer_env, auth.bearer_file, "bearer token")
    if token is None:
        token = _header_secret(auth.api_key_env, auth.api_key_file, "API key")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _header_secret(env: str, file: str, what: str) -> str | None:
    """As `read_secret`, for a secret that a header carries. Raises SecretError when no header can.

    Refused here because the HTTP library's own refusal quotes the header, secret and all.
    """
    value = read_secret(env, file, what)
    if value is not None and not (value.isascii() and value.isprintable()):
        where = f"variable {env}" if env else f"file {file}"
        message = f"The {what} in the {where} holds a line break or a character that no HTTP header takes."
        raise SecretError(message, "Keep the bare secret there, on one line.")
    return value


def basic_auth(auth: Auth) -> tuple[str, str] | None:
    """User and password for basic authentication, if configured."""
    if not auth.basic_user:
        return None
    password = read_secret(auth.basic_password_env, auth.basic_password_file, "basic password")
    return auth.basic_user, password or ""


def runtime_dir() -> Path:
    """Where the bundled engine leaves its token file: INFRADOC_RUNTIME_DIR, else the user's runtime folder."""
    override = os.environ.get(RUNTIME_DIR_ENV, "")
    if override:
        return Path(override)
    import platformdirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns when it has to fall back, which is no concern of users
        return platformdirs.user_runtime_path("infradoc")


def admin_token(auth: Auth, port: int | None) -> str | None:
    """The admin token of a bundled engine on `port`: configured, INFRADOC_ADMIN_TOKEN, or the engine's token file.

    None when there is none; raises SecretError when one is configured and cannot be had.
    """
    configured = _header_secret(auth.admin_token_env, auth.admin_token_file, "admin token")
    if configured:
        return configured
    if os.environ.get(ADMIN_TOKEN_ENV, "").strip():
        return _header_secret(ADMIN_TOKEN_ENV, "", "admin token")
    if port is None:
        return None
    path = runtime_dir() / f"engine-{port}.token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
