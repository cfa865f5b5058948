"""Which machine is slow, and when another one in its place saves time and money."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.jobs import command_job, train_job
from tests.offers import rtx_4090
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.job import JobSpec, Limits, Success
from vastrun.launcher.decisions.history import Speed, SpeedHistory
from vastrun.launcher.flow.slow_machine import (
    MachineChange,
    Slowness,
    change_of,
    is_affordable_change,
    slowness_of,
)

NOW = 1_800_000_000.0
KIND = ("RTX 4090", 1)
SHOWN = Speed(steps_per_s=10.0, runs=5)
ELSEWHERE = SpeedHistory(speeds={KIND: SHOWN}, boot_s={"a": 100.0, "b": 280.0, "c": 400.0})
SLOW = Slowness(kind=KIND, steps_per_s=4.0, shown=SHOWN)
OFFER = rtx_4090(host="slow", usd_per_hour=3.6, loading_usd=0.1)
RUN = Run(
    id="one",
    job="demo",
    spec_json="{}",
    provider="vast",
    phase=Phase.TRAIN,
    out_dir="/o",
    created_at=NOW - 1000,
    phase_at=NOW - 500,
    offer=OFFER,
    host="slow",
    usd_per_hour=3.6,
    rented_at=NOW - 1000,
)
JOB = train_job(steps=40_000, limits=Limits(hours=12.0))


def change(step: int = 1000, spec: JobSpec = JOB, run: Run = RUN, **options: Any) -> MachineChange | None:
    """What another machine would change, when the onboard trainer saves where it stops."""
    return change_of(SLOW, spec, run, ELSEWHERE, step=step, saved=options.get("saved", step))


@pytest.mark.parametrize(
    ("steps_per_s", "shown", "slow"),
    [
        (4.1, SHOWN, True),
        (5.99, SHOWN, True),
        (6.0, SHOWN, False),
        (12.0, SHOWN, False),
        (0.1, Speed(steps_per_s=10.0, runs=3), True),
        (0.1, Speed(steps_per_s=10.0, runs=2), False),
    ],
)
def test_a_machine_is_slow_below_three_fifths_of_what_three_runs_have_shown(
    steps_per_s: float, shown: Speed, slow: bool
) -> None:
    found = slowness_of(KIND, steps_per_s, SpeedHistory(speeds={KIND: shown}))
    assert (found is not None) is slow


def test_a_kind_that_nobody_has_measured_is_never_slow() -> None:
    assert slowness_of(("T4", 1), 0.1, ELSEWHERE) is None
    assert slowness_of(("RTX 4090", 2), 0.1, ELSEWHERE) is None


def test_it_is_named_with_its_share_its_kind_and_what_that_has_shown() -> None:
    assert str(Slowness(kind=KIND, steps_per_s=5.043, shown=Speed(steps_per_s=12.3, runs=5))) == (
        "trains at 0.41 of the speed of earlier runs on RTX 4090 x1 (12.3 steps/s, 5 runs)"
    )


def test_what_is_left_counts_saving_loading_and_the_steps_since_the_checkpoint() -> None:
    known = change(run=replace(RUN, boot_s=200.0))
    assert known is not None
    assert known.here_s == pytest.approx(39_000 / 4)
    assert known.there_s == pytest.approx(120 + 200 + 20 + 39_000 / 10)
    unsaved, unknown = change(saved=0), change()
    assert unsaved is not None
    assert unknown is not None
    assert unsaved.there_s == pytest.approx(unknown.there_s + 1000 / 10)
    assert unknown.there_s == pytest.approx(120 + 280 + 20 + 39_000 / 10)
    unvisited = change_of(SLOW, JOB, RUN, replace(ELSEWHERE, boot_s={}), step=1000, saved=1000)
    assert unvisited is not None
    assert unvisited.there_s == pytest.approx(120 + 300 + 20 + 39_000 / 10)
    assert str(known) == "162 min are left on it, about 71 min with another one"


@pytest.mark.parametrize(
    ("step", "pays_off"), [(1000, True), (34_000, True), (37_000, False), (40_000, False)]
)
def test_a_change_never_pays_off_when_too_little_is_left(step: int, pays_off: bool) -> None:
    found = change(step)
    assert found is not None
    assert found.pays_off is pays_off


def test_a_change_that_saves_time_but_costs_more_money_does_not_pay_off() -> None:
    cheap, dear = change(run=RUN), change(run=replace(RUN, offer=replace(OFFER, loading_usd=9.0)))
    assert cheap is not None
    assert dear is not None
    assert (cheap.pays_off, dear.pays_off) == (True, False)


def test_of_a_program_that_saves_nothing_all_steps_are_lost() -> None:
    program = command_job(success=Success(steps=40_000))
    early, late = change(1000, program, saved=0), change(30_000, program, saved=0)
    assert early is not None
    assert late is not None
    assert (early.pays_off, late.pays_off) == (True, False)
    assert change(1000, command_job()) is None, "nobody knows what is left"


@pytest.mark.parametrize(
    ("limits", "enough"),
    [
        (Limits(hours=12.0), True),
        (Limits(hours=12.0, usd=7.0), True),
        (Limits(hours=12.0, usd=5.0), False),
        (Limits(hours=12.0, deadline=datetime.fromtimestamp(NOW + 5000, tz=UTC).isoformat()), True),
        (Limits(hours=12.0, deadline=datetime.fromtimestamp(NOW + 4000, tz=UTC).isoformat()), False),
    ],
    ids=["no limit", "money", "too little money", "time", "too little time"],
)
def test_a_run_is_not_stopped_for_a_machine_that_its_limits_would_not_let_it_finish_on(
    limits: Limits, enough: bool
) -> None:
    found = change()
    assert found is not None
    assert found.there_s == pytest.approx(4320)
    assert is_affordable_change(found, replace(JOB, limits=limits), RUN, NOW) is enough
