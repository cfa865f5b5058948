"""Table of data volumes: name, host, price, creation and deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from vastrun.launcher.core import Volume
from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.decisions.estimates import budget_error
from vastrun.launcher.ledger.database import Database, with_retries

_COLUMNS = tuple(field.name for field in fields(Volume))
_KEY = ("provider", "name", "created_at")
_CHANGES = ", ".join(f"{column} = :{column}" for column in _COLUMNS if column not in _KEY)
_INSERT = (
    f"INSERT INTO volumes ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + c for c in _COLUMNS)})"
    # An order that was rejected a moment ago, at the same clock reading, has a row already.
    f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {_CHANGES}"
)
_UPDATE = f"UPDATE volumes SET {_CHANGES} WHERE {' AND '.join(f'{column} = :{column}' for column in _KEY)}"
_LIST = f"SELECT {', '.join(_COLUMNS)} FROM volumes"


class SqlVolumes:
    """The VolumeRecords port."""

    def __init__(self, db: Database, use_of: Callable[[Budget], BudgetUse]) -> None:
        self._db, self._use_of = db, use_of

    @property
    def database(self) -> Database:
        """Return the database of the ledger."""
        return self._db

    @with_retries
    def all(self, *, existing: bool = False) -> Sequence[Volume]:
        where = "WHERE deleted_at IS NULL" if existing else ""
        with self._db.reading():
            rows = self._db.rows(f"{_LIST} {where} ORDER BY created_at DESC, name")
        return [Volume(**row) for row in map(dict, rows)]

    @with_retries
    def find(self, provider: str, name: str) -> Volume | None:
        with self._db.reading():
            return self._find(provider, name)

    @with_retries
    def add(self, volume: Volume, budgets: Sequence[Budget], usd: float) -> bool:
        # One writer at a time: two runs must not create a volume of the same name or reserve the same dollar.
        with self._db.writing(None):
            if self._find(volume.provider, volume.name) is not None:
                return False
            for budget in budgets:
                if error := budget_error(self._use_of(budget), usd):
                    raise error
            self._db.execute(_INSERT, vars(volume))
        return True

    @with_retries
    def save(self, volume: Volume) -> None:
        with self._db.writing(f"volume {volume.name}"):
            self._db.execute(_UPDATE, vars(volume))

    def _find(self, provider: str, name: str) -> Volume | None:
        query = f"{_LIST} WHERE provider = :provider AND name = :name AND deleted_at IS NULL"
        row = self._db.row(query, {"provider": provider, "name": name})
        return None if row is None else Volume(**dict(row))
