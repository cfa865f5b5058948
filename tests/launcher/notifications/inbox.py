"""Inbox: an HTTP server on loopback that keeps the notices it gets."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_servers import QuietHandler, serving
from tests.waiting import LONGEST_S


@dataclass(frozen=True)
class Letter:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Inbox:
    """Answers with `status`, once `open` is set."""

    status: int = 200
    letters: list[Letter] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def events(self) -> list[str]:
        return [letter.document["event"] for letter in self.letters]


@contextmanager
def inbox(status: int = 200, *, slow: bool = False) -> Iterator[Inbox]:
    """A server that answers; a slow one does not while the test lasts."""
    kept = Inbox(status)
    if not slow:
        kept.open.set()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.letters.append(Letter("POST", self.path, dict(self.headers.items()), body))
            kept.open.wait(LONGEST_S)
            self.answer(kept.status, b"", Location="/elsewhere")

        def do_GET(self) -> None:
            kept.letters.append(Letter("GET", self.path, dict(self.headers.items()), b""))
            self.answer(200, b"")

    with serving(Handler) as kept.url:
        yield kept
        kept.open.set()
