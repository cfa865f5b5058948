"""Direct addresses of machines whose own row lacks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.providers.vast.instance_row import InstanceRow, id_of

_POLL_INTERVAL_S = 30.0

Address = tuple[str, int]


class DirectAddresses:
    """Reads port maps from Vast's list: by its documentation, the row of a single instance has none."""

    def __init__(self, listed: Callable[[], Sequence[Any]], now: Callable[[], float]) -> None:
        """`listed`: queries the list. `now`: epoch seconds."""
        self._listed = listed
        self._now = now
        self._found: dict[str, Address] = {}
        self._asked_at: dict[str, float] = {}

    def with_direct(self, row: InstanceRow) -> InstanceRow:
        """Add the machine's direct address from the list to a row that lacks it."""
        if row.direct is not None or row.state != "running":
            return row
        now = self._now()
        if row.id not in self._found and now - self._asked_at.get(row.id, -math.inf) >= _POLL_INTERVAL_S:
            self._asked_at[row.id] = now
            # Without a list the proxy's address remains.
            with suppress(UnreachableError):
                self._query(row.id)
        return replace(row, direct=self._found.get(row.id))

    def _query(self, instance_id: str) -> None:
        for row in self._listed():
            if id_of(row) == instance_id and (direct := InstanceRow.of(row).direct) is not None:
                self._found[instance_id] = direct
