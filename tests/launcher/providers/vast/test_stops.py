"""Why an instance stopped is told by evidence: its row looks the same each time."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.core import Cause
from launcher.providers.vast.stops import stop_error
from tests.launcher.providers.vast.rows import DAY_S, NOW, instance_row

STOPPED = {"actual_status": "exited", "cur_state": "stopped", "intended_status": "stopped"}


@pytest.mark.parametrize(
    ("changes", "credit_usd", "cause", "text"),
    [
        ({"is_bid": True}, 10.0, Cause.PREEMPTED, "outbid"),
        ({"is_bid": True}, 0.0, Cause.PROVIDER, "credit is used up"),
        ({"is_bid": True, "end_date": NOW - 1}, 10.0, Cause.LOST, "contract ended"),
        ({"is_bid": False}, -2.5, Cause.PROVIDER, "credit is used up"),
        ({"is_bid": False, "end_date": NOW - 1}, 10.0, Cause.LOST, "contract ended"),
        ({"is_bid": False, "end_date": NOW + DAY_S}, 10.0, Cause.LOST, "not by this launcher"),
        ({"is_bid": False, "end_date": None}, 10.0, Cause.LOST, "not by this launcher"),
    ],
)
def test_each_stop_has_its_own_cause(
    changes: dict[str, Any], credit_usd: float, cause: Cause, text: str
) -> None:
    error = stop_error(instance_row(**STOPPED, **changes), credit_usd=credit_usd, now=NOW)
    assert error.cause is cause
    assert text in str(error)
