"""Volumes: data disks of a provider that outlive machines, as the ledger and the provider know them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_LABEL = re.compile(r"vastrun_([0-9a-f]{8})_([A-Za-z0-9_]{1,40})", re.ASCII)
MISSING_S = 600.0
"""Seconds for which lists must lack a volume before it counts as gone: a list may be late, and a second
volume would cost money."""
HOURS_A_MONTH = 720.0
"""Hours in a month of a provider's storage prices."""


def volume_label(ledger: str, name: str) -> str:
    """Return the provider's label of the volume of that name and ledger."""
    return f"vastrun_{ledger}_{name}"


def ledger_of_volume(label: str) -> str | None:
    """Return the id of the ledger that a volume's label names; None: the volume is not vastrun's."""
    found = _LABEL.fullmatch(label)
    return found[1] if found else None


@dataclass(frozen=True, kw_only=True)
class ListedVolume:
    """A volume as its provider lists it."""

    id: str
    label: str
    host: str
    """Machine with its disk; empty: unknown."""
    gb: float
    """Size in GB; 0: unknown."""
    in_use: bool
    """True if a machine uses it, or did until a moment ago."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume as the ledger has it, from the order that creates it until it is confirmed gone."""

    provider: str
    name: str
    """Name in the job file. At most one volume of that name exists at a time."""
    label: str
    """Name at the provider."""
    volume_id: str = ""
    """Id at the provider; empty: it was ordered and has not been listed yet."""
    host: str
    """Machine with its disk."""
    gb: float
    usd_per_hour: float
    """USD per hour until it is deleted, whether a machine uses it or not."""
    created_at: float
    used_at: float
    """Time at which a run last ordered a machine with it, in epoch seconds like all times here."""
    run_id: str
    """Id of that run."""
    missing_at: float | None = None
    """Time of the first list without it; None: the last list had it."""
    deleted_at: float | None = None
    """Time from which it is known to be gone; None: it exists."""

    @property
    def usd_per_month(self) -> float:
        """Return its price in 30 days."""
        return self.usd_per_hour * HOURS_A_MONTH

    def listed_as(self, listed: ListedVolume) -> Volume:
        """Return the volume with what the provider lists of it: it exists."""
        host, gb = listed.host or self.host, listed.gb or self.gb
        return replace(self, volume_id=listed.id, host=host, gb=gb, missing_at=None, deleted_at=None)

    def not_listed(self, now: float) -> Volume:
        """Return the volume after a list without it: gone once lists have lacked it for MISSING_S."""
        since = now if self.missing_at is None else self.missing_at
        return replace(self, missing_at=since, deleted_at=now if now - since >= MISSING_S else None)

    def cost_usd(self, now: float, since: float | None = None) -> float:
        """Return what it cost until now, or from `since` until now."""
        begin = self.created_at if since is None else max(self.created_at, since)
        end = now if self.deleted_at is None else self.deleted_at
        return max(0.0, end - begin) / 3600 * self.usd_per_hour


@dataclass(frozen=True, kw_only=True)
class VolumeOffer:
    """Room for a volume on a machine."""

    id: str
    host: str
    usd_per_gb_month: float


@dataclass(frozen=True, kw_only=True)
class VolumeOrder:
    """A volume to attach to a rented machine, or to create with it."""

    label: str
    gb: int
    volume_id: str = ""
    """The volume to attach; empty: one is created."""
    offer_id: str = ""
    """The volume offer to create it from; empty: one is attached."""
