"""`plan --explain` on Vast, from the ledger of somebody who has trained there before."""

import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import Terminal
from tests.emulators.machines import Machine
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


@pytest.mark.parametrize(("count", "capped"), [(20, False), (90, False), (90, True)])
@pytest.mark.slow
def test_on_vast_an_offer_has_the_same_sums_in_the_plan_and_its_explanation(
    tmp_path: Path, count: int, capped: bool
) -> None:
    with VastEmulator(unlike(count), rate_limits=False) as vast:
        if capped:
            vast.faults.add("search_capped", times=999)
        terminal = Terminal(tmp_path, **vast.variables)
        (tmp_path / "job.yaml").write_text(JOB.replace(", gpu_names: [RTX 4090]", ""))
        about = ("job.yaml", "--provider", "vast")
        planned = terminal.type("plan", *about, "--json").json()["offers"]
        dry = terminal.type("launch", *about, "--dry-run", "--json").json()["offers"]
        market_report = terminal.type("plan", *about, "--explain", "--json").json()
        text = terminal.type("plan", *about, "--explain").out
    quotes = [quote["offer"] for quote in market_report["quotes"]]
    for seen in (dry, quotes):
        assert {one["id"]: cents(one) for one in seen} == {one["id"]: cents(one) for one in planned}
    assert [one["finishing_usd"] for one in quotes] == sorted(one["finishing_usd"] for one in quotes)
    assert planned[0]["finishing_usd"] <= quotes[0]["finishing_usd"] * 1.01
    removed = sum(constraint["removed"] for constraint in market_report["constraints"])
    assert (
        market_report["offers"]
        == removed + market_report["unreadable"] + market_report["beyond"] + market_report["left"]
    )
    assert (market_report["beyond"] > 0) is capped
    assert ("not examined" in text) is capped
    assert max(map(len, text.splitlines())) <= 80


def unlike(count: int) -> list[Machine]:
    """Machines of different speeds and prices; the fastest for their price are not the cheapest."""
    return [
        Machine(id=41000 + n, gpu_usd=0.3 + n * 0.01, dlperf=60.0 + n * n * 0.2, inet_down=400.0 + n)
        for n in range(count)
    ]


SUMS = ("finishing_usd", "expected_usd", "at_most_usd", "usd_per_hour")


def cents(offer: dict[str, Any]) -> tuple[float, ...]:
    """Its sums, to the cent."""
    return tuple(round(offer[name], 2) for name in SUMS)


@pytest.mark.slow
def test_vast_limits_that_are_too_small_are_refused_with_advice(vast: VastEmulator, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, **vast.variables)
    (tmp_path / "job.yaml").write_text(JOB)
    about = ("job.yaml", "--provider", "vast", "--set")
    for command in (("plan",), ("plan", "--explain"), ("launch", "--dry-run"), ("launch", "-y")):
        end = terminal.type(*command, *about, "limits.usd=0.0001")
        assert (end.exit_code, "limits.usd: $0.0001 is too low" in end.err) == (2, True), end.err
    named = re.search(r"limits\.usd=([\d.]+)", end.err)
    assert named is not None
    assert terminal.type("plan", *about, f"limits.usd={named[1]}").exit_code == 0
    end = terminal.type("plan", *about, "limits.usd_per_hour=0.01")
    assert end.exit_code == 8
    assert (
        "limits.usd_per_hour: $0.01 excludes every offer; the cheapest that fits the job costs $" in end.err
    )
    named = re.search(r"limits\.usd_per_hour=([\d.]+)", end.err)
    assert named is not None
    assert terminal.type("plan", *about, f"limits.usd_per_hour={named[1]}").exit_code == 0
    assert not vast.instances
