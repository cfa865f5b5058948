"""Who drives a batch: one launcher at a time; what a stop, a detach and a kill leave to the next."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.batch.world import NAME, BatchMarket, BatchWorld
from tests.launcher.terminal import CRASH
from tests.slow import slow
from vastrun.launcher.core import AccountStatus, Identity, Phase, UserRequest, Verdict
from vastrun.launcher.core.batch import StopRules
from vastrun.launcher.core.errors import AuthError, HeldError, StorageError
from vastrun.launcher.ports import Abilities


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    return BatchWorld(tmp_path)


def test_a_stop_ends_what_runs_and_starts_nothing_more(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2)
    world.at(10.0, lambda: world.ledger.batches.ask(NAME, UserRequest.STOP))
    world.drive()
    assert world.verdicts() == {"STOPPED": 2, "None": 6}
    assert world.market.rented == 0
    world.ledger.batches.reopen(NAME)
    world.drive()
    assert world.verdicts() == {"STOPPED": 2, "SUCCEEDED": 6}


def test_a_stop_that_no_launcher_heard_ends_the_open_runs_and_starts_nothing(world: BatchWorld) -> None:
    world.submit(4, usd=20.0, parallel=2)
    assert world.is_killed(15.0)
    assert world.market.rented == 2
    world.ledger.batches.ask(NAME, UserRequest.STOP)
    world.drive()
    assert world.verdicts() == {"STOPPED": 2, "None": 2}
    assert (world.market.rented, world.market.rentals) == (0, 2)


def test_a_batch_that_is_detached_goes_on_where_it_was(world: BatchWorld) -> None:
    world.submit(3, usd=20.0, parallel=2)

    def detach() -> None:
        world.request = UserRequest.DETACH

    world.at(8.0, detach)
    world.drive()
    assert [state.is_open for state in world.states()] == [True, True, False]
    world.request = UserRequest.NONE
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 3} and world.market.rentals == 3


def test_two_launchers_never_drive_one_batch(world: BatchWorld) -> None:
    world.submit(3, usd=20.0)
    refusals: list[str] = []

    def second() -> None:
        with pytest.raises(HeldError) as caught:
            world.drive()
        refusals.append(f"{caught.value} {caught.value.hint}")

    world.at(5.0, second)
    world.drive()
    assert "batch widths is driven by another launcher: process 1 on desk" in refusals[0]
    assert "vastrun batch watch widths" in refusals[0]


def test_a_launcher_that_is_refused_takes_no_stop_back(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2)
    refusals: list[str] = []

    def resume_beside() -> None:
        try:
            world.ledger.batches.reopen(NAME)
        except HeldError as error:
            refusals.append(str(error))

    world.at(10.0, lambda: world.ledger.batches.ask(NAME, UserRequest.STOP))
    world.at(10.1, resume_beside)
    world.at(10.2, lambda: world.submit(9, usd=20.0, parallel=2) and None)
    world.drive()
    assert world.ledger.batches.get(NAME).request is UserRequest.STOP
    assert len(refusals) == 1 and world.verdicts() == {"STOPPED": 2, "None": 7}


@pytest.mark.parametrize("away_s", [1.0, math.inf])
def test_after_an_error_of_the_ledger_a_stop_still_ends_what_runs(world: BatchWorld, away_s: float) -> None:
    world.market.usual = Training(seconds=600)
    world.submit(4, usd=20.0, parallel=2)

    def go_away() -> None:
        world.away_until = world.time.now() + away_s

    def stop() -> None:
        world.request = UserRequest.STOP

    world.at(20.0, go_away)
    world.at(60.0, stop)
    with pytest.raises(StorageError, match="database is locked"):
        world.drive()
    assert world.verdicts() == {"STOPPED": 2, "None": 2}
    assert world.market.rented == 0
    assert world.screen.notes == ["nothing more is started: database is locked"]


class PickyMarket(BatchMarket):
    """Has accounts, and refuses the key so many times."""

    refusals = 0

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, account=self)

    def account_status(self) -> AccountStatus:
        raise AuthError("HTTP 401")

    def identity(self) -> Identity:
        if self.refusals:
            self.refusals -= 1
            raise AuthError("HTTP 401")
        return Identity(account="mine", clock_ahead_s=None)


@pytest.fixture
def left(tmp_path: Path) -> BatchWorld:
    """Two runs whose launcher was killed; the key of the next one is refused once."""
    world = BatchWorld(tmp_path)
    world.market = market = PickyMarket(world.time, lambda _: None)
    market.usual = Training(seconds=60)
    world.submit(2, usd=20.0, parallel=2)
    assert world.is_killed(15.0)
    market.refusals = 1
    return world


def test_a_run_for_which_the_key_was_refused_is_left_and_is_the_batch_s_error(left: BatchWorld) -> None:
    with pytest.raises(AuthError, match="HTTP 401"):
        left.drive()
    assert left.verdicts() == {"None": 1, "SUCCEEDED": 1}


def test_it_is_no_error_any_more_once_another_launcher_has_ended_the_run(left: BatchWorld) -> None:
    def resume_beside() -> None:
        (undriven,) = [run.id for run in left.ledger.runs(open_only=True) if not left.ledger.driver(run.id)]
        left.time.submit(lambda: left.resume(undriven))

    left.at(10.0, resume_beside)
    states = left.drive()
    assert [state.verdict for state in states] == [Verdict.SUCCEEDED] * 2
    assert any("HTTP 401" in note for note in left.screen.notes)


@pytest.mark.parametrize("seed", [0, 1, *slow((2,), (3,), (4,))])
@pytest.mark.slow
def test_a_launcher_killed_repeatedly_leaves_each_point_one_verdict(world: BatchWorld, seed: int) -> None:
    chance = random.Random(seed)
    world.market.trainings = [CRASH if chance.random() < 0.2 else Training() for _ in range(60)]
    world.submit(24, usd=20.0, parallel=6, stop=StopRules(same_cause=24))
    for _ in range(6):
        if not world.is_killed(chance.uniform(1.0, 60.0)):
            break
    states = world.drive()
    assert all(state.verdict is not None for state in states)
    assert all(run.phase is Phase.ENDED for state in states for run in state.runs)
    assert max(world.market.labels.values()) == 1
    assert world.market.rented == 0
    assert world.market.most_at_once <= 6
