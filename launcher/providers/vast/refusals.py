"""What Vast's refusals mean: one table from status and text to our errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import (
    AuthError,
    BusyError,
    GoneError,
    NoOfferError,
    ProviderError,
    UnreachableError,
    VastrunError,
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An HTTP answer that is not a success."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        """What Vast says, on one short line."""
        try:
            body = json.loads(self.text)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return " ".join(self.text.split())[:300]
        parts = [str(body[key]) for key in ("error", "msg", "message", "detail") if body.get(key)]
        return ": ".join(parts)[:300]

    @property
    def transient(self) -> bool:
        """True when the same call may well succeed in a moment; from 520 on a proxy speaks for Vast."""
        return self.status in (408, 500, 502, 503, 504, *range(520, 528))

    @property
    def too_often(self) -> bool:
        """True when Vast asks for a pause. A daily quota is another matter: no pause helps."""
        return self.status == 429 and "search_quota_exceeded" not in self.text

    def retry_after_s(self) -> float | None:
        """Return how long Vast asks to wait, where it says so."""
        said: object = self.headers.get("Retry-After")
        if said is None:
            try:
                said = json.loads(self.text)["retry_after"]
            except (ValueError, TypeError, KeyError):
                return None
        try:
            return max(0.0, float(str(said)))
        except ValueError:
            return None


def silent(text: str) -> UnreachableError:
    """Make the error of an API that cannot be reached: what it would have said is not known."""
    return UnreachableError(
        f"Vast's API does not answer: {text}", hint="look at https://status.vast.ai", cause=Cause.PROVIDER
    )


def error_of(answer: Answer) -> VastrunError:
    """Return what the refusal means. The first line of the table that fits says it."""
    for statuses, substring, meaning in _TABLE:
        if (not statuses or answer.status in statuses) and substring in answer.text:
            return meaning(answer)
    if answer.transient:
        return silent(f"HTTP {answer.status} {answer.reason}".strip())
    return ProviderError(f"Vast refused: HTTP {answer.status} {answer.reason}".strip())


def _quota(answer: Answer) -> VastrunError:
    when = "at midnight UTC"
    with suppress(KeyError, ValueError, OverflowError, OSError):
        when = (
            f"on {datetime.fromtimestamp(float(answer.headers['X-RateLimit-Reset']), UTC):%d %B at %H:%M} UTC"
        )
    return ProviderError(f"Vast's daily quota of searches is used up; it is full again {when}")


def _means(kind: type[VastrunError], text: str, hint: str = "") -> Callable[[Answer], VastrunError]:
    """Return what makes an error of that kind. `text`: with `{}` for what Vast says."""
    return lambda answer: kind(text.replace("{}", answer.reason), hint=hint)


_auth = _means(
    AuthError,
    "Vast does not accept the API key ({})",
    "export VAST_API_KEY=… with a key from https://cloud.vast.ai/manage-keys/",
)
_denied = _means(
    AuthError,
    "the API key lacks the permission for this ({})",
    "give it instance_read, instance_write, user_read, billing_read and misc at https://cloud.vast.ai/manage-keys/",
)
_taken = _means(NoOfferError, "the offer is no longer available ({})", "vastrun launch again")
_gone = _means(GoneError, "Vast has no such instance")
_credit = _means(
    ProviderError, "Vast refused for lack of credit ({})", "add some at https://cloud.vast.ai/billing/"
)
_spend_rate = _means(
    ProviderError,
    "Vast limits how much this account may spend an hour ({})",
    "verify the account or rent something cheaper: limits.usd_per_hour",
)
_too_often = _means(
    BusyError,
    "Vast limits how often it may be called (HTTP 429 {})",
    "try again in a few minutes; other programs with your key or in your network count, too",
)
_TABLE: tuple[tuple[tuple[int, ...], str, Callable[[Answer], VastrunError]], ...] = (
    # status          text                     meaning
    ((403,), "permission", _denied),
    ((), "auth_error", _auth),
    ((), "Invalid user key", _auth),
    ((401,), "", _auth),
    ((), "search_quota_exceeded", _quota),
    ((), "insufficient_credit", _credit),
    ((), "spend_rate_limit", _spend_rate),
    ((429,), "", _too_often),
    ((400,), "invalid_token", lambda _: silent("its list changed while it was read")),
    ((), "no_such_ask", _taken),
    ((409, 410), "longer available", _taken),
    ((404,), "no_such_instance", _gone),
    ((404,), "not_found", _gone),
    ((403,), "", _denied),
)
"""The text comes first: Vast answers 404 to a bad key, and 400, 404 or 410 to an offer that is gone."""


def object_of(answer: Any) -> Mapping[str, Any]:
    """Return the answer as an object. Raises UnreachableError."""
    if not isinstance(answer, dict):
        raise silent(f"a {type(answer).__name__} instead of an object")
    return answer


def list_of(answer: Any) -> list[Any]:
    """Return the answer as a list. Raises UnreachableError."""
    if not isinstance(answer, list):
        raise silent(f"a {type(answer).__name__} instead of a list")
    return answer
