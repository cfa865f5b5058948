"""MachineList: the machines in one answer of Vast's list of instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from vastrun.launcher.core import Instance
from vastrun.launcher.providers.vast import rental
from vastrun.launcher.providers.vast.instance_row import InstanceRow, has_own_label, id_of


@dataclass(frozen=True, kw_only=True)
class MachineList:
    """The machines with vastrun's label, parsed once for all runs that look for theirs."""

    rows: list[Any]
    """The answer."""
    machines: Sequence[Instance]
    unreadable: int
    """Number of rows without an id."""

    @classmethod
    def parse(cls, rows: list[Any], asked_at: float) -> Self:
        """Parse the rows. `asked_at`: epoch seconds of the query."""
        candidates = [row for row in rows if has_own_label(row)]
        readable = [row for row in candidates if id_of(row) is not None]
        # A row without an id cannot be destroyed, but may be rented: it is counted, never dropped in silence.
        machines = [rental.instance_of(InstanceRow.of(row), asked_at) for row in readable]
        return cls(rows=rows, machines=machines, unreadable=len(candidates) - len(readable))
