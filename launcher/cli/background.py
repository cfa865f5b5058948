"""Background drivers for commands: hand a run over to one, and replace those that died."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vastrun.launcher.api.drivers import DriverFolder, Target
from vastrun.launcher.api.runs import find_open_target, is_driven
from vastrun.launcher.app import App
from vastrun.launcher.cli.output import note
from vastrun.launcher.commands.chains import pushed_url
from vastrun.launcher.commands.queries import lease_end
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.decisions.policy import lease_of
from vastrun.launcher.ui.render.amounts import moment, rough

_SERVER_WAIT_S = 15.0
"""Longest wait for a server of the team: it polls every 5 s, and claims what it saw twice."""
NOTIFY_HINT = "export VASTRUN_NOTIFY_COMMAND='curl -s --data-binary @- https://ntfy.sh/TOPIC'"


def hand_over_run(app: App, run: Run) -> str:
    """Start a background driver for a run; return a notice for its user, empty if it is driven already.

    Raises VastrunError if no driver could be started: then only the lease limits the run.
    """
    target = Target("run", run.id)
    ledger = app.driver_ledger()
    is_open = find_open_target(ledger, target, app.now()) is not None
    if app.drivers is None or not is_open or is_driven(ledger, target):
        return ""
    if app.computer() and app.provider(run.provider).shared and _is_served(app, target):
        driver = "vastrun serve --driver, on a computer of the team"
    else:
        driver = start_driver(app, app.drivers, target)
    spec = read_job(run.spec_json)
    collect_s = None if run.offer is None else lease_of(spec, run.offer).collect_s
    return detached_text(
        run.id,
        driver,
        outputs=outputs_text(collect_s, lease_end(run)),
        pushed_to=pushed_url(run),
        notifies=app.notifier(lambda _: None).shown_addresses(spec),
    )


def hand_over_batch(app: App, name: str) -> str:
    """Start a background driver for a batch; return as `hand_over_run`."""
    target = Target("batch", name)
    if app.drivers is None or is_driven(app.ledger(), target):
        return ""
    driver = start_driver(app, app.drivers, target)
    job = read_job(app.ledger().batches.points(name)[0].spec_json)
    shown = app.notifier(lambda _: None).shown_addresses(job)
    outputs = outputs_text(None, None)
    return detached_text(
        name, driver, outputs=outputs, pushed_to=job.checkpoints.push, notifies=shown, is_batch=True
    )


def start_driver(app: App, path: Path, target: Target) -> str:
    """Start a background driver; return its process and log as text. Raises VastrunError."""
    folder = DriverFolder(path)
    ledger = app.ledger()
    pid = folder.start(
        target,
        holds=lambda: is_driven(ledger, target),
        wait=app.interrupts().sleep,
        secrets=app.commands().hand_over(),
    )
    return f"process {pid}, log {folder.log(target)}"


def replace_dead_drivers(app: App) -> None:
    """Replace each background driver that died before its work was done, with a message."""
    if app.drivers is None:
        return
    folder = DriverFolder(app.drivers)
    for record in folder.records():
        target = record.target
        if folder.is_alive(target):
            continue
        if find_open_target(app.driver_ledger(), target, app.now()) is None:
            folder.remove(target)
        elif is_driven(app.ledger(), target):
            continue
        elif record.error:
            note(f"the background driver of {target.name} gave up: {record.error}")
            note(f"try:   {target.resume_command} -d")
        else:
            gone = f"the background driver of {target.name} (process {record.pid}) is gone"
            _continue(app, target, f"{gone}; another one replaces it")


def continue_killed(app: App, killed: Sequence[str]) -> None:
    """Report launchers that were killed for lack of memory; continue their work with background drivers."""
    ledger = app.ledger()
    for who in killed:
        runs = [ledger.get(run_id) for run_id in ledger.held_by(who)]
        targets = {
            Target("batch", run.batch) if run.batch else Target("run", run.leader or run.id) for run in runs
        }
        targets |= {Target("batch", name) for name in ledger.batches.held_by(who)}
        for target in sorted(targets, key=lambda target: target.name):
            if find_open_target(app.driver_ledger(), target, app.now()) is None or is_driven(ledger, target):
                continue
            note(
                f"the launcher of {target.name} (process {who.split(':')[-2]}) was killed, most likely by "
                "the kernel: this computer ran out of memory"
            )
            _continue(app, target, "a background driver continues it")
        app.presence.forget(who)


def _continue(app: App, target: Target, what: str) -> None:
    """Start a background driver, and say `what` it does; the user's own command must run without one, too."""
    try:
        if app.drivers is not None:
            note(f"{what}: {start_driver(app, app.drivers, target)}")
            return
    except VastrunError as error:
        note(str(error))
    note(f"try:   {target.resume_command}")


def _is_served(app: App, target: Target) -> bool:
    """Return whether a server of the team claims the run within `_SERVER_WAIT_S`."""
    ledger, clock = app.ledger(), app.interrupts()
    until = clock.now() + _SERVER_WAIT_S
    while clock.now() < until:
        if is_driven(ledger, target):
            return True
        clock.sleep(0.5)
    return False


def detached_text(
    name: str,
    driver: str,
    *,
    outputs: str,
    pushed_to: str | None,
    notifies: Sequence[str],
    is_batch: bool = False,
) -> str:
    """Write a few lines about how a run or a batch continues without the command that detached from it.

    `driver`: `process 4242, log /…/run-calm-heron-3f1a.log`; `outputs`: what `outputs_text` returns;
    `pushed_to`: URL to which its checkpoints are pushed; `notifies`: addresses of notifications.
    """
    what = "It starts the remaining points, downloads" if is_batch else "It downloads"
    checkpoints = "Checkpoints are safe in any case only where the job pushes them: checkpoints: {push: URL}."
    if pushed_to is not None:
        checkpoints = f"Checkpoints are also pushed to {pushed_to}: they are safe in any case."
    notified = f"No notification is set up; before the next launch: {NOTIFY_HINT}"
    if notifies:
        notified = f"Notification when it ends: {', '.join(notifies)}"
    return "\n".join(
        [
            f"{name} continues in the background: {driver}",
            f"  {what} the outputs, destroys machines and starts retries. This terminal may be closed.",
            "  If this computer sleeps, rented machines continue; the driver continues when it wakes.",
            f"  {outputs}",
            f"  {checkpoints}",
            f"  {notified}",
        ]
    )


def outputs_text(collect_s: float | None, ends_at: float | None) -> str:
    """Say how long a machine keeps its outputs after its training.

    `collect_s`: None: unknown; `ends_at`: latest epoch seconds at which the machine destroys itself.
    """
    if collect_s is None:
        return "If it is off when a run ends, a rented machine keeps the outputs for limits.collect_s."
    head = "If it is off when training ends, a rented machine keeps the outputs"
    latest = "" if ends_at is None else f", until {moment(ends_at)} at the latest"
    return f"{head} for {rough(collect_s)} (limits.collect_s){latest}."
