"""A server that does not move."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action


def restart_engine(advice: Advice) -> Action:
    """Restart, after the evidence is kept."""
    return advice.action(
        "restart_engine",
        why=advice.say(
            "no token moves any more; keep a stack dump first (py-spy dump --pid), it names what blocks",
            "已没有 token 产出；先保存堆栈（py-spy dump --pid），它能指出阻塞点",
        ),
        cost=advice.say(
            "all running requests and the prefix cache are lost: their callers are the losers",
            "所有运行中的请求和前缀缓存都会丢失：受损的是其调用方",
        ),
    )
