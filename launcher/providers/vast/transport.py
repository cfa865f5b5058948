"""Transport of Vast's API: the account's key, and one bounded request, through Vast's SDK or without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

from vastrun.contract.limited_http import NoRedirects, limited_opener
from vastrun.launcher.core.errors import AuthError, UsageError
from vastrun.launcher.core.secrets import is_private
from vastrun.launcher.gate.caps import ExchangeBudget, count_parts, limit_responses
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.errors import Answer, NoResponseError

_TIMEOUT_S = 30.0
SERVER = "https://console.vast.ai"

Send = Callable[[VastCall, ExchangeBudget], Answer]
"""Sends one request, once. Raises NoResponseError, and the error of the budget."""


@dataclass(frozen=True, kw_only=True)
class VastAccount:
    """An API key and its server."""

    key: str = field(repr=False)
    server: str = SERVER
    login: str = "root"
    """User who logs in to machines: root, except for an emulator without root's rights."""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> VastAccount:
        """Read the key from the environment or from the file of Vast's tools. It stays in this process.

        Raises AuthError without a key, UsageError when the server's URL would expose it.
        """
        base = environ.get("XDG_CONFIG_HOME", "")
        folder = Path(base) if base.startswith("/") else Path.home() / ".config"
        file = folder / "vastai" / "vast_api_key"
        key = environ.get("VAST_API_KEY", "").strip()
        with suppress(OSError, UnicodeDecodeError):
            key = key or file.read_text(encoding="utf-8").strip()
        if not key:
            raise AuthError(
                f"no API key for Vast: VAST_API_KEY is not set, and {file} has none",
                hint="export VAST_API_KEY=… with a key from https://cloud.vast.ai/manage-keys/",
            )
        server = environ.get("VAST_URL", "").rstrip("/") or SERVER
        # Checked before any request, since the first one sends the key.
        if not is_private(server):
            raise UsageError(
                f"VAST_URL: expected an address with https://, got {server!r}: "
                "the key would be sent unencrypted",
                hint="unset VAST_URL; http:// is for an emulator on this computer or in its network",
            )
        return cls(key=key, server=server, login=environ.get("VAST_LOGIN", "") or "root")


def connect(account: VastAccount) -> Send:
    """Return the sender of the SDK where it is installed, else vastrun's own."""
    try:
        return sdk_sender(account)
    except ImportError:
        return http_sender(account)


def sdk_sender(account: VastAccount) -> Send:
    """Return a sender through the session of Vast's SDK. Raises ImportError where it is not installed."""
    from requests import RequestException
    from vastai.api.client import VastClient, VastSession

    client = VastClient(account.key, account.server)
    headers = {"Authorization": f"Bearer {client.api_key}", "User-Agent": client.user_agent}

    def send(call: VastCall, budget: ExchangeBudget) -> Answer:
        # Not the client's own requests: they hold a response of any size, and may be repeated.
        with VastSession(client.server_url) as session:
            limit_responses(session, lambda: budget)
            try:
                response = session.request(
                    call.method,
                    client.server_url + call.path,
                    headers=headers,
                    json=call.body,
                    timeout=budget.remaining_s(_TIMEOUT_S),
                )
            except RequestException as error:
                raise NoResponseError(_root_cause(error)) from error
            text = response.content.decode(errors="replace")
            return Answer(status=response.status_code, text=text, headers=response.headers)

    return send


def http_sender(account: VastAccount) -> Send:
    """Return a sender by the standard library."""
    headers = {
        "Authorization": f"Bearer {account.key}",
        "User-Agent": "vastrun",
        "Content-Type": "application/json",
    }

    def send(call: VastCall, budget: ExchangeBudget) -> Answer:
        content = None if call.body is None else json.dumps(call.body).encode()
        request = Request(account.server + call.path, data=content, headers=headers, method=call.method)
        try:
            with limited_opener(budget.remaining_s(), NoRedirects) as opener:
                try:
                    response = opener.open(request, timeout=budget.remaining_s(_TIMEOUT_S))
                except HTTPError as rejection:
                    response = rejection
                with response:
                    chunks = iter(lambda: response.read1(1 << 16), b"")
                    text = b"".join(count_parts(chunks, budget)).decode(errors="replace")
                    return Answer(status=response.status, text=text, headers=response.headers)
        except (OSError, HTTPException) as error:
            raise NoResponseError(_root_cause(error)) from error

    return send


def _root_cause(error: Exception) -> str:
    """Return the text of the innermost error: the outer ones repeat the whole request."""
    name, reason = type(error).__name__, error
    while reason.args and isinstance(reason.args[0], Exception):
        reason = reason.args[0]
    return f"{name}: {getattr(reason, 'reason', None) or reason}"[:300]
