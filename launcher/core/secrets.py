"""Secrets: what is secret in a job, and the mask that hides it in any text. Pure; every writer uses it.

Addresses of notifications are secrets, too: what is checked and shown of them is here.

What is secret by its name, its form or its place in a URL is said in `vastrun/contract/texts.py`, for the
machine, too. Callers add what they know otherwise, such as the values of the job's `secrets`.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from ipaddress import ip_address
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, quote_plus, urlsplit

from vastrun.contract.texts import (
    SECRET,
    hide_forms,
    hide_in_command,
    is_secret_name,
    secrets_in,
)

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

_T = TypeVar("_T")
_MIN_SECRET_CHARACTERS = 6
"""A shorter value would be found in words that are no secret."""
_LINE_BREAK = re.compile(r"[\r\n]|\\[rn]")
_LAYOUT = re.compile(r"(?:\\[rnt]|[\s\"'\\])")
"""Characters that are left out where a wrapped text is compared: breaks of lines, indents, quotes."""
_BETWEEN_BYTES = r"(?:[\s:,%-]|\\{1,2}x|0x)*"
_HEX_BYTES, _MIN_HEX_BYTES = 32, 6
"""Bytes that are looked for as hex in one piece."""
APPRISE = "apprise+"
"""Beginning of a URL for the package apprise, which knows many services."""
EXPECTED = (
    "a URL that begins with https:// or http://, in ASCII, without spaces, user and password, or one of "
    "Apprise, such as apprise+tgram://TOKEN/CHAT"
)
_ADDRESS = re.compile(
    r"(apprise\+[a-z][a-z0-9-]*:/)/[!-~]+"
    r"|(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)(?:[/?#][!-~]*)?",
    re.ASCII | re.IGNORECASE,
)
"""Matches a URL to which a notification can be sent, by groups without its secret part."""


def secrets_among(variables: Mapping[str, str]) -> list[str]:
    """Return the values of those variables whose names say that they are secret."""
    return [value for name, value in variables.items() if is_secret_name(name)]


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
        return hide_forms(text)


def values_in(content: bytes) -> list[str]:
    """Return the values of lines `NAME='value'`."""
    try:
        words = shlex.split(content.decode(errors="replace"))
    except ValueError:
        return []
    return [word.partition("=")[2] for word in words]


def job_secrets(spec: JobSpec) -> list[str]:
    """Return what is secret in the job itself; the values of its `secrets` are not in it."""
    found = [*secrets_among(spec.env), *(to.url for to in spec.notify if to.url)]
    return [*found, *(secret for text in _texts(spec) for secret in secrets_in(text))]


def public_job(spec: JobSpec) -> JobSpec:
    """Return the job with `<secret>` in the place of each secret."""
    return _public(spec, Mask(job_secrets(spec)))


def public_values(values: Mapping[str, _T]) -> dict[str, _T]:
    """Return values by the keys of `--set`, with `<secret>` in the place of each secret."""
    return _public(dict(values), Mask(secret for text in _texts(values) for secret in secrets_in(text)))


def _public(value: _T, mask: Mask) -> _T:
    """Return the value masked, and all that is within it."""
    shown: Any = value
    if isinstance(value, str):
        shown = hide_in_command(mask.hide(value))
    elif isinstance(value, Mapping):
        # A number is no secret: `max_tokens` is a value that a batch may vary.
        secret = {key: SECRET for key, each in value.items() if isinstance(each, str) and is_secret_name(key)}
        shown = {key: _public(each, mask) for key, each in value.items()} | secret
    elif isinstance(value, list | tuple):
        shown = tuple(_public(each, mask) for each in value)
    elif is_dataclass(value):
        values = {name: _public(each, mask) for name, each in vars(value).items()}
        shown = replace(cast("Any", value), **values)
    return value if shown == value else cast("_T", shown)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts within a value; words of a command in one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        yield " ".join(each for each in value if isinstance(each, str))
        for each in value:
            yield from () if isinstance(each, str) else _texts(each)
    elif is_dataclass(value):
        yield from _texts(vars(value))


def written_forms(secret: str, min_length: int) -> set[str]:
    """Return the secret as it may be written, each form with at min_length that many characters."""
    forms = {secret, repr(secret)[1:-1], shlex.quote(secret), re.sub(r"([^\w@%+=:,./-])", r"\\\1", secret)}
    forms |= {html.escape(secret), html.escape(secret, quote=False), secret.replace("/", "\\/")}
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        forms |= {once, json.dumps(once)[1:-1], once.replace("/", "\\/")}
    for escaped in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        lower = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
        forms |= {escaped, lower, quote(escaped, safe="")}
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


def is_private(url: str) -> bool:
    """Return whether messages to that URL cannot be read on the way: HTTPS, or a private address."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "https":
            return bool(parts.hostname)
        host = parts.hostname or ""
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_private)
    except ValueError:
        return False


def check_address(url: str) -> None:
    """Raise ValueError, whose text does not repeat the URL, where no notification can be sent to it."""
    if not _ADDRESS.fullmatch(url):
        raise ValueError(f"expected {EXPECTED}")


def shown_address(url: str) -> str:
    """Return a valid URL without its secret part; in one of Apprise, even the host may be a token."""
    found = _ADDRESS.fullmatch(url)
    return f"{found[1] or found[2]}/…" if found else "…"
