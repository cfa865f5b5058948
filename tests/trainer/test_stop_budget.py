"""Each who waits for a stop waits longer than who does the work."""

from __future__ import annotations

import re
from pathlib import Path

from trainer import stop_budget

STEP = Path(__file__).parents[2] / "onstart/step.sh"


def test_nobody_is_ended_while_those_below_may_still_save() -> None:
    of_onstart = re.search(r"^stop_wait_s=(\d+)", STEP.read_text(), re.MULTILINE)
    assert of_onstart is not None
    assert float(of_onstart[1]) == stop_budget.ONSTART_S
    saving = (stop_budget.RANK_SAVING_S, stop_budget.SUPERVISOR_SAVING_S, stop_budget.ONSTART_S)
    stepping = (stop_budget.RANK_LEAST_S, stop_budget.RANK_S, stop_budget.SUPERVISOR_S, stop_budget.ONSTART_S)
    for waits in (saving, stepping):
        assert list(waits) == sorted({*waits})
    assert stop_budget.ONSTART_S < stop_budget.LEASE_S
