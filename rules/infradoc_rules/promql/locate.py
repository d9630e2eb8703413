"""Where in the text an error lies: promql-parser says what is wrong, but not where."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc_rules.promql.subset import SUBSET
from infradoc_rules.promql.tokens import Token

_CLOSING = {")": "(", "]": "[", "}": "{"}
_INFIX = SUBSET.operators | {"atan2"}
_LABEL_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_ABOUT_OPERATORS = {
    "comparisons between scalars": SUBSET.comparisons,
    "bool modifier": frozenset({"bool"}),
    "vector matching only": frozenset({"on", "ignoring"}),
    "no grouping allowed": frozenset({"group_left", "group_right"}),
    "binary expression must contain": SUBSET.arithmetic | SUBSET.comparisons,
}
_ABOUT_STRINGS = ("illegal regex", "regular expression", "label name")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|: (\S+)$|for (\S+)$")


def locate(message: str, tokens: Sequence[Token], end: int) -> int:
    """Best position for a parser's `message`: a token that it quotes, else a bracket or token out of place.

    `end` (the length of the text) stands for "something is missing at the end".
    """
    for phrase, words in _ABOUT_OPERATORS.items():
        if phrase in message:
            return next((token.position for token in tokens if token.text.lower() in words), 0)
    quoted = [part for groups in _QUOTED.findall(message) for part in groups if part]
    candidates = tokens
    if any(phrase in message for phrase in _ABOUT_STRINGS):
        candidates = [token for token in tokens if token.kind == "string"]
    for word in quoted:
        for token in candidates:
            if word in (token.text, token.text[1:-1].replace("\\\\", "\\")):
                return token.position
    bad = next((token.position for token in tokens if token.kind == "bad"), None)
    if bad is not None:
        return bad
    bracket = unbalanced(tokens)
    if bracket is not None:
        return bracket
    return misplaced(tokens, end)


def unbalanced(tokens: Sequence[Token]) -> int | None:
    """Position of the first bracket without a partner."""
    open_brackets: list[Token] = []
    for token in tokens:
        if token.kind != "operator":
            continue
        if token.text in "([{":
            open_brackets.append(token)
        elif token.text in _CLOSING and (not open_brackets or open_brackets.pop().text != _CLOSING[token.text]):
            return token.position
    return open_brackets[0].position if open_brackets else None


def misplaced(tokens: Sequence[Token], end: int) -> int:
    """Position of the first token that cannot stand where it does, judged by operand and operator taking turns."""
    want_operand, index = True, 0
    while index < len(tokens):
        token = tokens[index]
        word = token.text.lower()
        if token.kind == "word" and word in _LABEL_LISTS:
            index = _after_group(tokens, index + 1, "(")
            continue
        if word == "offset" and token.kind == "word":
            index += 2 if index + 1 < len(tokens) and tokens[index + 1].text != "-" else 3
            continue
        if word == "bool" or (want_operand and word in ("+", "-")):
            index += 1
            continue
        after_name = index > 0 and (tokens[index - 1].kind == "word" or tokens[index - 1].text in (")", "}"))
        if word == "[" and after_name:
            index = _after_group(tokens, index, "[")
            continue
        if word == "{" and (want_operand or after_name):
            index, want_operand = _after_group(tokens, index, "{"), False
            continue
        if word in _INFIX or word == ",":
            if want_operand:
                return token.position
            want_operand = True
        elif word == "(":
            if not want_operand and not after_name:
                return token.position
            want_operand = True
        elif word == ")":
            if want_operand and (index == 0 or tokens[index - 1].text not in ("(", ",")):
                return token.position
            want_operand = False
        elif not want_operand or token.kind == "operator":
            return token.position
        else:
            want_operand = False
        index += 1
    return end


def _after_group(tokens: Sequence[Token], index: int, opening: str) -> int:
    """Index after the bracketed group that starts at `index`; `index` itself when none starts there."""
    if index >= len(tokens) or tokens[index].text != opening:
        return index
    depth = 0
    for place in range(index, len(tokens)):
        text = tokens[place].text if tokens[place].kind == "operator" else ""
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if text and depth == 0:
            return place + 1
    return len(tokens)
