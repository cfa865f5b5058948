"""A market whose list is late, and a user who renames: still one machine a run, and it is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import UncertainError
from launcher.model import Instance, Order
from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal

EVERY = {str(number) for number in range(1, 10)}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


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

    def rent(self, order: Order) -> Instance:
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


def test_a_renamed_machine_of_a_detached_run_is_found_by_another_launcher(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.market.rename("1", "my own words")

    assert "running" in terminal.type("status", "last").stdout
    assert terminal.type("stop", "--now", "last").exit_code == 0

    assert_one_machine_given_back(terminal)
