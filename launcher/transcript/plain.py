"""Plain: any value as JSON can hold it, bounded, and without what is secret. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from launcher.transcript.encodings import hex_patterns, replace_wrapped, unfinished_at, written_forms

TEXT_CHARACTERS = 1000
"""Of one text; the middle of a longer one is left out."""
_MEMBERS = 40
_DEPTH = 6
_LEAST_SECRET = 6
"""A shorter value would be found in words that are no secret."""
_MIN_REACH = 256
"""Characters that 32 bytes in hex take with separators."""
_MAX_HELD = 1 << 16
"""Characters of a line without an end that are held back."""
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
        new = {line for line in lines if len(line) >= _LEAST_SECRET} - self._values
        if not new:
            return
        self._values |= new
        forms = {form for value in self._values for form in written_forms(value, _LEAST_SECRET)}
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

    def unfinished_at(self, text: str) -> int:
        """Return the place where the end of the text may begin a secret; else the text's length."""
        hex_forms = [value.encode(errors="replace").hex() for value in self._values]
        return unfinished_at(text, self._forms, hex_forms)

    @property
    def reach(self) -> int:
        """Maximum number of characters of a secret as written, wrapped over lines; 0 without secrets."""
        return max(_MIN_REACH, 2 * len(self._forms[0])) if self._forms else 0


class StreamMask:
    """Hides secrets in a text that arrives in parts, those that are split over two parts as well.

    stream = StreamMask(mask)
    shown = [stream.hide(part) for part in parts] + [stream.rest()]
    """

    def __init__(self, mask: Mask) -> None:
        self._mask, self._held, self._shown = mask, "", ""

    def hide(self, part: str) -> str:
        """Return what can be shown by now: all but the lines at the end in which a secret may begin."""
        if not self._mask.reach:
            return self._mask.hide(part)
        text = self._held + part
        tail = (self._shown + text)[-self._mask.reach :]
        at = max(0, len(text) - len(tail) + self._mask.unfinished_at(tail))
        line = text.rfind("\n", 0, at) + 1
        if at < len(text) and at - line < _MAX_HELD:
            at = line
        self._held = text[at:]
        return self._hidden(text[:at])

    def rest(self) -> str:
        """Return what was held back: the text has ended."""
        held, self._held = self._held, ""
        return self._hidden(held)

    def _hidden(self, text: str) -> str:
        """The text without secrets, one included of which the first letters were shown already."""
        shown, self._shown = self._shown, (self._shown + text)[-self._mask.reach :]
        hide, head = self._mask.hide, text[: self._mask.reach]
        whole = hide(shown + head)
        if whole == hide(shown) + hide(head):
            return hide(text)
        end = next(n for n in range(len(head) + 1) if whole == hide(shown + head[:n]) + hide(head[n:]))
        return SECRET + hide(text[end:])


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


def plain(value: Any, mask: Mask, depth: int = 0) -> Any:
    """Return the value as numbers, texts, lists and objects: bounded, its secrets hidden."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return cut(mask.hide(str(value)))
    if depth >= _DEPTH:
        return "..."
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        some = list(value.items())[:_MEMBERS]
        return {cut(mask.hide(str(key))): plain(each, mask, depth + 1) for key, each in some}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(each, mask, depth + 1) for each in value[:_MEMBERS]]
    return f"<{type(value).__name__}>"


def cut(text: str, most: int = TEXT_CHARACTERS) -> str:
    """Return the text; of a long one the begin and the end, and how much is left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}[... {len(text) - 2 * half} characters ...]{text[-half:]}"
