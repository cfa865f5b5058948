"""Limits of HTTP responses: bytes and items count against an ExchangeBudget while they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from vastrun.launcher.gate.caps import ExchangeBudget

if TYPE_CHECKING:
    from requests import Response, Session


def count_parts(chunks: Iterable[bytes], budget: ExchangeBudget) -> Iterator[bytes]:
    """Yield the chunks of a JSON response after counting bytes, objects and lists. Raises its error."""
    for chunk in budget.receive(chunks):
        # A parsed object or list takes 60 bytes and more, but only two characters in the response.
        budget.spend(items=chunk.count(b"{") + chunk.count(b"["))
        yield chunk


class _CountedBody:
    """A urllib3 response body that counts its bytes and JSON containers against a budget."""

    def __init__(self, raw: Any, budget: ExchangeBudget) -> None:
        self._raw, self._budget = raw, budget

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        return count_parts(self._raw.stream(*arguments, **options), self._budget)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def limit_responses(session: Session, budget: Callable[[], ExchangeBudget]) -> None:
    """Count the session's responses against a budget: decompressed, redirects included.

    `budget`: returns the budget of the current exchange; an error that it raises ends the read.
    """

    def count(response: Response, **_: Any) -> None:
        response.raw = _CountedBody(response.raw, budget())

    session.hooks["response"].append(count)
