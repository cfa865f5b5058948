"""Settlement: ended runs cost what their provider charged, once their bill is complete.

`cost reconcile` does it on request; commands that query the provider anyway do it at their end.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from vastrun.launcher.commands.cost import reconciled_bills
from vastrun.launcher.core import Cost, Driver, Run
from vastrun.launcher.core.errors import AuthError, HeldError, ProviderError, StorageError
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.decisions.reconciliation import ReconciledBill, is_due, settled_cost
from vastrun.launcher.ports import Ledger, Provider

_MAX_RUNS = 1000
"""Runs among which bills that are due are looked for."""


def settle(bills: Iterable[ReconciledBill], ledger: Ledger, who: str, now: float) -> frozenset[str]:
    """Note in each run what was charged for it; return the ids of those that cost this from now on.

    One that a launcher has changed since its bill was read is left as it is. Raises StorageError.
    """
    known = [(one.bill.run, cost) for one in bills if (cost := settled_cost(one)) is not None]
    driver = Driver(who=who, until=now + DRIVER_TIMEOUT_S)
    return frozenset(run.id for run, cost in known if run.charged == cost or _note(run, cost, ledger, driver))


def settle_due(ledger: Ledger, name: str, provider: Provider, who: str, now: float) -> None:
    """Settle the provider's runs of the last days whose bill is due.

    What cannot be asked or noted now is left to the next time.
    """
    if provider.abilities.bills is None:
        return
    with suppress(AuthError, ProviderError, StorageError):
        runs = [run for run in ledger.runs(members=True, newest=_MAX_RUNS) if run.provider == name]
        if due := [run for run in runs if is_due(run, now)]:
            bills, _ = reconciled_bills(ledger, provider, due, runs, now)
            settle(bills, ledger, who, now)


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
