"""What a team shares besides runs: sealed secrets, and the pace of the calls that are made with one key."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.ledger.postgres import PostgresServer
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.gate.caps import Allowance
from vastrun.launcher.providers.vast.limits import LIMITS, Limiter
from vastrun.launcher.ssh.keys import KeyRing

KEY, OTHER = "k" * 44, "o" * 44


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def db(url: str) -> Iterator[Any]:
    from vastrun.launcher.ledger.postgres import PostgresDatabase

    with closing(PostgresDatabase(url)) as database:
        yield database


@pytest.mark.parametrize(
    ("query", "words"),
    [("generate_series(1, 101)", "100 rows"), ("repeat('x', 10000)", "10000 bytes to be read at once")],
)
def test_an_answer_of_the_database_that_has_no_end_is_refused_and_the_next_is_heard(
    url: str, query: str, words: str
) -> None:
    from vastrun.launcher.ledger.postgres import PostgresDatabase

    allowance = Allowance(items=100, what="rows", memory=10_000)
    with closing(PostgresDatabase(url, allowance=allowance)) as database:
        with pytest.raises(StorageError, match=f"sent more than {words}"), database.reading():
            database.rows(f"SELECT {query} AS told")
        with database.reading():
            assert [row["told"] for row in database.rows("SELECT generate_series(1, 9) AS told")] == [
                *range(1, 10)
            ]


def vault(db: Any, key: str = KEY, ledger: str = "9c41e02b") -> Any:
    from vastrun.launcher.ledger.team import PostgresSecretStore

    return PostgresSecretStore(db, key, ledger)


def test_a_secret_is_of_its_name_and_its_ledger(db: Any) -> None:
    vault(db).put("key of calm-heron", b"a key")
    assert vault(db).get("key of calm-heron") == b"a key"
    # The same team's key in another ledger, and another name on the same bytes, open nothing.
    with pytest.raises(UsageError, match="encrypted with another key"):
        vault(db, ledger="00000000").get("key of calm-heron")
    with db.reading():
        db.execute("UPDATE team_secrets SET name = ?", ("key of wise-otter",))
    with pytest.raises(UsageError, match="encrypted with another key"):
        vault(db).get("key of wise-otter")


def test_two_computers_have_the_same_key_for_a_run_and_forget_it_together(db: Any, tmp_path: Path) -> None:
    desk, laptop = (KeyRing(tmp_path / name, vault(db)) for name in ("desk", "laptop"))
    assert desk.pair("calm-heron").public == laptop.pair("calm-heron").public
    assert laptop.pair("calm-heron").private_path.stat().st_mode & 0o077 == 0
    laptop.forget("calm-heron")
    assert vault(db).get("SSH key of calm-heron") is None


def test_the_database_shows_no_secret_to_a_wrong_key(db: Any, url: str, postgres: PostgresServer) -> None:
    vault(db).put("a", b"hunter2")
    ((sealed,),) = postgres.ask("SELECT sealed FROM team_secrets", url)
    assert b"hunter2" not in bytes(sealed)
    with pytest.raises(UsageError, match="another key than this computer's VASTRUN_TEAM_KEY"):
        vault(db, OTHER).get("a")


def test_of_two_secrets_of_one_name_the_first_stays_unless_it_is_replaced(db: Any) -> None:
    assert vault(db).put("a", b"1") == b"1"
    assert vault(db).put("a", b"2") == b"1"
    vault(db).replace("a", b"3")
    assert vault(db).get("a") == b"3"


def test_a_key_that_is_easily_guessed_is_refused(db: Any) -> None:
    with pytest.raises(UsageError, match="VASTRUN_TEAM_KEY: expected 32 characters or more, got 6") as caught:
        vault(db, "secret")
    assert "openssl rand -base64 32" in caught.value.hint


def test_computers_with_one_key_wait_for_each_other_by_the_database_s_clock(
    db: Any, url: str, postgres: PostgresServer
) -> None:
    from vastrun.launcher.ledger.team import PostgresRateLimitStore

    waits: list[float] = []

    class WaitedError(Exception):
        pass

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise WaitedError

    desk, laptop, stranger = (
        Limiter(PostgresRateLimitStore(db, key), sleep)
        for key in ("the-api-key", "the-api-key", "another-key")
    )
    with desk.turn("create"):
        pass
    with stranger.turn("create"):
        pass
    with pytest.raises(WaitedError), laptop.turn("create"):
        pass
    assert 0 < waits[0] <= LIMITS["create"].seconds + 0.1
    rows = postgres.ask("SELECT key, queue FROM call_queues", url)
    assert len(rows) == 2
    assert "the-api-key" not in str(rows)
