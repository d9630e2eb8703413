"""An account in which what the log printed stands in for what is computed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from infradoc_rules.sizing.account import Account, account
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.setting import Setting

_ODD = 1.5  # times what is computed, either way: then the printed weights are of some other model, or of a part of it


@dataclass(frozen=True, slots=True)
class Printed:
    """Bytes on one GPU, tokens of its KV cache, and the memory share, as a log states them; None: not said."""

    device_bytes: float | None = None
    share: float | None = None
    weights: float | None = None
    activation: float | None = None
    other: float | None = None
    graphs: float | None = None
    kv: float | None = None
    tokens: float | None = None
    needed: float | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Adjusted:
    """An account with its launch. exact: the weights are the printed ones; odd: those are of some other model."""

    setting: Setting
    account: Account
    exact: bool
    odd: bool


def adjusted(model: Model, setting: Setting, printed: Printed) -> Adjusted:
    """The account of the launch that the log is of. Raises SizingError."""
    made = account(model, setting)
    parts = {"weights": printed.weights, "activation": printed.activation, "engine": printed.other}
    parts |= {"graphs": printed.graphs}
    exact = {name: int(value) for name, value in parts.items() if value is not None and value > 0}
    odd = "weights" in exact and not made.weights / _ODD < exact["weights"] < made.weights * _ODD
    made = _with(made, exact)
    each = _bytes_of_token(model, printed)
    if each is not None:
        made = replace(made, kv_per_token=each, needed=max(1, made.needed * each // made.kv_per_token))
    if printed.needed is not None and printed.needed >= 1:
        made = replace(made, needed=int(printed.needed))
    if printed.kv is not None:
        # What is left over or missing is the engine's: then the KV cache comes out as it was printed.
        made = replace(made, engine=made.engine + made.kv - int(printed.kv))
    return Adjusted(setting, made, "weights" in exact, odd)


def under(model: Model, setting: Setting, printed: Printed, changed: Setting) -> Account:
    """The account of a changed launch: what was printed scales as what is computed. Raises SizingError."""
    now, before, after = adjusted(model, setting, printed).account, account(model, setting), account(model, changed)
    scaled = {name: _scaled(name, now, before, after) for name in ("weights", "activation", "graphs", "needed")}
    # A residue that nobody can name stays what it is; what more GPUs take beside it is computed.
    each = max(1, after.kv_per_token * now.kv_per_token // before.kv_per_token)
    return replace(_with(after, scaled | {"engine": now.engine + after.engine - before.engine}), kv_per_token=each)


def _bytes_of_token(model: Model, printed: Printed) -> int | None:
    """What a token takes by the printed cache; None where that is not all in it, as with windowed layers."""
    if not printed.kv or not printed.tokens or printed.kv < printed.tokens or model.windowed_layers:
        return None
    return round(printed.kv / printed.tokens)


def _with(made: Account, parts: Mapping[str, int]) -> Account:
    return replace(
        made,
        weights=parts.get("weights", made.weights),
        activation=parts.get("activation", made.activation),
        engine=parts.get("engine", made.engine),
        graphs=parts.get("graphs", made.graphs),
        needed=parts.get("needed", made.needed),
    )


def _scaled(name: str, now: Account, before: Account, after: Account) -> int:
    computed = getattr(before, name)
    return max(1, getattr(after, name) * getattr(now, name) // computed) if computed else int(getattr(after, name))
