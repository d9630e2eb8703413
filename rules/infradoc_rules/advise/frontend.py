"""Work that belongs beside the event loop."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_STREAM_INTERVAL = 4  # tokens; 16 events a second at 60 tokens a second still read as a stream
_DEFAULT_WORKERS = {"vllm": 1, "sglang": 1, "tgi": 2}  # what an engine runs with when its flag is not given


def set_tokenizer_workers(advice: Advice) -> Action | None:
    """max(1, cores - torch threads) workers, one more than an engine's own default. None when there are that many.

    More workers than cores that torch leaves free take turns with the model and make both slower.
    """
    cores = advice.hint("cores") or advice.read("max(host_cpus)")
    threads = advice.hint("torch_threads") or advice.number("omp_num_threads")
    known = advice.number("tokenizer_workers")
    present = known if known is not None else _DEFAULT_WORKERS.get(advice.system or "", 0)
    target = max(1, int(cores - (threads or 1))) if cores is not None else 1
    if known is None and present:
        target = max(
            target, int(present) + 1
        )  # the engine has its own worker already, so the cores are not all taken by it
    if present >= target:
        return None
    return advice.action(
        "set_tokenizer_workers",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            "text is tokenized beside the event loop, which then serves streams on time"
            + (f"; {int(cores)} cores less {int(threads or 1)} for the model leave {target}" if cores else ""),
            "分词移出事件循环，流式输出得以准时"
            + (f"；{int(cores)} 个核减去模型用的 {int(threads or 1)} 个，剩 {target}" if cores else ""),
        ),
        cost=advice.say(
            "a process of some 100 MB per worker, and a core that the model can no longer borrow: prefill of long "
            "prompts is the loser when the cores are full",
            "每个进程约 100 MB，且模型不能再借用该核：核用满时受损的是长提示的预填充",
        ),
    )


def raise_api_server_count(advice: Advice) -> Action | None:
    """A second front-end process, for engines that have the knob."""
    present = advice.number("api_server_count") or 1
    action = advice.action(
        "raise_api_server_count",
        from_value=int(present),
        to_value=int(present) + 1,
        why=advice.say("one front-end process is at its limit", "单个前端进程已到极限"),
        cost=advice.say(
            "one more process; what is counted per process is then counted apiece: dashboards are the loser",
            "多一个进程；按进程统计的指标和限额将各算各的：受损的是监控面板",
        ),
    )
    return action if action.flag is not None else None


def raise_stream_interval(advice: Advice) -> Action | None:
    """Four tokens in one stream event. None for engines without the knob, or where it is as large already."""
    known = "stream_interval" in advice.frame.facts
    present = advice.number("stream_interval") or 1
    if present >= _STREAM_INTERVAL or (advice.system == "infradoc" and not known):
        return None
    action = advice.action(
        "raise_stream_interval",
        from_value=int(present),
        to_value=_STREAM_INTERVAL,
        why=advice.say(
            "the front end then makes one event for four tokens, which is most of its work per token",
            "前端每四个 token 才生成一个事件，而这正是其每 token 的主要开销",
        ),
        cost=advice.say(
            "text arrives in pieces of four tokens: readers of a stream are the losers",
            "文本以四个 token 为一段到达：受损的是流式读者",
        ),
    )
    return action if action.flag is not None else None


def set_detokenizer_workers(advice: Advice) -> Action | None:
    """More text workers where they also take the stream off the front end (SGLang). None elsewhere."""
    return set_tokenizer_workers(advice) if advice.system == "sglang" else None
