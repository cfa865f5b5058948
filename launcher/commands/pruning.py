"""Pruning: asks for the early end of a run that its batch gives up."""

from __future__ import annotations

from launcher.core import Run, UserRequest
from launcher.core.early_stop import Pruning
from launcher.decisions.early_stop import memo_of
from launcher.ports import Ledger


def prune(ledger: Ledger, run: Run, pruning: Pruning, now: float) -> None:
    """Ask whoever drives the run to prune it. Safe to repeat. Raises StorageError.

    The reason is noted first: a launcher that is killed in between leaves a run that goes on, and is judged
    again; the other way round it would leave one that was pruned for no reason.
    """
    if ledger.user_request(run.id).cause is None:
        ledger.tell(memo_of(pruning, run, now))
        ledger.ask(run.id, UserRequest.PRUNE)
