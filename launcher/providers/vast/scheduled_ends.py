"""Scheduled ends: Vast's own servers destroy a machine at an hour by which none of its limits lets it live.

A scheduled request is sent at minute 0 of each hour, beginning with the hour that *contains* its start: one
for 13:22 was sent at 13:00, and destroyed a machine that trained (2026-10). So the start is the middle of an
hour that begins after the machine's last possible moment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.core.market import ScheduledEnd
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.calls import SCHEDULES, delete_schedule, schedule_destroy
from vastrun.launcher.providers.vast.columns import ROW_ERRORS, number
from vastrun.launcher.providers.vast.errors import RejectedError, require_list, require_object
from vastrun.launcher.providers.vast.instance_row import id_of

_HOUR_S = 3600.0
_MARGIN_S = 900.0
"""Seconds between the last possible moment and the hour: for clocks that differ by minutes."""
_REPEATED_S = 4 * _HOUR_S
"""Seconds for which the request is repeated each hour: one may fail."""
_EXISTS = 422
"""HTTP status for a machine that has a schedule, whose id comes with it."""
_ENDPOINT = re.compile(r"/api/v0/instances/(\d{1,20})/?", re.ASCII)


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
