"""What a batch says of the machines that it would hold, before anything is rented."""

from pathlib import Path

import pytest

from tests.launcher.batch.test_fleet import one_gpu
from tests.launcher.batch.world import BatchWorld, point
from vastrun.launcher.batch.plan import BatchPlan, price
from vastrun.launcher.core.batch import BatchLimits, BatchSpec, Sharing
from vastrun.launcher.ui.render.batch import BatchPlanDocument, plan_text


def plan(
    folder: Path,
    sizes: dict[int, float],
    *,
    count: int = 8,
    parallel: int = 8,
    reuse: Sharing = "never",
    pack: Sharing = "never",
) -> BatchPlan:
    world = BatchWorld(folder)
    world.market.sizes = sizes
    spec = BatchSpec(
        name="demo", job="job.yaml", limits=BatchLimits(usd=20.0, parallel=parallel), reuse=reuse, pack=pack
    )
    points = [point(n, one_gpu()) for n in range(1, count + 1)]
    return price(spec, points, world.market, world.ledger, world.time.now())


def test_a_plan_shows_the_price_of_a_point_packed_and_alone(tmp_path: Path) -> None:
    text = plan_text(plan(tmp_path, {1: 0.5, 8: 2.0}, pack="auto"))
    assert "1 machine held: 8 points at once, 1 round" in text
    assert "$0.250/h a point, $0.500/h alone" in text


def test_where_machines_of_one_point_cost_less_none_is_held(tmp_path: Path) -> None:
    found = plan(tmp_path, {1: 0.2, 8: 2.0}, pack="auto")
    assert found.fleet is None and BatchPlanDocument.of(found).fleet is None
    assert "held" not in plan_text(found)


def test_a_plan_with_reuse_names_its_machines_and_what_they_may_cost(tmp_path: Path) -> None:
    found = plan(tmp_path, {1: 0.5}, parallel=2, reuse="auto")
    assert found.fleet is not None
    assert (found.fleet.machines, found.fleet.points_in_turn, found.fleet.points_at_once) == (2, 4, 1)
    assert 0 < found.fleet.expected_usd <= found.fleet.at_most_usd <= 20.0
    assert "2 machines held: one point at a time, 4 rounds" in plan_text(found)
    fleet = BatchPlanDocument.of(found).fleet
    assert fleet is not None and fleet.machines == 2


def test_with_pack_alone_each_turn_has_machines_anew(tmp_path: Path) -> None:
    found = plan(tmp_path, {1: 0.5, 4: 1.0}, parallel=4, pack="auto")
    assert found.fleet is not None and (found.fleet.machines, found.fleet.points_in_turn) == (2, 1)


@pytest.mark.parametrize("parallel", [8, 20])
def test_points_that_all_run_at_once_need_no_machine_held(tmp_path: Path, parallel: int) -> None:
    assert plan(tmp_path, {1: 0.5}, parallel=parallel, reuse="auto").fleet is None
