"""Vast's SDK without its retries, with its errors mapped to a rejection or a missing response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.package_files import install_command
from vastrun.launcher.providers.response_limits import limit_responses
from vastrun.launcher.providers.vast.errors import Answer

if TYPE_CHECKING:
    from vastai import VastAI

_TIMEOUT_S = 30.0
_T = TypeVar("_T")


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
