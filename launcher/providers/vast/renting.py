"""Renting on Vast: one request, and a machine that is ours alone, or none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from vastrun.launcher.core import Instance, RentalOrder
from vastrun.launcher.core.errors import (
    GoneError,
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.onstart import onstart_text
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.overlays import flag_of
from vastrun.launcher.providers.vast.refusals import Answer, error_of
from vastrun.launcher.providers.vast.volumes import volume_info

_RUNTYPE = "ssh_direc ssh_proxy"
_LOOKS = 5
_GRANT_S, _GRANT_LOOK_S = 60.0, 3.0
"""Seconds to wait for a bid that is not granted at once, at the price of its disk, and between two looks."""


Look = Callable[[str], tuple[InstanceRow | None, float]]
"""A machine's row by its id, and when it was asked for."""
_Seen = tuple[InstanceRow, float]


def rent(
    api: VastApi,
    order: RentalOrder,
    env: Mapping[str, str],
    clock: Clock,
    look: Look,
    *,
    known: Collection[str] | None,
) -> Instance:
    """Rent a machine, to be checked against its offer. Raises NoOfferError, UncertainError, ProviderError.

    `known`: ids of the account's machines before the order; None when they could not be listed.
    """
    now = clock.now()
    _check_credit(api, order)
    answer = api.create(order.offer.id, request(order, env))
    instance_id = str(answer.get("new_contract") or "")
    look = _checking(look, order)
    seen = _first_look(instance_id, known, look) if instance_id else None
    if answer.get("success") is False:
        if not (instance_id and _is_open(answer)):
            raise _refused(api, instance_id, answer)
        seen = _await_grant(api, instance_id, clock, look)
    if not instance_id:
        raise UncertainError("Vast confirmed the rental but did not name the machine")
    return _rented(api, instance_id, order, now, seen)


def request(order: RentalOrder, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what Vast is asked for. Holds no secret."""
    if order.image is None:
        raise NoOfferError("no image of vastrun runs on this offer", hint="image: in the job file")
    return {
        "image": order.image,
        "disk": order.disk_gb,
        "env": {**order.env, **env, **flag_of(order)},
        "label": order.label,
        "onstart_cmd": onstart_text(order.onstart),
        "runtype": _RUNTYPE,
        "price": order.offer.bid_usd_per_hour,
        # Else a lost race makes a stopped machine, which costs its disk for ever.
        "cancel_unavail": True,
        **volume_info(order.volume),
    }


def instance_of(row: InstanceRow, asked_at: float) -> Instance:
    """Return the row as an instance of ours."""
    return Instance(
        id=row.id,
        label=row.label,
        state=row.state,
        usd_per_hour=row.usd_per_hour,
        rented_at=row.start_date,
        extras=row.extras,
        idle=row.is_idle,
        up_s=row.up_s,
        down_gb=row.down_gb,
        up_gb=row.up_gb,
        host=row.machine_id,
        note=row.status_msg.splitlines()[-1] if row.status_msg else "",
        gpu_name=row.gpu_name,
        gpus=row.gpus,
        memory_gb=row.memory_gb,
        disk_gb=row.disk_gb,
        cuda=row.cuda,
        unreadable=row.unreadable,
        asked_at=asked_at,
    )


def _check_credit(api: VastApi, order: RentalOrder) -> None:
    """Vast stops every machine of an account that runs dry, and lets others have them."""
    credit_usd = api.credit_usd()
    if credit_usd < order.max_usd:
        raise ProviderError(
            f"the account has ${credit_usd:.2f} of credit; this run may cost ${order.max_usd:.2f}",
            hint=f"add ${order.max_usd - credit_usd:.2f} at https://cloud.vast.ai/billing/, "
            "or lower limits.usd",
        )


def _checking(look: Look, order: RentalOrder) -> Look:
    """Return a look that raises UncertainError at a machine of another label, or on another host."""

    def checked(instance_id: str) -> tuple[InstanceRow | None, float]:
        row, asked_at = look(instance_id)
        if row is None or (row.label in ("", order.label) and row.machine_id in ("", order.offer.host)):
            return row, asked_at
        raise _wrong_machine(
            instance_id,
            f"its label is {row.label[:80]!r}, its machine {row.machine_id[:40]} "
            f"instead of {order.offer.host}",
        )

    return checked


def _first_look(instance_id: str, known: Collection[str] | None, look: Look) -> _Seen | None:
    """Return the row of the new machine; None when it cannot be seen yet.

    Raises UncertainError when the id is of another machine, which must never be destroyed. One that Vast does
    not show yet is new, provided that the account's machines were listed before.
    """
    if known is not None and instance_id in known:
        raise _wrong_machine(instance_id, "the account had it before")
    seen = None
    try:
        row, asked_at = look(instance_id)
        seen = None if row is None else (row, asked_at)
    except UncertainError:
        raise
    except VastrunError:
        pass  # it is new by the list
    if known is None and (seen is None or not seen[0].label):
        raise _wrong_machine(instance_id, "neither its label nor an earlier list shows whose it is")
    return seen


def _wrong_machine(instance_id: str, why: str) -> UncertainError:
    return UncertainError(f"Vast answered the order with the id of another machine, {instance_id}: {why}")


def _is_open(answer: Mapping[str, Any]) -> bool:
    """Tell whether the answer gives no reason: a bid was seen to be granted later (2026-07)."""
    return not (answer.get("error") or answer.get("msg"))


def _await_grant(api: VastApi, instance_id: str, clock: Clock, look: Look) -> _Seen:
    """Return the row of a bid once granted. Raises NoOfferError when it is not: its machine is ended."""
    ordered_at, seen, idle_s = clock.now(), "not listed", 0.0
    while True:
        with contextlib.suppress(UnreachableError):
            row, asked_at = look(instance_id)
            if row is not None and row.cur_state == "running":
                return row, asked_at
            idle_s = max(idle_s, 0.0 if row is None else asked_at - ordered_at)
            seen = "not listed" if row is None else " ".join(filter(None, (row.state, row.status_msg)))
        if clock.now() >= ordered_at + _GRANT_S:
            break
        clock.sleep(_GRANT_LOOK_S)
    _end(api, instance_id)
    raise NoOfferError(
        f"Vast did not grant the bid within {_GRANT_S:.0f} s; last seen: {seen[:200]}",
        ended=instance_id,
        idle_s=idle_s,
    )


def _refused(api: VastApi, instance_id: str, answer: Mapping[str, Any]) -> VastrunError:
    """The error to raise. A refusal may leave a stopped machine behind: that one is ended first."""
    error = error_of(Answer(status=200, text=json.dumps(answer), headers={}))
    if not instance_id:
        return error
    _end(api, instance_id)
    return NoOfferError(f"the machine did not start: {error}", ended=instance_id)


def _rented(api: VastApi, instance_id: str, order: RentalOrder, now: float, seen: _Seen | None) -> Instance:
    """The rented machine as Vast lists it; ended at once where it was given to somebody else.

    One that cannot be looked at is taken as ordered: it is ours, whatever it is.
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
    if seen is None:
        return ordered
    row, asked_at = seen
    # `cancel_unavail` should prevent this. Where it does not, the stopped machine would bill its disk.
    if row.is_stopped:
        _end(api, instance_id)
        raise NoOfferError("another user rented it first; the machine is stopped", ended=instance_id)
    listed = instance_of(row, asked_at)
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
    """The machine is gone, or soon will be. The next one has its label, and is not to be taken for it."""
    with contextlib.suppress(GoneError):
        api.destroy(instance_id)
    for _ in range(_LOOKS):
        if api.instance(instance_id) is None:
            return
