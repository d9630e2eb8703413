"""An out of memory of a training run: where in a step it came, in which trainer, and what a step of it holds.

Facts: train.oom (the refused allocation was a training step's); where it was, or a trainer loaded its model,
train.oom_place ("forward", "backward", "optimizer", "step" or "load"), train.tool, micro_batch_size?, zero_stage?,
gradient_checkpointing?.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

# Functions of trainers, of the backward pass and of optimizers: none of them runs while a model is served.
_STEPS = frozenset(
    {
        "training_step",
        "train_step",
        "_inner_training_loop",
        "inner_training_loop",
        "compute_loss",
        "forward_backward_step",
        "forward_backward_func",
        "train_batch",
        "train_epoch",
        "train_one_epoch",
        "optimizer_step",
        "training_epoch_loop",
    }
)
_BACKWARD = frozenset({"backward", "_engine_run_backward", "run_backward", "loss_backward", "backward_step"})
_OPTIMIZER = frozenset(
    {"optimizer_step", "_optimizer_step", "_init_group", "_multi_tensor_adamw", "_multi_tensor_adam", "adamw"}
)
_OPTIMIZER_FILES = lazy(r"/(?:optim|optimizer|optimizers)/|/(?:adamw?|zero/stage\w*|fused_adam)\.py$")
_TRAINER_FILES = lazy(
    r"(?i)(?:^|[/\\])(?:[\w-]*train(?:er|ing)?[\w-]*|finetune\w*|sft\w*)\.py$|/megatron/|/deepspeed/runtime/"
)
_TOOLS = (
    ("megatron", "megatron"),
    ("pretrain_", "megatron"),
    ("axolotl", "axolotl"),
    ("torchtune", "torchtune"),
    ("tune run", "torchtune"),
    ("lightning", "lightning"),
    ("llama", "transformers"),
    ("swift", "transformers"),
    ("unsloth", "transformers"),
)


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """What the module says, where any allocation was refused."""
    first = next((event for event in events if event.name == "cuda_oom"), None)
    if first is None:
        return
    near = [event for event in events if event.name == "traceback" and event.source == first.source]
    words = {word for event in (first, *near) for word in str(event.fields.get("functions", "")).split()}
    file = next((str(event.fields.get("file", "")) for event in near), "")
    own = words & (_STEPS | _BACKWARD | _OPTIMIZER) or _OPTIMIZER_FILES.search(file)
    trained = bool(own) or (system is None and _runs_a_trainer(first, events, file))
    yield Fact("train.oom", trained, "derived", first.source)
    loads = not trained and system is None and first.phase == "load_weights" and _names_a_trainer(facts, file)
    if trained or loads:
        yield Fact("train.oom_place", "load" if loads else _place(words, file), "derived", first.source)
        yield Fact("train.tool", _tool(facts, file), "derived")
        yield from _settings(events, facts)


def _runs_a_trainer(first: Event, events: Sequence[Event], file: str) -> bool:
    """Whether steps were logged before, or the file that asked is a training script; what loads weights is no step."""
    if first.phase == "load_weights":
        return False
    stepped = any(event.name == "train_step" and event.order < first.order for event in events)
    return stepped or bool(_TRAINER_FILES.search(file))


def _names_a_trainer(facts: Mapping[str, Fact], file: str) -> bool:
    named = any(name in facts for name in ("train.kit", "train.kit_hf", "train.kit_ds"))
    return named or bool(_TRAINER_FILES.search(file))


def _place(words: set[str], file: str) -> str:
    if words & _OPTIMIZER or _OPTIMIZER_FILES.search(file):
        return "optimizer"
    if words & _BACKWARD:
        return "backward"
    return "forward" if words & {"compute_loss", "forward"} else "step"


def _tool(facts: Mapping[str, Fact], file: str) -> str:
    """Whose settings the run has: "transformers" for its Trainer and all that takes its arguments, or "torch"."""
    text = f"{_value(facts, 'train.kit') or ''} {file}".lower()
    named = next((tool for word, tool in _TOOLS if word in text), None)
    if named is not None:
        return named
    if "train.kit_hf" in facts or "transformers/trainer.py" in text or "trl/" in text:
        return "transformers"
    return "deepspeed" if "train.kit_ds" in facts or "deepspeed/" in text else "torch"


def _settings(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    if "train.fsdp" in facts:
        yield Fact("zero_stage", 3, "derived", facts["train.fsdp"].source)
    for name, field in (("micro_batch_size", "batch"), ("zero_stage", "stage")):
        said = [event for event in events if event.name == "train_config" and field in event.fields]
        if said:
            yield Fact(name, said[-1].fields[field], "derived", said[-1].source)
    said_on = _value(facts, "train.recompute")
    if said_on is not None:
        yield Fact("gradient_checkpointing", str(said_on).lower() == "true", "derived")
    elif "train.recompute_flag" in facts:
        yield Fact("gradient_checkpointing", True, "derived")


def _value(facts: Mapping[str, Fact], name: str) -> Value | None:
    return facts[name].value if name in facts else None
