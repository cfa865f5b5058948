"""The evidence on the end of a run, and what to try next: what `why` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.launcher import core
from vastrun.launcher.commands.chains import NO_OTHER, continuation_of, has_checkpoint
from vastrun.launcher.commands.queries import RunRow, diary_of, lease_end, row_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core.left_out import NONE_LEFT_OUT
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.decisions.job_shape import StageCost, stage_costs
from vastrun.launcher.decisions.slow_training import IDLE_GPUS, SLOW_MACHINE, idle_gpus_text
from vastrun.launcher.gate.manifest import INCOMING
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.core.runs import CodeRecord

_DOWNLOADED = re.compile(r"checkpoint ((step-\d+) (?:downloaded|usable), [^;]*)")
_NAMED = re.compile(r"'([^'\0]{1,300})'|\"([^\"\0]{1,300})\"|([\w./-]{1,300})")
_MAX_NAMES = 100


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All evidence on the end of a run."""

    row: RunRow
    outcome: Outcome | None
    advice: str
    """Advice: what to try next."""
    stacks: tuple[str, ...] = ()
    """Files on this computer with the stacks of a hang."""
    last_event: core.Event | None = None
    steps: tuple[core.StepEnd, ...] = ()
    """Steps of its box, as far as they were downloaded."""
    left_out: core.LeftOutFiles = NONE_LEFT_OUT
    """Files of its program that are not on this computer."""
    idle_gpus: str = ""
    """Sentence on GPUs that worked less than half of the time, and why; empty: not seen."""
    not_retried: str = ""
    """Sentence on another attempt that was due and not begun, and what begins it; empty: none was."""
    slow_machine: str = ""
    """Sentence on a machine that trained far below its kind's speed; empty: it did not."""
    code: CodeRecord | None = None
    """The code that was shipped; None: it had none, or nothing was downloaded."""
    home: str = ""
    """The newest checkpoint that was downloaded before the outputs, and its age; empty: none, or they are."""

    @property
    def stages(self) -> Sequence[StageCost]:
        """All stages of a job that trains several."""
        ends = self.outcome.stages if self.outcome else ()
        return stage_costs(self.row.run, ends, self.row.usd_per_hour)

    @property
    def scores(self) -> Mapping[str, float]:
        """Its scores by name; empty where none were downloaded."""
        return (self.outcome.scores if self.outcome else None) or {}

    @property
    def lease_ends_at(self) -> float | None:
        """Epoch seconds at which the lease ends its machine; None without a machine."""
        return lease_end(self.row.run)


def explain(ledger: Ledger, run: core.Run, now: float) -> Explanation:
    """Gather the evidence on a run."""
    outputs = Outputs(run)
    events = [event for event in diary_of(ledger, run) if not event.told]
    stacks = sorted(str(path) for path in outputs.path(layout.STACKS).glob("rank-*.txt"))
    outcome = outputs.outcome()
    idle = None if outcome is None else outcome.idle_gpus
    rejected = "" if continuation_of(ledger, run) else _last_text(events, NO_OTHER)
    return Explanation(
        row=row_of(ledger, run, now),
        outcome=outcome,
        # By the evidence, else by the last report while it ran.
        idle_gpus=idle_gpus_text(idle) if idle else _last_text(events, IDLE_GPUS),
        slow_machine=_last_text(events, SLOW_MACHINE),
        not_retried=rejected and f"{rejected}; once that has changed: vastrun resume {run.id}",
        advice=_advice(ledger, run),
        stacks=tuple(stacks),
        last_event=events[-1] if events else None,
        steps=outputs.steps(),
        left_out=outputs.left_out(),
        code=outputs.code(),
        home="" if outcome else _home(events, run, now, outputs.folder),
    )


def _home(events: Sequence[core.Event], run: core.Run, now: float, folder: Path) -> str:
    """Describe the newest checkpoint here, and name one whose download has begun."""
    ended_at = run.ended_at
    incoming = max((path.stem for path in (folder / INCOMING).glob("step-*")), default="")
    for event in reversed(events):
        if found := _DOWNLOADED.match(event.text):
            minutes = ((ended_at or now) - event.at) / 60
            when = f"{minutes:.0f} min {'before the run ended' if ended_at else 'ago'}"
            newer = f"; {incoming} is not whole" if incoming not in ("", found[2]) else ""
            return f"{found[1]}, {when}{newer}"
    if run.cause is core.Cause.OUTPUTS_LOST and not incoming:
        return "no checkpoint; the log and metrics until its last answer"
    return f"no checkpoint; {incoming} is not whole" if incoming else ""


def _advice(ledger: Ledger, run: core.Run) -> str:
    """Name one thing to do next: with a run that goes on already, nothing is to be started."""
    if run.cause is None or (later := continuation_of(ledger, run)) is None:
        return advice_for(run, checkpoint=has_checkpoint(ledger, run), not_shipped=missing_file(run))
    if later.phase is not core.Phase.ENDED:
        return f"{later.id} continues it: vastrun attach {later.id}"
    return f"{later.id} continued it and ended {later.verdict}: vastrun why {later.id}"


def _last_text(events: Sequence[core.Event], begins: str) -> str:
    """Return the last report that begins so; empty: there is none."""
    return next((event.text for event in reversed(events) if event.text.startswith(begins)), "")


def missing_file(run: core.Run) -> str:
    """Say what the program names that was not shipped, why, and what to add to the job: "conf/local.yaml is
    ignored by git, so it was not uploaded; add it to code.include".

    Empty where the run failed for another reason. Its machine words the detail: the names in it are only
    looked for within the code folder.
    """
    if run.cause is not core.Cause.USER_ERROR:
        return ""
    from vastrun.launcher.bundle.checkout import data_entry, why_not_shipped  # slow to import: all that packs

    spec = read_job(run.spec_json)
    names = (word.rstrip(".") for found in _NAMED.findall(run.detail) for word in found if word)
    for named in dict.fromkeys(islice(names, _MAX_NAMES)):
        path = str(PurePosixPath(named))
        if path.startswith("/"):  # in the code folder of the machine
            path = path.partition(f"/{layout.CODE}/")[2] or path
        if found := why_not_shipped(path, spec):
            name, why = found
            remedy = f"data: [{data_entry(name, spec)}]" if name.endswith("/") else "it to code.include"
            return f"{name} is {why}, so it was not uploaded; add {remedy}"
    return ""
