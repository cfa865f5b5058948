"""printable(): text of any origin, as a terminal may be given it."""

from __future__ import annotations

import re
import unicodedata

from vastrun.launcher.gate import caps

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and its like: the window's title, the clipboard
    r"|\x1b[ -/]*[0-~]"
)
_KEPT = "\n\t"
_NO_WIDTH = re.compile("[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Printable by Python's word, and not to be seen: joiners, selectors of variants."""
_BLANK = re.compile("[\u115f\u1160\u2800\u3164\uffa0\U0001d159]")
"""The same, with a width: fillers of Hangul, an empty pattern of Braille, a note without a head."""
_MARKS = re.compile(r"[^\x00-\u02ff]{5,}")
"""Five characters in a row that are not Latin; four or fewer cannot exceed the limit of marks."""


def printable(text: str) -> str:
    """Return the text without all that would steer a terminal, or show it in another order than it is.

    Line breaks and tabs stay. Characters of no width and those that change the direction of writing are left
    out, other spaces and blanks become plain spaces, and what no font has becomes U+FFFD. Of many marks on
    one character the first few stay.
    """
    if not text.replace("\n", "").replace("\t", "").isprintable():
        text = "".join(c if c.isprintable() or c in _KEPT else _instead(c) for c in _ESCAPE.sub("", text))
    if text.isascii():
        return text
    return _MARKS.sub(lambda found: _few_marks(found[0]), _BLANK.sub(" ", _NO_WIDTH.sub("", text)))


def one_line(text: str) -> str:
    """Return the text as `printable` does, on one line."""
    return printable(" ".join(text.split("\n")))


def last_lines(text: str, count: int, chars: int) -> tuple[str, ...]:
    """Return the last `count` lines that are not blank, as `printable` does, each cut to `chars`."""
    lines = (printable(line).strip()[:chars] for line in re.split(r"[\n\r]", text)[-20 * count :])
    return tuple(line for line in lines if line)[-count:]


def _few_marks(text: str) -> str:
    """Drop further marks of a character: they would cover the lines above and below."""
    shown, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= caps.COMBINING_MARKS:
            shown.append(character)
    return "".join(shown)


def _instead(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Cf"):
        return ""
    return " " if category.startswith("Z") else "\ufffd"
