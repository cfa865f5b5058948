"""What one drive does with a run: its phases and what is told of them, its offer, its one driver."""

import itertools
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.fakes import FakeClock, FakeProvider
from tests.jobs import train_job
from tests.launcher.faults import Fault, Plan
from tests.launcher.world import RUN_ID, World
from tests.runs import a_run
from vastrun.launcher.core import Cause, LeftOutFile, LeftOutFiles, Offer, Phase, Run, UserRequest, bills
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.core.labels import member_id
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.drive import create_run
from vastrun.launcher.ledger.sqlite import SqliteLedger


def test_a_good_training_succeeds_with_every_proof_and_nothing_rented(world: World) -> None:
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


@pytest.mark.parametrize("verb", ["provider.search", "provider.rent", "provider.connect", "provider.destroy"])
def test_a_plugin_that_exits_ends_the_run_and_leaves_no_machine(verb: str, world: World) -> None:
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble="exit"))
    run = world.launch()
    assert run.phase is Phase.ENDED
    assert (run.cause, run.detail) == (
        (None, "") if verb == "provider.destroy" else (Cause.INTERNAL, "SystemExit: 0")
    )
    assert (len(world.plan.struck), world.rented()) == (1, 0)


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


def test_the_diary_names_each_phase_once_it_is_done(world: World) -> None:
    world.launch()
    told = [event.phase for event in world.ledger.events(RUN_ID)]
    assert [phase for phase in Phase if phase in told] == [p for p in Phase if p is not Phase.ENDED]


def test_only_a_run_that_has_ended_has_the_time_of_its_end(world: World) -> None:
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
def test_end_of_a_training_that_has_done_its_steps_is_seen_at_once(tmp_path: Path, seconds: float) -> None:
    world = World(tmp_path, training=Training(seconds=seconds, scores_s=10.0))
    world.launch()
    events = world.ledger.events(RUN_ID)
    shipped, collected = (
        next(event.at for event in events if event.phase is phase) for phase in (Phase.SHIP, Phase.COLLECT)
    )
    assert collected - shipped - seconds < 0.3


def test_what_was_not_shown_or_not_downloaded_is_told_in_the_diary(world: World) -> None:
    world.output_store.not_shown = 5_000_000
    link = LeftOutFile(path="run/outputs/model.pt", why="a broken link")
    world.output_store.not_offered = LeftOutFiles(files=(link,), count=1)
    assert world.launch().cause is None
    told = [event.text for event in world.ledger.events(RUN_ID)]
    assert "the last 5.0 MB of the log were not shown; log.txt has them" in told
    assert "WARNING: 1 not downloaded: run/outputs/model.pt (a broken link)" in told


def test_of_a_short_rest_of_the_log_nothing_is_told(world: World) -> None:
    world.output_store.not_shown = 500
    world.launch()
    assert not any("not shown" in event.text for event in world.ledger.events(RUN_ID))


class ShiftingMarket(FakeProvider):
    """A market in which another offer comes first at each search."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._first = itertools.count()

    def search(self, spec: JobSpec) -> list[Offer]:
        offers, first = super().search(spec), next(self._first)
        return [*offers[first:], *offers[:first]]


def test_the_planned_offer_is_rented_although_another_search_would_find_another_one(world: World) -> None:
    world.market = ShiftingMarket(world.clock)
    world.plan = Plan(world.market)
    run = world.launch()
    assert run.cause is None
    assert run.offer is not None
    assert run.offer.id == "offer-1"


def test_a_taken_offer_is_followed_by_the_next(world: World) -> None:
    world.market.taken = {"offer-1", "offer-2"}
    run = world.launch()
    assert run.cause is None
    assert run.offer is not None
    assert run.offer.id == "offer-3"


def test_when_every_offer_is_taken_nothing_was_rented_and_nothing_cost(world: World) -> None:
    world.market.taken = {f"offer-{n}" for n in range(20)}
    run = world.launch()
    assert run.cause is Cause.NO_OFFER
    assert bills.cost_usd(run, world.clock.now()) == 0


def test_a_wait_ends_with_a_new_request_and_the_next_one_does_not(world: World) -> None:
    context = RunContext(replace(world.begin(), phase=Phase.TRAIN), world.spec, world.services())
    began = world.clock.now()
    world.user_requests.at = {began + 1.5: UserRequest.STOP}
    context.wait(60.0)
    assert world.clock.now() - began == 2.0
    context.wait(60.0)
    assert world.clock.now() - began == 62.0


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


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("limits", "free", "name", "nodes", "reserved_usd"),
    [
        (Limits(usd=3.0), False, "fake", 1, 3.0),
        (Limits(usd=3.0), False, "fake", 2, 1.5),
        (Limits(hours=2.0, usd_per_hour=1.5), False, "fake", 1, 3.0),
        (Limits(hours=2.0, usd_per_hour=1.5), False, "fake", 2, 3.0),
        (Limits(usd=3.0), True, "fake", 1, 0.0),
        (Limits(usd=3.0), False, "pool", 1, 0.0),
    ],
)
def test_a_new_run_has_a_row_for_each_node_with_what_it_may_cost(
    limits: Limits, free: bool, name: str, nodes: int, reserved_usd: float, shared: bool, tmp_path: Path
) -> None:
    world = World(tmp_path, spec=replace(train_job(limits=limits), nodes=nodes))
    world.market.free, world.market.name, world.market.shared = free, name, shared
    services = replace(world.services(), user="ann", computer="desk")
    for home in (None, "lab"):
        run_id = f"calm-heron-{home or 'own'}"
        made = create_run(
            world.spec,
            "{}",
            services,
            run_id=run_id,
            out_dir="/out",
            parent="former",
            batch="widths",
            point="p1",
            home=home,
        )
        row = a_run(
            id=run_id,
            job=world.spec.name,
            provider=name,
            out_dir="/out",
            created_at=world.clock.now(),
            reserved_usd=reserved_usd,
            parent="former",
            batch="widths",
            point="p1",
            ledger=world.ledger.id if shared else "",
            started_by="ann",
            computer="desk",
            home=home or "desk",
        )
        further = [
            replace(row, id=member_id(run_id, 1), leader=run_id, node=1, parent=None, out_dir="/out/node-1")
        ]
        assert made == row
        assert [world.ledger.get(run_id), *world.ledger.runs(leader=run_id)] == [row, *further[: nodes - 1]]
