"""Rental on Vast: one order, which results in exactly one machine or none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from vastrun.launcher.core import Instance, RentalOrder, errors
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.onstart import onstart_text
from vastrun.launcher.providers.vast import calls
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.errors import Answer, UnknownRefusalError, map_error
from vastrun.launcher.providers.vast.instance_row import InstanceRow, id_of
from vastrun.launcher.providers.vast.overlays import flag_of

# Vast's own spelling. With both, a machine whose ports are closed is still reached through the proxy.
_RUNTYPE = "ssh_direc ssh_proxy"
_GRANT_S, _GRANT_POLL_S = 60.0, 3.0
"""Seconds to wait for a bid that is not granted at once (its disk is billed), and between two polls."""


ReadRow = Callable[[str], InstanceRow | None]
"""Returns a machine's row by its id."""


def rent(
    api: VastApi,
    order: RentalOrder,
    env: Mapping[str, str],
    clock: Clock,
    read_row: ReadRow,
    *,
    known: Collection[str] | None,
) -> Instance:
    """Rent a machine. Raises NoOfferError, UncertainError, ProviderError.

    `known`: ids of the account's machines before the order; None when they could not be listed.
    """
    now = clock.now()
    # Before the order: without credit Vast would stop this machine and all others of the account.
    _check_credit(api, order)
    answer = api.create(order.offer.id, request(order, env))
    instance_id = _named_machine(answer)
    read_row = _with_identity_check(read_row, order)
    seen = _first_row(instance_id, known, read_row) if instance_id else None
    # A bid that is too low is HTTP 200 without success, and may leave a stopped machine whose disk is billed.
    # One without a reason was granted later (2026-07).
    if answer.get("success") is False:
        if not instance_id or answer.get("error") or answer.get("msg"):
            raise _rejection(api, order, instance_id, answer)
        seen = _await_grant(api, instance_id, clock, read_row)
    if not instance_id:
        raise errors.UncertainError("Vast confirmed the rental but did not name the machine")
    return _rented_instance(api, instance_id, order, now, seen)


def _named_machine(answer: Mapping[str, Any]) -> str:
    """Return the id of the new machine; empty where the answer names none. Raises UncertainError."""
    named = answer.get("new_contract")
    instance_id = id_of({"id": named})
    # Any other text would be taken for a machine that does not exist, and the new one for a second one.
    if named and instance_id is None:
        raise errors.UncertainError(
            f"Vast named the machine of the order {str(named)[:80]!r}, which is not an id"
        )
    return instance_id or ""


def request(order: RentalOrder, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the order as Vast's request, without secrets."""
    if order.image is None:
        raise errors.NoOfferError("no image of vastrun runs on this offer", hint="image: in the job file")
    return {
        "image": order.image,
        "disk": order.disk_gb,
        "env": {**order.env, **env, **flag_of(order)},
        "label": order.label,
        "onstart": onstart_text(order.onstart),
        "runtype": _RUNTYPE,
        # Without a price the order is on demand, whatever kind of search found the offer.
        "price": order.offer.bid_usd_per_hour,
        # Otherwise a lost race creates a stopped machine, whose disk is billed forever.
        "cancel_unavail": True,
    }


def _check_credit(api: VastApi, order: RentalOrder) -> None:
    """Check the credit: without credit Vast stops all machines of an account, and others can rent them."""
    credit_usd = api.credit_usd()
    if credit_usd < order.max_usd:
        lack = f"the account has ${credit_usd:.2f} of credit; this run may cost up to ${order.max_usd:.2f}"
        if order.warn_of_credit is not None:
            order.warn_of_credit(f"{lack}: without credit Vast stops the machine")
            return
        raise errors.ProviderError(
            lack,
            hint=f"add ${order.max_usd - credit_usd:.2f} at https://cloud.vast.ai/billing/, "
            "lower limits.usd, or set limits.credit=warn if the account tops up by itself",
        )


def _with_identity_check(read_row: ReadRow, order: RentalOrder) -> ReadRow:
    """Return a reader that raises UncertainError for a machine with another label or host."""

    def checked(instance_id: str) -> InstanceRow | None:
        row = read_row(instance_id)
        if row is None or (row.label in ("", order.label) and row.host in ("", order.offer.host)):
            return row
        raise _wrong_machine(
            instance_id,
            f"its label is {row.label[:80]!r}, its machine {row.host[:40]} instead of {order.offer.host}",
        )

    return checked


def _first_row(instance_id: str, known: Collection[str] | None, read_row: ReadRow) -> InstanceRow | None:
    """Return the row of the new machine; None when Vast does not list it yet.

    Raises UncertainError when the id belongs to another machine, which must never be destroyed. An id that
    Vast does not list yet is new if it was not in the list before the order.
    """
    if known is not None and instance_id in known:
        raise _wrong_machine(instance_id, "the account had it before")
    seen = None
    try:
        seen = read_row(instance_id)
    except errors.UncertainError:
        raise
    except errors.VastrunError:
        pass  # the list before the order shows that it is new
    if known is None and (seen is None or not seen.label):
        raise _wrong_machine(instance_id, "neither its label nor an earlier list shows whose it is")
    return seen


def _wrong_machine(instance_id: str, why: str) -> errors.UncertainError:
    return errors.UncertainError(
        f"Vast answered the order with the id of another machine, {instance_id}: {why}"
    )


def _await_grant(api: VastApi, instance_id: str, clock: Clock, read_row: ReadRow) -> InstanceRow:
    """Wait for the grant of a bid; return its row. Without a grant, destroy it and raise NoOfferError."""
    ordered_at, seen, idle_s = clock.now(), "not listed", 0.0
    while True:
        with contextlib.suppress(errors.UnreachableError):
            row = read_row(instance_id)
            if row is not None and row.cur_state == "running":
                return row
            idle_s = max(idle_s, ((row and row.asked_at) or ordered_at) - ordered_at)
            seen = "not listed" if row is None else " ".join(filter(None, (row.state, row.status_msg)))
        if clock.now() >= ordered_at + _GRANT_S:
            break
        clock.sleep(_GRANT_POLL_S)
    _end(api, instance_id)
    raise errors.NoOfferError(
        f"Vast did not grant the bid within {_GRANT_S:.0f} s; last seen: {seen[:200]}",
        ended=instance_id,
        idle_s=idle_s,
    )


def _rejection(
    api: VastApi, order: RentalOrder, instance_id: str, answer: Mapping[str, Any]
) -> errors.VastrunError:
    """Return the error of an order that Vast answered with `success: false`.

    A stopped machine that it may have left is destroyed. What is not about the key or the money is about the
    offer, whatever the words: the next one may do.
    """
    read = Answer(status=200, text=json.dumps(answer), headers={})
    error = map_error(read, calls.create(order.offer.id, {}))
    if instance_id:
        _end(api, instance_id)
        return errors.NoOfferError(f"the machine did not start: {error}", ended=instance_id)
    return errors.NoOfferError(str(error)) if isinstance(error, UnknownRefusalError) else error


def _rented_instance(
    api: VastApi, instance_id: str, order: RentalOrder, now: float, listed: InstanceRow | None
) -> Instance:
    """Return the rented machine; destroy it and raise NoOfferError when another user got it first.

    A machine that Vast does not list yet is returned as ordered, so that it is tracked in any case.
    """
    ordered = Instance(
        id=instance_id,
        label=order.label,
        state="loading",
        usd_per_hour=order.offer.usd_per_hour,
        rented_at=now,
        extras=order.offer.extras,
        idle=True,
        host=order.offer.host,
    )
    if listed is None:
        return ordered
    # `cancel_unavail` should prevent this; otherwise the stopped machine's disk is billed. One that was never
    # scheduled reads as loading, and its host is to blame.
    if listed.is_stopped and listed.actual_status != "loading":
        _end(api, instance_id)
        raise errors.NoOfferError("another user rented it first; the machine is stopped", ended=instance_id)
    priced = listed if listed.usd_per_hour else ordered
    return replace(
        listed,
        rented_at=listed.rented_at or now,
        usd_per_hour=priced.usd_per_hour,
        extras=priced.extras,
        host=listed.host or ordered.host,
        label=order.label,
    )


def _end(api: VastApi, instance_id: str) -> None:
    """Destroy the machine and wait until it is gone: the next order's machine has the same label."""
    with contextlib.suppress(errors.GoneError):
        api.destroy(instance_id)
    for _ in range(5):
        if api.instance(instance_id) is None:
            return
