"""Saving: checkpoints come home while the training goes on, a slice between two looks at the box."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.errors import GoneError, ProviderError, StorageError, UnreachableError
from launcher.flow.trip import Trip
from launcher.model import CheckpointCopy, Wish
from launcher.ports import Remote

SLICE_S = 0.5
"""What a slice may take: the log and the user's wishes wait meanwhile."""
_LEAST_BYTES = 1 << 16
_FIRST_BYTES = 1 << 18
_MOST_BYTES = 1 << 25
_NEW_ONE_S = 5.0
"""How often to look for a newer checkpoint."""


@dataclass
class Saving:
    """What is remembered between two slices."""

    limit: int = _FIRST_BYTES
    held: int = 0
    looked_at: float | None = None
    under_way: bool = False
    given_up: bool = False

    def is_due(self, now: float) -> bool:
        """A slice is under way, or it is time to look for a newer checkpoint."""
        if self.given_up:
            return False
        return self.under_way or self.looked_at is None or not 0 <= now - self.looked_at < _NEW_ONE_S


def save_some(trip: Trip, saving: Saving, remote: Remote) -> None:
    """A slice more of the newest checkpoint is here. Nothing that goes wrong with it hurts the run."""
    began = trip.now()
    if not saving.is_due(began) or trip.wish() is not Wish.NONE:
        return
    try:
        copy = trip.tools.shelf.save_checkpoint(trip.run, remote, limit=saving.limit)
    except (UnreachableError, GoneError):
        raise
    except (StorageError, ProviderError) as error:
        saving.given_up = True
        trip.tell(f"checkpoints stay on the box until the end: {error}")
        return
    _note(saving, copy, began, trip.now())
    if copy is not None and copy.damaged:
        trip.tell(f"checkpoint {copy.name} is damaged on the box, and stays there")
    elif copy is not None and copy.is_whole:
        trip.tell(f"checkpoint {copy.name} came home, {copy.size / 1e6:.1f} MB")


def next_limit(limit: int, moved: int, seconds: float) -> int:
    """How many bytes to ask for next, so that they take about SLICE_S, after so many took so long."""
    fitting = int(moved * SLICE_S / max(seconds, 1e-3))
    return max(_LEAST_BYTES, min(fitting, 4 * limit, _MOST_BYTES))


def _note(saving: Saving, copy: CheckpointCopy | None, began: float, now: float) -> None:
    saving.looked_at = now
    saving.under_way = copy is not None  # one that is whole may be followed by a newer one
    if copy is None or copy.is_whole or copy.damaged:
        saving.held = 0
        return
    # The end of a checkpoint says little of the line: it is short, and the disk is waited for.
    saving.limit = next_limit(saving.limit, copy.held - saving.held, now - began)
    saving.held = copy.held
