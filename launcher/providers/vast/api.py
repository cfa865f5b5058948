"""Client of Vast's API through its SDK: rate-limited, with retries of calls that are safe to repeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast.errors import (
    Answer,
    fetch_log,
    map_error,
    no_response_error,
    require_list,
    require_object,
)
from vastrun.launcher.providers.vast.instance_row import id_of, rows_in
from vastrun.launcher.providers.vast.limits import Limiter
from vastrun.launcher.providers.vast.sdk import (
    NoResponseError,
    RejectedError,
    VastAccount,
    call_sdk,
    json_of,
    make_sdk,
)

if TYPE_CHECKING:
    from vastai import VastAI

    from vastrun.launcher.providers.vast.conformance.recorder import Exchange

_RETRY_PAUSES_S = (1.0, 4.0)
# Vast documents no Retry-After for HTTP 429; where one is sent, it counts.
_BACK_OFF_S = (5.0, 15.0, 45.0)
_PAGE = 25  # the most that Vast puts on a page of instances
_CHARGES_PAGE = 100
_LOG_LINES, _HOST_LOG_LINES = "5000", "100"
_LOG_TIMEOUT_S = 15.0
_T = TypeVar("_T")


class VastApi:
    """The API calls that the provider needs. Each returns Vast's JSON or raises a VastrunError."""

    def __init__(self, account: VastAccount, limiter: Limiter, clock: Clock) -> None:
        self._account = account
        self._limiter = limiter
        self._clock = clock
        self._cached_sdk: VastAI | None = None
        self._sdk_lock = threading.Lock()
        self._thread_local = threading.local()
        """Time and budget of the thread's last call."""
        self._record: Callable[[Exchange], None] | None = None

    @property
    def server(self) -> str:
        """URL of the server."""
        return self._account.server

    def record(self, record: Callable[[Exchange], None]) -> None:
        """Pass every response to `record` from now on."""
        with self._sdk_lock:
            self._record, self._cached_sdk = record, None

    def with_key(self, key: str) -> VastApi:
        """Return a client for another key with the same rate limits."""
        other = VastApi(replace(self._account, key=key), self._limiter, self._clock)
        other._record = self._record
        return other

    def once(self, endpoint: str, *calls: Callable[[VastAI], object], pause_s: float = 0.0) -> None:
        """Make calls in one turn, `pause_s` apart, without retries; only the recorder gets results."""
        sdk = self._sdk()
        with self._limiter.turn(endpoint):
            for number, call in enumerate(calls):
                if number:
                    self._clock.sleep(pause_s)
                self._thread_local.budget = _call_budget()
                with suppress(RejectedError, NoResponseError):
                    call_sdk(partial(call, sdk))

    @property
    def asked_at(self) -> float:
        """Time of this thread's last call, which may have waited long for its turn."""
        return getattr(self._thread_local, "asked_at", 0.0)

    @asked_at.setter
    def asked_at(self, moment: float) -> None:
        self._thread_local.asked_at = moment

    def search(
        self, query: Mapping[str, Any], *, kind: str, disk_gb: float, order: str, limit: int | None = None
    ) -> list[Any]:
        """Return one page of offers: Vast's search has no further pages.

        `order`: a column and its direction, such as `dph_total asc`. `limit`: None: Vast's default, 64.
        """

        asked = {"query": dict(query), "type": kind, "order": order, "limit": limit, "storage": disk_gb}
        return self.repeat("search", lambda sdk: sdk.search_offers(**asked, no_default=True), require_list)

    def create(self, offer_id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rent. Raises UncertainError when a machine may exist: this call alone is not safe to repeat."""
        try:
            answer = self._call("create", lambda sdk: sdk.create_instance(id=int(offer_id), **request))
        except RejectedError as rejected:
            # A 5xx may follow the creation of the machine; only a rejection means that there is none.
            if rejected.answer.transient:
                raise UncertainError(f"Vast failed during the order: {rejected}") from rejected
            raise map_error(rejected.answer) from rejected
        except NoResponseError as missing:
            raise UncertainError(f"no response to the order; rental state unknown: {missing}") from missing
        if not isinstance(answer, dict):
            raise UncertainError("malformed response; rental state unknown")
        return answer

    def instances(self) -> list[Any]:
        """List all instances of the account: all pages or an error.

        `asked_at` is that of the first page.
        """

        def list_from(token: str | None, sdk: VastAI) -> Any:
            request = {"order_by": [{"col": "id", "dir": "asc"}], "limit": _PAGE}
            return sdk.show_instances_v1(request | ({"after_token": token} if token else {}))

        rows: list[Any] = []
        asked_at: float | None = None
        # Absence counts from the first page, the oldest one.
        for page in self._pages("list", list_from, "instances"):
            asked_at = self.asked_at = self.asked_at if asked_at is None else asked_at
            rows += rows_in(page["instances"])
            counted = min(_count(page, "instances_found"), _count(page, "total_instances"))
        # A list shorter than its count lacks machines, and these must not count as gone.
        if len(rows) < counted:
            raise no_response_error(f"a list of {len(rows)} instances that counts {counted}")
        return rows

    def charges(self, since: float, until: float) -> list[Any]:
        """Return all settled charges of the days between `since` and `until`, or raise."""
        request = {"charges": True, "start_date": int(since), "end_date": int(until), "limit": _CHARGES_PAGE}

        def list_from(token: str | None, sdk: VastAI) -> Any:
            return sdk.show_invoices_v1(**request, next_token=token)

        return [row for page in self._pages("charges", list_from, "results") for row in page["results"]]

    def instance(self, instance_id: str) -> Any:
        """Return one instance's row; None when it does not exist.

        Vast's own test tool also accepts a list, or an object of rows.
        """
        path, query = f"/instances/{int(instance_id)}/", {"owner": "me"}
        try:
            # The SDK's own show_instance fails on a row without start_date or extra_env.
            answer = self.repeat(
                "show", lambda sdk: json_of(sdk.client.get(path, query_args=query)), _require_row
            )
        except GoneError:
            return None
        rows = rows_in(answer)
        found = next((row for row in rows if id_of(row) == str(int(instance_id))), None)
        if rows and found is None:
            raise no_response_error(f"not the row of instance {instance_id}")
        return found

    def destroy(self, instance_id: str) -> None:
        """Destroy the instance; return once Vast accepted. Raises GoneError when it does not exist."""
        answer = self.repeat("destroy", lambda sdk: sdk.destroy_instance(id=int(instance_id)), require_object)
        if answer.get("success") is False:
            reason = answer.get("msg") or answer.get("error")
            raise ProviderError(f"Vast did not destroy {instance_id}: {reason}")

    def credit_usd(self) -> float:
        """Return the account's credit in USD."""
        return credit_of(self.account()[0])

    def account(self) -> tuple[Mapping[str, Any], str | None]:
        """Return the account's row and the Date header of the response."""

        def show(sdk: VastAI) -> Any:
            # The SDK's show_user drops the header.
            answer = sdk.client.get("/users/current")
            return json_of(answer), answer.headers.get("Date")

        return self.repeat("account", show, lambda answer: (require_object(answer[0]), answer[1]))

    def hosted_machines(self) -> None:
        """Check that the key may read machines hosted by the account. Raises AuthError."""
        self.repeat("account", lambda sdk: sdk.show_machines(), lambda answer: answer)

    def attach_key(self, instance_id: str, public_key: str) -> None:
        """Authorize the SSH key on the instance."""
        number = int(instance_id)
        self.repeat(
            "attach key",
            lambda sdk: sdk.attach_ssh(instance_id=number, ssh_key=public_key),
            lambda answer: answer,
        )

    def overlays(self) -> list[Any]:
        """List all overlay networks of the account."""
        return self.repeat("overlay", lambda sdk: sdk.show_overlays(), require_list)

    def create_overlay(self, name: str, cluster: str) -> None:
        """Create an overlay network on a cluster. No retry: the list shows the result."""
        self._call_once("overlay", lambda sdk: sdk.create_overlay(int(cluster), name))

    def delete_overlay(self, name: str) -> None:
        """Delete the network and all instances on it. No retry, as above."""
        self._call_once("overlay", lambda sdk: sdk.delete_overlay(name))

    def log(self, instance_id: str, containing: str) -> str:
        """Return the lines of the container's log with that text. No retry, since a call takes seconds."""
        return self._log(instance_id, {"filter": containing, "tail": _LOG_LINES}, _LOG_TIMEOUT_S)

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the last lines of the host daemon's log of the instance.

        Raises UnreachableError when the log does not arrive within `within_s` seconds.
        """
        return self._log(instance_id, {"daemon_logs": "true", "tail": _HOST_LOG_LINES}, within_s)

    def _log(self, instance_id: str, body: Mapping[str, str], within_s: float) -> str:
        def request(sdk: VastAI) -> Any:
            # The SDK's logs() waits without a limit, while a machine that should be destroyed costs money.
            return json_of(sdk.client.put(f"/instances/request_logs/{int(instance_id)}/", json_data=body))

        return fetch_log(lambda: require_object(self._call_once("logs", request)), within_s)

    def _call_once(self, endpoint: str, call: Callable[[VastAI], _T]) -> _T:
        """Make a call without retries and return its response."""
        try:
            return self._call(endpoint, call)
        except RejectedError as rejected:
            raise map_error(rejected.answer) from rejected
        except NoResponseError as missing:
            raise no_response_error(str(missing)) from missing

    def _pages(
        self, endpoint: str, list_from: Callable[[str | None, VastAI], Any], rows: str
    ) -> Iterator[Mapping[str, Any]]:
        """Yield all pages of a list; `rows`: name of the field with the rows."""
        token: str | None = None
        budget = ExchangeBudget(
            caps.EXCHANGES["vast list"], now=time.monotonic, sender="it", error=no_response_error
        )
        while True:
            answer = self.repeat(endpoint, partial(list_from, token), require_object)
            if answer.get("success") is False or not isinstance(answer.get(rows), list | dict):
                raise no_response_error(f"a list of {rows} without its rows")
            budget.spend(items=max(1, len(answer[rows])), memory=self._thread_local.budget.spent_memory)
            yield answer
            former, token = token, answer.get("next_token")
            if not token:
                return
            # A repeated token would page forever.
            if token == former:
                raise no_response_error(f"a list of {rows} without an end")

    def repeat(self, endpoint: str, call: Callable[[VastAI], Any], kind: Callable[[Any], _T]) -> _T:
        """Make an idempotent call and return its response; retry after transient errors.

        `kind` validates the response or raises UnreachableError, which counts as transient, too.
        """
        pauses = iter(_RETRY_PAUSES_S)
        while True:
            try:
                answer = self._call(endpoint, call)
            except RejectedError as rejected:
                error = map_error(rejected.answer)
                if not rejected.answer.transient:
                    raise error from rejected
            except NoResponseError as missing:
                error = no_response_error(str(missing))
            else:
                try:
                    return kind(answer)
                except UnreachableError as other:
                    error = other
            # After the last pause, the flow waits for a longer outage: it checks the run's limits meanwhile.
            pause = next(pauses, None)
            if pause is None:
                raise error
            self._clock.sleep(pause)

    def _call(self, endpoint: str, call: Callable[[VastAI], _T]) -> _T:
        """Make a call in its turn; repeat it after HTTP 429, with which Vast did not execute it."""
        sdk = self._sdk()  # first, since it raises UsageError for a missing package
        pauses = iter(_BACK_OFF_S)
        back_off_s: float | None = None
        while True:
            with self._limiter.turn(endpoint, back_off_s):
                self.asked_at = self._clock.now()
                self._thread_local.budget = _call_budget()
                try:
                    return call_sdk(partial(call, sdk))
                except RejectedError as rejected:
                    back_off_s = _pause_after(rejected.answer, next(pauses, None))
                    if back_off_s is None:
                        raise

    def _budget(self) -> ExchangeBudget:
        """Return the budget of this thread's call."""
        return getattr(self._thread_local, "budget", None) or _call_budget()

    def _sdk(self) -> VastAI:
        with self._sdk_lock:
            if self._cached_sdk is None:
                self._cached_sdk = make_sdk(self._account.key, self._account.server, self._budget)
                if self._record is not None:
                    from vastrun.launcher.providers.vast.conformance.recorder import record_answers

                    record_answers(self._cached_sdk.client, self._record, self._clock.now)
            return self._cached_sdk


def _call_budget() -> ExchangeBudget:
    return ExchangeBudget(caps.EXCHANGES["vast"], now=time.monotonic, sender="it", error=NoResponseError)


def _require_row(answer: Any) -> Any:
    """Return the row, rows or null of an answer about one instance. Raises UnreachableError."""
    row = require_object(answer).get("instances", answer)
    # Only these say whether it exists: anything else must not be taken for its absence.
    if row is answer or not isinstance(row, dict | list | None):
        raise no_response_error("an instance without a row")
    return row


def credit_of(user: Mapping[str, Any]) -> float:
    """Return the credit in an account's row, in USD. Raises ProviderError."""
    credit = user.get("credit")
    if isinstance(credit, int | float) and abs(credit) <= caps.VAST_USD:
        return float(credit)
    raise ProviderError("Vast's response has no valid credit of the account")


def _pause_after(answer: Answer, usual_s: float | None) -> float | None:
    """Return the seconds before the call is repeated; None when it should not be."""
    asked_s = answer.retry_after_s() or 0.0
    if usual_s is None or not answer.too_often or asked_s > caps.RETRY_AFTER_S:
        return None
    return max(usual_s, asked_s)


def _count(page: Mapping[str, Any], column: str) -> int:
    count = page.get(column)
    return count if isinstance(count, int) else 0
