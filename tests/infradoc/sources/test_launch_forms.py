"""Launches that are no shell command: Python calls, systemd units, Dockerfiles, Modelfiles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infradoc.sources.launch_python import code_facts, code_system
from infradoc.sources.launch_units import dockerfile_facts, modelfile_facts, unit_facts
from infradoc_rules.model import Fact, Value


def _values(facts: list[Fact]) -> dict[str, Value]:
    return {fact.name: fact.value for fact in facts}


def test_a_python_call_gives_its_keywords_as_knobs() -> None:
    code = 'llm = LLM(\n    model="org/some-7b",\n    max_model_len=8 * 1024,\n    gpu_memory_utilization=0.85,\n)'
    facts = _values(code_facts(code, "run.py"))
    assert facts["target.system"] == "vllm" and facts["model.name"] == "org/some-7b"
    assert facts["max_model_len"] == 8192 and facts["gpu_memory_utilization"] == 0.85


def test_code_is_parsed_and_never_run() -> None:
    assert "max_model_len" not in _values(code_facts('LLM(model="m", max_model_len=__import__("os").getpid())', "x.py"))


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_of_code_raise(text: str) -> None:
    code_facts("LLM(" + text, "x.py")
    code_system(text)


def test_a_systemd_unit() -> None:
    unit = (
        "[Service]\nEnvironment=OMP_NUM_THREADS=4\n"
        "ExecStart=/usr/bin/vllm serve org/some-7b \\\n  --max-model-len 4096 \\\n  --enforce-eager\n"
    )
    facts = _values(unit_facts(unit, "vllm.service"))
    assert facts["max_model_len"] == 4096 and facts["enforce_eager"] is True and facts["omp_num_threads"] == 4


def test_a_dockerfile_in_both_forms() -> None:
    for command in ('CMD ["vllm", "serve", "org/m", "--max-num-seqs", "32"]', "CMD vllm serve org/m --max-num-seqs 32"):
        assert (
            _values(dockerfile_facts(f"FROM vllm/vllm-openai:v0.9.1\n{command}\n", "Dockerfile"))["max_num_seqs"] == 32
        )


def test_a_modelfile() -> None:
    facts = _values(modelfile_facts("FROM llama3\nPARAMETER num_ctx 4096\n", "Modelfile"))
    assert facts["max_model_len"] == 4096
