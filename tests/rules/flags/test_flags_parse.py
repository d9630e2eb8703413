"""Every knob in every direction, as each known version of each engine spells it, against that version's arguments."""

from __future__ import annotations

import pytest

from infradoc_rules.knobs import knob_table
from infradoc_rules.versions import Running

TEXTS = {  # values of knobs that take words, where an engine has words of its own
    "kv_cache_dtype": {"llamacpp": "q8_0", "ollama": "q8_0", "lmdeploy": "8", "tgi": "fp8_e5m2"},
    "scheduling_policy": {"sglang": "lpm"},
    "truncation_policy": {"sglang": "reject"},
}
ENGINES = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama")


def _values(knob, engine):
    """What an action may set the knob to: nothing known, on and off, or a number and a word."""
    if knob.values.startswith("enable | disable"):
        return (True, False)
    if knob.unit is None:
        return (TEXTS.get(knob.name, {}).get(engine, "auto"),)
    return (8, 8 << 30) if knob.unit == "bytes" else (0.5,) if knob.unit == "ratio" else (8,)


def test_there_are_at_least_six_versions_of_each_engine(argument_lists):
    counted = {engine: len(argument_lists.versions(engine)) for engine in ENGINES}
    assert all(count >= 6 for engine, count in counted.items() if engine != "trtllm"), counted
    assert counted["trtllm"] >= 4  # releases between them were not to be had


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_that_is_rendered_is_taken_by_that_version(engine, argument_lists):
    wrong, rendered = [], 0
    for version in argument_lists.versions(engine):
        for knob in knob_table().by_name.values():
            if not knob.spellings.get(engine):
                continue
            for value in (None, *_values(knob, engine)):
                flag = knob_table().flag(engine, knob.name, value, Running(engine, version))
                rendered += flag is not None
                fault = None if flag is None else argument_lists.fault(engine, version, flag, bare=value is None)
                if fault:
                    wrong.append(f"{version} {knob.name} {value!r}: {flag}: {fault}")
    assert not wrong, "\n".join(wrong)
    assert rendered > 40


@pytest.mark.parametrize("engine", ENGINES)
def test_a_flag_that_the_version_has_is_found(engine, argument_lists):
    """The other way round: no knob is called missing while the version's list holds one of its names."""
    missed = []
    for version in argument_lists.versions(engine):
        running = Running(engine, version)
        for knob in knob_table().by_name.values():
            names = [name.removeprefix("not ") for name in knob.spellings.get(engine, ())]
            there = [name for name in names if argument_lists.takes(engine, version, name)]
            if there and running.best(knob.spellings[engine]) is None:
                missed.append((version, knob.name, tuple(there)))
    unread = {knob for _, knob, _ in missed} - WITHOUT_EFFECT.get(engine, set())
    assert not unread, missed


# Names that a parser still takes in versions where they do nothing, or are refused once their value is looked at.
WITHOUT_EFFECT = {
    "vllm": {"swap_space", "max_num_partial_prefills", "max_long_partial_prefills"},
}
