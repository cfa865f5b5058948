"""Mapping of Vast's error responses to vastrun's errors, and the published logs that explain a failure."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any

from vastrun.contract.limited_http import limited_opener
from vastrun.launcher.core import Cause, errors
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast.calls import NEEDED, ROUTES, VastCall


class NoResponseError(Exception):
    """There is no valid response."""


class UnknownRefusalError(errors.ProviderError):
    """Vast refuses a request for a reason that vastrun does not know."""


class RejectedError(Exception):
    """Vast responded to a request with an error."""

    def __init__(self, answer: Answer, call: VastCall) -> None:
        super().__init__(f"HTTP {answer.status} {answer.reason}".strip())
        self.answer, self.call = answer, call


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An HTTP response."""

    status: int
    text: str
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Return the body. Raises NoResponseError when it is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise NoResponseError(f"a response that is not JSON: {self.text[:80]!r}") from error

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The body if it is an object."""
        with suppress(NoResponseError):
            body = self.json()
            return body if isinstance(body, dict) else None
        return None

    @property
    def reason(self) -> str:
        """Vast's message on one short line."""
        body = self.fields
        if body is None:
            return " ".join(self.text.split())[:300]
        # Vast names the reason in any of these, and in `error` often only the kind of it.
        parts = [str(body[key]) for key in ("error", "msg", "message", "detail") if body.get(key)]
        return ": ".join(parts)[:300]

    @property
    def transient(self) -> bool:
        """True when a retry may succeed; 520 and above come from Vast's proxy."""
        return self.status in (408, 500, 502, 503, 504, *range(520, 528))

    @property
    def too_often(self) -> bool:
        """True when Vast asks for a pause, which does not help against the daily quota."""
        return self.status == 429 and "search_quota_exceeded" not in self.text

    def retry_after_s(self) -> float | None:
        """Return the seconds that Vast asks to wait; None when it names none."""
        value = self.headers.get("Retry-After") or (self.fields or {}).get("retry_after")
        try:
            return max(0.0, float(str(value)))
        except ValueError:
            return None


def no_response_error(text: str) -> errors.UnreachableError:
    """Return the error of an API that cannot be reached, so that the state on Vast is unknown."""
    return errors.UnreachableError(
        f"Vast's API does not answer: {text}", hint="look at https://status.vast.ai", cause=Cause.PROVIDER
    )


def map_error(answer: Answer, call: VastCall) -> errors.VastrunError:
    """Return the error for a response to that request: the first match in the table."""
    if (lacking := _LACKING.search(answer.text)) is not None:
        route = ROUTES[call.route]
        right = f"the right {route.right}" if route.right else "a right"
        return errors.AuthError(
            f"the API key lacks {right} for {lacking[1]}, with which vastrun would {route.purpose}",
            hint="vastrun doctor lists the rights that a key needs",
        )
    for statuses, substring, meaning in _TABLE:
        if (not statuses or answer.status in statuses) and substring in answer.text:
            return meaning(answer)
    # About an instance, 404 needs no word: but a page of a gateway is not Vast's answer.
    if answer.status == 404 and call.route in _BY_ID and answer.fields is not None:
        return _gone(answer)
    if answer.transient:
        return no_response_error(f"HTTP {answer.status} {answer.reason}".strip())
    text = f"Vast rejected the request: HTTP {answer.status} {answer.reason}".strip()
    if not answer.reason:
        text += f", without a reason; sent: {call}; received: {answer.text[:200] or 'nothing'}"
    return UnknownRefusalError(text)


def _quota(answer: Answer) -> errors.VastrunError:
    when = "at midnight UTC"
    with suppress(KeyError, TypeError, ValueError, OverflowError, OSError):
        when = (
            f"on {datetime.fromtimestamp(float(answer.headers['X-RateLimit-Reset']), UTC):%d %B at %H:%M} UTC"
        )
    return errors.ProviderError(f"Vast's daily quota of searches is used up; it is renewed {when}")


def _error_maker(
    kind: type[errors.VastrunError], text: str, hint: str = ""
) -> Callable[[Answer], errors.VastrunError]:
    """Return a function that makes an error of that kind. `text`: with `{}` for Vast's message."""
    return lambda answer: kind(text.replace("{}", answer.reason), hint=hint)


_auth = _error_maker(
    errors.AuthError,
    "Vast rejects the API key ({})",
    "export VAST_API_KEY=… with a key from https://cloud.vast.ai/manage-keys/",
)
_denied = _error_maker(
    errors.AuthError,
    "the API key lacks the permission for this ({})",
    f"give it {', '.join(NEEDED)} at https://cloud.vast.ai/manage-keys/",
)
_offer_taken = _error_maker(
    errors.NoOfferError, "the offer is no longer available ({})", "vastrun launch again"
)
_gone = _error_maker(errors.GoneError, "Vast has no such instance")
_credit = _error_maker(
    errors.ProviderError, "the account's credit is too low ({})", "add some at https://cloud.vast.ai/billing/"
)
_spend_rate = _error_maker(
    errors.ProviderError,
    "Vast limits this account's spending per hour ({})",
    "verify the account or rent something cheaper: limits.usd_per_hour",
)
_too_often = _error_maker(
    errors.BusyError,
    "Vast's rate limit is exceeded (HTTP 429 {})",
    "try again in a few minutes; other programs with your key or in your network count, too",
)
_LACKING = re.compile(r"lacks the (api\.[\w.]{1,80}) route access", re.ASCII)
"""Text of HTTP 401 for a key that may do other things; any other 401 is about the whole key."""
_BY_ID = ("show", "destroy", "bid", "attach key", "logs", "schedule", "unschedule")
_TABLE: tuple[tuple[tuple[int, ...], str, Callable[[Answer], errors.VastrunError]], ...] = (
    # status          text                     meaning
    ((403,), "permission", _denied),
    ((), "auth_error", _auth),
    ((), "Invalid user key", _auth),
    ((401,), "", _auth),
    ((), "search_quota_exceeded", _quota),
    ((), "insufficient_credit", _credit),
    ((), "spend_rate_limit", _spend_rate),
    ((429,), "", _too_often),
    ((400,), "invalid_token", lambda _: no_response_error("its list changed while it was read")),
    ((), "no_such_ask", _offer_taken),
    # Whatever is wrong with the named offer, such as "is not your own", the next one may do.
    ((), '"ask_id"', _offer_taken),
    ((409, 410), "longer available", _offer_taken),
    ((404,), "no_such_instance", _gone),
    ((404,), "not_found", _gone),
    ((403,), "", _denied),
)
"""Texts precede status codes: Vast sends 404 for a bad key, and 400, 404 or 410 for an offer that is gone."""


def require_object(answer: Any) -> Mapping[str, Any]:
    """Return the response if it is an object. Raises UnreachableError."""
    if not isinstance(answer, dict):
        raise no_response_error(f"a {type(answer).__name__} instead of an object")
    return answer


def require_list(answer: Any) -> list[Any]:
    """Return the response if it is a list. Raises UnreachableError."""
    if not isinstance(answer, list):
        raise no_response_error(f"a {type(answer).__name__} instead of a list")
    return answer


def fetch_log(request: Callable[[], Mapping[str, Any]], within_s: float) -> str:
    """Return the text at the `result_url` that `request` answers with.

    Raises UnreachableError after `within_s` seconds, and abandons the request: one that hangs must not delay
    the destruction of the machine.
    """
    abandoned = threading.Event()
    found: list[str] = []
    failed: list[errors.VastrunError] = []

    def fetch() -> None:
        try:
            found.append(_poll_log(request(), abandoned))
        except errors.VastrunError as error:
            failed.append(error)

    # A thread, as a read of a slow host cannot be cancelled; a daemon, so that the launcher can still exit.
    thread = threading.Thread(target=fetch, name="host log", daemon=True)
    thread.start()
    thread.join(within_s)
    abandoned.set()
    if found:
        return found[0]
    raise failed[0] if failed else no_response_error(f"no log of the host within {within_s:.0f} s")


def _poll_log(answer: Mapping[str, Any], abandoned: threading.Event) -> str:
    url = answer.get("result_url")
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise no_response_error("a log without its address")
    while not abandoned.is_set():
        text = _read(url, abandoned)
        if text is not None:
            return text
        abandoned.wait(0.3)
    raise no_response_error("a log that came too late")


def _read(url: str, abandoned: threading.Event) -> str | None:
    """Return the start of the file at the URL; None while it does not exist."""
    content = bytearray()
    try:
        with limited_opener(10.0) as opener, opener.open(url, timeout=2.0) as response:
            while (part := response.read1(1 << 12)) and not abandoned.is_set():
                content += part
                if len(content) >= caps.VAST_LOG_BYTES:
                    break
    except (OSError, HTTPException, ValueError):
        return None
    return content[: caps.VAST_LOG_BYTES].decode(errors="replace")
