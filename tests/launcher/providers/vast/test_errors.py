"""Every refusal of Vast's becomes one of our errors, with its cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vastrun.launcher.core.errors import (
    AuthError,
    BusyError,
    GoneError,
    NoOfferError,
    ProviderError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.providers.vast.errors import Answer, map_error

TAKEN = "error 410/3907: no_such_ask Instance type 5 is no longer available."
MISSING = "error 404/3603: no_such_ask Instance type by id 5 is not available."


def answer(status: int, body: dict[str, Any] | str, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer(status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (403, {"error": "auth_error", "msg": "This action requires login."}, AuthError),
        (404, {"error": "auth_error", "msg": "Invalid user key"}, AuthError),
        (401, "Invalid user key", AuthError),
        (401, {"msg": "Two-factor authentication required"}, AuthError),
        (403, {"error": "permission_denied"}, AuthError),
        (400, {"msg": MISSING}, NoOfferError),
        (404, {"error": "invalid_args", "msg": MISSING}, NoOfferError),
        (410, {"error": "no_such_ask", "msg": TAKEN}, NoOfferError),
        (200, {"success": False, "error": "no_such_ask"}, NoOfferError),
        (409, {"msg": "offer no longer available"}, NoOfferError),
        (404, {"error": "no_such_instance"}, GoneError),
        (404, {"error": "not_found"}, GoneError),
        (429, "API requests too frequent: endpoint threshold=4.5", BusyError),
        (502, "<html>Bad Gateway</html>", UnreachableError),
        (408, "Request Timeout", UnreachableError),
        (520, "<html>Unknown Error</html>", UnreachableError),
        (524, "<html>A timeout occurred</html>", UnreachableError),
        (400, {"error": "insufficient_credit"}, ProviderError),
        (400, {"error": "spend_rate_limit"}, ProviderError),
        (400, {"error": "invalid_price"}, ProviderError),
        (404, "<html>not this page</html>", ProviderError),
    ],
)
def test_a_refusal_is_the_error_that_it_means(
    status: int, body: dict[str, Any] | str, expected: type[VastrunError]
) -> None:
    assert type(map_error(answer(status, body))) is expected


def test_the_daily_quota_says_when_searching_works_again() -> None:
    refusal = answer(429, {"error": "search_quota_exceeded"}, X_RateLimit_Reset="1800057600")
    assert not refusal.too_often
    assert "16 January at 00:00 UTC" in str(map_error(refusal))


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (answer(429, "too frequent", Retry_After="7"), 7.0),
        (answer(429, {"retry_after": 3}), 3.0),
        (answer(429, "API requests too frequent"), None),
        (answer(429, "too frequent", Retry_After="soon"), None),
    ],
)
def test_how_long_to_wait_is_read_from_wherever_it_is_said(refusal: Answer, seconds: float | None) -> None:
    assert refusal.retry_after_s() == seconds


@pytest.mark.parametrize("code", ["insufficient_credit", "spend_rate_limit"])
def test_a_lack_of_money_says_what_to_do(code: str) -> None:
    assert map_error(answer(400, {"error": code})).hint
