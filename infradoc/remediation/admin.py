"""Client of a bundled engine's /admin pages: read the knobs, change one under If-Match and a lease, see requests."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.scheme import wrong_scheme
from infradoc.sources.fetch import make_client
from infradoc_rules.model import Value

TIMEOUT_SECONDS = 90.0  # above the 60 s that the engine itself gives a worker to start, and a drain with a rebuild
DRAIN_SECONDS = 10  # sent with each change, so that a server's own longer patience cannot outlast the timeout
LEASE_SECONDS = 120
# Between the tries of a question whose connection broke: an engine short of memory or just restarting drops some.
RETRY_SECONDS = (0.2, 1.0)
_NOT_BEGUN = ("step_running", "change_under_way")


class AdminError(InfradocError):
    """The engine refused or could not be asked."""


class AdminLost(AdminError):
    """No answer came, or none that can be read: what was asked for may have happened, or may yet."""


class AdminBusy(AdminError):
    """The engine cannot do it now (409, or 503 before it began); it may a moment later. Nothing was changed."""


class AdminConflict(AdminError):
    """Somebody else changed the configuration, or holds the lease: nothing was changed by us."""


@dataclass(frozen=True, slots=True)
class KnobState:
    """One knob of a running engine. `change` is live, drain or restart; `bounds` are [low, high] or the choices."""

    name: str
    value: Value | None
    origin: str
    bounds: tuple[Value, ...]
    change: str
    flag: str


@dataclass(frozen=True, slots=True)
class EngineState:
    """The configuration at one version."""

    version: int
    engine: str
    knobs: Mapping[str, KnobState]
    lease: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests that the engine has not finished, by id with the time of receipt; `now` is the engine's Unix time."""

    now: float
    received: Mapping[str, float]


class AdminClient:
    """Talks to one engine. Close it, or use it in a `with` statement."""

    def __init__(self, url: str, token: str | None, auth: Auth | None = None) -> None:
        """`auth` names the certificate authority, the client certificate and the proxy on the way, as for watching.

        Raises FetchError when one of their files cannot be used.
        """
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        options: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": TIMEOUT_SECONDS}
        self._http = make_client(self.url, auth or Auth(), **options)
        self.holder = f"infradoc-{os.getpid()}"

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def config(self) -> EngineState:
        """The knobs and their version. Raises AdminError."""
        return self._state(self._ask("GET", "/admin/config"))

    def set(self, knob: str, value: Value | None, version: int) -> EngineState:
        """Change one knob; see `set_all`."""
        return self.set_all({knob: value}, version)

    def set_all(self, values: Mapping[str, Value | None], version: int) -> EngineState:
        """Change knobs in one request if the configuration is still at `version`; returns the new state.

        The answer comes when the change is in force, after a drain where one is needed. Raises AdminConflict (412,
        423), AdminBusy (409), AdminError for a value that is refused, and AdminLost when no answer came: the change may
        then have happened, or be under way.
        """
        headers = {"If-Match": str(version), "X-Infradoc-Lease": f"{self.holder};{LEASE_SECONDS}"}
        headers["X-Infradoc-Drain-Seconds"] = str(DRAIN_SECONDS)
        return self._state(self._ask("PATCH", "/admin/config", headers=headers, json=dict(values)))

    def wait_for_turn(self, *, keep_lease: bool = False) -> None:
        """Return when no change is under way any more: the engine makes one at a time, and an empty one waits its turn.

        So a configuration that is read afterwards is final, whatever became of an earlier request. Raises AdminError.
        """
        headers = {"If-Match": "*", "X-Infradoc-Lease": f"{self.holder};{LEASE_SECONDS if keep_lease else 0}"}
        try:
            self._ask("PATCH", "/admin/config", headers=headers, json={})
        except AdminConflict:  # somebody else has the lease, so no change of ours is under way
            return

    def call(self, path: str) -> dict[str, Any]:
        """Have the engine do something once (`/admin/defragment`); returns what it tells.

        Raises AdminLost when no answer came, AdminError when the engine refuses.
        """
        data = self._ask("POST", path, json={})
        if not isinstance(data, dict):
            raise AdminError(f"{self.url}{path} does not have the expected form.")
        return {str(name): value for name, value in data.items() if not isinstance(value, dict)}

    def switch_fault(self, name: str, parameters: Mapping[str, int]) -> None:
        """Switch a fault on; the engine must have been started with --enable-faults. Raises AdminError."""
        self._ask("POST", "/admin/faults", json={"name": name, "active": True, "parameters": dict(parameters)})

    def release(self) -> None:
        """Give the lease back, so that other writers need not wait for its end. Raises AdminError."""
        state = self.config()
        if state.lease is not None and state.lease.get("holder") == self.holder:
            headers = {"If-Match": str(state.version), "X-Infradoc-Lease": f"{self.holder};0"}
            self._ask("PATCH", "/admin/config", headers=headers, json={})

    def in_flight(self) -> InFlight:
        """Requests being worked on. Raises AdminError."""
        data = self._ask("GET", "/admin/requests")
        try:
            unfinished = [row for row in data["requests"] if row["state"] != "finished"]
            return InFlight(float(data["now"]), {str(row["id"]): float(row["received"]) for row in unfinished})
        except (KeyError, TypeError, ValueError) as error:
            raise AdminError(f"{self.url}/admin/requests does not have the expected form.") from error

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            response = self._send(method, path, **more)
        except httpx.TimeoutException as error:
            raise AdminLost(
                f"{self.url}{path} gave no answer in {TIMEOUT_SECONDS:g} s.", "Is the engine stuck?"
            ) from error
        except httpx.HTTPError as error:
            if (other := wrong_scheme(self.url)) is not None:
                raise AdminLost(*other) from error
            raise AdminLost(f"No connection to {self.url}{path}: {error}.", "Is the engine running there?") from error
        if response.status_code != 200:
            raise refusal(f"{self.url}{path}", response)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise AdminLost(f"{self.url}{path} did not answer with JSON.", "Is this a bundled engine?") from error

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One answer; what only reads is asked again when its connection breaks. Raises httpx.HTTPError."""
        for pause in RETRY_SECONDS if method == "GET" else ():
            try:
                return self._http.request(method, path, **more)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                time.sleep(pause)
        return self._http.request(method, path, **more)

    def _state(self, data: Any) -> EngineState:
        try:
            knobs = {name: knob_state(name, row) for name, row in data["knobs"].items()}
            return EngineState(int(data["version"]), str(data["engine"]), knobs, data.get("lease"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AdminError(f"{self.url}/admin/config does not have the expected form.") from error


def knob_state(name: str, row: Mapping[str, Any]) -> KnobState:
    """One knob of the answer."""
    return KnobState(name, row["value"], str(row["origin"]), tuple(row["bounds"]), str(row["change"]), str(row["flag"]))


def refusal(where: str, response: httpx.Response) -> AdminError:
    """What an answer other than 200 means, with the engine's own sentence where it gives one."""
    said = sentence(response)
    if response.status_code in (401, 403):
        hint = "Set INFRADOC_ADMIN_TOKEN, or admin_token_file in infradoc.toml."
        return AdminError(f"{where} answered {response.status_code}: the admin token is missing or wrong.", hint)
    if response.status_code == 412:
        return AdminConflict(
            f"{where}: the configuration was changed by somebody else meanwhile.", "Run the command again."
        )
    if response.status_code == 423:
        return AdminConflict(f"{where}: another writer holds the lease. {said}".strip(), "Wait until it is over.")
    if response.status_code == 404:
        return AdminError(f"{where} does not exist.", "Only the bundled engine can be changed while it runs.")
    busy = response.status_code == 409 or (response.status_code == 503 and _never_began(response, said))
    kind = AdminBusy if busy else AdminLost if response.status_code >= 500 else AdminError
    return kind(f"{where} answered {response.status_code}: {said or 'no reason given.'}")


def _never_began(response: httpx.Response, said: str) -> bool:
    """Whether a 503 came before anything was changed: what was cut off in the middle says "Already applied"."""
    return _error_of(response).get("code") in _NOT_BEGUN and "Already applied" not in said


def _error_of(response: httpx.Response) -> Mapping[str, Any]:
    try:
        data = response.json()
    except (ValueError, RecursionError):
        return {}
    error = data.get("error") if isinstance(data, dict) else None
    return error if isinstance(error, dict) else {}


def sentence(response: httpx.Response) -> str:
    """The engine's reason: `error.message`, `error` or `detail` of a JSON answer."""
    try:
        data = response.json()
    except (ValueError, RecursionError):
        return ""
    found = data.get("error") or data.get("detail") or data.get("message") if isinstance(data, dict) else None
    if isinstance(found, dict):
        found = found.get("message")
    return str(found)[:400] if found else ""
