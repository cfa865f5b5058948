"""Fleet of a batch: places points, holds machines and releases them.

A machine is a run of the batch without a point, whose job is to hold it (docs/batch.md). It is driven in a
thread of its own, as the runs on its slots are. Its reservation is part of the batch's budget; theirs is 0.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

from vastrun.launcher.batch import placement
from vastrun.launcher.batch.fleet_plan import Market
from vastrun.launcher.batch.machines import BatchMachine, BatchMachines
from vastrun.launcher.batch.schedule import BatchQueue, PointState
from vastrun.launcher.batch.shared import BatchServices
from vastrun.launcher.commands.attempts import AttemptPlacement, Attempts
from vastrun.launcher.config import read_job
from vastrun.launcher.core import NOTHING, Cause, Run, UserRequest
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.core.errors import BudgetError, HeldError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.core.phases import BEFORE_TRAINING, Phase
from vastrun.launcher.decisions.history import blames_host
from vastrun.launcher.pool.held_machines import slot_offer

_RETRY_INTERVAL_S = 60.0
"""Seconds before a market without a machine to hold is searched again."""
_MAX_FAILURES = 3
"""Maximum consecutive machines that never accepted a run; after that each point has its own."""
_MAX_CHECKED_POINTS = 20
"""Number of waiting points checked against an idle machine: most points of a batch are alike."""


class Fleet:
    """The machines of one drive of one batch."""

    def __init__(self, batch: Batch, services: BatchServices, attempts: Callable[[], Attempts]) -> None:
        self._batch, self._services, self._attempts = batch, services, attempts
        self._machines = BatchMachines(
            services.ledger, batch.name, services.now, lambda: self._batch.spec.reuse == "auto"
        )
        self._market = Market(
            lambda name: self._attempts().services_for(name, NOTHING).provider, services.ledger, services.now
        )
        self._threads: list[Future[Run]] = []
        self._placing = threading.RLock()
        """A run's thread places its next attempt while the batch's places a point."""
        self._no_offer_at = -math.inf
        self._failures = 0
        self.error: VastrunError | None = None
        """Error that prevents holding: a full disk, a rejected key."""

    @property
    def is_open(self) -> bool:
        """Return whether a machine is driven here."""
        return bool(self._threads)

    @property
    def is_driven(self) -> bool:
        """Return whether the thread of a machine still runs."""
        return not all(thread.done() for thread in self._threads)

    @property
    def size(self) -> int:
        """Return the number of machines driven here."""
        return len(self._threads)

    def resume(self) -> None:
        """Take up the machines that a launcher before left."""
        machines = self._machines.look()
        if machines:
            self._machines.count_uses()
        for machine in machines:
            self._drive(machine.run)

    def place_points(
        self, batch: Batch, waiting: BatchQueue, count: int, measured_s: Sequence[float]
    ) -> Iterator[tuple[PointState, AttemptPlacement]]:
        """Say of the first `count` points that wait where each is to be begun. Some wait for a machine.

        `measured_s`: how long points of this batch took. Raises BudgetError as the ledger does, and what the
        row of a machine that is to be held cannot be written with.
        """
        self._batch = batch
        jobs = [(state, read_job(state.point.spec_json)) for state in waiting.queue[: max(0, count)]]
        if not self.is_open and not (self._may_hold and jobs):
            yield from ((state, self._on_new_machine(job)) for state, job in jobs)
            return
        machines = self._machines.look()
        if any(one.run.cause is Cause.NO_OFFER for one in machines):
            self._no_offer_at = self._services.now()
        job_here = jobs[0][1] if jobs else None
        starting = sum(one.points_at_once(job_here) for one in machines if one.is_starting) if job_here else 0
        left = len(jobs)
        for state, job in jobs:
            with self._placing:
                placed = self._find_slot(machines, job, waiting, measured_s)
                if placed is None and starting > 0:
                    starting -= 1
                elif placed is None:
                    slots = self._hold(job, waiting, left, measured_s)
                    starting += max(0, slots - 1)
                    waits = bool(slots) or (self.is_open and self._has_no_offer)
                    placed = None if waits else self._on_new_machine(job)
            left -= 1
            if placed is not None:
                yield state, placed

    def place_retry(self, former: Run, spec: JobSpec) -> AttemptPlacement:
        """Say where another attempt goes: to a slot that is free, on another machine if that one failed."""
        spec = replace(spec, slot_on=None)
        if spec.hold is not None or self._batch.provider == POOL:
            return AttemptPlacement(provider=former.provider, spec=spec)
        with self._placing:
            for machine in self._machines.look():
                is_same = blames_host(former) and machine.run.host == former.host
                if not is_same and machine.has_room(spec, self._services.now()):
                    return self._claim_slot(machine, spec)
        return self._on_new_machine(spec)

    def note_refusal(self, run: Run) -> None:
        """Take in that a run found no slot on its machine."""
        if (machine := read_job(run.spec_json).slot_on) is not None:
            self._machines.note_refusal(machine)

    def release_idle(self, batch: Batch, waiting: BatchQueue) -> None:
        """Give back the machines that nothing waits for, or that cost more than they save."""
        self._batch = batch
        with self._placing:
            for machine in self._machines.look():
                if machine.idle_since is not None and not machine.is_ending:
                    self._end_idle(machine, waiting)

    def reap(self) -> None:
        """Take in the machines whose runs have ended, or were left."""
        for thread in [thread for thread in self._threads if thread.done()]:
            self._threads.remove(thread)
            try:
                self._note_end(thread.result())
            except HeldError as held:
                self._services.screen.note(str(held))
            except VastrunError as error:
                self.error = self.error or error

    def _end_idle(self, machine: BatchMachine, waiting: BatchQueue) -> None:
        now, run = self._services.now(), machine.run
        jobs = (read_job(state.point.spec_json) for state in waiting.queue[:_MAX_CHECKED_POINTS])
        is_needed = any(machine.is_starting or not machine.misfit(job, now) for job in jobs)
        if is_needed and machine.is_starting:  # how long it takes to boot says nothing of what it saves
            return
        idle_s, more = now - (machine.idle_since or now), waiting.may_grow and not machine.is_leaving
        if placement.should_give_back(
            idle_s, run.usd_per_hour, run.offer, is_needed=is_needed, more_may_come=more
        ):
            self._machines.dropped.add(run.id)
            self._services.ledger.ask(run.id, UserRequest.STOP)

    @property
    def _may_hold(self) -> bool:
        spec = self._batch.spec
        return spec.may_share_machines and self._batch.provider != POOL and self._failures < _MAX_FAILURES

    @property
    def _has_no_offer(self) -> bool:
        """Return whether the market had no machine to hold recently."""
        return self._services.now() - self._no_offer_at < _RETRY_INTERVAL_S

    def _on_new_machine(self, job: JobSpec) -> AttemptPlacement:
        return AttemptPlacement(provider=self._batch.provider, spec=job)

    def _find_slot(
        self, machines: Sequence[BatchMachine], job: JobSpec, waiting: BatchQueue, measured_s: Sequence[float]
    ) -> AttemptPlacement | None:
        """A slot that is free, where it costs no more than a new machine."""
        now = self._services.now()
        free = {one.run.id: one for one in machines if one.has_room(job, now)}
        if not free:
            return None
        offers = self._market.offers(self._batch.provider, job)
        first = next(iter(free.values())).run.offer
        seconds = 0.0 if first is None else placement.expected_s(job, first, measured_s)
        warm = [
            placement.WarmSlot(
                offer=slot_offer(job, one.held, hours=seconds / 3600),
                machine_usd_per_hour=one.run.usd_per_hour,
                busy_s=seconds if one.used_units else 0.0,
            )
            for one in free.values()
            if one.held is not None
        ]
        slot = placement.place_point(seconds, warm, offers, is_shared=len(waiting.queue) > 1)
        return None if slot is None else self._claim_slot(free[slot.offer.id], job)

    def _claim_slot(self, machine: BatchMachine, job: JobSpec) -> AttemptPlacement:
        self._machines.take(machine, job)
        return AttemptPlacement(provider=POOL, spec=replace(job, slot_on=machine.run.id))

    def _hold(self, job: JobSpec, waiting: BatchQueue, left: int, measured_s: Sequence[float]) -> int:
        """Begin to hold a machine; return how many such points it takes at once. 0: it would not pay."""
        if not self._may_hold or self._has_no_offer or job.nodes != 1:
            return 0
        batch, spec = self._batch, self._batch.spec
        cheapest_machines = self._market.cheapest_machines(
            batch.provider, job, left, measured_s, packs=spec.pack == "auto"
        )
        if cheapest_machines is None:
            return 0
        shape = cheapest_machines.machines[0]
        seconds = placement.expected_s(job, shape.offer, measured_s)
        rounds = waiting.rounds if spec.reuse == "auto" else 1
        if shape.slots == 1 and not placement.pays_off(shape.offer, rounds=rounds):
            return 0
        free_usd = math.inf
        if spec.limits.usd is not None:
            free_usd = spec.limits.usd - self._services.ledger.batches.held_usd(batch.name)
        choose = partial(placement.choose_hold, job, shape.offer, slots=shape.slots, seconds=seconds)
        share_usd = free_usd / math.ceil(left / shape.used)
        hold = choose(rounds=rounds, max_usd=share_usd) or choose(rounds=1, max_usd=free_usd)
        if hold is None:
            return 0
        run_id = self._services.new_id()
        folder = str(Path(batch.folder) / "machines" / run_id)
        try:
            run = self._attempts().start(
                hold, provider=batch.provider, run_id=run_id, out_dir=folder, batch=batch.name
            )
        except BudgetError:  # one of the user's other budgets
            return 0
        self._drive(run)
        return shape.slots

    def _drive(self, run: Run) -> None:
        attempts = self._attempts()
        self._threads.append(self._services.workers.submit(lambda: attempts.drive_to_end(run)))

    def _note_end(self, run: Run) -> None:
        """Take in how the run of a machine ended."""
        if run.phase is not Phase.ENDED or run.cause is Cause.STOPPED:
            return
        if run.cause is Cause.NO_OFFER:
            self._no_offer_at = self._services.now()
        elif run.failed_in not in BEFORE_TRAINING:
            self._failures = 0
            return
        else:
            self._failures += 1
            if self._failures == _MAX_FAILURES:
                self._services.screen.note(f"each point gets its own machine from now on: {run.detail}")
