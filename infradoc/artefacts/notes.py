"""What could not be read, as sentences in English and Chinese."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from infradoc.errors import visible

_SHOWN = 3  # sentences of one kind; then a count

_CUT = (
    "{name}: lines end at column {width} and what stood behind it is gone; give the full text (the file, not a copy of"
    " the screen).",
    "{name}：有的行在第 {width} 列被截断，其后的内容已丢失；请提供完整文本（原始文件，而不是屏幕复制）。",
)
TEXTS: dict[str, tuple[str, str]] = {
    "deep": (
        "{name} lies deeper than {limit} folders and was left out.",
        "{name} 的目录层数超过 {limit}，已跳过。",
    ),
    "unreadable": ("{name} cannot be read: {why}.", "{name} 无法读取：{why}。"),
    "link": ("{name} is a link and was not followed.", "{name} 是链接，未跟随。"),
    "surplus": (
        "Of {name} only {limit} files were read: it has too many.",
        "{name} 文件过多，只读取了其中 {limit} 个。",
    ),
    "special": (
        "{name} is no ordinary file (a pipe, socket or device) and was not read.",
        "{name} 不是普通文件（管道、套接字或设备），未读取。",
    ),
    "empty": ("{name} is empty.", "{name} 是空的。"),
    "zeros": ("{name} holds nothing but zero bytes.", "{name} 里只有零字节。"),
    "image": (
        "{name} is an image: text is needed, so paste the lines that it shows.",
        "{name} 是图片：需要文本，请把图中的内容粘贴为文字。",
    ),
    "document": (
        "{name} is {what}: text is needed, so paste what it says.",
        "{name} 是文档（{what}）：需要文本，请粘贴其中的文字。",
    ),
    "binary": ("{name} is {what}, not text, and was not read.", "{name} 不是文本（{what}），未读取。"),
    "label": ("{name} is the label of a test case and was not read.", "{name} 是测试用例的标签，未读取。"),
    "long": (
        "{name} has lines of more than a million characters ({count}); their ends were cut.",
        "{name} 有 {count} 行超过一百万字符，行尾已截断。",
    ),
    "cut": _CUT,
    "cut_settings": _CUT,
    "json": (
        "{name} is JSON with an error at line {line}, and could not be read; give the file as it was written.",
        "{name} 是 JSON，但第 {line} 行有误，无法读取；请提供原始文件。",
    ),
    "flat": (
        "{name} is YAML without its indentation, which says what belongs to what; give the file itself.",
        "{name} 是丢失缩进的 YAML，无法判断层级关系；请提供原始文件。",
    ),
    "nested": (
        "{name} is an archive inside archives; unpack it and give its files.",
        "{name} 是多层嵌套的压缩包；请解包后再提供。",
    ),
    "damaged": ("{name} cannot be unpacked: {why}.", "{name} 无法解包：{why}。"),
    "broken": (
        "{name} breaks off: {why}; what comes before was read.",
        "{name} 不完整：{why}；只读取了前面的部分。",
    ),
    "zstd": (
        "{name} is packed with zstd, which this Python cannot unpack; run `zstd -d` on it, or install zstandard.",
        "{name} 用 zstd 压缩，当前 Python 无法解包；请先运行 `zstd -d`，或安装 zstandard 包。",
    ),
    "bomb": (
        "{name} unpacks to far more than it weighs; only its beginning was read.",
        "{name} 解包后远大于压缩大小；只读取了开头部分。",
    ),
    "budget": (
        "{name} was read in part at most: all packed files together unpack to more than {limit} GiB. Give fewer.",
        "{name} 至多读取了一部分：所有压缩文件解包后合计超过 {limit} GiB。请减少文件。",
    ),
    "short": (
        "{name} goes on for thousands of blank or very short lines; {count} of them were left out and are not counted"
        " in the numbers of the lines below.",
        "{name} 有连续数千行空行或极短的行；其中 {count} 行已跳过，其后的行号不计这些行。",
    ),
    "dense": (
        "{name}: {count} very short lines were not read: there are millions of them. Give the part that matters.",
        "{name}：极短的行有数百万之多，其中 {count} 行未读取。请只提供相关部分。",
    ),
    "locked": (
        "{name} is locked with a password and was not read.",
        "{name} 有密码保护，未读取。",
    ),
    "path": (
        "{name} leads out of the archive and was left out.",
        "{name} 的路径指向压缩包之外，已跳过。",
    ),
    "odd": (
        "{name}: what begins at line {line} ({what}) holds numbers that no such output has, and was not read.",
        "{name}：第 {line} 行开始的内容（{what}）含有不可能的数值，未读取。",
    ),
    "turned": (
        "{name} has its newest line first and was read from its end; the numbers of lines below count from there.",
        "{name} 最新的行在最前面，已从末尾读起；下文的行号从末尾数起。",
    ),
    "nothing": ("{name} holds nothing to read.", "{name} 中没有可读取的内容。"),
    "blank": ("{name} holds only blank lines.", "{name} 只有空行。"),
}
# What may have said more than the rest does: with one of these unread, silence of the rest is no health.
_TELLING = frozenset(
    {
        "image",
        "document",
        "unreadable",
        "damaged",
        "broken",
        "nested",
        "zstd",
        "locked",
        "bomb",
        "budget",
        "dense",
        "surplus",
        "deep",
        "long",
        "odd",
        "cut",
        "json",
        "flat",
    }
)
_MORE = (
    "There are {count} more like the last one: {what}",
    "还有 {count} 个同类情况：{what}",
)


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that could not be read."""

    kind: str
    values: dict[str, str]

    def text(self, lang: str = "en") -> str:
        """The sentence."""
        return visible(TEXTS[self.kind][lang == "zh"].format_map(self.values))


@dataclass
class Notes:
    """All of them. Of a kind that comes again and again the first few are kept."""

    kept: list[Note] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, name: str, **values: object) -> None:
        """Add one."""
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN:
            self.kept.append(Note(kind, {"name": name, **{key: str(value) for key, value in values.items()}}))

    @property
    def gaps(self) -> bool:
        """Whether something that may hold the cause could not be read, or not to its end."""
        return not _TELLING.isdisjoint(self.counts)

    def sentences(self, lang: str = "en") -> list[str]:
        """The sentences, and how many more there would have been of each kind."""
        said = [note.text(lang) for note in self.kept]
        for kind, count in self.counts.items():
            if count > _SHOWN:
                last = next(note for note in reversed(self.kept) if note.kind == kind)
                said.append(_MORE[lang == "zh"].format(count=count - _SHOWN, what=last.text(lang)))
        return said
