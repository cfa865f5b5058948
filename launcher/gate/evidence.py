"""Evidence of a finished training: its outcome, the results of its boot steps, its exit code."""

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


def parse_evidence(
    outcome: bytes, steps: bytes, exit_code: int | None, *, damaged: tuple[str, ...] | None = None
) -> Evidence:
    """Parse the files of evidence. An invalid file counts as missing, and is reported as `nonsense`."""
    nonsense = ""
    try:
        read = parse_outcome(outcome)
    except RecordError as error:
        read, nonsense = None, f"{layout.OUTCOME}: {error}"
    ends = parse_step_ends(steps)
    return Evidence(outcome=read, steps=ends, exit_code=exit_code, damaged=damaged, nonsense=nonsense)


def parse_outcome(content: bytes) -> Outcome | None:
    """Parse `run/outcome.json`; None when it is empty. Raises RecordError when it is not an outcome."""
    return Outcome.from_json(content) if content else None


def parse_step_ends(content: bytes) -> tuple[StepEnd, ...]:
    """Parse `run/steps.jsonl` in order; incomplete lines are skipped."""
    found = []
    for line in content.split(b"\n", caps.BOOT_STEPS)[: caps.BOOT_STEPS]:
        with suppress(RecordError):
            end: _StepEnd = read_json(_StepEnd, line.decode("utf-8", "replace"))
            found.append(StepEnd(**asdict(end) | {"last_line": one_line(end.last_line).strip()}))
    return tuple(found)


def parse_exit_code(content: bytes) -> int | None:
    """Parse `run/exit`; None when it is empty or not an exit code."""
    with suppress(ValueError):
        code: int = read_as(ExitCode, int(content))
        return code
    return None
