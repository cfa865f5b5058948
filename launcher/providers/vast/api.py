"""Client of Vast's API: rate-limited, with retries of calls that are safe to repeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast import calls, errors, transport
from vastrun.launcher.providers.vast.calls import ROUTES, VastCall
from vastrun.launcher.providers.vast.instance_row import id_of, rows_in
from vastrun.launcher.providers.vast.limits import Limiter
from vastrun.launcher.providers.vast.transport import Send, VastAccount

_TOO_OFTEN_TRIES, _TOO_OFTEN_GROWTH = 3, 3.0
"""Repetitions of a call that came too early, and by how much each pause is longer than the one before."""
_T = TypeVar("_T")


class VastApi:
    """The API calls that the provider needs. Each returns Vast's JSON or raises a VastrunError."""

    def __init__(
        self,
        account: VastAccount,
        limiter: Limiter,
        clock: Clock,
        connect: Callable[[VastAccount], Send] = transport.connect,
    ) -> None:
        """`connect`: returns what sends a request; called at the first one."""
        self._account, self._limiter, self._clock, self._connect = account, limiter, clock, connect
        self._cached_send: Send | None = None
        self._send_lock = threading.Lock()
        self._thread_local = threading.local()
        """Time and budget of the thread's last call."""
        self.clock_ahead_s: float | None = None
        """Seconds by which this computer's clock was ahead of Vast's at the last answer; None: unknown."""

    @property
    def server(self) -> str:
        """URL of the server."""
        return self._account.server

    def with_key(self, key: str) -> VastApi:
        """Return a client for another key with the same rate limits."""
        return VastApi(replace(self._account, key=key), self._limiter, self._clock, self._connect)

    def once(self, *asked: VastCall, pause_s: float = 0.0) -> list[errors.Answer]:
        """Make calls of one route in one turn, `pause_s` apart, without retries.

        Returns the answers as they came; a call without one has none.
        """
        answers = []
        with self._limiter.turn(asked[0].route):
            for number, call in enumerate(asked):
                if number:
                    self._clock.sleep(pause_s)
                try:
                    answers.append(self._exchange(call))
                except errors.NoResponseError:
                    continue
        return answers

    def server_now(self) -> float:
        """Return the time by Vast's clock, in epoch seconds, as far as it is known."""
        return self._clock.now() - (self.clock_ahead_s or 0.0)

    @property
    def asked_at(self) -> float:
        """Time of this thread's last call, which may have waited long for its turn."""
        return getattr(self._thread_local, "asked_at", 0.0)

    @asked_at.setter
    def asked_at(self, moment: float) -> None:
        self._thread_local.asked_at = moment

    def search(
        self,
        query: Mapping[str, Any],
        *,
        kind: str,
        disk_gb: float,
        order: tuple[str, str],
        limit: int | None = None,
    ) -> list[Any]:
        """Return one page of offers: Vast's search has no further pages.

        `order`: a column, and `asc` or `desc`. `limit`: None: Vast's default, 64.
        """
        call = calls.search(query, kind=kind, disk_gb=disk_gb, order=order, limit=limit)
        return self.repeat(
            call, lambda answer: errors.require_list(errors.require_object(answer).get("offers"))
        )

    def create(self, offer_id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rent. Raises UncertainError when a machine may exist: this call alone is not safe to repeat."""
        try:
            answer = self._call(calls.create(offer_id, request))
        except errors.RejectedError as rejected:
            # A 5xx may follow the creation of the machine; only a rejection means that there is none.
            if rejected.answer.transient:
                raise UncertainError(f"Vast failed during the order: {rejected}") from rejected
            raise errors.map_error(rejected.answer, rejected.call) from rejected
        except errors.NoResponseError as missing:
            raise UncertainError(f"no response to the order; rental state unknown: {missing}") from missing
        if not isinstance(answer, dict):
            raise UncertainError("malformed response; rental state unknown")
        return answer

    def instances(self) -> list[Any]:
        """List all instances of the account: all pages or an error.

        `asked_at` is that of the first page.
        """
        rows: list[Any] = []
        asked_at: float | None = None
        # Absence counts from the first page, the oldest one.
        for page in self._pages(calls.list_instances, "instances"):
            asked_at = self.asked_at = self.asked_at if asked_at is None else asked_at
            rows += rows_in(page["instances"])
            counted = min(_count(page, "instances_found"), _count(page, "total_instances"))
        # A list shorter than its count lacks machines, and these must not count as gone.
        if len(rows) < counted:
            raise errors.no_response_error(f"a list of {len(rows)} instances that counts {counted}")
        return rows

    def charges(self, since: float, until: float) -> list[Any]:
        """Return all settled charges of the days between `since` and `until`, or raise."""
        pages = self._pages(lambda token: calls.charges(since, until, token), "results")
        return [row for page in pages for row in page["results"]]

    def instance(self, instance_id: str) -> Any:
        """Return one instance's row; None when it does not exist.

        Vast's own test tool also accepts a list, or an object of rows.
        """
        try:
            answer = self.repeat(calls.show_instance(instance_id), _require_row)
        except GoneError:
            return None
        rows = rows_in(answer)
        found = next((row for row in rows if id_of(row) == str(int(instance_id))), None)
        if rows and found is None:
            raise errors.no_response_error(f"not the row of instance {instance_id}")
        return found

    def destroy(self, instance_id: str) -> None:
        """Destroy the instance; return once Vast accepted. Raises GoneError when it does not exist."""
        answer = self.repeat(calls.destroy(instance_id), errors.require_object)
        if answer.get("success") is False:
            reason = answer.get("msg") or answer.get("error")
            raise ProviderError(f"Vast did not destroy {instance_id}: {reason}")

    def credit_usd(self) -> float:
        """Return the account's credit in USD."""
        return credit_of(self.account())

    def account(self) -> Mapping[str, Any]:
        """Return the account's row."""
        return self.repeat(calls.ACCOUNT, errors.require_object)

    def attach_key(self, instance_id: str, public_key: str) -> None:
        """Authorize the SSH key on the instance."""
        self.repeat(calls.attach_key(instance_id, public_key), lambda answer: answer)

    def log(self, instance_id: str, *, within_s: float = 15.0, **options: str) -> str:
        """Return the end of a log of the instance; `options`: those of Vast's request.

        No retry, since a call takes seconds. Raises UnreachableError when the log does not arrive within
        `within_s` seconds.
        """
        call = calls.request_log(instance_id, options)
        return errors.fetch_log(lambda: errors.require_object(self.call_once(call)), within_s)

    def call_once(self, call: VastCall) -> Any:
        """Make a call without retries and return its response."""
        try:
            return self._call(call)
        except errors.RejectedError as rejected:
            raise errors.map_error(rejected.answer, rejected.call) from rejected
        except errors.NoResponseError as missing:
            raise errors.no_response_error(str(missing)) from missing

    def _pages(self, page_from: Callable[[str | None], VastCall], rows: str) -> Iterator[Mapping[str, Any]]:
        """Yield all pages of a list; `rows`: name of the field with the rows."""
        token: str | None = None
        budget = ExchangeBudget(
            caps.EXCHANGES["vast list"], now=time.monotonic, sender="it", error=errors.no_response_error
        )
        while True:
            answer = self.repeat(page_from(token), errors.require_object)
            if answer.get("success") is False or not isinstance(answer.get(rows), list | dict):
                raise errors.no_response_error(f"a list of {rows} without its rows")
            budget.spend(items=max(1, len(answer[rows])), memory=self._thread_local.memory)
            yield answer
            former, token = token, answer.get("next_token")
            if not token:
                return
            # A repeated token would page forever.
            if token == former or not isinstance(token, str | int):
                raise errors.no_response_error(f"a list of {rows} without an end")

    def repeat(self, call: VastCall, kind: Callable[[Any], _T]) -> _T:
        """Make an idempotent call and return its response; retry after transient errors.

        `kind` validates the response or raises UnreachableError, which counts as transient, too.
        """
        pauses = iter((1.0, 4.0))
        while True:
            try:
                return kind(self._call(call))
            except errors.RejectedError as rejected:
                error = errors.map_error(rejected.answer, rejected.call)
                if not rejected.answer.transient:
                    raise error from rejected
            except errors.NoResponseError as missing:
                error = errors.no_response_error(str(missing))
            except UnreachableError as other:
                error = other
            # After the last pause, the flow waits for a longer outage: it checks the run's limits meanwhile.
            pause = next(pauses, None)
            if pause is None:
                raise error
            self._clock.sleep(pause)

    def _call(self, call: VastCall) -> Any:
        """Make a call in its turn and return its JSON; repeat it after HTTP 429, with which Vast did not
        execute it.

        Raises RejectedError, NoResponseError.
        """
        back_off_s: float | None = None
        penalty_s = ROUTES[call.route].penalty_s
        for tries_left in range(_TOO_OFTEN_TRIES, -1, -1):
            with self._limiter.turn(call.route, back_off_s):
                answer = self._exchange(call)
            if 200 <= answer.status < 300:
                return answer.json()
            asked_s = answer.retry_after_s() or 0.0
            if not tries_left or not answer.too_often or asked_s > caps.RETRY_AFTER_S:
                break
            back_off_s, penalty_s = max(penalty_s, asked_s), penalty_s * _TOO_OFTEN_GROWTH
        raise errors.RejectedError(answer, call)

    def _exchange(self, call: VastCall) -> errors.Answer:
        """Send a request, and note for this thread when, and what its answer took."""
        local = self._thread_local
        local.asked_at = self._clock.now()
        budget = ExchangeBudget(
            caps.EXCHANGES["vast"], now=time.monotonic, sender="it", error=errors.NoResponseError
        )
        try:
            answer = self._send()(call, budget)
        finally:
            local.memory = budget.spent_memory
        self.clock_ahead_s = clock_ahead_s(answer.headers.get("Date"), local.asked_at, self._clock.now())
        return answer

    def _send(self) -> Send:
        with self._send_lock:
            if self._cached_send is None:
                self._cached_send = self._connect(self._account)
            return self._cached_send


def clock_ahead_s(date: str | None, asked_at: float, answered_at: float) -> float | None:
    """Return the minimum seconds by which this clock is ahead of a Date header; 0.0 if the delay explains it.

    The header has whole seconds, and was written between request and response. None when it is invalid.
    """
    try:
        server_at = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    # The true offset lies between the two, so a slow answer alone never looks like a wrong clock.
    min_s, max_s = asked_at - (server_at + 1.0), answered_at - server_at
    if abs(max_s) >= caps.CLOCK_AHEAD_S:
        return None
    return 0.0 if min_s <= 0 <= max_s else min_s


def _require_row(answer: Any) -> Any:
    """Return the row, rows or null of an answer about one instance. Raises UnreachableError."""
    row = errors.require_object(answer).get("instances", answer)
    # Only these say whether it exists: anything else must not be taken for its absence.
    if row is answer or not isinstance(row, dict | list | None):
        raise errors.no_response_error("an instance without a row")
    return row


def credit_of(user: Mapping[str, Any]) -> float:
    """Return the credit in an account's row, in USD. Raises ProviderError."""
    credit = user.get("credit")
    if isinstance(credit, int | float) and abs(credit) <= caps.VAST_USD:
        return float(credit)
    raise ProviderError("Vast's response has no valid credit of the account")


def _count(page: Mapping[str, Any], column: str) -> int:
    count = page.get(column)
    return count if isinstance(count, int) else 0
