"""Decisions about money and machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import train_job
from vastrun.launcher.core import Instance, Meter, Phase, Run
from vastrun.launcher.core.job import Resources
from vastrun.launcher.decisions.policy import (
    BOOT_S,
    LEASE_DELAY_S,
    LIMIT_SLACK_S,
    link_mbps,
    machines_of_run,
    released_at,
)

RUN = Run(
    id="calm-heron-3f1a",
    job="demo",
    spec_json="{}",
    provider="fake",
    phase=Phase.TRAIN,
    out_dir="/o",
    created_at=0.0,
    phase_at=0.0,
    instance_id="2",
)


def machine(number: str, label: str) -> Instance:
    return Instance(id=number, label=label, state="running", usd_per_hour=1.0, rented_at=0.0)


def test_of_a_run_s_machines_the_one_that_was_noted_comes_first_and_none_is_forgotten() -> None:
    listed = [
        machine("1", RUN.label),
        machine("2", ""),
        machine("3", "vastrun-other"),
        machine("4", RUN.label),
    ]
    assert [found.id for found in machines_of_run(RUN, listed)] == ["2", "1", "4"]


BOOTED = Meter(began_at=140.0, armed_at=150.0)
ARMED = replace(RUN, rented_at=100.0, meter=BOOTED)


@pytest.mark.parametrize(
    ("run", "looked_at", "seen_at", "at"),
    [
        (ARMED, 2000.0, 0.0, 1150 + LEASE_DELAY_S),
        (ARMED, 1149.0, 0.0, 1149.0),
        (ARMED, 2000.0, 1200.0, 1200.0),
        (replace(ARMED, meter=replace(BOOTED, absent_at=1100.0)), 2000.0, 0.0, 1100.0),
        (replace(ARMED, meter=replace(BOOTED, given_back_at=1500.0)), 2000.0, 0.0, 1500.0),
        (replace(ARMED, meter=Meter(began_at=140.0)), 2000.0, 0.0, 1140 + LIMIT_SLACK_S),
        (replace(ARMED, meter=Meter()), 9000.0, 0.0, 100 + BOOT_S + 1000 + LIMIT_SLACK_S),
    ],
)
def test_a_machine_that_is_gone_is_charged_until_its_end_or_that_of_its_lease(
    run: Run, looked_at: float, seen_at: float, at: float
) -> None:
    assert released_at(run, 1000.0, looked_at, seen_at) == at


@pytest.mark.parametrize(
    ("nodes", "asked", "free", "least"),
    [
        (1, 500.0, False, 0.0),
        (2, None, False, 1000.0),
        (2, None, True, 0.0),
        (2, 0.0, False, 0.0),
        (2, 50.0, True, 50.0),
    ],
)
def test_the_link_between_nodes_is_measured_where_it_is_paid_for_or_asked_for(
    nodes: int, asked: float | None, free: bool, least: float
) -> None:
    spec = train_job(nodes=nodes, resources=Resources(gpus=2, link_mbps=asked))
    assert link_mbps(spec, free=free) == least
