"""Runs on an emulated Vast whose counters of traffic are in any unit end well, at their true cost."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.assumptions import Value
from tests.e2e.fast_launcher import LASTS, FastLauncher, job
from tests.e2e.market import machines
from vastrun.launcher.core import Cost, bills
from vastrun.launcher.core.job import Code

LINE = {"inet_down_usd": 0.02, "inet_up_usd": 0.02, "inet_down": 80.0, "inet_up": 80.0}
"""Slow, so that a unit that is too large shows soon."""


def launched(tmp_path: Path, seen: dict[str, Value], fault: str = "") -> tuple[Cost, float, float, list[str]]:
    """The run's cost by the ledger; the bill in all and of its traffic; lines about the counter."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "weights").write_bytes(os.urandom(6_000_000))
    market = [replace(one, **LINE) for one in machines(2)]
    with FastLauncher(tmp_path, factor=2.0, market=market, seen=seen) as launcher:
        if fault:
            launcher.vast.faults.add(fault, every=2)
        (run,) = launcher.launch(replace(job(LASTS), code=Code(path=str(code))))
        story = "\n".join(event.text for event in launcher.screen.events)
        assert run.exit_code() == 0, story
        (meter,) = launcher.vast.billing.meters.values()
        traffic_usd = meter.usd("bwd") + meter.usd("bwu")
        return (
            bills.cost_of(run, 0.0),
            meter.total_usd,
            traffic_usd,
            [line for line in story.splitlines() if "counter of the traffic" in line],
        )


@pytest.mark.slow
def test_with_counters_in_kilobytes_the_ledger_is_the_bill(tmp_path: Path) -> None:
    counted, billed_usd, traffic_usd, told = launched(tmp_path, {})
    assert counted.traffic_usd == pytest.approx(traffic_usd, rel=0.02)
    assert counted.usd == pytest.approx(billed_usd, rel=0.1)
    assert told == []


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1024.0, 1 / 1024, 1 / 1024**2], ids=["bytes", "MB", "GB"])
def test_counters_in_another_unit_are_reported_once_and_cost_nothing(factor: float, tmp_path: Path) -> None:
    counted, billed_usd, traffic_usd, told = launched(tmp_path, {"download.billed": factor})
    assert counted.traffic_usd > 0.5 * traffic_usd
    assert counted.usd == pytest.approx(billed_usd, rel=0.1)
    assert len(told) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "lines"), [("traffic_jumps", 1), ("traffic_null", 0)])
def test_counters_that_jump_or_are_missing_cost_nothing(fault: str, lines: int, tmp_path: Path) -> None:
    counted, billed_usd, traffic_usd, told = launched(tmp_path, {}, fault)
    assert counted.traffic_usd > 0.5 * traffic_usd
    assert counted.usd == pytest.approx(billed_usd, rel=0.1)
    assert len(told) == lines
