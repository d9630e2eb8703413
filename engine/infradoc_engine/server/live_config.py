"""The knobs while serving: values with origin, one version, a lease for writers, changes all or nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from infradoc_engine.jobs import EngineStopped
from infradoc_engine.knobs import KNOBS, KnobError, KnobValue, find
from infradoc_engine.server.drain import StepRunning
from infradoc_engine.server.errors import ApiError
from infradoc_engine.server.in_force import InForce
from infradoc_engine.server.turns import not_now

Apply = Callable[[KnobValue], Awaitable[KnobValue]]  # returns the value that took effect; raises CannotApply


# (changes, present values, whether nobody asked for the present size of the KV pool, seconds of the drain or None for
# the server's own) -> what took effect, also of knobs that only follow; raises CannotApply with all as before.
ApplyDrained = Callable[
    [Mapping[str, KnobValue], Mapping[str, KnobValue], bool, float | None], Awaitable[dict[str, KnobValue]]
]


class CannotApply(RuntimeError):
    """A value of the right kind that this server cannot take; one sentence. `status`: 409 not now, 422 never."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one writer to change the configuration until `expires` (monotonic seconds)."""

    holder: str
    expires: float


class LiveConfig:
    """Read from every thread; `change` runs on the control loop alone."""

    def __init__(
        self,
        values: Mapping[str, KnobValue],
        origins: Mapping[str, str],
        appliers: Mapping[str, Apply],
        drained: ApplyDrained | None = None,
        in_force: InForce | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._values = dict(values)
        self._origins = dict(origins)
        self._appliers = dict(appliers)
        self._drained = drained
        self._in_force = in_force
        self._clock = clock
        self._lease: Lease | None = None
        self.version = 1

    # --- reading ---

    def value(self, name: str) -> KnobValue:
        return self._values[name]

    def items(self) -> list[tuple[str, KnobValue, str]]:
        """(knob, value, origin) of every knob."""
        return [(name, value, self._origins[name]) for name, value in self._values.items()]

    @property
    def max_model_len(self) -> int:
        return int(self._values["max_model_len"] or 0)

    @property
    def truncation_policy(self) -> str:
        return str(self._values["truncation_policy"])

    @property
    def max_queued_requests(self) -> int | None:
        value = self._values["max_queued_requests"]
        return None if value is None else int(value)

    @property
    def max_num_seqs(self) -> int:
        return int(self._values["max_num_seqs"] or 0)

    def describe(self) -> dict[str, object]:
        """version, lease and knobs as GET /admin/config shows them."""
        lease = self.lease
        shown = None
        if lease is not None:
            shown = {"holder": lease.holder, "expires_in_seconds": round(lease.expires - self._clock(), 3)}
        knobs = {
            name: {
                "value": value,
                "origin": origin,
                "bounds": list(KNOBS[name].bounds),
                "change": KNOBS[name].change,
                "flag": KNOBS[name].flag,
            }
            for name, value, origin in self.items()
        }
        return {"version": self.version, "lease": shown, "knobs": knobs}

    @property
    def lease(self) -> Lease | None:
        if self._lease is not None and self._lease.expires <= self._clock():
            self._lease = None
        return self._lease

    # --- writing ---

    async def change(
        self,
        patch: Mapping[str, object],
        if_match: str | None,
        lease_header: str | None,
        drain_seconds: float | None = None,
    ) -> None:
        """Check everything, then apply: what needs a drain together and first, the rest knob by knob.

        Raises ApiError: 428 no If-Match, 412 another version, 423 leased by another, 422 unknown knob or bad value,
        409 not changeable while serving or not possible now, 503 no step ends or will run. Only the last two may come
        after other knobs of the same patch were applied; the sentence names them. Whatever comes, what is shown then is
        what is in force.
        """
        wanted = self._check_lease(lease_header)
        self._check_version(if_match)
        changes = self._check_values(patch)
        if wanted is not None:
            self._lease = wanted if wanted.expires > self._clock() else None
        done: list[str] = []
        name = None
        try:
            name, together = next(iter(changes), None), self._needing_drain(changes)
            if together and self._drained is not None:
                self._values |= await self._drained(together, dict(self._values), self._pool_is_derived, drain_seconds)
                self._note(together, done)
            for name in [name for name in changes if name not in together]:
                self._values[name] = await self._appliers[name](changes[name])
                self._note([name], done)
        except CannotApply as error:
            code = "not_possible" if error.status == 409 else "invalid_knob"
            applied = f" Already applied: {', '.join(done)}." if done else ""
            raise ApiError(error.status, f"{error}{applied}", code=code, param=name) from None
        except (EngineStopped, StepRunning) as error:
            raise not_now(error, done) from None
        finally:
            self.version += bool(self._take_over() or done)

    def _take_over(self) -> bool:
        """Show what is in force; whether anything beside the wanted changes is other than it was shown."""
        if self._in_force is None:
            return False
        differing = {name: value for name, value in self._in_force(self._values).items() if value != self._values[name]}
        self._values |= differing
        return bool(differing)

    def _note(self, names: Iterable[str], done: list[str]) -> None:
        for name in names:
            self._origins[name] = "api"
            done.append(name)

    @property
    def _pool_is_derived(self) -> bool:
        return self._origins["kv_pool_tokens"] == "default"

    def _needing_drain(self, changes: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        """The changes that are made in one drain; with them, the size of the pool."""
        drained = {name: value for name, value in changes.items() if KNOBS[name].change == "drain"}
        if drained and changes.get("kv_pool_tokens") is not None:
            drained["kv_pool_tokens"] = changes["kv_pool_tokens"]
        return drained

    def _check_lease(self, header: str | None) -> Lease | None:
        current = self.lease
        wanted = None if header is None else self._parse_lease(header)
        if current is not None and (wanted is None or wanted.holder != current.holder):
            seconds = current.expires - self._clock()
            message = f"The configuration is leased by {current.holder!r} for another {seconds:.0f} s; try again then."
            raise ApiError(423, message, code="leased")
        return wanted

    def _parse_lease(self, header: str) -> Lease:
        holder, _, seconds = header.rpartition(";")
        try:
            duration = float(seconds)
            if not holder.strip() or not 0 <= duration <= 3600:
                raise ValueError
        except ValueError:
            message = f"X-Infradoc-Lease cannot be {header[:80]!r}; write it as holder;seconds with 0 to 3600 seconds."
            raise ApiError(422, message, code="invalid_lease") from None
        return Lease(holder.strip(), self._clock() + duration)

    def _check_version(self, if_match: str | None) -> None:
        if if_match is None:
            message = f"PATCH needs the header If-Match with the version you read (now {self.version})."
            raise ApiError(428, message, code="if_match_missing")
        sent = if_match.strip().removeprefix("W/").strip('"')
        if sent not in ("*", str(self.version)):
            message = (
                f"The configuration is at version {self.version}, not {sent[:40]}; read it again before changing it."
            )
            raise ApiError(412, message, code="version_mismatch")

    def _check_values(self, patch: Mapping[str, object]) -> dict[str, KnobValue]:
        """Values that differ from the present ones, in the order of the knob table."""
        checked: dict[str, KnobValue] = {}
        for name, value in patch.items():
            try:
                checked[name] = find(name).check(value)
            except KnobError as error:
                raise ApiError(422, str(error), code="invalid_knob", param=name) from None
        changes = {name: checked[name] for name in KNOBS if name in checked and checked[name] != self._values[name]}
        for name in changes:
            drained = KNOBS[name].change == "drain" and self._drained is not None and changes[name] is not None
            live = KNOBS[name].change == "live" and name in self._appliers
            if not drained and not (live and (changes[name] is not None or name not in _DERIVED_AT_START)):
                if changes[name] is None:
                    message = f"{name} cannot be unset while serving; restart without {KNOBS[name].flag}."
                    raise ApiError(409, message, code="not_live", param=name)
                message = f"{name} cannot change while serving; restart with {KNOBS[name].flag} {checked[name]}."
                raise ApiError(409, message, code="not_live", param=name)
        return dict(sorted(changes.items(), key=lambda item: _RISK_ORDER.get(item[0], 9)))


_DERIVED_AT_START = frozenset({"kv_pool_tokens"})  # unset, it follows from memory that is taken by now

# What can fail comes first, so that nothing else is half done; a smaller pool may be what makes room for the others.
_RISK_ORDER = {
    "kv_pool_tokens": 0,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "swap_space": 2,
    "tokenizer_workers": 3,
}
