"""Mask: any value as JSON can hold it, bounded, and without secrets. Pure functions."""

from __future__ import annotations

import base64
import html
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

TEXT_CHARACTERS = 1000
"""Maximum characters of a text; the middle of a longer one is left out."""
_MEMBERS = 40
_DEPTH = 6
_MIN_SECRET_CHARACTERS = 6
"""A shorter value would be found in words that are no secret."""
_URL_LOGIN = re.compile(r"://[^/\s@]{1,300}@")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
SECRET = "<secret>"


class Mask:
    """Replaces secrets in texts, in every encoding that a program may print. It learns further ones."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._forms: list[str] = []
        self._hex: re.Pattern[str] | None = None
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Take these values for secrets, and each line of them."""
        lines = {line.strip() for value in values for line in (value, *value.splitlines())}
        new = {line for line in lines if len(line) >= _MIN_SECRET_CHARACTERS} - self._values
        if not new:
            return
        self._values |= new
        forms = {form for value in self._values for form in written_forms(value, _MIN_SECRET_CHARACTERS)}
        # The longest first: one may be part of another.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        patterns = {pattern for value in self._values for pattern in hex_patterns(value)}
        self._hex = re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.IGNORECASE)

    def hide(self, text: str) -> str:
        """Return the text without the secrets in it."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, SECRET)
        if self._hex is not None:
            text = self._hex.sub(SECRET, replace_wrapped(text, self._forms, SECRET))
        return _URL_LOGIN.sub(f"://{SECRET}@", text) if "@" in text else text


def secrets_among(variables: Mapping[str, str]) -> list[str]:
    """Return the values of those variables whose names say that they are secret."""
    return [value for name, value in variables.items() if _SECRET_NAME.search(name)]


def secrets_in(content: bytes) -> list[str]:
    """Return the values of lines `NAME='value'`."""
    try:
        words = shlex.split(content.decode(errors="replace"))
    except ValueError:
        return []
    return [word.partition("=")[2] for word in words]


def to_jsonable(value: Any, mask: Mask, depth: int = 0) -> Any:
    """Return the value as numbers, texts, lists and objects: bounded, its secrets hidden."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return cut(mask.hide(str(value)))
    if depth >= _DEPTH:
        return "..."
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        some = list(value.items())[:_MEMBERS]
        return {cut(mask.hide(str(key))): to_jsonable(each, mask, depth + 1) for key, each in some}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [to_jsonable(each, mask, depth + 1) for each in value[:_MEMBERS]]
    return f"<{type(value).__name__}>"


def cut(text: str, max_characters: int = TEXT_CHARACTERS) -> str:
    """Return the text; of a long one the begin and the end, and how much is left out."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}[... {len(text) - 2 * half} characters ...]{text[-half:]}"


_LINE_BREAK = re.compile(r"[\r\n]|\\[rn]")
_LAYOUT = re.compile(r"(?:\\[rnt]|[\s\"'\\])")
"""Characters that are left out where a wrapped text is compared: breaks of lines, indents, quotes."""
_BETWEEN_BYTES = r"(?:[\s:,%-]|\\{1,2}x|0x)*"
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


def _text_places(text: str) -> list[int]:
    """The places of the characters that are no layout."""
    places: list[int] = []
    before = 0
    for found in _LAYOUT.finditer(text):
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
