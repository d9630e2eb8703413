"""Advice on a training step that ran out of memory: in the trainer's own words, from what it says of itself."""

from __future__ import annotations

import pytest

from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.catalog import load_catalog
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Fact
from infradoc_rules.patterns import scan
from infradoc_rules.summaries import summarise

ADVISE = next(rule for rule in load_catalog().rules if rule.id == "oom-activation-peak").post_mortem.advise
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 2.00 GiB is free. Including non-PyTorch memory, this process has 77.10 GiB memory in use. Of the "
    "allocated memory 75.00 GiB is allocated by PyTorch, and {held} is reserved by PyTorch but unallocated."
)
STEP = '  File "/v/site-packages/transformers/trainer.py", line 3579, in training_step'


def _facts(*lines: str) -> dict[str, Fact]:
    found = scan(lines)
    return dict(summarise(found.events, dict(found.facts), found.system))


def _advised(*lines: str, frames=(STEP,), held: str = "100.00 MiB", lang: str = "en"):
    whole = (*lines, "Traceback (most recent call last):", *frames, OOM.format(held=held))
    frame = MemoryFrame(0.0, facts=_facts(*whole), system=None)
    return actions_for(ADVISE, Advice(frame, {}, lang))


def test_the_micro_batch_goes_down_and_the_batch_of_a_step_stays() -> None:
    first, *_ = _advised("python train.py --per_device_train_batch_size 8 --gradient_accumulation_steps 4")
    assert first.flag == "--per_device_train_batch_size 2 --gradient_accumulation_steps 16"  # 6 GiB / 4 fit into 2
    assert (first.knob, first.change, first.from_value, first.to_value) == (
        "gradient_accumulation_steps",
        "increase",
        4,
        16,
    )
    assert first.also == (("micro_batch_size", 2),)
    assert "6.0 GiB" in first.why and "2.0 GiB" in first.why and "2 x 16" in first.why


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (
            '{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1}',
            '"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4',
        ),
        ("torchrun pretrain_gpt.py --micro-batch-size 8 --global-batch-size 64", "--micro-batch-size 2"),
        (
            "axolotl train x.yml  # micro_batch_size: 8",
            "micro_batch_size: 2, gradient_accumulation_steps: <4 times as many>",
        ),
    ],
)
def test_each_trainer_is_told_its_own_names(line, flag) -> None:
    frames = ('  File "/home/u/train.py", line 9, in train_step',)
    assert _advised(line, frames=frames)[0].flag == flag


def test_no_knob_of_a_server_is_named() -> None:
    for lines in ((), ("python train.py --per_device_train_batch_size 1 --gradient_checkpointing True",)):
        flags = [action.flag or "" for action in _advised(*lines)]
        assert flags and not any(word in flag for flag in flags for word in ("memory-util", "num-seqs", "batched"))


def test_a_batch_of_one_with_checkpointing_gets_sharding_and_a_smaller_optimizer() -> None:
    actions = _advised(
        "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --gradient_checkpointing True"
        " --model_max_length 8192 --optim adamw_torch"
    )
    assert [action.name for action in actions] == ["split_states", "use_small_optimizer", "shorten_sequences"]
    assert actions[0].to_value == 3 and "8 devices" in actions[0].why
    assert (actions[2].from_value, actions[2].to_value) == (8192, 4096)


def test_states_of_the_optimizer_do_not_shrink_with_the_batch() -> None:
    frames = (STEP, '  File "/v/site-packages/torch/optim/adamw.py", line 148, in _init_group')
    actions = _advised("torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 8", frames=frames)
    assert [action.name for action in actions] == ["split_states", "use_small_optimizer"]
    assert actions[0].to_value == 2


def test_what_is_sharded_is_not_sharded_again() -> None:
    actions = _advised("accelerate launch --num_processes 4 --use_fsdp train.py --per_device_train_batch_size 8")
    assert "split_states" not in [action.name for action in actions]
    assert actions[1].flag.startswith("fsdp_activation_checkpointing: true")


def test_adapters_have_next_to_no_states() -> None:
    line = "trainable params: 40,370,176 || all params: 7,282,102,272 || trainable%: 0.55"
    actions = _advised(line, "--per_device_train_batch_size 1 --gradient_checkpointing True")
    assert "use_small_optimizer" not in [action.name for action in actions]


def test_the_allocator_is_named_where_it_holds_much() -> None:
    assert any(action.name == "set_expandable_segments" for action in _advised(held="4.00 GiB"))
    assert not any(action.name == "set_expandable_segments" for action in _advised(held="100.00 MiB"))


def test_a_served_model_is_no_training_run() -> None:
    lines = ('  File "/v/vllm/worker/model_runner.py", line 9, in execute_model', OOM.format(held="1.00 GiB"))
    assert _facts("Traceback (most recent call last):", *lines)["train.oom"].value is False


def test_all_is_said_in_chinese_as_well() -> None:
    for action in _advised("--per_device_train_batch_size 8 --model_max_length 4096", lang="zh", held="4.00 GiB"):
        assert any("\u4e00" <= char <= "\u9fff" for char in action.why + action.cost)
