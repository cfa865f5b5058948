"""A deadline as a user writes it becomes one moment, whatever the zone and the season."""

import os
import subprocess
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.waiting import LONGEST_S
from vastrun.launcher.config.job_loader import absolute

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 24, 17, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:00", "2026-11-24T18:00:00+01:00"),
        ("17:30:01", "2026-11-24T17:30:01+01:00"),
        (" 18:00 ", "2026-11-24T18:00:00+01:00"),
        ("8:00", "2026-11-25T08:00:00+01:00"),
        ("17:30", "2026-11-25T17:30:00+01:00"),
        ("18:00Z", "2026-11-24T18:00:00+00:00"),
        ("2026-11-25 08:00", "2026-11-25T08:00:00+01:00"),
        ("2026-11-25T08:00", "2026-11-25T08:00:00+01:00"),
        ("2026-11-25T08:00:00Z", "2026-11-25T08:00:00+00:00"),
        ("2026-11-25 08:00 -05:00", "2026-11-25T08:00:00-05:00"),
        ("2027-07-01 08:00", "2027-07-01T08:00:00+02:00"),
    ],
)
def test_a_deadline_is_one_moment(text: str, moment: str) -> None:
    assert absolute(text, NOW) == moment
    assert absolute(moment, None) == moment


def test_a_time_of_day_over_a_change_of_clocks_is_what_the_clock_on_the_wall_shows() -> None:
    evening = datetime(2027, 3, 27, 20, 0, tzinfo=BERLIN)
    assert absolute("08:00", evening) == "2027-03-28T08:00:00+02:00"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tomorrow", "expected a time like 18:00"),
        ("18", "expected a time like 18:00"),
        ("2026-11-25", "expected a time like 18:00"),
        ("25:00", "hour must be in 0..23"),
        ("2026-02-30 08:00", "got '2026-02-30 08:00'"),
        ("2026-11-24 17:00", "2026-11-24 17:00 is in the past: it is 2026-11-24 17:30 now"),
        ("2026-11-24T16:29:59Z", "is in the past"),
        ("١٨:٠٠", "expected a time like 18:00"),
    ],
)
def test_what_is_no_moment_to_come_is_a_fault(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^.*$") as caught:
        absolute(text, NOW)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["18:00", "18:00Z", "2026-11-25 08:00"])
def test_where_nobody_knows_the_time_a_deadline_needs_its_date_and_its_zone(text: str) -> None:
    with pytest.raises(ValueError, match="a date, a time and a zone"):
        absolute(text, None)


_PROGRAM = """\
from datetime import datetime
from vastrun.launcher.app import LocalZone
from vastrun.launcher.config.job_loader import absolute
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
