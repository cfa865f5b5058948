"""The SDK's HTTP client, which hands on every answer to a tape."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import requests
from vastai.api.client import VastClient

from launcher.providers.vast.conformance.tape import Exchange

_MOST_BYTES = 8 << 20
"""An answer that is longer is noted without its content."""


class RecordingClient(VastClient):  # type: ignore[misc]
    """`VastClient` itself; each answer is recorded, and so is that there was none."""

    def __init__(
        self, client: VastClient, record: Callable[[Exchange], None], now: Callable[[], float]
    ) -> None:
        super().__init__(client.api_key, client.server_url, client.retry)
        self.timeout = client.timeout
        self._record = record
        self._now = now

    def _request(
        self, method: str, url: str, headers: Any, json_data: Any = None, timeout: float | None = None
    ) -> requests.Response:
        asked_at = self._now()
        response: requests.Response | None = None
        try:
            response = super()._request(method, url, headers, json_data, timeout)
            return response
        finally:
            self._record(_exchange(method, url, json_data, asked_at, self._now(), response))


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
        date=response.headers.get("Date", "")[:100],
        sent=sent,
    )
