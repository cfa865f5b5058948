"""Tables of the ledger, their version, and what rows and nouns become of each other.

The statements are SQLite's SQL; a table in `postgres.py` translates the types.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from vastrun.contract.records import as_json, read_json, replace_surrogates
from vastrun.launcher import core
from vastrun.launcher.core.batch import Batch, BatchPoint, BatchSpec, Search
from vastrun.launcher.gate import caps
from vastrun.launcher.ledger.database import Database, Row

VERSION = 17
"""Increase it with each change of the tables or of the JSON in them: another version's ledger is rejected."""
READABLE = frozenset({15, 16, VERSION})
"""Versions whose rows are read as they are: 15 has a table more, `volumes`, and 16 no time of the last answer
in `meter`. Their number is raised: an older vastrun rejects the rows that it cannot read."""

_TYPES = {"int": "INTEGER", "float": "REAL"}


def _run_columns() -> str:
    """Return the columns of a run: numbers as such, all else as text; NULL where None is a value."""
    rows = []
    for field in fields(core.Run):
        kind, nullable, _ = str(field.type).partition(" | None")
        rows.append(f"{field.name} {_TYPES.get(kind, 'TEXT')}{'' if nullable else ' NOT NULL'}")
    return ", ".join(rows)


_TABLES = (
    f"CREATE TABLE runs ({_run_columns()}, held_usd REAL NOT NULL, PRIMARY KEY (id))",
    "CREATE INDEX runs_by_age ON runs (created_at)",
    # With created_at, the index returns runs in the order of the list; by leader alone, all rows were sorted.
    "CREATE INDEX runs_by_leader ON runs (leader, created_at)",
    "CREATE INDEX runs_by_batch ON runs (batch, point)",
    # Has all that a budget sums up: a row with its job is several pages.
    "CREATE INDEX runs_held ON runs (batch, phase, created_at, held_usd)",
    "CREATE INDEX runs_by_parent ON runs (parent)",
    # Partial index: open runs are queried all the time, and are few among thousands of ended ones.
    "CREATE INDEX open_runs ON runs (created_at) WHERE phase <> 'ended'",
    "CREATE INDEX open_runs_by_leader ON runs (leader, created_at) WHERE phase <> 'ended'",
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL REFERENCES runs (id),
        at REAL NOT NULL,
        phase TEXT NOT NULL,
        text TEXT NOT NULL,
        usd REAL NOT NULL,
        told TEXT NOT NULL
    )
    """,
    "CREATE INDEX events_by_run ON events (run_id, number)",
    """
    CREATE TABLE drivers (
        run_id TEXT PRIMARY KEY REFERENCES runs (id),
        who TEXT NOT NULL,
        since REAL NOT NULL,
        until REAL NOT NULL
    )
    """,
    "CREATE TABLE requests (run_id TEXT PRIMARY KEY REFERENCES runs (id), request TEXT NOT NULL)",
    """
    CREATE TABLE batches (
        name TEXT PRIMARY KEY,
        spec TEXT NOT NULL,
        search TEXT,
        provider TEXT NOT NULL,
        folder TEXT NOT NULL,
        computer TEXT NOT NULL,
        home TEXT NOT NULL,
        created_at REAL NOT NULL,
        opened_at REAL NOT NULL,
        request TEXT NOT NULL DEFAULT 'none',
        reason TEXT NOT NULL DEFAULT '',
        revision INTEGER NOT NULL DEFAULT 0,
        driver TEXT NOT NULL DEFAULT '',
        driven_since REAL NOT NULL DEFAULT 0,
        driven_until REAL NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE points (
        batch TEXT NOT NULL REFERENCES batches (name),
        id TEXT NOT NULL,
        number INTEGER NOT NULL,
        point_values TEXT NOT NULL,
        spec_json TEXT NOT NULL,
        wanted INTEGER NOT NULL,
        starts INTEGER NOT NULL DEFAULT 1,
        PRIMARY KEY (batch, id)
    )
    """,
    "CREATE TABLE identity (ledger TEXT NOT NULL)",
)


def create_tables(db: Database) -> None:
    """Create the tables of an empty database, and the ledger's id, in the caller's transaction."""
    for statement in _TABLES:
        db.execute(statement)
    # The id is part of each machine's label: ledgers on one account never touch each other's machines.
    db.execute("INSERT INTO identity (ledger) VALUES (?)", (secrets.token_hex(4),))
    db.set_schema_version(VERSION)


RUN_FIELDS = tuple(field.name for field in fields(core.Run))
"""Columns of the table `runs`, beside `held_usd`: the value of `bills.held_usd` when it was written, for the
sums of budgets."""


_SHARED = (
    "job",
    "spec_json",  # half of a row, and that of its point
    "provider",
    "ledger",
    "batch",
    "image",
    "account",
    "started_by",
    "computer",
    "home",
)
"""Texts that many runs have in common, each in memory once."""


def run_to_row(run: core.Run) -> dict[str, Any]:
    """Return the run's columns without `held_usd`."""
    row = {name: getattr(run, name) for name in RUN_FIELDS}
    row["detail"] = truncate_detail(run.detail)
    row["offer"] = None if run.offer is None else as_json(run.offer)
    row["proofs"] = as_json(run.proofs)
    row["meter"] = as_json(run.meter)
    row["charged"] = None if run.charged is None else as_json(run.charged)
    row["rentals"] = as_json(run.rentals)
    return row


def truncate_detail(text: str) -> str:
    """Truncate a text and replace invalid Unicode: the reason of a failure must be storable in any case."""
    return replace_surrogates(text[: caps.DETAIL_CHARACTERS])


def run_from_row(row: Row) -> core.Run:
    """Return the run of a row."""
    values = {name: row[name] for name in RUN_FIELDS}
    for name in _SHARED:
        values[name] = sys.intern(row[name])
    values["phase"] = core.Phase(row["phase"])
    values["cause"] = None if row["cause"] is None else core.Cause(row["cause"])
    values["failed_in"] = None if row["failed_in"] is None else core.Phase(row["failed_in"])
    values["offer"] = None if row["offer"] is None else _parse_offer(json.loads(row["offer"]))
    values["meter"] = core.Meter(**_with_extras(json.loads(row["meter"])))
    values["charged"] = None if row["charged"] is None else core.Settled(**json.loads(row["charged"]))
    values["rentals"] = tuple(
        core.Rental(**{**rental, "meter": core.Meter(**_with_extras(rental["meter"]))})
        for rental in json.loads(row["rentals"])
    )
    values["proofs"] = tuple(_shared_proof(**proof) for proof in json.loads(row["proofs"]))
    return core.Run(**values)


def measured_from_row(row: Row) -> core.MeasuredRun:
    """Return the measurements of a run's machine from these columns of its row."""
    offer, rented_at, released_at = json.loads(row["offer"]), row["rented_at"], row["released_at"]
    rented_s = max(0.0, released_at - rented_at) if rented_at and released_at else 0.0  # 0 until its end
    return core.MeasuredRun(
        provider=row["provider"],
        host=row["host"],
        gpu_name=offer["gpu_name"] or "",
        gpus=offer["gpus"],
        gpu_memory_gb=offer["gpu_memory_gb"],
        spec_json=row["spec_json"],
        steps_per_s=row["steps_per_s"],
        boot_s=row["boot_s"],
        bid_hours=rented_s / 3600 if offer.get("bid_usd_per_hour") is not None else 0.0,
        preempted=row["cause"] == core.Cause.PREEMPTED,
        account=row["account"],
        tail_s=None if row["charged"] is None else json.loads(row["charged"]).get("tail_s"),
    )


def _parse_offer(values: dict[str, Any]) -> core.Offer:
    forecast = values["forecast"]
    return core.Offer(**{**_with_extras(values), "forecast": forecast and core.Forecast(**forecast)})


def _with_extras(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "extras": _shared_rates(**values["extras"])}


# Most runs of a batch have the same of these: 10,000 runs take 15 MB less.
_shared_proof = lru_cache(maxsize=1024, typed=True)(core.Proof)
_shared_rates = lru_cache(maxsize=256, typed=True)(core.ExtraRates)


_OF_BATCH = ("name", "provider", "folder", "created_at", "opened_at", "computer", "home")


def batch_to_row(batch: Batch) -> dict[str, Any]:
    """Return the columns of a batch as it is submitted."""
    row = {name: getattr(batch, name) for name in _OF_BATCH}
    search = None if batch.search is None else as_json(batch.search)
    return {**row, "spec": as_json(batch.spec), "search": search}


def batch_from_row(row: Row) -> Batch:
    """Return the batch of a row."""
    values = {name: row[name] for name in (*_OF_BATCH, "reason", "revision")}
    search = None if row["search"] is None else _parse(Search, row["search"])
    spec = _parse(BatchSpec, row["spec"])
    return Batch(**values, spec=spec, request=core.UserRequest(row["request"]), search=search)


def point_from_row(row: Row) -> BatchPoint:
    """Return the point of a batch of a row."""
    return BatchPoint(
        id=row["id"],
        number=row["number"],
        values=json.loads(row["point_values"]),
        spec_json=sys.intern(row["spec_json"]),
        wanted=bool(row["wanted"]),
        starts=row["starts"],
    )


@lru_cache(maxsize=128)
def _parse(kind: type[Any], text: str) -> Any:
    """Parse a batch's spec or search; cached, since a launcher polls its batch all the time."""
    return read_json(kind, text)
