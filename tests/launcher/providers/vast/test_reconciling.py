"""What `doctor` and `reap` say of the account is what Vast bills, whatever its list shows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.clock import Clock
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.jobs import train_job
from tests.launcher.providers.vast.rentals import open_market, order, services_on
from vastrun.launcher.cli.cost import reconciliation_text
from vastrun.launcher.commands.reap import orphans, reap
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Driver, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import IncompleteListError
from vastrun.launcher.cost.reconciliation import SETTLEMENT_S, DifferenceReason, UnmatchedCharge
from vastrun.launcher.cost.statement import Reconciliation, reconciliation, settle
from vastrun.launcher.flow.drive import create_run

RUN_ID = "calm-heron-3f1a"
DAY_S = 86400.0
ROUNDED = 0.0005001
"""USD by which a charge, which has three decimals, may differ from what was billed; a night has two."""


class MarketTime:
    """The emulator's time, as a launcher's clock: a wait makes it later, there and here."""

    def __init__(self, vast: VastEmulator) -> None:
        self._vast = vast

    def now(self) -> float:
        return self._vast.clock.now()

    def sleep(self, seconds: float) -> None:
        self._vast.advance(seconds)


class Desk:
    """A launcher that rented a machine for a run, and an emulated Vast."""

    def __init__(self, vast: VastEmulator, folder: Path) -> None:
        self.vast, self.clock = vast, MarketTime(vast)
        self.provider = open_market(vast, folder, self.clock)
        self.services = services_on(self.provider, folder, self.clock)
        self.ledger = self.services.ledger

    def rented(self) -> Run:
        """A run with its machine."""
        spec = train_job()
        run = create_run(spec, dump_job(spec), self.services, run_id=RUN_ID, out_dir="/nowhere")
        asked_at = self.clock.now()
        offer = order(self.provider).offer
        machine = self.provider.rent(order(self.provider, label=run.label))
        run = replace(
            run,
            phase=Phase.TRAIN,
            offer=offer,
            instance_id=machine.id,
            usd_per_hour=machine.usd_per_hour,
            rented_at=asked_at,
            meter=replace(run.meter, extras=machine.extras),
        )
        return self.saved(run)

    def saved(self, run: Run) -> Run:
        self.ledger.hold(run.id, Driver(who="desk:1:0", until=self.clock.now() + 60))
        self.ledger.save(run, who="desk:1:0")
        self.ledger.release(run.id, "desk:1:0")
        return run

    def end(self, run: Run) -> None:
        """The run ends in the ledger, and nowhere else."""
        now = self.clock.now()
        self.saved(replace(run, phase=Phase.ENDED, ended_at=now, released_at=now))

    def orphans(self) -> set[int]:
        return {int(one.instance.id) for one in orphans(self.ledger, self.provider, self.clock.now())}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    machines = [Machine(id=number, storage_usd=6.0) for number in range(41000, 41004)]
    with VastEmulator(machines, clock=Clock(0), rate_limits=False) as vast:
        yield Desk(vast, tmp_path)


def relabel(desk: Desk) -> None:
    for instance in desk.vast.instances:
        instance.label = "my own words"


def strike(name: str, **details: float) -> Callable[[Desk], None]:
    return lambda desk: desk.vast.faults.add(name, **details) and None  # type: ignore[arg-type]


def nothing(_: Desk) -> None:
    pass


AFTER: dict[str, Callable[[Desk], None]] = {
    "nothing": nothing,
    "another label": relabel,
    "a list that is late": strike("hidden_row", seconds=60.0),
    "a list that stands still": strike("frozen_list", seconds=60.0),
    "an end that takes a while": strike("destroy_delayed", seconds=3.0),
    "a row that comes back": strike("row_reappears"),
}
"""What the market does once the run has ended in the ledger, and its machine has not."""


@pytest.mark.parametrize("name", AFTER)
def test_a_machine_that_was_left_is_told_ended_and_paid_for(desk: Desk, name: str) -> None:
    run = desk.rented()
    desk.vast.advance(100)
    desk.end(run)
    desk.vast.advance(100)
    AFTER[name](desk)

    assert desk.orphans() == {one.id for one in desk.vast.instances} == {int(run.instance_id or 0)}
    found = orphans(desk.ledger, desk.provider, desk.clock.now())
    gone = reap(found, desk.services)

    assert len(desk.vast.instances) == 0
    assert gone == [run.instance_id] or name == "a list that stands still"
    bill_usd = desk.vast.billing.total_usd()
    assert bill_usd <= cost_usd(desk.ledger.get(RUN_ID), desk.clock.now()) <= bill_usd * 1.05


@pytest.mark.parametrize("name", AFTER)
def test_its_bill_is_explained_once_it_is_settled_whatever_the_market_showed(desk: Desk, name: str) -> None:
    run = desk.rented()
    desk.vast.advance(3600)
    desk.end(run)
    desk.vast.advance(100)
    AFTER[name](desk)
    reap(orphans(desk.ledger, desk.provider, desk.clock.now()), desk.services)
    assert reconcile(desk).runs[0].reasons in ((DifferenceReason.ROUNDED,), (DifferenceReason.NOT_SETTLED,))
    desk.vast.advance(SETTLEMENT_S + 60)

    found = reconcile(desk)
    assert found.explained
    (one,) = found.runs
    assert one.bill.charged_usd == pytest.approx(desk.vast.billing.total_usd(), abs=2 * ROUNDED)
    assert one.bill.charged_usd > 0.3
    assert found.unclaimed == []

    assert settle(found.runs, desk.ledger, "desk:2:0", desk.clock.now()) == {RUN_ID}
    settled = desk.ledger.get(RUN_ID)
    assert settled.charged is not None
    assert (settled.charged.gpu_usd, settled.charged.storage_usd) == pytest.approx(
        [sum(meter.usd(kind) for meter in desk.vast.billing.meters.values()) for kind in ("gpu", "disk")],
        abs=4 * ROUNDED,
    )
    billed_usd = desk.vast.billing.total_usd()
    assert cost_usd(settled, desk.clock.now()) == pytest.approx(billed_usd, abs=2 * ROUNDED)


def test_a_machine_that_comes_back_after_its_bill_was_settled_is_counted_again(desk: Desk) -> None:
    desk.vast.faults.add("create_twice", seconds=2 * SETTLEMENT_S)
    run = desk.rented()
    desk.vast.advance(3600)
    desk.provider.destroy(run.instance_id or "")
    desk.end(run)
    desk.vast.advance(SETTLEMENT_S + 120)
    assert settle(reconcile(desk).runs, desk.ledger, "desk:2:0", desk.clock.now()) == {RUN_ID}
    desk.vast.advance(SETTLEMENT_S)

    assert reap(orphans(desk.ledger, desk.provider, desk.clock.now()), desk.services)
    assert desk.ledger.get(RUN_ID).charged is None
    assert cost_usd(desk.ledger.get(RUN_ID), desk.clock.now()) >= desk.vast.billing.total_usd()
    desk.vast.advance(SETTLEMENT_S + 120)
    assert settle(reconcile(desk).runs, desk.ledger, "desk:2:0", desk.clock.now()) == {RUN_ID}
    bill_usd = desk.vast.billing.total_usd()
    assert cost_usd(desk.ledger.get(RUN_ID), desk.clock.now()) == pytest.approx(bill_usd, abs=2 * ROUNDED)


def test_an_unknown_machine_is_reported_the_day_after_despite_an_earlier_charge(desk: Desk) -> None:
    desk.end(desk.rented())
    desk.vast.advance(DAY_S - desk.clock.now() % DAY_S)
    midnight = desk.clock.now()
    desk.provider.rent(order(desk.provider, label=f"vastrun-lost-heron-9999.{desk.ledger.id}"))
    desk.vast.advance(3600)
    desk.vast.advance(120)  # until that hour is settled
    second = replace(desk.ledger.get(RUN_ID), id="late-heron-3f1b", rented_at=midnight + 1800)
    desk.ledger.add(second)

    (stranger,) = reconcile(desk, since=midnight + 1800).unclaimed
    assert (stranger.kind, stranger.usd > 0) == (UnmatchedCharge.UNKNOWN_RUN, True)


def test_what_is_no_machine_is_named_and_is_no_fault(desk: Desk) -> None:
    desk.end(desk.rented())
    day = {"start": desk.clock.now() // DAY_S * DAY_S, "end": desk.clock.now() // DAY_S * DAY_S}
    desk.vast.billing.others.append({**day, "type": "volume", "source": "volume-12", "amount": 0.4})
    desk.vast.billing.others.append({**day, "type": "volume", "source": "volume-13", "amount": "much"})

    found = reconcile(desk)
    named = {one.label: (one.kind, one.usd) for one in found.unclaimed}
    assert named == {
        "volume-12": (UnmatchedCharge.OTHER_KIND, 0.4),
        "volume-13": (UnmatchedCharge.OTHER_KIND, 0.0),
    }
    assert found.explained
    assert "other charges: $0.400 not for a machine, and not of a run (volume-12, volume-13)" in " ".join(
        reconciliation_text(found).split()
    )


def reconcile(desk: Desk, since: float = 0.0) -> Reconciliation:
    return reconciliation(desk.ledger, lambda _: desk.provider, desk.clock.now(), since)


def test_a_machine_that_was_made_when_its_run_had_ended_is_told_ended_and_paid_for(desk: Desk) -> None:
    desk.vast.faults.add("create_twice", seconds=150.0)
    run = desk.rented()
    desk.vast.advance(100)
    desk.provider.destroy(run.instance_id or "")
    desk.end(run)
    assert desk.orphans() == set()
    desk.vast.advance(100)

    (second,) = desk.vast.instances
    assert desk.orphans() == {second.id}
    assert reap(orphans(desk.ledger, desk.provider, desk.clock.now()), desk.services) == [str(second.id)]

    assert [one.instance_id for one in desk.ledger.get(RUN_ID).rentals] == [str(second.id)]
    bill_usd = desk.vast.billing.total_usd()
    assert bill_usd <= cost_usd(desk.ledger.get(RUN_ID), desk.clock.now()) <= bill_usd * 1.05


def test_a_machine_that_cannot_be_destroyed_now_is_named_and_ends_no_reap(desk: Desk) -> None:
    desk.end(desk.rented())
    desk.vast.faults.add("bad_gateway", endpoint="destroy", times=99)
    warnings: list[str] = []
    found = orphans(desk.ledger, desk.provider, desk.clock.now())
    assert reap(found, desk.services, warn=warnings.append) == []
    assert [text.partition(":")[0] for text in warnings] == [one.instance.id for one in found]


def test_a_row_that_cannot_be_read_hides_no_orphan_whose_id_is_known(desk: Desk) -> None:
    run = desk.rented()
    desk.end(run)
    desk.vast.faults.add("null_row", times=9)
    assert desk.orphans() == {int(run.instance_id or "")}


def test_a_row_that_cannot_be_read_is_never_nothing(desk: Desk) -> None:
    desk.end(desk.rented())
    desk.vast.advance(700)  # its run ended too long ago for a question by id
    desk.vast.faults.add("null_row", times=9)
    with pytest.raises(IncompleteListError):
        desk.orphans()


def test_the_machine_of_an_open_run_is_no_orphan_whatever_its_label(desk: Desk) -> None:
    desk.rented()
    assert desk.orphans() == set()
    relabel(desk)
    assert desk.orphans() == set()
