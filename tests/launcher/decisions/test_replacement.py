"""Whether a machine is rented in place of one that left, and with which limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeProvider
from tests.jobs import train_job
from vastrun.contract.config import DilocoConfig
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.core.labels import leader_id, member_folder, member_id
from vastrun.launcher.decisions.nodes import (
    REPLACEABLE_CAUSES,
    is_replacement_due,
    one_machine_job,
    replacement_job,
)

NOW = 2_000.0
"""A thousand seconds after all began."""
OFFER = FakeProvider(FakeClock()).search(train_job())[0]
TRAIN = train_job(steps=1000).train
assert TRAIN is not None
SPEC = train_job(
    nodes=3,
    limits=Limits(hours=1.0, usd=6.0),
    train=replace(TRAIN, strategy="diloco", diloco=DilocoConfig(min_nodes=1)),
)
FIRST = Run(
    id="calm-heron-3f1a",
    job="demo",
    spec_json="{}",
    provider="fake",
    phase=Phase.TRAIN,
    out_dir="/o",
    created_at=1_000.0,
    phase_at=1_000.0,
    rented_at=1_000.0,
    step=100,
    steps=1000,
    steps_per_s=1.0,
)


def row(node: int, machine: int = 1, **changes: Any) -> Run:
    own = {"id": member_id(FIRST.id, node, machine), "leader": FIRST.id, "node": node, "offer": OFFER}
    return replace(FIRST, **{**own, **changes})


LEFT = row(
    1,
    phase=Phase.ENDED,
    cause=Cause.LOST,
    released_at=1_900.0,
    usd_per_hour=OFFER.usd_per_hour,
)
"""It cost $0.9 of its $2."""


def job(
    run: Run = FIRST,
    *others: Run,
    former: Run = LEFT,
    spec: JobSpec = SPEC,
    now: float = NOW,
    free: bool = False,
) -> JobSpec | str:
    rows = others or (LEFT, row(2))
    assert is_replacement_due(spec, run, rows, former)
    return replacement_job(spec, run, rows, former, now, free=free)


def test_it_has_what_the_machines_before_it_left_of_the_share_and_of_the_hours() -> None:
    found = job()
    assert isinstance(found, JobSpec)
    assert found.limits.usd == pytest.approx(3 * (2.0 - 0.9))
    assert found.limits.hours == pytest.approx(1.0 - 1000 / 3600)
    assert replace(found, limits=SPEC.limits) == SPEC


@pytest.mark.parametrize(
    ("run", "others"),
    [
        (replace(FIRST, phase=Phase.COLLECT), ()),
        (replace(FIRST, cause=Cause.SIGNAL), ()),
        (replace(FIRST, step=0), ()),
        (FIRST, (replace(LEFT, phase=Phase.DESTROY), row(2))),
        (FIRST, (replace(LEFT, cause=None), row(2))),
        (FIRST, (LEFT, row(2), row(1, 2, parent=LEFT.id))),
        (FIRST, (LEFT, row(2, cause=Cause.STOPPED))),
    ],
    ids=["over", "failed", "not begun", "machine there", "trained", "replaced already", "all end"],
)
def test_none_is_due(run: Run, others: tuple[Run, ...]) -> None:
    former = next((one for one in others if one.id == LEFT.id), LEFT)
    assert not is_replacement_due(SPEC, run, others or (LEFT, row(2)), former)


def test_one_machine_has_its_share_of_the_money() -> None:
    one = one_machine_job(SPEC)
    assert (one.nodes, one.limits.usd, one.limits.hours) == (1, 2.0, 1.0)


def test_none_is_due_where_no_node_may_leave() -> None:
    assert SPEC.train is not None
    together = replace(SPEC, train=replace(SPEC.train, diloco=DilocoConfig()))
    assert not is_replacement_due(together, FIRST, (LEFT, row(2)), LEFT)


@pytest.mark.parametrize("cause", sorted(set(Cause) - REPLACEABLE_CAUSES - {Cause.STOPPED, Cause.PRUNED}))
def test_what_another_machine_does_not_cure_brings_none(cause: Cause) -> None:
    former = row(1, 2, parent=LEFT.id, phase=Phase.ENDED, cause=cause)
    assert job(FIRST, LEFT, former, row(2), former=former) == f"another one does not cure {cause}"


def test_there_are_no_more_than_the_job_allows_for_all_nodes_together() -> None:
    others = [LEFT, row(2), row(1, 2, parent=LEFT.id, **ended()), row(2, 2, parent="n2", **ended())]
    former = others[2]
    assert job(FIRST, *others, former=former) == "train.diloco.replacements allows 2 in all"
    assert isinstance(job(FIRST, *others[:3], former=former), JobSpec)


def ended() -> dict[str, Any]:
    return {"phase": Phase.ENDED, "cause": Cause.LOST, "created_at": 1_500.0}


@pytest.mark.parametrize(
    ("run", "spec", "left"),
    [
        (replace(FIRST, step=950), SPEC, "50 s"),
        (FIRST, replace(SPEC, limits=Limits(hours=0.29, usd=6.0)), "44 s"),
        (FIRST, replace(SPEC, limits=Limits(hours=0.25, usd=6.0)), "0 s"),
        (
            FIRST,
            replace(SPEC, limits=Limits(hours=1.0, usd=6.0, deadline="1970-01-01T00:34:00+00:00")),
            "40 s",
        ),
    ],
    ids=["steps", "hours", "no hours", "deadline"],
)
def test_none_comes_for_the_last_seconds_of_the_steps_the_hours_or_the_deadline(
    run: Run, spec: JobSpec, left: str
) -> None:
    assert job(run, spec=spec) == f"{left} are left; a machine and one minute of training need 80 s"


def test_one_that_costs_nothing_and_is_there_at_once_comes_late_too() -> None:
    assert isinstance(job(replace(FIRST, step=950), free=True), JobSpec)


def test_none_comes_where_the_share_is_nearly_spent() -> None:
    said = job(spec=replace(SPEC, limits=Limits(hours=1.0, usd=2.8)))
    assert said == (
        "$0.033 of the node's share of limits.usd is left; "
        "loading a machine and one minute of training cost $0.060"
    )


def test_the_second_machine_of_a_node_has_a_name_and_a_folder_of_its_own() -> None:
    second = member_id("calm-heron-3f1a", 12, 2)
    assert second == "calm-heron-3f1a-n12-2"
    assert leader_id(second) == leader_id("calm-heron-3f1a-n12") == "calm-heron-3f1a"
    run_id = "calm-heron-3f1a"
    assert [member_folder(run_id, each) for each in (f"{run_id}-n12", second)] == ["node-12", "node-12-2"]
