"""The words around a finding's own texts, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "critical": "critical", "warning": "warning", "info": "info",
        "firing": "firing", "flapping": "flapping", "resolved": "resolved",
        "since": "Since", "ended": "Over since", "cause": "Cause", "impact": "Impact", "evidence": "Evidence",
        "action": "Do", "cost": "It costs", "falsifier": "Wrong if", "playbook": "Playbook", "incident": "Incident",
        "carries": "It explains", "where": "Where", "still": "Still firing",
        "held": "It comes and goes; no more messages until it is steady.",
        "carried": "Now told as part of", "live": "live, no restart", "restart": "needs a restart",
        "repeat": "still not resolved",
        "changed": "Change applied", "verdict": "Verdict", "more": "and {n} more",
    },
    "zh": {
        "critical": "严重", "warning": "警告", "info": "提示",
        "firing": "告警中", "flapping": "反复出现", "resolved": "已恢复",
        "since": "开始于", "ended": "结束于", "cause": "原因", "impact": "影响", "evidence": "证据",
        "action": "处理", "cost": "代价", "falsifier": "若出现此情况则诊断有误", "playbook": "处置手册",
        "incident": "事件", "carries": "由它引起", "where": "目标", "still": "仍在告警",
        "held": "时有时无，稳定之前不再通知。",
        "carried": "已并入", "live": "在线生效，无需重启", "restart": "需要重启",
        "repeat": "仍未恢复",
        "changed": "已应用变更", "verdict": "结论", "more": "另有 {n} 项",
    },
}  # fmt: skip
COLON = {"en": ": ", "zh": "："}
COMMA = {"en": ", ", "zh": "、"}


def word(key: str, lang: str) -> str:
    """One label or word."""
    return WORDS["zh" if lang == "zh" else "en"][key]


_VERDICTS_ZH = {"fixed": "已修复", "not_fixed": "未修复", "worse": "变差", "inconclusive": "无法判定"}


def verdict(name: str, lang: str) -> str:
    """The verdict on a change, in words."""
    return _VERDICTS_ZH.get(name, name) if lang == "zh" else name.replace("_", " ")


def clock(seconds: float) -> str:
    """A moment as people in several time zones can read it."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return "?"


def rfc3339(seconds: float) -> str:
    """A moment as programs read it."""
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
