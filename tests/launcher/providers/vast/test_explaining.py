"""`plan --explain` on Vast, from the ledger of somebody who has trained there before."""

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import open_market
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Phase
from vastrun.launcher.ledger.sqlite import SqliteLedger

JOB = """\
name: demo
resources: {gpus: 1, gpu_names: [RTX 4090]}
limits: {hours: 2, usd: 3}
train: {steps: 7200, batch: 8}
"""


def trained_before(terminal: Terminal, vast: VastEmulator) -> None:
    """One run of the job, at two steps a second."""
    spec = load_job(JOB, "job.yaml")
    ledger = SqliteLedger(terminal.state / "vastrun" / "ledger.db", now=time.time, alive=lambda _: False)
    run = a_run(
        job=spec.name,
        spec_json=dump_job(spec),
        provider="vast",
        phase=Phase.ENDED,
        created_at=time.time(),
        offer=open_market(vast, terminal.folder / "other").search(spec)[0],
        steps_per_s=2.0,
    )
    ledger.add(run)
    ledger.close()


@pytest.mark.slow
def test_the_speed_of_an_earlier_run_of_the_job_is_what_the_next_is_planned_by(
    vast: VastEmulator, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path, **vast.variables)
    (tmp_path / "job.yaml").write_text(JOB)
    explain = ("plan", "job.yaml", "--explain", "--provider", "vast")
    assert " steps/s, estimated (" in terminal.type(*explain).out
    plan = ("plan", "job.yaml", "--provider", "vast")
    assert "its speed is estimated (" in terminal.type(*plan).out
    trained_before(terminal, vast)
    said = terminal.type(*plan).out
    assert "its speed is measured (1 run)" in said
    assert "RTX 4090 x1: 2 steps/s, measured (1 run)" in said
    offer = terminal.type(*plan, "--json").json()["offers"][0]
    assert (offer["speed"], offer["forecast"]["basis"]) == ("measured (1 run)", "measured")
    assert offer["forecast"]["train_s"] == pytest.approx(3600)
    assert "1.0 h at 2 steps/s, measured (1 run)" in terminal.type(*explain).out


@pytest.mark.slow
def test_a_deadline_takes_the_cheapest_machine_that_is_expected_in_time_or_names_the_soonest(
    vast: VastEmulator, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path, **vast.variables)
    (tmp_path / "job.yaml").write_text(JOB.replace(", gpu_names: [RTX 4090]", ""))
    plan = ("plan", "job.yaml", "--provider", "vast")
    trained_before(terminal, vast)

    def by(minutes: float) -> tuple[str, str]:
        return "--by", (datetime.now() + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M")

    cheapest = terminal.type(*plan, "--json").json()["offers"][0]
    assert cheapest["gpu_name"] == "RTX 4090"
    faster = terminal.type(*plan, *by(45), "--json").json()
    assert faster["expected_end_at"] < datetime.fromisoformat(faster["deadline"]).timestamp()
    lasts_s = [one["forecast"]["ready_s"] + one["forecast"]["train_s"] for one in faster["offers"]]
    assert max(lasts_s) <= 45 * 60 < cheapest["forecast"]["train_s"]
    prices = [one["finishing_usd"] for one in faster["offers"]]
    assert prices[0] <= min(prices) * 1.01
    explained = terminal.type(*plan, *by(45), "--explain")
    assert "fail limits.deadline  expected to finish by " in explained.out
    too_late = terminal.type(*plan, *by(12))
    assert too_late.exit_code == 8
    assert "no offer is expected to finish by " in too_late.err
    assert "the soonest, " in too_late.err
