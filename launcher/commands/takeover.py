"""Takeover: continue a run of another computer here, where its machine can be reached from here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.launcher.core import NOTHING, Driver, Origin, Phase, Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.labels import member_folder
from vastrun.launcher.core.slots import POOL
from vastrun.launcher.decisions.holders import holder_of
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Ledger

ServicesFor = Callable[[str, Origin], Services]
"""Services with the provider of that name, with which a run continues from there."""


def check_reachable(run: Run, services: Services, services_for: ServicesFor) -> None:
    """Raise UsageError when only another computer reaches the run's machine."""
    if run.computer == services.computer or services.provider.shared:
        return
    name = services.provider.name
    if name == POOL:
        holder = holder_of(run)
        if holder is None:
            return
        name = services.ledger.get(holder).provider
        if services_for(name, NOTHING).provider.shared:
            return
    raise UsageError(
        f"{run.id} began on {display_name(run.computer)}: its machine, on {name}, is reached only from there",
        hint=f"there: vastrun resume {run.id}",
    )


def move_nodes(run: Run, services: Services) -> None:
    """Take over the other nodes: their outputs are downloaded to the run's folder. Raises HeldError."""
    ledger = services.ledger
    for node in ledger.runs(leader=run.id):
        if node.phase is not Phase.ENDED:
            ledger.hold(node.id, Driver(who=services.who, until=services.clock.now() + DRIVER_TIMEOUT_S))
            folder = f"{run.out_dir}/{member_folder(run.id, node.id)}"
            ledger.save(replace(node, out_dir=folder, computer=run.computer), who=services.who)
            ledger.release(node.id, services.who)


def display_name(computer: str) -> str:
    """Return the name that a user knows the computer by."""
    return computer.partition("~")[0] or "another computer"


def folder_here(run: Run, ledger: Ledger) -> str:
    """Return where on this computer the outputs of a run that another one began come to: its batch's folder,
    or `runs/RUN`.
    """
    if run.batch:
        with suppress(UsageError):  # its user removed the batch
            return str(Path(ledger.batches.get(run.batch).folder) / Path(run.out_dir).name)
    return str((Path("runs") / run.id).resolve())
