"""The step from which a run continues another, and offers that other open runs have ordered."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.terminal import CRASH, Market, Terminal
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Instance, Phase, RentalOrder
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.progress import resumed_step
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.trainer.job.config import ModelConfig

JOB = train_job()


def trains(**changes: Any) -> JobSpec:
    assert JOB.train is not None
    return replace(JOB, train=replace(JOB.train, **changes))


def ledger_with(*runs: tuple[str, str | None, int, JobSpec]) -> SqliteLedger:
    """Rows of runs: id, parent, step and job."""
    ledger = SqliteLedger(Path(":memory:"), now=lambda: 0.0, alive=lambda _: True)
    for run_id, parent, step, spec in runs:
        ledger.add(
            a_run(
                id=run_id,
                parent=parent,
                step=step,
                spec_json=dump_job(spec),
                provider="fake",
                phase=Phase.ENDED,
                out_dir=f"/o/{run_id}",
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
    assert resumed_step(JOB, parent, ledger_with(*rows)) == step


class CrowdedMarket(Market):
    """At its first order something else is done before it answers."""

    def __init__(self, terminal: Terminal, *trainings: Training) -> None:
        super().__init__(terminal.clock, [*trainings, Training()], usd_per_hour=0.8)
        self.orders: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def rent(self, order: RentalOrder) -> Instance:
        self.orders.append(order.offer.id)
        if len(self.orders) == 1:
            self.meanwhile()
        return super().rent(order)


def test_an_offer_that_another_open_run_has_ordered_comes_last(terminal: Terminal) -> None:
    terminal.market = market = CrowdedMarket(terminal)
    market.meanwhile = terminal.launch
    assert terminal.launch().exit_code == 0
    assert market.orders == ["offer-1", "offer-2"]
    assert [str(run.verdict) for run in terminal.ledger.runs()] == ["SUCCEEDED", "SUCCEEDED"]


def test_one_that_an_ended_run_had_is_ordered_again(terminal: Terminal) -> None:
    terminal.market = market = CrowdedMarket(terminal)
    assert terminal.launch().exit_code == terminal.launch().exit_code == 0
    assert market.orders == ["offer-1", "offer-1"]


def test_a_retry_prefers_a_machine_on_which_the_job_has_not_failed(terminal: Terminal) -> None:
    terminal.market = market = CrowdedMarket(terminal, CRASH)
    assert terminal.launch("--set", "retry.signal=1").exit_code == 0
    assert market.orders == ["offer-1", "offer-2"]
