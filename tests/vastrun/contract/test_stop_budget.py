"""Each who waits for a stop waits longer than who does the work."""

import os
import re
import time
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from vastrun.contract import stop_budget
from vastrun.onstart.supervision.stop import StopRequest
from vastrun.onstart.supervision.watch import LAST_PUSH_S, last_push_s

STEP = Path(__file__).parents[3] / "onstart/step.sh"


def test_nobody_is_ended_while_those_below_may_still_save() -> None:
    of_onstart = re.search(r"^stop_wait_s=(\d+)", STEP.read_text(), re.MULTILINE)
    assert of_onstart is not None
    assert float(of_onstart[1]) == stop_budget.ONSTART_S
    saving = (
        *(stop_budget.RANK_SAVING_S, stop_budget.SUPERVISOR_SAVING_S),
        *(stop_budget.CHECKPOINT_S, stop_budget.PUSH_S, stop_budget.ONSTART_S),
    )
    stepping = (stop_budget.RANK_MIN_S, stop_budget.RANK_S, stop_budget.SUPERVISOR_S, stop_budget.ONSTART_S)
    for waits in (saving, stepping):
        assert list(waits) == sorted({*waits})
    assert stop_budget.ONSTART_S < stop_budget.LEASE_S


@pytest.mark.parametrize(
    ("waited_s", "left_s"), [(0.0, LAST_PUSH_S), (20.0, LAST_PUSH_S), (70.0, 25.0), (200.0, 0.0)]
)
def test_the_last_push_has_what_the_stop_has_left_of_the_time(waited_s: float, left_s: float) -> None:
    assert last_push_s(waited_s) == left_s


def test_a_request_knows_how_long_ago_it_came(tmp_path: Path) -> None:
    request = StopRequest(path=tmp_path / "stop")
    assert request.waited_s == 0.0
    request.path.write_text("stopped\n")
    os.utime(request.path, (time.time() - 70, time.time() - 70))
    assert 70.0 <= request.waited_s < 70.0 + LONGEST_S
    os.utime(request.path, (time.time() + 900, time.time() + 900))  # a clock that was set back
    assert request.waited_s == 0.0
