"""A command line that the server refused: which flag, and how that version of that engine spells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infradoc.report.artefact_words import artefact_words
from infradoc_rules.knobs import SYSTEMS, Knob, knob_table
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.near import slip_of
from infradoc_rules.summaries.start import SERVING
from infradoc_rules.versions import Running

NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tgi": "TGI",
    "llamacpp": "llama.cpp",
    "lmdeploy": "LMDeploy",
    "trtllm": "TensorRT-LLM",
    "ollama": "Ollama",
}
_PROGRAMS = (
    ("sglang", lazy(r"sglang|launch_server|^ServerArgs$")),
    ("vllm", lazy(r"vllm|api_server|EngineArgs$")),
    ("tgi", lazy(r"text-generation|^tgi")),
    ("llamacpp", lazy(r"llama-(?:server|cli)")),
    ("lmdeploy", lazy(r"lmdeploy|^(?:Turbomind|Pytorch)EngineConfig$")),
    ("trtllm", lazy(r"trtllm|^(?:Torch)?LlmArgs$|^KvCacheConfig$|^BuildConfig$")),
    ("ollama", lazy(r"ollama")),
)
# Programs that are run beside a server: what they refuse stops no server.
_CLIENTS = lazy(
    r"bench|client|eval|guidellm|perf|convert|quantiz|download|hf$|huggingface|nvidia-smi|docker|kubectl|curl"
)
_FLAG = lazy(r"--?[A-Za-z][\w.-]*|^\w+$")
_MOST = 3  # flags that are told of


def refusals(events: Sequence[Event]) -> list[Event]:
    """The refused command lines of a server that were not followed by one that served, in the same file."""
    served = {_file(event): event.order for event in events if event.name in SERVING}
    return [
        event
        for event in events
        if event.name == "flag_refused"
        and event.order > served.get(_file(event), -1)
        and not _CLIENTS.search(str(event.fields.get("program") or ""))
    ]


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def refused(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None, lang: str = "en") -> Iterator[str]:
    """A sentence for each flag that stopped the start: what was read, and which spelling that version knows."""
    say = artefact_words(lang)
    told: set[str] = set()
    for event in refusals(events):
        engine = _engine(str(event.fields.get("program") or ""), system)
        running = Running(engine, _text(facts, "target.version"), api=_text(facts, "target.engine_api"))
        for flag in _FLAG.findall(str(event.fields.get("flag") or "")):
            if flag in told or len(told) >= _MOST:
                continue
            told.add(flag)
            key = "refused_value" if event.fields.get("what") == "value" else "refused_flag"
            yield (
                say[key]
                .format(
                    who=_who(engine, running.version, say),
                    flag=flag,
                    source=event.source or "?",
                    hint=_hint(flag, str(event.fields.get("near") or ""), engine, running, key, say),
                )
                .strip()
            )


def _engine(program: str, system: str | None) -> str | None:
    return next((name for name, pattern in _PROGRAMS if program and pattern.search(program)), system)


def _text(facts: Mapping[str, Fact], name: str) -> str | None:
    return str(facts[name].value) if name in facts else None


def _who(engine: str | None, version: str | None, say: Mapping[str, str]) -> str:
    if engine is None:
        return say["refused_by"]
    return f"{NAMES.get(engine, engine)} {version}" if version else NAMES.get(engine, engine)


def _hint(flag: str, near: str, engine: str | None, running: Running, key: str, say: Mapping[str, str]) -> str:
    """What to write instead, as far as it is known."""
    if key == "refused_value" or engine not in SYSTEMS:
        return ""
    knob = _knob(engine, flag)
    if knob is not None:
        own = knob.spellings.get(engine, ())
        best = knob_table().spelling(engine, knob.name, running) if own else None
        best = best.removeprefix("not ") if best is not None else None
        if best is not None and _plain(best) != _plain(flag):
            return say["refused_known"].format(spelling=best)
        if not own:
            others = ", ".join(NAMES[name] for name, names in knob.spellings.items() if _has(names, flag))
            return say["refused_other"].format(others=others or "?", engine=NAMES[engine])
        since, until = running.lasts(flag if flag.startswith("-") else f"--{flag.replace('_', '-')}")
        if until is not None and (running.version is None or running.ended(flag)):
            return say["refused_ended"].format(version=until)
        if since is not None:
            return say["refused_later"].format(version=since)
    if near:
        return say["refused_near"].format(spelling=near)
    return _nearest(flag, engine, running, say) if knob is None else say["refused_help"]


def _knob(engine: str, flag: str) -> Knob | None:
    """The knob that a flag is a spelling of: in this engine, else in another."""
    table = knob_table()
    for system in (engine, *(name for name in SYSTEMS if name != engine)):
        found = table.resolve(system, flag)
        if found is not None:
            return table[found[0]]
    return None


def _nearest(flag: str, engine: str, running: Running, say: Mapping[str, str]) -> str:
    spellings = [
        spelling.removeprefix("not ")
        for knob in knob_table().by_name.values()
        for spelling in knob.spellings.get(engine, ())
    ]
    known = {_plain(spelling): spelling for spelling in spellings if running.has(spelling) is not False}
    meant = slip_of(_plain(flag), known)
    return say["refused_near"].format(spelling=known[meant]) if meant else say["refused_help"]


def _has(names: Sequence[str], flag: str) -> bool:
    return any(_plain(name) == _plain(flag) for name in names)


def _plain(spelling: str) -> str:
    return spelling.removeprefix("not ").lstrip("-").replace("_", "-").lower()
