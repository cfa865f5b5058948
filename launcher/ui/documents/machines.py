"""Documents of hosts, orphaned machines and data volumes."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.reap import Owner
from vastrun.launcher.commands.volumes import VolumeState
from vastrun.launcher.core import Instance, Volume
from vastrun.launcher.decisions.history import HostRecord
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.documents.runs import RunDocument


class Hosts(Document):
    """The hosts that were used."""

    hosts: Sequence[HostRecord]


class OrphanMachine(Document, Instance):
    """A machine that no open run claims."""

    run: str | None
    """Its run, when this ledger knows it."""
    owner: Owner
    ledger: str | None
    """The ledger that its label names."""
    is_ghost: bool
    """True if its destruction was confirmed and the provider lists it again; it is not charged again."""


class VolumeCost(Document, Volume):
    """A data volume and what it costs."""

    printed_properties = ("usd_per_month",)

    usd: float
    """Cost until now, or until it was deleted."""


class VolumeDocument(VolumeCost):
    """A data volume as its provider lists it."""

    in_use: bool
    """A machine has it, or had it until a moment ago."""
    unused: bool
    """No run has used it for 7 days."""

    @classmethod
    def listed(cls, state: VolumeState, now: float) -> VolumeDocument:
        """Make the document of a listed volume."""
        return cls.fill(state.volume, state, usd=state.volume.cost_usd(now), unused=state.is_unused(now))


class Orphans(Document):
    """Machines that no open run claims."""

    machines: Sequence[OrphanMachine] = ()
    destroyed: Sequence[str] = ()
    """Ids of destroyed machines, names of removed networks and volumes."""
    networks: Sequence[str] = ()
    """Networks of runs that have ended."""
    volumes: Sequence[VolumeDocument] = ()
    """Existing data volumes of this ledger; with --volume, the named ones."""
    left: Sequence[RunDocument] = ()
    """Open runs whose machines are left to their leases because the provider rejected the key."""
