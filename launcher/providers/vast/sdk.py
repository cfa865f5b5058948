"""Vast's SDK without its retries: credentials, and its errors mapped to a rejection or a missing response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vastrun.launcher.core.addresses import is_private
from vastrun.launcher.core.errors import AuthError, UsageError
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.package_files import install_command
from vastrun.launcher.providers.response_limits import limit_responses
from vastrun.launcher.providers.vast.errors import Answer

if TYPE_CHECKING:
    from vastai import VastAI

_TIMEOUT_S = 30.0
_T = TypeVar("_T")
SERVER = "https://console.vast.ai"


class RejectedError(Exception):
    """Vast responded with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status} {answer.reason}".strip())
        self.answer = answer


class NoResponseError(Exception):
    """There is no valid response."""


def make_sdk(key: str, server: str, budget: Callable[[], ExchangeBudget]) -> VastAI:
    """Return the SDK for that key. `budget`: returns the budget of this thread's exchange.

    Raises UsageError when it is not installed.
    """
    try:
        from vastai import VastAI
    except ImportError as error:
        raise UsageError(
            "the provider vast needs the package vastai", hint=install_command("vast")
        ) from error
    # No retries of the SDK: they may rent twice, and ignore Vast's rate limits.
    sdk = VastAI(api_key=key, server_url=server, retry=1)
    sdk.client.timeout = _TIMEOUT_S
    _limit_responses(sdk.client, budget)
    return sdk


def _limit_responses(client: Any, budget: Callable[[], ExchangeBudget]) -> None:
    """Replace the request method of the SDK's client by one that counts responses against a budget."""
    from requests import Request
    from vastai.api.client import VastSession

    def request(
        method: str, url: str, headers: Any, json_data: Any = None, timeout: float | None = None
    ) -> Any:
        with VastSession(client.server_url) as session:
            limit_responses(session, budget)
            prepared = session.prepare_request(Request(method, url, headers=headers, json=json_data))
            return session.send(prepared, timeout=budget().remaining_s(timeout or client.timeout))

    client._request = request


def call_sdk(call: Callable[[], _T]) -> _T:
    """Make one call of the SDK. Raises RejectedError, NoResponseError."""
    import requests

    try:
        return call()
    except requests.HTTPError as error:
        response = error.response
        if response is None:
            raise NoResponseError(_root_cause(error)) from error
        answer = Answer(status=response.status_code, text=response.text, headers=response.headers)
        raise RejectedError(answer) from error
    except requests.RequestException as error:
        raise NoResponseError(_root_cause(error)) from error
    except KeyError as error:
        raise NoResponseError(f"an answer without {error}") from error
    except (TypeError, AttributeError, IndexError, ValueError) as error:  # of unexpected types
        raise NoResponseError(
            f"an answer that is not valid ({type(error).__name__}: {error})"[:300]
        ) from error
    except TimeoutError as error:  # raised by the SDK for a log that is not ready
        raise NoResponseError(str(error)) from error


def json_of(response: Any) -> Any:
    """Return the JSON of a successful response. Raises errors of `requests`."""
    response.raise_for_status()
    return response.json()


def _root_cause(error: Exception) -> str:
    """Return the text of the innermost error: the outer ones repeat the whole request."""
    name, reason = type(error).__name__, error
    while reason.args and isinstance(reason.args[0], Exception):
        reason = reason.args[0]
    return f"{name}: {getattr(reason, 'reason', None) or reason}"[:300]


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

    def __repr__(self) -> str:
        return f"VastAccount(key=<secret>, server={self.server!r})"
