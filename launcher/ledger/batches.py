"""Batches in the ledger: their points, what their users ask for, and who drives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from vastrun.contract.records import as_json, read_json
from vastrun.launcher.core import Driver, Phase, UserRequest
from vastrun.launcher.core.batch import Batch, BatchPoint, BatchSpec, Budget, Search
from vastrun.launcher.core.errors import HeldError, UsageError
from vastrun.launcher.ledger.database import Database, Row, retried
from vastrun.launcher.ledger.run_ids import did_you_mean


class SqlBatches:
    """The Batches port, in one ledger's database. Each call is one transaction."""

    def __init__(
        self,
        db: Database,
        *,
        is_driving: Callable[[Mapping[str, Any]], bool],
        held: Callable[[str, Mapping[str, Any], str], HeldError],
        arrive: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """All but `db` are the ledger's, which knows who is alive."""
        self._db, self._arrive = db, arrive
        self._is_driving, self._held, self._now = is_driving, held, now

    @retried
    def submit(self, batch: Batch, points: Sequence[BatchPoint]) -> int:
        """Write the batch with these points, and return how many of them are new to it.

        Points it had before keep their numbers and runs; those not given are not started any more. A stop
        that was asked for is over, unless a launcher is at it. Raises UsageError when the name is another
        provider's batch.
        """
        with self._db.writing(_of_batch(batch.name)):
            row = self._row(batch.name)
            if row is not None and row["provider"] != batch.provider:
                raise UsageError(
                    f"batch {batch.name} runs on {row['provider']}",
                    hint=f"--provider {row['provider']}, or another name: in the batch file",
                )
            values = {
                "name": batch.name,
                "spec": as_json(batch.spec),
                "search": None if batch.search is None else as_json(batch.search),
                "provider": batch.provider,
                "folder": batch.folder,
                "created_at": batch.created_at,
                "opened_at": batch.opened_at,
                "computer": batch.computer,
                "home": batch.home,
            }
            names, given = ", ".join(values), ", ".join(f":{name}" for name in values)
            self._db.execute(
                f"INSERT INTO batches ({names}) VALUES ({given})"
                " ON CONFLICT (name) DO UPDATE SET spec = :spec, search = :search, home = :home",
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

    @retried
    def extend(self, name: str, points: Sequence[BatchPoint]) -> int:
        """Add points to those that the batch has; return how many of them are new to it."""
        with self._db.writing(_of_batch(name)):
            self._db.execute("UPDATE batches SET revision = revision + 1 WHERE name = ?", (name,))
            return self._add_points(name, points)

    def _add_points(self, name: str, points: Sequence[BatchPoint]) -> int:
        rows = self._db.rows("SELECT id, number FROM points WHERE batch = ?", (name,))
        known = {row["id"] for row in rows}
        number = max((row["number"] for row in rows), default=0)
        self._db.many(
            "UPDATE points SET wanted = 1 WHERE batch = ? AND id = ?",
            [(name, point.id) for point in points if point.id in known],
        )
        new = [point for point in points if point.id not in known]
        self._db.many(
            "INSERT INTO points (batch, id, number, point_values, spec_json, wanted)"
            " VALUES (?, ?, ?, ?, ?, 1)",
            [
                (name, point.id, number + n, json.dumps(dict(point.values)), point.spec_json)
                for n, point in enumerate(new, 1)
            ],
        )
        return len(new)

    @retried
    def get(self, name: str) -> Batch:
        """Return the batch. Raises UsageError when there is none of that name."""
        with self._db.reading():
            row = self._row(name)
            names = [] if row else [other["name"] for other in self._db.rows("SELECT name FROM batches")]
        if row is None:
            raise UsageError(
                f"no batch is called '{name}'{did_you_mean(name, names)}", hint="vastrun batch status"
            )
        return _batch_of(row)

    @retried
    def all(self) -> Sequence[Batch]:
        """Return every batch, newest first."""
        with self._db.reading():
            rows = self._db.rows("SELECT * FROM batches ORDER BY created_at DESC")
        return [_batch_of(row) for row in rows]

    @retried
    def points(self, name: str) -> Sequence[BatchPoint]:
        """Return the points that the newest file of the batch has, and those that have runs, by number."""
        with self._db.reading():
            rows = self._db.rows(
                "SELECT * FROM points WHERE batch = :name AND (wanted <> 0 OR EXISTS"
                " (SELECT 1 FROM runs WHERE runs.batch = :name AND runs.point = points.id)) ORDER BY number",
                {"name": name},
            )
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

    @retried
    def values_of(self, name: str, point_id: str) -> Mapping[str, Any]:
        """Return the values of one point; none where the batch has no such point any more."""
        query = "SELECT point_values FROM points WHERE batch = ? AND id = ?"
        with self._db.reading():
            row = self._db.row(query, (name, point_id))
        values: Mapping[str, Any] = {} if row is None else json.loads(row["point_values"])
        return values

    @retried
    def again(self, name: str, point_ids: Sequence[str]) -> None:
        """Let each of these points be started once more than it was. A stop is over as by `submit`."""
        with self._db.writing(_of_batch(name)):
            self._db.many(
                "UPDATE points SET wanted = 1, starts = 1 +"
                " (SELECT COUNT(*) FROM runs WHERE runs.batch = :name"
                " AND runs.point = :id AND NOT EXISTS (SELECT 1 FROM runs AS former"
                " WHERE former.id = runs.parent AND former.batch = :name AND former.point = :id))"
                " WHERE batch = :name AND id = :id",
                [{"name": name, "id": id_} for id_ in point_ids],
            )
            self._reopen(name)

    @retried
    def reopen(self, name: str) -> None:
        """Forget why the batch ended, and that a stop was asked for: it goes on.

        Raises HeldError while a launcher drives it: who is refused takes nothing back.
        """
        with self._db.writing(_of_batch(name)):
            holder = self._holder(name)
            if holder is not None and self._is_driving(holder):
                raise self._held_by(name, holder)
            self._reopen(name)

    @retried
    def remove(self, name: str) -> str:
        """Delete the batch and its points; return the name that its runs go by from now on."""
        with self._db.writing(None):
            taken = {row["batch"] for row in self._db.rows("SELECT DISTINCT batch FROM runs")}
            former = next(f"{name}~{n}" for n in count(1) if f"{name}~{n}" not in taken)
            self._db.execute("UPDATE runs SET batch = ? WHERE batch = ?", (former, name))
            self._db.execute("DELETE FROM points WHERE batch = ?", (name,))
            self._db.execute("DELETE FROM batches WHERE name = ?", (name,))
        return former

    @retried
    def ask(self, name: str, request: UserRequest) -> None:
        """Note the request for whoever drives the batch."""
        with self._db.writing(_of_batch(name)):
            self._db.execute("UPDATE batches SET request = ? WHERE name = ?", (request, name))

    @retried
    def end(self, name: str, reason: str) -> None:
        """Note why the batch ended before its last point."""
        with self._db.writing(_of_batch(name)):
            self._db.execute("UPDATE batches SET reason = ? WHERE name = ?", (reason, name))

    @retried
    def move(self, name: str, folder: str, computer: str) -> None:
        """Note where its outputs come to lie from now on, and on which computer."""
        with self._db.writing(_of_batch(name)):
            values = (folder, computer, name)
            self._db.execute("UPDATE batches SET folder = ?, computer = ? WHERE name = ?", values)

    @retried
    def hold(self, name: str, driver: Driver, *, renews: bool = False) -> None:
        """Let `driver.who` drive the batch until `driver.until`. Raises HeldError while another does.

        `renews`: or did since.
        """
        self._arrive(driver.who)
        with self._db.writing(_of_batch(name)):
            holder, now = self._holder(name), self._db.now()
            mine = holder is not None and holder["who"] == driver.who
            if holder is not None and not mine and self._is_driving(holder):
                raise self._held_by(name, holder)
            if renews and not mine:
                raise HeldError(f"another launcher drove {name} since", hint=f"vastrun batch resume {name}")
            since = holder["since"] if holder is not None and mine else now
            until = now + (driver.until - self._now())
            self._db.execute(
                "UPDATE batches SET driver = ?, driven_since = ?, driven_until = ? WHERE name = ?",
                (driver.who, since, until, name),
            )

    @retried
    def release(self, name: str, who: str) -> None:
        """Note that `who` no longer drives the batch."""
        with self._db.writing(_of_batch(name)):
            self._db.execute("UPDATE batches SET driver = '' WHERE name = ? AND driver = ?", (name, who))

    @retried
    def is_driven(self, name: str) -> bool:
        """Return whether a launcher drives the batch now."""
        with self._db.reading():
            holder = self._holder(name)
            return holder is not None and self._is_driving(holder)

    @retried
    def held_by(self, who: str) -> Sequence[str]:
        """Return the names of the batches that this launcher drives, or drove when it died."""
        with self._db.reading():
            return [row["name"] for row in self._db.rows("SELECT name FROM batches WHERE driver = ?", (who,))]

    @retried
    def held_usd(self, name: str) -> float:
        """Return the dollars that the batch's runs hold of its budget: reserved while open, then spent."""
        with self._db.reading():
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

    def _row(self, name: str) -> Row | None:
        return self._db.row("SELECT * FROM batches WHERE name = ?", (name,))


def _of_batch(name: str) -> str:
    """Names the lock of what is written of one batch."""
    return f"batch {name}"


def sum_of(db: Database, budget: Budget, *, ended_only: bool = False) -> float:
    """Return the dollars that the budget's runs hold, as their rows say."""
    query = f"""
        SELECT COALESCE(SUM(held_usd), 0) AS held FROM runs
        WHERE (:batch = '' OR batch = :batch)
        AND (:since IS NULL OR created_at >= :since OR phase <> '{Phase.ENDED}')
        AND (NOT :ended_only OR phase = '{Phase.ENDED}')
    """
    values = {"batch": budget.batch, "since": budget.since, "ended_only": ended_only}
    row = db.row(query, values)
    return 0.0 if row is None else float(row["held"])


def _batch_of(row: Row) -> Batch:
    return Batch(
        name=row["name"],
        spec=_spec_of(row["spec"]),
        provider=row["provider"],
        folder=row["folder"],
        created_at=row["created_at"],
        opened_at=row["opened_at"],
        request=UserRequest(row["request"]),
        reason=row["reason"],
        search=None if row["search"] is None else _search_of(row["search"]),
        revision=row["revision"],
        computer=row["computer"],
        home=row["home"],
    )


@lru_cache(maxsize=64)
def _spec_of(text: str) -> BatchSpec:
    """A launcher looks at its batch again and again: it is read once."""
    spec = read_json(BatchSpec, text)
    assert isinstance(spec, BatchSpec)
    return spec


@lru_cache(maxsize=64)
def _search_of(text: str) -> Search:
    search = read_json(Search, text)
    assert isinstance(search, Search)
    return search
