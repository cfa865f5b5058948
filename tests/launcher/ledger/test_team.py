"""A team's ledger: launchers of other computers, their clocks, restarts of the database, lost connections."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from tests import parts
from tests.emulators.cable import Cable
from tests.launcher.ledger.conftest import NOW
from tests.launcher.ledger.postgres import PostgresServer, served
from tests.launcher.ledger.test_ledgers import RUN
from tests.waiting import eventually
from vastrun.launcher.app import App
from vastrun.launcher.core import Driver, Event, Phase
from vastrun.launcher.core.errors import HeldError, StorageError, UsageError
from vastrun.launcher.ledger.sql import SqlLedger
from vastrun.launcher.ledger.team_connection import TeamConnection

DESK, LAPTOP = "desk~1:11:aa", "laptop~2:22:bb"


@contextmanager
def opened(
    url: str,
    *,
    now: Callable[[], float] = lambda: NOW,
    heartbeat_timeout_s: float = 60.0,
    retry_timeout_s: float = 60.0,
    sleep: Callable[[float], None] = lambda _: None,
) -> Iterator[SqlLedger]:
    """The ledger, as another computer than any other launcher's has it."""
    from tests.launcher.ledger.computers import ledger_of

    with closing(
        ledger_of(
            "another~1",
            url,
            now=now,
            alive_here=lambda _: None,
            heartbeat_timeout_s=heartbeat_timeout_s,
            database={"sleep": sleep, "retry_timeout_s": retry_timeout_s},
        )
    ) as ledger:
        yield ledger


def test_clocks_that_are_ten_minutes_apart_take_no_run_from_its_driver(postgres: PostgresServer) -> None:
    url = postgres.database()
    with opened(url, now=lambda: NOW - 600) as slow, opened(url, now=lambda: NOW + 600) as fast:
        slow.add(RUN)
        slow.hold(RUN.id, Driver(who=DESK, until=NOW - 600 + 60))
        with pytest.raises(HeldError, match="process 11 on desk, since"):
            fast.hold(RUN.id, Driver(who=LAPTOP, until=NOW + 600 + 60))
        slow.release(RUN.id, DESK)
        fast.hold(RUN.id, Driver(who=LAPTOP, until=NOW + 600 + 60))
        with pytest.raises(HeldError, match="laptop"):
            slow.hold(RUN.id, Driver(who=DESK, until=NOW - 600 + 60))


def test_a_launcher_takes_the_time_of_the_database_whatever_its_own_clock(postgres: PostgresServer) -> None:
    app = App({"VASTRUN_LEDGER": postgres.database()})
    ((now,),) = postgres.ask("SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8")
    assert isinstance(now, float)
    assert 0 <= app.now() - now < 60


def test_a_computer_that_is_not_heard_of_any_more_is_dead(postgres: PostgresServer) -> None:
    url = postgres.database()
    with opened(url, heartbeat_timeout_s=-1.0) as shut, opened(url) as other:
        shut.add(RUN)
        shut.hold(RUN.id, Driver(who=DESK, until=NOW + 600))
        assert other.driver(RUN.id) is None
        other.hold(RUN.id, Driver(who=LAPTOP, until=NOW + 600))
        with pytest.raises(HeldError):
            shut.save(replace(RUN, phase=Phase.RENT), who=DESK)
        assert other.driver(RUN.id) is not None


def test_the_row_of_a_launcher_is_renewed_as_long_as_it_lives(postgres: PostgresServer) -> None:
    from vastrun.launcher.ledger.postgres import PostgresDatabase
    from vastrun.launcher.ledger.team import Heartbeats

    url = postgres.database()
    with opened(url), closing(PostgresDatabase(url)) as db:
        heartbeats = Heartbeats(db, heartbeat_timeout_s=60.0, interval_s=0.01)
        heartbeats.keep(DESK)

        def expires_at() -> float:
            with db.reading():
                row = db.row("SELECT until FROM launchers WHERE who = ?", (DESK,))
            assert row is not None
            return float(row["until"])

        first = expires_at()
        assert eventually(lambda: expires_at() > first)
        heartbeats.end()
        with db.reading():
            assert db.row("SELECT until FROM launchers WHERE who = ?", (DESK,)) is None


def test_a_launcher_that_ended_well_is_no_longer_waited_for(postgres: PostgresServer) -> None:
    url = postgres.database()
    with opened(url) as other:
        with opened(url) as ended:
            ended.add(RUN)
            ended.hold(RUN.id, Driver(who=DESK, until=NOW + 600))
            assert other.driver(RUN.id) is not None
        assert other.driver(RUN.id) is None


def test_a_database_that_is_restarted_is_waited_for_and_loses_nothing() -> None:
    parts.require("postgresql")
    with served() as server, opened(server.database(), sleep=lambda _: server.start()) as ledger:
        ledger.add(RUN)
        ledger.hold(RUN.id, Driver(who=DESK, until=NOW + 600))
        for hard in (False, True):
            server.stop(hard=hard)
            ledger.save(replace(RUN, step=7 + hard), who=DESK)
            assert ledger.get(RUN.id).step == 7 + hard


def test_a_database_that_stays_away_is_a_disk_that_takes_no_writes() -> None:
    parts.require("postgresql")
    with served() as server, opened(server.database(), retry_timeout_s=0.0) as ledger:
        ledger.add(RUN)
        server.stop()
        with pytest.raises(StorageError, match="cannot be reached") as caught:
            ledger.add_event(Event(run_id=RUN.id, at=NOW, phase=Phase.RENT, text="x"))
        assert "VASTRUN_LEDGER" in caught.value.hint
        assert "\n" not in str(caught.value)
        server.start()
        assert ledger.get(RUN.id) == RUN


def test_connection_that_breaks_at_any_byte_of_a_write_leaves_it_done_once(postgres: PostgresServer) -> None:
    database = postgres.database().rpartition("/")[2]
    with (
        Cable(("127.0.0.1", postgres.port)) as cable,
        opened(postgres.url(database, cable.address[1])) as ledger,
    ):
        ledger.add(RUN)
        before = cable.carried
        ledger.add_event(Event(run_id=RUN.id, at=NOW, phase=Phase.RENT, text="whole"))
        size = cable.carried - before
        told = ["whole"]
        for number in range(0, size + 10, 11):
            told.append(str(number))
            cable.cut_after(number)
            ledger.add_event(Event(run_id=RUN.id, at=NOW, phase=Phase.RENT, text=told[-1]))
        cable.mend()
        assert [event.text for event in ledger.events(RUN.id)] == told
    assert size > 300


def test_a_ledger_of_another_version_is_left_alone(postgres: PostgresServer) -> None:
    url = postgres.database()
    with opened(url):
        postgres.ask("UPDATE schema_version SET version = 99", url)
    with pytest.raises(StorageError, match="another version of vastrun"), opened(url):
        pass


@pytest.mark.parametrize("url", ["mysql://db/x", "ledger.db", "postgresql://db/x?no=1"])
def test_what_names_no_database_is_refused(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match="VASTRUN_LEDGER: expected postgresql://"):
        TeamConnection(url).time()


def test_a_database_that_nobody_serves_is_said_at_once() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError, match=r"the database ledger on 127\.0\.0\.1 cannot be reached: "):
        TeamConnection("postgresql://team:s3cret@127.0.0.1:1/ledger").time()


DAY_S = 86_400.0


def test_tidying_forgets_only_what_is_old_and_never_a_key_of_the_team(postgres: PostgresServer) -> None:
    from vastrun.launcher.ledger.postgres import PostgresDatabase

    url = postgres.database()
    ages = {
        "team_secrets (name, sealed, at)": {
            "'job of old-owl', ''": 30 * DAY_S + 60,
            "'job of new-owl', ''": 30 * DAY_S - 60,
            "'job of today', ''": 0,
            "'key of old-owl', ''": 900 * DAY_S,
        },
        "transactions (token, at)": {"'old'": 3660, "'new'": 3540, "'today'": 0},
        "launchers (who, until)": {"'old'": 3660, "'new'": 3540, "'alive'": -60},
    }
    with opened(url), closing(PostgresDatabase(url)) as db:
        for table, rows in ages.items():
            for values, age_s in rows.items():
                when = f"EXTRACT(EPOCH FROM clock_timestamp()) - {age_s}"
                postgres.ask(f"INSERT INTO {table} VALUES ({values}, {when})", url)
        db.delete_expired()
    secrets = postgres.ask("SELECT name FROM team_secrets ORDER BY name", url)
    assert [name for (name,) in secrets] == ["job of new-owl", "job of today", "key of old-owl"]
    told = {("new",), ("today",)}
    assert told <= set(postgres.ask("SELECT token FROM transactions", url))
    assert ("old",) not in postgres.ask("SELECT token FROM transactions", url)
    assert set(postgres.ask("SELECT who FROM launchers", url)) == {("new",), ("alive",)}
