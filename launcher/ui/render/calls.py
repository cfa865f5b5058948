"""Calls of a transcript in text."""

from __future__ import annotations

import json

from vastrun.launcher.gate.text import one_line
from vastrun.launcher.transcript.reader import CallEntry
from vastrun.launcher.ui.render.table import short

_MAX_COLUMNS = 160


def call_text(call: CallEntry) -> str:
    """Write one line with the call, its result and its duration."""
    about = " ".join(f"{key}={_word(value)}" for key, value in call.about.items())
    if call.error is not None:
        end = f"{call.error.type}: {call.error.text}"
    else:
        end = "ok" if call.answer is None else _word(call.answer)
    repeats = f" ({call.alike} alike before)" if call.alike else ""
    return (
        short(one_line(f"         {call.verb} {about} [{call.run_durations_s:.2f} s] {end}"), _MAX_COLUMNS)
        + repeats
    )


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
