"""Pulling: the outputs of a run, or one file or folder of its program, downloaded from its machine."""

from __future__ import annotations

from dataclasses import replace

from vastrun.launcher.core import CollectResult, Driver, Instance, PullResult, Run
from vastrun.launcher.core.errors import HeldError, UsageError
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.flow.services import Services


def pull_path(run: Run, services: Services, path: str, *, folder: str) -> PullResult:
    """Download one file or folder that the program wrote, also while another launcher drives the run.

    Of several nodes each may have it; those of the further ones come to folders of their own.
    """
    got: list[PullResult] = []
    for node in (run, *services.ledger.runs(leader=run.id)):
        for machine in find_machines(node, services.provider)[:1]:
            target = replace(node, out_dir=folder + node.out_dir.removeprefix(run.out_dir))
            got.append(_fetch(target, machine, services, path))
    if not got:
        raise UsageError(f"{run.id} no longer has a machine; its downloaded outputs are in {run.out_dir}")
    fetched = next((one for one in got if one.files or one.damaged), got[0])
    if not (fetched.files or fetched.damaged):
        why = fetched.left_out.files[0].why if fetched.left_out.files else "there is no file"
        raise UsageError(f"{path}: {why}", hint=f"vastrun why {run.id}")
    if len(got) == 1:
        return fetched
    return PullResult(
        files=sum(one.files for one in got),
        bytes=sum(one.bytes for one in got),
        damaged=tuple(name for one in got for name in one.damaged),
        left_out=fetched.left_out,
        renamed={name: place for one in got for name, place in one.renamed.items()},
    )


def _fetch(target: Run, machine: Instance, services: Services, path: str) -> PullResult:
    services.output_store.check(target)
    remote = services.provider.connect(machine)
    try:
        return services.output_store.fetch(target, remote, path)
    finally:
        remote.close()


def pull(run: Run, services: Services, *, folder: str) -> CollectResult:
    """Fetch into `folder` what there is now. Raises HeldError when another launcher fills that folder."""
    machines = find_machines(run, services.provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine; its downloaded outputs are in {run.out_dir}")
    if folder == run.out_dir:
        try:
            services.ledger.hold(
                run.id, Driver(who=services.who, until=services.clock.now() + DRIVER_TIMEOUT_S)
            )
        except HeldError as error:
            error.hint = f"vastrun pull {run.id} --out DIR"
            raise
    try:
        target = replace(run, out_dir=folder)
        if folder != run.out_dir:
            services.output_store.check(target)
        remote = services.provider.connect(machines[0])
        try:
            collected = services.output_store.collect(target, remote)
            services.output_store.describe(target, services.clock.now())
            return collected
        finally:
            remote.close()
    finally:
        services.ledger.release(run.id, services.who)
