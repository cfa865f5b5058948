"""Seconds from the command to the first optimiser step, beside `torchrun` by hand on data that is there."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.box import QUIET, config, prepare, train_by_hand
from benchmarks.figures import in_turns, show
from trainer import layout

ROUNDS = 5

JOB = """\
name: bench
resources: {{gpus: 0}}
ranks: 2
train: {{steps: 20, batch: 128, log_every: 10}}
limits: {{hours: 0.2}}
"""


def run() -> None:
    """Prints one line."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as root:

        def launch() -> float:
            return _launch(Path(root) / f"launch-{next(numbers)}")

        def by_hand() -> float:
            box = prepare(Path(root) / f"box-{next(numbers)}", replace(config(20), strategy="ddp"))
            began = time.time()
            return train_by_hand(box)[0]["at"] - began

        pair = in_turns(launch, by_hand, ROUNDS)
    show("to the first step", pair, "s", f"{pair.difference:.1f} s more than torchrun by hand (at most 4)")


def _launch(folder: Path) -> float:
    folder.mkdir()
    job = folder / "job.yaml"
    job.write_text(JOB.format())
    vastrun = Path(sys.executable).with_name("vastrun")
    began = time.time()
    subprocess.run(
        [str(vastrun), "launch", str(job), "--provider", "local", "--out", str(folder / "out")],
        check=True,
        env={**os.environ, **QUIET, "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = folder / "out" / Path(layout.METRICS).name
    return float(json.loads(metrics.read_text().splitlines()[0])["at"]) - began
