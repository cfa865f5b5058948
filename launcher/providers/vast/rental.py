"""Rental on Vast: one order, which results in exactly one machine or none; and its scheduled end.

That is a request to Vast's own servers to destroy the machine by an hour at which none of its limits lets it
live. It is sent at minute 0 of each hour, beginning with the hour that *contains* its start: one for 13:22
was sent at 13:00, and destroyed a machine that trained (2026-10). So the start is the middle of an hour that
begins after the machine's last possible moment.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from vastrun.launcher.core import Instance, RentalOrder, errors
from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.core.market import ScheduledEnd
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.onstart import onstart_text
from vastrun.launcher.providers.vast import calls
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.calls import SCHEDULES, delete_schedule, schedule_destroy
from vastrun.launcher.providers.vast.columns import ROW_ERRORS, number
from vastrun.launcher.providers.vast.errors import (
    Answer,
    RejectedError,
    UnknownRefusalError,
    map_error,
    require_list,
    require_object,
)
from vastrun.launcher.providers.vast.instance_row import InstanceRow, id_of
from vastrun.launcher.providers.vast.overlays import flag_of

# Vast's own spelling. With both, a machine whose ports are closed is still reached through the proxy.
_RUNTYPE = "ssh_direc ssh_proxy"
_GRANT_S, _GRANT_POLL_S = 60.0, 3.0
"""Seconds to wait for a bid that is not granted at once (its disk is billed), and between two polls."""


ReadRow = Callable[[str], InstanceRow | None]
"""Returns a machine's row by its id."""
_HOUR_S = 3600.0
_MARGIN_S = 900.0
"""Seconds between the last possible moment and the hour: for clocks that differ by minutes."""
_REPEATED_S = 4 * _HOUR_S
"""Seconds for which the request is repeated each hour: one may fail."""
_EXISTS = 422
"""HTTP status for a machine that has a schedule, whose id comes with it."""
_ENDPOINT = re.compile(r"/api/v0/instances/(\d{1,20})/?", re.ASCII)


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


def end_hour(not_before: float) -> float:
    """Return the first full hour, in epoch seconds, at which a machine may be destroyed."""
    return math.ceil((not_before + _MARGIN_S) / _HOUR_S) * _HOUR_S


class ScheduledEnds:
    """The EndsLater port for one account."""

    def __init__(self, api: VastApi) -> None:
        self._api = api

    def schedule_end(self, instance_id: str, after_s: float) -> None:
        """Schedule the request, or move an existing one."""
        # By Vast's clock, which sends it: this computer's may be wrong, and may have been set meanwhile.
        start = end_hour(self._api.server_now() + after_s) + _HOUR_S / 2
        try:
            self._schedule(instance_id, start)
        except ProviderError as error:
            job_id = _existing_job(error)
            if job_id is None:
                raise
            self._schedule(instance_id, start, job_id)

    def _schedule(self, instance_id: str, start: float, job_id: str | None = None) -> None:
        """Send the request. `job_id`: the existing one, which this one replaces."""
        call = schedule_destroy(instance_id, start, start + _REPEATED_S, job_id)
        answer = self._api.repeat(call, require_object)
        if answer.get("success") is False:
            raise ProviderError(f"Vast did not schedule it: {answer.get('msg') or answer.get('error')}")

    def cancel_end(self, instance_id: str) -> None:
        """Remove all schedules that would destroy the machine."""
        for job in self.scheduled_ends():
            if job.instance_id == instance_id:
                with suppress(GoneError):
                    self._api.repeat(delete_schedule(job.id), lambda answer: answer)

    def scheduled_ends(self) -> Sequence[ScheduledEnd]:
        """List the schedules of the account that destroy a machine; of whatever program."""
        read = (_scheduled_end(row) for row in self._api.repeat(SCHEDULES, _require_rows))
        return [job for job in read if job is not None]


def _require_rows(answer: Any) -> list[Any]:
    """Return the rows, in a list or as one field of an object. Raises UnreachableError."""
    if isinstance(answer, Mapping):
        answer = next((value for value in answer.values() if isinstance(value, list)), None)
    return require_list(answer)


def _existing_job(error: ProviderError) -> str | None:
    rejected = error.__cause__
    if not isinstance(rejected, RejectedError) or rejected.answer.status != _EXISTS:
        return None
    return id_of({"id": (rejected.answer.fields or {}).get("scheduled_job_id")})


def _scheduled_end(row: Any) -> ScheduledEnd | None:
    """Parse a row; None for one that destroys no machine, or cannot be read."""
    if not isinstance(row, Mapping) or row.get("request_method") != "DELETE":
        return None
    endpoint = _ENDPOINT.fullmatch(str(row.get("api_endpoint"))[:100])
    job_id = id_of(row) or id_of({"id": row.get("scheduled_job_id")})
    if endpoint is None or job_id is None:
        return None
    try:
        start = number(row.get("start_time"))
    except ROW_ERRORS:
        start = 0.0
    return ScheduledEnd(id=job_id, instance_id=endpoint[1], at=start)
