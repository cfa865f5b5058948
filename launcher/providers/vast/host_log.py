"""Logs of a container or its host that Vast publishes, fetched within a time and size limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast.errors import no_response_error

_POLL_INTERVAL_S = 0.3
_READ_TIMEOUT_S = 2.0


def fetch_log(request: Callable[[], Mapping[str, Any]], within_s: float) -> str:
    """Return the text at the `result_url` that `request` answers with.

    Raises UnreachableError after `within_s` seconds, and abandons the request: one that hangs must not delay
    the destruction of the machine.
    """
    abandoned = threading.Event()
    found: list[str] = []
    failed: list[VastrunError] = []

    def fetch() -> None:
        try:
            found.append(_poll_log(request(), abandoned))
        except VastrunError as error:
            failed.append(error)

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
        abandoned.wait(_POLL_INTERVAL_S)
    raise no_response_error("a log that came too late")


def _read(url: str, abandoned: threading.Event) -> str | None:
    """Return the start of the file at the URL; None while it does not exist."""
    import requests

    content = bytearray()
    try:
        with requests.get(url, timeout=_READ_TIMEOUT_S, stream=True) as response:
            if response.status_code != 200:
                return None
            for part in response.iter_content(1 << 12):
                content += part
                if len(content) >= caps.VAST_LOG_BYTES or abandoned.is_set():
                    break
    except requests.RequestException:
        return None
    return content[: caps.VAST_LOG_BYTES].decode(errors="replace")
