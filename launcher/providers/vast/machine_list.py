"""Machine list: the machines with vastrun's label, and the row of each, queried no more often than needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import IncompleteListError, ProviderError
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast.account import CachedQuery
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.instance_row import InstanceRow, has_own_label, id_of, is_destroyed


class MachineRows:
    """The rows of the account's machines."""

    def __init__(self, api: VastApi, clock: Clock, *, many_runs: bool) -> None:
        self._api, self._clock, self._many_runs = api, clock, many_runs
        self._list = CachedQuery(
            lambda: ([row for row in api.instances() if not is_destroyed(row)], api.asked_at),
            clock.now,
            5.0 if many_runs else 0.0,
        )
        self._parsed_rows: list[Any] | None = None
        """The rows of the newest list, which `_parsed` has as machines."""
        self._parsed: Sequence[Instance] = ()
        self._destroyed: dict[str, bool] = {}
        """Ids of destroyed machines; True once a query by id has confirmed that the machine is gone."""
        self._offline_since: dict[str, float] = {}

    def listed(self) -> list[Any]:
        """Return the rows of the list."""
        return self._list.get()[0]

    def invalidate(self) -> None:
        """Discard the cached list."""
        self._list.invalidate()

    def note_destroyed(self, instance_id: str) -> None:
        """Note that Vast accepted the destruction of the machine."""
        self._destroyed.setdefault(instance_id, False)

    def instances(self) -> Sequence[Instance]:
        """List all machines with vastrun's label. Raises IncompleteListError when a row has no id."""
        rows, asked_at = self._list.get()
        own = [row for row in rows if has_own_label(row)]
        # Each run of a batch looks for its own machine in the same list, twice a second while it boots.
        if self._parsed_rows is not rows:
            self._parsed = [InstanceRow.of(row, asked_at) for row in own if id_of(row) is not None]
            self._parsed_rows = rows
        # A row without an id cannot be destroyed, but may be rented: it is counted, never dropped in silence.
        if unreadable := len(own) - len(self._parsed):
            raise IncompleteListError(
                f"{unreadable} rows of Vast's list of instances cannot be read", found=self._parsed
            )
        return self._parsed

    def known_ids(self) -> Collection[str] | None:
        """Return the ids of all machines of the account, of any program; None when the list fails."""
        try:
            rows = self.listed()
        except ProviderError:
            return None
        # Also those of other programs: an id that any machine had before is not that of the new one.
        return {instance_id for row in rows if (instance_id := id_of(row)) is not None}

    def machine(self, instance_id: str) -> Instance | None:
        """Query the machine by its id, which is more current than the list."""
        row = self.row(instance_id)
        if self._many_runs and row is not None and row.idle:
            return self.own_row(instance_id)  # its GPUs may be charged since the list was read
        return row

    def row(self, instance_id: str) -> InstanceRow | None:
        """Return the machine's row.

        Vast allows one query by id in two seconds, so for many runs a list that has the machine is enough.
        Its absence must be confirmed once by a query by id; for a destroyed machine, later lists are enough.
        """
        if self._many_runs:
            rows, asked_at = self._list.get()
            listed = [row for row in rows if has_own_label(row) and id_of(row) == instance_id]
            if listed:
                return InstanceRow.of(listed[0], asked_at)
            if self._destroyed.get(instance_id):
                return None
        return self.own_row(instance_id)

    def newest_row(self, instance_id: str) -> InstanceRow | None:
        """Return the row of a machine that was just rented, without the cache."""
        self.invalidate()
        return self.row(instance_id)

    def own_row(self, instance_id: str) -> InstanceRow | None:
        """Return the answer of a query by id."""
        found = self._api.instance(instance_id) if instance_id.isdecimal() else None
        found = None if is_destroyed(found) else found
        if found is None and instance_id in self._destroyed:
            self._destroyed[instance_id] = True
            self.invalidate()
        return None if found is None else InstanceRow.of(found, self._api.asked_at)

    def offline_s(self, row: InstanceRow) -> float:
        """Return the seconds for which this launcher has seen the host offline."""
        # Counted from when this launcher saw it: a row does not say since when its host is offline.
        now = self._clock.now()
        if row.actual_status != "offline":
            self._offline_since.pop(row.id, None)
            return 0.0
        return now - self._offline_since.setdefault(row.id, now)
