"""Program: how a job's program is started and watched on its machine. Standard library only.

The launcher writes it into `job.json`. The machine's part reads nothing else of what the program is.

The steps of a run count on through its stages: names of checkpoints, metrics and progress rise from the first
step of the first stage to the last step of the last one, and the step tells the stage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from vastrun.contract import layout
from vastrun.contract.outcome import Line, Name, Step
from vastrun.contract.records import MaxLength, read_json

RESUME = "VASTRUN_RESUME"
"""Environment variable with the path of the restored checkpoint; empty on a fresh start."""
PLACEHOLDER = re.compile(r"(?<!\$)\{resume(?::([^\s{}'\"]+))?\}")
"""Matches `{resume:--resume-from}`, but not `${resume}`, which the shell expands."""
_NOT_PLAIN = re.compile(r"[^\w.,:+=@%^/-]|(?<![^/])-")
"""Characters that a shell may read as more than a part of a name: `$`, quotes, blanks, a dash in front."""
_OF_SCRIPTS = re.compile(r"[\s;&|<>()`$]")
"""Characters that no option has: a word with one of them may be a script, whatever program reads it."""


@dataclass(frozen=True, kw_only=True)
class StageSpan:
    """One stage, and its steps among those of the run."""

    name: str
    number: int
    """Its place in the run, from 0."""
    first_step: int
    """Steps of the run before this stage."""
    steps: int

    @property
    def end_step(self) -> int:
        """Return the step of the run after which this stage is trained."""
        return self.first_step + self.steps


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """The result of a finished stage: an item of `run/stages.json`, and of the checkpoints after it."""

    stage: Name
    first_step: Step
    steps: Step
    loss: float | None = None
    """Last logged loss."""
    scores: Annotated[Mapping[Name, float], MaxLength(1000)]
    missed: Line | None = None
    """Conditions of its gate that the scores miss; None: it passed."""
    run_id: Name
    """Run that finished it: this one, or one that it continues."""

    def is_of(self, span: StageSpan) -> bool:
        """Tell whether this is the result of that stage."""
        return (self.stage, self.first_step, self.steps) == (span.name, span.first_step, span.steps)


def spans_of(stages: Sequence[tuple[str, int]]) -> tuple[StageSpan, ...]:
    """Return the span of each stage, from names and steps."""
    spans, first_step = list[StageSpan](), 0
    for number, (name, steps) in enumerate(stages):
        spans.append(StageSpan(name=name, number=number, first_step=first_step, steps=steps))
        first_step += steps
    return tuple(spans)


def read_records(box: Path) -> tuple[StageRecord, ...]:
    """Read the results of the finished stages; none where there are none, or they are malformed."""
    try:
        return read_json(tuple[StageRecord, ...], (box / layout.STAGES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()


def finished_steps(box: Path) -> int:
    """Return the steps of the run in its finished stages; 0 where it has none."""
    return sum(record.steps for record in read_records(box))


@dataclass(frozen=True, kw_only=True)
class PrepareStep:
    """A module that runs once on each machine before the ranks start."""

    name: str
    """`40-data`: the number is its place among the steps of a box; without one only a rehearsal runs it."""
    module: str
    arguments: tuple[str, ...] = ()
    cause: str = "setup"
    """Cause of a run that ends in it."""


@dataclass(frozen=True, kw_only=True)
class ProgramSpec:
    """The program of a job, as plain data."""

    kind: str
    """Section of the job file that describes it; `hold`: a machine that is held has none."""
    argv: tuple[str, ...] = ()
    """Command line of a rank; empty: `module`."""
    module: str = ""
    """Module that a rank runs with the machine's Python; it finds modules of the user's code."""
    package: str = ""
    """Package that has the module, and may have a `requirements.txt` with hashes; empty: none is shipped."""
    config: Mapping[str, Any] | None = None
    """Options that only the program itself reads."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the ranks that the job's `env:` overrides."""
    prepare: tuple[PrepareStep, ...] = ()
    preload: tuple[str, ...] = ()
    """Modules that the ranks need, imported once before they start: each rank is then a fork."""
    torch: tuple[str, str] | None = None
    """Oldest torch for it, and the first that is too new, as `2.11`; None: it may need none."""
    python: str = ""
    """Oldest Python for it; empty: any."""
    keeps_records: bool = False
    """Every rank writes a heartbeat and its end, rank 0 checkpoints, metrics, scores and its trackers' runs,
    as `docs/box.md` says. False: what it writes is looked for."""
    uses_gloo: bool = False
    """Its ranks talk by gloo, with GPUs too."""
    stages: tuple[StageSpan, ...] = ()
    """Its steps, in stages; empty: it has no known end."""
    activity_timeouts_s: Mapping[str, float] = field(default_factory=dict)
    """Maximum seconds without progress in single activities."""
    max_restarts: Mapping[str, int] = field(default_factory=dict)
    """Maximum restarts of its ranks by cause, where the job has no `restarts:`; a missing cause means 0."""
    global_batch_size: int | None = None
    """Fewer ranks, one for each GPU, may go on if their number divides it; None: their number is fixed."""
    out_of_memory: Literal["again", "halve", "fail"] = "again"
    """Restart after out-of-memory: as before; with half of the micro-batch, in VASTRUN_MICRO_BATCH; none."""
    wandb_closer: str | None = None
    """Module that ends the W&B run which a killed rank left open."""

    @property
    def total_steps(self) -> int:
        """Return the steps of all stages; 0: unknown."""
        return self.stages[-1].end_step if self.stages else 0

    @property
    def folder(self) -> Path | None:
        """Return the folder of its package here; None: it has none."""
        return package_folder(self.package)


def package_folder(package: str) -> Path | None:
    """Return the folder of a package; None: there is none of that name here."""
    found = find_spec(package) if package else None
    return Path(found.origin).parent if found and found.origin else None


def plain_name(name: str) -> str:
    """Return the path with `_` for each character that a shell may read as more than a part of a name."""
    return _NOT_PLAIN.sub("_", name)


def with_resume(program: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return the command line with its placeholders replaced; `path` is empty on a fresh start.

    A word that is a placeholder alone disappears on a fresh start. In a script a plain path stands as text,
    which reads the same in every language and quote; any other path is left to the shell's variable.
    """
    return tuple(part for word in program for part in _filled(word, path))


def _filled(word: str, path: str) -> tuple[str, ...]:
    whole = PLACEHOLDER.fullmatch(word)
    if whole is None:
        is_expanded = plain_name(path) != path and _OF_SCRIPTS.search(PLACEHOLDER.sub("", word))

        def replacement(found: re.Match[str]) -> str:
            if is_expanded:
                return f'${{{RESUME}:+{_option(found)}"${RESUME}"}}'
            return f"{_option(found)}{path}" if path else ""

        return (PLACEHOLDER.sub(replacement, word),)
    if not path:
        return ()
    is_joined = whole[1] is None or whole[1].endswith("=")
    return (f"{_option(whole)}{path}",) if is_joined else (whole[1], path)


def _option(found: re.Match[str]) -> str:
    """Return the option with a blank after it; `{resume:--from=}` and `{resume:key=}` join without one."""
    return f"{found[1]}{'' if found[1].endswith('=') else ' '}" if found[1] else ""
