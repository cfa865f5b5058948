"""Computers of a team, each with a key of its own; those with the same team key drive each other's runs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from vastrun.launcher.ledger.signatures import SignedRows
from vastrun.launcher.ledger.team import PostgresLedger

TEAM_KEY = "k" * 44


def ledger_of(
    computer: str,
    url: str,
    *,
    team: str = TEAM_KEY,
    now: Callable[[], float],
    alive_here: Callable[[str], bool | None] = lambda _: True,
    **options: Any,
) -> PostgresLedger:
    """The ledger as launchers of that computer have it."""
    from vastrun.launcher.ledger.postgres import PostgresDatabase

    db = PostgresDatabase(url, **options.pop("database", {}))
    own = f"key of {computer}".encode()
    rows = partial(SignedRows, computer=lambda: computer, own=lambda: own, team=team)
    return PostgresLedger(db, now=now, alive_here=alive_here, rows=rows, **options).for_drivers()
