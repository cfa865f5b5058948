"""Shell values: puts values into a script for bash.

Each reaches its program unchanged, whatever quotes are around its place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_-]*)\}")
"""`{lr}`, but not `${lr}`, which the shell expands."""

_HERE_DOCUMENT = r"<<(?P<tabs>-?)[ \t]*(?P<raw>\\|['\"])?(?P<end>[A-Za-z_]\w*)['\"]?"
_COMMENT = r"(?<![^\s;&|()])#[^\n]*"


def _tokens(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join((PLACEHOLDER.pattern, *patterns)), re.DOTALL)


_TOKENS = {
    "(": _tokens(r"\\.", r"\$?'", '"', r"[()\n]", _COMMENT, "<<<", _HERE_DOCUMENT),
    "'": _tokens("'"),
    "$'": _tokens(r"\\.", "'"),
    '"': _tokens(r"\\.", '"', r"\$\("),
}
"""Ends and beginnings within an open quote or parenthesis; the script itself counts as a parenthesis."""
_OPENS = {"'": "'", "$'": "$'", '"': '"', "(": "(", "$(": "("}
_CLOSES = {"(": ")", "'": "'", "$'": "'", '"': '"'}
_ESCAPED = {'"': r'[\\$`"]', "$'": r"[\\']", "<<": r"[\\$`]"}
"""Characters that need a backslash within double quotes, `$'…'` and a here-document."""


def with_values(script: str, texts: Mapping[str, str]) -> str:
    """Return the script with each `{name}` replaced that has a text; comments stay as they are."""
    parts: list[str] = []
    inside, documents, at = ["("], list[re.Match[str]](), 0
    while found := _TOKENS[inside[-1]].search(script, at):
        name, token, within = found["name"], found[0], inside[-1]
        parts += script[at : found.start()], _escaped(texts[name], within) if name in texts else token
        at = found.end()
        if within == "(" and found["end"]:
            documents.append(found)
        elif token == _CLOSES[within]:
            inside = inside[:-1] or inside
        elif token in _OPENS:
            inside.append(_OPENS[token])
        elif token == "\n":
            for document in documents:
                end = _end_of(document, script, at)
                parts.append(_filled_document(script[at:end], texts, is_raw=document["raw"] is not None))
                at = end
            documents.clear()
    return "".join([*parts, script[at:]])


def _end_of(document: re.Match[str], script: str, begin: int) -> int:
    """Return where the body of a here-document ends that begins there; the begin where no line ends it."""
    tabs = r"\t*" if document["tabs"] else ""
    last = re.compile(rf"^{tabs}{document['end']}$", re.MULTILINE).search(script, begin)
    return begin if last is None else last.start()


def _filled_document(body: str, texts: Mapping[str, str], *, is_raw: bool) -> str:
    def value(found: re.Match[str]) -> str:
        text = texts.get(found["name"])
        return found[0] if text is None else text if is_raw else _escaped(text, "<<")

    return PLACEHOLDER.sub(value, body)


def _escaped(text: str, within: str) -> str:
    """Return the text as bash reads it there: within these quotes, or in a word without any."""
    if within == "'":
        return text.replace("'", "'\"'\"'")
    return re.sub(_ESCAPED[within], r"\\\g<0>", text) if within in _ESCAPED else shlex.quote(text)
