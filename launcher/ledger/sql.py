"""The ledger in SQL, for SQLite or PostgreSQL: runs, events, drivers and users' requests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vastrun.launcher.core import Cause, Driver, Event, MeasuredRun, Phase, Run, UserRequest
from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.core.bills import cost_usd, held_usd
from vastrun.launcher.core.errors import HeldError, NoSuchRunError, StorageError
from vastrun.launcher.decisions.estimates import budget_error
from vastrun.launcher.ledger import schema
from vastrun.launcher.ledger.batches import SqlBatches, sum_held_usd
from vastrun.launcher.ledger.database import (
    Database,
    Row,
    RowForm,
    assignments,
    insert_statement,
    with_retries,
)
from vastrun.launcher.ports import Ledger

MAX_MEASURED = 1_000
"""Number of newest runs whose measurements are read. Each choice of a machine reads them, and each watch on a
training: a batch of 10,000 points does so 20,000 times."""
# Only node 0: the rows of its other nodes would count the speed of one training several times.
_SELECT_MEASURED = (
    "SELECT provider, host, offer, spec_json, steps_per_s, boot_s, cause, rented_at, released_at,"
    " account, charged FROM runs WHERE leader = '' AND offer IS NOT NULL"
    " AND (steps_per_s IS NOT NULL OR boot_s IS NOT NULL OR charged IS NOT NULL)"
    f" ORDER BY created_at DESC, rowid DESC LIMIT {MAX_MEASURED}"
)
_EVENT_COLUMNS = "run_id, at, phase, text, usd, told"
_INSERT_EVENT = f"INSERT INTO events ({_EVENT_COLUMNS}) VALUES (:run_id, :at, :phase, :text, :usd, :told)"
_UPSERT_REQUEST = (
    "INSERT INTO requests (run_id, request) VALUES (:run_id, :request)"
    " ON CONFLICT (run_id) DO UPDATE SET request = :request"
)
_IS_OPEN = f"run_id IN (SELECT id FROM runs WHERE phase <> '{Phase.ENDED}')"
_UPSERT_DRIVER = (
    "INSERT INTO drivers (run_id, who, since, until) VALUES (:run_id, :who, :since, :until)"
    " ON CONFLICT (run_id) DO UPDATE SET who = :who, since = :since, until = :until"
)

Alive = Callable[[str], bool]


class SqlLedger:
    """The Ledger port. Processes and threads may share a database; each call is one transaction."""

    def __init__(
        self,
        db: Database,
        *,
        where: str,
        now: Callable[[], float],
        alive: Alive,
        register_launcher: Callable[[str], None] = lambda _: None,
        rows: Callable[[str], RowForm] = lambda _: RowForm(),
    ) -> None:
        """`where`: name of the database in messages. `now`: the launcher's clock, for the times of runs.
        `alive(who)` is False only when that driver's process is known to be dead. `register_launcher(who)` is
        called before `who` drives a run or a batch; launchers of one computer see each other's locks.
        `rows(id)`: the form of rows in the ledger of that id.
        """
        self._db, self._where, self._now, self._alive = db, where, now, alive
        self._register = register_launcher
        self._prepare()
        self.id = self._identity()
        self._rows = rows(self.id)
        self.batches = SqlBatches(
            db,
            is_driving=self._is_driving,
            held=self._held_error,
            register_launcher=register_launcher,
            now=now,
            rows=self._rows,
        )

    @property
    def database(self) -> Database:
        """Database that stores the ledger."""
        return self._db

    def for_drivers(self) -> Ledger:
        return self

    def for_display(self) -> Ledger:
        return self

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @with_retries
    def add(self, run: Run, budgets: Sequence[Budget] = (), members: Sequence[Run] = ()) -> None:
        # The sums and the rows are one transaction: two launchers never reserve the same dollar.
        rows = (run, *members)
        with self._db.writing(None):
            for budget in (*budgets, *self.batches.budgets(run.batch)):
                if error := budget_error(self.use_of(budget), sum(row.reserved_usd for row in rows)):
                    raise error
            written = [self._row_of(row) for row in rows]
            self._db.execute_many(insert_statement("runs", written[0]), written)

    @with_retries
    def use_of(self, budget: Budget) -> BudgetUse:
        # A run that ends between the two reads is counted twice rather than not at all; `add` excludes it.
        with self._db.reading():
            found = self._select(open_only=True, batch=budget.batch or None, members=True)
            open_runs = [schema.run_from_row(row) for row in found]
            ended_usd = sum_held_usd(self._db, budget, ended_only=True)
        now = self._now()
        spent_usd = sum((cost_usd(run, now) for run in open_runs), 0.0)
        held = sum((held_usd(run, now) for run in open_runs), 0.0)
        return BudgetUse(budget=budget, spent_usd=ended_usd + spent_usd, reserved_usd=held - spent_usd)

    @with_retries
    def save(self, run: Run, *, who: str) -> None:
        # The check and the write are one transaction: a launcher that was taken over cannot overwrite.
        with self._db.writing(_run_lock(run.id)):
            self._check_driver(run.id, who)
            row = self._row_of(run)
            self._db.execute(f"UPDATE runs SET {assignments(row)} WHERE id = :id", row)

    @with_retries
    def get(self, run_id: str) -> Run:
        with self._db.reading():
            row = self._db.row("SELECT * FROM runs WHERE id = ?", (run_id,))
        if row is None:
            raise NoSuchRunError(f"no run is called '{run_id}'", hint="vastrun status")
        if (accepted := self._accepted(row)) is None:
            raise self._rows.error(run_id, row["computer"], f"vastrun resume {run_id}")
        return schema.run_from_row(accepted)

    def _accepted(self, row: Row) -> Row | None:
        return row if self._rows.shows_all else self._rows.verify("runs", row)

    @with_retries
    def runs(self, /, **which: Any) -> Sequence[Run]:
        rows = self._select(**which)
        # Each row is dropped once it is parsed: of a batch of 10,000 points they take 50 MB.
        accepted = (self._accepted(rows.popleft()) for _ in range(len(rows)))
        return [schema.run_from_row(row) for row in accepted if row is not None]

    def _select(
        self,
        *,
        open_only: bool = False,
        batch: str | None = None,
        point: str | None = None,
        parent: str | None = None,
        causes: Collection[Cause] = (),
        leader: str | Collection[str] | None = None,
        members: bool = False,
        newest: int | None = None,
    ) -> deque[Row]:
        """Return the rows that `runs` lists, also those of others."""
        leaders = (leader,) if isinstance(leader, str) else leader
        if leaders is not None and not leaders:
            return deque()
        # `|| ''` keeps SQLite from an index of that column where another one finds fewer rows: by these it
        # would read all runs of a batch, or all that have no leader.
        is_narrow = not open_only and (parent is not None or batch is not None)
        by_leader = "leader || ''" if is_narrow else "leader"
        by_batch = "batch || ''" if open_only else "batch"
        conditions = {
            f"{by_leader} = ''": None if members or leaders is not None else (),
            f"leader IN ({_placeholders(leaders or ())})": None if leaders is None else tuple(leaders),
            f"phase <> '{Phase.ENDED}'": () if open_only else None,
            f"{by_batch} = ?": None if batch is None else (batch,),
            "point = ?": None if point is None else (point,),
            "parent = ?": None if parent is None else (parent,),
            f"cause IN ({_placeholders(causes)})": tuple(causes) or None,
        }
        active = {text: values for text, values in conditions.items() if values is not None}
        where = f"WHERE {' AND '.join(active)}" if active else ""
        limit = "" if newest is None else f"LIMIT {newest:d}"
        order = "created_at DESC, rowid DESC" if leaders is None else "node"
        query = f"SELECT * FROM runs {where} ORDER BY {order} {limit}"
        with self._db.reading():
            return deque(self._db.rows(query, [one for values in active.values() for one in values]))

    @with_retries
    def measured(self) -> Sequence[MeasuredRun]:
        with self._db.reading():
            return [schema.measured_from_row(row) for row in self._db.rows(_SELECT_MEASURED)]

    @with_retries
    def ended_by_cause(self) -> Mapping[Cause | None, int]:
        query = (
            "SELECT cause, COUNT(*) AS runs FROM runs WHERE phase = 'ended' AND leader = '' GROUP BY cause"
        )
        with self._db.reading():
            rows = self._db.rows(query)
        return {None if row["cause"] is None else Cause(row["cause"]): int(row["runs"]) for row in rows}

    @with_retries
    def count(self) -> int:
        with self._db.reading():
            row = self._db.row("SELECT COUNT(*) AS runs FROM runs WHERE leader = ''")
        return 0 if row is None else int(row["runs"])

    @with_retries
    def add_event(self, event: Event) -> None:
        with self._db.writing(_run_lock(event.run_id)):
            self._db.execute(_INSERT_EVENT, {**vars(event), "text": schema.truncate_detail(event.text)})

    @with_retries
    def events(self, run_id: str) -> Sequence[Event]:
        query = f"SELECT {_EVENT_COLUMNS} FROM events WHERE run_id = ? ORDER BY number"
        with self._db.reading():
            rows = self._db.rows(query, (run_id,))
        return [Event(**{**row, "phase": Phase(row["phase"])}) for row in map(dict, rows)]

    @with_retries
    def ask(self, run_id: str, request: UserRequest) -> None:
        with self._db.writing(_run_lock(run_id)):
            # A weaker request must not replace a stronger one: "stop" after "destroy" changes nothing.
            if request.strength > self._request(run_id).strength:
                self._db.execute(_UPSERT_REQUEST, {"run_id": run_id, "request": request})

    @with_retries
    def user_request(self, run_id: str) -> UserRequest:
        with self._db.reading():
            return self._request(run_id)

    @with_retries
    def hold(self, run_id: str, driver: Driver, *, renews: bool = False) -> None:
        self._register(driver.who)
        with self._db.writing(_run_lock(run_id)):
            if renews:
                self._check_driver(run_id, driver.who)
            holder, now = self._holder(run_id), self._db.now()
            is_own = holder is not None and holder["who"] == driver.who
            if holder is not None and not is_own and self._is_driving(holder):
                raise self._held(run_id, holder)
            # The same duration by the clock of all launchers: this computer's clock may be wrong.
            until = now + (driver.until - self._now())
            since = holder["since"] if holder is not None and is_own else now
            values = {"run_id": run_id, "who": driver.who, "since": since, "until": until}
            self._db.execute(_UPSERT_DRIVER, values)

    @with_retries
    def release(self, run_id: str, who: str) -> None:
        with self._db.writing(_run_lock(run_id)):
            self._db.execute("DELETE FROM drivers WHERE run_id = ? AND who = ?", (run_id, who))

    @with_retries
    def driver(self, run_id: str) -> Driver | None:
        with self._db.reading():
            holder = self._holder(run_id)
            if holder is None or not self._is_driving(holder):
                return None
        return Driver(who=holder["who"], until=holder["until"])

    @with_retries
    def drivers(self) -> Mapping[str, Driver]:
        with self._db.reading():
            rows = self._db.rows(f"SELECT run_id, who, since, until FROM drivers WHERE {_IS_OPEN}")
            now = self._db.now()
            held = [row for row in rows if row["until"] >= now]
            alive = {who: self._alive(who) for who in {row["who"] for row in held}}
        return {
            row["run_id"]: Driver(who=row["who"], until=row["until"]) for row in held if alive[row["who"]]
        }

    @with_retries
    def held_by(self, who: str) -> Sequence[str]:
        with self._db.reading():
            rows = self._db.rows(f"SELECT run_id FROM drivers WHERE who = ? AND {_IS_OPEN}", (who,))
        return [row["run_id"] for row in rows]

    @with_retries
    def user_requests(self) -> Mapping[str, UserRequest]:
        with self._db.reading():
            rows = self._db.rows(f"SELECT run_id, request FROM requests WHERE {_IS_OPEN}")
        return {row["run_id"]: UserRequest(row["request"]) for row in rows}

    def _check_driver(self, run_id: str, who: str) -> None:
        holder = self._holder(run_id)
        if holder is None:
            name = self._name(run_id)
            raise HeldError(f"{name}: another launcher drives the run now", hint=f"vastrun status {name}")
        if holder["who"] != who:
            raise self._held(run_id, holder)

    def _held(self, run_id: str, holder: Mapping[str, Any]) -> HeldError:
        name = self._name(run_id)
        return self._held_error(name, holder, f"vastrun logs -f {name}")

    def _held_error(self, what: str, holder: Mapping[str, Any], hint: str) -> HeldError:
        computer, _, rest = str(holder["who"]).partition(":")
        host, number = computer.partition("~")[0], rest.partition(":")[0]
        since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
        free_s = max(0.0, holder["until"] - self._db.now())
        return HeldError(
            f"{what} is driven by another launcher: process {number} on {host}, since {since}",
            hint=f"{hint}; if it is dead, try again in {free_s:.0f} s",
        )

    def _name(self, run_id: str) -> str:
        """Return the id that the user knows: of a node that of its run."""
        row = self._db.row("SELECT leader FROM runs WHERE id = ?", (run_id,))
        return (row and row["leader"]) or run_id

    def _holder(self, run_id: str) -> Mapping[str, Any] | None:
        return self._db.row("SELECT who, since, until FROM drivers WHERE run_id = ?", (run_id,))

    def _is_driving(self, holder: Mapping[str, Any]) -> bool:
        return bool(holder["until"] >= self._db.now()) and self._alive(holder["who"])

    def _request(self, run_id: str) -> UserRequest:
        row = self._db.row("SELECT request FROM requests WHERE run_id = ?", (run_id,))
        return UserRequest.NONE if row is None else UserRequest(row["request"])

    @with_retries
    def _prepare(self) -> None:
        if self._schema_version() in {0, *schema.READABLE} - {schema.VERSION}:
            with self._db.writing("schema"):
                if self._db.schema_version() == 0:  # else another launcher was quicker
                    schema.create_tables(self._db)
                self._db.set_schema_version(schema.VERSION)
        if (found := self._schema_version()) not in schema.READABLE:
            raise StorageError(
                f"{self._where} was written by another version of vastrun (schema {found}; this version"
                f" needs {schema.VERSION}): end its open runs with that version, then start a new ledger",
                hint=self._db.new_ledger_hint,
            )

    def _schema_version(self) -> int:
        with self._db.reading():
            return self._db.schema_version()

    @with_retries
    def _identity(self) -> str:
        with self._db.reading():
            row = self._db.row("SELECT ledger FROM identity")
        if row is None:
            raise StorageError(f"{self._where} has no id")
        return str(row["ledger"])

    def _row_of(self, run: Run) -> dict[str, Any]:
        return self._rows.sign("runs", schema.run_to_row(run)) | {"held_usd": held_usd(run, self._now())}


def _placeholders(values: Collection[object]) -> str:
    """Return a question mark for each value."""
    return ", ".join("?" * len(values))


def _run_lock(run_id: str) -> str:
    """Return the name of the lock for writes of one run."""
    return f"run {run_id}"
