"""What `cost --by` and `cost reconcile` print: it adds up, it fits, and each word of it is explained."""

import random
import re
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import pytest

from tests.launcher.cost.spent import BEGAN, line, run
from tests.offers import rtx_4090
from vastrun.launcher.cli.cost import REASONS, STRANGERS, reconciliation_text
from vastrun.launcher.commands.queries import with_cost
from vastrun.launcher.core import Charge, Cost, Phase, Settled
from vastrun.launcher.cost.groups import Calendar, GroupBy, group_of, group_spendings
from vastrun.launcher.cost.reconciliation import DifferenceReason, UnmatchedCharge, bill_of, reconcile
from vastrun.launcher.cost.spending import spending_of
from vastrun.launcher.cost.statement import CostReport, Reconciliation, UnclaimedCharge
from vastrun.launcher.ui.render.costs import costs_table, report_csv, report_text
from vastrun.launcher.ui.render.verdict import cost_text

PAGE = (Path(__file__).parents[4] / "docs" / "cost.md").read_text(encoding="utf-8")


def report(chance: random.Random, by: GroupBy) -> CostReport:
    """Of runs that cost what nobody can write down."""
    spendings = []
    for number in range(9):
        spending = spending_of(
            run(f"run-{number}", hours=chance.random() * 40, step=chance.randrange(99)), BEGAN
        )
        cost = Cost(
            gpu_usd=chance.random() * 100,
            storage_usd=chance.random() / 100,
            traffic_usd=chance.random() / 1000,
        )
        spendings.append(replace(spending, cost=cost, idle_usd=cost.usd * chance.random()))
    calendar = Calendar(zone=UTC)
    return CostReport(
        by=by,
        groups=group_spendings(spendings, by, calendar),
        total=group_of("total", spendings),
        since=None,
        until=None,
        time_zone="UTC",
    )


def dollars(text: str) -> list[list[Decimal]]:
    """The amounts of each line but the first."""
    return [list(map(Decimal, re.findall(r"\$(\d+\.\d+)", each))) for each in text.splitlines()[1:]]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("by", [GroupBy.RUN, GroupBy.DAY])
def test_what_is_shown_adds_up_along_each_line_and_down_each_column(seed: int, by: GroupBy) -> None:
    charged, used, *_ = report_text(report(random.Random(seed), by)).split("\n\n")
    for (*parts, cost), uses in zip(dollars(charged), dollars(used), strict=True):
        assert sum(parts) == cost == sum(uses[:3])
    for table, columns in ((charged, 4), (used, 3)):
        *lines, total = (amounts[:columns] for amounts in dollars(table))
        assert [sum(column) for column in zip(*lines, strict=True)] == total


def test_a_narrow_terminal_cuts_the_names_alone() -> None:
    narrow = replace(report(random.Random(0), GroupBy.JOB), by=GroupBy.JOB)
    long = replace(narrow, groups=[replace(group, key="x" * 63) for group in narrow.groups])
    said = report_text(long, 80)
    assert max(map(len, said.splitlines())) == 80
    assert "x…" in said


def test_what_others_worded_steers_no_terminal_and_ends_no_line() -> None:
    evil = replace(report(random.Random(0), GroupBy.GPU), by=GroupBy.GPU)
    group = replace(evil.groups[0], key="RTX\n\x1b[2J4090")
    said = report_text(replace(evil, groups=[group]))
    assert "\x1b" not in said
    assert len(report_csv(replace(evil, groups=[group])).splitlines()) == 2
    charge = Charge(instance_id="9", label="my\n\x1b[2Jbox", usd=1.0)
    assert charge.label not in reconciliation_text(reconciliation(charge))


def reconciliation(*besides: Charge) -> Reconciliation:
    usd = spending_of(run(), BEGAN).cost.usd
    charge = Charge(instance_id="7", label="", usd=usd + 3.0)
    one = reconcile(bill_of(run(), [charge], [line(Phase.TRAIN, 0.0)], 1e12, ""))
    unclaimed = [
        UnclaimedCharge(provider="vast", label=each.label, kind=UnmatchedCharge.NOT_A_RUN, usd=each.usd)
        for each in besides
    ]
    return Reconciliation(since=0.0, runs=[one] * 3, unclaimed=unclaimed, without_bill={"local": 2})


def test_the_difference_of_a_bill_adds_up_and_what_is_not_explained_is_told_with_what_to_do() -> None:
    said = reconciliation_text(reconciliation())
    table, legend, besides = said.split("\n\n")
    *runs, total = (
        [Decimal(cell.replace("$", "")) for cell in re.findall(r"[+-]?\$[\d.]+", each)[:3]]
        for each in table.splitlines()[1:]
    )
    assert all(charged - counted == difference for counted, charged, difference in (*runs, total))
    assert [sum(column) for column in zip(*runs, strict=True)] == total
    assert "+$3.000  rounding, NOT EXPLAINED $2.804" in table
    assert "vastrun reap --dry-run" in legend
    assert besides == "2 runs of local: it sends no bill"


def test_every_reason_and_every_stranger_has_its_words_here_and_on_the_page() -> None:
    assert set(REASONS) == set(DifferenceReason)
    assert set(STRANGERS) == set(UnmatchedCharge)
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(DifferenceReason)
    assert all(f"(`{kind}`)" in PAGE for kind in UnmatchedCharge)


def test_every_column_is_explained_on_the_page() -> None:
    explained = {
        name for row in re.findall(r"^\| ([A-Z].*?) \|", PAGE, re.MULTILINE) for name in row.split(", ")
    }
    charged, used, *_ = report_text(report(random.Random(0), GroupBy.RUN)).split("\n\n")
    shown = [re.split(r"\s{2,}", text.splitlines()[0])[1:] for text in (charged, used)]
    assert {*shown[0], *shown[1]} - {"COST"} <= explained


def test_what_bills_may_have_more_is_told_until_they_are_in() -> None:
    offer = rtx_4090(usd_per_hour=3.6, bill_tail_s=300.0)
    ended = with_cost(run("one", hours=0.1, offer=offer), (), BEGAN + 1e6)
    goes_on = with_cost(run("two", phase=Phase.TRAIN, released_at=None, offer=offer), (), BEGAN + 60)
    free = with_cost(run("four", hours=0.1), (), BEGAN + 1e6)
    settled = with_cost(run("three", offer=offer, charged=Settled(gpu_usd=0.5)), (), BEGAN + 1e6)
    assert cost_text(ended) == "$0.460, at most $0.760 until the bill is in"
    assert [cost_text(row) for row in (goes_on, free, settled)] == ["$0.160", "$0.460", "$0.500"]
    table = costs_table([ended, goes_on, free, settled], BEGAN + 1e6)
    assert table.endswith("at most $0.300 more until the bills of 1 run are in")
    assert "at most" not in costs_table([goes_on, free, settled], BEGAN + 1e6)
