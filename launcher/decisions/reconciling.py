"""Reconciling: what a provider charged beside what the ledger counts, and what explains the difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from launcher.core import Charge, Run

NOBODY = ""
"""Instead of the id of a run: the charge is for no run that is known."""


def charges_by_run(runs: Iterable[Run], charges: Iterable[Charge]) -> Mapping[str, Sequence[Charge]]:
    """Return the charges by the id of their run, all of the same provider; those of no run under NOBODY.

    A machine is known by its id first: a user may have changed its label.
    """
    by_machine: dict[str, str] = {}
    by_label: dict[str, str] = {}
    for run in runs:
        by_label[run.label] = run.id
        machines = [run.instance_id, *(rental.instance_id for rental in run.rentals)]
        by_machine |= {machine: run.id for machine in machines if machine}
    found: dict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        run_id = by_machine.get(charge.instance_id) or by_label.get(charge.label, NOBODY)
        found[run_id].append(charge)
    return found
