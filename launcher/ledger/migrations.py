"""The ledger's schema, as numbered steps. A step that was released never changes; a new one is appended.

Steps are SQLite's SQL. `postgres.py` has a table of what its types are called there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from launcher.ledger.database import Database, SqlExecutor

Migration = Callable[[SqlExecutor], None]


_FIRST_TABLES = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        job TEXT NOT NULL,
        spec_json TEXT NOT NULL,
        provider TEXT NOT NULL,
        phase TEXT NOT NULL,
        out_dir TEXT NOT NULL,
        created_at REAL NOT NULL,
        phase_at REAL NOT NULL,
        parent TEXT,
        offer TEXT,
        instance_id TEXT,
        host TEXT NOT NULL,
        usd_per_hour REAL NOT NULL,
        rented_at REAL,
        released_at REAL,
        ended_at REAL,
        cause TEXT,
        detail TEXT NOT NULL,
        proofs TEXT NOT NULL,
        wish TEXT NOT NULL,
        destroy_tries INTEGER NOT NULL,
        step INTEGER NOT NULL,
        steps INTEGER NOT NULL
    )
    """,
    "CREATE INDEX runs_by_age ON runs (created_at)",
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL REFERENCES runs (id),
        at REAL NOT NULL,
        phase TEXT NOT NULL,
        text TEXT NOT NULL,
        usd REAL NOT NULL
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
    """
    CREATE TABLE wishes (
        run_id TEXT PRIMARY KEY REFERENCES runs (id),
        wish TEXT NOT NULL
    )
    """,
)


def _first_tables(db: SqlExecutor) -> None:
    for statement in _FIRST_TABLES:
        db.execute(statement)


def _phase_of_failure(db: SqlExecutor) -> None:
    db.execute("ALTER TABLE runs ADD COLUMN failed_in TEXT")


def _meter(db: SqlExecutor) -> None:
    """Runs of before keep their cost: an empty meter charges all of the time at the whole price."""
    db.execute("ALTER TABLE runs ADD COLUMN meter TEXT NOT NULL DEFAULT '{}'")


def _speeds(db: SqlExecutor) -> None:
    db.execute("ALTER TABLE runs ADD COLUMN boot_s REAL")
    db.execute("ALTER TABLE runs ADD COLUMN steps_per_s REAL")


def _image(db: SqlExecutor) -> None:
    db.execute("ALTER TABLE runs ADD COLUMN image TEXT NOT NULL DEFAULT ''")


def _told(db: SqlExecutor) -> None:
    """What was told stood in the text before, where a box could word it as well."""
    db.execute("ALTER TABLE events ADD COLUMN told TEXT NOT NULL DEFAULT ''")
    db.execute("UPDATE events SET told = substr(text, 11) WHERE text LIKE 'notified: %'")


def _account(db: SqlExecutor) -> None:
    """Runs of before are on no account that is known, and had one machine each."""
    db.execute("ALTER TABLE runs ADD COLUMN rentals TEXT NOT NULL DEFAULT '[]'")
    db.execute("ALTER TABLE runs ADD COLUMN account TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE runs ADD COLUMN clock_ahead_s REAL")


def _identity(db: SqlExecutor) -> None:
    """A ledger has an id. Machines of runs of before have labels without it."""
    db.execute("CREATE TABLE identity (ledger TEXT NOT NULL)")
    db.execute("INSERT INTO identity (ledger) VALUES (?)", (secrets.token_hex(4),))
    db.execute("ALTER TABLE runs ADD COLUMN ledger TEXT NOT NULL DEFAULT ''")


_BATCH_TABLES = (
    """
    CREATE TABLE batches (
        name TEXT PRIMARY KEY,
        spec TEXT NOT NULL,
        search TEXT,
        provider TEXT NOT NULL,
        folder TEXT NOT NULL,
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
    "ALTER TABLE runs ADD COLUMN batch TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN point TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN reserved_usd REAL NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN held_usd REAL NOT NULL DEFAULT 0",
    "CREATE INDEX runs_by_batch ON runs (batch, point)",
    "CREATE INDEX runs_by_parent ON runs (parent)",
)


def _batches(db: SqlExecutor) -> None:
    """Runs of before hold of a budget what their time cost at the whole price: never less than they did."""
    for statement in _BATCH_TABLES:
        db.execute(statement)
    db.execute(
        "UPDATE runs SET held_usd = MAX(0, released_at - rented_at) / 3600 * usd_per_hour"
        " WHERE rented_at IS NOT NULL AND released_at IS NOT NULL"
    )


def _nodes(db: SqlExecutor) -> None:
    """A run has a row for each of its nodes. Those of before have one node."""
    db.execute("ALTER TABLE runs ADD COLUMN leader TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE runs ADD COLUMN node INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE runs ADD COLUMN failed_node INTEGER")
    db.execute("CREATE INDEX runs_by_leader ON runs (leader)")


def _team(db: SqlExecutor) -> None:
    """Runs of before were started on this computer, by nobody knows whom."""
    db.execute("ALTER TABLE runs ADD COLUMN started_by TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE runs ADD COLUMN computer TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE runs ADD COLUMN home TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE batches ADD COLUMN computer TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE batches ADD COLUMN home TEXT NOT NULL DEFAULT ''")
    # Open runs are asked for all the time, and are few among thousands that have ended.
    db.execute("CREATE INDEX open_runs ON runs (created_at) WHERE phase <> 'ended'")


def _charged(db: SqlExecutor) -> None:
    """Runs of before cost what was counted, until their bill is looked at."""
    db.execute("ALTER TABLE runs ADD COLUMN charged TEXT")


def _lists(db: SqlExecutor) -> None:
    """Runs are found in the order in which they are listed: by the leader alone, all were read and sorted."""
    db.execute("DROP INDEX runs_by_leader")
    db.execute("CREATE INDEX runs_by_leader ON runs (leader, created_at)")
    db.execute("CREATE INDEX open_runs_by_leader ON runs (leader, created_at) WHERE phase <> 'ended'")


def _volumes(db: SqlExecutor) -> None:
    """Keep data volumes, which outlive the runs that create them."""
    db.execute(
        "CREATE TABLE volumes ("
        " provider TEXT NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL, volume_id TEXT NOT NULL,"
        " host TEXT NOT NULL, gb REAL NOT NULL, usd_per_hour REAL NOT NULL, created_at REAL NOT NULL,"
        " used_at REAL NOT NULL, run_id TEXT NOT NULL, missing_at REAL, deleted_at REAL,"
        " PRIMARY KEY (provider, name, created_at))"
    )


MIGRATIONS: Sequence[Migration] = (
    _first_tables,
    _phase_of_failure,
    _meter,
    _speeds,
    _image,
    _told,
    _account,
    _identity,
    _batches,
    _nodes,
    _team,
    _charged,
    _lists,
    _volumes,
)


def migrate(db: Database) -> None:
    """Give the database the newest schema. Runs inside the caller's transaction: all of it or nothing."""
    for number in range(db.schema(), len(MIGRATIONS)):
        MIGRATIONS[number](db)
        db.set_schema(number + 1)
