"""Decisions about money and machines."""

from __future__ import annotations

from launcher.core import Instance, Phase, Run
from launcher.decisions.policy import ours

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
