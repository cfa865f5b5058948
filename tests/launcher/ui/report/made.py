"""A made-up batch with the runs of its points, their curves and what they cost: for pages of any size."""

import json
import math
import random
from pathlib import Path

from tests.jobs import train_job
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchObjective, BatchPoint, BatchSpec
from vastrun.launcher.ledger.sqlite import SqliteLedger

NOW = 1.8e9
NAME = "widths"


def made_batch(folder: Path, points: int, *, steps: int = 600, seed: int = 0) -> SqliteLedger:
    """A ledger with a batch of so many points that have all ended; their metrics lie in the folder."""
    chance = random.Random(seed)
    ledger = SqliteLedger(folder / "ledger.db", now=lambda: NOW, alive=lambda _: True)
    batch = Batch(
        name=NAME,
        spec=BatchSpec(
            name=NAME,
            job="job.yaml",
            objective=BatchObjective(metric="loss"),
            limits=BatchLimits(usd=1 + points * 0.5),
        ),
        provider="vast",
        folder=str(folder),
        created_at=NOW - 9e4,
        opened_at=NOW - 9e4,
    )
    made = [_point(number, chance) for number in range(1, points + 1)]
    ledger.batches.submit(batch, made)
    for number, point in enumerate(made):
        run = _run(number, point, folder, chance)
        ledger.add(run)
        _write_metrics(run, point, steps, chance)
    return ledger


def _point(number: int, chance: random.Random) -> BatchPoint:
    values = {
        "train.optim.lr": round(10 ** chance.uniform(-4, -1.5), 6),
        "train.model.dim": chance.choice([32, 64, 96, 128, 192]),
        "train.model.depth": chance.randint(2, 8),
        "train.optim.name": chance.choice(["adamw", "muon"]),
    }
    return BatchPoint(id=f"{number:010x}", values=values, spec_json=dump_job(train_job()), number=number)


def _run(number: int, point: BatchPoint, folder: Path, chance: random.Random) -> Run:
    cause = chance.choices([None, Cause.PRUNED, Cause.OUT_OF_MEMORY], [16, 3, 1])[0]
    began, hours = NOW - 8e4 + number, chance.uniform(0.2, 1.5) * (1 if cause is None else 0.3)
    return a_run(
        id=f"calm-heron-{number:04x}",
        spec_json=point.spec_json,
        provider="vast",
        phase=Phase.ENDED,
        out_dir=str(folder / f"{number:04d}"),
        created_at=began,
        phase_at=began + hours * 3600,
        host=f"m{number % 40}",
        usd_per_hour=0.4,
        rented_at=began,
        released_at=began + hours * 3600,
        ended_at=began + hours * 3600,
        cause=cause,
        step=600,
        steps=600,
        batch=NAME,
        point=point.id,
    )


def _write_metrics(run: Run, point: BatchPoint, steps: int, chance: random.Random) -> None:
    """A loss that falls the faster, the nearer the rate is to a good one, and the wider the model."""
    out = Path(run.out_dir)
    out.mkdir()
    off = abs(math.log10(point.values["train.optim.lr"]) + 2.6)
    floor = 0.02 + 0.05 * off + 1.5 / point.values["train.model.dim"] / point.values["train.model.depth"]
    reached = steps if run.cause is None else steps // 4
    lines = []
    for step in range(0, reached, 2):
        loss = floor + 0.9 * math.exp(-step / (40 + 60 * off)) + chance.gauss(0, 0.01 * floor)
        lines.append(json.dumps({"step": step, "loss": max(loss, 1e-4), "lr": 0.001}))
    (out / "metrics.jsonl").write_text("\n".join(lines) + "\n")
