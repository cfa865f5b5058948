"""Decisions about money and machines."""

from __future__ import annotations

import pytest

from launcher.core import Instance, Phase, Run
from launcher.core.job import Resources
from launcher.decisions.policy import link_mbps, ours
from tests.jobs import train_job

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
    assert [found.id for found in ours(RUN, listed)] == ["2", "1", "4"]


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
