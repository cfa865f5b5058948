"""What a batch's driver sees of the machines that are held, and how it gives one back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.pool.test_held_machines import NOW, held, on_slot
from vastrun.launcher.core import Phase, UserRequest
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.pool.hold import list_held, release_machine


def test_a_machine_stands_with_what_is_free_and_since_when_it_is_idle() -> None:
    busy = list_held([held().run, on_slot(1), on_slot(2, phase=Phase.ENDED)], NOW + 3600)
    (one,) = busy
    assert (one.free, one.idle_since) == (7, None)
    assert one.left_s == pytest.approx(9 * 3600)
    (idle,) = list_held([held().run, on_slot(2, phase=Phase.ENDED, released_at=NOW + 5)], NOW + 9)
    assert (idle.free, idle.idle_since) == (8, NOW + 5)


@pytest.mark.parametrize(
    "phase", [Phase.PLAN, Phase.RENT, Phase.BOOT, Phase.SHIP, Phase.COLLECT, Phase.ENDED]
)
def test_a_machine_that_takes_no_slots_yet_or_any_more_is_not_offered(phase: Phase) -> None:
    assert list_held([replace(held().run, phase=phase)], NOW) == []


def test_giving_a_machine_back_is_a_request_that_any_driver_reads(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=time.time, alive=lambda _: False)
    ledger.add(held().run)
    release_machine(ledger, held().run.id)
    release_machine(ledger, held().run.id)
    assert ledger.user_request(held().run.id) is UserRequest.STOP
    ledger.close()
