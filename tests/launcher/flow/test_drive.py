"""What one drive does with a run: requests, limits, lost machines, taken offers, machines that stay."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.fakes import PRICE, FakeClock, FakeProvider
from tests.jobs import train_job
from tests.launcher.faults import Fault, Killed, Plan
from tests.launcher.world import RUN_ID, World
from vastrun.launcher.core import (
    Cause,
    Driver,
    ExtraRates,
    LeftOutFile,
    LeftOutFiles,
    Offer,
    Phase,
    Run,
    UserRequest,
    bills,
)
from vastrun.launcher.core.errors import HeldError
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.ledger.sqlite import SqliteLedger


def test_a_good_training_succeeds_with_every_proof_and_nothing_rented(tmp_path: Path) -> None:
    world = World(tmp_path)

    run = world.launch()

    assert run.cause is None
    assert {proof.name for proof in run.proofs} == {
        "ranks",
        "exit",
        "record",
        "steps",
        "loss",
        "checkpoint",
        "outputs",
    }
    assert all(proof.holds for proof in run.proofs)
    assert world.rented() == 0
    assert bills.cost_usd(run, world.clock.now()) == pytest.approx(world.market.bill_usd, rel=0.2)


class NotingLedger(SqliteLedger):
    """Notes when a row with another step is saved."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(Path(":memory:"), now=clock.now, alive=lambda _: True)
        self.saved_at: list[float] = []
        self._clock = clock

    def save(self, run: Run, *, who: str) -> None:
        if run.step != self.get(run.id).step:
            self.saved_at.append(self._clock.now())
        super().save(run, who=who)


def test_steps_are_saved_to_the_row_only_every_few_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=60.0, steps=60), spec=train_job(steps=60))
    world.ledger = ledger = NotingLedger(world.clock)

    run = world.launch()

    assert (run.cause, run.step) == (None, 60)
    between_s = [after - before for before, after in pairwise(ledger.saved_at)]
    assert len(between_s) > 5
    # The last one is saved when the training ends, however short the time since.
    assert min(between_s[:-1]) >= 5.0


def test_the_diary_names_each_phase_once_it_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)

    world.launch()

    told = [event.phase for event in world.ledger.events(RUN_ID)]
    assert [phase for phase in Phase if phase in told] == [p for p in Phase if p is not Phase.ENDED]


def test_only_a_run_that_has_ended_has_the_time_of_its_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=policy.DESTROY_TRIES)
    )
    still_open = world.launch()
    assert (still_open.phase, still_open.ended_at) == (Phase.DESTROY, None)
    world.pass_time(600)
    ended = world.resume()
    assert (ended.phase, ended.ended_at) == (Phase.ENDED, ended.phase_at)
    assert ended.ended_at is not None and ended.ended_at >= still_open.phase_at + 600


@pytest.mark.parametrize("seconds", [20.3, 20.6, 20.9])
def test_the_end_of_a_training_that_has_done_its_steps_is_seen_at_once(
    tmp_path: Path, seconds: float
) -> None:
    world = World(tmp_path, training=Training(seconds=seconds, scores_s=10.0))

    world.launch()

    events = world.ledger.events(RUN_ID)
    shipped, collected = (
        next(event.at for event in events if event.phase is phase) for phase in (Phase.SHIP, Phase.COLLECT)
    )
    assert collected - shipped - seconds < 0.3


def test_what_was_not_shown_or_not_downloaded_is_told_in_the_diary(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.output_store.not_shown = 5_000_000
    link = LeftOutFile(path="run/outputs/model.pt", why="a broken link")
    world.output_store.not_offered = LeftOutFiles(files=(link,), count=1)
    assert world.launch().cause is None
    told = [event.text for event in world.ledger.events(RUN_ID)]
    assert "the last 5.0 MB of the log were not shown; log.txt has them" in told
    assert "WARNING: 1 not downloaded: run/outputs/model.pt (a broken link)" in told


def test_of_a_short_rest_of_the_log_nothing_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.output_store.not_shown = 500
    world.launch()
    assert not any("not shown" in event.text for event in world.ledger.events(RUN_ID))


def test_a_stop_saves_collects_and_destroys(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now() + 5: UserRequest.STOP}

    run = world.launch()

    assert run.cause is Cause.STOPPED
    assert "the end" in world.output_store.log
    assert world.rented() == 0


def test_a_stop_asked_from_another_terminal_is_heard(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="output_store.download_log", nth=2, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()

    world.ledger.ask(RUN_ID, UserRequest.STOP)
    run = world.resume()

    assert run.cause is Cause.STOPPED


def test_a_stop_that_comes_just_before_the_start_trains_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="remote.run", nth=3, moment="before", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    assert world.ledger.get(RUN_ID).phase is Phase.TRAIN

    world.ledger.ask(RUN_ID, UserRequest.STOP)
    run = world.resume()

    assert run.cause is Cause.STOPPED
    assert "before the training began" in run.detail
    assert world.rented() == 0


def test_destroy_now_does_not_wait_for_outputs(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=3000))
    world.user_requests.at = {world.clock.now() + 5: UserRequest.DESTROY}

    run = world.launch()

    assert (run.cause, run.detail) == (Cause.STOPPED, "destroyed immediately, as requested")
    assert world.output_store.home == {}
    assert world.rented() == 0


def test_a_stop_before_anything_was_rented_rents_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now(): UserRequest.STOP}

    run = world.launch()

    assert (run.phase, run.cause) == (Phase.ENDED, Cause.STOPPED)
    assert world.market.most_at_once == 0
    assert run.rented_at is None


def test_a_detached_run_goes_on_alone_and_is_finished_by_whoever_comes_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}

    left = world.launch()
    assert left.phase is Phase.TRAIN
    assert world.rented() == 1
    assert world.ledger.driver(RUN_ID) is None

    world.user_requests.at = {}
    world.pass_time(600)
    run = world.resume()
    assert run.cause is None, run.detail


def test_a_detached_run_that_nobody_collects_is_lost_and_costs_no_more_than_its_lease(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    world.launch()

    world.user_requests.at = {}
    world.pass_time(86400)
    assert world.rented() == 0
    run = world.resume()

    assert run.cause is Cause.LOST
    assert "lease" in run.detail
    assert bills.cost_usd(run, world.clock.now()) <= world.spec.limits.usd * 1.05


@pytest.mark.parametrize("late_s", [1.0, 4.0, 16.0, 48.0, 600.0])
def test_a_machine_that_its_lease_ended_unseen_is_charged_until_then_by_our_own_clock(
    late_s: float, tmp_path: Path
) -> None:
    spec = train_job(limits=Limits(hours=0.1, usd=3.0))
    world = World(tmp_path, training=Training(seconds=90000), spec=spec)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    began = world.clock.now()
    world.launch()
    world.user_requests.at = {}
    world.pass_time(began + 360 + late_s - world.clock.now())

    run = world.resume()

    assert world.rented() == 0
    above_s = (bills.cost_usd(run, world.clock.now()) - world.market.bill_usd) / PRICE * 3600
    assert 0 <= above_s <= 5


@pytest.mark.parametrize(
    ("limits", "cause", "most_usd"),
    [
        (Limits(hours=0.1, usd=3.0), Cause.TIME_LIMIT, 0.36),
        (Limits(hours=5.0, usd=0.5), Cause.MONEY_LIMIT, 0.5),
    ],
)
def test_a_limit_stops_the_training_with_a_checkpoint_and_is_named(
    limits: Limits, cause: Cause, most_usd: float, tmp_path: Path
) -> None:
    world = World(tmp_path, training=Training(seconds=90000), spec=train_job(limits=limits))

    run = world.launch()

    assert run.cause is cause
    assert "the end" in world.output_store.log
    assert world.market.bill_usd <= most_usd


def test_money_that_traffic_used_up_stops_the_training_with_a_checkpoint(tmp_path: Path) -> None:
    spec = train_job(limits=Limits(hours=5.0, usd=3.0))
    world = World(tmp_path, training=Training(seconds=90000), spec=spec)
    world.market.extras, world.market.down_gb = ExtraRates(down_usd_per_gb=0.5), 2.0

    run = world.launch()

    assert run.cause is Cause.MONEY_LIMIT
    assert "the end" in world.output_store.log
    assert 1.7 < world.market.bill_usd <= 2.0
    assert bills.cost_usd(run, world.clock.now()) == pytest.approx(world.market.bill_usd + 1.0, rel=0.01)


def test_a_machine_that_vanishes_while_training_is_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="remote.run", nth=6, moment="before", trouble="vanish"))

    run = world.launch()

    assert (run.cause, run.detail) == (
        Cause.LOST,
        "the machine no longer exists; the provider no longer lists it",
    )
    assert VERDICT_OF[run.cause] == "LOST"
    assert world.market.forgotten == {RUN_ID}


@pytest.mark.parametrize("verb", ["remote.run", "remote.read", "remote.put", "output_store.collect"])
def test_a_machine_that_vanishes_is_charged_until_it_was_first_missed(verb: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble="vanish"))

    run = world.launch()

    assert run.cause is Cause.LOST
    above_s = (bills.cost_usd(run, world.clock.now()) - world.market.bill_usd) / PRICE * 3600
    assert 0 <= above_s <= 5


def test_a_run_that_died_without_an_exit_code_is_given_half_a_minute_to_write_one(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=1000.0, dies_after_s=5.0))

    run = world.launch()

    assert (run.cause, run.failed_in) == (Cause.HOST, Phase.TRAIN)
    assert run.detail == "the run on the machine died without an exit code"
    events = world.ledger.events(RUN_ID)
    shipped, collected = (
        next(event.at for event in events if event.phase is phase) for phase in (Phase.SHIP, Phase.COLLECT)
    )
    assert collected - shipped == pytest.approx(5 + 30, abs=3)
    assert world.rented() == 0


class ShiftingMarket(FakeProvider):
    """A market in which another offer comes first at each search."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._first = itertools.count()

    def search(self, spec: JobSpec) -> list[Offer]:
        offers, first = super().search(spec), next(self._first)
        return [*offers[first:], *offers[:first]]


def test_the_planned_offer_is_rented_although_another_search_would_find_another_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.market = ShiftingMarket(world.clock)
    world.plan = Plan(world.market)

    run = world.launch()

    assert run.cause is None
    assert run.offer is not None
    assert run.offer.id == "offer-1"


def test_a_taken_offer_is_followed_by_the_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.market.taken = {"offer-1", "offer-2"}

    run = world.launch()

    assert run.cause is None
    assert run.offer is not None
    assert run.offer.id == "offer-3"


def test_when_every_offer_is_taken_nothing_was_rented_and_nothing_cost(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.market.taken = {f"offer-{n}" for n in range(20)}

    run = world.launch()

    assert run.cause is Cause.NO_OFFER
    assert bills.cost_usd(run, world.clock.now()) == 0


def test_a_machine_that_will_not_go_keeps_the_row_open_and_resume_tries_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=99))

    run = world.launch()
    assert run.phase is Phase.DESTROY
    assert run.cause is None
    assert world.rented() == 1

    world.expect()
    run = world.resume()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert world.rented() == 0


@pytest.mark.parametrize(
    ("verb", "times"),
    [("provider.destroy", 8), ("remote.write", 99)],
    ids=["for minutes while the machine is ended", "once the outputs are home"],
)
def test_a_line_that_is_cut_is_waited_for_and_takes_no_success_away(
    verb: str, times: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble="unreachable", times=times))

    run = world.launch()

    assert (run.phase, run.cause) == (Phase.ENDED, None), run.detail
    assert world.rented() == 0


def test_outputs_of_a_box_that_stays_silent_are_waited_for_five_minutes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(
        Fault(verb="output_store.collect", nth=1, moment="before", trouble="unreachable", times=9999)
    )

    began = world.clock.now()

    run = world.launch()

    assert (run.phase, run.cause) == (Phase.ENDED, Cause.HOST), run.detail
    assert world.rented() == 0
    waited_s = world.clock.now() - began - world.market.training.seconds
    assert 300 <= waited_s <= 400


def test_the_first_cause_stays_when_the_clean_up_stumbles(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(
        Fault(verb="remote.put", nth=1, moment="before", trouble="error"),
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="bug"),
    )

    run = world.launch()

    assert run.cause is Cause.PROVIDER
    assert "HTTP 500" in run.detail
    assert world.rented() == 0


def test_two_launchers_never_drive_one_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    world.launch()
    world.ledger.hold(RUN_ID, Driver(who="laptop:77:0", until=world.clock.now() + 60))

    with pytest.raises(HeldError, match="process 77 on laptop"):
        world.resume()


class EarlyClock(FakeClock):
    """Comes back at once from each sleep but the first, as when the user presses a key."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.sleeps = 0

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        super().sleep(seconds if self.sleeps == 1 else 0.0)


def test_a_wait_ends_as_soon_as_the_clock_comes_back_early(tmp_path: Path) -> None:
    world = World(tmp_path)
    clock = EarlyClock(world.clock.now())
    context = RunContext(world.begin(), world.spec, replace(world.services(), clock=clock))

    context.wait(60.0)

    assert clock.sleeps == 2


def test_a_launcher_that_was_taken_over_writes_nothing_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    services = world.services("old:1:0")
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    run = world.launch()
    world.ledger.hold(RUN_ID, Driver(who="new:2:0", until=world.clock.now() + 60))

    with pytest.raises(HeldError):
        services.ledger.save(replace(run, detail="overwritten"), who="old:1:0")

    assert world.run().detail == ""


def test_a_box_that_neither_answers_nor_ends_itself_is_given_back_after_its_limit(
    tmp_path: Path,
) -> None:
    spec = train_job(limits=Limits(hours=1.0, usd=100.0))
    world = World(tmp_path, training=Training(seconds=90000), spec=spec)
    world.market.stranded_from = world.clock.now() + 600

    run = world.launch()

    assert (run.cause, run.detail) == (
        Cause.TIME_LIMIT,
        "past the end of its lease, which did not destroy it",
    )
    assert world.rented() == 0
    assert world.market.bill_usd <= (3600 + policy.LIMIT_SLACK_S + 30) * PRICE / 3600


def test_a_paid_machine_without_any_limit_on_money_is_not_rented(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(limits=Limits(hours=1.0)))

    run = world.launch()

    assert run.cause is Cause.USER_ERROR
    assert "spending limit" in run.detail
    assert world.market.most_at_once == 0


def test_an_offer_above_the_hourly_price_is_not_taken(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(limits=Limits(usd_per_hour=1.0)))

    run = world.launch()

    assert run.cause is Cause.NO_OFFER


@pytest.mark.parametrize("by_s", [7200.0, -7200.0, 600.0])
def test_a_run_whose_launcher_finds_the_clock_set_ends_well_all_the_same(by_s: float, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    world.launch()

    world.user_requests.at = {}
    world.wrong_by_s = by_s
    run = world.resume()

    assert run.cause is None, run.detail
    assert world.rented() == 0


def test_a_launcher_killed_between_the_destroy_and_its_proof_does_not_make_the_run_dearer(
    tmp_path: Path,
) -> None:
    calm = World(folder(tmp_path, "calm"))
    calm.launch()
    proofs = 2

    world = World(folder(tmp_path, "killed"))
    nth = calm.plan.calls["provider.instances"] - proofs + 1
    world.expect(Fault(verb="provider.instances", nth=nth, moment="before", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    assert world.rented() == 0
    world.pass_time(3600)
    run = world.resume()

    assert bills.cost_usd(run, world.clock.now()) == pytest.approx(world.market.bill_usd, rel=0.01)


def test_where_a_run_stands_is_shown_each_second_in_every_phase_that_takes_long(tmp_path: Path) -> None:
    spec = train_job(steps=60)
    world = World(tmp_path, spec=spec, training=Training(seconds=120.0, steps=60))
    world.market.loading["host-1"] = Loading(seconds=120.0, layer_s=20.0)

    assert world.launch().cause is None

    shown = Counter(phase for phase, _ in world.screen.shown)
    assert min(shown[Phase.BOOT], shown[Phase.TRAIN]) >= 120
    known = [progress for phase, progress in world.screen.shown if phase is Phase.TRAIN]
    assert {progress.steps for progress in known if progress.step} == {60}
    half = next(progress for progress in known if progress.step == 30)
    assert half.left_s == pytest.approx(60.0, abs=4.0)


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name
