"""A market whose list is late, and a user who renames: still one machine a run, and it is given back."""

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal
from vastrun.launcher.core import Cause, Instance, RentalOrder
from vastrun.launcher.core.errors import ProviderError, UncertainError, UnreachableError

EVERY = {str(number) for number in range(1, 10)}


def assert_one_machine_given_back(terminal: Terminal) -> None:
    assert terminal.ledger.runs()[0].phase == "ended"
    assert (terminal.market.rented, terminal.market.rentals) == (0, 1)


@pytest.mark.parametrize("late_s", [10, 45, 1e9])
def test_a_new_machine_that_is_listed_late_is_the_run_s_only_one(terminal: Terminal, late_s: float) -> None:
    terminal.market.unlisted |= EVERY
    terminal.at(late_s, terminal.market.unlisted.clear)
    assert terminal.launch().exit_code == 0
    assert_one_machine_given_back(terminal)


@pytest.mark.parametrize("from_s", [5, 15, 22, 25])
def test_a_machine_that_the_list_loses_is_neither_lost_nor_left(terminal: Terminal, from_s: float) -> None:
    terminal.at(from_s, lambda: terminal.market.unlisted.update(EVERY))
    assert terminal.launch().exit_code == 0
    assert_one_machine_given_back(terminal)


@pytest.mark.parametrize("from_s", [1, 5, 15, 22])
def test_a_machine_that_the_user_renames_stays_the_run_s(terminal: Terminal, from_s: float) -> None:
    terminal.at(from_s, lambda: terminal.market.rename("1", "my own words"))
    assert terminal.launch().exit_code == 0
    assert_one_machine_given_back(terminal)


class SpeechlessMarket(Market):
    """Rents, does not say so, and lists the machine `late_s` later."""

    late_s = 0.0

    def rent(self, order: RentalOrder) -> Instance:
        machine = super().rent(order)
        self.unlisted.add(machine.id)
        self.listed_at = self.clock.now() + self.late_s
        raise UncertainError("no answer")

    def instances(self) -> list[Instance]:
        if self.clock.now() >= self.listed_at:
            self.unlisted.clear()
        return list(super().instances())

    listed_at = 0.0


@pytest.mark.parametrize("late_s", [0, 3, 30, 55])
def test_a_machine_that_was_rented_without_an_answer_is_found_when_the_list_has_it(
    terminal: Terminal, late_s: float
) -> None:
    terminal.market = SpeechlessMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    terminal.market.late_s = late_s
    assert terminal.launch().exit_code == 0
    assert_one_machine_given_back(terminal)


class CrowdedMarket(SpeechlessMarket):
    """Many others call it: an order waits two minutes for its turn."""

    late_s = 30.0

    def rent(self, order: RentalOrder) -> Instance:
        self.clock.sleep(120)
        return super().rent(order)


def test_a_machine_is_searched_for_as_long_as_lists_lag_after_its_orders_turn(terminal: Terminal) -> None:
    terminal.market = CrowdedMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    assert terminal.launch().exit_code == 0
    assert_one_machine_given_back(terminal)


class DenyingMarket(Market):
    """Rents, and says that it does not."""

    def rent(self, order: RentalOrder) -> Instance:
        super().rent(order)
        error = ProviderError("no money")
        error.cause = Cause.PROVIDER
        raise error


def test_a_machine_that_was_denied_and_made_is_given_back_and_noted_for_its_bill(terminal: Terminal) -> None:
    terminal.market = DenyingMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    assert terminal.launch().exit_code != 0
    assert_one_machine_given_back(terminal)
    assert terminal.ledger.runs()[0].instance_id == "1"


def test_a_renamed_machine_of_a_detached_run_is_found_by_another_launcher(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.market.rename("1", "my own words")
    assert "running" in terminal.type("status", "last").stdout
    assert terminal.type("stop", "--now", "last").exit_code == 0
    assert_one_machine_given_back(terminal)


class UncountedMarket(Market):
    """Its list can never be had: it counts one machine more than it shows."""

    def instances(self) -> list[Instance]:
        error = UnreachableError("a list of 1 instances that counts 2")
        error.cause = Cause.PROVIDER
        raise error


def test_list_that_cannot_be_had_blocks_no_boot_that_the_machine_s_own_row_proves(terminal: Terminal) -> None:
    terminal.market = UncountedMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    end = terminal.launch()
    run = terminal.ledger.runs()[0]
    assert [proof.holds for proof in run.proofs] == [True] * len(run.proofs)
    assert end.exit_code == 11, "that the machine is gone cannot be seen"
    assert terminal.market.rented == 0


class RefusingMarket(Market):
    """Says at once that it rents nothing."""

    def rent(self, order: RentalOrder) -> Instance:
        raise ProviderError("no credit")


def test_a_refusal_is_not_followed_by_a_wait_for_a_machine_that_nobody_rented(terminal: Terminal) -> None:
    terminal.market = RefusingMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    began = terminal.clock.now()
    assert terminal.launch().exit_code == 5
    assert terminal.clock.now() - began < 10
