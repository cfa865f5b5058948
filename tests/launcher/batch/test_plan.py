"""What a batch may cost before it is started, the share of each run, and the machines that it would hold."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.batch.test_fleet import one_gpu
from tests.launcher.batch.world import BatchWorld, point
from tests.runs import a_run
from vastrun.launcher.batch.plan import BatchPlan, price
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Phase
from vastrun.launcher.core.batch import BatchLimits, BatchSpec, Sharing
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Limits
from vastrun.launcher.ui.render.batch import BatchPlanDocument, plan_text


def plan(
    folder: Path,
    *,
    usd: float | None = 20.0,
    sizes: Mapping[int, float] = {1: 0.5},
    job_usd: float | None = None,
    hours: float = 10.0,
    count: int = 8,
    parallel: int = 4,
    run_durations_s: float | None = None,
    **sharing: Sharing,
) -> BatchPlan:
    """Of points for one GPU. `run_durations_s`: an earlier run of the job took so long."""
    folder.mkdir(exist_ok=True)
    world = BatchWorld(folder)
    if run_durations_s is not None:
        earlier = a_run(job=one_gpu().name, provider=world.market.name, phase=Phase.ENDED, created_at=1000.0)
        world.ledger.add(replace(earlier, phase_at=1000.0 + run_durations_s))
    world.market.sizes = dict(sizes)
    job = replace(one_gpu(), limits=Limits(hours=hours, usd=job_usd))
    spec = BatchSpec(name="demo", job="job.yaml", limits=BatchLimits(usd=usd, parallel=parallel), **sharing)
    points = [replace(point(n, job), spec_json=dump_job(job)) for n in range(1, count + 1)]
    return price(spec, points, world.market, world.ledger, world.time.now())


def limits_of(found: BatchPlan) -> set[float | None]:
    return {read_job(one.spec_json).limits.usd for one in found.points}


def test_a_job_without_a_limit_of_its_own_gets_what_its_hours_cost(tmp_path: Path) -> None:
    found = plan(tmp_path, usd=40.0)
    assert found.share_usd == pytest.approx(5.0, rel=0.1)
    assert limits_of(found) == {found.share_usd}


def test_where_the_batch_may_not_cost_that_much_the_runs_at_once_share_it(tmp_path: Path) -> None:
    assert plan(tmp_path / "a", usd=4.0).share_usd == 1.0
    assert plan(tmp_path / "b", usd=4.0, count=2).share_usd == 2.0
    assert limits_of(plan(tmp_path / "c", usd=4.0)) == {1.0}


def test_a_limit_of_the_job_itself_stays_and_must_fit(tmp_path: Path) -> None:
    assert limits_of(plan(tmp_path / "a", usd=4.0, job_usd=3.0)) == {3.0}
    with pytest.raises(JobValueError, match=r"\$2 is less than one run may cost, \$3.00"):
        plan(tmp_path / "b", usd=2.0, job_usd=3.0)


def test_budget_that_does_not_pay_for_one_machine_is_refused_with_the_least_that_does(tmp_path: Path) -> None:
    with pytest.raises(JobValueError, match=r"limits.usd: \$0.0001 is too low") as caught:
        plan(tmp_path, usd=0.0001)
    assert caught.value.hint.startswith("limits: {usd: 0.0")


def test_a_batch_without_a_budget_is_refused_where_machines_cost_money(tmp_path: Path) -> None:
    with pytest.raises(JobValueError, match=r"limits\.usd: missing"):
        plan(tmp_path, usd=None)


def test_the_expected_time_goes_by_earlier_runs_of_the_job(tmp_path: Path) -> None:
    found = plan(tmp_path, usd=40.0, run_durations_s=600.0)
    assert (found.wall_s, found.earlier_runs) == (1200.0, 1)
    assert "about 20m with 4 runs at once, by 1 earlier run of this job" in plan_text(found)


def test_where_no_time_is_known_the_limit_is_told(tmp_path: Path) -> None:
    found = replace(plan(tmp_path, usd=40.0), wall_s=None)
    assert "unknown until a run of this job has succeeded here; at most 20h 00m by limits.hours" in (
        plan_text(found)
    )


def test_a_plan_shows_the_price_of_a_point_packed_and_alone(tmp_path: Path) -> None:
    text = plan_text(plan(tmp_path, sizes={1: 0.5, 8: 2.0}, parallel=8, pack="auto"))
    assert "1 machine held: 8 points at once, 1 round" in text
    assert "$0.250/h a point, $0.500/h alone" in text


def test_where_machines_of_one_point_cost_less_none_is_held(tmp_path: Path) -> None:
    found = plan(tmp_path, sizes={1: 0.2, 8: 2.0}, parallel=8, pack="auto")
    assert found.fleet is None and BatchPlanDocument.of(found).fleet is None
    assert "held" not in plan_text(found)


def test_a_plan_with_reuse_names_its_machines_and_what_they_may_cost(tmp_path: Path) -> None:
    found = plan(tmp_path, hours=1.0, parallel=2, reuse="auto")
    assert found.fleet is not None
    assert (found.fleet.machines, found.fleet.points_in_turn, found.fleet.points_at_once) == (2, 4, 1)
    assert 0 < found.fleet.expected_usd <= found.fleet.at_most_usd <= 20.0
    assert "2 machines held: one point at a time, 4 rounds" in plan_text(found)
    fleet = BatchPlanDocument.of(found).fleet
    assert fleet is not None and fleet.machines == 2


def test_with_pack_alone_each_turn_has_machines_anew(tmp_path: Path) -> None:
    found = plan(tmp_path, sizes={1: 0.5, 4: 1.0}, pack="auto")
    assert found.fleet is not None and (found.fleet.machines, found.fleet.points_in_turn) == (2, 1)


@pytest.mark.parametrize("parallel", [8, 20])
def test_points_that_all_run_at_once_need_no_machine_held(tmp_path: Path, parallel: int) -> None:
    assert plan(tmp_path, parallel=parallel, reuse="auto").fleet is None
