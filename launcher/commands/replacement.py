"""Replacing: another machine for a node that left while the others train: its row, within the limits."""

from __future__ import annotations

from collections.abc import Callable

from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.core.errors import BudgetError, HeldError
from vastrun.launcher.decisions.nodes import is_replacement
from vastrun.launcher.decisions.replacement import is_replacement_due, max_replacements, replacement_job
from vastrun.launcher.flow.drive import create_replacement
from vastrun.launcher.flow.services import Services

_RENTING_CONTINUES = (UserRequest.NONE, UserRequest.DETACH_ONCE_TRAINING)
"""While the user asks for nothing else, machines are rented."""


def replacement_of(former: Run, services: Services, report: Callable[[str], None]) -> Run | None:
    """Record a replacement for a machine that is gone; return None, with a report, when there is none.

    Raises StorageError.
    """
    ledger, now = services.ledger, services.clock.now()
    run, nodes = ledger.get(former.leader), ledger.runs(leader=former.leader)
    request = services.user_requests.current().or_stronger(ledger.user_request(run.id))
    spec = read_job(run.spec_json)
    if request not in _RENTING_CONTINUES or not is_replacement_due(spec, run, nodes, former):
        return None
    job = replacement_job(spec, run, nodes, former, now, free=services.provider.free)
    if not isinstance(job, str) and not services.provider.abilities.replaces_nodes:
        job = f"{services.provider.name} gives a run all of its machines at once"
    if isinstance(job, str):
        report(f"no machine in place of node {former.node}: {job}")
        return None
    machines = sum(row.node == former.node for row in nodes)
    try:
        row = create_replacement(job, dump_job(job), run, former, machines, services)
    except BudgetError as error:
        report(f"no machine in place of node {former.node}: {error}")
        return None
    except HeldError:  # the run has just ended, or its own thread is about to find out who drives it now
        return None
    of = f"{1 + sum(map(is_replacement, nodes))} of {max_replacements(spec)}"
    report(f"node {former.node} left ({former.cause}); a machine is rented in its place ({of})")
    return row
