"""A disk here that is too small for what a box sends: the launcher stays, says so, and waits in limits."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes import PRICE
from tests.launcher.terminal import Terminal
from vastrun.launcher.core import Cause

COLLECT_S = 1800.0


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Ten seconds after the launch the disk is nearly full; an hour later there is room."""
    terminal = Terminal(tmp_path)
    began = terminal.clock.now()

    def disk_usage(_: object) -> Usage:
        is_full = began + 10 < terminal.clock.now() < terminal.room_again_at
        return Usage(10**12, 0, 10**6 if is_full else 10**11)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    terminal.room_again_at = began + 3600
    return terminal


def test_the_training_goes_on_and_nothing_is_lost_when_there_is_room_in_time(terminal: Terminal) -> None:
    terminal.room_again_at = terminal.clock.now() + 600
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    assert "the log stays on the machine until there is space here" in end.stderr
    assert "free some space within 29 min" in end.stderr
    log = (terminal.folder / "out" / "log.txt").read_text()
    assert all(f"step {step}" in log for step in range(1, 10))
    assert "the end" in log


def test_a_launcher_that_comes_late_says_how_much_time_the_lease_leaves(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(1500)
    end = terminal.type("resume", "last")
    assert "free some space within 4 min" in end.stderr
    run = terminal.ledger.runs()[0]
    assert run.cause is Cause.STORAGE
    assert terminal.market.bill_usd <= (COLLECT_S + 60) / 3600 * PRICE


def test_without_room_the_machine_ends_when_its_lease_would_have_ended_it(terminal: Terminal) -> None:
    end = terminal.launch()
    assert end.exit_code == 5
    assert terminal.machines() == 0
    run = terminal.ledger.runs()[0]
    assert run.cause is Cause.STORAGE
    assert "no space on this computer for the outputs" in run.detail
    assert terminal.market.bill_usd <= (COLLECT_S + 120) / 3600 * PRICE
