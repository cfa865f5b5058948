"""Both ledgers: a SQLite file, and a database of a real PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vastrun.launcher.ledger.sql import SqlLedger
from vastrun.launcher.ledger.sqlite import SqliteLedger

NOW = 1_000_000.0


class Hands:
    """A clock to turn, a list of the dead, and ledgers that are opened again."""

    now = NOW

    def __init__(self, place: Path | str) -> None:
        """`place`: a SQLite file, or the URL of a database."""
        self.place = place
        self.dead: set[str] = set()
        self._open: list[SqlLedger] = []

    def open(self) -> SqlLedger:
        self._open.append(self._opened())
        return self._open[-1]

    def close(self) -> None:
        for ledger in self._open:
            ledger.close()

    def _opened(self) -> SqlLedger:
        if isinstance(self.place, Path):
            return SqliteLedger(self.place, now=lambda: self.now, alive=lambda who: who not in self.dead)
        from tests.launcher.ledger.computers import ledger_of

        return ledger_of(
            "desk~1", self.place, now=lambda: self.now, alive_here=lambda who: who not in self.dead
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def hands(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hands]:
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    hands = Hands(tmp_path / "state" / "ledger.db" if server is None else server.database())
    yield hands
    hands.close()


@pytest.fixture
def ledger(hands: Hands) -> SqlLedger:
    return hands.open()
