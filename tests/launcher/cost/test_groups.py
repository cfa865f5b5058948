"""What runs cost together, by whatever they have in common."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from tests.launcher.cost.spent import BEGAN, line, run
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.cost.groups import (
    GROUPERS,
    NONE,
    OVER_TIME,
    Calendar,
    Group,
    GroupBy,
    group_of,
    group_spendings,
)
from vastrun.launcher.cost.spending import spending_of

LONDON = Calendar(zone=UTC)
"""BEGAN is 08:00 on 2027-01-15."""


def groups(runs: Sequence[Run], by: GroupBy) -> dict[str, Group]:
    found = group_spendings([spending_of(one, BEGAN) for one in runs], by, LONDON)
    return {group.key: group for group in found}


def test_every_way_to_add_up_has_its_key() -> None:
    assert set(GROUPERS) == set(GroupBy)


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        (GroupBy.RUN, {"a", "b", "c"}),
        (GroupBy.BATCH, {"sweep", NONE}),
        (GroupBy.JOB, {"demo", "other"}),
        (GroupBy.HOST, {"m1", NONE}),
        (GroupBy.GPU, {"RTX 4090", "CPU", NONE}),
        (GroupBy.DAY, {"2027-01-15"}),
        (GroupBy.MONTH, {"2027-01"}),
        (GroupBy.TAG, {"lr", "new", NONE}),
    ],
)
def test_runs_are_added_up_by_what_they_have_in_common(by: GroupBy, keys: set[str]) -> None:
    first = run("a", tags=("lr", "new"))
    assert first.offer is not None
    second = run("b", job="other", offer=replace(first.offer, gpu_name=None), tags=("lr",))
    third = run("c", offer=None, host="", batch="sweep", point="0badcafe01")
    assert set(groups([first, second, third], by)) == keys


def test_a_group_costs_what_its_runs_cost_and_says_what_for() -> None:
    good = spending_of(run("a", hours=10), BEGAN, [line(Phase.SHIP, 1.0), line(Phase.TRAIN, 30.0)])
    bad = spending_of(run("b", hours=5, cause=Cause.HANG, step=200), BEGAN, [line(Phase.TRAIN, 3.0)])
    group = group_of("demo", [good, bad])
    assert (group.runs, group.finished, group.hours, group.gpu_hours) == (2, 1, 15.0, 30.0)
    assert group.usd == pytest.approx(good.cost.usd + bad.cost.usd)
    assert group.failed_usd == pytest.approx(bad.cost.usd)
    assert group.training_usd == pytest.approx(29.0)
    assert group.idle_usd == pytest.approx(good.cost.usd - 29.0)
    assert group.usd_per_run == pytest.approx(group.usd)
    assert group.usd_per_1000_steps == pytest.approx(group.usd / 1.2)


def test_without_a_success_or_a_step_there_is_no_price_of_one() -> None:
    group = group_of("demo", [spending_of(run(cause=Cause.HOST, step=0), BEGAN)])
    assert group.usd_per_run is group.usd_per_1000_steps is None


def test_a_run_counts_under_each_of_its_tags() -> None:
    found = groups([run("a", tags=("lr", "new")), run("b", tags=("lr",))], GroupBy.TAG)
    assert {key: group.runs for key, group in found.items()} == {"lr": 2, "new": 1}
    assert found["lr"].usd == pytest.approx(2 * found["new"].usd)


def test_the_most_expensive_group_comes_first_and_days_come_in_their_order() -> None:
    runs = [run("a", job="cheap", hours=1), run("b", job="dear", hours=30), run("c", job="fair", hours=2)]
    assert list(groups(runs, GroupBy.JOB)) == ["dear", "fair", "cheap"]
    assert list(groups(runs, GroupBy.DAY)) == ["2027-01-15", "2027-01-16"]


def test_a_run_that_goes_on_past_midnight_is_split_by_its_hours() -> None:
    found = groups([run(hours=48)], GroupBy.DAY)  # from 08:00
    assert {key: group.hours for key, group in found.items()} == {
        "2027-01-15": pytest.approx(16.0),
        "2027-01-16": pytest.approx(24.0),
        "2027-01-17": pytest.approx(8.0),
    }
    whole = spending_of(run(hours=48), BEGAN)
    assert [group.usd / whole.cost.usd for group in found.values()] == pytest.approx([1 / 3, 1 / 2, 1 / 6])
    assert [group.finished for group in found.values()] == [0, 0, 1]
    assert [group.runs for group in found.values()] == [1, 1, 1]


def test_a_run_that_ends_at_midnight_is_of_the_day_before() -> None:
    (day,) = groups([run(hours=16)], GroupBy.DAY).values()
    assert (day.key, day.finished) == ("2027-01-15", 1)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("by", GroupBy)
def test_nothing_is_lost_and_nothing_counted_twice_but_under_tags(by: GroupBy, seed: int) -> None:
    chance = random.Random(seed)
    runs = [
        run(
            f"run-{number}",
            hours=chance.random() * 100,
            job=chance.choice("ab"),
            host=chance.choice(["m1", "m2", ""]),
            cause=chance.choice([None, None, Cause.HANG]),
            step=chance.randrange(1000),
            tags=tuple(chance.sample(["x", "y"], chance.randrange(2))),
        )
        for number in range(12)
    ]
    spendings = [spending_of(one, BEGAN) for one in runs]
    total, found = group_of("total", spendings), group_spendings(spendings, by, LONDON)
    for amount in ("hours", "gpu_hours", "idle_usd", "failed_usd", "training_usd", "steps", "finished"):
        assert sum(getattr(group, amount) for group in found) == pytest.approx(getattr(total, amount)), amount
    for amount in ("gpu_usd", "storage_usd", "traffic_usd", "usd"):
        assert sum(getattr(one, amount) for one in found) == pytest.approx(getattr(total, amount))
    if by not in OVER_TIME:
        assert sum(group.runs for group in found) == total.runs == 12


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
    assert BERLIN.moment(text, NOW) == at(since)
    assert BERLIN.moment(text, NOW, is_end=True) == at(until)


WRONG = [
    *("", "soon", "7", "-7d", "7 d", "d", "7y", "yesterday", "2026", "2026-1-1", "2026-11-01T10:00"),
    *("2026-13", "2026-02-30", "0000-01-01", "9999-12-31", "2026/11/01", "٧d", "1e3d", "99999d", "infd"),
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_moment_is_told_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a day like 2026-11-01, a month") as caught:
        BERLIN.moment(text, NOW)
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
