"""From when on a run costs what its provider charged, instead of what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from launcher.core import Charge, Cost, Meter, Phase, Rental, Run
from launcher.core.bills import WATCHED_S, cost_of, counted_of, held_usd, with_machine
from launcher.decisions.reconciling import SETTLES_S, bill_of, reconciled
from launcher.decisions.settling import ASKED_FOR_S, charged_cost, is_due, settled
from launcher.decisions.spending import spending_of
from tests.launcher.decisions.spent import BEGAN, HOUR_S, USD_PER_HOUR, line, run

END = BEGAN + 10 * HOUR_S
LATER = END + SETTLES_S
EVENTS = [line(Phase.TRAIN, 0.0, hours=quarter / 4 + 0.001) for quarter in range(40)]
COUNTED_USD = counted_of(run(), LATER).usd
LATE = Rental(instance_id="8", usd_per_hour=1.0, rented_at=BEGAN, released_at=BEGAN + 60)


def charge(usd: float, instance_id: str = "7", **changes: Any) -> Charge:
    return Charge(instance_id=instance_id, label=run().label, usd=usd, **changes)


def cost(*charges: Charge, about: Run | None = None, now: float = LATER) -> Cost | None:
    """What the run costs by these charges; None: what was counted."""
    return settled(reconciled(bill_of(about or run(), charges, EVENTS, now, "")))


@pytest.mark.parametrize("difference", [-3 * WATCHED_S * USD_PER_HOUR / 3600, -0.01, 0.0, 0.01, 20.0])
def test_a_run_costs_what_was_charged_where_that_is_more_or_explained(difference: float) -> None:
    found = cost(charge(COUNTED_USD + difference))
    assert found is not None
    assert found.usd == pytest.approx(COUNTED_USD + difference)


def test_less_than_can_be_explained_is_not_believed() -> None:
    assert cost(charge(COUNTED_USD - 5.0)) is None
    assert cost(charge(0.0)) is None
    assert cost(charge(-1.0), about=run(hours=0.01)) is None
    assert cost() is None


def test_a_bill_of_nothing_is_not_whole_whatever_was_counted() -> None:
    idle = run(usd_per_hour=0.0, meter=Meter())
    assert counted_of(idle, LATER).usd == 0
    assert cost(charge(0.0), about=idle) is None
    assert cost(charge(0.01), about=idle) is not None


def test_a_bill_is_settled_only_so_long_after_the_end_of_every_machine() -> None:
    whole = charge(COUNTED_USD)
    assert cost(whole, now=LATER) is not None
    assert cost(whole, now=LATER - 1) is None
    assert cost(whole, about=run(phase=Phase.DESTROY)) is None
    assert cost(whole, about=run(phase=Phase.TRAIN, released_at=None)) is None
    there = replace(LATE, released_at=None)
    ended = replace(LATE, released_at=END + 1)
    both = [whole, charge(10.0, "8")]
    assert cost(*both, about=run(rentals=(there,)), now=LATER + HOUR_S) is None
    assert cost(*both, about=run(rentals=(ended,))) is None
    assert cost(*both, about=run(rentals=(ended,)), now=LATER + 1) is not None


def test_a_bill_without_one_of_its_machines_is_not_whole() -> None:
    two = run(rentals=(LATE,))
    others: Sequence[Charge] = [charge(COUNTED_USD), charge(COUNTED_USD, "9"), charge(COUNTED_USD, "")]
    for one in others:
        assert cost(one, about=two) is None
    assert cost(charge(COUNTED_USD, "9")) is None  # of a machine that only bears its label
    found = cost(others[0], charge(0.5, "8"), charge(0.25, "9"), about=two)
    assert found is not None  # one that bears its label was made for it, too
    assert found.usd == pytest.approx(COUNTED_USD + 0.75)


def test_the_parts_of_a_charge_are_those_that_were_charged_and_never_more_than_all() -> None:
    for traffic_usd, storage_usd, parts in (
        (0.25, 0.5, (1.25, 0.5, 0.25)),
        (9.0, 9.0, (0.0, 0.0, 2.0)),
        (-1.0, 9.0, (0.0, 2.0, 0.0)),
        (0.0, -1.0, (2.0, 0.0, 0.0)),
    ):
        found = charged_cost([charge(2.0, traffic_usd=traffic_usd, storage_usd=storage_usd)])
        assert (found.gpu_usd, found.storage_usd, found.traffic_usd) == parts


def test_what_was_charged_is_the_cost_of_all_that_the_run_had() -> None:
    paid = run(rentals=(LATE,), charged=Cost(gpu_usd=30.0, storage_usd=1.0, traffic_usd=0.5))
    assert cost_of(paid, LATER) == paid.charged
    assert held_usd(paid, LATER) == 31.5
    assert counted_of(paid, LATER) == cost_of(replace(paid, charged=None), LATER)
    assert cost_of(with_machine(paid, LATE), LATER).usd == pytest.approx(1 / 60)  # of one machine of several


def test_what_a_run_trained_for_keeps_its_share_of_the_cost() -> None:
    events = [line(Phase.SHIP, 9.0), line(Phase.TRAIN, 27.0)]
    counted = spending_of(run(), LATER, events)
    paid = spending_of(run(charged=Cost(gpu_usd=COUNTED_USD / 2)), LATER, events)
    assert counted.idle_usd == pytest.approx(COUNTED_USD - 18.0)
    assert paid.idle_usd == pytest.approx(counted.idle_usd / 2)


@pytest.mark.parametrize(
    ("after_s", "changes", "due"),
    [
        pytest.param(-1, {}, False, id="not settled yet"),
        pytest.param(0, {}, True, id="from the moment that it is"),
        pytest.param(ASKED_FOR_S, {}, True, id="for a week"),
        pytest.param(ASKED_FOR_S + 1, {}, False, id="it will hardly come any more"),
        pytest.param(0, {"charged": Cost(gpu_usd=1.0)}, False, id="seen whole already"),
        pytest.param(0, {"phase": Phase.DESTROY}, False, id="a machine may be left"),
        pytest.param(0, {"rented_at": None, "instance_id": None}, False, id="it never had a machine"),
    ],
)
def test_a_bill_is_asked_for_unbidden_once_it_should_be_whole(
    after_s: float, changes: dict[str, Any], due: bool
) -> None:
    assert is_due(run(**changes), LATER + after_s) is due
