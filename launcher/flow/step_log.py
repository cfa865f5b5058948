"""Step log: which lines of the box's log belong before the name of an onstart step."""

from __future__ import annotations

import re

_STEP_LINE = re.compile(r"^\d+\.\d+ (?P<step>\d\d-\S+) .*\n", re.MULTILINE)
"""A line that an onstart step wrote (docs/box.md)."""


def split_at(text: str, step: str) -> tuple[str, str]:
    """Split text of the log after the last line of the steps before `step`, such as "40-data".

    Steps are run in the order of their names. One that was started before its turn may write among them.
    """
    ends = [line.end() for line in _STEP_LINE.finditer(text) if line["step"] < step]
    end = ends[-1] if ends else 0
    return text[:end], text[end:]
