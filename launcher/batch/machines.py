"""The machines that a batch holds, as the ledger has them: what is free, and which are leaving."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from vastrun.launcher.batch.placement import needed_s
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import POOL, TAKES_SLOTS
from vastrun.launcher.decisions.history import HOST_CAUSES, avoided
from vastrun.launcher.pool.held_machines import HeldMachineRow, held_machines, unfit_reason, units_of
from vastrun.launcher.ports import Ledger

_MAX_REFUSALS = 2
_REFUSAL_PAUSE_S = 15.0
"""After a run found no slot: a line that was cut is often back by then."""


@dataclass
class BatchMachine:
    """A machine of a run that holds it for the batch."""

    run: Run
    spec: JobSpec
    held: HeldMachineRow | None
    """Row of the held machine; None while it accepts no slots."""
    is_ready: bool
    """Slots can be made there now."""
    is_ending: bool
    """True when it was asked to end, or is ending."""
    is_leaving: bool
    """It is to have no further runs."""
    used_units: int = 0
    """Number of parts that open runs use."""
    units_left: float = math.inf
    """Number of parts that may still be assigned to runs."""
    idle_since: float | None = None
    """Epoch seconds since which it is idle; None while an open run uses it."""

    @property
    def is_starting(self) -> bool:
        """Tell whether it will take slots once it is ready."""
        return not self.is_leaving and not (self.held is not None and self.is_ready)

    def points_at_once(self, job: JobSpec) -> int:
        """Return how many such jobs it takes at once when it is empty."""
        hold = self.spec.hold
        return 0 if hold is None else hold.slots // max(1, job.resources.gpus)

    def misfit(self, job: JobSpec, now: float) -> str:
        """Return the reason why the machine takes no run of the job now; empty: it does."""
        if self.held is None or self.is_leaving or not self.is_ready:
            return "it takes no runs now"
        units = units_of(job.resources, self.held)
        if self.units_left < units:
            return "each of its slots was used once"
        share = self.held.share_usd_per_hour(units)
        if self.held.left_s(now) < needed_s(job, share):
            return "its lease ends before the job's limits"
        return unfit_reason(job, self.held, now)

    def has_room(self, job: JobSpec, now: float) -> bool:
        """Tell whether a run of the job may start on it now."""
        if self.misfit(job, now) or self.held is None:
            return False
        return self.used_units + units_of(job.resources, self.held) <= self.held.hold.slots


@dataclass
class BatchMachines:
    """Machines of one batch. `look` reads the ledger; what no row has is remembered here."""

    ledger: Ledger
    batch: str
    now: Callable[[], float]
    reuses: Callable[[], bool]
    """A slot is used more than once."""
    dropped: set[str] = field(default_factory=set)
    """Machines that are to end: they get no further runs."""
    _refusals: dict[str, list[float]] = field(default_factory=dict)
    """Epoch seconds at which runs found no slot, by machine."""
    _ready: set[str] = field(default_factory=set)
    _specs: dict[str, JobSpec] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _busy_at: dict[str, float] = field(default_factory=dict)

    def look(self) -> list[BatchMachine]:
        """Return the machines of open runs, the oldest first."""
        runs = self.ledger.runs(open_only=True, batch=self.batch)
        self._specs = {run.id: self._specs.get(run.id) or read_job(run.spec_json) for run in runs}
        holders = sorted((run for run in runs if not run.point), key=lambda run: run.created_at)
        if not holders:
            return []
        avoid = avoided(self.ledger.runs(causes=HOST_CAUSES, members=True), POOL, self.now()).machines
        machines = {run.id: self._machine(run, avoid) for run in holders}
        for run in runs:
            spec = self._specs[run.id]
            machine = machines.get(spec.slot_on or "") if run.provider == POOL else None
            if machine is not None and machine.held is not None:
                machine.used_units += units_of(spec.resources, machine.held)
        for machine in machines.values():
            run_id = machine.run.id
            if machine.used_units:
                self._busy_at[run_id] = self.now()
            else:
                machine.idle_since = self._busy_at.get(run_id, machine.run.phase_at)
        return list(machines.values())

    def count_uses(self) -> None:
        """Count the parts that runs had of each machine, by the ledger: another launcher began them."""
        for run in self.ledger.runs(batch=self.batch):
            spec = read_job(run.spec_json)
            if run.provider == POOL and spec.slot_on is not None:
                self._used[spec.slot_on] += max(1, spec.resources.gpus)

    def note_refusal(self, run_id: str) -> None:
        """Note that a run found no slot there: it rests for a while, and ends after the second time."""
        moments = self._refusals.setdefault(run_id, [])
        moments.append(self.now())
        if len(moments) >= _MAX_REFUSALS:
            self.dropped.add(run_id)

    def take(self, machine: BatchMachine, job: JobSpec) -> None:
        """Note that a run of the job is begun on the machine."""
        assert machine.held is not None
        units = units_of(job.resources, machine.held)
        machine.used_units += units
        machine.units_left -= units
        machine.idle_since = None
        self._used[machine.run.id] += max(1, job.resources.gpus)

    def _machine(self, run: Run, avoid: frozenset[str]) -> BatchMachine:
        spec = self._specs[run.id]
        held = next(iter(held_machines([run])), None)
        takes = held is not None and held.takes_slots
        asked = self.ledger.user_request(run.id).cause is not None
        is_over = run.cause is not None or (held is not None and not takes)
        slots = 0 if spec.hold is None else spec.hold.slots
        moments = self._refusals.get(run.id, ())
        return BatchMachine(
            run=run,
            spec=spec,
            held=held if takes else None,
            is_ready=takes
            and self._is_ready(run.id)
            and not any(self.now() - moment < _REFUSAL_PAUSE_S for moment in moments),
            is_ending=asked or is_over,
            is_leaving=asked or is_over or run.id in self.dropped or (takes and run.host in avoid),
            units_left=math.inf if self.reuses() else slots - self._used[run.id],
        )

    def _is_ready(self, run_id: str) -> bool:
        """Return whether the machine accepts slots, which takes a moment after its run starts to hold."""
        if run_id not in self._ready:
            if not any(event.text.startswith(TAKES_SLOTS) for event in self.ledger.events(run_id)):
                return False
            self._ready.add(run_id)
        return True
