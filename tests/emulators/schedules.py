"""Scheduled requests: sent by Vast's servers at minute 0 of each hour, from that which contains the start."""

import itertools
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.answers import ApiError, refusal
from tests.emulators.clock import Clock
from tests.emulators.faults import Faults, Place
from tests.emulators.instances import Fleet

HOUR_S = 3600.0
_ENDPOINT = re.compile(r"/api/v0/instances/(\d+)/?")


@dataclass
class Job:
    """One scheduled request. Only the one that destroys an instance does something here."""

    id: int
    row: dict[str, Any]
    changed_at: float
    late_s: float = 0.0
    never: bool = False
    sent: set[float] = field(default_factory=set)
    """The hours for which it was sent."""

    def due(self, now: float) -> list[float]:
        """Full hours for which it is to be sent by now, and was not. A start of 13:22 counts as 13:00."""
        hour = float(self.row["start_time"]) // HOUR_S * HOUR_S
        hours = []
        while not self.never and hour + self.late_s <= now and hour <= float(self.row["end_time"]):
            if hour > self.changed_at and hour not in self.sent:
                hours.append(hour)
            hour += HOUR_S
        return hours


class Schedules:
    """Those of the account. They outlive their instances."""

    def __init__(self, clock: Clock, faults: Faults, instances: Fleet) -> None:
        self._clock, self._faults, self._instances = clock, faults, instances
        self._ids = itertools.count(31)
        self.jobs: dict[int, Job] = {}
        self.destroyed: list[int] = []
        """Instances that a schedule destroyed."""

    def of(self, instance_id: int) -> Job | None:
        """The instance's job."""
        return next((one for one in self.jobs.values() if one.row["instance_id"] == instance_id), None)

    def add(self, body: Mapping[str, Any], *, early: bool = False) -> Job:
        """A new job; `early`: sent at once, too."""
        place = Place(instance_id=int(body["instance_id"]))
        late = self._faults.take("schedule_late", place)
        job = Job(
            id=next(self._ids),
            row=dict(body),
            changed_at=self._clock.now(),
            late_s=(late.seconds or HOUR_S) if late else 0.0,
            never=self._faults.take("schedule_never", place) is not None,
        )
        self.jobs[job.id] = job
        if early:
            self._send(job)
        return job

    def change(self, job_id: int, body: Mapping[str, Any]) -> Job:
        """The job, changed. Raises ApiError (404)."""
        job = self.get(job_id)
        job.row |= body
        job.changed_at = self._clock.now()
        return job

    def get(self, job_id: int) -> Job:
        """The job. Raises ApiError (404)."""
        if job_id not in self.jobs:
            raise refusal(404, "not_found", "Scheduled job not found.")
        return self.jobs[job_id]

    def remove(self, job_id: int) -> None:
        """The job is sent no more."""
        self.get(job_id)
        if not self._faults.take("schedule_stays"):
            del self.jobs[job_id]

    def settle(self) -> None:
        """Whatever was due by now was sent."""
        for job in list(self.jobs.values()):
            for hour in job.due(self._clock.now()):
                job.sent.add(hour)
                self._send(job)

    def _send(self, job: Job) -> None:
        target = _ENDPOINT.fullmatch(str(job.row["api_endpoint"]))
        if target is None or job.row["request_method"] != "DELETE":
            return
        with suppress(ApiError):
            self._instances.destroy(self._instances.get(int(target[1])))
            self.destroyed.append(int(target[1]))
