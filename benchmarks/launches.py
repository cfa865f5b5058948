"""A job of 20 steps by two ranks: by `vastrun launch` on this computer, and by `torchrun` by hand."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.box import QUIET, config, prepare, train_by_hand
from benchmarks.figures import rounds_of
from vastrun.contract import layout

STEPS = 20

_JOB = f"""\
name: bench
resources: {{gpus: 0}}
ranks: 2
train: {{steps: {STEPS}, batch: 128, log_every: 10}}
limits: {{hours: 0.2}}
"""


@dataclass(frozen=True, kw_only=True)
class TimedLaunch:
    """What somebody sees who types a command, in seconds after it."""

    first_step_s: float
    last_step_s: float
    whole_s: float
    """Until the command has ended: of a launch, with its verdict."""


def timed_launches(rounds: int) -> tuple[list[TimedLaunch], list[TimedLaunch]]:
    """Ours and the bare ones, in turns."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as root:

        def new(launch: Callable[[Path], TimedLaunch]) -> TimedLaunch:
            return launch(Path(root) / f"launch-{next(numbers)}")

        new(launched)  # not counted: the first one may still compile Python's modules
        measured = rounds_of([lambda: new(launched), lambda: new(by_hand)], rounds)
    return [vastrun_s for vastrun_s, _ in measured], [bare for _, bare in measured]


def launched(folder: Path) -> TimedLaunch:
    """With all that belongs to it: machine, data, training, scores, outputs, verdict."""
    folder.mkdir()
    job = folder / "job.yaml"
    job.write_text(_JOB)
    vastrun = Path(sys.executable).with_name("vastrun")
    began = time.time()
    subprocess.run(
        [str(vastrun), "launch", str(job), "--provider", "local", "--out", str(folder / "out")],
        check=True,
        env={**os.environ, **QUIET, "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines = (folder / "out" / Path(layout.METRICS).name).read_text().splitlines()
    return _ride(began, [json.loads(line) for line in lines])


def by_hand(folder: Path) -> TimedLaunch:
    """The bare loop with as many steps; its data are there before."""
    box = prepare(folder, replace(config(STEPS), strategy="ddp"))
    began = time.time()
    return _ride(began, train_by_hand(box))


def _ride(began: float, records: list[dict[str, float]]) -> TimedLaunch:
    return TimedLaunch(
        first_step_s=records[0]["at"] - began,
        last_step_s=records[-1]["at"] - began,
        whole_s=time.time() - began,
    )
