"""Data volumes of runs: one is created, later runs get it, and a run never fails of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeProvider
from tests.jobs import train_job
from tests.launcher.faults import Fault, Killed
from tests.launcher.world import RUN_ID, World
from tests.offers import rtx_4090
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import ExtraRates, Offer, Run, Volume
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import (
    AuthError,
    BusyError,
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
    UsageError,
    VastrunError,
)
from vastrun.launcher.core.job import DataVolume, JobSpec
from vastrun.launcher.flow.drive import create_run, drive
from vastrun.launcher.flow.rental import choose_offers
from vastrun.launcher.flow.volumes import download_usd, prefer_host, prefer_volume
from vastrun.launcher.ports import Abilities
from vastrun.launcher.transcript.recorded import recorded

DISK = DataVolume(name="pdebench", gb=200)


def job(volume: DataVolume | None = DISK) -> JobSpec:
    return replace(train_job(), volume=volume)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, spec=job())


def next_run(world: World, run_id: str, *, budgets: tuple[Budget, ...] = ()) -> Run:
    """One more run of the world's job, by a launcher of its own, long after the run before it."""
    world.pass_time(600)
    services = replace(world.services(), budgets=lambda _now: budgets)
    run = create_run(world.spec, dump_job(world.spec), services, run_id=run_id, out_dir=f"/nowhere/{run_id}")
    with recorded(run, services) as told:
        return drive(run, world.spec, told)


def told(world: World, run_id: str = RUN_ID) -> str:
    return "\n".join(event.text for event in world.ledger.events(run_id))


def the_volume(world: World) -> Volume:
    (volume,) = world.ledger.volumes.all(existing=True)
    return volume


def test_the_first_run_creates_its_volume_and_the_next_one_gets_it(world: World) -> None:
    first = world.launch()
    assert first.cause is None
    assert "volume pdebench is created on machine host-1: $20.00 a month" in told(world)
    ended_at = world.clock.now()
    second = next_run(world, "wise-otter-4b2c")
    assert second.cause is None and second.host == first.host
    assert "volume pdebench is attached" in told(world, second.id)
    assert world.market.disks.created == 1
    volume = the_volume(world)
    assert volume.used_at > ended_at
    assert (volume.volume_id, volume.host, volume.run_id) == ("701", "host-1", second.id)


def test_a_volume_costs_its_price_from_its_order_until_it_is_gone(world: World) -> None:
    run = world.launch()
    volume = the_volume(world)
    assert run.rented_at is not None and volume.created_at <= run.rented_at
    assert volume.cost_usd(volume.created_at + 720 * 3600) == pytest.approx(20.0)
    half = volume.created_at + 360 * 3600
    assert volume.cost_usd(half + 360 * 3600, since=half) == pytest.approx(10.0)
    assert replace(volume, deleted_at=half).cost_usd(half + 1e9) == pytest.approx(10.0)


def test_a_volume_in_use_is_left_to_its_machine(world: World) -> None:
    world.launch()
    world.market.disks.there["701"].released_at = None
    assert next_run(world, "wise-otter-4b2c").cause is None
    assert "without volume pdebench, on the machine's own disk: another machine uses it" in told(
        world, "wise-otter-4b2c"
    )
    assert world.market.disks.created == 1


def test_a_run_on_another_machine_creates_no_second_volume(world: World) -> None:
    world.launch()
    world.market.taken.add("offer-1")
    second = next_run(world, "wise-otter-4b2c")
    assert second.cause is None and second.host == "host-2"
    assert "it is on machine host-1, and this run rents host-2" in told(world, second.id)
    assert world.market.disks.created == 1


def test_the_machine_of_the_volume_comes_first_where_it_costs_less_than_the_download(world: World) -> None:
    world.market.taken.add("offer-1")
    assert world.launch().host == "host-2"
    world.market.taken.clear()
    assert next_run(world, "wise-otter-4b2c").host == "host-2"


def test_a_deadline_comes_before_the_machine_of_the_volume(world: World) -> None:
    world.market.taken.add("offer-1")
    world.launch()
    volume = the_volume(world)
    offers = list(world.market.search(world.spec))
    late = replace(world.spec, limits=replace(world.spec.limits, deadline="2027-02-01T00:00:00+00:00"))
    assert prefer_volume(world.spec, offers, volume)[0].host == "host-2"
    assert prefer_volume(late, offers, volume) == offers
    assert prefer_volume(world.spec, offers, None) == offers


def test_a_volume_that_lists_lack_for_long_is_gone_and_created_again(world: World) -> None:
    world.launch()
    world.market.disks.there.clear()
    assert next_run(world, "wise-otter-4b2c").cause is None
    assert "the provider does not list it now" in told(world, "wise-otter-4b2c")
    assert world.market.disks.created == 1
    assert next_run(world, "bold-finch-77aa").cause is None
    assert "volume pdebench is gone" in told(world, "bold-finch-77aa")
    assert world.market.disks.created == 2
    assert [volume.deleted_at is None for volume in world.ledger.volumes.all()] == [True, False]


@pytest.mark.parametrize("error", [UncertainError("?"), UnreachableError("?"), BusyError("429")], ids=repr)
def test_without_a_list_no_volume_is_created_and_the_run_goes_on(world: World, error: VastrunError) -> None:
    world.market.disks.error = error
    assert world.launch().cause is None
    assert world.market.disks.created == 0 and not world.ledger.volumes.all()


def test_a_key_that_may_not_list_volumes_costs_no_run(world: World) -> None:
    world.market.disks.error = AuthError("the key lacks the permission for this")
    assert world.launch().cause is None
    assert "lacks the permission" in told(world)


@pytest.mark.parametrize("refusal", [ProviderError("HTTP 400"), NoOfferError("no_such_ask")], ids=repr)
def test_an_order_that_is_refused_for_its_volume_is_made_without_it(
    world: World, refusal: VastrunError
) -> None:
    world.market.disks.refuses = refusal
    run = world.launch()
    assert run.cause is None and run.host == "host-1"
    assert "the order with it was rejected" in told(world)
    assert not world.ledger.volumes.all(existing=True)


@pytest.mark.parametrize("gone", [False, True], ids=["the machine is found", "the machine is not found"])
def test_an_order_without_an_answer_creates_no_second_volume(world: World, gone: bool) -> None:
    world.expect(Fault(verb="provider.rent", nth=1, moment="after", trouble="uncertain"))
    if gone:
        world.market.unlisted.add("1")
    world.launch()
    next_run(world, "wise-otter-4b2c")
    assert world.market.disks.created == 1
    assert the_volume(world).volume_id == "701"


def test_a_launcher_killed_at_its_order_leaves_a_volume_that_the_ledger_knows(world: World) -> None:
    world.expect(Fault(verb="provider.rent", nth=1, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    assert the_volume(world).run_id == RUN_ID
    assert world.resume().cause is None
    assert world.market.disks.created == 1


def test_a_list_that_is_late_makes_no_second_volume(world: World) -> None:
    world.launch()
    world.market.disks.unlisted = True
    assert next_run(world, "wise-otter-4b2c").cause is None
    world.market.disks.unlisted = False
    assert next_run(world, "bold-finch-77aa").cause is None
    assert "volume pdebench is attached" in told(world, "bold-finch-77aa")
    assert the_volume(world).missing_at is None and world.market.disks.created == 1


def test_an_order_done_in_spite_of_its_refusal_is_taken_into_the_ledger(world: World) -> None:
    world.launch()
    records = world.ledger.volumes
    records.save(replace(the_volume(world), deleted_at=the_volume(world).created_at))
    assert next_run(world, "wise-otter-4b2c").cause is None
    assert the_volume(world).volume_id == "701" and world.market.disks.created == 1


def test_a_volume_of_this_label_that_the_ledger_never_had_is_left_alone(world: World, tmp_path: Path) -> None:
    world.launch()
    stranger = World(tmp_path, spec=job())
    stranger.market.disks.there = world.market.disks.there
    label = f"vastrun_{stranger.ledger.id}_pdebench"
    volume = stranger.market.disks.there["701"]
    volume.listed = replace(volume.listed, label=label)
    assert stranger.launch().cause is None
    assert "is not in this ledger" in told(stranger)
    assert stranger.market.disks.created == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda disks: setattr(disks, "room_gb", 100), "has no room for a volume of 200 GB"),
        (
            lambda disks: setattr(disks, "usd_per_gb_month", 0.5),
            "it would cost $100.00 a month there, and volume.usd_per_month allows $60.00",
        ),
    ],
)
def test_a_machine_without_room_at_the_price_gets_no_volume(
    world: World, change: Callable[[object], None], text: str
) -> None:
    change(world.market.disks)
    assert world.launch().cause is None
    assert text in told(world)
    assert not world.ledger.volumes.all()


def test_a_volume_may_cost_exactly_what_the_job_allows(world: World) -> None:
    world.market.disks.usd_per_gb_month = 0.3
    assert world.launch().cause is None
    assert the_volume(world).usd_per_hour == pytest.approx(60 / 720)


def test_a_budget_without_room_for_the_volume_lets_the_run_go_without_it(world: World) -> None:
    budget = Budget(name="month", usd=world.spec.limits.usd or 0.0)
    assert next_run(world, "wise-otter-4b2c", budgets=(budget,)).cause is None
    assert "its price does not fit the budget" in told(world, "wise-otter-4b2c")
    assert world.market.disks.created == 0


def test_a_budget_counts_what_volumes_cost_since_it_began(world: World) -> None:
    world.launch()
    runs_usd = world.ledger.use_of(Budget(name="all", usd=100.0)).spent_usd
    world.pass_time(720 * 3600)
    assert world.ledger.use_of(Budget(name="all", usd=100.0)).spent_usd - runs_usd == pytest.approx(
        20, rel=0.01
    )
    hour_ago = Budget(name="hour", usd=100.0, since=world.clock.now() - 3600)
    assert world.ledger.use_of(hour_ago).spent_usd == pytest.approx(20 / 720, rel=0.01)


def test_a_provider_without_volumes_refuses_the_job_before_it_searches(world: World) -> None:
    class WithoutVolumes(FakeProvider):
        @property
        def abilities(self) -> Abilities:
            return replace(super().abilities, volumes=None)

    with pytest.raises(UsageError, match="fake has no data volumes"):
        choose_offers(job(), WithoutVolumes(world.clock), now=world.clock.now())


def offer(host: str, usd_per_hour: float, *, expected_usd: float = 0.0, down_usd: float = 0.0) -> Offer:
    return rtx_4090(
        id=f"offer of {host}",
        host=host,
        usd_per_hour=usd_per_hour,
        expected_usd=expected_usd,
        extras=ExtraRates(down_usd_per_gb=down_usd),
    )


def test_a_download_costs_its_traffic_and_the_machine_meanwhile() -> None:
    # 225 GB at 500 Mbit/s take an hour.
    assert download_usd(offer("a", 0.4, down_usd=0.002), 225) == pytest.approx(0.4 + 225 * 0.002)


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        (offer("b", 0.5, expected_usd=4.3), "b"),
        (offer("b", 0.5, expected_usd=4.5), "a"),
        (offer("b", 0.7), "b"),
        (offer("b", 0.9), "a"),
    ],
)
def test_the_machine_with_the_volume_is_first_where_it_costs_no_more_than_the_download(
    kept: Offer, first: str
) -> None:
    offers = prefer_host([offer("a", 0.4, expected_usd=4.0), kept, offer("c", 2.0)], "b", 225)
    assert [one.host for one in offers] == (["b", "a", "c"] if first == "b" else ["a", "b", "c"])


def test_a_machine_that_is_not_offered_changes_nothing() -> None:
    offers = [offer("a", 0.4), offer("c", 2.0)]
    assert prefer_host(offers, "b", 225) == offers
    assert prefer_host([], "b", 225) == []
