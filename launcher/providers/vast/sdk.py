"""Vast's own SDK, made to ask once, and what it answers as an answer, a refusal or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.package_files import install_command
from vastrun.launcher.providers.response_limits import limit_responses
from vastrun.launcher.providers.vast.refusals import Answer

if TYPE_CHECKING:
    from vastai import VastAI

_TIMEOUT_S = 30.0
_T = TypeVar("_T")


class RefusedError(Exception):
    """Vast answered, and it is not a success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status} {answer.reason}".strip())
        self.answer = answer


class NoAnswerError(Exception):
    """There is no answer that can be read."""


def make_sdk(key: str, server: str, budget: Callable[[], ExchangeBudget]) -> VastAI:
    """Return the SDK for that key. `budget`: of the exchange that this thread is at.

    Raises UsageError where it is not installed.
    """
    try:
        from vastai import VastAI
    except ImportError as error:
        raise UsageError(
            "the provider vast needs the package vastai", hint=install_command("vast")
        ) from error
    # One attempt: its own retries may rent twice, and are too quick for Vast's limits.
    sdk = VastAI(api_key=key, server_url=server, retry=1)
    sdk.client.timeout = _TIMEOUT_S
    _count_answers(sdk.client, budget)
    return sdk


def _count_answers(client: Any, budget: Callable[[], ExchangeBudget]) -> None:
    """Have the SDK's client ask as before, with each answer paid for while it arrives."""
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


def asked_once(call: Callable[[], _T]) -> _T:
    """Return what one call of the SDK answers. Raises RefusedError, NoAnswerError."""
    import requests

    try:
        return call()
    except requests.HTTPError as error:
        response = error.response
        if response is None:
            raise NoAnswerError(_in_words(error)) from error
        answer = Answer(status=response.status_code, text=response.text, headers=response.headers)
        raise RefusedError(answer) from error
    except requests.RequestException as error:
        raise NoAnswerError(_in_words(error)) from error
    except KeyError as error:
        raise NoAnswerError(f"an answer without {error}") from error
    except (TypeError, AttributeError, IndexError, ValueError) as error:  # the SDK expects Vast's own types
        raise NoAnswerError(f"an answer that is not valid ({type(error).__name__}: {error})"[:300]) from error
    except TimeoutError as error:  # the SDK's own, of a log that is not ready
        raise NoAnswerError(str(error)) from error


def json_of(response: Any) -> Any:
    """Return what a successful response holds. Raises requests' own errors."""
    response.raise_for_status()
    return response.json()


def _in_words(error: Exception) -> str:
    """The innermost cause: the outer ones repeat the whole request."""
    name, reason = type(error).__name__, error
    while reason.args and isinstance(reason.args[0], Exception):
        reason = reason.args[0]
    return f"{name}: {getattr(reason, 'reason', None) or reason}"[:300]
