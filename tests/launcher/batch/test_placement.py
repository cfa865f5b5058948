"""A warm slot or a new machine, how many machines of which shape, and when one is given back."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import train_job
from tests.offers import rtx_4090
from vastrun.launcher.batch import placement
from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.policy import START_S, lease_of, worst_case_usd
from vastrun.launcher.pool.held_machines import MIN_LEFT_S

HOUR = 3600.0


def offer(gpus: int, usd_per_hour: float, *, loading_usd: float = 0.0, id: str = "") -> Offer:
    return rtx_4090(
        gpus=gpus, id=id or f"{gpus}x{usd_per_hour}", usd_per_hour=usd_per_hour, loading_usd=loading_usd
    )


def fleet_of(points: int, *offers: Offer, gpus: int = 1, seconds: float = HOUR) -> placement.CheapestFleet:
    fleet = placement.cheapest_fleet(points, offers, gpus=gpus, seconds=seconds)
    assert fleet is not None
    return fleet


def warm(share: float, whole: float, busy_s: float = 0.0) -> placement.WarmSlot:
    return placement.WarmSlot(offer=offer(1, share), machine_usd_per_hour=whole, busy_s=busy_s)


def test_a_warm_slot_is_taken_when_it_costs_less_than_a_new_machine() -> None:
    slot = warm(0.5, 0.5)
    assert placement.place_point(HOUR, [slot], [offer(1, 0.5, loading_usd=0.05)], is_shared=False) is slot
    assert placement.place_point(HOUR, [slot], [offer(1, 0.4, loading_usd=0.05)], is_shared=False) is None


def test_a_machine_that_would_be_kept_for_one_point_alone_costs_all_of_its_price() -> None:
    slot = warm(0.5, 4.0, busy_s=HOUR / 2)
    assert placement.place_point(HOUR, [slot], [offer(1, 0.6)], is_shared=True) is slot
    assert placement.place_point(HOUR, [slot], [offer(1, 2.24)], is_shared=False) is None, (
        "0.25 shared and 2.00 alone"
    )
    assert placement.place_point(HOUR, [slot], [offer(1, 2.26)], is_shared=False) is slot


def test_of_two_that_cost_the_same_the_slot_is_taken() -> None:
    slot = warm(0.0, 0.0)
    assert placement.place_point(HOUR, [slot], [offer(1, 0.0)], is_shared=False) is slot


def test_the_cheaper_of_several_slots_and_offers_is_taken() -> None:
    slots = [warm(0.5, 0.5), warm(0.3, 0.3)]
    assert placement.place_point(HOUR, slots, [offer(1, 0.9), offer(1, 0.8)], is_shared=False) is slots[1]
    assert placement.place_point(HOUR, slots, [offer(1, 0.9), offer(1, 0.2)], is_shared=False) is None


def test_without_an_offer_a_slot_is_taken_and_without_a_slot_none() -> None:
    slot = warm(9.0, 9.0)
    assert placement.place_point(HOUR, [slot], [], is_shared=False) is slot
    assert placement.place_point(HOUR, [], [offer(1, 0.5)], is_shared=False) is None
    assert placement.place_point(HOUR, [], [], is_shared=True) is None


def test_eight_points_take_one_machine_of_eight_gpus_when_that_is_cheaper_per_gpu() -> None:
    singles = [offer(1, 0.40, id=f"single-{n}") for n in range(8)]
    fleet = fleet_of(8, *singles, offer(8, 2.40))
    assert [shape.offer.gpus for shape in fleet.machines] == [8]
    assert fleet.packed_usd_per_hour == pytest.approx(0.30)
    assert fleet.single_usd_per_hour == pytest.approx(0.40), "both prices are there to be shown"


def test_eight_points_take_eight_machines_when_those_are_cheaper() -> None:
    singles = [offer(1, 0.25, id=f"single-{n}") for n in range(8)]
    fleet = fleet_of(8, *singles, offer(8, 2.40))
    assert [shape.offer.gpus for shape in fleet.machines] == [1] * 8


def test_a_large_machine_for_the_last_few_points_is_not_cheap() -> None:
    singles = [offer(1, 0.40, id=f"single-{n}") for n in range(8)]
    fleet = fleet_of(10, *singles, offer(8, 2.4, id="a"), offer(8, 2.4, id="b"))
    assert [(shape.offer.gpus, shape.used) for shape in fleet.machines] == [(8, 8), (1, 1), (1, 1)]


def test_points_of_several_gpus_have_fewer_slots_on_a_machine() -> None:
    fleet = fleet_of(3, offer(8, 4.0), offer(2, 1.5), gpus=4)
    assert [(shape.slots, shape.used) for shape in fleet.machines] == [(2, 2)]
    assert fleet.single_usd_per_hour is None


def test_what_it_takes_to_load_a_machine_counts_for_short_points() -> None:
    singles = [offer(1, 0.29, loading_usd=0.10, id=f"single-{n}") for n in range(8)]
    large = offer(8, 2.40, loading_usd=0.10)
    short, long = (fleet_of(8, *singles, large, seconds=s) for s in (300.0, 100 * HOUR))
    assert len(short.machines) == 1
    assert len(long.machines) == 8


def test_a_job_without_gpus_has_a_machine_of_its_own() -> None:
    fleet = fleet_of(2, offer(0, 0.1, id="a"), offer(0, 0.2, id="b"), gpus=0)
    assert [shape.slots for shape in fleet.machines] == [1, 1]


def test_without_an_offer_there_is_no_fleet() -> None:
    assert placement.cheapest_fleet(3, [], gpus=1, seconds=HOUR) is None
    assert placement.cheapest_fleet(3, [offer(1, 1.0)], gpus=2, seconds=HOUR) is None


@given(
    points=st.integers(1, 6),
    prices=st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.05, 5.0)), min_size=1, max_size=6),
)
def test_a_fleet_of_one_machine_is_never_dearer_than_any_other_single_machine_that_would_do(
    points: int, prices: list[tuple[int, float]]
) -> None:
    offers = [offer(gpus, usd, id=str(n)) for n, (gpus, usd) in enumerate(prices)]
    fleet = fleet_of(points, *offers)
    taken = sum(shape.used for shape in fleet.machines)
    assert taken == min(points, sum(each.gpus for each in offers))
    ids = [shape.offer.id for shape in fleet.machines]
    assert len(set(ids)) == len(ids), "no machine is taken twice"
    first = fleet.machines[0]
    for other, used in itertools.product(offers, range(1, points + 1)):
        if used <= other.gpus:
            assert first.offer.usd_per_hour / first.used <= other.usd_per_hour / used + 1e-9


def gives_back(idle_s: float, *, is_needed: bool, more_may_come: bool) -> bool:
    """Whether a machine of $0.001 a second is given back; another one would cost $0.10 before it trains."""
    machine = offer(1, 3.6, loading_usd=0.1 - START_S * 0.001)
    return placement.should_give_back(idle_s, 3.6, machine, is_needed=is_needed, more_may_come=more_may_come)


def test_a_machine_that_a_point_waits_for_is_kept_until_it_cost_as_much_as_another_one() -> None:
    assert not gives_back(99, is_needed=True, more_may_come=False)
    assert gives_back(101, is_needed=True, more_may_come=False)


def test_a_machine_that_nothing_waits_for_is_given_back_within_a_minute() -> None:
    assert not gives_back(59, is_needed=False, more_may_come=True)
    assert gives_back(60, is_needed=False, more_may_come=True)
    assert gives_back(0, is_needed=False, more_may_come=False)


def test_a_free_machine_is_kept_while_it_is_wanted() -> None:
    assert not placement.should_give_back(9999, 0.0, offer(1, 0.0), is_needed=True, more_may_come=False)


def test_another_machine_costs_its_boot_and_its_pull() -> None:
    machine = offer(1, 3.6, loading_usd=0.02)
    assert placement.replacement_cost_usd(machine) == pytest.approx(0.001 * START_S + 0.02)
    assert placement.machine_usd(machine, 100) == pytest.approx(0.12)


def job(*, hours: float = 1.0, usd: float | None = None) -> JobSpec:
    spec = train_job()
    return replace(spec, limits=replace(spec.limits, hours=hours, usd=usd))


def test_a_run_may_take_its_hours_or_what_its_money_pays_for_on_its_share() -> None:
    assert placement.max_run_s(job(hours=1.0), 4.0) == HOUR
    assert placement.max_run_s(job(hours=1.0, usd=1.0), 4.0) == pytest.approx(HOUR / 4)


def test_a_machine_must_last_for_all_that_a_run_may_take() -> None:
    assert placement.needed_s(job(hours=1.0), 1.0) > HOUR
    assert placement.needed_s(job(hours=0.01), 1.0) == MIN_LEFT_S


def test_what_is_expected_is_measured_else_forecast_else_all_of_the_time() -> None:
    machine = offer(1, 1.0)
    assert placement.expected_s(job(), machine, ()) == HOUR
    assert placement.expected_s(job(), replace(machine, expected_usd=0.5), ()) == HOUR / 2
    known = replace(machine, forecast=Forecast(ready_s=60.0, train_s=600.0, basis="guess"))
    assert placement.expected_s(job(), known, ()) == 600.0
    assert placement.expected_s(job(), known, (50.0, 70.0, 900.0)) == 70.0
    assert placement.expected_s(job(hours=0.01), known, (90.0,)) == 36.0


def test_a_machine_is_not_held_for_one_point() -> None:
    assert not placement.pays_off(offer(1, 1.0), rounds=1)
    assert placement.pays_off(offer(1, 1.0), rounds=2)
    assert placement.pays_off(offer(1, 0.0), rounds=2)


def test_the_machine_lasts_for_its_points_and_all_that_the_last_of_them_may_take() -> None:
    spec = placement.choose_hold(job(), offer(1, 1.0), slots=1, rounds=5, seconds=600.0, max_usd=100.0)
    assert spec is not None
    assert spec.limits.hours * HOUR >= placement.needed_s(job(), 1.0) + 4 * (600.0 + placement.HANDOVER_S)
    assert spec.limits.usd == pytest.approx(spec.limits.hours, abs=0.02)


@pytest.mark.parametrize("most_usd", [1.2, 1.5, 3.0, 50.0])
@pytest.mark.parametrize("slots", [1, 4])
def test_less_money_holds_it_for_fewer_points_and_never_exceeds_it(most_usd: float, slots: int) -> None:
    machine: Offer = offer(slots, 1.0)
    spec = placement.choose_hold(job(), machine, slots=slots, rounds=20, seconds=600.0, max_usd=most_usd)
    assert spec is not None and spec.limits.usd is not None
    assert spec.limits.usd <= most_usd
    assert worst_case_usd(spec, machine) <= most_usd + 1e-9
    assert lease_of(spec, machine).life_s >= placement.needed_s(job(), 1.0 / slots), (
        "the first points fit into it"
    )


def test_money_that_pays_for_no_point_holds_no_machine() -> None:
    assert not placement.choose_hold(job(), offer(1, 1.0), slots=1, rounds=2, seconds=600.0, max_usd=1.0)


def test_a_machine_that_is_free_has_no_limit_on_money() -> None:
    spec = placement.choose_hold(job(), offer(1, 0.0), slots=1, rounds=2, seconds=600.0, max_usd=0.0)
    assert spec is not None and spec.limits.usd is None
