"""Replacing: another machine for a node that left while the others train: its row, within the limits."""

from __future__ import annotations

from collections.abc import Callable

from launcher.config import dump_job, read_job
from launcher.core import Run, UserRequest
from launcher.core.errors import BudgetError, HeldError
from launcher.decisions.gang import is_replacement
from launcher.decisions.replacing import job_of_replacement
from launcher.flow.context import Services
from launcher.flow.drive import begin_replacement

_STAY = (UserRequest.NONE, UserRequest.DETACH_ONCE_TRAINING)
"""While the user asks for nothing else, machines are rented."""


def replacement_of(former: Run, services: Services, tell: Callable[[str], None]) -> Run | None:
    """Write down a machine in place of one that left, and that is gone; None, which is told: there is none.

    Raises StorageError.
    """
    ledger, now = services.ledger, services.clock.now()
    run, others = ledger.get(former.leader), ledger.runs(leader=former.leader)
    request = max(
        services.user_requests.current(), ledger.user_request(run.id), key=lambda request: request.strength
    )
    if request not in _STAY:
        return None
    spec = read_job(run.spec_json)
    job = job_of_replacement(spec, run, others, former, now, free=services.provider.free)
    if not isinstance(job, str) and not services.provider.abilities.replaces_nodes:
        job = f"{services.provider.name} gives a run all of its machines at once"
    if isinstance(job, str):
        if job:
            tell(f"no machine in place of node {former.node}: {job}")
        return None
    machines = sum(row.node == former.node for row in others)
    try:
        row = begin_replacement(job, dump_job(job), run, former, machines, services)
    except BudgetError as error:
        tell(f"no machine in place of node {former.node}: {error}")
        return None
    except HeldError:  # the run has just ended, or its own thread is about to find out who drives it now
        return None
    most = spec.train.diloco.replacements if spec.train is not None else 0
    count = 1 + sum(map(is_replacement, others))
    tell(f"node {former.node} left ({former.cause}); a machine is rented in its place ({count} of {most})")
    return row
