"""Notifications: what of a run is told, by its phase, its cause and its money."""

from dataclasses import replace

import pytest

from tests.runs import a_run
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.decisions.policy import DESTROY_TRIES
from vastrun.launcher.notifications import NotificationKind, kinds_due

RUN = a_run(provider="fake", phase=Phase.TRAIN, usd_per_hour=3.6, rented_at=0.0)
ENDED = replace(RUN, phase=Phase.ENDED, released_at=100.0)


@pytest.mark.parametrize(
    ("seconds", "told", "due"),
    [
        (4_999, [], []),
        (5_000, [], [NotificationKind.BUDGET_50]),
        (5_000, [NotificationKind.BUDGET_50], []),
        (8_500, [], [NotificationKind.BUDGET_80]),
        (8_500, [NotificationKind.BUDGET_80], []),
        (6_000, [NotificationKind.BUDGET_80], []),
        (10_000, [NotificationKind.BUDGET_50, NotificationKind.BUDGET_80], [NotificationKind.BUDGET_100]),
    ],
)
def test_of_the_budget_the_highest_threshold_is_told_once(
    seconds: float, told: list[NotificationKind], due: list[NotificationKind]
) -> None:
    assert kinds_due(RUN, 10.0, cost_usd(RUN, seconds), dict.fromkeys(told, 0.0)) == due


def test_a_run_that_its_money_limit_ended_has_reached_it() -> None:
    ended = replace(ENDED, cause=Cause.MONEY_LIMIT)
    assert kinds_due(ended, 10.0, 0.0, {NotificationKind.BUDGET_50: 0.0}) == [
        NotificationKind.BUDGET_100,
        NotificationKind.FAILURE,
    ]


def test_without_a_limit_no_threshold_is_told() -> None:
    assert kinds_due(RUN, None, 1e9, {}) == []


@pytest.mark.parametrize(
    ("run", "due"),
    [
        (ENDED, NotificationKind.END),
        (replace(ENDED, cause=Cause.STOPPED), NotificationKind.END),
        (replace(ENDED, cause=Cause.PRUNED), NotificationKind.END),
        (replace(ENDED, cause=Cause.SIGNAL), NotificationKind.FAILURE),
        (replace(ENDED, cause=Cause.PREEMPTED), NotificationKind.LOST),
        (replace(RUN, phase=Phase.DESTROY, destroy_tries=DESTROY_TRIES), NotificationKind.NOT_DESTROYED),
    ],
)
def test_an_end_is_told_by_its_verdict(run: Run, due: NotificationKind) -> None:
    assert kinds_due(run, None, 200.0, {}) == [due]
