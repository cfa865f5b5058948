"""Batches in the ledger: their points, what their users ask for, and who drives them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import count
from typing import Any

from launcher.core import Driver, Phase, UserRequest
from launcher.core.batch import Batch, BatchPoint, BatchSpec, Budget, Search
from launcher.core.errors import HeldError, UsageError
from trainer.contract.records import read_json

Guard = Callable[[], AbstractContextManager[None]]


class SqliteBatches:
    """The Batches port, in one ledger's file. Each call is one transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        transaction: Guard,
        reading: Guard,
        is_driving: Callable[[Mapping[str, Any]], bool],
        held: Callable[[str, Mapping[str, Any], str], HeldError],
        now: Callable[[], float],
    ) -> None:
        """All but `db` are the ledger's: they lock, explain SQLite's errors, and know who is alive."""
        self._db, self._transaction, self._reading = db, transaction, reading
        self._is_driving, self._held, self._now = is_driving, held, now

    def submit(self, batch: Batch, points: Sequence[BatchPoint]) -> int:
        """Write the batch with these points, and return how many of them are new to it.

        Points it had before keep their numbers and runs; those not given are not started any more. A stop
        that was asked for is over, unless a launcher is at it. Raises UsageError when the name is another
        provider's batch.
        """
        with self._transaction():
            row = self._row(batch.name)
            if row is not None and row["provider"] != batch.provider:
                raise UsageError(
                    f"batch {batch.name} runs on {row['provider']}",
                    hint=f"--provider {row['provider']}, or another name: in the batch file",
                )
            values = {
                "name": batch.name,
                "spec": json.dumps(asdict(batch.spec)),
                "search": None if batch.search is None else json.dumps(asdict(batch.search)),
                "provider": batch.provider,
                "folder": batch.folder,
                "created_at": batch.created_at,
                "opened_at": batch.opened_at,
            }
            self._db.execute(
                "INSERT INTO batches (name, spec, search, provider, folder, created_at, opened_at)"
                " VALUES (:name, :spec, :search, :provider, :folder, :created_at, :opened_at)"
                " ON CONFLICT (name) DO UPDATE SET spec = :spec, search = :search",
                values,
            )
            self._reopen(batch.name)
            # What a search asked for before, and was run, is what it learns from.
            kept = (
                " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.batch = points.batch AND point = points.id)"
            )
            self._db.execute(
                f"UPDATE points SET wanted = 0 WHERE batch = ?{kept if batch.search else ''}", (batch.name,)
            )
            return self._add_points(batch.name, points)

    def extend(self, name: str, points: Sequence[BatchPoint]) -> int:
        """Add points to those that the batch has; return how many of them are new to it."""
        with self._transaction():
            self._db.execute("UPDATE batches SET revision = revision + 1 WHERE name = ?", (name,))
            return self._add_points(name, points)

    def _add_points(self, name: str, points: Sequence[BatchPoint]) -> int:
        known = {row["id"] for row in self._db.execute("SELECT id FROM points WHERE batch = ?", (name,))}
        (number,) = self._db.execute(
            "SELECT COALESCE(MAX(number), 0) FROM points WHERE batch = ?", (name,)
        ).fetchone()
        self._db.executemany(
            "UPDATE points SET wanted = 1 WHERE batch = ? AND id = ?",
            [(name, point.id) for point in points if point.id in known],
        )
        new = [point for point in points if point.id not in known]
        self._db.executemany(
            "INSERT INTO points (batch, id, number, point_values, spec_json, wanted)"
            " VALUES (?, ?, ?, ?, ?, 1)",
            [
                (name, point.id, number + n, json.dumps(dict(point.values)), point.spec_json)
                for n, point in enumerate(new, 1)
            ],
        )
        return len(new)

    def get(self, name: str) -> Batch:
        """Return the batch. Raises UsageError when there is none of that name."""
        with self._reading():
            row = self._row(name)
        if row is None:
            raise UsageError(f"no batch is called '{name}'", hint="vastrun batch status")
        return _batch_of(row)

    def all(self) -> Sequence[Batch]:
        """Return every batch, newest first."""
        with self._reading():
            rows = self._db.execute("SELECT * FROM batches ORDER BY created_at DESC").fetchall()
        return [_batch_of(row) for row in rows]

    def points(self, name: str) -> Sequence[BatchPoint]:
        """Return the points that the newest file of the batch has, and those that have runs, by number."""
        with self._reading():
            rows = self._db.execute(
                "SELECT * FROM points WHERE batch = :name AND (wanted OR EXISTS"
                " (SELECT 1 FROM runs WHERE runs.batch = :name AND runs.point = points.id)) ORDER BY number",
                {"name": name},
            ).fetchall()
        return [
            BatchPoint(
                id=row["id"],
                number=row["number"],
                values=json.loads(row["point_values"]),
                spec_json=row["spec_json"],
                wanted=bool(row["wanted"]),
                starts=row["starts"],
            )
            for row in rows
        ]

    def values_of(self, name: str, point_id: str) -> Mapping[str, Any]:
        """Return the values of one point; none where the batch has no such point any more."""
        query = "SELECT point_values FROM points WHERE batch = ? AND id = ?"
        with self._reading():
            row = self._db.execute(query, (name, point_id)).fetchone()
        values: Mapping[str, Any] = {} if row is None else json.loads(row["point_values"])
        return values

    def again(self, name: str, point_ids: Sequence[str]) -> None:
        """Let each of these points be started once more than it was. A stop is over as by `submit`."""
        with self._transaction():
            self._db.executemany(
                "UPDATE points SET wanted = 1, starts = 1 +"
                " (SELECT COUNT(*) FROM runs WHERE runs.batch = :name"
                " AND runs.point = :id AND NOT EXISTS (SELECT 1 FROM runs AS former"
                " WHERE former.id = runs.parent AND former.batch = :name AND former.point = :id))"
                " WHERE batch = :name AND id = :id",
                [{"name": name, "id": id_} for id_ in point_ids],
            )
            self._reopen(name)

    def reopen(self, name: str) -> None:
        """Forget why the batch ended, and that a stop was asked for: it goes on.

        Raises HeldError while a launcher drives it: who is refused takes nothing back.
        """
        with self._transaction():
            holder = self._holder(name)
            if holder is not None and self._is_driving(holder):
                raise self._held_by(name, holder)
            self._reopen(name)

    def remove(self, name: str) -> str:
        """Delete the batch and its points; return the name that its runs go by from now on."""
        with self._transaction():
            taken = {row["batch"] for row in self._db.execute("SELECT DISTINCT batch FROM runs")}
            former = next(f"{name}~{n}" for n in count(1) if f"{name}~{n}" not in taken)
            self._db.execute("UPDATE runs SET batch = ? WHERE batch = ?", (former, name))
            self._db.execute("DELETE FROM points WHERE batch = ?", (name,))
            self._db.execute("DELETE FROM batches WHERE name = ?", (name,))
        return former

    def ask(self, name: str, request: UserRequest) -> None:
        """Note the request for whoever drives the batch."""
        with self._transaction():
            self._db.execute("UPDATE batches SET request = ? WHERE name = ?", (request, name))

    def end(self, name: str, reason: str) -> None:
        """Note why the batch ended before its last point."""
        with self._transaction():
            self._db.execute("UPDATE batches SET reason = ? WHERE name = ?", (reason, name))

    def hold(self, name: str, driver: Driver) -> None:
        """Let `driver.who` drive the batch until `driver.until`. Raises HeldError while another does."""
        with self._transaction():
            holder = self._holder(name)
            mine = holder is not None and holder["who"] == driver.who
            if holder is not None and not mine and self._is_driving(holder):
                raise self._held_by(name, holder)
            since = holder["since"] if holder is not None and mine else self._now()
            self._db.execute(
                "UPDATE batches SET driver = ?, driven_since = ?, driven_until = ? WHERE name = ?",
                (driver.who, since, driver.until, name),
            )

    def release(self, name: str, who: str) -> None:
        """Note that `who` no longer drives the batch."""
        with self._transaction():
            self._db.execute("UPDATE batches SET driver = '' WHERE name = ? AND driver = ?", (name, who))

    def is_driven(self, name: str) -> bool:
        """Return whether a launcher drives the batch now."""
        with self._reading():
            holder = self._holder(name)
        return holder is not None and self._is_driving(holder)

    def held_usd(self, name: str) -> float:
        """Return the dollars that the batch's runs hold of its budget: reserved while open, then spent."""
        with self._reading():
            return sum_of(self._db, Budget(name="", usd=0.0, batch=name))

    def budgets(self, name: str) -> Sequence[Budget]:
        """Return the budgets of the batch as its newest file has them. Within the caller's transaction."""
        row = self._row(name) if name else None
        usd = None if row is None else _batch_of(row).spec.limits.usd
        if usd is None:
            return ()
        hint = "limits: {usd: USD} in the batch file, or --usd USD, and submit it again"
        return (Budget(name=f"batch {name}", usd=usd, batch=name, hint=hint),)

    def _reopen(self, name: str) -> None:
        holder = self._holder(name)
        stays = holder is not None and self._is_driving(holder)  # a launcher that stops does not turn back
        self._db.execute(
            "UPDATE batches SET request = CASE WHEN ? THEN request ELSE 'none' END, reason = '',"
            " revision = revision + 1, opened_at = ? WHERE name = ?",
            (stays, self._now(), name),
        )

    def _held_by(self, name: str, holder: Mapping[str, Any]) -> HeldError:
        return self._held(f"batch {name}", holder, f"vastrun batch watch {name}")

    def _holder(self, name: str) -> Mapping[str, Any] | None:
        row = self._row(name)
        if row is None or not row["driver"]:
            return None
        return {"who": row["driver"], "since": row["driven_since"], "until": row["driven_until"]}

    def _row(self, name: str) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute("SELECT * FROM batches WHERE name = ?", (name,)).fetchone()
        return row


def sum_of(db: sqlite3.Connection, budget: Budget, *, ended_only: bool = False) -> float:
    """Return the dollars that the budget's runs hold, as their rows say."""
    query = f"""
        SELECT TOTAL(held_usd) FROM runs
        WHERE (:batch = '' OR batch = :batch)
        AND (:since IS NULL OR created_at >= :since OR phase <> '{Phase.ENDED}')
        AND (NOT :ended_only OR phase = '{Phase.ENDED}')
    """
    values = {"batch": budget.batch, "since": budget.since, "ended_only": ended_only}
    (held,) = db.execute(query, values).fetchone()
    return float(held)


def _batch_of(row: sqlite3.Row) -> Batch:
    spec = read_json(BatchSpec, row["spec"])
    assert isinstance(spec, BatchSpec)
    return Batch(
        name=row["name"],
        spec=spec,
        provider=row["provider"],
        folder=row["folder"],
        created_at=row["created_at"],
        opened_at=row["opened_at"],
        request=UserRequest(row["request"]),
        reason=row["reason"],
        search=None if row["search"] is None else _search_of(row["search"]),
        revision=row["revision"],
    )


def _search_of(text: str) -> Search:
    search = read_json(Search, text)
    assert isinstance(search, Search)
    return search
