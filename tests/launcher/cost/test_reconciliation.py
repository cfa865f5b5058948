"""What a provider charged beside what the ledger counts, and what explains the difference."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.launcher.cost.spent import BEGAN, DOWN_USD_PER_GB, HOUR_S, USD_PER_HOUR, line, run
from tests.offers import rtx_4090
from vastrun.launcher.core import Cause, Charge, Event, Meter, Phase, Rental, Run, Settled
from vastrun.launcher.core.bills import WATCHED_S, cost_of, counted_of, held_usd, with_machine
from vastrun.launcher.cost.reconciliation import (
    BOUNDS,
    MAX_QUERY_AGE_S,
    NO_RUN,
    SETTLEMENT_S,
    DifferenceReason,
    ReconciledBill,
    UnmatchedCharge,
    bill_of,
    charged_cost,
    charges_by_run,
    is_due,
    reconcile,
    settled_cost,
    unmatched_charge,
)
from vastrun.launcher.cost.spending import spending_of

MUCH_LATER = BEGAN + 1000 * HOUR_S
USD_PER_S = USD_PER_HOUR / 3600
WATCHED = [line(Phase.TRAIN, 0.0, hours=quarter / 4 + 0.001) for quarter in range(40)]
"""It trains at once, with a line each quarter of an hour."""


def found(
    difference_usd: float,
    about: Run | None = None,
    *,
    events: Sequence[Event] = WATCHED,
    now: float = MUCH_LATER,
    account: str = "",
    traffic_usd: float = 0.0,
) -> ReconciledBill:
    """What is said when so much more was charged than is counted."""
    about = about or run()
    usd = cost_of(about, now).usd + difference_usd
    charge = Charge(instance_id="7", label=about.label, usd=usd, traffic_usd=traffic_usd)
    return reconcile(bill_of(about, [charge], events, now, account))


def with_meter(**changes: Any) -> Run:
    return replace(run(), meter=replace(run().meter, **changes))


def test_every_reason_has_a_bound() -> None:
    assert set(BOUNDS) == set(DifferenceReason)


def test_the_same_sum_needs_no_reason() -> None:
    assert found(0.0).reasons == ()
    assert found(0.0).explained


@pytest.mark.parametrize("difference", [-0.15, 0.15, -0.0009, 0.0009])
def test_a_difference_of_half_a_percent_is_rounding(difference: float) -> None:
    assert found(difference).reasons == (DifferenceReason.ROUNDED,)  # of 36.1 dollars


def test_what_ended_lately_or_goes_on_is_not_settled_yet() -> None:
    end = BEGAN + 10 * HOUR_S
    for about, now in ((run(), end + SETTLEMENT_S - 1), (run(released_at=None, phase=Phase.TRAIN), end)):
        said = found(-20.0, about, now=now)
        assert (said.reasons, said.unexplained_usd) == ((DifferenceReason.NOT_SETTLED,), 0.0)
        assert not found(20.0, about, now=now).explained
    assert not found(-20.0, now=end + SETTLEMENT_S + 1).explained


def test_what_began_changed_or_ended_between_two_looks_is_counted_until_the_later_one() -> None:
    most_usd = 3 * WATCHED_S * USD_PER_S
    short = run(hours=1.0)
    assert found(-most_usd + 1e-6, short, events=()).reasons == (DifferenceReason.SEEN_LATE,)
    assert found(most_usd, short, events=()).unexplained_usd > 0
    late = Rental(instance_id="8", usd_per_hour=1.0, rented_at=BEGAN, released_at=BEGAN + 60)
    both = replace(short, rentals=(late,))
    assert found(-2 * most_usd + 1e-6, both, events=()).reasons == (DifferenceReason.SEEN_LATE,)


def test_a_price_that_changed_while_nobody_looked_explains_what_it_came_to() -> None:
    former_usd_per_hour = 2.6
    changed = with_meter(former_gpu_usd=former_usd_per_hour * 5, former_gpu_s=5 * HOUR_S)
    for sign in (-1, 1):
        silent = found(sign * 0.9, changed, events=[])
        assert silent.reasons == (DifferenceReason.PRICE_CHANGED,)  # ten hours of a dollar at most
        assert found(sign * 0.9, changed).unexplained_usd > 0  # a quarter of an hour
    assert not found(0.9, events=[]).explained


def test_a_machine_that_ended_by_itself_is_counted_for_as_long_as_nobody_looked() -> None:
    alone = with_meter(given_back_at=None)
    left_alone = [line(Phase.TRAIN, 0.0, hours=1.0)]
    said = found(-30.0, alone, events=left_alone)
    assert said.reasons == (DifferenceReason.NOT_WATCHED,)
    assert not found(-30.0, alone).explained
    assert not found(-30.0, run(), events=left_alone).explained
    for cause in (Cause.PREEMPTED, Cause.LOST, Cause.HOST):
        assert found(-30.0, run(cause=cause), events=left_alone).explained


def test_a_machine_may_have_loaded_for_as_long_as_nobody_looked_before_it_trained() -> None:
    booted_late = [line(Phase.BOOT, 0.0, hours=0.01), line(Phase.BOOT, 0.0, hours=3.0), *WATCHED[12:]]
    assert found(-9.0, events=booted_late).reasons == (DifferenceReason.NOT_WATCHED,)
    assert not found(-12.0, events=booted_late).explained


def test_bytes_after_the_last_look_are_told_from_a_price_that_is_too_high() -> None:
    counted = run().meter.down_gb * DOWN_USD_PER_GB
    assert run().meter.extras.up_usd_per_gb == 0
    dear = replace(run(hours=0.1), meter=with_meter(down_gb=0.0).meter)
    assert found(0.08, dear, traffic_usd=0.08).reasons == (DifferenceReason.LAST_TRAFFIC,)
    assert not found(0.08, dear, traffic_usd=0.0).explained
    assert not found(1.0, run(hours=0.1), traffic_usd=counted + 1.0).explained  # more than 10 GB
    alone = replace(run(hours=0.1), meter=with_meter(given_back_at=None).meter)
    assert found(1.0, alone, traffic_usd=counted + 1.0).reasons == (DifferenceReason.LAST_TRAFFIC,)


TRAFFIC_USD = run().meter.down_gb * DOWN_USD_PER_GB


def test_a_bill_that_goes_on_after_the_end_is_told_in_seconds() -> None:
    short = run(hours=0.1, offer=rtx_4090(gpus=2, usd_per_hour=USD_PER_HOUR, bill_tail_s=60.0))
    two = replace(short, rentals=(LATE,))
    said = found(290 * USD_PER_S, short, traffic_usd=TRAFFIC_USD)
    assert (said.reasons, said.bill.tail_s) == ((DifferenceReason.BILL_RAN_ON,), pytest.approx(290))
    assert found(580 * USD_PER_S, two).reasons == (DifferenceReason.BILL_RAN_ON,)
    assert not found(400 * USD_PER_S, short).explained
    assert not found(290 * USD_PER_S, run(hours=0.1)).explained  # its provider charges none after its end


def test_a_settled_bill_tells_how_long_it_went_on_where_a_launcher_ended_the_only_machine() -> None:
    def tail_s(more_usd: float, *others: Charge, about: Run | None = None, traffic_usd: float = 0.0) -> Any:
        usd = COUNTED_USD + more_usd + traffic_usd
        settled = cost(charged(usd, traffic_usd=TRAFFIC_USD + traffic_usd), *others, about=about)
        assert settled is not None
        return settled.tail_s

    tail_usd = 120 * USD_PER_S
    assert tail_s(tail_usd) == pytest.approx(120)
    assert tail_s(tail_usd, traffic_usd=9.0) == pytest.approx(120)
    assert tail_s(-0.01) == 0.0
    assert tail_s(tail_usd, about=with_meter(given_back_at=None)) is None
    assert tail_s(tail_usd, charged(0.5, "8"), about=run(rentals=(LATE,))) is None


def test_a_run_of_another_account_is_on_another_bill() -> None:
    theirs = run(account="41")
    assert reconcile(bill_of(theirs, [], WATCHED, MUCH_LATER, "42")).reasons == (
        DifferenceReason.OTHER_ACCOUNT,
    )
    for account in ("41", ""):
        assert not reconcile(bill_of(theirs, [], WATCHED, MUCH_LATER, account)).explained


def test_several_reasons_together_explain_what_none_does_alone() -> None:
    most_usd = 3 * WATCHED_S * USD_PER_S
    said = found(-most_usd - 0.15)
    assert (said.reasons, said.unexplained_usd) == (
        (DifferenceReason.ROUNDED, DifferenceReason.SEEN_LATE),
        0.0,
    )


def test_what_goes_beyond_all_reasons_is_left_as_a_sum() -> None:
    said = found(5.0)
    assert said.unexplained_usd == pytest.approx(5.0 - 0.005 * (cost_of(run(), 0.0).usd + 5.0))
    nothing = reconcile(bill_of(run(), [], WATCHED, MUCH_LATER, ""))
    assert nothing.unexplained_usd > 30


def test_a_run_without_a_diary_or_a_machine_is_no_trouble() -> None:
    bare = run(rented_at=None, released_at=None, meter=Meter())
    assert reconcile(bill_of(bare, [], [], MUCH_LATER, "")).explained
    set_back = run(released_at=BEGAN - 5)  # as when the computer's clock was
    assert bill_of(set_back, [], [], MUCH_LATER, "").silence_s == 0.0


def charge(instance_id: str, label: str) -> Charge:
    return Charge(instance_id=instance_id, label=label, usd=1.0)


def test_a_charge_is_found_by_the_machine_else_by_its_label() -> None:
    late = Rental(instance_id="8", usd_per_hour=1.0, rented_at=BEGAN)
    one = run("one", ledger="0badcafe", rentals=(late,))
    two = run("two", ledger="0badcafe", instance_id=None)
    charges = [
        charge("7", "my own words"),
        charge("8", two.label),
        charge("9", two.label),
        charge("", one.label),
        charge("9", ""),
        charge("", ""),
    ]
    by_run = charges_by_run([one, two], charges)
    assert by_run == {"one": [charges[0], charges[1], charges[3]], "two": [charges[2]], NO_RUN: charges[4:]}


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("", UnmatchedCharge.NOT_A_RUN),
        ("my own words", UnmatchedCharge.NOT_A_RUN),
        ("vastrun-calm-heron-3f1a", UnmatchedCharge.OTHER_LEDGER),
        ("vastrun-calm-heron-3f1a.00000000", UnmatchedCharge.OTHER_LEDGER),
        ("vastrun-calm-heron-3f1a.0badcafe", UnmatchedCharge.UNKNOWN_RUN),
    ],
)
def test_a_charge_of_no_run_says_whose_it_is(label: str, kind: UnmatchedCharge) -> None:
    assert unmatched_charge(charge("9", label), "0badcafe") is kind
    assert unmatched_charge(volume(label), "0badcafe") is UnmatchedCharge.OTHER_KIND


def volume(label: str) -> Charge:
    return replace(charge("", label), source="volume-12")


def test_what_is_no_machine_is_of_no_run_whatever_its_label() -> None:
    assert charges_by_run([run()], [volume(run().label)]) == {NO_RUN: [volume(run().label)]}


END = BEGAN + 10 * HOUR_S
LATER = END + SETTLEMENT_S
COUNTED_USD = counted_of(run(), LATER).usd
LATE = Rental(instance_id="8", usd_per_hour=1.0, rented_at=BEGAN, released_at=BEGAN + 60)


def charged(usd: float, instance_id: str = "7", **changes: Any) -> Charge:
    return Charge(instance_id=instance_id, label=run().label, usd=usd, **changes)


def cost(*charges: Charge, about: Run | None = None, now: float = LATER) -> Settled | None:
    """What the run costs by these charges; None: what was counted."""
    return settled_cost(reconcile(bill_of(about or run(), charges, WATCHED, now, "")))


@pytest.mark.parametrize("difference", [-3 * WATCHED_S * USD_PER_HOUR / 3600, -0.01, 0.0, 0.01, 20.0])
def test_a_run_costs_what_was_charged_where_that_is_more_or_explained(difference: float) -> None:
    found = cost(charged(COUNTED_USD + difference))
    assert found is not None
    assert found.usd == pytest.approx(COUNTED_USD + difference)


def test_less_than_can_be_explained_is_not_believed() -> None:
    assert cost(charged(COUNTED_USD - 5.0)) is None
    assert cost(charged(0.0)) is None
    assert cost(charged(-1.0), about=run(hours=0.01)) is None
    assert cost() is None


def test_a_bill_of_nothing_is_not_whole_whatever_was_counted() -> None:
    idle = run(usd_per_hour=0.0, meter=Meter())
    assert counted_of(idle, LATER).usd == 0
    assert cost(charged(0.0), about=idle) is None
    assert cost(charged(0.01), about=idle) is not None


def test_a_bill_is_settled_only_so_long_after_the_end_of_every_machine() -> None:
    whole = charged(COUNTED_USD)
    assert cost(whole, now=LATER) is not None
    assert cost(whole, now=LATER - 1) is None
    assert cost(whole, about=run(phase=Phase.DESTROY)) is None
    assert cost(whole, about=run(phase=Phase.TRAIN, released_at=None)) is None
    there = replace(LATE, released_at=None)
    ended = replace(LATE, released_at=END + 1)
    both = [whole, charged(10.0, "8")]
    assert cost(*both, about=run(rentals=(there,)), now=LATER + HOUR_S) is None
    assert cost(*both, about=run(rentals=(ended,))) is None
    assert cost(*both, about=run(rentals=(ended,)), now=LATER + 1) is not None


def test_a_bill_without_one_of_its_machines_is_not_whole() -> None:
    two = run(rentals=(LATE,))
    others: Sequence[Charge] = [charged(COUNTED_USD), charged(COUNTED_USD, "9"), charged(COUNTED_USD, "")]
    for one in others:
        assert cost(one, about=two) is None
    assert cost(charged(COUNTED_USD, "9")) is None  # of a machine that only bears its label
    found = cost(others[0], charged(0.5, "8"), charged(0.25, "9"), about=two)
    assert found is not None  # one that bears its label was made for it, too
    assert found.usd == pytest.approx(COUNTED_USD + 0.75)


def test_a_bill_with_a_charge_that_cannot_be_read_is_not_whole_and_not_explained_by_another_reason() -> None:
    known, unreadable = charged(COUNTED_USD - 20.0), charged(0.0, is_readable=False)
    assert cost(charged(COUNTED_USD), unreadable) is None
    said = reconcile(bill_of(run(), [known, unreadable], WATCHED, LATER, ""))
    assert (said.reasons, said.explained) == ((DifferenceReason.NOT_SETTLED,), True)


def test_a_bill_is_whole_only_with_the_day_on_which_the_machine_ended() -> None:
    days = [charged(COUNTED_USD, until=END - 1), charged(0.01, until=END)]
    assert cost(days[0]) is None
    assert cost(*days) is not None


def test_the_parts_of_a_charge_are_those_that_were_charged_and_never_more_than_all() -> None:
    for traffic_usd, storage_usd, parts in (
        (0.25, 0.5, (1.25, 0.5, 0.25)),
        (9.0, 9.0, (0.0, 0.0, 2.0)),
        (-1.0, 9.0, (0.0, 2.0, 0.0)),
        (0.0, -1.0, (2.0, 0.0, 0.0)),
    ):
        found = charged_cost([charged(2.0, traffic_usd=traffic_usd, storage_usd=storage_usd)])
        assert (found.gpu_usd, found.storage_usd, found.traffic_usd) == parts


def test_what_was_charged_is_the_cost_of_all_that_the_run_had() -> None:
    paid = run(rentals=(LATE,), charged=Settled(gpu_usd=30.0, storage_usd=1.0, traffic_usd=0.5))
    assert cost_of(paid, LATER) == paid.charged
    assert held_usd(paid, LATER) == 31.5
    assert counted_of(paid, LATER) == cost_of(replace(paid, charged=None), LATER)
    assert cost_of(with_machine(paid, LATE), LATER).usd == pytest.approx(1 / 60)  # of one machine of several


def test_what_a_run_trained_for_keeps_its_share_of_the_cost() -> None:
    events = [line(Phase.SHIP, 9.0), line(Phase.TRAIN, 27.0)]
    counted = spending_of(run(), LATER, events)
    paid = spending_of(run(charged=Settled(gpu_usd=COUNTED_USD / 2)), LATER, events)
    assert counted.idle_usd == pytest.approx(COUNTED_USD - 18.0)
    assert paid.idle_usd == pytest.approx(counted.idle_usd / 2)


@pytest.mark.parametrize(
    ("after_s", "changes", "due"),
    [
        pytest.param(-1, {}, False, id="not settled yet"),
        pytest.param(0, {}, True, id="from the moment that it is"),
        pytest.param(MAX_QUERY_AGE_S, {}, True, id="for a week"),
        pytest.param(MAX_QUERY_AGE_S + 1, {}, False, id="it will hardly come any more"),
        pytest.param(0, {"charged": Settled(gpu_usd=1.0)}, False, id="seen whole already"),
        pytest.param(0, {"phase": Phase.DESTROY}, False, id="a machine may be left"),
        pytest.param(0, {"rented_at": None, "instance_id": None}, False, id="it never had a machine"),
    ],
)
def test_a_bill_is_asked_for_unbidden_once_it_should_be_whole(
    after_s: float, changes: dict[str, Any], due: bool
) -> None:
    assert is_due(run(**changes), LATER + after_s) is due
