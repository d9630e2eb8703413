"""Scores in tables and lists: a quantized model beside its reference, whatever evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infradoc.artefacts.kinds.score import LOWER_IS_BETTER, QUANTIZED, REFERENCE, Score
from infradoc.artefacts.kinds.score_lists import labelled, listed, lm_eval
from infradoc.artefacts.kinds.score_prose import contrasted
from infradoc_rules.lazy_pattern import lazy

_TASK = lazy(r"(?i)^\s*\|?\s*(?:task|tasks|benchmark|metric|dataset|eval|bench|test|model|acc|variant|评测|任务)\b")
_CELL = lazy(r"\s*\|\s*|\t+|\s{2,}")
_NUMBER = lazy(r"^\*{0,2}(?P<n>\d+(?:\.\d+)?)\s*%?\*{0,2}$")
# What a model costs is no score: less of it is no loss of quality.
_COST = lazy(
    r"(?i)mem(?:ory)?\b|\bsize\b|speed|latency|throughput|tokens?\b|tok/s|req/s|\btime\b|\b[GM]i?B\b|param|\bnum\b|\bcount\b"
    r"|samples?\b|\bbits?\b|\bms\b|seconds?|ttft|tpot|itl\b|batch|version|shots?\b|stderr|step|epoch|延迟|吞吐|显存|速度"
    r"|prefill|decode|\b(?:pp|tg)\s?\d+|flops|bandwidth|concurren|requests?\b|per sec|/s\b|prompt eval|eval rate"
    r"|utili[sz]ation|power|watts?\b|temperature|price|\bcost|\b(?:qps|rps|tps|tgs|mfu|e2e)\b|\bp(?:50|90|95|99)\b"
    r"|disk|kl[ _-]?div"
    r"|\b(?:gpus?|cards?|devices?|nodes?|threads?|workers?|layers|users?|vram|tp|pp|dp|context|length|hours?)\b"
)
_ACCURACY = lazy(
    r"(?i)score|acc(?:uracy)?\b|exact|pass@|correct|\bmarks?\b|\bf1\b|bleu|rouge|gsm8k|mmlu|gpqa|aime|arc[_-]|hellaswag|human_?eval"
    r"|mbpp|winogrande|piqa|boolq|truthful|ceval|c-eval|cmmlu|livecode|swe-|math|ifeval|bbh|mt-?bench|perplexity|\bppl\b|wer\b"
)
_MODEL_NAME = 6  # letters that two columns must share to be one model
_MOST = 100.0  # percent; few scores go above, and their tables say that they are scores
_ABOVE = lazy(r"(?i)score|elo\b|\bmme\b|ocr")
_CACHE = lazy(
    r"(?i)^(?:kv[ _-]?cache|cache[ _-]?type|kv[ _-]?(?:cache[ _-]?)?d?type|kv)\b|^kv_cache_dtype$|^quant[_ -]?policy$"
)
_CACHE_COLUMN = lazy(
    r"(?i)^(?:quant[-_ ]?policy|kv[-_ ]?cache(?:[-_ ]d?type)?|kv)[ =:_-]*"
    r"(?P<form>auto|0|bf16|fp16|f16|4|8|fp8\w*|int[48]|q[458]_\d)\b"
)
_CSV = lazy(r"^\s*[\w./ +-]{1,60}(?:, ?[\w./ %+-]{1,40}){1,12}\s*$")
_FORM_COLUMN = lazy(
    r"(?i)^(?:quant(?:i[sz]ation|\.)?(?:[ _-]?(?:method|type|config))?|precision|format|d?type|weights?|data ?type"
    r"|量化|精度)$"
)
_RULES = frozenset("|-: +=")


def score_tables(lines: Sequence[str]) -> Iterator[tuple[int, int, list[Score]]]:
    """(start, end, scores) of each table."""
    index = 0
    while index < len(lines):
        for reader in (_beside, lm_eval, listed, labelled, contrasted):
            end, rows = reader(lines, index)
            rows = [row for row in rows if _is_score(row)]
            if rows:
                yield index, end, rows
                index = end
                break
        else:
            index += 1


def _is_score(row: Score) -> bool:
    """Whether the number says how good answers are: no speed, no size, no count."""
    if _COST.search(row.task):
        return False
    return row.score <= _MOST or LOWER_IS_BETTER.search(row.task) is not None or _ABOVE.search(row.task) is not None


def _cells(line: str) -> list[str]:
    cells = [cell for cell in _CELL.split(line.strip().strip("|").strip()) if cell]
    if len(cells) == 1 and _CSV.match(line):
        return [cell.strip() for cell in line.split(",")]
    return cells


def _beside(lines: Sequence[str], start: int) -> tuple[int, list[Score]]:
    """A table whose columns, or whose rows, are the quantized model and its reference."""
    head = lines[start]
    titles = _cells(head) if len(head) < 300 and _is_head(head) else []
    if head.strip().replace(" ", "").startswith("||"):
        titles = ["", *titles]  # the corner of a table is often empty
    if len(titles) < 2 or any(_NUMBER.match(title) for title in titles):
        return start, []
    body: list[tuple[int, list[str]]] = []
    end = start + 1
    while end < len(lines) and (cells := _cells(lines[end])):
        if set(lines[end].strip()) <= _RULES:
            end += 1
            continue
        if len(cells) < 2 or not any(_NUMBER.match(cell) for cell in cells[1:]):
            break
        body.append((end, cells))
        end += 1
    columns = _by_cache_columns(titles, body) or _by_column(titles, body)
    rows = columns or _by_cache(titles, body) or _by_row(titles, body) or _by_format(titles, body)
    return end, rows


def _is_head(head: str) -> bool:
    """A heading that begins with what is listed, has a column for either model, or has bars and a column of scores."""
    if _TASK.match(head) or _names_both(head):
        return True
    titles = _cells(head)
    if head.count("|") < 2:
        # without bars, only short titles that begin with what is compared; a line of a log is longer
        return len(titles) >= 2 and _CACHE.match(titles[0]) is not None and any(map(_ACCURACY.search, titles[1:]))
    return len(titles) >= 2 and any(_ACCURACY.search(title) for title in titles[1:]) and max(map(len, titles)) < 60


def _names_both(head: str) -> bool:
    """A heading with bars that has a column for the reference and one for a quantized model."""
    if head.count("|") < 2:
        return False
    titles = _cells(head)
    both = any(REFERENCE.search(title) for title in titles), any(QUANTIZED.search(title) for title in titles)
    return all(both) and all(len(title) < 60 for title in titles)


def _by_column(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[Score]:
    named = [index for index in range(1, len(titles)) if REFERENCE.search(titles[index])]
    others = [index for index in range(1, len(titles)) if index not in named]
    chosen = [index for index in others if QUANTIZED.search(titles[index])] or others[:1]
    named = named or _same_model(titles, chosen)
    if not named or not chosen:
        return []
    rows = []
    for line, cells in body:
        ref = _value(cells, named[0])
        for column in chosen:
            mine = _value(cells, column)
            if mine is not None and ref is not None:
                rows.append(Score(line, cells[0], mine, ref, titles[column], True))
    return rows


def _same_model(titles: Sequence[str], chosen: Sequence[int]) -> list[int]:
    """The columns of the model that a quantized column's name continues: "model-hf" beside "model-w4a16"."""
    quantized = [titles[index] for index in chosen if QUANTIZED.search(titles[index])]
    return [
        index
        for index, title in enumerate(titles)
        if index > 0
        and not QUANTIZED.search(title)
        and any(other[:_MODEL_NAME].lower() == title[:_MODEL_NAME].lower() for other in quantized)
        and len(title) >= _MODEL_NAME
    ]


def _by_cache(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[Score]:
    """A table with a column for the format of the KV cache: rows that differ in nothing else are compared."""
    place = next((index for index, title in enumerate(titles) if _CACHE.match(title)), None)
    if place is None:
        return []
    caches = {index for index, title in enumerate(titles) if _CACHE.match(title)}  # keys and values may have one each
    numbered = "policy" in titles[place].lower()  # LMDeploy names the formats 0, 4 and 8
    rows_alike = [(line, cells) for line, cells in body if len(cells) == len(titles)]
    told = [(line, cells) for line, cells in rows_alike if numbered or not _NUMBER.match(cells[place])]
    bases = [cells for _, cells in told if _is_whole(cells[place])]
    rows = []
    for line, cells in told:
        if _is_whole(cells[place]):
            continue
        base = next((base for base in bases if _others(base, caches) == _others(cells, caches)), [])
        for column in range(len(base)):
            mine, ref = _value(cells, column), _value(base, column)
            if mine is not None and ref is not None:
                task = " ".join([*_others(cells, caches), titles[column]])
                rows.append(Score(line, task, mine, ref, f"kv_cache={cells[place]}", True))
    return rows


def _by_cache_columns(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[Score]:
    """A column for each format of the KV cache: "quant-policy 0", "quant-policy 4"; "kv auto", "kv fp8"."""
    forms = {index: found["form"] for index, title in enumerate(titles) if (found := _CACHE_COLUMN.match(title))}
    bases = [index for index, form in forms.items() if _is_whole(form)]
    if not bases or len(forms) < 2:
        return []
    rows = []
    for line, cells in body:
        if len(cells) != len(titles) or (ref := _value(cells, bases[0])) is None:
            continue
        for index, form in forms.items():
            mine = _value(cells, index)
            if mine is not None and not _is_whole(form):
                rows.append(Score(line, cells[0], mine, ref, f"kv_cache={form}", True))
    return rows


def _is_whole(cell: str) -> bool:
    return (REFERENCE.search(cell) is not None or cell.lower() in ("auto", "f16", "0")) and not QUANTIZED.search(cell)


def _others(cells: Sequence[str], caches: set[int]) -> tuple[str, ...]:
    return tuple(cell for index, cell in enumerate(cells) if index not in caches and not _NUMBER.match(cell))


def _by_row(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[Score]:
    bases = [cells for _, cells in body if REFERENCE.search(cells[0]) and not QUANTIZED.search(cells[0])]
    bases = bases or _named_alike(body)
    rows = []
    for line, cells in body:
        base = next((base for base in bases if _words(base) == _words(cells)), None)
        if base is None or not QUANTIZED.search(cells[0]):
            continue
        for column in range(1, min(len(titles), len(cells))):
            mine, ref = _value(cells, column), _value(base, column)
            if mine is not None and ref is not None:
                task = " ".join([*_words(cells), titles[column]])
                rows.append(Score(line, task, mine, ref, cells[0], True))
    return rows


def _by_format(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[Score]:
    """A table with a column for the format of the weights: rows that differ in nothing else are compared."""
    place = next((index for index, title in enumerate(titles) if _FORM_COLUMN.match(title)), None)
    if place is None:
        return []
    told = [(line, cells) for line, cells in body if len(cells) == len(titles) and not _NUMBER.match(cells[place])]
    whole = [cells for _, cells in told if _is_unquantized(cells[place])]
    rows = []
    for line, cells in told:
        base = next((base for base in whole if _others(base, {place}) == _others(cells, {place})), [])
        if not QUANTIZED.search(cells[place]):
            continue
        for column in range(len(base)):
            mine, ref = _value(cells, column), _value(base, column)
            if column != place and mine is not None and ref is not None:
                task = " ".join([*_others(cells, {place}), titles[column]])
                rows.append(Score(line, task, mine, ref, cells[place], True))
    return rows


def _is_unquantized(cell: str) -> bool:
    return cell.lower() in ("none", "-", "no", "f16", "f32") or (
        REFERENCE.search(cell) is not None and not QUANTIZED.search(cell)
    )


def _words(cells: Sequence[str]) -> tuple[str, ...]:
    """What a row says beside its name and its numbers: the data set, where a table has one in each row."""
    return tuple(cell for cell in cells[1:] if not _NUMBER.match(cell) and cell.strip("-–— "))


def _named_alike(body: Sequence[tuple[int, list[str]]]) -> list[list[str]]:
    """The rows whose name a quantized row's continues: "model" beside "model-AWQ"."""
    quantized = [cells[0].lower() for _, cells in body if QUANTIZED.search(cells[0])]
    names = ((cells, cells[0].lower()) for _, cells in body)
    return [
        cells
        for cells, name in names
        if len(name) > 3 and not QUANTIZED.search(name) and any(other.startswith(name) for other in quantized)
    ]


def _value(cells: Sequence[str], column: int) -> float | None:
    found = _NUMBER.match(cells[column]) if column < len(cells) else None
    return float(found.group("n")) if found else None
