"""The account as Vast sees it: its credit, its clock, its charges, and what its key may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from vastrun.launcher.core import AccountStatus, Charge, Identity
from vastrun.launcher.core.errors import AuthError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast.api import VastApi, credit_of
from vastrun.launcher.providers.vast.rows import charge_of

NEEDED = ("instance_read", "instance_write", "misc", "user_read", "billing_read")
"""The permission categories of a key that launches: search is in `misc`."""
_DAY_S = 86400.0
_IDENTITY = ("source", "type", "start", "end", "amount")


def account_status(api: VastApi, now: Callable[[], float]) -> AccountStatus:
    """Tell what can be told without changing anything.

    Raises AuthError when the key is not accepted at all.
    """
    asked_at = now()
    user, date = api.account()
    return AccountStatus(
        credit_usd=credit_of(user),
        clock_ahead_s=_ahead_s(date, asked_at, now()),
        needed=NEEDED,
        refused=tuple(category for category, ask in _asked(api).items() if not _may(ask)),
        wider=_is_wider(api),
    )


def identity(api: VastApi, now: Callable[[], float]) -> Identity:
    """Tell whose key this is. Raises AuthError when it is not accepted."""
    asked_at = now()
    user, date = api.account()
    return Identity(account=_id_of(user), clock_ahead_s=_ahead_s(date, asked_at, now()))


def _id_of(user: Mapping[str, Any]) -> str:
    found = user.get("id")
    if isinstance(found, int) and found is not True and 0 < found < caps.VAST_ID:
        return str(found)
    raise ProviderError("Vast does not say whose key this is")


def _asked(api: VastApi) -> dict[str, Callable[[], object]]:
    """A harmless call of each category that has one. What writes cannot be tried."""

    def search() -> object:
        return api.search({}, kind="on-demand", disk_gb=8.0, order="dph_total asc", limit=1)

    return {"instance_read": api.instances, "misc": search}


def _may(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except AuthError:
        return False
    return True


def _is_wider(api: VastApi) -> bool | None:
    """Whether the key reads what only those who let machines need; None when Vast does not tell."""
    try:
        api.hosted_machines()
    except AuthError:
        return False
    except ProviderError:
        return None
    return True


def _ahead_s(date: str | None, asked_at: float, heard_at: float) -> float | None:
    """How far this clock is ahead of a Date header at least; 0.0 where an answer that was late explains it.

    The header counts whole seconds, and was written between the question and the answer. None for nonsense.
    """
    try:
        told = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    least_s, most_s = asked_at - (told + 1.0), heard_at - told
    if abs(most_s) >= caps.CLOCK_AHEAD_S:
        return None
    return 0.0 if least_s <= 0 <= most_s else least_s


def charges_of(api: VastApi, since: float, until: float) -> Sequence[Charge]:
    """Return charges. Vast counts in whole days: the one before and the one after are asked for, too."""
    charges: dict[object, Charge] = {}
    for number, row in enumerate(api.charges(since - _DAY_S, until + _DAY_S)):
        charge = charge_of(row)
        # A list that grows while its pages are read shows a row twice.
        charges[_identity(row) if charge.instance_id else number] = charge
    return list(charges.values())


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(column)) for column in _IDENTITY)
