"""Vast's API through its own SDK: polite, and patient where a call is safe to repeat."""

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
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast.credentials import VastAccount
from vastrun.launcher.providers.vast.host_log import text_of
from vastrun.launcher.providers.vast.instance_row import id_of, rows_in
from vastrun.launcher.providers.vast.limits import Limiter
from vastrun.launcher.providers.vast.refusals import Answer, error_of, list_of, object_of, silent
from vastrun.launcher.providers.vast.sdk import NoAnswerError, RefusedError, asked_once, json_of, make_sdk

if TYPE_CHECKING:
    from vastai import VastAI

    from vastrun.launcher.providers.vast.conformance.recorder import Exchange

_PAUSES_S = (1.0, 4.0)
_BACK_OFF_S = (5.0, 15.0, 45.0)
_PAGE = 25
_CHARGES_PAGE = 100
_LOG_LINES, _HOST_LOG_LINES = "5000", "100"
_LOG_S = 15.0
_T = TypeVar("_T")


class VastApi:
    """The calls that the provider needs. Each returns Vast's JSON, or raises one of our errors."""

    def __init__(self, account: VastAccount, limiter: Limiter, clock: Clock) -> None:
        self._account = account
        self._limiter = limiter
        self._clock = clock
        self._made: VastAI | None = None
        self._making = threading.Lock()
        self._of_thread = threading.local()
        """Time and budget of the thread's last call."""
        self._record: Callable[[Exchange], None] | None = None

    @property
    def server(self) -> str:
        """Its address."""
        return self._account.server

    def record(self, record: Callable[[Exchange], None]) -> None:
        """Hand on every answer from now on."""
        with self._making:
            self._record, self._made = record, None

    def with_key(self, key: str) -> VastApi:
        """Return the same API for another key, in the same queues."""
        other = VastApi(replace(self._account, key=key), self._limiter, self._clock)
        other._record = self._record
        return other

    def once(self, endpoint: str, *calls: Callable[[VastAI], object], pause_s: float = 0.0) -> None:
        """Make calls in one turn, `pause_s` apart, each once; what comes of them is for who records."""
        sdk = self._sdk()
        with self._limiter.turn(endpoint):
            for number, call in enumerate(calls):
                if number:
                    self._clock.sleep(pause_s)
                self._of_thread.budget = _call_budget()
                with suppress(RefusedError, NoAnswerError):
                    asked_once(partial(call, sdk))

    @property
    def asked_at(self) -> float:
        """When this thread's last call was made: its turn may have come long after it was wanted."""
        return getattr(self._of_thread, "asked_at", 0.0)

    @asked_at.setter
    def asked_at(self, moment: float) -> None:
        self._of_thread.asked_at = moment

    def search(
        self, query: Mapping[str, Any], *, kind: str, disk_gb: float, order: str, limit: int | None = None
    ) -> list[Any]:
        """Return offers, at most one page of them: no page leads to the next.

        `order`: a column and its direction, as `dph_total asc`. `limit`: None is Vast's own, 64.
        """

        asked = {"query": dict(query), "type": kind, "order": order, "limit": limit, "storage": disk_gb}
        return self.repeat("search", lambda sdk: sdk.search_offers(**asked, no_default=True), list_of)

    def create(self, offer_id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rent. Raises UncertainError when a machine may exist: this call alone is not safe to repeat."""
        try:
            answer = self._answer("create", lambda sdk: sdk.create_instance(id=int(offer_id), **request))
        except RefusedError as refused:
            # A 5xx may come after the machine was made; only a refusal says that there is none.
            if refused.answer.transient:
                raise UncertainError(f"Vast failed while it rented: {refused}") from refused
            raise error_of(refused.answer) from refused
        except NoAnswerError as missing:
            raise UncertainError(f"Vast did not say whether it rented: {missing}") from missing
        if not isinstance(answer, dict):
            raise UncertainError("Vast did not say whether it rented: its answer is no object")
        return answer

    def instances(self) -> list[Any]:
        """List every instance of the account: all pages, or an error.

        `asked_at` is then of the first page.
        """

        def list_from(token: str | None, sdk: VastAI) -> Any:
            request = {"order_by": [{"col": "id", "dir": "asc"}], "limit": _PAGE}
            return sdk.show_instances_v1(request | ({"after_token": token} if token else {}))

        rows: list[Any] = []
        asked_at: float | None = None
        # Pages are read one after the other. Absence counts from the first: it is the oldest.
        for page in self._pages("list", list_from, "instances"):
            asked_at = self.asked_at = self.asked_at if asked_at is None else asked_at
            rows += rows_in(page["instances"])
            counted = min(_count(page, "instances_found"), _count(page, "total_instances"))
        # A list that is shorter than it says lacks machines: none of them may be taken for gone.
        if len(rows) < counted:
            raise silent(f"a list of {len(rows)} instances that counts {counted}")
        return rows

    def charges(self, since: float, until: float) -> list[Any]:
        """Return what was charged on the days between: all that is settled, or an error."""
        request = {"charges": True, "start_date": int(since), "end_date": int(until), "limit": _CHARGES_PAGE}

        def list_from(token: str | None, sdk: VastAI) -> Any:
            return sdk.show_invoices_v1(**request, next_token=token)

        return [row for page in self._pages("charges", list_from, "results") for row in page["results"]]

    def instance(self, instance_id: str) -> Any:
        """Return one instance's row; None when there is no such instance.

        Vast's own tester takes the row also as a list, or as an object of rows.
        """
        path, query = f"/instances/{int(instance_id)}/", {"owner": "me"}
        try:
            # The SDK's own show_instance fails on a row without start_date or extra_env.
            answer = self.repeat(
                "show", lambda sdk: json_of(sdk.client.get(path, query_args=query)), object_of
            )
        except GoneError:
            return None
        if "instances" not in answer:
            raise silent("an instance without a row")
        rows = rows_in(answer["instances"])
        found = next((row for row in rows if id_of(row) == str(int(instance_id))), None)
        if rows and found is None:
            raise silent(f"not the row of instance {instance_id}")
        return found

    def destroy(self, instance_id: str) -> None:
        """Ask Vast to end the instance. Returns when it agreed. Raises GoneError when there is none."""
        answer = self.repeat("destroy", lambda sdk: sdk.destroy_instance(id=int(instance_id)), object_of)
        if answer.get("success") is False:
            said = answer.get("msg") or answer.get("error")
            raise ProviderError(f"Vast does not destroy {instance_id}: {said}")

    def credit_usd(self) -> float:
        """Return the dollars left on the account."""
        return credit_of(self.account()[0])

    def account(self) -> tuple[Mapping[str, Any], str | None]:
        """Return the account's row, and the answer's Date header."""

        def show(sdk: VastAI) -> Any:
            # The SDK's own show_user does not hand on the header.
            answer = sdk.client.get("/users/current")
            return json_of(answer), answer.headers.get("Date")

        return self.repeat("account", show, lambda answer: (object_of(answer[0]), answer[1]))

    def hosted_machines(self) -> None:
        """Check that the key may read the machines that the account lets; raises AuthError when not."""
        self.repeat("account", lambda sdk: sdk.show_machines(), lambda answer: answer)

    def attach_key(self, instance_id: str, public_key: str) -> None:
        """Let the owner of that SSH key into the instance."""
        number = int(instance_id)
        self.repeat(
            "attach key",
            lambda sdk: sdk.attach_ssh(instance_id=number, ssh_key=public_key),
            lambda answer: answer,
        )

    def overlays(self) -> list[Any]:
        """List every overlay network of the account."""
        return self.repeat("overlay", lambda sdk: sdk.show_overlays(), list_of)

    def create_overlay(self, name: str, cluster: str) -> None:
        """Make an overlay network on a cluster. Asked once: the list tells what came of it."""
        self._ask_once("overlay", lambda sdk: sdk.create_overlay(int(cluster), name))

    def delete_overlay(self, name: str) -> None:
        """Ask for the network's end, and for that of every instance on it. Asked once, as above."""
        self._ask_once("overlay", lambda sdk: sdk.delete_overlay(name))

    def log(self, instance_id: str, containing: str) -> str:
        """Return the lines of the container's log with that text. Asked for once: it takes its time."""
        return self._log(instance_id, {"filter": containing, "tail": _LOG_LINES}, _LOG_S)

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the last lines that the host's daemon logged for the instance.

        Raises UnreachableError when the log is not there within `within_s` seconds.
        """
        return self._log(instance_id, {"daemon_logs": "true", "tail": _HOST_LOG_LINES}, within_s)

    def _log(self, instance_id: str, body: Mapping[str, str], within_s: float) -> str:
        def request(sdk: VastAI) -> Any:
            # The SDK's own logs() waits longer than a machine should that is to be destroyed, without bounds.
            return json_of(sdk.client.put(f"/instances/request_logs/{int(instance_id)}/", json_data=body))

        return text_of(lambda: object_of(self._ask_once("logs", request)), within_s)

    def _ask_once(self, endpoint: str, call: Callable[[VastAI], _T]) -> _T:
        """The answer to a call that is not repeated."""
        try:
            return self._answer(endpoint, call)
        except RefusedError as refused:
            raise error_of(refused.answer) from refused
        except NoAnswerError as missing:
            raise silent(str(missing)) from missing

    def _pages(
        self, endpoint: str, list_from: Callable[[str | None, VastAI], Any], rows: str
    ) -> Iterator[Mapping[str, Any]]:
        """Every page of a list, each with its rows under that name."""
        token: str | None = None
        budget = ExchangeBudget(caps.EXCHANGES["vast list"], now=time.monotonic, sender="it", error=silent)
        while True:
            answer = self.repeat(endpoint, partial(list_from, token), object_of)
            if answer.get("success") is False or not isinstance(answer.get(rows), list | dict):
                raise silent(f"a list of {rows} without its rows")
            budget.spend(items=max(1, len(answer[rows])), memory=self._of_thread.budget.spent_memory)
            yield answer
            former, token = token, answer.get("next_token")
            if not token:
                return
            # A token that repeats itself would page for ever.
            if token == former:
                raise silent(f"a list of {rows} without an end")

    def repeat(self, endpoint: str, call: Callable[[VastAI], Any], kind: Callable[[Any], _T]) -> _T:
        """Return the answer to a call that is safe to repeat; asked again after a fault that passes.

        `kind` returns the answer as what it should be, or raises UnreachableError: that is such a fault, too.
        """
        pauses = iter(_PAUSES_S)
        while True:
            try:
                answer = self._answer(endpoint, call)
            except RefusedError as refused:
                error = error_of(refused.answer)
                if not refused.answer.transient:
                    raise error from refused
            except NoAnswerError as missing:
                error = silent(str(missing))
            else:
                try:
                    return kind(answer)
                except UnreachableError as other:
                    error = other
            # Out of pauses: what is down for longer is for the flow to wait for, which looks at the limits
            # meanwhile.
            pause = next(pauses, None)
            if pause is None:
                raise error
            self._clock.sleep(pause)

    def _answer(self, endpoint: str, call: Callable[[VastAI], _T]) -> _T:
        """The answer to one call, in its turn. One that came too often was not carried out: asked again."""
        sdk = self._sdk()  # brings requests along, or says what is missing
        pauses = iter(_BACK_OFF_S)
        refused_s: float | None = None
        while True:
            with self._limiter.turn(endpoint, refused_s):
                self.asked_at = self._clock.now()
                self._of_thread.budget = _call_budget()
                try:
                    return asked_once(partial(call, sdk))
                except RefusedError as refused:
                    refused_s = _pause_after(refused.answer, next(pauses, None))
                    if refused_s is None:
                        raise

    def _budget(self) -> ExchangeBudget:
        """The budget of the call that this thread makes."""
        return getattr(self._of_thread, "budget", None) or _call_budget()

    def _sdk(self) -> VastAI:
        with self._making:
            if self._made is None:
                self._made = make_sdk(self._account.key, self._account.server, self._budget)
                if self._record is not None:
                    from vastrun.launcher.providers.vast.conformance.recorder import record_answers

                    record_answers(self._made.client, self._record, self._clock.now)
            return self._made


def _call_budget() -> ExchangeBudget:
    return ExchangeBudget(caps.EXCHANGES["vast"], now=time.monotonic, sender="it", error=NoAnswerError)


def credit_of(user: Mapping[str, Any]) -> float:
    """Return the dollars left on the account, by its row. Raises ProviderError."""
    credit = user.get("credit")
    if isinstance(credit, int | float) and abs(credit) <= caps.VAST_USD:
        return float(credit)
    raise ProviderError("Vast does not say how much credit the account has")


def _pause_after(answer: Answer, usual_s: float | None) -> float | None:
    """How long to wait before the same call is made once more; None: it is not."""
    asked_s = answer.retry_after_s() or 0.0
    if usual_s is None or not answer.too_often or asked_s > caps.RETRY_AFTER_S:
        return None
    return max(usual_s, asked_s)


def _count(page: Mapping[str, Any], column: str) -> int:
    count = page.get(column)
    return count if isinstance(count, int) else 0
