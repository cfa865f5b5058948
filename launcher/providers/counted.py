"""count_answers(): what an HTTP service sends is paid for while it arrives, before anybody reads it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from vastrun.launcher.gate.budget import ExchangeBudget

if TYPE_CHECKING:
    from requests import Response, Session


class _CountedBody:
    """The body of a response, of which each byte is paid for. It is urllib3's own otherwise."""

    def __init__(self, raw: Any, budget: ExchangeBudget) -> None:
        self._raw, self._budget = raw, budget

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        for chunk in self._budget.receive(self._raw.stream(*arguments, **options)):
            # Each takes 60 bytes and more once it is read, and two in the answer.
            self._budget.spend(items=chunk.count(b"{") + chunk.count(b"["))
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def count_answers(session: Session, budget: Callable[[], ExchangeBudget]) -> None:
    """Have the session's answers paid for, unpacked, those of redirections included.

    `budget`: of the exchange that a response belongs to. What it raises ends the reading.
    """

    def count(response: Response, **_: Any) -> None:
        response.raw = _CountedBody(response.raw, budget())

    session.hooks["response"].append(count)
