"""Provider `pool`: an instance is a slot, a share of a machine that another run holds."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Sequence

from vastrun.contract.texts import how_many
from vastrun.launcher.core import LABEL_PREFIX, Instance, Offer, RentalOrder, Run, errors
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.labels import Slot, SlotId, SlotList, slot_id_of
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.decisions.holders import holder_of
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.pool.held_machines import (
    POOL,
    HeldMachineRow,
    held_machines,
    is_for,
    slot_offer,
    unfit_reason,
    units_of,
)
from vastrun.launcher.pool.machine import HeldMachine
from vastrun.launcher.ports import Abilities, Clock, Provider, Remote
from vastrun.launcher.providers import ProviderContext

_HINT = "vastrun hold JOB.yaml -d holds one; --provider local, docker or vast rents one for this run alone"


class PoolProvider:
    """The Provider port for slots of all machines that this ledger's runs hold."""

    name = POOL
    max_nodes = 1
    shared = False
    list_lag_s = 0.0

    def __init__(
        self,
        runs: Callable[[], Sequence[Run]],
        provider: Callable[[str], Provider],
        speeds: Callable[[str, JobSpec], SpeedHistory],
        *,
        clock: Clock,
    ) -> None:
        """`runs`: returns the open runs. `provider`: returns the provider of a held machine by its name."""
        self._runs, self._provider, self._speeds, self._clock = runs, provider, speeds, clock
        self._machines: dict[str, HeldMachine] = {}
        self._read_at = -math.inf
        self._lock = threading.Lock()

    @classmethod
    def of(cls, context: ProviderContext) -> PoolProvider:
        """Build the provider with the machines in the launcher's ledger."""
        return cls(context.runs, context.provider, context.speeds, clock=context.clock)

    @property
    def free(self) -> bool:
        """True while all held machines are free of charge."""
        return all(machine.held.run.usd_per_hour == 0 for machine in self._cached() or self._refresh())

    @property
    def abilities(self) -> Abilities:
        return Abilities(by_run=self, why_one_node="a slot is a share of a single held machine")

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """List a slot on each machine with room for the job, cheapest first.

        A job that names a machine only gets a slot there. Raises NoOfferError with the reason of each
        machine.
        """
        offers, lacking = [], []
        named = None if spec.slot_on is None else self._machine(spec.slot_on)
        machines = [named] if named else [each for each in self._refresh() if is_for(spec, each.held)]
        for machine in machines:
            if why := self._unfit_reason(spec, machine):
                lacking.append(f"{machine.held.run.id}: {why}")
            else:
                offers.append(slot_offer(spec, machine.held, hours=self._hours(spec, machine.held)))
        if not offers:
            gpus = spec.resources.gpus
            description = how_many(gpus, "GPU") if gpus else "a job without GPUs"
            none = f"{spec.slot_on} no longer holds a machine" if spec.slot_on else "no machine is held"
            reasons = "; ".join(lacking) or none
            raise errors.NoOfferError(f"no slot for {description}: {reasons}", hint=_HINT)
        return sorted(offers, key=lambda offer: (offer.expected_usd, offer.usd_per_hour, offer.id))

    def rent(self, order: RentalOrder) -> Instance:
        """Create a slot with an armed lease on the offer's machine."""
        machine = self._machine(order.offer.id)
        if machine is None or not machine.held.takes_slots:
            raise errors.NoOfferError(f"{order.offer.id} no longer holds a machine")
        slot_id = SlotId(
            name=f"{order.label.removeprefix(LABEL_PREFIX)}.{secrets.token_hex(2)}",
            holder=machine.held.run.id,
        )
        answer = self._request_slot(machine, slot_id, order)
        if answer.refused:
            raise errors.NoOfferError(f"{machine.held.run.id}: {answer.refused}")
        slot = next((slot for slot in answer.slots if slot.name == slot_id.name), None)
        if slot is None:
            raise errors.UncertainError(
                f"{machine.held.run.id} accepted the order for a slot but does not list it"
            )
        return _instance(machine.held, slot)

    def instances(self) -> Sequence[Instance]:
        """List the slots of all held machines. Raises IncompleteListError when one does not respond."""
        found: list[Instance] = []
        silent = []
        for machine in self._refresh():
            try:
                found += _slots_of(machine)
            except errors.UnreachableError as error:
                silent.append(f"{machine.held.run.id}: {error}")
        if silent:
            raise errors.IncompleteListError("; ".join(silent), found=found)
        return found

    def instances_for(self, run: Run) -> Sequence[Instance]:
        """List the slots of the machine in the run's offer, the only one that can have a slot of it.

        Another machine that does not respond must not keep this run from its end.
        """
        holder = holder_of(run)
        machine = None if holder is None else self._machine(holder)
        return [] if machine is None else _slots_of(machine)

    def machine(self, instance_id: str) -> Instance | None:
        machine, _ = self._parse_slot(instance_id)
        if machine is None:
            return None
        return next((slot for slot in _slots_of(machine) if slot.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        machine, name = self._parse_slot(instance.id)
        if machine is None:
            raise errors.GoneError(f"there is no slot {instance.id}: no open run holds its machine")
        return machine.connect(name)

    def destroy(self, instance_id: str) -> None:
        """Kill the slot's processes, remove its folder, and have the machine check that it is clean.

        A machine that is not clean accepts no further slots and ends after its last one.
        """
        machine, name = self._parse_slot(instance_id)
        if machine is None:
            return
        try:
            machine.destroy(name)
        # The box of the machine is gone: the slot is gone only if the machine lists none.
        except errors.GoneError:
            if machine.slots().slots:
                raise

    def _request_slot(self, machine: HeldMachine, slot_id: SlotId, order: RentalOrder) -> SlotList:
        """Order the slot; return the machine's response.

        Raises NoOfferError when the order did not arrive, UncertainError when the slot may exist.
        """
        resources = Resources(gpus=order.offer.gpus, memory_gb=order.memory_gb)
        try:
            machine.put_order(slot_id, order, units_of(resources, machine.held))
        except (errors.UnreachableError, errors.GoneError) as error:
            raise errors.NoOfferError(f"{machine.held.run.id} cannot be reached: {error}") from error
        try:
            return machine.rent(slot_id.name)
        except errors.ProviderError as error:
            raise errors.UncertainError(f"order for a slot on {machine.held.run.id}: {error}") from error

    def _unfit_reason(self, spec: JobSpec, machine: HeldMachine) -> str:
        """Return why the machine has no room for the job now; empty when it has."""
        held = machine.held
        if why := unfit_reason(spec, held, self._clock.now()):
            return why
        try:
            answer = machine.slots()
        except errors.VastrunError as error:
            return str(error)
        if not answer.is_ready or answer.drained:
            return answer.drained or "it is not ready yet"
        free = held.hold.slots - answer.taken
        units = units_of(spec.resources, held)
        return "" if units <= free else f"{units} of {held.hold.slots} slots needed, {free} free"

    def _hours(self, spec: JobSpec, held: HeldMachineRow) -> float:
        """Return the job's hours by its earlier runs on this kind of machine; else the maximum."""
        max_hours = min(spec.limits.hours, held.left_s(self._clock.now()) / 3600)
        kind = (held.offer.gpu_name if spec.resources.gpus else None) or "", spec.resources.gpus
        for provider in (POOL, held.run.provider):
            speed = self._speeds(provider, spec).speeds.get(kind)
            if speed is not None and (steps := steps_of(spec)):
                return min(max_hours, steps / speed.steps_per_s / 3600)
        return max_hours

    def _refresh(self) -> list[HeldMachine]:
        """Return all machines that may have slots, by the ledger; reuse their connections."""
        asked_at = self._clock.now()
        held = {one.run.id: one for one in held_machines(self._runs())}
        with self._lock:
            self._read_at = asked_at
            gone = [self._machines.pop(run_id) for run_id in self._machines.keys() - held.keys()]
            for run_id, one in held.items():
                known = self._machines.get(run_id)
                if known is None:
                    self._machines[run_id] = HeldMachine(one, self._provider(one.run.provider))
                else:
                    known.held = one
            found = [self._machines[run_id] for run_id in held]
        for machine in gone:
            machine.close()
        return found

    def _machine(self, holder: str) -> HeldMachine | None:
        """Return the machine that this run holds; None when it holds none."""
        for machines in (self._cached, self._refresh):
            for machine in machines():
                if machine.held.run.id == holder:
                    return machine
        return None

    def _parse_slot(self, instance_id: str) -> tuple[HeldMachine | None, str]:
        """Return the machine of a slot's id, and the slot's name on it."""
        slot_id = slot_id_of(instance_id)
        return (None, "") if slot_id is None else (self._machine(slot_id.holder), slot_id.name)

    def _cached(self) -> list[HeldMachine]:
        """Return the machines of the last refresh while they are fresh: many runs ask at once."""
        with self._lock:
            is_fresh = 0 <= self._clock.now() - self._read_at < 1.0
            return list(self._machines.values()) if is_fresh else []


def _slots_of(machine: HeldMachine) -> list[Instance]:
    return [_instance(machine.held, slot) for slot in machine.slots().slots]


def _instance(held: HeldMachineRow, slot: Slot) -> Instance:
    return Instance(
        id=str(SlotId(name=slot.name, holder=held.run.id)),
        label=slot.label,
        state="running" if slot.is_armed else "stopped",
        usd_per_hour=held.share_usd_per_hour(slot.units),
        rented_at=slot.rented_at,
        host=held.run.host,
        image=held.run.image,
    )
