"""Sanitizing of text from any source before a terminal shows it."""

from __future__ import annotations

import re
import unicodedata

from vastrun.launcher.gate import caps

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and its like: the window's title, the clipboard
    r"|\x1b[ -/]*[0-~]"
)
_NO_WIDTH = re.compile("[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Invisible characters that Python calls printable: joiners, variation selectors."""
_BLANK = re.compile("[\u115f\u1160\u2800\u3164\uffa0\U0001d159]")
"""Invisible characters with a width: Hangul fillers, the empty Braille pattern, a note without a head."""
_MARKS = re.compile(r"[^\x00-\u02ff]{5,}")
"""Five consecutive characters that are not Latin; four or fewer cannot exceed the limit of marks."""


def printable(text: str) -> str:
    """Remove everything that controls a terminal or changes the order in which text is shown.

    Line breaks and tabs stay. Characters of no width and those that change the direction of writing are
    removed, other spaces and blanks become plain spaces, other unprintable characters become U+FFFD. Only the
    first few combining marks of a character stay.
    """
    if not text.replace("\n", "").replace("\t", "").isprintable():
        text = "".join(
            c if c.isprintable() or c in "\n\t" else _replacement(c) for c in _ESCAPE.sub("", text)
        )
    if text.isascii():
        return text
    return _MARKS.sub(lambda found: _limit_marks(found[0]), _BLANK.sub(" ", _NO_WIDTH.sub("", text)))


def one_line(text: str) -> str:
    """Sanitize the text with `printable`, and join its lines with spaces."""
    return printable(" ".join(text.split("\n")))


def last_lines(text: str, count: int, chars: int) -> tuple[str, ...]:
    """Return the last `count` lines that are not blank, sanitized with `printable` and cut to `chars`."""
    lines = (printable(line).strip()[:chars] for line in re.split(r"[\n\r]", text)[-20 * count :])
    return tuple(line for line in lines if line)[-count:]


def _limit_marks(text: str) -> str:
    """Drop excess combining marks of a character: they would cover the lines above and below."""
    shown, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= caps.COMBINING_MARKS:
            shown.append(character)
    return "".join(shown)


def _replacement(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Cf"):
        return ""
    return " " if category.startswith("Z") else "\ufffd"
