"""W&B's end: where rank 0 could not say how the training ended, or said otherwise, W&B is told the truth.

A rank that is killed leaves a run that W&B hears no more of, and calls crashed. A process of its own ends
that run. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.contract.outcome import Outcome
from trainer.contract.run_module import module_command
from trainer.supervision.environment import rank_environment
from trainer.supervision.evidence import read_wandb
from trainer.supervision.processes import kill_descendants
from trainer.supervision.restarts import Start

_END_S = 40.0
"""W&B's own limits are within it: the machine costs money meanwhile."""
_KILL_S = 2.0
_COMMAND = module_command("trainer.telemetry.tracking")


def end_wandb(box: Path, job: Job, outcome: Outcome, exit_code: int) -> Outcome:
    """Return the outcome, with what W&B says of it now."""
    run = outcome.wandb
    truth: Literal["finished", "failed"] = "finished" if exit_code == 0 else "failed"
    if run is None or run.mode == "off" or run.state == truth or outcome.kind != "train":
        return outcome
    if run.mode == "offline" and truth == "failed" and run.state == "crashed":
        # A run without an end is a failed one for `wandb sync`.
        return replace(outcome, wandb=replace(run, state=truth))
    with (
        suppress(subprocess.TimeoutExpired, OSError),
        (box / layout.RAW_LOGS / "wandb.log").open("ab") as log,
    ):
        subprocess.Popen(
            [*_COMMAND, str(exit_code)],
            cwd=box,
            env=rank_environment(job, Start(world_size=job.ranks), box, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).wait(_END_S)
    kill_descendants(within_s=_KILL_S)
    return replace(outcome, wandb=read_wandb(box))
