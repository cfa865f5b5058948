"""Runs with several nodes whose launcher is killed, or meets a fault: nothing stays rented."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.faults import KILL_IN, Fault, Killed, Moment, launch_killed
from tests.launcher.ledger.postgres import PostgresServer
from tests.launcher.node_checks import TROUBLES, check_nothing_leaked, drive_to_the_end, networked, rows_of
from tests.launcher.node_world import RUN_ID, Life, NodeWorld
from tests.launcher.team_world import TeamWorld
from tests.slow import slow
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import HeldError, NoSuchRunError, StorageError
from vastrun.launcher.flow.services import Services


def test_rows_of_nodes_that_a_killed_launcher_left_open_are_closed_by_the_next(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    fault = Fault(verb="provider.search", nth=1, moment="before", trouble="error")
    launch_killed(world, "ledger.save", "after", besides=(fault,))
    assert [row.phase for row in world.rows()] == [Phase.ENDED, Phase.PLAN], world.told
    world.resume()
    check_nothing_leaked(world)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
@pytest.mark.sampled(3)
def test_a_launcher_killed_in_a_phase_of_either_node_and_resumed_ends_with_success(
    phase: Phase, nth: int, tmp_path: Path
) -> None:
    world = NodeWorld(tmp_path)
    launch_killed(world, *KILL_IN[phase], nth=nth)
    run = world.resume()

    assert run.cause is None, world.told
    assert len(world.market.order) == 2
    check_nothing_leaked(world)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def shared(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodeWorld]:
    """Two computers with one ledger: a file that both have, and a team's database."""
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        yield NodeWorld(tmp_path)
        return
    with TeamWorld(tmp_path, request.getfixturevalue("postgres").database()) as world:
        yield world


@pytest.mark.parametrize("phase", [Phase.RENT, *slow(*((one,) for one in KILL_IN if one is not Phase.RENT))])
def test_a_launcher_killed_in_a_phase_is_followed_by_one_on_another_computer_of_the_team(
    phase: Phase, shared: NodeWorld, tmp_path: Path
) -> None:
    world = shared
    launch_killed(world, *KILL_IN[phase], nth=2)

    run = world.resume(computer="laptop")

    assert run.cause is None, world.told
    assert len(world.market.order) == 2
    folder = tmp_path / "runs" / RUN_ID
    assert [(row.computer, row.out_dir) for row in world.rows()] == [
        ("laptop", str(folder)),
        ("laptop", str(folder / "node-1")),
    ]
    check_nothing_leaked(world)


MOVES = [("ledger.save", nth) for nth in (1, 2, 3)] + [("ledger.hold", nth) for nth in (1, 2, 3)]


@pytest.mark.parametrize(
    ("verb", "nth", "trouble"),
    [
        *((*move, "killed") for move in MOVES if move[1] == 2),
        *slow(*((*move, "killed") for move in MOVES if move[1] != 2)),
        *slow(*((*move, "no space") for move in MOVES)),
    ],
)
def test_who_takes_a_run_over_and_fails_on_the_way_leaves_all_nodes_to_the_next(
    verb: str, nth: int, trouble: str, shared: NodeWorld, tmp_path: Path
) -> None:
    world = shared
    launch_killed(world, "output_store.download_log", "after", nth=2)
    world.plan.calls.clear()
    world.expect(Fault(verb=verb, nth=nth, moment="after", trouble=trouble))
    with pytest.raises((Killed, StorageError)):
        world.resume(computer="laptop")

    run = world.resume(computer="laptop")

    assert run.cause is None, world.told
    folder = tmp_path / "runs" / RUN_ID
    assert [row.out_dir for row in world.rows()] == [str(folder), str(folder / "node-1")]
    check_nothing_leaked(world)


def test_nobody_takes_a_run_of_several_nodes_from_a_computer_that_was_heard_of_lately(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with TeamWorld(tmp_path, postgres.database(), lease_s=60.0) as world:
        launch_killed(world, "output_store.download_log", "after", nth=2)
        with pytest.raises(HeldError, match="on desk, since"):
            world.resume(computer="laptop")

        assert {row.computer for row in world.rows()} == {"desk"}
        assert world.resume().cause is None, world.told
        check_nothing_leaked(world)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_launcher_killed_in_a_phase_and_never_resumed_leaves_nothing(phase: Phase, tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    launch_killed(world, *KILL_IN[phase], nth=2)
    world.time.sleep(3600.0)
    assert world.market.rented == 0


ROWS = rows_of(
    {
        **TROUBLES,
        "networks.rendezvous": ("error", "unreachable", "killed"),
        "networks.remove_network": ("error", "unreachable", "denied", "killed"),
    }
)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS, ids=lambda value: str(value).replace(" ", "_"))
def test_one_fault_leaves_no_machine_of_either_node_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    struck = 0
    for nth in (1, 2):
        world, market = networked(tmp_path)
        world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))

        try:
            run = drive_to_the_end(world)
        except NoSuchRunError:  # no row was ever written
            assert world.market.order == []
            struck += 1
            continue

        check_nothing_leaked(world)
        assert market.left_with == 0
        assert market.networks == {} or "network could not be removed" in world.told
        struck += len(world.plan.struck)
        if run.cause is None:
            assert all(proof.holds for row in world.rows(run.id) for proof in row.proofs), world.told
        else:
            assert run.detail, world.told
        if trouble == "killed" and verb != "ledger.add":
            assert run.cause is None, f"#{nth}: {run.cause} {run.detail}\n{world.told}"
    assert struck, "no fault of this row ever struck: the row tests nothing"


def test_an_error_before_a_further_node_is_driven_ends_the_drive(tmp_path: Path) -> None:
    world, who = NodeWorld(tmp_path), "desk:1:0"

    def full(row: Run, services: Services) -> AbstractContextManager[Services]:
        if row.leader:
            raise StorageError("no space left for its transcript")
        return nullcontext(services)

    attempts = replace(world.attempts(who, Life()), recorded=full)
    with pytest.raises(StorageError, match="no space left for its transcript"):
        attempts.drive_to_end(world.begun(attempts))
    world.dead.add(who)
    assert world.market.order == []

    assert world.resume().cause is None, world.told
    check_nothing_leaked(world)
