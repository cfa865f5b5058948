"""The SDK's HTTP client, which hands on every answer to a tape."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from launcher.providers.vast.conformance.tape import Exchange

if TYPE_CHECKING:
    import requests

_LIMIT_HEADERS = ("retry-after", "ratelimit", "x-ratelimit", "x-rate-limit")
_MOST_HEADERS, _MOST_CHARACTERS = 8, 200
_MOST_BYTES = 8 << 20
"""An answer that is longer is noted without its content."""


def record_answers(client: Any, record: Callable[[Exchange], None], now: Callable[[], float]) -> None:
    """Have the SDK's client record each answer, and that there was none. It is the SDK's own otherwise."""
    ask = client._request

    def asked(
        method: str, url: str, headers: Any, json_data: Any = None, timeout: float | None = None
    ) -> Any:
        asked_at = now()
        response: requests.Response | None = None
        try:
            response = ask(method, url, headers, json_data, timeout)
            return response
        finally:
            record(_exchange(method, url, json_data, asked_at, now(), response))

    client._request = asked


def _exchange(
    method: str,
    url: str,
    sent: Any,
    asked_at: float,
    answered_at: float,
    response: requests.Response | None,
) -> Exchange:
    path = urlsplit(url).path.rstrip("/")
    if response is None:
        return Exchange(
            method=method, path=path, asked_at=asked_at, answered_at=answered_at, status=0, sent=sent
        )
    content, is_json = None, False
    if len(response.content) <= _MOST_BYTES:
        with suppress(ValueError, RecursionError):
            content, is_json = json.loads(response.content), True
    return Exchange(
        method=method,
        path=path,
        asked_at=asked_at,
        answered_at=answered_at,
        status=response.status_code,
        content=content,
        is_json=is_json,
        retry_after="Retry-After" in response.headers,
        limits=_limits(response.headers),
        text="" if is_json else response.content[:_MOST_CHARACTERS].decode(errors="replace"),
        date=response.headers.get("Date", "")[:100],
        sent=sent,
    )


def _limits(headers: Mapping[str, str]) -> tuple[str, ...]:
    names = sorted(name.lower() for name in headers if name.lower().startswith(_LIMIT_HEADERS))
    return tuple(names[:_MOST_HEADERS])
