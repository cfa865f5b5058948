"""Answers of Vast as others recorded them, and what they mean. Keys and ids of accounts are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.core.errors import (
    AuthError,
    BusyError,
    GoneError,
    NoOfferError,
    ProviderError,
    VastrunError,
)


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """An HTTP answer, and the error that it is; None: a success."""

    body: Mapping[str, Any]
    status: int = 200
    error: type[VastrunError] | None = None
    text: str = ""
    """What the error says of it."""
    retry_after_s: float | None = None


CREATES: Mapping[str, tuple[RecordedAnswer, str]] = {
    # The answer to a create, and the id of the machine that is then rented.
    "granted, 2026-09": (
        RecordedAnswer(body={"success": True, "new_contract": 50504688, "instance_api_key": "REDACTED"}),
        "50504688",
    ),
    # A bid, not granted yet: the machine is followed for a minute.
    "bid pending, 2026-07": (
        RecordedAnswer(body={"success": False, "new_contract": 44743274, "instance_api_key": "REDACTED"}),
        "44743274",
    ),
    # Whatever the words: the next offer may do.
    "no GPU, 200": (
        RecordedAnswer(
            body={"success": False, "msg": "no available gpus"}, error=NoOfferError, text="no available gpus"
        ),
        "",
    ),
    "refused without a word, 200": (
        RecordedAnswer(body={"success": False}, error=NoOfferError, text="without a reason; sent: PUT"),
        "",
    ),
    "offer of the account itself, 403": (
        RecordedAnswer(
            status=403,
            body={
                "success": False,
                "error": "invalid_args",
                "msg": "error 403/3586: Offer 1234567 is not your own.",
                "ask_id": 1234567,
            },
            error=NoOfferError,
            text="is not your own",
        ),
        "",
    ),
    "offer gone, two spaces": (
        RecordedAnswer(
            status=400,
            body={
                "success": False,
                "error": "invalid_args",
                "msg": "error 404/3603: no_such_ask  Instance type by id 7 is not available.",
                "ask_id": 7,
            },
            error=NoOfferError,
            text="Instance type by id 7 is not available",
        ),
        "",
    ),
    "no credit, 2026-09": (
        RecordedAnswer(
            status=400,
            body={"error": "insufficient_credit", "msg": "Your account lacks credit; see the billing page."},
            error=ProviderError,
            text="credit is too low",
        ),
        "",
    ),
    "offer gone": (
        RecordedAnswer(
            status=400,
            body={
                "success": False,
                "error": "invalid_args",
                "msg": "error 404/3603: no_such_ask Instance type by id 200 is not available.",
                "ask_id": 200,
            },
            error=NoOfferError,
            text="Instance type by id 200 is not available",
        ),
        "",
    ),
}

REFUSALS: Mapping[str, RecordedAnswer] = {
    "429, JSON": RecordedAnswer(
        status=429,
        body={"error": "rate_limit_exceeded", "msg": "API requests too frequent endpoint threshold=3.0"},
        error=BusyError,
        text="endpoint threshold=3.0",
    ),
    "429, detail": RecordedAnswer(
        status=429,
        body={"detail": "API requests too frequent endpoint threshold=1.8"},
        error=BusyError,
        text="endpoint threshold=1.8",
    ),
    "429, retry_after in the body": RecordedAnswer(
        status=429,
        body={"error": "rate_limit_exceeded", "msg": "API requests too frequent", "retry_after": 1},
        error=BusyError,
        text="API requests too frequent",
        retry_after_s=1.0,
    ),
    # A bad key is a 404, as what does not exist.
    "404, invalid key": RecordedAnswer(
        status=404,
        body={"success": False, "error": "auth_error", "msg": "Invalid user key"},
        error=AuthError,
        text="Invalid user key",
    ),
    "410, deprecated": RecordedAnswer(
        status=410,
        body={
            "success": False,
            "error": "deprecated_endpoint",
            "msg": "/api/v0/instances/ is deprecated. Use /api/v1/instances/ instead.",
        },
        error=ProviderError,
        text="/api/v0/instances/ is deprecated",
    ),
    "404, destroyed": RecordedAnswer(
        status=404,
        body={"success": False, "error": "not_found", "msg": "Instance not found"},
        error=GoneError,
        text="no such instance",
    ),
    "401, no key": RecordedAnswer(
        status=401,
        body={"detail": "Authentication credentials were not provided."},
        error=AuthError,
        text="rejects the API key",
    ),
    "429, quota": RecordedAnswer(
        status=429,
        body={"error": "search_quota_exceeded", "msg": "Daily search quota exceeded."},
        error=ProviderError,
        text="daily quota of searches",
    ),
    "403, permission": RecordedAnswer(
        status=403,
        body={"error": "forbidden", "msg": "permission denied"},
        error=AuthError,
        text="lacks the permission",
    ),
    # A start, 2026-08. Vastrun starts no machine again; its meaning is the same for any request.
    "start refused": RecordedAnswer(
        body={
            "success": False,
            "error": "resources_unavailable",
            "msg": "Required resources are currently unavailable, state change queued.",
        },
        error=ProviderError,
        text="state change queued",
    ),
}

HOST_OFFLINE = RecordedAnswer(
    body={"success": False, "msg": "host offline"}, error=ProviderError, text="host offline"
)
"""To a destroy: the machine is still there, and is asked for again."""

KEY_ATTACHED = RecordedAnswer(body={"success": True, "msg": "SSH key attached successfully"})


@dataclass(frozen=True, kw_only=True)
class RecordedCharge:
    """A charge, and how it is to be read."""

    row: Mapping[str, Any]
    instance_id: str
    label: str
    usd: float
    storage_usd: float
    traffic_usd: float = 0.0
    until: float = 0.0


def _item(kind: str, description: str, usd: float) -> dict[str, Any]:
    day = {"start": 1786924800, "end": 1786924800}
    return {**day, "type": kind, "source": None, "description": description, "amount": usd, "metadata": {}}


CHARGE = RecordedCharge(
    # 2026-08: one row for a day, whose start and end are the same midnight.
    row={
        "source": "instance-47912530",
        "amount": 0.123,
        "description": "Instance 47912530 Charges - 1 day",
        "type": "instance",
        "start": 1786924800,
        "end": 1786924800,
        "items": [
            _item("gpu", "GPU", 0.112),
            _item("disk", "disk", 0.011),
            _item("bwd", "0.0 GB Downloaded", 0.0),
            _item("bwu", "0.0 GB Uploaded", 0.0),
        ],
        "metadata": {"label": "job-a"},
    },
    instance_id="47912530",
    label="job-a",
    usd=0.123,
    storage_usd=0.011,
    until=1786924800.0 + 86400.0,
)
