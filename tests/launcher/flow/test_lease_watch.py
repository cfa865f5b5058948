"""A lease that was killed on the box is armed again by whoever looks next, and counts from its beginning."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.fakes import PRICE
from tests.launcher.terminal import Terminal
from vastrun.launcher.core import Cause

ARMED_AGAIN = "its lease was killed; a new one is armed"
LIFE_S = 3.0 / PRICE * 3600
"""What the job's money pays for; the job's own limit of an hour is longer."""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A detached run whose program has killed the lease, 500 s after it began."""
    terminal = Terminal(tmp_path, Training(seconds=1e6, steps=1_000_000, kills_lease_after_s=10))
    terminal.launch("--detach")
    terminal.clock.sleep(500)
    return terminal


def diary(terminal: Terminal) -> list[str]:
    return [event.text for event in terminal.ledger.events(terminal.ledger.runs()[0].id)]


def test_without_lease_and_launcher_the_provider_itself_ends_the_machine(terminal: Terminal) -> None:
    terminal.clock.sleep(LIFE_S)
    assert terminal.machines() == 1
    terminal.clock.sleep(7200)
    assert (terminal.machines(), terminal.market.ended_by_schedule) == (0, ["1"])


def test_a_look_at_a_detached_run_arms_its_lease_again(terminal: Terminal) -> None:
    assert ARMED_AGAIN in terminal.type("status", "last").stdout
    assert "lease armed" in terminal.type("status", "last").stdout
    assert diary(terminal).count(ARMED_AGAIN) == 1
    terminal.clock.sleep(LIFE_S - 500)
    assert terminal.machines() == 0
    assert terminal.market.bill_usd <= 3.0


@pytest.mark.slow
def test_a_launcher_that_goes_on_with_the_run_arms_its_lease_again(terminal: Terminal) -> None:
    terminal.at(2, lambda: setattr(terminal.market, "cut_off", True))
    terminal.at(2 * LIFE_S, lambda: setattr(terminal.market, "cut_off", False))
    assert terminal.type("resume", "last").exit_code != 0
    assert diary(terminal).count(ARMED_AGAIN) == 1
    assert terminal.machines() == 0


@pytest.mark.slow
def test_a_lease_that_cannot_be_armed_again_is_told_once_and_the_limit_holds(tmp_path: Path) -> None:
    training = Training(seconds=1e6, kills_lease_after_s=10, obeys=False)
    terminal = Terminal(tmp_path, training)
    terminal.launch()
    assert len([text for text in diary(terminal) if "new one cannot be armed" in text]) == 1
    assert terminal.machines() == 0
    assert terminal.ledger.runs()[0].cause is Cause.MONEY_LIMIT
