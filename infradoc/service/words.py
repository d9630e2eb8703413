"""What the watch says of itself, in English and Chinese. Findings, sources and sinks bring their own texts."""

from __future__ import annotations

from collections.abc import Mapping

_TEXTS: Mapping[str, tuple[str, str]] = {
    "watching": ("{targets}; alerts go to {sinks}{where}", "{targets}；告警发往 {sinks}{where}"),
    "pages_at": ("; /metrics and /health on port {port}", "；/metrics 和 /health 的端口是 {port}"),
    "nobody": (
        "nobody, for there are no [alerts.sinks.NAME] in {file}",
        "无人，因为 {file} 中没有 [alerts.sinks.NAME]",
    ),
    "lost": ("{target}: {why}", "{target}：{why}"),
    "no_answer": ("it does not answer", "没有应答"),
    "answers_again": ("{target} answers again", "{target} 恢复应答"),
    "fired": ("{target}: {severity} {id}: {title}", "{target}：{severity} {id}：{title}"),
    "info": ("info", "提示"),
    "warning": ("warning", "警告"),
    "critical": ("critical", "严重"),
    "resolved": ("{target}: {id}: {title}", "{target}：{id}：{title}"),
    "change": ("{target}: {what}", "{target}：{what}"),
    "no_source": ("{target}: {why}", "{target}：{why}"),
    "sources_again": (
        "{target}: what the configuration names is read again",
        "{target}：配置中指明的内容又可以读取",
    ),
    "works_again": ("{part}: works again", "{part}：恢复正常"),
    "refused": ("alerts do not reach {sink}: {why}", "告警无法送达 {sink}：{why}"),
    "stopping": (
        "now: messages that wait get up to {seconds:.0f} s, the rest stays on disk",
        "现在停止：等待中的消息最多还有 {seconds:.0f} 秒，其余留在磁盘上",
    ),
    "unsaved": (
        "not stored before the end, and not sent: {n} (open and ended incidents, changes); what still holds is told "
        "again after the next start",
        "结束前未能保存，也没有发出：{n} 条（进行中和已结束的事件、更改）；仍然存在的问题会在下次启动后重新通知",
    ),
    "hangs": ("the look at {targets} hangs and is left behind", "对 {targets} 的采样没有返回，不再等待"),
    "not_reloaded": (
        "The configuration was not read again, the old one stays in force. {why}",
        "配置没有重新读取，旧配置继续有效。{why}",
    ),
    "reloaded": (
        "the configuration was read again: targets: added {added}, removed {removed}; alerts: {alerts}",
        "配置已重新读取：目标：新增 {added}，移除 {removed}；告警：{alerts}",
    ),
    "none": ("none", "无"),
    "as_before": ("as before", "不变"),
    "changed": ("changed", "已更改"),
    "next_start": ("{key} takes effect at the next start", "{key} 在下次启动时生效"),
}


def say(lang: str, key: str, /, **parts: object) -> str:
    """One text with its parts filled in; English for a language that is not known."""
    return _TEXTS[key][lang == "zh"].format(**parts)
