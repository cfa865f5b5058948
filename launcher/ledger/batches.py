"""Batches in the ledger: their points, their users' requests, and the launchers that drive them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from vastrun.launcher.core import Driver, Phase, UserRequest
from vastrun.launcher.core.batch import Batch, BatchPoint, Budget
from vastrun.launcher.core.errors import HeldError, UsageError
from vastrun.launcher.ledger.database import (
    Database,
    Row,
    RowForm,
    assignments,
    insert_statement,
    with_retries,
)
from vastrun.launcher.ledger.run_ids import suggestion
from vastrun.launcher.ledger.schema import batch_from_row, batch_to_row, point_from_row


class SqlBatches:
    """The Batches port, in a ledger's database. Each call is one transaction."""

    def __init__(
        self,
        db: Database,
        *,
        is_driving: Callable[[Mapping[str, Any]], bool],
        held: Callable[[str, Mapping[str, Any], str], HeldError],
        register_launcher: Callable[[str], None],
        now: Callable[[], float],
        rows: RowForm,
    ) -> None:
        """All arguments but `db` are functions of the ledger, which knows the living launchers."""
        self._db, self._register, self._rows = db, register_launcher, rows
        self._is_driving, self._held, self._now = is_driving, held, now

    def with_rows(self, rows: RowForm) -> SqlBatches:
        """Return the same batches with rows of another form."""
        batches = copy(self)
        batches._rows = rows
        return batches

    @with_retries
    def submit(self, batch: Batch, points: Sequence[BatchPoint]) -> int:
        with self._db.writing(_batch_lock(batch.name)):
            row = self._row(batch.name)
            if row is not None and row["provider"] != batch.provider:
                raise UsageError(
                    f"batch {batch.name} runs on {row['provider']}",
                    hint=f"--provider {row['provider']}, or another name: in the batch file",
                )
            values = batch_to_row(batch)
            if row is not None:
                former = self._verified(row)
                values |= {key: former[key] for key in ("folder", "created_at", "computer")}
            values = self._rows.sign("batches", values)
            self._db.execute(
                f"{insert_statement('batches', values)} ON CONFLICT (name) DO UPDATE SET"
                f" {assignments(name for name in values if name != 'opened_at')}",
                values,
            )
            self._reopen(batch.name)
            # A search learns from all points that it ran, so these stay.
            keeps_runs = (
                " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.batch = points.batch AND point = points.id)"
            )
            self._db.execute(
                f"UPDATE points SET wanted = 0 WHERE batch = ?{keeps_runs if batch.search else ''}",
                (batch.name,),
            )
            return self._add_points(batch.name, points, batch.home)

    @with_retries
    def extend(self, name: str, points: Sequence[BatchPoint]) -> int:
        with self._db.writing(_batch_lock(name)):
            # The driver reads points again only when the revision changed.
            self._db.execute("UPDATE batches SET revision = revision + 1 WHERE name = ?", (name,))
            return self._add_points(name, points, self._home(name))

    def _add_points(self, name: str, points: Sequence[BatchPoint], home: str) -> int:
        columns = self._rows.columns("id, number")
        rows = self._db.rows(f"SELECT {columns} FROM points WHERE batch = ?", (name,))
        own = self._rows.is_here(home)
        known = {row["id"] for row in rows if self._rows.verify("points", row, own) is not None}
        number = max((row["number"] for row in rows), default=0)
        self._db.execute_many(
            "UPDATE points SET wanted = 1 WHERE batch = ? AND id = ?",
            [(name, point.id) for point in points if point.id in known],
        )
        new = [point for point in points if point.id not in known]
        written = [
            self._rows.sign(
                "points",
                {
                    "batch": name,
                    "id": point.id,
                    "number": number + n,
                    "point_values": json.dumps(dict(point.values)),
                    "spec_json": point.spec_json,
                    "wanted": 1,
                },
            )
            for n, point in enumerate(new, 1)
        ]
        if written:
            self._db.execute_many(
                f"{insert_statement('points', written[0])} ON CONFLICT (batch, id) DO UPDATE SET"
                f" {assignments(written[0])}",
                written,
            )
        return len(new)

    @with_retries
    def get(self, name: str) -> Batch:
        with self._db.reading():
            row = self._row(name)
            names = [] if row else [other["name"] for other in self._db.rows("SELECT name FROM batches")]
        if row is None:
            raise UsageError(
                f"no batch is called '{name}'{suggestion(name, names)}", hint="vastrun batch status"
            )
        return batch_from_row(row if self._rows.shows_all else self._verified(row))

    @with_retries
    def all(self) -> Sequence[Batch]:
        with self._db.reading():
            rows = self._db.rows("SELECT * FROM batches ORDER BY created_at DESC")
        accepted = (row if self._rows.shows_all else self._rows.verify("batches", row) for row in rows)
        return [batch_from_row(row) for row in accepted if row is not None]

    @with_retries
    def points(self, name: str) -> Sequence[BatchPoint]:
        with self._db.reading():
            rows = self._db.rows(
                "SELECT * FROM points WHERE batch = :name AND (wanted <> 0 OR EXISTS"
                " (SELECT 1 FROM runs WHERE runs.batch = :name AND runs.point = points.id)) ORDER BY number",
                {"name": name},
            )
            accepts = self._accepts_points(name)
        return [point_from_row(row) for row in rows if accepts(row)]

    def _accepts_points(self, name: str) -> Callable[[Row], bool]:
        """Return a filter of points: of a batch that was read here, it leaves out a teammate's, since their
        jobs would be read from this computer's folders.
        """
        if self._rows.shows_all:
            return lambda _: True
        own = self._rows.is_here(self._home(name))
        return lambda row: self._rows.verify("points", row, own) is not None

    def _home(self, name: str) -> str:
        row = self._row(name)
        return "" if row is None else str(self._verified(row)["home"])

    def _verified(self, row: Row) -> Row:
        """Return the batch's row. Raises UnsignedError."""
        if (verified := self._rows.verify("batches", row)) is None:
            name = row["name"]
            raise self._rows.error(f"batch {name}", row["computer"], f"vastrun batch resume {name}")
        return verified

    @with_retries
    def values_of(self, name: str, point_id: str) -> Mapping[str, Any]:
        columns = self._rows.columns("point_values")
        with self._db.reading():
            row = self._db.row(f"SELECT {columns} FROM points WHERE batch = ? AND id = ?", (name, point_id))
            is_accepted = row is not None and self._accepts_points(name)(row)
        values: Mapping[str, Any] = json.loads(row["point_values"]) if row is not None and is_accepted else {}
        return values

    @with_retries
    def again(self, name: str, point_ids: Sequence[str]) -> None:
        with self._db.writing(_batch_lock(name)):
            self._db.execute_many(
                "UPDATE points SET wanted = 1, starts = 1 +"
                " (SELECT COUNT(*) FROM runs WHERE runs.batch = :name"
                " AND runs.point = :id AND NOT EXISTS (SELECT 1 FROM runs AS former"
                " WHERE former.id = runs.parent AND former.batch = :name AND former.point = :id))"
                " WHERE batch = :name AND id = :id",
                [{"name": name, "id": id_} for id_ in point_ids],
            )
            self._reopen(name)

    @with_retries
    def reopen(self, name: str) -> None:
        with self._db.writing(_batch_lock(name)):
            holder = self._holder(name)
            if holder is not None and self._is_driving(holder):
                raise self._held_by_error(name, holder)
            self._reopen(name)

    @with_retries
    def ask(self, name: str, request: UserRequest) -> None:
        with self._db.writing(_batch_lock(name)):
            self._db.execute("UPDATE batches SET request = ? WHERE name = ?", (request, name))

    @with_retries
    def end(self, name: str, reason: str) -> None:
        with self._db.writing(_batch_lock(name)):
            self._db.execute("UPDATE batches SET reason = ? WHERE name = ?", (reason, name))

    @with_retries
    def move(self, name: str, folder: str, computer: str) -> None:
        with self._db.writing(_batch_lock(name)):
            row = self._row(name)
            if row is not None:
                moved = self._rows.sign(
                    "batches", {**self._verified(row), "folder": folder, "computer": computer}
                )
                self._db.execute(f"UPDATE batches SET {assignments(moved)} WHERE name = :name", moved)

    @with_retries
    def hold(self, name: str, driver: Driver, *, renews: bool = False) -> None:
        self._register(driver.who)
        with self._db.writing(_batch_lock(name)):
            holder, now = self._holder(name), self._db.now()
            is_own = holder is not None and holder["who"] == driver.who
            if holder is not None and not is_own and self._is_driving(holder):
                raise self._held_by_error(name, holder)
            if renews and not is_own:
                raise HeldError(
                    f"another launcher has driven {name} since", hint=f"vastrun batch resume {name}"
                )
            since = holder["since"] if holder is not None and is_own else now
            # The same duration by the clock of all launchers: this computer's clock may be wrong.
            until = now + (driver.until - self._now())
            self._db.execute(
                "UPDATE batches SET driver = ?, driven_since = ?, driven_until = ? WHERE name = ?",
                (driver.who, since, until, name),
            )

    @with_retries
    def release(self, name: str, who: str) -> None:
        with self._db.writing(_batch_lock(name)):
            self._db.execute("UPDATE batches SET driver = '' WHERE name = ? AND driver = ?", (name, who))

    @with_retries
    def is_driven(self, name: str) -> bool:
        with self._db.reading():
            holder = self._holder(name)
            return holder is not None and self._is_driving(holder)

    @with_retries
    def held_by(self, who: str) -> Sequence[str]:
        with self._db.reading():
            return [row["name"] for row in self._db.rows("SELECT name FROM batches WHERE driver = ?", (who,))]

    @with_retries
    def held_usd(self, name: str) -> float:
        with self._db.reading():
            return sum_held_usd(self._db, Budget(name="", usd=0.0, batch=name))

    def budgets(self, name: str) -> Sequence[Budget]:
        """Return the budgets in the newest batch file. Runs in the caller's transaction."""
        row = self._row(name) if name else None
        usd = None if row is None else batch_from_row(self._verified(row)).spec.limits.usd
        if usd is None:
            return ()
        hint = "limits: {usd: USD} in the batch file, or --usd USD, and submit it again"
        return (Budget(name=f"batch {name}", usd=usd, batch=name, hint=hint),)

    def _reopen(self, name: str) -> None:
        holder = self._holder(name)
        # A launcher that is carrying out a stop request does not return to work, so the request stays.
        is_driven = holder is not None and self._is_driving(holder)
        self._db.execute(
            "UPDATE batches SET request = CASE WHEN ? THEN request ELSE 'none' END, reason = '',"
            " revision = revision + 1, opened_at = ? WHERE name = ?",
            (is_driven, self._now(), name),
        )

    def _held_by_error(self, name: str, holder: Mapping[str, Any]) -> HeldError:
        return self._held(f"batch {name}", holder, f"vastrun batch watch {name}")

    def _holder(self, name: str) -> Mapping[str, Any] | None:
        row = self._row(name)
        if row is None or not row["driver"]:
            return None
        return {"who": row["driver"], "since": row["driven_since"], "until": row["driven_until"]}

    def _row(self, name: str) -> Row | None:
        return self._db.row("SELECT * FROM batches WHERE name = ?", (name,))


def _batch_lock(name: str) -> str:
    """Return the name of the lock for writes of one batch."""
    return f"batch {name}"


def sum_held_usd(db: Database, budget: Budget, *, ended_only: bool = False) -> float:
    """Return the USD that the budget's runs hold, by their rows."""
    query = f"""
        SELECT COALESCE(SUM(held_usd), 0) AS held FROM runs
        WHERE {"batch = :batch" if budget.batch else ":batch = ''"}
        AND (:since IS NULL OR created_at >= :since OR phase <> '{Phase.ENDED}')
        AND (NOT :ended_only OR phase = '{Phase.ENDED}')
    """
    values = {"batch": budget.batch, "since": budget.since, "ended_only": ended_only}
    row = db.row(query, values)
    return 0.0 if row is None else float(row["held"])
