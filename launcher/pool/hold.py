"""Hold: start and release a run whose machine serves other runs. Used by the driver of a batch.

    start_hold(attempts, request, …)      a row of the ledger; `attempts.drive_to_end(run)` drives it
    release_machine(ledger, run_id)       its driver ends it; runs on its slots are asked to save before

Neither reaches the network: a machine itself is asked when a slot is searched for and rented. A run
takes a slot by the provider `pool`: `attempts.start(spec, provider="pool", …)`. Whoever reserves money
reserves it for the machine (`policy.worst_case_usd` of its run's job and offer), and nothing for the runs on
its slots: their shares are part of its bill (`cost/spending.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.ports import Ledger


@dataclass(frozen=True, kw_only=True)
class HoldRequest:
    """A machine to be held."""

    job: JobSpec
    """Job that a slot runs: each slot has all resources that it asks for."""
    provider: str
    slots: int
    """Number of concurrent jobs."""
    hours: float
    """Hours until the machine is released at the latest."""
    usd: float | None
    """The most that it may cost; None: what `hours` cost."""
    idle_s: float = 120.0
    """Seconds without a slot after which it ends automatically: its driver may be dead."""

    @property
    def spec(self) -> JobSpec:
        """The job of the run that holds it."""
        return hold_spec(self.job, slots=self.slots, hours=self.hours, usd=self.usd, idle_s=self.idle_s)


def start_hold(
    attempts: Attempts, request: HoldRequest, *, run_id: str, out_dir: str, batch: str = ""
) -> Run:
    """Write the row of a run that holds a machine, in phase `plan`; of a `batch`, for its runs alone.

    Raises UsageError; BudgetError when a budget has no room for what the machine may cost.
    """
    return attempts.start(
        request.spec, provider=request.provider, run_id=run_id, out_dir=out_dir, batch=batch
    )


def release_machine(ledger: Ledger, run_id: str) -> None:
    """Ask the driver of the run that holds a machine to end it. Safe to repeat."""
    ledger.ask(run_id, UserRequest.STOP)
