"""Settling: runs that have ended cost what their provider charged, once their bill is whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from launcher.core import Cost, Driver, Run
from launcher.core.errors import HeldError
from launcher.decisions.policy import HOLD_S
from launcher.decisions.reconciling import ReconciledBill
from launcher.decisions.settling import settled
from launcher.ports import Ledger


def settle(bills: Iterable[ReconciledBill], ledger: Ledger, who: str, now: float) -> frozenset[str]:
    """Note in each run what was charged for it; return the ids of those that cost this from now on.

    One that a launcher has changed since its bill was read is left as it is. Raises StorageError.
    """
    known = [(one.bill.run, cost) for one in bills if (cost := settled(one)) is not None]
    driver = Driver(who=who, until=now + HOLD_S)
    return frozenset(run.id for run, cost in known if run.charged == cost or _note(run, cost, ledger, driver))


def _note(run: Run, cost: Cost, ledger: Ledger, driver: Driver) -> bool:
    try:
        ledger.hold(run.id, driver)
    except HeldError:
        return False
    try:
        if unchanged := ledger.get(run.id) == run:
            ledger.save(replace(run, charged=cost), who=driver.who)
        return unchanged
    finally:
        ledger.release(run.id, driver.who)
