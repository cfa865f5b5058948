"""The account on Vast: credit, permissions, charges, the list of its machines, and the clock's offset."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vastrun.launcher.core import AccountStatus, Charge, Identity, Instance, errors
from vastrun.launcher.core.errors import IncompleteListError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast.api import VastApi, credit_of
from vastrun.launcher.providers.vast.calls import HOSTED_MACHINES, NEEDED, RIGHTS, list_backups
from vastrun.launcher.providers.vast.columns import text
from vastrun.launcher.providers.vast.errors import require_list, require_object
from vastrun.launcher.providers.vast.instance_row import InstanceRow, has_own_label, id_of, is_destroyed
from vastrun.launcher.providers.vast.rows import parse_charge

_DAY_S = 86400.0
_T = TypeVar("_T")
VARIABLE = "VASTRUN_SSH_KEY"
"""Variable with the key without its type, for `authorized_keys`. Vast itself sets SSH_PUBLIC_KEY."""
_RETRY_S, _MAX_RETRY_S = 15.0, 600.0
"""Seconds before the first retry of a rejected key, doubled at each retry, and their maximum."""


def account_status(api: VastApi, now: Callable[[], float]) -> AccountStatus:
    """Return the account's credit, the clock offset and the permissions of its key, by read-only calls.

    Raises AuthError when the key is rejected.
    """
    user = api.account()
    cheapest = ("dph_total", "asc")
    # A read-only call for each category that has one; writes cannot be probed.
    probes: dict[str, Callable[[], object]] = {
        "instance_read": api.instances,
        "misc": lambda: api.search({}, kind="on-demand", disk_gb=8.0, order=cheapest, limit=1),
        "billing_read": lambda: api.charges(now() - _DAY_S, now()),
    }
    refused = []
    for category, ask in probes.items():
        try:
            ask()
        except errors.AuthError:
            refused.append(category)
    return AccountStatus(
        credit_usd=credit_of(user),
        clock_ahead_s=api.clock_ahead_s,
        needed=NEEDED,
        purposes=RIGHTS,
        refused=tuple(refused),
        wider=_is_wider(api),
    )


def identity(api: VastApi) -> Identity:
    """Return the owner of the key. Raises AuthError when it is rejected."""
    found = api.account().get("id")
    if not isinstance(found, int) or found is True or not 0 < found < caps.VAST_ID:
        raise errors.ProviderError("Vast's response does not name the account of this key")
    return Identity(account=str(found), clock_ahead_s=api.clock_ahead_s)


def _is_wider(api: VastApi) -> bool | None:
    """Return whether the key has permissions of hosts, which no launch needs; None when unknown."""
    try:
        api.repeat(HOSTED_MACHINES, require_object)
    except errors.AuthError:
        return False
    except errors.ProviderError:
        return None
    return True


def charges_of(api: VastApi, since: float, until: float) -> Sequence[Charge]:
    """Return charges. Vast counts in whole UTC days, so the days before and after are queried, too."""
    charges: dict[object, Charge] = {}
    for number, row in enumerate(api.charges(since - _DAY_S, until + _DAY_S)):
        charge = parse_charge(row)
        # A list that grows while its pages are read contains a row twice.
        key = tuple(str(row.get(column)) for column in ("source", "type", "start", "end", "amount"))
        charges[key if charge.instance_id or charge.source else number] = charge
    return list(charges.values())


def backups_of(api: VastApi, instance_id: str) -> Sequence[str]:
    """Name the newest backup of an instance, with the command that copies it to another one."""
    rows = require_list(require_object(api.call_once(list_backups(instance_id))).get("backups"))
    states = [
        one_line(text(row.get("status")))[: caps.LABEL_CHARACTERS] or "unknown"
        for row in rows
        if isinstance(row, Mapping) and str(row.get("contract_id")) == instance_id
    ]
    if not states:
        return []
    copy = f"vastai copy vast.{instance_id}:/upper/workspace OTHER_INSTANCE:/workspace"
    return [f"Vast made a backup of it, whose state is {states[0]}: {copy}"]


class CachedQuery(Generic[_T]):
    """Caches a query's result for `age_s` seconds."""

    def __init__(self, ask: Callable[[], _T], now: Callable[[], float], age_s: float) -> None:
        self._ask, self._now, self._age_s = ask, now, age_s
        self._lock = threading.Lock()
        self._answer: _T | None = None
        self._changes = itertools.count(1)
        self._changed = self._answered_change = 0
        """Number of the last invalidation, and of the last one before the cached query."""
        self.asked_at = 0.0
        """Time of the newest query."""

    def get(self) -> _T:
        """Return the result; callers during a query wait for it. Raises the query's errors."""
        with self._lock:
            is_young = 0 <= self._now() - self.asked_at < self._age_s
            if self._answer is None or not is_young or self._answered_change != self._changed:
                self._answered_change, self.asked_at = self._changed, self._now()
                # Cleared first: after a query that failed no caller may get the answer before it.
                self._answer = None
                self._answer = self._ask()
            return self._answer

    def invalidate(self) -> None:
        """Discard the cached result, and the result of a query that is in progress.

        Does not wait. Several invalidations during a query share the next one.
        """
        self._changed = next(self._changes)


@dataclass
class _KeyAttempts:
    """Attempts to attach the key to one machine."""

    tries: int = 0
    tried_at: float = 0.0
    rejects: bool = False
    """True when the machine rejected the key at the last SSH login."""
    refusal: errors.VastrunError | None = None
    """Error of the last attempt to attach the key; None when it succeeded."""


class KeyAccess:
    """SSH keys of one launcher's runs on their machines."""

    def __init__(self, api: VastApi, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._machines: dict[str, _KeyAttempts] = {}

    def attach(self, row: InstanceRow, public_key: str) -> None:
        """Attach the key to the machine once, and again while the machine rejects it.

        Raises UnreachableError and GoneError. A rejection is stored: the machine may have the key
        nevertheless.
        """
        machine, now = self._machines.setdefault(row.id, _KeyAttempts()), self._clock.now()
        wait_s = min(_RETRY_S * 2 ** (machine.tries - 1), _MAX_RETRY_S)
        if machine.tries and not (machine.rejects and now - machine.tried_at >= wait_s):
            return
        machine.tried_at, machine.refusal = now, None
        try:
            self._api.attach_key(row.id, public_key)
        except (errors.UnreachableError, errors.GoneError):
            raise
        except (errors.ProviderError, errors.AuthError) as error:
            if row.state == "loading":
                return  # it may take the key later
            machine.refusal = error
        machine.tries += 1

    def note(self, instance_id: str, *, accepted: bool) -> None:
        """Record whether the machine accepts the key at an SSH login.

        Raises KeyNotAttachedError when it rejects the key and Vast did not attach it.
        """
        machine = self._machines.setdefault(instance_id, _KeyAttempts())
        machine.rejects = not accepted
        if accepted:
            machine.tries = 1
        elif machine.refusal is not None:
            raise errors.KeyNotAttachedError(
                f"Vast did not attach the run's SSH key to its machine, which rejects it: {machine.refusal}",
                hint=machine.refusal.hint or "see the SSH keys at https://cloud.vast.ai/manage-keys/",
            )


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
