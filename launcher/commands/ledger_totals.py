"""Totals of the ledger: open runs, machines, dollars per hour, budgets, ends by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from vastrun.launcher.commands.queries import rows_of
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.core.slots import POOL
from vastrun.launcher.decisions.nodes import current_machines
from vastrun.launcher.ports import Ledger


@dataclass(frozen=True, kw_only=True)
class LedgerTotals:
    """Totals of one ledger at one moment."""

    open_runs: Mapping[tuple[str, Phase], int]
    """Number of open runs by provider and phase; a run with several nodes counts once."""
    machines: Mapping[str, int]
    """Number of rented machines by provider; slots are none."""
    usd_per_hour: Mapping[str, float]
    """USD per hour of these machines by provider."""
    budgets: Sequence[BudgetUse]
    """The user's budgets, and those of batches with open runs."""
    ended_by_cause: Mapping[Cause | None, int]
    """Number of ended runs by cause; None: those that succeeded."""


def ledger_totals(ledger: Ledger, budgets: Sequence[Budget], now: float) -> LedgerTotals:
    """Read the totals. `budgets`: the user's own. Raises StorageError."""
    runs = ledger.runs(open_only=True)
    nodes = ledger.runs(leader=[run.id for run in runs]) if runs else ()
    rows = rows_of(ledger, [*runs, *nodes], now)
    open_runs: Counter[tuple[str, Phase]] = Counter()
    machines: dict[str, int] = defaultdict(int)
    usd_per_hour: dict[str, float] = defaultdict(float)
    for row in rows:
        provider = row.run.provider
        open_runs[provider, row.run.phase] += 1
        rented = [one for one in current_machines(row.machines) if _is_rented(one)]
        machines[provider] += len(rented)
        usd_per_hour[provider] += sum(one.usd_per_hour for one in rented)
    names = {run.batch for run in runs if run.batch}
    of_batches = [
        Budget(name=f"batch {batch.name}", usd=batch.spec.limits.usd, batch=batch.name)
        for batch in ledger.batches.all()
        if batch.name in names and batch.spec.limits.usd is not None
    ]
    return LedgerTotals(
        open_runs=open_runs,
        machines=machines,
        usd_per_hour=usd_per_hour,
        budgets=[ledger.use_of(budget) for budget in (*budgets, *of_batches) if isfinite(budget.usd)],
        ended_by_cause=ledger.ended_by_cause(),
    )


def _is_rented(machine: Run) -> bool:
    """Return whether a row has a machine now; a slot is a share of one that another row has."""
    return machine.provider != POOL and machine.rented_at is not None and machine.released_at is None
