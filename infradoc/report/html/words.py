"""The fixed words of the page that the other reports do not have."""

from __future__ import annotations

_EN = {
    "title": "Diagnosis",
    "chain": "Cause and what follows from it",
    "change": "The change",
    "evidence_plots": "Evidence over time",
    "threshold": "limit",
    "onset": "fired",
    "considered": "Also considered",
    "changed": "Changed before",
    "nothing_found": "No finding.",
    "made": "Made by infradoc {version}. Hosts, addresses, prompts and keys were taken out.",
    "made_full": "Made by infradoc {version}. Hosts and prompts were left in (--unredacted).",
}
_ZH = {
    "title": "诊断",
    "chain": "原因及其后果",
    "change": "改动",
    "evidence_plots": "证据随时间的变化",
    "threshold": "阈值",
    "onset": "触发",
    "considered": "也考虑过",
    "changed": "此前的变化",
    "nothing_found": "没有发现问题。",
    "made": "由 infradoc {version} 生成。主机、地址、提示和密钥已去除。",
    "made_full": "由 infradoc {version} 生成。主机和提示保留（--unredacted）。",
}


def page_words(lang: str) -> dict[str, str]:
    """The words in `lang` (English for any other than zh)."""
    return _ZH if lang == "zh" else _EN
