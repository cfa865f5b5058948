"""A machine that the market made late, or twice, is ended and named, and its run's cost holds its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.core import ExtraRates, Instance, RentalOrder
from launcher.core.errors import NoOfferError, ProviderError, UncertainError
from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal


class TwiceMarket(Market):
    """Rents what is asked for, and once more `later_s` later. The second one is called "2"."""

    later_s = 0.0
    deaf_to_2 = False

    def rent(self, order: RentalOrder) -> Instance:
        machine = super().rent(order)
        if self.rentals == 1:
            self.again = (self.clock.now() + self.later_s, replace(order, offer=order.offer))
        return machine

    def instances(self) -> list[Instance]:
        if self.again and self.clock.now() >= self.again[0]:
            (_, order), self.again = self.again, None
            super().rent(order)
        return list(super().instances())

    def destroy(self, instance_id: str) -> None:
        if instance_id == "2" and self.deaf_to_2:
            raise ProviderError("HTTP 500")
        super().destroy(instance_id)

    again: tuple[float, RentalOrder] | None = None


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path)
    terminal.market = TwiceMarket(terminal.clock, [Training(seconds=300)], usd_per_hour=3.6)
    return terminal


def twice(terminal: Terminal) -> TwiceMarket:
    assert isinstance(terminal.market, TwiceMarket)
    return terminal.market


def check(terminal: Terminal) -> None:
    """Both are gone, both were told of, and both were paid for."""
    market, run = terminal.market, terminal.ledger.runs()[0]
    assert (market.rented, market.rentals) == (0, 2)
    assert [rental.instance_id for rental in run.rentals] == ["2"]
    told = [event.text for event in terminal.ledger.events(run.id) if "another machine" in event.text]
    assert told == ["found another machine of this run, 2 at $3.600/h: destroying it"]
    assert market.bill_usd <= terminal.document("cost")["usd"] <= market.bill_usd * 1.1 + 0.01


@pytest.mark.parametrize("later_s", [0, 1, 10, 100, 200])
def test_a_machine_that_was_made_twice_is_ended_and_the_training_goes_on(
    terminal: Terminal, later_s: float
) -> None:
    twice(terminal).later_s = later_s

    assert terminal.launch().exit_code == 0

    assert terminal.ledger.runs()[0].instance_id == "1"
    check(terminal)


def test_one_that_cannot_be_ended_at_once_is_ended_later(terminal: Terminal) -> None:
    twice(terminal).deaf_to_2 = True
    terminal.at(100, lambda: setattr(terminal.market, "deaf_to_2", False))

    assert terminal.launch().exit_code == 0

    check(terminal)


def test_one_that_cannot_be_ended_at_all_keeps_the_run_open(terminal: Terminal) -> None:
    twice(terminal).deaf_to_2 = True

    assert terminal.launch().exit_code == 11

    assert terminal.ledger.runs(open_only=True)
    twice(terminal).deaf_to_2 = False
    assert terminal.type("resume", "last").exit_code == 0
    check(terminal)


class LateMarket(Market):
    """Makes the first machine only `late_s` after it was asked for, and never answers that question."""

    late_s = 100.0
    asked: tuple[float, RentalOrder] | None = None

    def rent(self, order: RentalOrder) -> Instance:
        if self.asked is None:
            self.asked = (self.clock.now(), order)
            raise UncertainError("timed out")
        return super().rent(order)

    def instances(self) -> list[Instance]:
        if self.asked and self.rentals < 2 and self.clock.now() >= self.asked[0] + self.late_s:
            super().rent(self.asked[1])
        return list(super().instances())


def test_a_machine_that_is_made_after_another_was_rented_is_ended_and_paid_for(terminal: Terminal) -> None:
    terminal.market = LateMarket(terminal.clock, [Training(seconds=300)], usd_per_hour=3.6)

    assert terminal.launch().exit_code == 0

    check(terminal)


def test_one_that_is_made_after_the_end_is_reaped_and_paid_for(terminal: Terminal) -> None:
    terminal.market = LateMarket(terminal.clock, [Training(seconds=30)], usd_per_hour=3.6)
    terminal.market.late_s = 500
    assert terminal.launch().exit_code == 0
    before_usd = terminal.document("cost")["usd"]
    terminal.clock.sleep(500)
    terminal.market.instances()
    terminal.clock.sleep(60)

    assert terminal.type("reap", "-y").exit_code == 0

    assert terminal.market.rented == 0
    run = terminal.ledger.runs()[0]
    assert [rental.instance_id for rental in run.rentals] == ["2"]
    assert terminal.document("cost")["usd"] == pytest.approx(terminal.market.bill_usd, rel=0.1)
    assert terminal.document("cost")["usd"] > before_usd


class RefusingMarket(Market):
    """Refuses the first order, which leaves a machine all the same: it ended that one by itself."""

    def rent(self, order: RentalOrder) -> Instance:
        if self.left:
            raise NoOfferError("the machine did not start", ended=self.left.pop())
        return super().rent(order)

    left: list[str]


def test_one_that_a_refusal_left_is_known_by_its_id_when_its_bill_comes(terminal: Terminal) -> None:
    terminal.market = market = RefusingMarket(terminal.clock, [Training(seconds=30)], usd_per_hour=3.6)
    market.left = ["left"]
    market.extras = ExtraRates(storage_usd_per_hour=0.36)

    assert terminal.launch().exit_code == 0

    (rental,) = terminal.ledger.runs()[0].rentals
    assert rental.instance_id == "left"
    assert rental.released_at is not None
