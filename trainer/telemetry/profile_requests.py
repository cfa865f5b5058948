"""Profile requests: read the requests of `vastrun profile` from a file on the box."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.profiling import MAX_REQUEST_BYTES, ProfileRequest, ProfileResponse
from vastrun.contract.records import RecordError, read_json, read_small, write_json

POLL_INTERVAL_S = 1.0


class ProfileRequests:
    """Reads each request once, and writes the response. Costs a training one `stat` a second."""

    def __init__(self, box: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._request, self._response = box / layout.PROFILE_REQUEST, box / layout.PROFILE_RESPONSE
        self._now = now
        self._next_poll = now()
        self._seen_mtime_ns = 0
        self._answered = self._last_answered()

    def next_request(self) -> ProfileRequest | None:
        """Return a request without a response; None when there is none, or the next poll is not due."""
        if self._now() < self._next_poll:
            return None
        self._next_poll = self._now() + POLL_INTERVAL_S
        try:
            mtime_ns = self._request.stat().st_mtime_ns
            if mtime_ns == self._seen_mtime_ns:
                return None
            self._seen_mtime_ns = mtime_ns
            request: ProfileRequest = read_json(ProfileRequest, read_small(self._request, MAX_REQUEST_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, RecordError) as fault:
            print(f"note: {layout.PROFILE_REQUEST} is not a valid request: {fault}", flush=True)
            return None
        return None if request.id == self._answered else request

    def respond(self, response: ProfileResponse) -> None:
        """Write the response. Raises OSError."""
        self._answered = response.id
        write_json(self._response, asdict(response), durable=False)

    def _last_answered(self) -> str | None:
        """Return the id of the request to which an earlier start of this training responded."""
        try:
            response: ProfileResponse = read_json(
                ProfileResponse, read_small(self._response, MAX_REQUEST_BYTES)
            )
        except (OSError, RecordError):
            return None
        return response.id
