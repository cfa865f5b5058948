"""A batch that holds machines: within one budget, whatever happens on the market, and none stays rented."""

import random
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.batch.virtual_time import Killed, VirtualTime
from tests.launcher.batch.world import NAME, SHARE_USD, BatchWorld
from tests.launcher.faults import MOMENTS, Fault, Moment, Plan
from tests.launcher.terminal import CRASH
from vastrun.launcher.core import Cause, Phase, UserRequest
from vastrun.launcher.core.batch import Budget, StopRules
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.cost.spending import counted_in_total


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    world = BatchWorld(tmp_path)
    world.market.is_large = True
    return world


def one_gpu(**changes: object) -> JobSpec:
    """A job for one GPU; two ranks are what a fake box has."""
    return train_job(resources=Resources(gpus=1, disk_gb=8), ranks=2, **changes)


def story(world: BatchWorld) -> list[str]:
    """How each run ended, the newest first."""
    return [
        f"{run.id} {run.provider} {run.point} {run.phase} {run.cause}: {run.detail}"
        for run in world.ledger.runs()
    ]


def providers(world: BatchWorld) -> list[str]:
    """Where the points ran, by number."""
    return [run.provider for state in world.states() for run in state.runs]


def check_the_bill(world: BatchWorld, *, above_usd: float = 0.01) -> None:
    """Nothing is rented, and the ledger has each dollar once: none less than the bill, few more."""
    assert (world.market.rented, world.market.all_slots()) == (0, 0), story(world)
    runs = world.ledger.runs(batch=NAME)
    assert all(run.phase is Phase.ENDED for run in runs), story(world)
    counted = counted_in_total(runs)
    total = sum(cost_usd(run, world.time.now()) for run in runs if run.id in counted)
    assert -0.001 <= total - world.market.bill_usd <= above_usd, story(world)
    assert world.ledger.batches.held_usd(NAME) == pytest.approx(total)


def test_points_follow_each_other_on_machines_that_the_batch_holds(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 8}, story(world)
    assert world.market.rentals == 2, story(world)
    assert providers(world) == [POOL] * 8
    assert [(run.phase, run.cause) for run in world.machines()] == [(Phase.ENDED, Cause.STOPPED)] * 2
    check_the_bill(world)


def test_points_that_all_run_at_once_have_machines_of_their_own(world: BatchWorld) -> None:
    world.submit(3, usd=20.0, parallel=4, reuse="auto")
    world.drive()
    assert providers(world) == ["fake"] * 3 and world.machines() == []


def test_without_reuse_and_pack_nothing_is_held(world: BatchWorld) -> None:
    world.submit(4, usd=20.0, parallel=1)
    world.drive()
    assert providers(world) == ["fake"] * 4 and world.market.rentals == 4


def test_a_machine_is_given_back_as_soon_as_no_point_is_left_for_it(world: BatchWorld) -> None:
    world.market.trainings = [Training(), Training(seconds=20.0), Training(seconds=70.0)]
    world.submit(3, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    short, long = sorted(run.released_at or 0.0 for run in world.machines())
    assert world.verdicts() == {"SUCCEEDED": 3}
    assert long - short > 25, "the first one did not wait for the other one's last point"
    check_the_bill(world)


def test_a_machine_that_still_loads_is_given_back_when_no_point_is_left_for_it(world: BatchWorld) -> None:
    world.market.loads = [Loading(seconds=2.0), Loading(seconds=700.0)]
    world.submit(4, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 4}, story(world)
    assert world.time.now() - world.machines()[0].created_at < 300.0, story(world)
    check_the_bill(world)


def test_what_machines_cost_counts_in_the_batch_as_spent_and_as_idle(world: BatchWorld) -> None:
    world.submit(6, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    shown = [progress for progress in world.screen.progresses if progress.machines]
    assert {progress.machines for progress in shown} <= {1, 2}
    assert max(progress.usd_per_hour for progress in shown) == pytest.approx(7.2)
    held = [progress.spent_usd + progress.reserved_usd for progress in shown]
    assert max(held) <= 20.0 and min(progress.reserved_usd for progress in shown[:-3]) > 0
    last = world.screen.progresses[-1]
    bill = sum(cost_usd(run, world.time.now()) for run in world.machines())
    shares = sum(cost_usd(run, world.time.now()) for state in world.states() for run in state.runs)
    assert 0 < last.idle_usd <= bill - shares + 0.01


def test_a_machine_that_is_lost_ends_the_runs_on_it_as_lost_and_is_replaced(world: BatchWorld) -> None:
    world.submit(6, usd=20.0, parallel=2, reuse="auto", job=train_job(retry={"lost": 1}))
    world.at(30.0, lambda: world.market.lose(next(iter(world.market.slotted))))
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 6}, story(world)
    lost = [run for state in world.states() for run in state.runs if run.cause is Cause.LOST]
    assert len(lost) == 1 and lost[0].provider == POOL
    assert world.market.rentals in (3, 4), story(world)
    check_the_bill(world)


def test_a_machine_that_is_not_clean_gets_no_more_runs_and_is_replaced(world: BatchWorld) -> None:
    def spoil() -> None:
        slots = next(iter(world.market.slotted.values()))
        slots.drained = "not clean: still running: sleep"

    world.submit(6, usd=20.0, parallel=1, reuse="auto")
    world.at(25.0, spoil)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 6}, story(world)
    refused = [run for run in world.ledger.runs() if run.cause is Cause.NO_OFFER]
    assert 1 <= len(refused) <= 2 and all("not clean" in run.detail for run in refused)
    assert world.market.rentals == 2 and len(world.machines()) == 2
    check_the_bill(world)


def test_a_failure_on_a_slot_is_tried_again_on_a_slot(world: BatchWorld) -> None:
    world.market.trainings = [CRASH]
    world.submit(6, usd=20.0, parallel=2, reuse="auto", job=train_job(retry={"signal": 1}))
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 6}, story(world)
    assert set(providers(world)) == {POOL} and world.market.rentals == 2
    check_the_bill(world)


def test_without_money_for_a_held_machine_each_point_has_its_own(world: BatchWorld) -> None:
    world.submit(6, usd=2.5 * SHARE_USD, parallel=2, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 6}, story(world)
    assert providers(world) == ["fake"] * 6 and world.machines() == []
    assert world.market.bill_usd <= 2.5 * SHARE_USD


def test_a_budget_of_the_users_that_has_no_room_for_a_held_machine_binds(world: BatchWorld) -> None:
    world.budgets = (Budget(name="this month", usd=2.2 * SHARE_USD),)
    world.submit(4, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 4}, story(world)
    assert world.machines() == []


@pytest.mark.slow
def test_a_market_without_a_machine_to_hold_lets_points_wait_for_those_there_are(world: BatchWorld) -> None:
    world.market.machines = 2
    world.submit(10, usd=20.0, parallel=5, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 10}, story(world)
    assert world.market.rentals == 2 and world.ledger.batches.get(NAME).reason == ""
    check_the_bill(world)


def test_a_market_without_any_machine_ends_the_batch_with_that_reason(world: BatchWorld) -> None:
    world.market.machines = 0
    world.submit(6, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    assert "no offer: " in world.ledger.batches.get(NAME).reason
    assert len(world.ledger.runs()) <= 14
    check_the_bill(world)


def test_a_stop_ends_the_runs_and_the_machines_they_are_on(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2, reuse="auto")
    world.at(12.0, lambda: world.ledger.batches.ask(NAME, UserRequest.STOP))
    world.drive()
    assert world.verdicts()["STOPPED"] == 2 and world.verdicts()["None"] > 0, story(world)
    check_the_bill(world)


def test_after_its_hours_the_machines_are_given_back(world: BatchWorld) -> None:
    world.submit(40, usd=20.0, parallel=2, hours=0.03, reuse="auto")
    world.drive()
    assert "limits.hours" in world.ledger.batches.get(NAME).reason
    assert world.market.rentals == 2
    check_the_bill(world)


@pytest.mark.slow
def test_machines_of_a_launcher_that_was_killed_are_used_by_the_next_one(world: BatchWorld) -> None:
    world.submit(10, usd=20.0, parallel=2, reuse="auto")
    assert world.is_killed(40.0)
    assert world.market.rented == 2
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 10}, story(world)
    assert world.market.rentals == 2, story(world)
    assert max(world.market.labels.values()) == 1
    check_the_bill(world)


def test_a_stop_of_a_batch_whose_launcher_was_killed_ends_its_machines(world: BatchWorld) -> None:
    world.submit(10, usd=20.0, parallel=2, reuse="auto")
    assert world.is_killed(40.0)
    world.ledger.batches.ask(NAME, UserRequest.STOP)
    world.drive()
    assert world.market.rentals == 2
    check_the_bill(world)


def test_a_batch_that_is_detached_goes_on_with_its_machines(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2, reuse="auto")

    def detach() -> None:
        world.request = UserRequest.DETACH

    world.at(20.0, detach)
    world.drive()
    assert world.market.rented == 2
    world.request = UserRequest.NONE
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 8}, story(world)
    assert world.market.rentals == 2, story(world)
    check_the_bill(world)


def test_points_share_a_machine_that_costs_less_for_each(world: BatchWorld) -> None:
    world.market.sizes = {1: 0.5, 8: 2.0}
    world.submit(8, usd=20.0, parallel=8, pack="auto", job=one_gpu())
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 8}, story(world)
    assert world.market.rentals == 1 and providers(world) == [POOL] * 8
    (machine,) = world.machines()
    assert machine.offer is not None and machine.offer.gpus == 8
    check_the_bill(world)


def test_without_reuse_each_part_of_a_machine_is_used_once(world: BatchWorld) -> None:
    world.market.sizes = {1: 0.5, 4: 1.0}
    world.submit(8, usd=20.0, parallel=4, pack="auto", job=one_gpu())
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 8}, story(world)
    assert world.market.rentals == 2
    assert [slots.runs for slots in world.market.slotted.values()] == [4, 4]
    check_the_bill(world)


@pytest.mark.slow
def test_with_both_a_machine_takes_several_points_at_once_and_in_turn(world: BatchWorld) -> None:
    world.market.sizes = {1: 0.5, 4: 1.0}
    world.submit(16, usd=20.0, parallel=4, pack="auto", reuse="auto", job=one_gpu())
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 16}, story(world)
    assert world.market.rentals == 1
    check_the_bill(world)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.slow
def test_a_batch_with_machines_never_holds_more_than_its_budget(world: BatchWorld, seed: int) -> None:
    chance = random.Random(seed)
    budget = chance.uniform(0.5, 6.0)
    most_held = 0.0

    def look() -> None:
        nonlocal most_held
        most_held = max(most_held, world.ledger.batches.held_usd(NAME))
        world.at(0.5, look)

    def lose() -> None:
        ids = [id_ for id_ in world.market.slotted if world.market.is_there(id_)]
        if ids:
            world.market.lose(chance.choice(ids))

    world.market.sizes = {1: 1.8, 2: 3.0, 4: chance.choice((3.6, 9.0))}
    world.market.trainings = [
        CRASH if chance.random() < 0.15 else Training(seconds=chance.uniform(5.0, 60.0)) for _ in range(80)
    ]
    job = one_gpu(retry={"lost": 2, "signal": 1})
    pack = chance.choice(("auto", "never"))
    world.submit(
        20, usd=budget, parallel=chance.randint(1, 6), reuse="auto", pack=pack, job=job,
        stop=StopRules(same_cause=20),
    )  # fmt: skip
    world.at(0.0, look)
    for _ in range(chance.randint(0, 3)):
        world.at(chance.uniform(20.0, 300.0), lose)
    for _ in range(5):
        if not world.is_killed(chance.uniform(5.0, 200.0)):
            break
    world.ledger.batches.reopen(NAME)
    world.drive()
    world.time.happens.clear()
    assert most_held <= budget + 1e-9 and world.market.bill_usd <= budget + 1e-9
    assert max(world.market.labels.values()) == 1
    check_the_bill(world)


TROUBLES = ("error", "uncertain", "unreachable", "busy", "vanish", "killed")
VERBS = {
    "provider.search": TROUBLES,
    "provider.rent": TROUBLES,
    "provider.instances": TROUBLES,
    "provider.machine": TROUBLES,
    "provider.connect": TROUBLES,
    "provider.destroy": TROUBLES,
    "remote.run": ("unreachable", "gone", "vanish", "killed"),
    "remote.write": ("unreachable", "gone", "vanish", "killed"),
}
ROWS = [
    (verb, moment, trouble) for verb, troubles in VERBS.items() for moment in MOMENTS for trouble in troubles
]
CALLS = (1, 2, 4)
BUDGET_USD = 3.0


class DeadlyPlan(Plan):
    """With the trouble `killed` the whole launcher is killed, with all that it drives."""

    def __init__(self, market: object, fault: Fault, time: VirtualTime) -> None:
        super().__init__(market=market, faults=(fault,))  # type: ignore[arg-type]
        self._time = time

    def _strike(self, verb: str, nth: int, moment: Moment) -> None:
        fault = self._due(verb, nth, moment)
        if fault is not None and fault.trouble == "killed":
            self.struck.append(fault)
            self._time.kill_at = self._time.now()
            self._time.must_live()
        super()._strike(verb, nth, moment)


def drive_to_the_end(world: BatchWorld) -> None:
    """As a patient user would: resume whatever was interrupted."""
    for _ in range(8):
        try:
            world.drive()
        except Killed:
            world.time.kill_at = float("inf")
        else:
            if all(state.verdict is not None for state in world.states()):
                return
        world.ledger.batches.reopen(NAME)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS)
def test_one_trouble_leaves_no_machine_and_gives_each_point_one_end(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    struck = 0
    for nth in CALLS:
        world = BatchWorld(tmp_path)
        world.market.is_large = True
        world.plan = DeadlyPlan(
            world.market, Fault(verb=verb, nth=nth, moment=moment, trouble=trouble), world.time
        )
        job = train_job(retry={"lost": 2, "host": 2})
        world.submit(4, usd=BUDGET_USD, parallel=2, reuse="auto", job=job)

        drive_to_the_end(world)

        assert all(state.verdict is not None for state in world.states()), (nth, story(world))
        assert world.market.bill_usd <= BUDGET_USD
        assert max(world.market.labels.values()) == 1, (nth, story(world))
        check_the_bill(world, above_usd=0.03)  # what is not known to be free is charged
        if trouble == "killed":
            assert world.verdicts() == {"SUCCEEDED": 4}, (nth, story(world))
        struck += len(world.plan.struck)
    assert struck, "no fault of this row ever struck: the row tests nothing"
