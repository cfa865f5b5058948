"""printable(): text of any origin, as a terminal may be given it."""

from __future__ import annotations

import re
import unicodedata

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and its like: the window's title, the clipboard
    r"|\x1b[ -/]*[0-~]"
)
_KEPT = "\n\t"


def printable(text: str) -> str:
    """Return the text without all that would steer a terminal, or show it in another order than it is.

    Line breaks and tabs stay. Characters of no width and those that change the direction of writing are left
    out, other spaces and separators become plain spaces, and what no font has becomes U+FFFD.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else _instead(c) for c in _ESCAPE.sub("", text))


def one_line(text: str) -> str:
    """Return the text as `printable` does, on one line."""
    return printable(" ".join(text.split("\n")))


def last_lines(text: str, count: int, chars: int) -> tuple[str, ...]:
    """Return the last `count` lines that are not blank, as `printable` does, each cut to `chars`."""
    lines = (printable(line).strip()[:chars] for line in re.split(r"[\n\r]", text)[-20 * count :])
    return tuple(line for line in lines if line)[-count:]


def _instead(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Cf"):
        return ""
    return " " if category.startswith("Z") else "\ufffd"
