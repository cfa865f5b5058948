"""The ledger: runs, events, drivers and what users ask for in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from launcher.core import (
    Cause,
    Driver,
    Event,
    ExtraRates,
    Forecast,
    Meter,
    Offer,
    Phase,
    Proof,
    Rental,
    Run,
    UserRequest,
)
from launcher.core.batch import Budget, BudgetUse
from launcher.core.bills import cost_usd, held_usd
from launcher.core.errors import HeldError, NoSuchRunError, StorageError
from launcher.decisions.budgets import refusal
from launcher.ledger.batches import SqliteBatches, sum_of
from launcher.ledger.migrations import MIGRATIONS, migrate, schema_of
from trainer.contract.records import whole_unicode

BUSY_S = 10.0
MOVE_HINT = "XDG_STATE_HOME=/somewhere/writable vastrun ..."

_COLUMNS = (*(field.name for field in fields(Run)), "held_usd", "wish")
"""`held_usd`: as `bills.held_usd` when it was written, for the sums of budgets. `wish` is of the first schema
and always "none": what users ask for stands in the table `wishes`."""
_INSERT = f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join(':' + c for c in _COLUMNS)})"
_UPDATE = f"UPDATE runs SET {', '.join(f'{c} = :{c}' for c in _COLUMNS)} WHERE id = :id"
_EVENT = "run_id, at, phase, text, usd, told"
_TELL = f"INSERT INTO events ({_EVENT}) VALUES (:run_id, :at, :phase, :text, :usd, :told)"
_MOST_CHARACTERS = 4000
"""Of a detail or an event: words, some of them from a box."""

Alive = Callable[[str], bool]


class SqliteLedger:
    """The Ledger port. Several processes and threads may use one file; each call is one transaction."""

    def __init__(self, path: Path, *, now: Callable[[], float], alive: Alive) -> None:
        """`alive(who)` is False only when that driver's process is known to be dead."""
        self._path, self._now, self._alive = path, now, alive
        self._lock = threading.RLock()
        """SQLite's connection is one for all threads."""
        with self._clear_errors():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = _connect(path)
            self._prepare()
            (self.id,) = self._db.execute("SELECT ledger FROM identity").fetchone()
        self._batches = SqliteBatches(
            self._db,
            transaction=self._transaction,
            reading=self._clear_errors,
            is_driving=self._is_driving,
            held=_held,
            now=now,
        )

    @property
    def batches(self) -> SqliteBatches:
        return self._batches

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, run: Run, budgets: Sequence[Budget] = (), members: Sequence[Run] = ()) -> None:
        # The sums and the rows are one transaction: two launchers never reserve the same dollar.
        rows = (run, *members)
        with self._transaction():
            for budget in (*budgets, *self._batches.budgets(run.batch)):
                if error := refusal(self.use_of(budget), sum(row.reserved_usd for row in rows)):
                    raise error
            self._db.executemany(_INSERT, [self._row_of(row) for row in rows])

    def use_of(self, budget: Budget) -> BudgetUse:
        # A run that ends between the two reads is counted twice rather than not at all; `add` excludes it.
        open_runs = self.runs(open_only=True, batch=budget.batch or None, members=True)
        with self._clear_errors():
            ended_usd = sum_of(self._db, budget, ended_only=True)
        now = self._now()
        spent_usd = sum((cost_usd(run, now) for run in open_runs), 0.0)
        held = sum((held_usd(run, now) for run in open_runs), 0.0)
        return BudgetUse(budget=budget, spent_usd=ended_usd + spent_usd, reserved_usd=held - spent_usd)

    def save(self, run: Run, *, who: str) -> None:
        # The check and the write are one transaction: a launcher that was taken over cannot overwrite.
        with self._transaction():
            self._must_drive(run.id, who)
            self._db.execute(_UPDATE, self._row_of(run))

    def get(self, run_id: str) -> Run:
        with self._clear_errors():
            row = self._db.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise NoSuchRunError(f"no run is called '{run_id}'", hint="vastrun status")
        return _run_of(row)

    def runs(
        self,
        *,
        open_only: bool = False,
        batch: str | None = None,
        point: str | None = None,
        parent: str | None = None,
        causes: Collection[Cause] = (),
        leader: str | None = None,
        members: bool = False,
    ) -> Sequence[Run]:
        conditions = {
            "leader = ''": None if members or leader is not None else (),
            "leader = ?": None if leader is None else (leader,),
            f"phase <> '{Phase.ENDED}'": () if open_only else None,
            "batch = ?": None if batch is None else (batch,),
            "point = ?": None if point is None else (point,),
            "parent = ?": None if parent is None else (parent,),
            f"cause IN ({', '.join('?' * len(causes))})": tuple(causes) or None,
        }
        asked = {text: values for text, values in conditions.items() if values is not None}
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        order = "created_at DESC, rowid DESC" if leader is None else "node"
        query = f"SELECT * FROM runs {where} ORDER BY {order}"
        with self._clear_errors():
            rows = self._db.execute(query, [one for values in asked.values() for one in values]).fetchall()
        return [_run_of(row) for row in rows]

    def tell(self, event: Event) -> None:
        with self._transaction():
            self._db.execute(_TELL, {**asdict(event), "text": _storable(event.text)})

    def events(self, run_id: str) -> Sequence[Event]:
        query = f"SELECT {_EVENT} FROM events WHERE run_id = ? ORDER BY number"
        with self._clear_errors():
            rows = self._db.execute(query, (run_id,)).fetchall()
        return [Event(**{**dict(row), "phase": Phase(row["phase"])}) for row in rows]

    def ask(self, run_id: str, request: UserRequest) -> None:
        with self._transaction():
            if request.strength > self._request(run_id).strength:
                self._db.execute(
                    "INSERT OR REPLACE INTO wishes (run_id, wish) VALUES (?, ?)", (run_id, request)
                )

    def user_request(self, run_id: str) -> UserRequest:
        with self._clear_errors():
            return self._request(run_id)

    def hold(self, run_id: str, driver: Driver) -> None:
        with self._transaction():
            holder = self._holder(run_id)
            if holder is not None and holder["who"] != driver.who and self._is_driving(holder):
                raise _held(run_id, holder, f"vastrun logs -f {run_id}")
            mine = holder is not None and holder["who"] == driver.who
            since = holder["since"] if holder is not None and mine else self._now()
            self._db.execute(
                "INSERT OR REPLACE INTO drivers (run_id, who, since, until) VALUES (?, ?, ?, ?)",
                (run_id, driver.who, since, driver.until),
            )

    def release(self, run_id: str, who: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM drivers WHERE run_id = ? AND who = ?", (run_id, who))

    def driver(self, run_id: str) -> Driver | None:
        with self._clear_errors():
            holder = self._holder(run_id)
        if holder is None or not self._is_driving(holder):
            return None
        return Driver(who=holder["who"], until=holder["until"])

    def _must_drive(self, run_id: str, who: str) -> None:
        holder = self._holder(run_id)
        if holder is None:
            raise HeldError(f"{run_id}: another launcher drives the run now", hint=f"vastrun status {run_id}")
        if holder["who"] != who:
            raise _held(run_id, holder, f"vastrun logs -f {run_id}")

    def _holder(self, run_id: str) -> Mapping[str, Any] | None:
        row = self._db.execute("SELECT who, since, until FROM drivers WHERE run_id = ?", (run_id,)).fetchone()
        return None if row is None else dict(row)

    def _is_driving(self, holder: Mapping[str, Any]) -> bool:
        return bool(holder["until"] >= self._now()) and self._alive(holder["who"])

    def _request(self, run_id: str) -> UserRequest:
        row = self._db.execute("SELECT wish FROM wishes WHERE run_id = ?", (run_id,)).fetchone()
        return UserRequest.NONE if row is None else UserRequest(row["wish"])

    def _prepare(self) -> None:
        known = len(MIGRATIONS)
        if schema_of(self._db) < known:
            with self._transaction():
                migrate(self._db)
        if (found := schema_of(self._db)) > known:
            raise StorageError(
                f"{self._path} was written by a newer vastrun (schema {found}; this one knows {known})",
                hint="pip install --upgrade vastrun",
            )

    def _row_of(self, run: Run) -> dict[str, Any]:
        return _row_of(run) | {"held_usd": held_usd(run, self._now())}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # In a notebook Ctrl-C is an exception between any two lines, also on the way out. What stayed open
        # then would keep all other launchers from writing for as long as the notebook lives.
        with self._clear_errors():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            finally:
                try:
                    self._roll_back()
                finally:
                    self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Storage troubles come out as one StorageError that says what to do."""
        try:
            with self._lock:
                yield
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}", hint=MOVE_HINT) from error
        except sqlite3.IntegrityError as error:
            raise StorageError(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            raise _storage_error(self._path, error) from error


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are opened by hand (isolation_level None), so that reading and writing are one step.
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    _use_wal(db)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Readers never wait for a writer. SQLite does not wait for the switch itself, so we do."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    if "locked" in text:
        return StorageError(f"{path} is in use by another program for over {BUSY_S:.0f} s", hint="try again")
    if "full" in text:
        return StorageError(f"no space left for {path}", hint=MOVE_HINT)
    if "not a database" in text or "malformed" in text:
        return StorageError(f"{path} is damaged ({text})", hint=f"mv {path} {path}.damaged")
    return StorageError(f"cannot write {path}: {text}", hint=MOVE_HINT)


def _held(what: str, holder: Mapping[str, Any], hint: str) -> HeldError:
    host, _, rest = str(holder["who"]).partition(":")
    since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
    return HeldError(
        f"{what} is driven by another launcher: process {rest.partition(':')[0]} on {host}, since {since}",
        hint=hint,
    )


def _row_of(run: Run) -> dict[str, Any]:
    row = {field.name: getattr(run, field.name) for field in fields(Run)} | {"wish": UserRequest.NONE}
    row["detail"] = _storable(run.detail)
    row["offer"] = None if run.offer is None else json.dumps(asdict(run.offer))
    row["proofs"] = json.dumps([asdict(proof) for proof in run.proofs])
    row["meter"] = json.dumps(asdict(run.meter))
    row["rentals"] = json.dumps([asdict(rental) for rental in run.rentals])
    return row


def _storable(text: str) -> str:
    """To write down why a run failed must not fail, whatever is in the reason."""
    return whole_unicode(text[:_MOST_CHARACTERS])


def _run_of(row: sqlite3.Row) -> Run:
    values = {field.name: row[field.name] for field in fields(Run)}
    values["phase"] = Phase(row["phase"])
    values["cause"] = None if row["cause"] is None else Cause(row["cause"])
    values["failed_in"] = None if row["failed_in"] is None else Phase(row["failed_in"])
    values["offer"] = None if row["offer"] is None else _offer_of(json.loads(row["offer"]))
    values["meter"] = Meter(**_with_extras(json.loads(row["meter"])))
    values["rentals"] = tuple(map(_rental_of, json.loads(row["rentals"])))
    values["proofs"] = tuple(Proof(**proof) for proof in json.loads(row["proofs"]))
    return Run(**values)


def _offer_of(values: dict[str, Any]) -> Offer:
    """An offer of before has no forecast."""
    forecast = values.get("forecast")
    return Offer(**{**_with_extras(values), "forecast": forecast and Forecast(**forecast)})


def _rental_of(values: dict[str, Any]) -> Rental:
    return Rental(**{**values, "meter": Meter(**_with_extras(values["meter"]))})


def _with_extras(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a noun that has extras; rows of before have none."""
    return {**values, "extras": ExtraRates(**values.get("extras", {}))}
