"""Days and months where the user is, and moments as one types them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from vastrun.launcher.decisions.calendar import Calendar


class Berlin(tzinfo):
    """Germany's time in 2026: no computer need have a list of time zones."""

    def dst(self, when: datetime | None) -> timedelta:
        assert when is not None
        here = when.replace(tzinfo=None)
        return timedelta(hours=datetime(2026, 3, 29, 2) <= here < datetime(2026, 10, 25, 3))

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1) + self.dst(when)

    def tzname(self, when: datetime | None) -> str:
        return "CEST" if self.dst(when) else "CET"


BERLIN = Calendar(zone=Berlin())
LONDON = Calendar(zone=UTC)
HOUR_S = 3600.0
NOW = datetime(2026, 11, 24, 15, 30, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_day_begins_and_ends_at_midnight_where_the_user_is() -> None:
    late = at("2026-11-24T23:30:00+00:00")
    assert LONDON.day(late).name == "2026-11-24"
    day = BERLIN.day(late)
    assert day.name == "2026-11-25"
    assert (day.since, day.until) == (at("2026-11-25T00:00:00+01:00"), at("2026-11-26T00:00:00+01:00"))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-01", 24)])
def test_a_day_on_which_clocks_are_changed_has_its_own_length(day: str, hours: int) -> None:
    found = BERLIN.day(at(f"{day}T12:00:00+01:00"))
    assert found.name == day
    assert found.until - found.since == hours * HOUR_S


@pytest.mark.parametrize(
    ("day", "month", "first", "following"),
    [
        ("2026-02-14", "2026-02", "2026-02-01", "2026-03-01"),
        ("2026-12-31", "2026-12", "2026-12-01", "2027-01-01"),
        ("2027-01-01", "2027-01", "2027-01-01", "2027-02-01"),
    ],
)
def test_a_month_goes_from_its_first_day_to_the_next_ones(
    day: str, month: str, first: str, following: str
) -> None:
    found = LONDON.month(at(f"{day}T10:00:00+00:00"))
    assert found.name == month
    assert (found.since, found.until) == (at(f"{first}T00:00:00+00:00"), at(f"{following}T00:00:00+00:00"))


def test_each_day_begins_where_the_one_before_ends() -> None:
    day = BERLIN.day(at("2026-03-27T12:00:00+01:00"))
    for _ in range(5):
        following = BERLIN.day(day.until)
        assert following.since == day.until
        day = following
    assert day.name == "2026-04-01"


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-11-01", "2026-11-01T00:00:00+01:00", "2026-11-02T00:00:00+01:00"),
        ("2026-11", "2026-11-01T00:00:00+01:00", "2026-12-01T00:00:00+01:00"),
        ("today", "2026-11-24T00:00:00+01:00", "2026-11-25T00:00:00+01:00"),
        ("24h", "2026-11-23T15:30:00+00:00", "2026-11-23T15:30:00+00:00"),
        ("7d", "2026-11-17T15:30:00+00:00", "2026-11-17T15:30:00+00:00"),
        ("2w", "2026-11-10T15:30:00+00:00", "2026-11-10T15:30:00+00:00"),
        ("1.5h", "2026-11-24T14:00:00+00:00", "2026-11-24T14:00:00+00:00"),
        ("30m", "2026-11-24T15:00:00+00:00", "2026-11-24T15:00:00+00:00"),
    ],
)
def test_a_moment_is_typed_as_a_day_a_month_today_or_how_long_ago(text: str, since: str, until: str) -> None:
    assert BERLIN.since(text, NOW) == at(since)
    assert BERLIN.until(text, NOW) == at(until)


WRONG = [
    *("", "soon", "7", "-7d", "7 d", "d", "7y", "yesterday", "2026", "2026-1-1", "2026-11-01T10:00"),
    *("2026-13", "2026-02-30", "0000-01-01", "9999-12-31", "2026/11/01", "٧d", "1e3d", "99999d", "infd"),
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_moment_is_told_with_what_is_expected(text: str) -> None:
    for moment_of in (BERLIN.since, BERLIN.until):
        with pytest.raises(ValueError, match="expected a day like 2026-11-01, a month") as caught:
            moment_of(text, NOW)
        assert repr(text) in str(caught.value)


def test_the_time_zone_is_named_with_how_its_clocks_are_set() -> None:
    assert BERLIN.zone_name(at("2026-07-01T00:00:00+00:00")) == "CEST, UTC+02:00"
    assert BERLIN.zone_name(NOW) == "CET, UTC+01:00"


def test_without_a_time_zone_that_of_this_computer_counts() -> None:
    here = Calendar()
    day = here.day(NOW)
    assert datetime.fromtimestamp(day.since).hour == 0
    assert day.since <= NOW < day.until
    assert here.month(NOW).name == f"{datetime.fromtimestamp(NOW):%Y-%m}"
