"""What a batch's driver sees of the machines that are held, and how it gives one back."""

from __future__ import annotations

import time
from pathlib import Path

from tests.launcher.pool.test_held_machines import held
from vastrun.launcher.core import UserRequest
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.pool.hold import release_machine


def test_giving_a_machine_back_is_a_request_that_any_driver_reads(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=time.time, alive=lambda _: False)
    ledger.add(held().run)
    release_machine(ledger, held().run.id)
    release_machine(ledger, held().run.id)
    assert ledger.user_request(held().run.id) is UserRequest.STOP
    ledger.close()
