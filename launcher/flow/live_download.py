"""Live download: fetches checkpoints and metrics in slices while the training runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vastrun.launcher.core import CheckpointCopy, UserRequest, errors
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.gate.caps import METRICS_SLICE_BYTES
from vastrun.launcher.ports import Remote

SLICE_S = 0.5
"""Target seconds for a slice: the log and the user's requests wait meanwhile."""
_MIN_BYTES = 1 << 16
_FIRST_BYTES = 1 << 18
_MAX_BYTES = 1 << 25
_MIN_REST_S = 5.0
"""Min. seconds between two looks for a newer checkpoint."""
METRICS_INTERVAL_S = 5.0
"""Seconds between two looks for new metrics: an early stop needs them, but not line by line."""
_FULL_SLICE_BYTES = METRICS_SLICE_BYTES // 2
"""A slice of more bytes was full: the next one follows at once."""
_REST_FACTOR = 9
"""Pause after a copy, as a multiple of its duration: traffic costs money too."""


@dataclass
class LiveDownloads:
    """State of the downloads between two slices."""

    limit: int = _FIRST_BYTES
    received_bytes: int = 0
    began_at: float | None = None
    """Time at which the running copy started."""
    resting_since: float = 0.0
    rest_s: float = 0.0
    has_failed: bool = False
    """True once the machine offered a checkpoint that cannot be downloaded."""
    disk_failed_at: float | None = None
    """Time at which this computer's disk last refused a slice; None: it never did."""
    got_slice: bool = False
    """True if the last look downloaded a slice: the next one comes sooner."""
    metrics_due_at: float = 0.0
    were_metrics_rejected: bool = False
    """True once the log said that this computer's disk does not take the metrics."""

    def is_due(self, now: float) -> bool:
        """Return whether a copy is under way, or it is time to look for a newer checkpoint."""
        resting = self.began_at is None and 0 <= now - self.resting_since < self.rest_s
        is_disk_full = self.disk_failed_at is not None and 0 <= now - self.disk_failed_at < policy.DISK_POLL_S
        return not (self.has_failed or resting or is_disk_full)

    def note(self, copy: CheckpointCopy | None, began: float, now: float) -> None:
        """Record the result of a slice and its duration."""
        self.got_slice = copy is not None
        if copy is None or copy.is_whole or copy.damaged:
            self.rest_s = max(_MIN_REST_S, _REST_FACTOR * (now - (self.began_at or began)))
            self.resting_since, self.began_at, self.received_bytes = now, None, 0
            return
        # The end of a checkpoint says little of the line: it is short, and the disk is waited for.
        self.limit = next_slice_bytes(self.limit, copy.held - self.received_bytes, now - began)
        self.began_at, self.received_bytes = self.began_at or began, copy.held


def download_checkpoint_slice(context: RunContext, downloads: LiveDownloads, remote: Remote) -> None:
    """Download the next slice of the newest checkpoint. A failure does not affect the run."""
    began = context.now()
    downloads.got_slice = False
    # Once a stop is asked for, checkpoints come with the collection: the stop must not wait for a slice.
    if not downloads.is_due(began) or context.user_request() is not UserRequest.NONE:
        return
    try:
        copy = context.services.output_store.download_checkpoint(context.run, remote, limit=downloads.limit)
    except errors.SliceOverError:
        downloads.got_slice, downloads.began_at = True, downloads.began_at or began
        return
    except (errors.UnreachableError, errors.GoneError):
        raise
    except errors.StorageError as error:
        # The space may be there again long before the machine is lost.
        if downloads.disk_failed_at is None:
            context.report(f"checkpoints stay on the machine until this computer's disk takes them: {error}")
        downloads.disk_failed_at = context.now()
        return
    except errors.ProviderError as error:
        downloads.has_failed = True
        context.report(f"checkpoints stay on the machine until the end: {error}")
        return
    now, began_at = context.now(), downloads.began_at or began
    downloads.note(copy, began, now)
    if copy is not None and copy.damaged:
        context.report(f"checkpoint {copy.name} is damaged on the machine; not downloaded")
    elif copy is not None and (copy.is_whole or copy.is_usable):
        # By the machine's clock, and at least as old as its download.
        age = "" if copy.taken_at is None else f", {max(now - copy.taken_at, now - began_at):.0f} s old"
        what, rest = ("downloaded", "") if copy.is_whole else ("usable", "; older checkpoints follow")
        context.report(f"checkpoint {copy.name} {what}, {copy.held / 1e6:.1f} MB{age}{rest}")


def download_metrics(context: RunContext, downloads: LiveDownloads, remote: Remote) -> None:
    """Download new lines of the metrics. A failure does not affect the run."""
    now = context.now()
    if now < downloads.metrics_due_at or context.user_request() is not UserRequest.NONE:
        return
    try:
        got_slice = context.services.output_store.download_metrics(context.run, remote)
    except errors.SliceOverError:
        got_slice = 0
    except (errors.UnreachableError, errors.GoneError):
        raise
    except errors.StorageError as error:
        # The log has reported that there is no room. It waits for it, too.
        if not downloads.were_metrics_rejected and not isinstance(error, errors.NoRoomError):
            downloads.were_metrics_rejected = True
            context.report(f"metrics stay on the machine until this computer's disk takes them: {error}")
        downloads.metrics_due_at = now + policy.DISK_POLL_S
        return
    except errors.ProviderError as error:
        downloads.metrics_due_at = math.inf
        context.report(f"metrics stay on the machine until the end: {error}")
        return
    downloads.metrics_due_at = now + (0.0 if got_slice > _FULL_SLICE_BYTES else METRICS_INTERVAL_S)


def next_slice_bytes(limit: int, moved: int, seconds: float) -> int:
    """Return the bytes to request next so that they take about SLICE_S, after `moved` bytes took
    `seconds`."""
    fitting = int(moved * SLICE_S / max(seconds, 1e-3))
    # At most four times as much at once: a single fast slice says little about the connection.
    return max(_MIN_BYTES, min(fitting, 4 * limit, _MAX_BYTES))
