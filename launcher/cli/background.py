"""Background drivers for commands: hand a run over to one, and replace those that died."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vastrun.launcher.api.background import DriverFolder, find_open_target, is_driven
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.attempts import pushed_url
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import HeldError, VastrunError
from vastrun.launcher.decisions.policy import lease_ends_at, lease_of, within_deadline
from vastrun.launcher.ledger.presence import KilledLauncher, Presence
from vastrun.launcher.ui.render.background import DetachedWork, detached_text
from vastrun.launcher.wiring import Wiring

_SERVER_WAIT_S = 15.0
"""Longest wait for a server of the team: it polls every 5 s, and claims what it saw twice."""
_POLL_S = 0.5


def hand_over_run(wiring: Wiring, run: Run) -> str:
    """Start a background driver for a run; return a notice for its user, empty if it is driven already.

    Raises VastrunError if no driver could be started: then only the lease limits the run.
    """
    target = Target("run", run.id)
    ledger = wiring.ledger()
    if wiring.drivers is None or is_driven(ledger, target):
        return ""
    if find_open_target(ledger, target, wiring.now()) is None:
        return ""
    if wiring.computer() and wiring.provider(run.provider).shared and _is_served(wiring, target):
        driver = "vastrun serve --driver, on a computer of the team"
    else:
        driver = start_driver(wiring, wiring.drivers, target)
    return detached_text(_detached(wiring, run, driver))


def check_unused(wiring: Wiring, run: Run) -> None:
    """Raise HeldError if another launcher drives the run."""
    driver = wiring.ledger().driver(run.id)
    if driver is not None:
        raise HeldError(
            f"{run.id} is driven by another launcher: {driver.who}", hint=f"vastrun attach {run.id}"
        )


def hand_over_batch(wiring: Wiring, name: str) -> str:
    """Start a background driver for a batch; return as `hand_over_run`."""
    target = Target("batch", name)
    if wiring.drivers is None or is_driven(wiring.ledger(), target):
        return ""
    driver = start_driver(wiring, wiring.drivers, target)
    job = read_job(wiring.ledger().batches.points(name)[0].spec_json)
    shown = wiring.notifier(lambda _: None).shown_addresses(job)
    return detached_text(
        DetachedWork(name=name, driver=driver, is_batch=True, pushed_to=job.checkpoints.push, notifies=shown)
    )


def start_driver(wiring: Wiring, path: Path, target: Target) -> str:
    """Start a background driver; return its process and log as text. Raises VastrunError."""
    folder = DriverFolder(path)
    ledger = wiring.ledger()
    pid = folder.start(target, holds=lambda: is_driven(ledger, target), wait=wiring.clock().sleep)
    return f"process {pid}, log {folder.log(target)}"


def replace_dead_drivers(wiring: Wiring) -> None:
    """Replace each background driver that died before its work was done, with a message."""
    if wiring.drivers is None:
        return
    folder = DriverFolder(wiring.drivers)
    for record in folder.records():
        target = record.target
        if folder.is_alive(target):
            continue
        if find_open_target(wiring.ledger(), target, wiring.now()) is None:
            folder.remove(target)
        elif is_driven(wiring.ledger(), target):
            continue
        elif record.error:
            say(f"the background driver of {target.name} gave up: {record.error}", err=True)
            say(f"try:   {target.resume_command} -d", err=True)
        else:
            _replace(wiring, target, record.pid)


def continue_killed(wiring: Wiring, presence: Presence, killed: Sequence[KilledLauncher]) -> None:
    """Report launchers that were killed for lack of memory; continue their work with background drivers."""
    ledger = wiring.ledger()
    for launcher in killed:
        runs = [ledger.get(run_id) for run_id in ledger.held_by(launcher.who)]
        targets = {
            Target("batch", run.batch) if run.batch else Target("run", run.leader or run.id) for run in runs
        }
        targets |= {Target("batch", name) for name in ledger.batches.held_by(launcher.who)}
        for target in sorted(targets, key=lambda target: target.name):
            if find_open_target(ledger, target, wiring.now()) is None or is_driven(ledger, target):
                continue
            say(
                f"the launcher of {target.name} (process {launcher.pid}) was killed, most likely by the "
                "kernel: this computer ran out of memory",
                err=True,
            )
            _continue(wiring, target)
        presence.forget(launcher)


def _continue(wiring: Wiring, target: Target) -> None:
    if wiring.drivers is None:
        say(f"try:   {target.resume_command}", err=True)
        return
    try:
        say(f"a background driver continues it: {start_driver(wiring, wiring.drivers, target)}", err=True)
    except VastrunError as error:  # the user's own command must still run
        say(f"cannot start a background driver: {error}\ntry:   {target.resume_command}", err=True)


def _replace(wiring: Wiring, target: Target, pid: int) -> None:
    assert wiring.drivers is not None
    gone = f"the background driver of {target.name} (process {pid}) is gone"
    try:
        say(f"{gone}; another one replaces it: {start_driver(wiring, wiring.drivers, target)}", err=True)
    except VastrunError as error:  # the user's own command must still run
        say(f"{gone}, and cannot be replaced: {error}", err=True)


def _is_served(wiring: Wiring, target: Target) -> bool:
    """Return whether a server of the team claims the run within `_SERVER_WAIT_S`."""
    ledger, clock = wiring.ledger(), wiring.clock()
    until = clock.now() + _SERVER_WAIT_S
    while clock.now() < until:
        if is_driven(ledger, target):
            return True
        clock.sleep(_POLL_S)
    return False


def _detached(wiring: Wiring, run: Run, driver: str) -> DetachedWork:
    spec = within_deadline(read_job(run.spec_json), run.meter.began_at or run.rented_at or run.created_at)
    lease = None if run.offer is None else lease_of(spec, run.offer)
    return DetachedWork(
        name=run.id,
        driver=driver,
        collect_s=None if lease is None else lease.collect_s,
        lease_ends_at=None if lease is None else lease_ends_at(run, lease),
        now=wiring.now(),
        pushed_to=pushed_url(run),
        notifies=wiring.notifier(lambda _: None).shown_addresses(spec),
    )
