"""How the steps of a run on its box ended."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """A step that was done."""

    step: str
    """`40-data`."""
    exit_code: int
    seconds: float


def step_ends(steps_jsonl: str | None) -> tuple[StepEnd, ...]:
    """Of `run/steps.jsonl`, in order; a line that is not whole is left out."""
    return tuple(filter(None, map(_read, (steps_jsonl or "").splitlines())))


def _read(line: str) -> StepEnd | None:
    with suppress(ValueError, KeyError, TypeError):
        told = json.loads(line)
        seconds = float(told.get("seconds", 0.0))
        return StepEnd(step=str(told["step"]), exit_code=int(told["exit_code"]), seconds=seconds)
    return None
