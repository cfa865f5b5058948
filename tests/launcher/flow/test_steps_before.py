"""From which step a run continues that follows another one, as far as the ledger knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.config import dump_job
from launcher.core import Phase, Run
from launcher.core.job import JobSpec
from launcher.flow.renting import steps_before
from launcher.ledger.sqlite import SqliteLedger
from tests.jobs import train_job
from trainer.contract.config import ModelConfig

JOB = train_job()


def trains(**changes: Any) -> JobSpec:
    assert JOB.train is not None
    return replace(JOB, train=replace(JOB.train, **changes))


def ledger_with(*runs: tuple[str, str | None, int, JobSpec]) -> SqliteLedger:
    """Rows of runs: id, parent, step and job."""
    ledger = SqliteLedger(Path(":memory:"), now=lambda: 0.0, alive=lambda _: True)
    for run_id, parent, step, spec in runs:
        ledger.add(
            Run(
                id=run_id,
                parent=parent,
                step=step,
                spec_json=dump_job(spec),
                job="demo",
                provider="fake",
                phase=Phase.ENDED,
                out_dir=f"/o/{run_id}",
                created_at=0.0,
                phase_at=0.0,
            )
        )
    return ledger


@pytest.mark.parametrize(
    ("rows", "parent", "step"),
    [
        ((), None, 0),
        ((("a", None, 0, JOB),), "a", 0),
        ((("a", None, 1, JOB),), "a", 1),
        ((("a", None, 70, JOB), ("b", "a", 0, JOB)), "b", 70),
        ((("a", None, 70, JOB), ("b", "a", 90, JOB)), "b", 90),
        ((("a", None, 70, trains(seed=7)),), "a", 70),
        ((("a", None, 70, trains(model=ModelConfig(dim=128))),), "a", 0),
        ((("a", None, 70, JOB), ("b", "a", 90, trains(stage="refine"))), "b", 0),
    ],
    ids=[
        "nothing before",
        "no step",
        "one step",
        "the run before the last",
        "the last",
        "another seed",
        "another model",
        "another stage",
    ],
)
def test_the_newest_run_that_has_steps_counts_where_its_steps_are_the_same_work(
    rows: tuple[tuple[str, str | None, int, JobSpec], ...], parent: str | None, step: int
) -> None:
    assert steps_before(JOB, parent, ledger_with(*rows)) == step
