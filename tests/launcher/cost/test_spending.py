"""What one run cost, how much of that it trained for, and how far it came."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.launcher.cost.spent import BEGAN, HOUR_S, line, run
from tests.launcher.cost.test_groups import LONDON
from tests.launcher.pool.test_held_machines import NOW, held, on_slot
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cause, Event, Meter, Phase, Rental, Run
from vastrun.launcher.core.bills import cost_of, cost_usd
from vastrun.launcher.cost.groups import GroupBy, group_spendings
from vastrun.launcher.cost.spending import (
    counted_in_total,
    idle_usd,
    net_of_shares,
    spending_of,
    steps_of,
)
from vastrun.launcher.ui.render.costs import Costs, costs_table

DIARY = (
    line(Phase.PLAN, 0.0),
    line(Phase.RENT, 0.1),
    line(Phase.BOOT, 0.4),
    line(Phase.SHIP, 0.5),
    line(Phase.TRAIN, 0.7),
    line(Phase.TRAIN, 8.5),
    line(Phase.COLLECT, 8.9),
    line(Phase.DESTROY, 9.0),
)
HOUR = 3600.0


def test_a_run_costs_what_the_ledger_counts_for_as_long_as_it_was_rented() -> None:
    spending = spending_of(run(), BEGAN + 99 * HOUR_S)
    assert spending.cost == cost_of(run(), BEGAN)
    assert (spending.since, spending.until) == (BEGAN, BEGAN + 10 * HOUR_S)
    assert (spending.hours, spending.gpu_hours) == (10.0, 20.0)


def test_a_run_that_goes_on_cost_so_much_so_far() -> None:
    now = BEGAN + 4 * HOUR_S
    spending = spending_of(run(phase=Phase.TRAIN, released_at=None), now)
    assert (spending.until, spending.hours) == (now, 4.0)
    assert not spending.failed
    assert not spending.finished


def test_a_further_machine_is_part_of_what_its_run_cost() -> None:
    late = Rental(
        instance_id="8", usd_per_hour=3.6, rented_at=BEGAN - HOUR_S, released_at=BEGAN + 11 * HOUR_S
    )
    alone, both = spending_of(run(), BEGAN), spending_of(run(rentals=(late,)), BEGAN)
    assert (both.since, both.until) == (BEGAN - HOUR_S, BEGAN + 11 * HOUR_S)
    assert both.hours == 22.0
    assert both.cost.usd == pytest.approx(alone.cost.usd + 12 * 3.6)


@pytest.mark.parametrize(
    ("phase", "diary", "idle"),
    [
        pytest.param(Phase.ENDED, DIARY, 2.0, id="loading, upload, download and the end"),
        pytest.param(Phase.ENDED, DIARY[:4], 10.0, id="it never trained"),
        pytest.param(Phase.TRAIN, DIARY[:5], 0.5, id="it trains"),
        pytest.param(Phase.TRAIN, DIARY[:4], 0.5, id="it trains, and has not said so yet"),
        pytest.param(Phase.BOOT, DIARY[:3], 10.0, id="it does not train yet"),
        pytest.param(Phase.COLLECT, DIARY[:6], 2.0, id="it is brought home"),
        pytest.param(Phase.ENDED, (), 10.0, id="no diary"),
        pytest.param(Phase.ENDED, (line(Phase.TRAIN, 99.0),), 0.0, id="it turned out to be cheaper"),
        pytest.param(
            Phase.ENDED, (line(Phase.SHIP, 9.0), line(Phase.TRAIN, 7.0)), 10.0, id="it fell meanwhile"
        ),
    ],
)
def test_money_spent_without_training_is_idle(phase: Phase, diary: Sequence[Event], idle: float) -> None:
    assert idle_usd(run(phase=phase), 10.0, diary) == pytest.approx(idle)


def test_a_run_succeeded_failed_or_is_open() -> None:
    ended = {cause: spending_of(run(cause=cause), BEGAN) for cause in (None, *Cause)}
    assert [cause for cause, spending in ended.items() if spending.finished] == [None]
    assert {cause for cause, spending in ended.items() if spending.failed} == set(Cause)


def chain(*steps: int, jobs: Sequence[str] = ()) -> dict[str, Run]:
    """Runs of which each continues the one before, by id."""
    names = jobs or ["demo"] * len(steps)
    found = {}
    for number, (step, job) in enumerate(zip(steps, names, strict=True)):
        parent = f"run-{number - 1}" if number else None
        found[f"run-{number}"] = run(f"run-{number}", step=step, parent=parent, job=job)
    return found


@pytest.mark.parametrize(
    ("steps", "further"),
    [
        ([1000], [1000]),
        ([600, 1000], [600, 400]),
        ([600, 0, 1000], [600, 0, 400]),
        ([600, 300, 500], [600, 0, 0]),
    ],
)
def test_steps_of_an_earlier_run_are_not_counted_again(steps: Sequence[int], further: Sequence[int]) -> None:
    runs = chain(*steps)
    assert [steps_of(each, runs) for each in runs.values()] == further


def test_another_job_that_starts_from_its_checkpoint_begins_anew() -> None:
    runs = chain(1000, 200, jobs=["operator", "refine"])
    assert steps_of(runs["run-1"], runs) == 200


def test_runs_that_name_each_other_do_not_hang() -> None:
    runs = {name: run(name, parent=other) for name, other in (("a", "b"), ("b", "a"))}
    assert steps_of(runs["a"], runs) == 0
    assert steps_of(run("c", parent="gone"), runs) == 1000


def test_a_part_of_the_time_is_that_part_of_everything_but_the_end() -> None:
    whole = spending_of(run(), BEGAN, DIARY)
    first, last = whole.within(0.0, BEGAN + 4 * HOUR_S), whole.within(BEGAN + 4 * HOUR_S, 1e12)
    assert first is not None
    assert last is not None
    assert (first.hours, first.gpu_hours, first.steps) == (4.0, 8.0, 400.0)
    for name in ("gpu_usd", "storage_usd", "traffic_usd"):
        parts = [getattr(part.cost, name) for part in (first, last)]
        assert parts == pytest.approx([getattr(whole.cost, name) * share for share in (0.4, 0.6)])
    assert first.idle_usd + last.idle_usd == pytest.approx(whole.idle_usd)
    assert (first.finished, last.finished) == (False, True)


def test_all_of_the_time_is_all_of_it() -> None:
    whole = spending_of(run(), BEGAN, DIARY)
    assert whole.within(-float("inf"), float("inf")) == whole


def test_outside_of_its_time_a_run_cost_nothing() -> None:
    whole = spending_of(run(), BEGAN)
    assert whole.within(0.0, BEGAN) is None
    assert whole.within(BEGAN + 10 * HOUR_S, 1e12) is None
    assert whole.within(0.0, BEGAN) is None


def test_a_run_that_had_no_machine_is_there_when_it_began() -> None:
    run_without = replace(run(), meter=Meter(), rented_at=None, released_at=None, cause=Cause.NO_OFFER)
    spending = spending_of(run_without, BEGAN)
    assert spending.cost.usd == spending.hours == 0.0
    assert spending.within(BEGAN - 10, BEGAN) == spending
    assert spending.within(BEGAN - 9, 1e12) is None
    assert spending.within(0.0, BEGAN - 10) is None


def test_the_steps_of_a_run_on_several_machines_are_those_of_its_first_node() -> None:
    first = run("calm-heron-3f1a", step=500, steps=500)
    assert spending_of(first, BEGAN).steps == 500
    assert spending_of(replace(first, id="calm-heron-3f1b", leader=first.id), BEGAN).steps == 0


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


def total_usd(runs: Sequence[Run], now: float) -> float:
    return sum(cost_usd(run, now) for run in runs if run.id in counted_in_total(runs))


def test_a_total_counts_a_dollar_once() -> None:
    plain = replace(slot(3, 0, 1), provider="local", instance_id="x")
    runs = [machine(2.0), slot(1, 0, 2), slot(2, 0, 2), plain]
    assert total_usd(runs, NOW + 9 * HOUR) == pytest.approx(17.0)


def test_a_share_whose_machine_is_not_among_the_runs_counts_itself() -> None:
    assert total_usd([slot(1, 0, 2)], NOW + 9 * HOUR) == pytest.approx(2.0)


def test_the_table_and_the_document_of_costs_count_a_share_once() -> None:
    now = NOW + 9 * HOUR
    rows = [RunRow(run=run, cost=cost_of(run, now)) for run in (machine(2.0), slot(1, 0, 2), slot(2, 0, 2))]
    total = costs_table(rows, now).splitlines()[-1]
    assert total.split()[0] == "total"
    assert total.split()[-1] == "$16.000"
    document = Costs.of(rows, now)
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
