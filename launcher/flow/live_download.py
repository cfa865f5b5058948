"""Saving: checkpoints and metrics come home while the training goes on, a slice between two looks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vastrun.launcher.core import CheckpointCopy, UserRequest
from vastrun.launcher.core.errors import GoneError, NoRoomError, ProviderError, StorageError, UnreachableError
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.gate.caps import METRICS_SLICE_BYTES
from vastrun.launcher.ports import Remote

SLICE_S = 0.5
"""What a slice may take: the log and the user's requests wait meanwhile."""
_MIN_BYTES = 1 << 16
_FIRST_BYTES = 1 << 18
_MAX_BYTES = 1 << 25
_MIN_REST_S = 5.0
"""Least time between two looks for a newer checkpoint."""
METRICS_INTERVAL_S = 5.0
"""Between two looks for new metrics: an early stop judges by them, and nobody waits for one line."""
_FULL_SLICE_BYTES = METRICS_SLICE_BYTES // 2
"""As many say that more have not come yet."""
_REST_FACTOR = 9
"""So many times as long as a copy took, the line rests after it: traffic costs money too."""


@dataclass
class LiveDownloads:
    """What is remembered between two slices."""

    limit: int = _FIRST_BYTES
    received_bytes: int = 0
    saved_step: int = 0
    """The step of the newest checkpoint that is here."""
    began_at: float | None = None
    """When the copy that is under way began."""
    resting_since: float = 0.0
    rest_s: float = 0.0
    has_failed: bool = False
    got_slice: bool = False
    """The last look brought a slice: the next one comes sooner."""
    metrics_due_at: float = 0.0

    def is_due(self, now: float) -> bool:
        """Tell whether a copy is under way, or it is time to look for a newer checkpoint."""
        resting = self.began_at is None and 0 <= now - self.resting_since < self.rest_s
        return not (self.has_failed or resting)

    def note(self, copy: CheckpointCopy | None, began: float, now: float) -> None:
        """Note what a slice brought, and how long that took."""
        self.got_slice = copy is not None
        if copy is not None and copy.is_whole:
            self.saved_step = step_of_checkpoint(copy.name)
        if copy is None or copy.is_whole or copy.damaged:
            self.rest_s = max(_MIN_REST_S, _REST_FACTOR * (now - (self.began_at or began)))
            self.resting_since, self.began_at, self.received_bytes = now, None, 0
            return
        # The end of a checkpoint says little of the line: it is short, and the disk is waited for.
        self.limit = next_slice_bytes(self.limit, copy.held - self.received_bytes, now - began)
        self.began_at, self.received_bytes = self.began_at or began, copy.held


def download_checkpoint_slice(context: RunContext, downloads: LiveDownloads, remote: Remote) -> None:
    """Download a slice more of the newest checkpoint. Nothing that goes wrong with it hurts the run."""
    began = context.now()
    downloads.got_slice = False
    # Once a stop is asked for, checkpoints come with the collection: the stop must not wait for a slice.
    if not downloads.is_due(began) or context.user_request() is not UserRequest.NONE:
        return
    try:
        copy = context.services.output_store.download_checkpoint(context.run, remote, limit=downloads.limit)
    except (UnreachableError, GoneError):
        raise
    except (StorageError, ProviderError) as error:
        downloads.has_failed = True
        context.report(f"checkpoints stay on the machine until the end: {error}")
        return
    downloads.note(copy, began, context.now())
    if copy is not None and copy.damaged:
        context.report(f"checkpoint {copy.name} is damaged on the machine; not downloaded")
    elif copy is not None and copy.is_whole:
        context.report(f"checkpoint {copy.name} downloaded, {copy.size / 1e6:.1f} MB")


def download_metrics(context: RunContext, downloads: LiveDownloads, remote: Remote) -> None:
    """New lines of the metrics are here. Nothing that goes wrong with them hurts the run."""
    now = context.now()
    if now < downloads.metrics_due_at or context.user_request() is not UserRequest.NONE:
        return
    try:
        got_slice = context.services.output_store.download_metrics(context.run, remote)
    except (UnreachableError, GoneError):
        raise
    except NoRoomError:  # the log has told of it, and waits for room, too
        got_slice = 0
    except (StorageError, ProviderError) as error:
        downloads.metrics_due_at = math.inf
        context.report(f"metrics stay on the machine until the end: {error}")
        return
    downloads.metrics_due_at = now + (0.0 if got_slice > _FULL_SLICE_BYTES else METRICS_INTERVAL_S)


def step_of_checkpoint(name: str) -> int:
    """Return the step of a checkpoint, by its name; 0: it tells none."""
    digits = name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else 0


def next_slice_bytes(limit: int, moved: int, seconds: float) -> int:
    """Return how many bytes to ask for next, so that they take about SLICE_S, after so many took so long."""
    fitting = int(moved * SLICE_S / max(seconds, 1e-3))
    return max(_MIN_BYTES, min(fitting, 4 * limit, _MAX_BYTES))
