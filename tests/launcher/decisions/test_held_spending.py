"""Each dollar of a held machine is counted once: as a share of a run on it, or as idle time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.core import Cause, Phase
from launcher.decisions.calendar import Calendar
from launcher.decisions.grouping import By, grouped
from launcher.decisions.held_spending import shared
from launcher.decisions.spending import spending_of
from tests.launcher.decisions.test_grouping import LONDON
from tests.launcher.decisions.test_pooling import NOW, held, on_slot

HOUR = 3600.0
CALENDAR: Calendar = LONDON


def test_shares_and_idle_time_are_the_bill_together() -> None:
    holder = replace(held().run, batch="b", phase=Phase.ENDED, cause=Cause.STOPPED, released_at=NOW + HOUR)
    users = [
        on_slot(n, batch="b", point=str(n), phase=Phase.ENDED, released_at=NOW + HOUR / 2) for n in (1, 2)
    ]
    spendings = shared([spending_of(run, NOW + HOUR) for run in (holder, *users)])
    assert [one.cost.usd for one in spendings] == pytest.approx([7.0, 0.5, 0.5])
    (group,) = grouped(spendings, By.BATCH, CALENDAR)
    assert (group.key, group.finished) == ("b", 2)
    assert group.cost.usd == pytest.approx(8.0)
    assert group.idle_usd >= 7.0 and group.failed_usd == 0.0
    assert group.gpu_hours <= 8.0


def test_shares_that_come_to_more_than_the_bill_are_cut_to_it() -> None:
    holder = replace(held().run, phase=Phase.ENDED, cause=Cause.LOST, released_at=NOW + HOUR / 10)
    users = [on_slot(n, phase=Phase.ENDED, released_at=NOW + HOUR) for n in (1, 2)]
    spendings = shared([spending_of(run, NOW + HOUR) for run in (holder, *users)])
    assert sum(one.cost.usd for one in spendings) == pytest.approx(0.8)
    assert spendings[0].cost.usd == pytest.approx(0.0)


def test_a_share_whose_machine_is_not_among_them_counts_itself() -> None:
    (one,) = shared([spending_of(on_slot(1, released_at=NOW + HOUR), NOW + HOUR)])
    assert one.cost.usd == pytest.approx(1.0)
