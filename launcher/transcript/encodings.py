"""Encodings: a secret as programs print it: escaped, in URLs, base64, hex, wrapped over lines. Pure."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import quote, quote_plus

_LINE_BREAK = re.compile(r"[\r\n]|\\[rn]")
_LAYOUT = re.compile(r"(?:\\[rnt]|[\s\"'\\])")
"""Characters that are left out where a wrapped text is compared: breaks of lines, indents, quotes."""
_BETWEEN_BYTES = r"(?:[\s:,%-]|\\{1,2}x|0x)*"
_BETWEEN = re.compile(r"[\s:,%-]|\\{1,2}x|0x")
_MIN_BEGIN = 4
"""Characters at the end of a text that are taken for the begin of a secret."""
_HEX_BYTES, _MIN_HEX_BYTES = 32, 6
"""Bytes that are looked for as hex in one piece."""


def written_forms(secret: str, min_length: int) -> set[str]:
    """Return the secret as it may be written, each form with at min_length that many characters."""
    forms = {secret, repr(secret)[1:-1], shlex.quote(secret), re.sub(r"([^\w@%+=:,./-])", r"\\\1", secret)}
    forms |= {html.escape(secret), html.escape(secret, quote=False), secret.replace("/", "\\/")}
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        forms |= {once, json.dumps(once)[1:-1], once.replace("/", "\\/")}
    for escaped in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        forms |= {escaped, _lower_percent(escaped), quote(escaped, safe="")}
    for content in {secret.encode(errors="replace"), secret.encode("utf-16-le", errors="replace")}:
        forms |= set(_base64_forms(content))
    return {form for form in forms if len(form) >= min_length}


def hex_patterns(secret: str) -> Iterable[str]:
    """Return patterns of the secret's bytes in hex, piece by piece, with or without separators."""
    content = secret.encode(errors="replace")
    ends = [*range(_HEX_BYTES, len(content) - _MIN_HEX_BYTES + 1, _HEX_BYTES), len(content)]
    for start, end in pairwise([0, *ends]):
        yield _BETWEEN_BYTES.join(f"{byte:02x}" for byte in content[start:end])


def replace_wrapped(text: str, forms: Iterable[str], replacement: str) -> str:
    """Replace the forms where lines were wrapped within them."""
    if not _LINE_BREAK.search(text):
        return text
    joined = _LAYOUT.sub("", text)
    spans: list[tuple[int, int]] = []
    for form in forms:
        searched, at = _LAYOUT.sub("", form), -1
        while searched and (at := joined.find(searched, at + 1)) >= 0:
            spans.append((at, at + len(searched)))
    if not spans:
        return text
    places = _text_places(text)
    for start, end in _merged(spans):
        first, last = places[start], places[end - 1]
        if _LINE_BREAK.search(text, first, last):
            text = text[:first] + replacement + text[last + 1 :]
    return text


def unfinished_at(text: str, forms: Iterable[str], hex_forms: Iterable[str]) -> int:
    """Return the place where the end of the text may begin one of the forms; else the text's length."""
    first = len(text)
    for layout, searched in ((_LAYOUT, forms), (_BETWEEN, hex_forms)):
        places = _text_places(text, layout)
        bare = "".join(text[place] for place in places)
        bare = bare.lower() if layout is _BETWEEN else bare
        for form in searched:
            whole, at = layout.sub("", form), -1
            while (at := bare.find(whole[:_MIN_BEGIN], at + 1)) >= 0:
                if whole.startswith(bare[at:]) and whole != bare[at:]:
                    first = min(first, places[at])
    return first


def _text_places(text: str, layout: re.Pattern[str] = _LAYOUT) -> list[int]:
    """The places of the characters that are no layout."""
    places: list[int] = []
    before = 0
    for found in layout.finditer(text):
        places += range(before, found.start())
        before = found.end()
    return [*places, *range(before, len(text))]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans without overlaps, the last one first."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged[::-1]


def _base64_forms(content: bytes) -> Iterable[str]:
    """The characters that hold nothing but these bytes, wherever in a longer text they begin."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode()
        inner = encoded[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _lower_percent(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text)
