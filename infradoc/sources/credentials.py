"""Fetches secrets at the moment of use: from a variable, from a file, or from the engine's runtime folder."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.small_file import read_small

ADMIN_TOKEN_ENV = "INFRADOC_ADMIN_TOKEN"
RUNTIME_DIR_ENV = "INFRADOC_RUNTIME_DIR"


class SecretError(InfradocError):
    """A configured secret cannot be had; names the variable or file, never its content."""


def read_secret(env: str, file: str, what: str) -> str | None:
    """The secret named by `env` or `file`; None when neither is configured. Raises SecretError when it is missing."""
    if env:
        value = os.environ.get(env, "")
        if not value:
            raise SecretError(f"The variable {env}, which holds the {what}, is not set.", "Export it first.")
        return value.strip()
    if file:
        try:
            value = read_small(Path(file)).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise SecretError(f"The {what} file {file} cannot be read: {reason}.", "Check its path.") from error
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


def admin_token(auth: Auth, port: int | None, *, asked: bool = False) -> str | None:
    """The admin token of a bundled engine: configured, INFRADOC_ADMIN_TOKEN, or the engine's token file.

    port: of an engine on this machine's loopback; None for one elsewhere, which no token file here belongs to. asked:
    whether the user named this server, in infradoc.toml or as what to act on. None when there is no token for it;
    raises SecretError when one is configured and cannot be had.
    """
    configured = _header_secret(auth.admin_token_env, auth.admin_token_file, "admin token")
    if configured:
        return configured
    # Whatever answers with a metrics page like ours would be given the token, and could then change the real engine: so
    # the environment's token, which names no server, goes to this machine and to where the user said it belongs.
    if (port is not None or asked) and os.environ.get(ADMIN_TOKEN_ENV, "").strip():
        return _header_secret(ADMIN_TOKEN_ENV, "", "admin token")
    if port is None:
        return None
    path = runtime_dir() / f"engine-{port}.token"
    try:
        return read_small(path).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
