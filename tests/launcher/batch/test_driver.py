"""The driver of a batch: each point once, on all of its machines, within its limits."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.batch.world import NAME, SHARE_USD, BatchWorld
from tests.launcher.terminal import CRASH, HANG
from vastrun.launcher.batch.driver import MAX_RENTING, POLL_INTERVAL_S
from vastrun.launcher.core import Cause, Driver, Phase, Settled, Verdict
from vastrun.launcher.core.batch import Budget, StopRules


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    return BatchWorld(tmp_path)


def test_every_point_runs_once_and_no_more_at_once_than_the_file_says(world: BatchWorld) -> None:
    world.submit(12, usd=20.0, parallel=3)
    states = world.drive()
    assert [state.verdict for state in states] == [Verdict.SUCCEEDED] * 12
    assert [len(state.runs) for state in states] == [1] * 12
    assert (world.market.most_at_once, world.market.rented) == (3, 0)
    assert world.screen.progresses[-1].ended == 12


def test_the_runs_of_a_batch_lie_in_folders_of_their_own_by_number(world: BatchWorld) -> None:
    world.submit(2, usd=20.0)
    world.drive()
    folders = [state.runs[0].out_dir for state in world.states()]
    assert folders == [str(world.folder / NAME / name) for name in ("0001-point00001", "0002-point00002")]


@pytest.mark.parametrize("pages_s", [0.0, 100.0], ids=["", "the pages of a run take long"])
def test_a_free_slot_waits_two_seconds_at_most(world: BatchWorld, pages_s: float) -> None:
    world.pages_s = pages_s
    world.submit(6, usd=20.0, parallel=1)
    world.drive()
    runs = [state.runs[0] for state in world.states()]
    waits = [later.created_at - (former.ended_at or 0.0) for former, later in pairwise(runs)]
    assert max(waits) <= 2.0
    assert world.time.now() >= (runs[-1].ended_at or 0.0) + pages_s, "the batch has ended without them"


@pytest.mark.slow
def test_the_next_run_chooses_its_machine_as_soon_as_one_before_has_its_own(world: BatchWorld) -> None:
    count = MAX_RENTING + 2
    world.submit(count, usd=10.0, parallel=count)
    world.drive()
    runs = sorted((run for state in world.states() for run in state.runs), key=lambda run: run.created_at)
    had_theirs = min(run.rented_at or 0.0 for run in runs[:MAX_RENTING])
    assert runs[MAX_RENTING].created_at - had_theirs <= 2 * POLL_INTERVAL_S


@pytest.mark.slow
def test_while_few_choose_a_machine_the_rest_of_a_batch_waits_and_holds_no_money(world: BatchWorld) -> None:
    most = 0

    def look() -> None:
        nonlocal most
        runs = world.ledger.runs(open_only=True, batch=NAME)
        most = max(most, sum(run.phase in (Phase.PLAN, Phase.RENT) for run in runs))
        world.at(0.1, look)

    world.submit(30, usd=50.0, parallel=30)
    world.at(0.0, look)
    world.drive()
    world.time.happens.clear()
    assert 0 < most <= MAX_RENTING
    assert world.market.most_at_once > MAX_RENTING


def test_a_batch_never_holds_a_cent_more_than_its_budget(world: BatchWorld) -> None:
    most_held = 0.0

    def look() -> None:
        nonlocal most_held
        most_held = max(most_held, world.ledger.batches.held_usd(NAME))
        world.at(0.25, look)

    world.submit(20, usd=2.5 * SHARE_USD, parallel=8)
    world.at(0.0, look)
    world.drive()
    world.time.happens.clear()
    assert world.market.most_at_once == 2  # two shares fit, then what they did not spend
    assert 0 < most_held <= 2.5 * SHARE_USD
    assert world.market.bill_usd <= 2.5 * SHARE_USD


def test_a_batch_ends_when_its_budget_has_no_room_for_another_run(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)  # 0.06 dollars and more
    world.submit(20, usd=3 * SHARE_USD, parallel=8)
    world.drive()
    reason = world.ledger.batches.get(NAME).reason
    assert "batch widths" in reason and "a further run may cost $0.10" in reason
    assert world.verdicts()["None"] > 0 and world.market.rented == 0


@pytest.mark.slow
def test_bills_that_come_while_a_batch_goes_on_free_what_was_held_of_its_budget(world: BatchWorld) -> None:
    def settle() -> None:
        """Everything was much cheaper than was counted."""
        for run in world.ledger.runs(batch=NAME):
            if run.phase is Phase.ENDED:
                world.ledger.hold(run.id, Driver(who="bills", until=world.time.now() + 60))
                world.ledger.save(replace(run, charged=Settled(gpu_usd=0.001)), who="bills")
                world.ledger.release(run.id, "bills")

    world.settle = settle
    world.market.usual = Training(seconds=60.0)  # 0.06 dollars and more
    world.submit(20, usd=10 * SHARE_USD, parallel=1)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 20}


def test_what_the_runs_of_the_moment_cost_is_shown_as_spent_and_as_a_rate(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)
    world.submit(2, usd=20.0, parallel=2)
    world.drive()
    spent = [progress.spent_usd for progress in world.screen.progresses if progress.running == 2]
    assert spent == sorted(spent) and spent[-1] > spent[len(spent) // 2] > spent[0]
    assert max(progress.usd_per_hour for progress in world.screen.progresses) == pytest.approx(7.2)


def test_what_a_run_did_not_spend_is_free_for_the_next_one(world: BatchWorld) -> None:
    world.submit(6, usd=SHARE_USD * 2.8, parallel=8)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 6}
    assert world.ledger.batches.held_usd(NAME) == pytest.approx(world.market.bill_usd, rel=0.2)


def test_the_share_of_a_run_travels_in_its_lease(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=1e6)
    world.submit(1, usd=20.0)
    world.drive()
    (state,) = world.states()
    assert (state.verdict, state.runs[0].cause) == (Verdict.LIMIT, Cause.MONEY_LIMIT)
    assert world.market.bill_usd <= SHARE_USD


def test_a_failure_hurts_no_other_run(world: BatchWorld) -> None:
    world.market.trainings = [Training(), CRASH, HANG]
    world.submit(6, usd=20.0, parallel=2)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 4, "FAILED": 1, "HUNG": 1}
    assert world.ledger.batches.get(NAME).reason == ""


def test_failures_of_one_cause_end_the_batch_and_give_its_budget_back(world: BatchWorld) -> None:
    world.market.usual = CRASH
    world.submit(20, usd=20.0, parallel=2, stop=StopRules(same_cause=4))
    world.drive()
    assert world.verdicts()["FAILED"] in (4, 5)
    assert "4 points failed with the same cause, signal" in world.ledger.batches.get(NAME).reason
    assert world.ledger.batches.held_usd(NAME) < 1.0


def test_a_share_of_failures_ends_the_batch(world: BatchWorld) -> None:
    world.market.trainings = [CRASH, HANG, Training(), CRASH]
    world.submit(10, usd=20.0, parallel=1, stop=StopRules(failed=0.2))
    world.drive()
    assert world.ledger.batches.get(NAME).reason == "limits.stop.failed: 3 of 10 points failed"


def test_after_its_hours_nothing_new_is_started(world: BatchWorld) -> None:
    world.submit(20, usd=20.0, parallel=1, hours=0.02)
    world.drive()
    assert world.ledger.batches.get(NAME).reason == "limits.hours: 0.02 h have passed"
    assert 0 < world.verdicts()["SUCCEEDED"] < 20


def test_a_batch_that_is_resumed_has_new_hours_and_forgets_the_failures_before(world: BatchWorld) -> None:
    world.market.trainings = [CRASH, CRASH]
    world.submit(6, usd=20.0, parallel=1, hours=0.02, stop=StopRules(same_cause=2))
    world.drive()
    assert "2 points failed" in world.ledger.batches.get(NAME).reason
    world.ledger.batches.reopen(NAME)
    world.drive()
    assert world.verdicts()["SUCCEEDED"] > 0


def test_an_edited_file_adds_only_new_points_and_gives_no_number_twice(world: BatchWorld) -> None:
    assert world.submit(3, usd=20.0) == 3
    world.drive()
    assert world.submit(4, first=2, usd=20.0) == 2
    world.drive()
    assert [(state.point.number, len(state.runs)) for state in world.states()] == [
        (n, 1) for n in range(1, 6)
    ]
    assert [state.point.wanted for state in world.states()] == [False, True, True, True, True]
    assert world.market.rentals == 5


def test_points_that_are_added_while_it_runs_are_run_too(world: BatchWorld) -> None:
    world.submit(2, usd=20.0, parallel=1)
    world.at(5.0, lambda: world.submit(3, usd=20.0, parallel=1) and None)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 3}


def test_a_budget_that_is_raised_while_it_runs_holds_at_once(world: BatchWorld) -> None:
    world.submit(4, usd=SHARE_USD, parallel=4)
    world.at(10.0, lambda: world.submit(4, usd=20.0, parallel=4) and None)
    world.drive()
    assert world.market.most_at_once == 4


def test_retries_follow_within_the_share_of_their_point(world: BatchWorld) -> None:
    world.market.trainings = [CRASH]
    world.submit(3, usd=20.0, job=train_job(retry={"signal": 1}))
    world.drive()
    runs = [state.runs for state in world.states()]
    assert [len(attempts) for attempts in runs] == [2, 1, 1]
    first, second = runs[0]
    assert first.reserved_usd == SHARE_USD and second.parent == first.id
    assert second.reserved_usd < SHARE_USD and (second.batch, second.point) == (NAME, first.point)


def test_points_that_failed_are_run_again_in_new_folders(world: BatchWorld) -> None:
    world.market.trainings = [CRASH, Training(), CRASH]
    world.submit(3, usd=20.0, parallel=1)
    world.drive()
    failed = [state.point.id for state in world.states() if state.has_failed]
    world.ledger.batches.again(NAME, failed)
    assert world.states()[0].is_waiting
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 3}
    assert Path(world.states()[0].runs[-1].out_dir).name == "0001-point00001-2"


def test_points_wait_for_machines_that_other_points_have(world: BatchWorld) -> None:
    world.market.machines = 2
    world.submit(10, usd=20.0, parallel=5)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 10}
    assert world.ledger.batches.get(NAME).reason == ""
    assert world.market.rentals == 10 and len(world.ledger.runs()) <= 20
    assert len(world.screen.notes) == 1 and "no more machines available" in world.screen.notes[0]


def test_a_resumed_batch_restarts_the_points_that_had_no_machine(world: BatchWorld) -> None:
    world.market.machines = 0
    world.submit(10, usd=20.0, parallel=4)
    world.drive()
    assert "no offer: " in world.ledger.batches.get(NAME).reason
    assert world.verdicts() == {"None": 10} and len(world.ledger.runs()) <= 12
    world.market.machines = 2
    world.ledger.batches.reopen(NAME)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 10}


def test_a_point_that_fits_no_machine_keeps_no_other_from_its_own(world: BatchWorld) -> None:
    job = train_job()
    odd = replace(job, resources=replace(job.resources, gpus=9))
    world.submit(8, usd=20.0, parallel=2, odd=odd)
    world.drive()
    assert world.verdicts() == {"None": 1, "SUCCEEDED": 7}
    assert "no offer: " in world.ledger.batches.get(NAME).reason
    assert len(world.states()[0].runs) <= 4


def test_an_attempt_that_finds_no_machine_is_made_up_for(world: BatchWorld) -> None:
    world.market.trainings = [CRASH]
    world.submit(1, usd=20.0, job=train_job(retry={"signal": 1}))
    world.at(4.0, lambda: setattr(world.market, "machines", 0))
    world.drive()
    assert world.verdicts() == {"None": 1}
    world.market.machines = 1
    world.ledger.batches.reopen(NAME)
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 1}


def test_batches_that_share_a_budget_never_hold_more_than_it_has(world: BatchWorld) -> None:
    world.budgets = (Budget(name="this month", usd=2 * SHARE_USD),)
    world.submit(4, usd=20.0, parallel=4)
    world.submit(4, first=11, name="depths", usd=20.0, parallel=4)
    other = world.time.submit(lambda: world.drive("depths"))
    world.drive()
    while not other.done():
        world.time.sleep(1.0)
    assert world.market.most_at_once == 2
    ends = {name: world.ledger.batches.get(name).reason for name in (NAME, "depths")}
    left = {name: world.verdicts(name)["None"] for name in ends}
    assert all(("this month" in ends[name]) == (left[name] > 0) for name in ends)


def test_each_point_has_all_of_its_machines_and_the_budget_counts_them(world: BatchWorld) -> None:
    world.market.max_nodes, world.market.usd_per_hour = 2, 1.0
    world.submit(3, job=train_job(nodes=2), usd=2.0, parallel=2, reuse="auto")

    world.drive()

    assert world.verdicts() == {"SUCCEEDED": 3}
    assert [len(state.runs) for state in world.states()] == [1, 1, 1], "a further node is no attempt"
    assert world.machines() == [], "and no machine that is held"
    rows = world.ledger.runs(batch=NAME, members=True)
    assert sorted(row.node for row in rows) == [0, 0, 0, 1, 1, 1]
    assert world.ledger.batches.held_usd(NAME) == pytest.approx(world.market.bill_usd, rel=0.05)
    assert world.market.rented == 0


def test_a_point_starts_only_where_the_budget_has_room_for_all_of_its_machines(world: BatchWorld) -> None:
    world.market.max_nodes, world.market.usd_per_hour = 2, 1.0
    world.submit(4, job=train_job(nodes=2), usd=SHARE_USD * 2.5, parallel=4)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, world.market.rented)
        world.at(1.0, look)

    world.at(1.0, look)
    world.drive()

    assert most == 4, "two points of two machines; the share of a point is of both"
