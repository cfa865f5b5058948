"""A machine that the market made late, or twice, is ended and named, and its run's cost holds its own."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal
from tests.slow import slow
from vastrun.launcher.core import ExtraRates, Instance, RentalOrder
from vastrun.launcher.core.errors import NoOfferError, ProviderError, UncertainError


class TwiceMarket(Market):
    """Rents what is asked for, and once more `later_s` later. The second one is called "2"."""

    later_s = 0.0
    deaf_to_2 = False
    again_listed = False
    """The list goes on showing the second one after its end."""
    second: Instance | None = None

    def rent(self, order: RentalOrder) -> Instance:
        machine = super().rent(order)
        if self.rentals == 1:
            self.again = (self.clock.now() + self.later_s, replace(order, offer=order.offer))
        return machine

    def instances(self) -> list[Instance]:
        if self.again and self.clock.now() >= self.again[0]:
            (_, order), self.again = self.again, None
            self.second = super().rent(order)
        listed = list(super().instances())
        if self.again_listed and "2" in self.destroyed and self.second is not None:
            listed.append(self.second)
        return listed

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


def check(terminal: Terminal) -> None:
    """Both are gone, both were told of, and both were paid for."""
    market, run = terminal.market, terminal.ledger.runs()[0]
    assert (market.rented, market.rentals) == (0, 2)
    assert [rental.instance_id for rental in run.rentals] == ["2"]
    told = [event.text for event in terminal.ledger.events(run.id) if "another machine" in event.text]
    assert told == ["found another machine of this run, 2 at $3.600/h: destroying it"]
    assert market.bill_usd <= terminal.document("cost")["usd"] <= market.bill_usd * 1.1 + 0.01


@pytest.mark.parametrize("later_s", [0, *slow((1,), (10,), (100,), (200,))])
def test_a_machine_made_twice_is_ended_and_training_goes_on(terminal: Terminal, later_s: float) -> None:
    terminal.market.later_s = later_s
    assert terminal.launch().exit_code == 0
    assert terminal.ledger.runs()[0].instance_id == "1"
    check(terminal)


@pytest.mark.slow
def test_one_that_cannot_be_ended_at_once_is_ended_later(terminal: Terminal) -> None:
    terminal.market.deaf_to_2 = True
    terminal.at(100, lambda: setattr(terminal.market, "deaf_to_2", False))
    assert terminal.launch().exit_code == 0
    check(terminal)


def test_one_that_cannot_be_ended_at_all_keeps_the_run_open(terminal: Terminal) -> None:
    terminal.market.deaf_to_2 = True
    assert terminal.launch().exit_code == 11
    assert terminal.ledger.runs(open_only=True)
    terminal.market.deaf_to_2 = False
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


class GhostMarket(Market):
    """Lists a machine again after its end, with the label of a later run; by its id it is as it is."""

    ghost: str | None = None
    by_id = False

    def rent(self, order: RentalOrder) -> Instance:
        machine = super().rent(order)
        self.rows[machine.id] = self.newest = machine
        return machine

    def instances(self) -> list[Instance]:
        listed = list(super().instances())
        if self.ghost and self.newest and all(one.id != self.ghost for one in listed):
            listed.insert(0, replace(self.rows[self.ghost], label=self.newest.label))
        return listed

    def machine(self, instance_id: str) -> Instance | None:
        ghost = self.rows[instance_id] if instance_id == self.ghost and self.by_id else None
        return super().machine(instance_id) or ghost

    rows: ClassVar[dict[str, Instance]] = {}
    newest: Instance | None = None


@pytest.mark.slow
@pytest.mark.parametrize("by_id", [False, True])
def test_a_row_with_the_id_of_an_earlier_run_is_reported_and_neither_used_nor_charged(
    terminal: Terminal, by_id: bool
) -> None:
    terminal.market = market = GhostMarket(terminal.clock, [Training(seconds=300)] * 2, usd_per_hour=3.6)
    assert terminal.launch().exit_code == 0
    market.ghost, market.by_id, ends = "1", by_id, len(market.destroyed)

    assert terminal.launch().exit_code == 0

    run, earlier = terminal.ledger.runs()
    assert (market.rented, run.instance_id, run.rentals) == (0, "2", ())
    assert "1" not in market.destroyed[ends:]
    told = [event.text for event in terminal.ledger.events(run.id) if "ignored" in event.text]
    assert told == [f"the provider lists machine 1 for this run, ignored: it belonged to run {earlier.id}"]
    assert market.bill_usd <= terminal.document("cost")["usd"] <= market.bill_usd * 1.1 + 0.01


@pytest.mark.slow
def test_a_machine_listed_only_after_its_end_is_charged_until_its_end(terminal: Terminal) -> None:
    terminal.market.again_listed = True

    assert terminal.launch().exit_code == 0

    run = terminal.ledger.runs()[0]
    assert terminal.market.destroyed == ["2", "1"]
    told = [event.text for event in terminal.ledger.events(run.id) if "ignored" in event.text]
    assert told == [
        "the provider lists machine 2 for this run, ignored: it was destroyed, and its id is unknown"
    ]
    check(terminal)


@pytest.mark.parametrize("by_id", [*slow((False,)), True])
def test_a_ghost_is_reported_and_not_charged_by_reap_however_often(terminal: Terminal, by_id: bool) -> None:
    terminal.market = market = GhostMarket(terminal.clock, [Training(seconds=300)], usd_per_hour=3.6)
    assert terminal.launch().exit_code == 0
    usd = terminal.document("cost")["usd"]
    market.ghost, market.by_id = "1", by_id

    for _ in range(2):
        terminal.clock.sleep(600)
        ended = terminal.type("reap", "-y")
        assert ended.exit_code == 11
        assert (
            "1 is listed again after its confirmed destruction; its run is not charged for it" in ended.stderr
        )
        (machine,) = terminal.document("reap", "--dry-run")["machines"]
        assert machine["is_ghost"]

    assert terminal.document("cost")["usd"] == usd


def test_a_machine_whose_end_was_never_confirmed_is_charged_by_reap(terminal: Terminal) -> None:
    terminal.market = market = GhostMarket(terminal.clock, [Training(seconds=300)], usd_per_hour=3.6)
    terminal.at(100, market.vanish)
    assert terminal.launch().exit_code == 7
    usd = terminal.document("cost")["usd"]
    market.ghost, market.by_id = "1", True
    terminal.clock.sleep(600)
    assert terminal.type("reap", "-y").exit_code == 11
    assert terminal.document("cost")["usd"] > usd + 0.5


class RefusingMarket(Market):
    """Refuses the first order after ten seconds, and leaves a machine, which it ended by itself."""

    def rent(self, order: RentalOrder) -> Instance:
        if self.left:
            self.clock.sleep(10)
            raise NoOfferError("the machine did not start", ended=self.left.pop(), idle_s=self.idle_s)
        return super().rent(order)

    left: list[str]
    idle_s = 0.0


def test_one_that_a_refusal_left_is_known_by_its_id_when_its_bill_comes(terminal: Terminal) -> None:
    terminal.market = market = RefusingMarket(terminal.clock, [Training(seconds=30)], usd_per_hour=3.6)
    market.left = ["left"]
    market.extras = ExtraRates(storage_usd_per_hour=0.36)
    assert terminal.launch().exit_code == 0
    (rental,) = terminal.ledger.runs()[0].rentals
    assert rental.instance_id == "left"
    assert rental.released_at is not None


@pytest.mark.parametrize(
    ("idle_s", "free_s"),
    [(0.0, 0.0), (4.0, 4.0), (60.0, 10.0)],
    ids=["never seen", "seen to be stopped", "longer than it was there"],
)
def test_one_that_a_refusal_left_is_charged_for_its_disk_while_it_was_seen_to_be_stopped(
    terminal: Terminal, idle_s: float, free_s: float
) -> None:
    terminal.market = market = RefusingMarket(terminal.clock, [Training(seconds=30)], usd_per_hour=3.6)
    market.left, market.idle_s = ["left"], idle_s

    assert terminal.launch().exit_code == 0

    (rental,) = terminal.ledger.runs()[0].rentals
    assert rental.released_at == pytest.approx(rental.rented_at + 10)
    assert rental.meter.idle_s == pytest.approx(free_s)
    # Where it is listed once more, its time goes on from there.
    assert rental.meter.idle_at is not None
    assert rental.meter.idle_at - rental.rented_at == pytest.approx(free_s)
