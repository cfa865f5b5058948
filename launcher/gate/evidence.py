"""evidence_of(): what a training that is over has left: its outcome, the ends of its steps, its exit code."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated

from vastrun.contract import layout
from vastrun.contract.outcome import ExitCode, Outcome, Seconds
from vastrun.contract.records import RecordError, Text, read_as, read_json
from vastrun.launcher.core import Evidence, StepEnd
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line


@dataclass(frozen=True, kw_only=True)
class _StepEnd:
    """A line of `run/steps.jsonl`."""

    step: Annotated[str, Text(100)]
    exit_code: ExitCode
    seconds: Seconds = 0.0
    stop: Annotated[str, Text(20)] = ""
    last_line: Annotated[str, Text(400)] = ""


def evidence_of(
    outcome: bytes, steps: bytes, exit_code: int | None, *, damaged: tuple[str, ...] | None = None
) -> Evidence:
    """Read the files of evidence. What is invalid is told, and counts as not there."""
    nonsense = ""
    try:
        read = outcome_of(outcome)
    except RecordError as error:
        read, nonsense = None, f"{layout.OUTCOME}: {error}"
    ends = step_ends_of(steps)
    return Evidence(outcome=read, steps=ends, exit_code=exit_code, damaged=damaged, nonsense=nonsense)


def outcome_of(content: bytes) -> Outcome | None:
    """Read `run/outcome.json`; None when there is none. Raises RecordError when it is not an outcome."""
    return Outcome.from_json(content) if content else None


def step_ends_of(content: bytes) -> tuple[StepEnd, ...]:
    """Read `run/steps.jsonl`, in order; a line that is not whole is left out."""
    found = []
    for line in content.split(b"\n", caps.BOOT_STEPS)[: caps.BOOT_STEPS]:
        with suppress(RecordError):
            end: _StepEnd = read_json(_StepEnd, line.decode("utf-8", "replace"))
            found.append(StepEnd(**asdict(end) | {"last_line": one_line(end.last_line).strip()}))
    return tuple(found)


def exit_code_of(content: bytes) -> int | None:
    """Read `run/exit`; None when there is none, or it is no exit code."""
    with suppress(ValueError):
        code: int = read_as(ExitCode, int(content))
        return code
    return None
