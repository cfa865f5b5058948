"""Pulling: the outputs of a run, fetched from its living box again."""

from __future__ import annotations

from dataclasses import replace

from launcher.core import Collected, Driver, Run
from launcher.core.errors import UsageError
from launcher.decisions.policy import HOLD_S
from launcher.flow.context import Tools
from launcher.flow.machines import machines_of


def pull(run: Run, tools: Tools, *, folder: str) -> Collected:
    """What could be fetched into `folder` now. Raises HeldError when another launcher fills that folder."""
    machines = machines_of(run, tools.provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine; its downloaded outputs are in {run.out_dir}")
    if folder == run.out_dir:
        tools.ledger.hold(run.id, Driver(who=tools.who, until=tools.clock.now() + HOLD_S))
    try:
        target = replace(run, out_dir=folder)
        if folder != run.out_dir:
            tools.shelf.check(target)
        remote = tools.provider.connect(machines[0])
        try:
            collected = tools.shelf.collect(target, remote)
            tools.shelf.describe(target, tools.clock.now())
            return collected
        finally:
            remote.close()
    finally:
        tools.ledger.release(run.id, tools.who)
