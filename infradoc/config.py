"""`infradoc.toml`: the targets, where their signals come from, and how to get in.

Read once at start; secrets stay in the environment or in files of their own, and are fetched only when a request is
made, so that no printed or recorded object holds one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from infradoc.errors import InfradocError
from infradoc.paths import why, written_path
from infradoc_rules.near import near

FILE_NAME = "infradoc.toml"
_PARTS = ("alerts", "watch", "tui")  # tables that the part of that name reads itself
_LONGEST_FAULT = 400  # characters
_PROXY = re.compile(r"https?://[^/\s]")  # SOCKS would need another package
_INLINE_SECRETS = {
    "api_key": "api_key",
    "bearer": "bearer",
    "token": "bearer",
    "password": "basic_password",
    "basic_password": "basic_password",
    "admin_token": "admin_token",
    "secret": "bearer",
}


class ConfigError(InfradocError):
    """The configuration cannot be used; names the file, the key and what would be valid."""


@dataclass(frozen=True, slots=True)
class Auth:
    """How to get in. `*_env` names an environment variable, `*_file` a file; nothing here is a secret itself."""

    api_key_env: str = ""
    api_key_file: str = ""
    bearer_env: str = ""
    bearer_file: str = ""
    basic_user: str = ""
    basic_password_env: str = ""
    basic_password_file: str = ""
    admin_token_env: str = ""
    admin_token_file: str = ""
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    proxy: str = ""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What `fix` may do to a target: nothing unless `apply` is true; `knobs` limits it to those named."""

    apply: bool = False
    knobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """One target. `host` is None for "yes if the URL is this machine"; paths are relative to the configuration file.

    gpu: whether to look at the GPUs of this machine, or the indices of those that the server uses; None as for `host`.
    log_command: what prints the server's log and goes on (journalctl -f, docker logs -f, kubectl logs -f), as a list
    of words; it is never run through a shell.
    """

    url: str = ""
    system: str = ""
    host: bool | None = None
    gpu: bool | tuple[int, ...] | None = None
    client: str = ""
    log: str = ""
    log_command: tuple[str, ...] = ()
    launch: str = ""
    auth: Auth = field(default_factory=Auth)
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file. `path` is None when there is no file and everything is default.

    `alerts`, `watch` and `tui` are the tables of those parts as parsed: each part checks its own and reports a fault
    with `error_at`. Paths in them are relative to `folder`.
    """

    targets: Mapping[str, TargetConfig] = field(default_factory=dict)
    path: Path | None = None
    alerts: Mapping[str, Any] = field(default_factory=dict)
    watch: Mapping[str, Any] = field(default_factory=dict)
    tui: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The file's name, for sentences about it; the usual one where there is no file."""
        return self.path.name if self.path else FILE_NAME

    @property
    def folder(self) -> Path:
        """Where relative paths of the file start."""
        return self.path.parent if self.path else Path.cwd()

    def path_at(self, place: str, text: str) -> Path:
        """The path that a key holds, absolute. Raises ConfigError where there can be none."""
        try:
            return written_path(text, self.folder)
        except ValueError as error:
            raise self.error_at(place, f"is no usable path: {error}") from error

    def error_at(self, place: str, what: str, hint: str = "") -> ConfigError:
        """A fault at a dotted key such as "alerts.sinks.ops.url", with file and line when the key is found there."""
        return _fault(self.path, self.lines, place, what, hint)


def find_config(explicit: str | None = None) -> Path | None:
    """The file to read: the one asked for, then INFRADOC_CONFIG, ./infradoc.toml, and the user's own."""
    asked = explicit or os.environ.get("INFRADOC_CONFIG", "")
    if asked:
        return _asked(asked)
    local = Path(FILE_NAME)
    if os.path.isfile(local):  # noqa: PTH113 (false in a folder that may not be searched; Path.is_file raises there)
        return local
    import platformdirs

    user = platformdirs.user_config_path("infradoc") / FILE_NAME
    return user if os.path.isfile(user) else None  # noqa: PTH113 (likewise)


def _asked(text: str) -> Path:
    hint = "Check --config and INFRADOC_CONFIG."
    try:
        path = written_path(text)
        if path.is_file():
            return path
    except (OSError, ValueError) as error:
        raise ConfigError(f"The configuration file {text[:200]} cannot be read: {why(error)}.", hint) from error
    raise ConfigError(f"There is no configuration file {path}.", hint)


def load_config(explicit: str | None = None) -> Config:
    """Read and check the configuration. Raises ConfigError naming file, key, line and the nearest valid key."""
    path = find_config(explicit)
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.", "Fix that line.") from error
    except (OSError, ValueError, RecursionError) as error:  # not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    return _Reader(path, text).config(data)


class _Reader:
    """Turns the parsed file into dataclasses, with the place of a fault in each message."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()

    def config(self, data: dict[str, Any]) -> Config:
        self._known(data, ("targets", *_PARTS), "")
        targets = data.get("targets", {})
        if not isinstance(targets, dict):
            raise self._error("targets", "must be a table of targets, such as [targets.prod]")
        built = {name: self.target(value, f"targets.{name}") for name, value in targets.items()}
        for part in _PARTS:
            if not isinstance(data.get(part, {}), dict):
                raise self._error(part, f"must be a table, such as [{part}]")
        parts = {part: data.get(part, {}) for part in _PARTS}
        return Config(targets=built, path=self.path, lines=tuple(self.lines), **parts)

    def target(self, data: Any, where: str) -> TargetConfig:
        values = self._values(TargetConfig, data, where, nested=("auth", "permissions"))
        raw = data if isinstance(data, dict) else {}
        values["auth"] = Auth(**self._values(Auth, raw.get("auth", {}), f"{where}.auth"))
        permissions = self._values(Permissions, raw.get("permissions", {}), f"{where}.permissions")
        values["permissions"] = Permissions(**permissions)
        if not values.get("url") and not values.get("log") and not values.get("log_command"):
            raise self._error(where, "needs a `url` (the server or its /metrics), a `log` file or a `log_command`")
        if values.get("log") and values.get("log_command"):
            raise self._error(f"{where}.log_command", "stands beside `log`; keep one of them")
        self._check_auth(values["auth"], f"{where}.auth")
        return TargetConfig(**values)

    def _values(self, kind: type[Any], data: Any, where: str, nested: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self._error(where, "must be a table")
        self._known(data, tuple(entry.name for entry in fields(kind)), where)
        hints = get_type_hints(kind)
        return {
            key: self._typed(value, hints[key], f"{where}.{key}") for key, value in data.items() if key not in nested
        }

    def _typed(self, value: Any, hint: Any, where: str) -> Any:
        if hint is str:
            expected, good = "a text", isinstance(value, str)
        elif hint == bool | tuple[int, ...] | None:
            expected = "true, false or a list of GPU indices such as [0, 1]"
            indices = isinstance(value, list) and bool(value) and all(_is_index(item) for item in value)
            good = isinstance(value, bool) or indices
            value = tuple(value) if indices else value
        elif hint == tuple[str, ...]:
            expected = "a list of texts"
            good = isinstance(value, list) and all(isinstance(item, str) for item in value)
            value = tuple(value) if good else value
        else:
            expected, good = "true or false", isinstance(value, bool)
        if not good:
            raise self._error(where, f"must be {expected}, not {value!r}")
        if "\0" in (value if isinstance(value, str) else ""):  # TOML can spell it, no path or header can hold it
            raise self._error(where, "must not hold a NUL character")
        if isinstance(value, str) and where.rsplit(".", 1)[-1] in _PATH_KEYS and value:
            return self._path(value, where)
        return value

    def _path(self, text: str, where: str) -> str:
        try:
            return str(written_path(text, self.path.parent))
        except ValueError as error:
            raise self._error(where, f"is no usable path: {error}") from error

    def _known(self, data: Mapping[str, Any], valid: tuple[str, ...], where: str) -> None:
        for key in data:
            if key in valid:
                continue
            place = f"{where}.{key}" if where else key
            if key in _INLINE_SECRETS:
                name = _INLINE_SECRETS[key]
                hint = f"Use {name}_env (a variable) or {name}_file (a file of mode 0600) under [targets.NAME.auth]."
                raise self._error(place, "secrets are not kept in this file", hint)
            meant = near(key, valid)
            hint = f"Did you mean `{meant}`?" if meant else f"Valid here: {', '.join(valid)}."
            raise self._error(place, "unknown key", hint)

    def _check_auth(self, auth: Auth, where: str) -> None:
        if auth.proxy and "@" in auth.proxy:
            raise self._error(
                f"{where}.proxy", "must not hold a password", "Set HTTPS_PROXY in the environment instead."
            )
        if auth.proxy and not _PROXY.match(auth.proxy):
            raise self._error(f"{where}.proxy", f"must be an http:// or https:// address, not {auth.proxy!r}")
        if auth.client_key_file and not auth.client_cert_file:
            raise self._error(f"{where}.client_key_file", "needs client_cert_file as well")

    def _error(self, place: str, what: str, hint: str = "") -> ConfigError:
        return _fault(self.path, self.lines, place, what, hint)


def _fault(path: Path | None, lines: Sequence[str], place: str, what: str, hint: str) -> ConfigError:
    if len(what) > _LONGEST_FAULT:  # it quotes a value, which somebody may have pasted by mistake
        what = f"{what[: _LONGEST_FAULT // 2]} … {what[-_LONGEST_FAULT // 4 :]}"
    return ConfigError(f"{_position(path, lines, place)}: {place}: {what}.", hint)


def _position(path: Path | None, lines: Sequence[str], place: str) -> str:
    """`file:line` of the key that `place` ends in, looked for from the header of its own table on."""
    above, _, last = place.rpartition(".")
    key = re.escape(last)
    pattern = re.compile(rf'^\s*(?:\[+\s*(?:[\w."-]+\.)?"?{key}"?\s*[].]|"?{key}"?\s*=)')
    found = [number for number, text in enumerate(lines, 1) if pattern.match(text)]
    header = re.compile(rf"^\s*\[+\s*{re.escape(above)}\s*\]+")
    start = next((number for number, text in enumerate(lines, 1) if above and header.match(text)), 0)
    line = next((number for number in found if number > start), found[0] if found else start)
    return f"{path}:{line}" if line else str(path or FILE_NAME)


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_PATH_KEYS = frozenset(
    {
        "client",
        "log",
        "launch",
        "api_key_file",
        "bearer_file",
        "basic_password_file",
        "admin_token_file",
        "ca_file",
        "client_cert_file",
        "client_key_file",
    }
)
