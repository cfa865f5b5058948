"""The account on Vast: credit, permissions of its key, charges, and the offset of this clock to Vast's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from vastrun.launcher.core import AccountStatus, Charge, Identity
from vastrun.launcher.core.errors import AuthError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast.api import VastApi, credit_of
from vastrun.launcher.providers.vast.rows import parse_charge

NEEDED = ("instance_read", "instance_write", "misc", "user_read", "billing_read")
"""Permission categories that a launch needs; `misc` includes search."""
_DAY_S = 86400.0
_IDENTITY = ("source", "type", "start", "end", "amount")


def account_status(api: VastApi, now: Callable[[], float]) -> AccountStatus:
    """Return the account's credit, the clock offset and the permissions of its key, by read-only calls.

    Raises AuthError when the key is rejected.
    """
    asked_at = now()
    user, date = api.account()
    return AccountStatus(
        credit_usd=credit_of(user),
        clock_ahead_s=_ahead_s(date, asked_at, now()),
        needed=NEEDED,
        refused=tuple(category for category, ask in _probe_calls(api).items() if not _is_allowed(ask)),
        wider=_is_wider(api),
    )


def identity(api: VastApi, now: Callable[[], float]) -> Identity:
    """Return the owner of the key. Raises AuthError when it is rejected."""
    asked_at = now()
    user, date = api.account()
    return Identity(account=_id_of(user), clock_ahead_s=_ahead_s(date, asked_at, now()))


def _id_of(user: Mapping[str, Any]) -> str:
    found = user.get("id")
    if isinstance(found, int) and found is not True and 0 < found < caps.VAST_ID:
        return str(found)
    raise ProviderError("Vast's response does not name the account of this key")


def _probe_calls(api: VastApi) -> dict[str, Callable[[], object]]:
    """Return a read-only call for each category that has one; writes cannot be probed."""

    def search() -> object:
        return api.search({}, kind="on-demand", disk_gb=8.0, order="dph_total asc", limit=1)

    return {"instance_read": api.instances, "misc": search}


def _is_allowed(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except AuthError:
        return False
    return True


def _is_wider(api: VastApi) -> bool | None:
    """Return whether the key has permissions of hosts, which no launch needs; None when unknown."""
    try:
        api.hosted_machines()
    except AuthError:
        return False
    except ProviderError:
        return None
    return True


def _ahead_s(date: str | None, asked_at: float, answered_at: float) -> float | None:
    """Return the minimum seconds by which this clock is ahead of a Date header; 0.0 if the delay explains it.

    The header has whole seconds, and was written between request and response. None when it is invalid.
    """
    try:
        server_at = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    min_s, max_s = asked_at - (server_at + 1.0), answered_at - server_at
    if abs(max_s) >= caps.CLOCK_AHEAD_S:
        return None
    return 0.0 if min_s <= 0 <= max_s else min_s


def charges_of(api: VastApi, since: float, until: float) -> Sequence[Charge]:
    """Return charges. Vast counts in whole UTC days, so the days before and after are queried, too."""
    charges: dict[object, Charge] = {}
    for number, row in enumerate(api.charges(since - _DAY_S, until + _DAY_S)):
        charge = parse_charge(row)
        # A list that grows while its pages are read contains a row twice.
        charges[_identity(row) if charge.instance_id else number] = charge
    return list(charges.values())


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(column)) for column in _IDENTITY)
