"""Team world: runs with several nodes on computers that share a PostgreSQL database, and nothing else."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

from tests.launcher.node_world import NodeWorld
from vastrun.launcher.ledger.sql import SqlLedger

DESK = "desk"


class TeamWorld(NodeWorld):
    """Use it in a `with`. The launch is on the desk, of which nobody hears once its launcher was killed."""

    def __init__(self, folder: Path, url: str, *, lease_s: float = -1.0, **job: Any) -> None:
        """`lease_s`: for so long the others take the desk's launchers to live."""
        self._url, self._lease_s = url, lease_s
        self._ledgers: dict[str, SqlLedger] = {}
        self._open = ExitStack()
        super().__init__(folder, **job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def opened(self) -> SqlLedger:
        return self.ledger_on(DESK)

    def ledger_on(self, computer: str) -> SqlLedger:
        """The ledger, by connections of that computer's own."""
        if computer not in self._ledgers:
            self._ledgers[computer] = self._open.enter_context(closing(self._joined(computer)))
        return self._ledgers[computer]

    def _joined(self, computer: str) -> SqlLedger:
        from tests.launcher.ledger.computers import ledger_of

        def lives(who: str) -> bool | None:
            return who not in self.dead if who.startswith(f"{computer}:") else None

        lease = {"heartbeat_timeout_s": self._lease_s} if computer == DESK else {}
        return ledger_of(computer, self._url, now=self.time.now, alive_here=lives, **lease)
