"""Words of shells, and sizes as containers' options have them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.sources.launch import launch_facts
from infradoc.sources.launch_flags import cores, size_bytes
from infradoc.sources.launch_shell import commands, filled, shell_text, split_command, unwrapped


def facts(command: str) -> dict[str, object]:
    return {fact.name: fact.value for fact in launch_facts(command)}


# A shell's words hold no line ends here: those would need the quotes to go on over lines.
words = st.lists(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=20), min_size=1, max_size=8)


@given(words)
def test_quoted_words_come_back(given_words: list[str]) -> None:
    plain = [word for word in given_words if "\\" not in word and "`" not in word and "^" not in word]
    assert split_command(shlex.join(plain)) == plain


@given(st.text(max_size=300))
def test_no_text_makes_the_shell_raise(text: str) -> None:
    split_command(text)
    list(commands(text))
    launch_facts(f"vllm serve {text}")


@given(
    st.integers(0, 1 << 50), st.sampled_from(["", "b", "k", "kb", "Ki", "m", "Mi", "MB", "g", "Gi", "gb", "T", "Ti"])
)
def test_sizes_count_in_powers_of_two(number: int, unit: str) -> None:
    power = "kmgt".find(unit[:1].lower()) + 1 if unit and unit != "b" else 0
    assert size_bytes(f"{number}{unit}") == pytest.approx(number * 1024**power, rel=1e-12)


@given(st.text(max_size=30))
def test_sizes_and_cores_take_any_text(text: str) -> None:
    size, count = size_bytes(text), cores(text)
    assert (size is None or size >= 0) and (count is None or count > 0)


@given(st.integers(1, 512))
def test_cores_in_every_spelling(count: int) -> None:
    assert cores(str(count)) == cores(f"{count * 1000}m") == cores(f"{count * 100}%") == count


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("srun --gpus 4 -n 1 vllm serve m", "vllm serve m"),
        ("numactl --cpunodebind=0 --membind=0 python3 -m sglang.launch_server --tp 2", "python3 -m"),
        ("uv run --python 3.12 vllm serve m", "vllm serve m"),
        ("docker exec -it box vllm serve m", "vllm serve m"),
        ("ssh host 'vllm serve m'", "vllm serve m"),
        ("kubectl exec pod/x -- llama-server -m a.gguf", "llama-server -m"),
        ("vllm serve m", "vllm serve m"),
    ],
)
def test_what_stands_before_a_program_is_taken_off(command: str, program: str) -> None:
    assert " ".join(unwrapped(shlex.split(command))[1]).startswith(program)


def test_a_script_handed_to_a_shell() -> None:
    assert shell_text(["/bin/bash", "-lc", "vllm serve m"]) == "vllm serve m"
    assert shell_text(["bash", "run.sh", "x"]) is None
    found = {
        fact.name: fact.value
        for fact in launch_facts("docker run img bash -c 'pip list && vllm serve m --max-num-seqs 3'")
    }
    assert found["max_num_seqs"] == 3


def test_variables_with_a_default_and_those_that_nobody_set() -> None:
    assert filled("${LEN:-8192}", {}) == "8192" and filled("$A/$B", {"A": "x"}) == "x/$B"
    found = facts("vllm serve m --max-model-len $LEN --max-num-seqs ${N:-4}")
    assert "max_model_len" not in found and found["max_num_seqs"] == 4


def test_paths_of_windows() -> None:
    found = {
        fact.name: fact.value for fact in launch_facts("C:\\llama\\llama-server.exe -m C:\\m\\q.gguf ^\n -c 4096\n")
    }
    assert found["model_checkpoint"] == "C:/m/q.gguf" and found["max_model_len"] == 4096


def test_limits_of_a_batch_script() -> None:
    text = "#!/bin/bash\n#SBATCH --mem=64G\n#SBATCH --cpus-per-task=16\n#SBATCH --gres=gpu:a100:4\nsrun vllm serve m\n"
    found = facts(text)
    assert found["cgroup.memory_limit_bytes"] == 64 << 30 and found["cpu_limit"] == 16 and found["gpu.visible"] == 4
