"""The format of a rule file. Errors name file, key, line and the nearest valid name."""

from __future__ import annotations

import difflib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from yaml import YAMLError

from infradoc_rules.model import Severity
from infradoc_rules.yaml_file import Key, Marked, YamlError, load_marked, load_plain

ID_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Language = Literal["en", "zh"]


class RuleError(ValueError):
    """A rule file that does not follow the format. `problems` holds one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Text(_Part):
    """One text in both languages. `{value}`, thresholds and `values` names are filled in, `{value:.0%}` formats."""

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)

    def get(self, lang: str) -> str:
        """The text in `lang`, English when it is not Chinese."""
        return self.zh if lang == "zh" else self.en


class Condition(_Part):
    """One item of a `when`: PromQL over series (`expr`) or a match over events and facts (`match`)."""

    expr: str | None = None
    match: str | None = None
    text: Text | None = None
    signal: str | None = None  # canonical name that the value belongs to
    unit: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Condition:
        if (self.expr is None) == (self.match is None):
            raise ValueError("needs exactly one of expr and match")
        return self


class Support(Condition):
    """A sign that moves the log odds by `weight`: up under `supports`, down under `against`."""

    weight: float
    text: Text


def _as_expr(item: Any) -> Any:
    return {"expr": item} if isinstance(item, str) else item


def _as_match(item: Any) -> Any:
    return {"match": item} if isinstance(item, str) else item


Expression = Annotated[Condition, BeforeValidator(_as_expr)]
Match = Annotated[Condition, BeforeValidator(_as_match)]


class LiveBranch(_Part):
    """One complete way to see the fault: every item must hold, on one engine rank."""

    when: tuple[Expression, ...] = Field(min_length=1)
    name: str = ""


class Live(_Part):
    """Conditions over series. `any` lists branches of which each alone can see the fault; `when` is a single branch.

    for: sampling periods that the condition must go on beyond the first. keep: periods without it before the rule
    resolves. Every selector of a branch needs data, but for what stands behind `unless`.
    """

    when: tuple[Expression, ...] = ()
    any: tuple[LiveBranch, ...] = ()
    for_periods: int = Field(default=2, ge=0, le=1000, alias="for")
    keep: int = Field(default=2, ge=0, le=1000)

    @model_validator(mode="after")
    def _one_form(self) -> Live:
        if bool(self.when) == bool(self.any):
            raise ValueError("needs exactly one of when and any")
        return self

    @property
    def branches(self) -> tuple[LiveBranch, ...]:
        """The branches, whichever way they are written."""
        return self.any or (LiveBranch(when=self.when),)


class MatchBranch(_Part):
    """One complete way to see the fault in events and facts."""

    when: tuple[Match, ...] = Field(min_length=1)
    name: str = ""


class PostMortem(_Part):
    """Conditions over events and facts, for logs and where the live signals are missing.

    What holds only here replaces the rule's own: severity (somebody asks because something is wrong), cause and its
    values (match texts), advise.
    """

    when: tuple[Match, ...] = ()
    any: tuple[MatchBranch, ...] = ()
    severity: Severity | None = None
    cause: Text | None = None
    values: dict[str, str] = Field(default_factory=dict)  # name -> match text, for the cause
    advise: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_form(self) -> PostMortem:
        if bool(self.when) == bool(self.any):
            raise ValueError("needs exactly one of when and any")
        return self

    @property
    def branches(self) -> tuple[MatchBranch, ...]:
        """The branches, whichever way they are written."""
        return self.any or (MatchBranch(when=self.when),)


class VerifyMetric(_Part):
    """What must be better after a fix: after / before at most or at least this ratio.

    quantile: of a histogram (or of client measurements); without it the counter's rate or the gauge's mean.
    class: only requests of this client class.
    """

    signal: str
    quantile: float | None = Field(default=None, gt=0, lt=1)
    at_most: float | None = Field(default=None, gt=0)
    at_least: float | None = Field(default=None, gt=0)
    request_class: str | None = Field(default=None, alias="class")

    @model_validator(mode="after")
    def _one_bound(self) -> VerifyMetric:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("needs exactly one of at_most and at_least")
        return self


class Verify(_Part):
    """How a fix is judged, where it differs from the defaults. Times in seconds.

    errors_at_most: share of failed requests that is allowed after the fix; without it errors must not rise.
    cut_at_most: share of answered prompts that may still be cut after the fix; without it nobody asks.
    """

    metrics: tuple[VerifyMetric, ...] = ()
    throughput_at_least: float = Field(default=0.95, gt=0)
    errors_at_most: float | None = Field(default=None, ge=0, lt=1)
    cut_at_most: float | None = Field(default=None, ge=0, lt=1)
    baseline: float = Field(default=15.0, gt=0)
    hold: float = Field(default=20.0, gt=0)


class Rule(_Part):
    """One rule file."""

    schema_version: Literal[1] = Field(alias="schema")
    id: str = Field(pattern=ID_PATTERN)
    title: Text
    severity: Severity
    maturity: Literal["experimental", "stable"] = "experimental"
    essential: bool = False  # a target is not called healthy while this rule cannot be judged
    thresholds: dict[str, float] = Field(default_factory=dict)
    live: Live | None = None
    post_mortem: PostMortem | None = None
    prior: float = 0.0
    supports: tuple[Support, ...] = ()
    against: tuple[Support, ...] = ()
    explains: tuple[str, ...] = ()
    advise: tuple[str, ...] = ()
    values: dict[str, str] = Field(default_factory=dict)  # name -> PromQL, for the texts
    cause: Text
    impact: Text
    falsifier: Text
    set_aside: Text | None = None  # what it would take, where it was considered and is not what was found
    false_alarms: tuple[str, ...] = ()
    verify: Verify = Verify()

    @property
    def advised(self) -> tuple[str, ...]:
        """All sizing functions, whichever part names them."""
        past = self.post_mortem.advise if self.post_mortem is not None else ()
        return tuple(dict.fromkeys((*self.advise, *past)))

    def promql(self) -> tuple[str, ...]:
        """The text of every PromQL expression in the rule."""
        items: list[Condition] = [*self.supports, *self.against]
        if self.live is not None:
            items += [item for branch in self.live.branches for item in branch.when]
        return (*(item.expr for item in items if item.expr is not None), *self.values.values())

    @model_validator(mode="after")
    def _has_conditions(self) -> Rule:
        if self.live is None and self.post_mortem is None:
            raise ValueError("needs live or post_mortem conditions")
        return self


def load_rule(path: Path) -> tuple[Rule, Marked]:
    """The rule in `path` with its line marks. Raises RuleError with one sentence per problem."""
    try:
        marked = load_marked(path)
    except YamlError as error:
        raise RuleError([str(error)]) from error
    if not isinstance(marked.data, dict):
        raise RuleError([f"{path}, line 1: a rule file is a mapping that starts with `schema: 1`"])
    try:
        return Rule.model_validate(marked.data), marked
    except ValidationError as error:
        raise RuleError([_sentence(marked, detail) for detail in error.errors()]) from error


def load_sound_rule(path: Path) -> Rule:
    """The rule of a packaged file, quickly; one that turns out not to be sound is read again with line marks.

    Raises RuleError as `load_rule` does.
    """
    try:
        return Rule.model_validate(load_plain(path))
    except (ValidationError, ValueError, YAMLError):
        return load_rule(path)[0]


def _sentence(marked: Marked, detail: Any) -> str:
    path = tuple(part for part in detail["loc"] if not _is_model_tag(part))
    where = f"{marked.name}, line {marked.line(path)}: {_dotted(path) or 'the rule'}"
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _keys_at(path[:-1]), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(_keys_at(path[:-1]))}"
        return f"{where} is no key of this format{hint}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}"


def _is_model_tag(part: Key) -> bool:
    return isinstance(part, str) and part.startswith("function-")


def _dotted(path: tuple[Key, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _keys_at(path: tuple[Key, ...]) -> list[str]:
    """Valid keys of the mapping at `path`."""
    model: type[BaseModel] = Rule
    for part in path:
        if isinstance(part, int):
            continue
        names = {info.alias or name: info for name, info in model.model_fields.items()}
        inner = _model_in(names[part].annotation) if part in names else None
        if inner is None:
            return []
        model = inner
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (tuple, typing.Union, types.UnionType, Annotated):
        found = (_model_in(argument) for argument in typing.get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None
