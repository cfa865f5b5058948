"""Shares of a held machine's bill: every dollar stands somewhere once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launcher.decisions.test_cost_groups import LONDON
from tests.launcher.decisions.test_pool import NOW, held, on_slot
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.bills import cost_of, cost_usd
from vastrun.launcher.decisions.cost_groups import GroupBy, group_spendings
from vastrun.launcher.decisions.shares import net_of_shares, split, total_usd
from vastrun.launcher.decisions.spending import spending_of
from vastrun.launcher.ui.documents.costs import Costs
from vastrun.launcher.ui.render.costs import costs_table

HOUR = 3600.0


def machine(hours: float, usd_per_hour: float = 8.0) -> Run:
    """One that was held for so long."""
    run = held(usd_per_hour=usd_per_hour).run
    return replace(run, phase=Phase.ENDED, released_at=NOW + hours * HOUR)


def slot(number: int, begin: float, hours: float, usd_per_hour: float = 1.0) -> Run:
    return on_slot(
        number,
        phase=Phase.ENDED,
        usd_per_hour=usd_per_hour,
        rented_at=NOW + begin * HOUR,
        released_at=NOW + (begin + hours) * HOUR,
    )


def test_what_nobody_used_is_idle_time() -> None:
    found = split(machine(2.0), [slot(1, 0, 2), slot(2, 0.5, 1)], NOW + 9 * HOUR)
    assert found.billed_usd == pytest.approx(16.0)
    assert found.shares == pytest.approx({"calm-heron-0001": 2.0, "calm-heron-0002": 1.0})
    assert found.idle_usd == pytest.approx(13.0)


def test_shares_of_another_machine_do_not_count() -> None:
    other = replace(slot(1, 0, 2), instance_id="calm-heron-0001.0000@other-owl-0000")
    assert split(machine(2.0), [other], NOW).shares == {}


def test_a_total_counts_a_dollar_once() -> None:
    plain = replace(slot(3, 0, 1), provider="local", instance_id="x")
    runs = [machine(2.0), slot(1, 0, 2), slot(2, 0, 2), plain]
    assert total_usd(runs, NOW + 9 * HOUR) == pytest.approx(17.0)


def test_a_share_whose_machine_is_not_among_the_runs_counts_itself() -> None:
    assert total_usd([slot(1, 0, 2)], NOW + 9 * HOUR) == pytest.approx(2.0)


@given(
    hours=st.floats(0.0, 50.0),
    price=st.floats(0.0, 100.0),
    parts=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 50), st.floats(0, 100)), max_size=8),
)
def test_shares_and_idle_time_are_always_the_bill(
    hours: float, price: float, parts: list[tuple[float, float, float]]
) -> None:
    holder = machine(hours, price)
    runs = [slot(n, *part) for n, part in enumerate(parts)]
    found = split(holder, runs, NOW + 99 * HOUR)
    assert found.idle_usd >= 0
    assert sum(found.shares.values()) + found.idle_usd == pytest.approx(found.billed_usd, abs=1e-9)
    assert found.billed_usd == cost_usd(holder, NOW + 99 * HOUR)
    assert total_usd([holder, *runs], NOW + 99 * HOUR) == pytest.approx(found.billed_usd, abs=1e-9)


def test_the_table_and_the_document_of_costs_count_a_share_once() -> None:
    now = NOW + 9 * HOUR
    rows = [RunRow(run=run, cost=cost_of(run, now)) for run in (machine(2.0), slot(1, 0, 2), slot(2, 0, 2))]
    total = costs_table(rows, now).splitlines()[-1]
    assert total.split()[0] == "total"
    assert total.split()[-1] == "$16.000"
    document = Costs.of(rows, [], now)
    assert document.usd == pytest.approx(16.0)
    assert [run.in_total for run in document.runs] == [True, False, False]
    assert [run.usd for run in document.runs] == pytest.approx([16.0, 2.0, 2.0])


def test_shares_and_idle_time_are_the_bill_together() -> None:
    holder = replace(held().run, batch="b", phase=Phase.ENDED, cause=Cause.STOPPED, released_at=NOW + HOUR)
    users = [
        on_slot(n, batch="b", point=str(n), phase=Phase.ENDED, released_at=NOW + HOUR / 2) for n in (1, 2)
    ]
    spendings = net_of_shares([spending_of(run, NOW + HOUR) for run in (holder, *users)])
    assert [one.cost.usd for one in spendings] == pytest.approx([7.0, 0.5, 0.5])
    (group,) = group_spendings(spendings, GroupBy.BATCH, LONDON)
    assert (group.key, group.finished) == ("b", 2)
    assert group.usd == pytest.approx(8.0)
    assert group.idle_usd >= 7.0 and group.failed_usd == 0.0
    assert group.gpu_hours <= 8.0


def test_shares_that_come_to_more_than_the_bill_are_cut_to_it() -> None:
    holder = replace(held().run, phase=Phase.ENDED, cause=Cause.LOST, released_at=NOW + HOUR / 10)
    users = [on_slot(n, phase=Phase.ENDED, released_at=NOW + HOUR) for n in (1, 2)]
    spendings = net_of_shares([spending_of(run, NOW + HOUR) for run in (holder, *users)])
    assert sum(one.cost.usd for one in spendings) == pytest.approx(0.8)
    assert spendings[0].cost.usd == pytest.approx(0.0)


def test_a_share_whose_machine_is_not_among_them_counts_itself() -> None:
    (one,) = net_of_shares([spending_of(on_slot(1, released_at=NOW + HOUR), NOW + HOUR)])
    assert one.cost.usd == pytest.approx(1.0)
