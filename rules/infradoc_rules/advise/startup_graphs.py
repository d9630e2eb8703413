"""Starts that break off while CUDA graphs are captured."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import Present, default, older_than
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.model import Action, Event

_V0_SEQS = 256  # vLLM's default of max_num_seqs outside the largest devices
_PREFILL_TOKENS = 1024


def lower_seqs_for_graphs(advice: Advice) -> Action | None:
    """Half the requests at once: fewer batch sizes are captured (vLLM V0 and SGLang capture up to this number)."""
    known = present_of(advice, "max_num_seqs")
    present = known.value or (_V0_SEQS if advice.system == "vllm" else None)
    if present is None:
        largest = advice.last("graph_capture", "largest_batch") or default(advice, "cuda_graph_max_bs") or 128
        return _lower_seqs_of_graphs(advice, Present(None), max(int(largest) // 2, 1))
    target = int(present) // 2 if present and present >= 2 else None
    if present is not None and target is None:
        return None
    return _lower_seqs_of_graphs(advice, Present(present, known.note), target)


def _lower_seqs_of_graphs(advice: Advice, known: Present, target: int | None) -> Action:
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(known.value) if known.value else None,
        to_value=target,
        why=advice.say("graphs are captured for batches up to this size", "图会捕获到这个批量为止") + known.note,
        cost=advice.say("concurrency is the loser", "受损的是并发"),
    )


def disable_cuda_graphs(advice: Advice) -> Action | None:
    """No graphs at all. None where they are off already."""
    if advice.fact("enforce_eager") is True or advice.system in ("llamacpp", "ollama", "tgi", "trtllm"):
        return None
    return advice.action(
        "disable_cuda_graphs",
        from_value=False,
        to_value=True,
        why=advice.say("without graphs nothing has to be captured", "不用图就不需要捕获"),
        cost=advice.say(
            "decode gets slower, small models and small batches most: their callers are the losers",
            "decode 变慢，小模型和小批量最明显：受损的是其调用方",
        ),
    )


def lower_graph_batch(advice: Advice) -> Action | None:
    """Fewer captured sizes."""
    if advice.fact("enforce_eager") is True or advice.system in ("llamacpp", "ollama", "lmdeploy"):
        return None
    known = _captured(advice)
    present = known.value
    target = max(int(present) // 2, 1) if present else 64
    flag = None
    if advice.system == "vllm" and older_than(advice, 0, 11, 1):
        if older_than(advice, 0, 8, 5):
            return None  # no flag of its own yet: the sizes follow max_num_seqs
        flag = f"--cuda-graph-sizes {target}"
    return advice.action(
        "lower_cuda_graph_max_bs",
        from_value=int(present) if present else None,
        to_value=target,
        flag=flag,
        why=advice.say("each captured size takes memory of its own", "每个捕获的批量都要占用显存") + known.note,
        cost=advice.say("larger batches run without graphs: throughput is the loser", "更大的批量不走图：受损的是吞吐"),
    )


def _captured(advice: Advice) -> Present:
    """The largest captured batch; vLLM captures no more than twice the requests that it admits."""
    known = present_of(advice, "cuda_graph_max_bs")
    seqs = advice.number("max_num_seqs") or default(advice, "max_num_seqs")
    if not known.note or advice.system != "vllm" or not seqs or not known.value or 2 * seqs >= known.value:
        return known
    return Present(2 * seqs)


def disable_prefill_graphs(advice: Advice) -> Action | None:
    """Graphs for decode alone (SGLang), where prefill graphs were being captured."""
    captures = [event for event in advice.frame.events if event.name == "graph_capture"]
    named = any("prefill" in str(event.text or "").lower() or _is_prefill(event) for event in captures)
    if advice.system != "sglang" or not named:
        return None
    return advice.action(
        "disable_prefill_graphs",
        to_value=False,
        flag="--disable-prefill-cuda-graph",
        why=advice.say("graphs of prefill chunks take the most memory", "prefill 分块的图占用显存最多"),
        cost=advice.say("short prompts are the losers: their prefill gets slower", "受损的是短提示：prefill 变慢"),
    )


def _is_prefill(event: Event) -> bool:
    """A decode batch has no thousands of tokens."""
    largest = event.fields.get("largest_batch")
    return isinstance(largest, int) and largest >= _PREFILL_TOKENS
