"""The verdict on a stopped program follows from its proofs, whatever its box says and whoever is killed."""

from pathlib import Path

import pytest

from tests.launcher.faults import Fault
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.stop_world import (
    ENDS,
    EXIT_CODES,
    STOP_ROWS,
    Proofs,
    Stop,
    claims_to_have_finished,
    did_all_steps,
    stop_world,
    succeeds,
)
from tests.launcher.world import World
from tests.slow import slow
from vastrun.launcher.core import Verdict


def check_verdict_of_a_stop(world: World, stop: Stop, exit_code: int, proofs: Proofs) -> None:
    run = drive_to_the_end(world)

    check_nothing_leaked_and_nothing_lied(world, run)
    assert run is not None
    if succeeds(exit_code, proofs):
        assert run.verdict is Verdict.SUCCEEDED, run.detail
    else:
        assert (run.verdict, run.cause) == (ENDS[stop].verdict, ENDS[stop].cause), run.detail
    [proof] = [proof for proof in run.proofs if proof.name == "stop"]
    assert proof.holds is (exit_code == 0 and did_all_steps(proofs))
    assert "SIGTERM was sent" in proof.text


QUICK_STOPS = [row for row in STOP_ROWS if row[1] == 0]


@pytest.mark.parametrize(
    ("stop", "exit_code", "proofs"),
    [*QUICK_STOPS, *slow(*(row for row in STOP_ROWS if row not in QUICK_STOPS))],
)
def test_a_program_that_was_stopped_has_succeeded_only_by_the_steps_that_it_did_before(
    stop: Stop, exit_code: int, proofs: Proofs, tmp_path: Path
) -> None:
    world = stop_world(tmp_path, stop, exit_code, proofs)
    # Whoever stopped it is killed before it has the outputs; the next launcher finds the same verdict.
    world.expect(Fault(verb="output_store.collect", nth=1, moment="before", trouble="killed"))
    check_verdict_of_a_stop(world, stop, exit_code, proofs)
    assert world.plan.struck


@pytest.mark.parametrize(
    ("stop", "exit_code", "proofs"), [row for row in QUICK_STOPS if not succeeds(0, row[2])]
)
def test_a_box_that_calls_a_stopped_program_finished_is_not_believed(
    stop: Stop, exit_code: int, proofs: Proofs, tmp_path: Path
) -> None:
    world = stop_world(tmp_path, stop, exit_code, proofs)
    world.market.training = claims_to_have_finished(world.market.training)
    check_verdict_of_a_stop(world, stop, exit_code, proofs)


def test_the_table_of_stops_has_every_stop_with_every_exit_code() -> None:
    assert len(STOP_ROWS) >= 40
    assert {(stop, exit_code) for stop, exit_code, _ in STOP_ROWS} == {
        (stop, exit_code) for stop in ENDS for exit_code in EXIT_CODES
    }
