"""Values as one types them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.waiting import LONGEST_S

_PROGRAM = """\
from datetime import datetime
from launcher.clocks import LocalZone
from launcher.config.loading import absolute
print(absolute({text!r}, datetime.fromtimestamp({now}, tz=LocalZone())))
"""
WINTER, SUMMER = 1_795_537_800, 1_814_286_600
"""17:30 of 2026-11-24 and 18:30 of 2027-06-29, both in Berlin."""


@pytest.mark.parametrize(
    ("text", "now", "zone", "moment"),
    [
        ("18:00", WINTER, "Europe/Berlin", "2026-11-24T18:00:00+01:00"),
        ("18:00", WINTER, "America/New_York", "2026-11-24T18:00:00-05:00"),
        ("18:00", SUMMER, "Europe/Berlin", "2027-06-30T18:00:00+02:00"),
        ("2027-07-01 08:00", WINTER, "Europe/Berlin", "2027-07-01T08:00:00+02:00"),
        ("2027-01-01 08:00", WINTER, "UTC", "2027-01-01T08:00:00+00:00"),
    ],
)
def test_a_time_of_day_is_in_the_zone_of_this_computer_in_its_season(
    text: str, now: int, zone: str, moment: str
) -> None:
    program = _PROGRAM.format(text=text, now=now)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.stdout.strip() == moment, done.stderr
