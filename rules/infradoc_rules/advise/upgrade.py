"""Upgrades: said only where a later version mends a known fault, with the version, the reason and a reference."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.known_faults import known_fault, newer_release
from infradoc_rules.model import Action

_PACKAGES = {"vllm": "vllm", "sglang": "sglang", "lmdeploy": "lmdeploy", "trtllm": "tensorrt-llm"}


def upgrade_for(finding: str, advice: Advice) -> Action | None:
    """The version that mends the known fault behind a finding. None where none is known, or it is mended already.

    A finding that can only be a fault of the software is told where to look, and that no listed fault fits.
    """
    present = _present(advice)
    known = known_fault(finding, advice.frame, present)
    if known is None or advice.system is None:
        return _look_at_newest(finding, advice)
    fault, sure = known
    said_en, said_zh = ("a known fault", "已知缺陷") if sure else ("perhaps a known fault", "可能是已知缺陷")
    return advice.action(
        "upgrade_engine",
        from_value=present,
        to_value=f">={fault.fixed}",
        flag=f"{_PACKAGES.get(advice.system, advice.system)}>={fault.fixed}",
        why=advice.say(
            f"{said_en} before {fault.fixed}: {fault.reason['en']} ({fault.reference})",
            f"{fault.fixed} 之前的{said_zh}：{fault.reason['zh']}（{fault.reference}）",
        ),
        cost=_cost(advice),
    )


def _look_at_newest(finding: str, advice: Advice) -> Action | None:
    newest = newer_release(finding, advice.system, _present(advice))
    if newest is None:
        return None
    return advice.action(
        "upgrade_engine",
        from_value=_present(advice),
        why=advice.say(
            f"a fault of the software, though none that is known fits: look for it in the releases up to {newest}",
            f"这是软件缺陷，但没有与之相符的已知缺陷：请在直到 {newest} 的发行说明中查找",
        ),
        cost=_cost(advice),
    )


def _present(advice: Advice) -> str | None:
    present = advice.fact("target.version")
    return None if present is None else str(present)


def _cost(advice: Advice) -> str:
    return advice.say(
        "a restart with a version to be tried first: whoever relies on the present one is the loser",
        "需要换版本重启并先行验证：受损的是依赖现版本的一方",
    )


def upgrade_for_fragments(advice: Advice) -> Action | None:
    """A build that leaves no holes behind."""
    return upgrade_for("fragmentation-allocator", advice)


def upgrade_for_leak(advice: Advice) -> Action | None:
    """A build without the leak."""
    return upgrade_for("memory-leak", advice)


def upgrade_for_pool(advice: Advice) -> Action | None:
    """A build whose pool adds up."""
    return upgrade_for("kv-pool-accounting-bug", advice)


def upgrade_for_kernel(advice: Advice) -> Action | None:
    """A build that picks kernels by the device's on-chip memory."""
    return upgrade_for("kernel-shared-memory-limit", advice)


def upgrade_for_tokenizer(advice: Advice) -> Action | None:
    """A build that tokenizes off the event loop."""
    return upgrade_for("cpu-tokenization-bottleneck", advice)


def upgrade_for_quantization(advice: Advice) -> Action | None:
    """A build with kernels of this method for this device."""
    return upgrade_for("quantization-unsupported", advice)
