"""The verdict on a stopped program follows from its proofs, even if its launcher is killed.

decisions/test_stop_verdicts.py has the table of all stops, exit codes and proofs.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import RANKS, Training
from tests.jobs import command_job
from tests.launcher.faults import Fault
from tests.launcher.flow.test_pruning import prune_later
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.slow_world import LIMITS, STEPS
from tests.launcher.world import World
from vastrun.contract.outcome import Check, Outcome, RankEnd
from vastrun.launcher.core import Cause, UserRequest, Verdict
from vastrun.launcher.core.job import Limits, Success

CAUSES: Mapping[str, tuple[Verdict, Cause]] = {
    "user": (Verdict.STOPPED, Cause.STOPPED),
    "batch": (Verdict.PRUNED, Cause.PRUNED),
    "time": (Verdict.LIMIT, Cause.TIME_LIMIT),
    "money": (Verdict.LIMIT, Cause.MONEY_LIMIT),
}
LIMITS_OF = {"time": Limits(hours=0.05, usd=30.0), "money": Limits(hours=5.0, usd=0.1)}


@pytest.mark.parametrize("did_all_steps", [True, False])
@pytest.mark.parametrize("stop", CAUSES)
def test_a_program_that_was_stopped_has_succeeded_only_by_the_steps_that_it_did_before(
    stop: str, did_all_steps: bool, tmp_path: Path
) -> None:
    world = stop_world(tmp_path, stop, did_all_steps)
    # Whoever stopped it is killed before it has the outputs; the next launcher finds the same verdict.
    world.expect(Fault(verb="output_store.collect", nth=1, moment="before", trouble="killed"))

    run = drive_to_the_end(world)

    assert world.plan.struck
    check_nothing_leaked_and_nothing_lied(world, run)
    assert run is not None
    if did_all_steps:
        assert run.verdict is Verdict.SUCCEEDED, run.detail
    else:
        assert (run.verdict, run.cause) == CAUSES[stop], run.detail
    [proof] = [proof for proof in run.proofs if proof.name == "stop"]
    assert proof.holds is did_all_steps
    assert "SIGTERM was sent" in proof.text


def stop_world(folder: Path, stop: str, did_all_steps: bool) -> World:
    """A world in which a program is stopped so and exits 0; its launchers need only drive it."""

    def stopped(outcome: Outcome) -> Outcome:
        return replace(
            outcome,
            kind="command",
            reason="finished" if did_all_steps else "stopped",
            ranks=tuple(RankEnd(rank=rank, exit_code=0) for rank in range(RANKS)),
            stop_sent_at=outcome.ended_at - 2,
            stop_sent_step=STEPS if did_all_steps else outcome.steps_done,
            checks=(Check(name="steps", holds=did_all_steps, text="steps"),),
        )

    training = Training(kind="command", seconds=3000.0, steps=STEPS, checkpoint_every=10, stopped=stopped)
    spec = command_job(success=Success(steps=STEPS), limits=LIMITS_OF.get(stop, LIMITS))
    world = World(folder, training=training, spec=spec)
    if stop == "user":
        world.user_requests.at = {world.clock.now() + 60: UserRequest.STOP}
    if stop == "batch":
        prune_later(world, after_s=60)
    return world
