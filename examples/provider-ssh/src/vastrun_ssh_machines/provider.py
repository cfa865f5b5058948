"""SshMachinesProvider: the verbs that vastrun asks for, over all workstations of the file."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from vastrun.launcher.core import LABEL_PREFIX, Instance, Offer, RentalOrder, Run
from vastrun.launcher.core.errors import (
    GoneError,
    IncompleteListError,
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.core.gpus import has_memory, is_same_name
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.ssh.connection import ConnectTimeouts
from vastrun_ssh_machines.answers import BOX_NAME, Box, MachineAnswer
from vastrun_ssh_machines.machines_file import Workstation, machines_path, read_machines
from vastrun_ssh_machines.workstation import WorkstationShell

_MAX_THREADS = 16
_T = TypeVar("_T")


class SshMachinesProvider:
    """Workstations by name. The id of an instance is `BOX@WORKSTATION`."""

    name = "ssh-machines"
    max_nodes = 1
    shared = True  # another computer with the same list sees the same boxes
    list_lag_s = 10.0
    """A box may be made after the line broke on which it was ordered."""

    def __init__(
        self, file: Path, state: Path, *, clock: Clock, timeouts: ConnectTimeouts | None = None
    ) -> None:
        """`file`: the list of workstations. `state`: the folder for host keys."""
        self._file, self._clock = file, clock
        self._shells = {
            machine.name: WorkstationShell(machine, state, timeouts) for machine in read_machines(file)
        }
        self.free = all(shell.machine.usd_per_hour == 0 for shell in self._shells.values())

    @classmethod
    def of(cls, context: ProviderContext) -> SshMachinesProvider:
        """Make it with the file that the environment names. Raises UsageError, ConfigFileError."""
        return cls(machines_path(context.environ), context.state / "ssh-machines", clock=context.clock)

    @property
    def abilities(self) -> Abilities:
        return Abilities(describe=self.describe, by_run=self, why_one_node="a run has one workstation")

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return an offer for each workstation with a free slot that fits, the cheapest first.

        Raises NoOfferError, which says what each one lacks.
        """
        lacking, offers = [], []
        for shell, answer in self._on_all(WorkstationShell.list):
            machine = shell.machine
            why = str(answer) if isinstance(answer, VastrunError) else _lack(spec, machine, answer)
            if isinstance(answer, MachineAnswer) and not why:
                offers.append(_offer(spec, machine, answer))
            else:
                lacking.append(why if why.startswith(machine.name) else f"{machine.name}: {why}")
        if not offers:
            raise NoOfferError(
                f"no workstation fits the job: {'; '.join(lacking)}", hint=f"{self._file} lists them"
            )
        return sorted(offers, key=lambda offer: offer.usd_per_hour)

    def rent(self, order: RentalOrder) -> Instance:
        """Make a box whose lease is armed. It carries its label, by its name, from the moment it exists."""
        shell = self._shells.get(order.offer.id)
        if shell is None:
            raise NoOfferError(f"{self._file} has no machine {order.offer.id!r}")
        name = f"{order.label.removeprefix(LABEL_PREFIX)}.{secrets.token_hex(4)}"
        if not BOX_NAME.fullmatch(name):
            raise NoOfferError(f"{order.label!r} is not a label of vastrun")
        env = {**order.env, "VASTRUN_PYTHON": shell.machine.python, "VASTRUN_KEEP_PYTHON": "1"}
        try:
            shell.list()
        except ProviderError as error:  # nothing was asked for yet
            raise NoOfferError(str(error)) from error
        try:
            answer = shell.rent(name, order.offer.gpus, order.onstart, env)
        except ProviderError as error:
            raise UncertainError(f"{shell.machine.name} was asked for a box: {error}") from error
        if answer.refused:
            raise NoOfferError(f"{shell.machine.name}: {answer.refused}")
        box = next((box for box in answer.boxes if box.name == name), None)
        if box is None:
            raise UncertainError(f"{shell.machine.name} was asked for a box, and does not list it")
        return self._instance(shell.machine, box)

    def instances(self) -> Sequence[Instance]:
        """List the boxes of every workstation.

        Raises IncompleteListError, with those that could be seen, while one of the workstations is silent.
        """
        found, silent = [], []
        for shell, answer in self._on_all(WorkstationShell.list):
            if isinstance(answer, MachineAnswer):
                found += [self._instance(shell.machine, box) for box in answer.boxes]
            else:
                silent.append(str(answer))
        if silent:
            raise IncompleteListError("; ".join(silent), found=found)
        return found

    def instances_for(self, run: Run) -> Sequence[Instance]:
        """List the boxes of the workstation that the run was offered: that others are silent says nothing."""
        if run.offer is None:
            return self.instances()
        shell = self._shell(run.offer.id)
        return [self._instance(shell.machine, box) for box in shell.list().boxes]

    def machine(self, instance_id: str) -> Instance | None:
        """Return the box with that id; only its own workstation is asked."""
        name, _, machine = instance_id.partition("@")
        if not BOX_NAME.fullmatch(name) or not machine:
            return None
        shell = self._shell(machine)
        return next(
            (self._instance(shell.machine, box) for box in shell.list().boxes if box.name == name), None
        )

    def connect(self, instance: Instance) -> Remote:
        """Return a shell in the box. A lease that ended with its computer is started again first."""
        name, _, machine = instance.id.partition("@")
        if not BOX_NAME.fullmatch(name):
            raise GoneError(f"there is no box {instance.id!r}")
        shell = self._shell(machine)
        answer = shell.arm(name)
        if answer.is_gone:
            raise GoneError(f"there is no box {instance.id}")
        env = {
            "VASTRUN_INSTANCE": name,
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, answer.gpus)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        return shell.remote(f"{shell.home()}/{name}", env, lambda: self.machine(instance.id) is None)

    def destroy(self, instance_id: str) -> None:
        """Kill all processes of the box, and remove its folder; safe to repeat."""
        name, _, machine = instance_id.partition("@")
        if BOX_NAME.fullmatch(name) and machine:
            self._shell(machine).destroy(name, (onstart_dir() / "lease.sh").read_text(encoding="utf-8"))

    def describe(self) -> str:
        """Say how each workstation stands. Raises UnreachableError when none of them answers."""
        said, reached = [], 0
        for shell, answer in self._on_all(WorkstationShell.list):
            machine = shell.machine
            if isinstance(answer, MachineAnswer):
                reached += 1
                said.append(f"{machine.name}: {len(answer.boxes)} of {machine.slots} slots taken")
            else:
                said.append(str(answer))
        if not reached:
            raise UnreachableError("; ".join(said), hint=f"{self._file} lists the workstations")
        return "; ".join(said)

    def _shell(self, machine: str) -> WorkstationShell:
        """One that is no longer listed is not gone: nobody can ask it."""
        if machine not in self._shells:
            raise ProviderError(
                f"{self._file} has no machine {machine[:40]!r}, so that its boxes cannot be seen",
                hint="list it again until its runs have ended; their leases end them in any case",
            )
        return self._shells[machine]

    def _on_all(
        self, verb: Callable[[WorkstationShell], _T]
    ) -> Sequence[tuple[WorkstationShell, _T | VastrunError]]:
        """The verb on every workstation at once: a silent one costs its time limit, and no more."""

        def attempt(shell: WorkstationShell) -> _T | VastrunError:
            try:
                return verb(shell)
            except VastrunError as error:
                return error

        shells = list(self._shells.values())
        with ThreadPoolExecutor(min(_MAX_THREADS, len(shells)), "ssh-machines") as threads:
            return list(zip(shells, threads.map(attempt, shells), strict=True))

    def _instance(self, machine: Workstation, box: Box) -> Instance:
        return Instance(
            id=f"{box.name}@{machine.name}",
            label=LABEL_PREFIX + box.name.rpartition(".")[0],
            state="running" if box.is_armed else "stopped",
            usd_per_hour=machine.usd_per_hour,
            rented_at=box.rented_at or self._clock.now(),
            host=machine.name,
        )


def _lack(spec: JobSpec, machine: Workstation, answer: MachineAnswer) -> str:
    """What the workstation lacks for the job now; empty: nothing."""
    wanted = spec.resources
    used = {index for box in answer.boxes for index in box.gpus}
    free_gpus = machine.gpus - len(used & set(range(machine.gpus)))
    memory_gb, cores = machine.memory_gb / machine.slots, machine.cores // machine.slots
    noun = "GPU" if wanted.gpus == 1 else "GPUs"
    checks = (
        (wanted.gpus > machine.gpus, f"{wanted.gpus} {noun} wanted, {machine.gpus} there"),
        (
            wanted.gpus > 0
            and bool(wanted.gpu_names)
            and not any(is_same_name(name, machine.gpu_name) for name in wanted.gpu_names),
            f"{' or '.join(wanted.gpu_names)} wanted, {machine.gpu_name or 'no name given'} there",
        ),
        (
            wanted.gpus > 0 and not has_memory(machine.gpu_memory_gb, wanted.min_gpu_gb),
            f"{wanted.min_gpu_gb:g} GB of GPU memory wanted, {machine.gpu_memory_gb:g} there",
        ),
        (wanted.memory_gb > memory_gb, f"{wanted.memory_gb:g} GB of memory wanted, {memory_gb:g} in a slot"),
        (wanted.cpu_cores > cores, f"{wanted.cpu_cores} CPU cores wanted, {cores} in a slot"),
        (wanted.disk_gb > answer.free_gb, f"{wanted.disk_gb:g} GB of disk wanted, {answer.free_gb:.0f} free"),
        (len(answer.boxes) >= machine.slots, f"all {machine.slots} slots are taken"),
        (wanted.gpus > free_gpus, f"{wanted.gpus} {noun} wanted, {free_gpus} of {machine.gpus} free"),
    )
    return next((text for lacks, text in checks if lacks), "")


def _offer(spec: JobSpec, machine: Workstation, answer: MachineAnswer) -> Offer:
    gpus = spec.resources.gpus
    devices = f"{gpus} x {machine.gpu_name or 'GPU'}, " if gpus else ""
    free = machine.slots - len(answer.boxes)
    return Offer(
        id=machine.name,
        host=machine.name,
        gpu_name=(machine.gpu_name or None) if gpus else None,
        gpus=gpus,
        gpu_memory_gb=machine.gpu_memory_gb if gpus else 0.0,
        disk_gb=answer.free_gb,
        usd_per_hour=machine.usd_per_hour,
        description=f"{machine.name}: {devices}{machine.cores} cores; {free} of {machine.slots} slots free",
    )
