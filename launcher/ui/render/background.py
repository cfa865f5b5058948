"""The notice after a detach: which process drives the run, and what happens if this computer is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.launcher.ui.render.amounts import moment, rough

NOTIFY_HINT = "export VASTRUN_NOTIFY=https://ntfy.sh/TOPIC"


@dataclass(frozen=True, kw_only=True)
class DetachedWork:
    """A run or a batch that continues without the command that detached from it."""

    name: str
    driver: str
    """`process 4242, log /…/run-calm-heron-3f1a.log`."""
    is_batch: bool = False
    collect_s: float | None = None
    """Seconds for which a machine keeps its outputs after its training; None: unknown."""
    lease_ends_at: float | None = None
    """Latest time at which the machine destroys itself, epoch seconds."""
    now: float = 0.0
    pushed_to: str | None = None
    """URL to which the machine pushes its checkpoints."""
    notifies: Sequence[str] = ()
    """Addresses of notifications."""


def detached_text(work: DetachedWork) -> str:
    """Write a few lines about how the run continues."""
    what = "It starts the remaining points, downloads" if work.is_batch else "It downloads"
    return "\n".join(
        [
            f"{work.name} continues in the background: {work.driver}",
            f"  {what} the outputs, destroys machines and starts retries. This terminal may be closed.",
            "  If this computer sleeps, training continues; the driver continues when it wakes.",
            f"  {_outputs(work)}",
            f"  {_checkpoints(work)}",
            f"  {_notified(work)}",
        ]
    )


def _outputs(work: DetachedWork) -> str:
    if work.collect_s is None:
        return "If it is off when a run ends, the machine keeps the outputs for limits.collect_s."
    head, ends_at = "If it is off when training ends, the machine keeps the outputs", work.lease_ends_at
    if ends_at is not None and ends_at - work.now <= work.collect_s:
        return f"{head} until {moment(ends_at)} (limits)."
    latest = "" if ends_at is None else f", until {moment(ends_at)} at the latest"
    return f"{head} for {rough(work.collect_s)} (limits.collect_s){latest}."


def _checkpoints(work: DetachedWork) -> str:
    if work.pushed_to is not None:
        return f"Checkpoints are also pushed to {work.pushed_to}: they are safe in any case."
    return "Checkpoints are safe in any case only where the job pushes them: checkpoints: {push: URL}."


def _notified(work: DetachedWork) -> str:
    if work.notifies:
        return f"Notification when it ends: {', '.join(work.notifies)}"
    return f"No notification is set up; before the next launch: {NOTIFY_HINT}"
