"""Rows of a team's ledger: what its computers, a teammate with the key, and a writer of the database may do.

Each cell of the table in docs/teams.md has its test here, or one that it names.
"""

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.ledger.computers import ledger_of
from tests.launcher.ledger.conftest import NOW
from tests.launcher.ledger.postgres import PostgresServer
from tests.launcher.ledger.test_ledgers import FULL, RUN
from vastrun.launcher.app import App
from vastrun.launcher.commands.chains import chain_of, checkpoints_here, origin_of
from vastrun.launcher.commands.reap import Owner, orphans
from vastrun.launcher.core import Driver, Instance, Phase, Run
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchPoint, BatchSpec
from vastrun.launcher.core.errors import HeldError, StorageError, UnsignedError, UsageError
from vastrun.launcher.ledger.signatures import KEY_FILE, signing_key
from vastrun.launcher.ledger.team import PostgresLedger

ALICE, BOB = "alice~1", "bob~2"
WHO = f"{ALICE}:1:aa"
OF_ALICE = replace(FULL, phase=Phase.TRAIN, home=ALICE, computer=ALICE, parent=None)
BATCH = Batch(
    name="lr",
    spec=BatchSpec(name="lr", job="job.yaml", limits=BatchLimits(parallel=2)),
    provider="local",
    folder="/home/alice/batches/lr",
    created_at=NOW,
    opened_at=NOW,
    computer=ALICE,
    home=ALICE,
)
POINTS = [BatchPoint(id=f"p{n}", values={"lr": n}, spec_json="{}") for n in (1, 2)]


class Team:
    """Computers with one database, which a writer without a key can change, too."""

    def __init__(self, server: PostgresServer, opened: ExitStack) -> None:
        self._server, self.url, self._opened = server, server.database(), opened

    def on(self, computer: str, **options: Any) -> PostgresLedger:
        """The ledger, as the launchers of that computer see it."""
        return self._opened.enter_context(closing(ledger_of(computer, self.url, now=lambda: NOW, **options)))

    def write(self, statement: str) -> list[tuple[object, ...]]:
        """What anybody does who has the database."""
        return self._server.ask(statement, self.url)

    def save(self, ledger: PostgresLedger, run: Run) -> None:
        """A launcher saves the row of a run that it drives."""
        ledger.hold(run.id, Driver(who=WHO, until=NOW + 60))
        ledger.save(run, who=WHO)
        ledger.release(run.id, WHO)


@pytest.fixture
def team(postgres: PostgresServer) -> Iterator[Team]:
    with ExitStack() as opened:
        yield Team(postgres, opened)


FORGED: dict[str, str] = {
    "offer": '{"id": "their machine"}',
    "meter": '{"began_at": 1.0}',
    "rentals": '[{"instance_id": "7"}]',
    "charged": '{"gpu_usd": 0.0}',
    "proofs": "[]",
}
"""Texts for the columns that have a form; a driver must not even read them."""


def test_a_run_of_which_a_writer_changed_any_column_is_driven_by_nobody(team: Team) -> None:
    alice = team.on(ALICE)
    alice.add(OF_ALICE)
    team.write("CREATE TABLE kept AS SELECT * FROM runs")
    columns = {str(name): kind for name, kind in team.write(_COLUMNS)}
    for column in (field.name for field in fields(Run)):
        value = FORGED.get(column, "/home/alice/.ssh") if columns[column] == "text" else "13"
        team.write(f"UPDATE runs SET {column} = '{value}'")
        with pytest.raises(UsageError, match=r"only shown here|no run is called"):
            alice.get(OF_ALICE.id)
        assert not alice.runs(members=True), column
        team.write(f"UPDATE runs SET {column} = kept.{column} FROM kept")
        assert alice.get(OF_ALICE.id) == OF_ALICE


_COLUMNS = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'runs'"


def test_a_row_that_others_put_in_is_shown_and_not_driven(team: Team) -> None:
    alice, mallory = team.on(ALICE), team.on("mallory~9", team="m" * 44)
    mallory.add(OF_ALICE)
    with pytest.raises(UnsignedError) as caught:
        alice.get(OF_ALICE.id)
    assert caught.value.hint == "launch it again; the lease ends its machine"
    assert not alice.runs()
    assert [run.id for run in alice.for_display().runs()] == [OF_ALICE.id]


def test_a_computer_without_the_teams_key_drives_its_own_runs_alone(team: Team) -> None:
    alice, bob = team.on(ALICE, team=""), team.on(BOB)
    alice.add(OF_ALICE)
    assert alice.get(OF_ALICE.id) == OF_ALICE
    with pytest.raises(UnsignedError) as caught:
        bob.get(OF_ALICE.id)
    assert caught.value.hint == f"on alice: vastrun resume {OF_ALICE.id}"


def test_a_signature_is_of_one_row_and_one_ledger(team: Team, postgres: PostgresServer) -> None:
    alice, other = team.on(ALICE), Team(postgres, team._opened)
    alice.add(OF_ALICE)
    alice.add(replace(OF_ALICE, id="bold-otter-0001"))
    team.write(
        "UPDATE runs SET signature = (SELECT signature FROM runs WHERE id = 'bold-otter-0001')"
        f" WHERE id = '{OF_ALICE.id}'"
    )
    assert [run.id for run in alice.runs()] == ["bold-otter-0001"]
    elsewhere = other.on(ALICE)
    elsewhere.add(OF_ALICE)
    other.write("UPDATE identity SET ledger = '00000000'")
    assert not other.on(ALICE).runs()


def test_a_signature_of_other_letters_is_none(team: Team) -> None:
    alice = team.on(ALICE)
    alice.add(OF_ALICE)
    for text in ("ü ü", "", " ", "a b c"):
        team.write(f"UPDATE runs SET signature = '{text}'")
        assert not alice.runs()


def test_a_teammate_goes_on_with_a_run_and_nothing_of_it_counts_as_on_the_own_computer(team: Team) -> None:
    alice, bob = team.on(ALICE), team.on(BOB)
    bob.add(replace(OF_ALICE, home=BOB, computer=BOB))
    seen = alice.get(OF_ALICE.id)
    assert (seen.home, seen.computer) == (BOB, BOB)
    for lie in ("home", "computer"):
        team.save(bob, replace(OF_ALICE, **{"home": BOB, "computer": BOB, lie: ALICE}))
        seen = alice.get(OF_ALICE.id)
        assert getattr(seen, lie) == ""


def test_a_run_that_was_taken_over_stays_the_teammates_after_it_was_saved_here(team: Team) -> None:
    alice, bob = team.on(ALICE), team.on(BOB)
    bob.add(replace(OF_ALICE, home=ALICE, computer=ALICE))
    team.save(alice, replace(alice.get(OF_ALICE.id), out_dir="/home/alice/runs/x", computer=ALICE))
    seen = alice.get(OF_ALICE.id)
    assert (seen.home, seen.computer, seen.out_dir) == ("", ALICE, "/home/alice/runs/x")


@pytest.mark.parametrize("changes", [{"id": "../../.ssh"}, {"id": "."}, {"out_dir": "/home/bob/.."}])
def test_a_teammate_names_no_folder_outside_of_the_outputs(team: Team, changes: dict[str, str]) -> None:
    alice, bob = team.on(ALICE), team.on(BOB)
    bob.add(replace(OF_ALICE, **changes))
    assert not alice.runs()


def test_a_row_that_is_only_shown_is_never_saved_and_so_never_signed(team: Team) -> None:
    alice, mallory = team.on(ALICE), team.on("mallory~9", team="m" * 44)
    mallory.add(OF_ALICE)
    shown = alice.for_display()
    shown.hold(OF_ALICE.id, Driver(who=WHO, until=NOW + 60))
    with pytest.raises(UnsignedError):
        shown.save(shown.get(OF_ALICE.id), who=WHO)
    assert not alice.runs()


def test_what_a_box_says_is_signed_as_the_database_keeps_it(team: Team) -> None:
    alice = team.on(ALICE)
    alice.add(OF_ALICE)
    odd = replace(OF_ALICE, detail="\0 ü \ud800", host="a\0b", created_at=1, usd_per_hour=1 / 3)
    team.save(alice, odd)
    assert alice.get(OF_ALICE.id).host == "a\N{REPLACEMENT CHARACTER}b"


def test_rows_of_a_version_before_signatures_are_shown_and_not_driven(team: Team) -> None:
    team.on(ALICE).add(OF_ALICE)
    team.on(ALICE).batches.submit(BATCH, POINTS)
    for table in ("runs", "batches", "points"):
        team.write(f"ALTER TABLE {table} DROP COLUMN signature")
    alice = team.on(ALICE)
    assert (list(alice.runs()), list(alice.batches.all())) == ([], [])
    assert [run.id for run in alice.for_display().runs()] == [OF_ALICE.id]
    assert len(alice.for_display().batches.points("lr")) == 2
    alice.add(replace(OF_ALICE, id="bold-otter-0001"))
    assert [run.id for run in alice.runs()] == ["bold-otter-0001"]


def test_a_parent_whose_folder_a_writer_changed_ships_nothing(team: Team, tmp_path: Path) -> None:
    alice = team.on(ALICE)
    alice.add(replace(OF_ALICE, out_dir=str(tmp_path)))
    alice.add(replace(OF_ALICE, id="bold-otter-0001", parent=OF_ALICE.id))
    team.write(f"UPDATE runs SET out_dir = '/home/alice/.ssh' WHERE id = '{OF_ALICE.id}'")
    child = alice.get("bold-otter-0001")
    with pytest.raises(UnsignedError):
        origin_of(alice, child, ALICE)
    with pytest.raises(UnsignedError):
        chain_of(alice, replace(child, spec_json='{"name": "a", "ranks": 1, "command": ["a"]}'))


def test_a_parent_of_another_computer_has_no_checkpoints_in_a_folder_here(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest.json").touch()
    run = replace(OF_ALICE, out_dir=str(tmp_path))
    assert checkpoints_here(run, ALICE) == tmp_path / "checkpoints"
    assert checkpoints_here(run, BOB) is None


def test_a_child_that_others_put_in_is_not_the_next_attempt(team: Team) -> None:
    alice, mallory = team.on(ALICE), team.on("mallory~9", team="m" * 44)
    alice.add(OF_ALICE)
    mallory.add(replace(OF_ALICE, id="bold-otter-0001", parent=OF_ALICE.id))
    assert not alice.runs(parent=OF_ALICE.id)


@pytest.mark.parametrize(
    ("column", "value"),
    [("spec", '{"name": "x"}'), ("folder", "/home/alice/.ssh"), ("home", BOB), ("provider", "docker")],
)
def test_a_batch_that_a_writer_changed_is_shown_and_neither_driven_nor_submitted_to(
    team: Team, column: str, value: str
) -> None:
    alice = team.on(ALICE)
    alice.batches.submit(BATCH, POINTS)
    team.write(f"UPDATE batches SET {column} = '{value}'")
    calls = (
        lambda: alice.batches.get("lr"),
        lambda: alice.batches.points("lr"),
        lambda: alice.batches.move("lr", "/elsewhere", ALICE),
        lambda: alice.batches.extend("lr", POINTS),
        lambda: alice.batches.submit(replace(BATCH, provider=value if column == "provider" else "local"), ()),
        lambda: alice.add(replace(RUN, batch="lr")),
    )
    for call in calls:
        with pytest.raises(UnsignedError, match="batch lr is only shown here"):
            call()
    assert not alice.batches.all()


@pytest.mark.parametrize("column", ["spec_json", "point_values", "id", "number"])
def test_a_point_changed_by_a_writer_is_not_started_and_can_be_resubmitted(team: Team, column: str) -> None:
    alice = team.on(ALICE)
    alice.batches.submit(BATCH, POINTS)
    team.write(f"UPDATE points SET {column} = '7' WHERE id = 'p1'")
    assert [point.id for point in alice.batches.points("lr")] == ["p2"]
    assert alice.batches.values_of("lr", "p1") == {}
    assert alice.batches.submit(BATCH, POINTS) == 1
    assert {point.id: dict(point.values) for point in alice.batches.points("lr")} == {
        "p1": {"lr": 1},
        "p2": {"lr": 2},
    }


def test_a_point_that_others_put_into_a_batch_is_not_started(team: Team) -> None:
    alice = team.on(ALICE)
    alice.batches.submit(BATCH, POINTS)
    team.write(
        "INSERT INTO points (batch, id, number, point_values, spec_json, wanted)"
        " VALUES ('lr', '../../x', 9, '{}', '{}', 1)"
    )
    assert [point.id for point in alice.batches.points("lr")] == ["p1", "p2"]


def test_a_teammates_point_waits_in_a_batch_that_was_read_on_this_computer(team: Team) -> None:
    alice, bob = team.on(ALICE), team.on(BOB)
    alice.batches.submit(BATCH, POINTS)
    bob.batches.extend("lr", [BatchPoint(id="p3", values={"lr": 3}, spec_json="{}")])
    assert [point.id for point in alice.batches.points("lr")] == ["p1", "p2"]
    assert [point.id for point in bob.batches.points("lr")] == ["p1", "p2", "p3"]


def test_a_batch_that_a_teammate_took_over_is_driven_there_and_comes_back(team: Team) -> None:
    alice, bob = team.on(ALICE), team.on(BOB)
    alice.batches.submit(BATCH, POINTS)
    assert bob.batches.get("lr").home == ALICE
    bob.batches.move("lr", "/home/bob/batches/lr", BOB)
    assert (bob.batches.get("lr").computer, bob.batches.get("lr").folder) == (BOB, "/home/bob/batches/lr")
    back = alice.batches.get("lr")
    assert (back.computer, back.home) == (BOB, "")


def test_a_writer_may_ask_for_an_end_and_delete_rows(team: Team) -> None:
    alice = team.on(ALICE)
    alice.add(OF_ALICE)
    team.write(f"INSERT INTO requests (run_id, request) VALUES ('{OF_ALICE.id}', 'stop')")
    assert alice.user_request(OF_ALICE.id).cause is not None
    team.write("DELETE FROM requests; DELETE FROM runs")
    with pytest.raises(UsageError, match="no run is called"):
        alice.get(OF_ALICE.id)


def test_a_writer_may_start_a_point_again_change_what_budgets_count_and_keep_drivers_away(team: Team) -> None:
    alice = team.on(ALICE)
    alice.batches.submit(BATCH, POINTS)
    alice.add(OF_ALICE)
    team.write("UPDATE points SET starts = 5; UPDATE runs SET held_usd = 77")
    assert [point.starts for point in alice.batches.points("lr")] == [5, 5]
    assert alice.batches.held_usd(OF_ALICE.batch) == 77
    team.write(f"INSERT INTO drivers (run_id, who, since, until) VALUES ('{OF_ALICE.id}', 'x:1:a', 0, 1e12)")
    team.write("INSERT INTO launchers (who, until) VALUES ('x:1:a', 1e12)")
    with pytest.raises(HeldError):
        team.save(alice, OF_ALICE)
    team.write(
        "INSERT INTO events (run_id, at, phase, text, usd, told)"
        f" VALUES ('{OF_ALICE.id}', 0, 'train', 'made up', 0, 'end')"
    )
    assert [event.text for event in alice.events(OF_ALICE.id)] == ["made up"]
    assert alice.get(OF_ALICE.id) == OF_ALICE


def test_a_writer_may_put_back_an_older_row_of_the_same_job(team: Team) -> None:
    alice = team.on(ALICE)
    alice.add(replace(OF_ALICE, phase=Phase.PLAN))
    team.write("CREATE TABLE old AS SELECT * FROM runs")
    team.save(alice, replace(OF_ALICE, phase=Phase.ENDED))
    team.write("UPDATE runs SET phase = old.phase, signature = old.signature FROM old")
    assert alice.get(OF_ALICE.id) == replace(OF_ALICE, phase=Phase.PLAN)


def test_a_machine_is_this_ledgers_by_its_label_or_a_signed_row_alone(team: Team) -> None:
    alice = team.on(ALICE)
    ended = replace(OF_ALICE, phase=Phase.ENDED, provider="fake", instance_id="7", ended_at=0.0)
    alice.add(ended)
    machine = Instance(
        id="7", label="vastrun-other.00000000", state="running", usd_per_hour=1.0, rented_at=NOW
    )

    def owner() -> Owner:
        (found,) = orphans(alice.for_display(), _Listed(machine), NOW)
        return found.owner

    assert owner() is Owner.THIS
    team.write("UPDATE runs SET signature = ''")
    assert owner() is Owner.OTHER
    machine = replace(machine, label=replace(ended, ledger=alice.id).label)
    team.write(f"UPDATE runs SET ledger = '{alice.id}'")
    assert owner() is Owner.THIS


class _Listed:
    """A market with one machine."""

    name, shared, free = "fake", True, False

    class abilities:
        market = None

    def __init__(self, machine: Instance) -> None:
        self._machine = machine

    def instances(self) -> list[Instance]:
        return [self._machine]


def test_the_key_is_made_once_and_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    key = signing_key(tmp_path / "state")
    assert signing_key(tmp_path / "state") == key != signing_key(tmp_path / "other")
    file = tmp_path / "state" / KEY_FILE
    assert (stat.S_IMODE(file.stat().st_mode), len(key)) == (0o600, 64)
    with pytest.raises(StorageError):
        signing_key(file)


def test_no_key_is_in_the_ledger(team: Team, tmp_path: Path) -> None:
    environ = {"VASTRUN_LEDGER": team.url, "VASTRUN_TEAM_KEY": "k" * 44, "XDG_STATE_HOME": str(tmp_path)}
    app = App(environ)
    app.driver_ledger().add(RUN)
    key = (tmp_path / "vastrun" / KEY_FILE).read_text()
    rows = json.dumps(team.write("SELECT row_to_json(runs)::text FROM runs"))
    assert RUN.id in rows
    assert key not in rows
    assert "k" * 44 not in rows


def test_a_team_key_that_is_too_short_signs_nothing(team: Team) -> None:
    with pytest.raises(UsageError, match="VASTRUN_TEAM_KEY: expected 32 characters or more"):
        team.on(ALICE, team="short").add(RUN)
