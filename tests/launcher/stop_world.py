"""Stop world: a user's own program that is asked to stop, exits with some code and leaves some proofs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.fakebox import RANKS, Training
from tests.jobs import command_job
from tests.launcher.slow_world import LIMITS, STEPS
from tests.launcher.world import RUN_ID, World
from vastrun.contract.outcome import Check, Outcome, RankEnd
from vastrun.launcher.batch.observer import prune
from vastrun.launcher.core import Cause, UserRequest, Verdict
from vastrun.launcher.core.batch import Pruning
from vastrun.launcher.core.job import Limits, Success

Stop = Literal["user", "batch", "time", "money"]
Proofs = Literal["exit code", "file", "too few steps", "all steps", "all steps, no file"]


@dataclass(frozen=True, kw_only=True)
class StopEnd:
    """What a run that was stopped so ends with."""

    cause: Cause
    verdict: Verdict


ENDS: Mapping[Stop, StopEnd] = {
    "user": StopEnd(cause=Cause.STOPPED, verdict=Verdict.STOPPED),
    "batch": StopEnd(cause=Cause.PRUNED, verdict=Verdict.PRUNED),
    "time": StopEnd(cause=Cause.TIME_LIMIT, verdict=Verdict.LIMIT),
    "money": StopEnd(cause=Cause.MONEY_LIMIT, verdict=Verdict.LIMIT),
}
EXIT_CODES = (0, 1, 137, 143)
PROOFS: Mapping[Proofs, Success] = {
    "exit code": Success(exit_code=0),
    "file": Success(files=("a.pt",)),
    "too few steps": Success(steps=STEPS),
    "all steps": Success(steps=STEPS),
    "all steps, no file": Success(steps=STEPS, files=("a.pt",)),
}
STOP_ROWS = [(stop, exit_code, proofs) for stop in ENDS for exit_code in EXIT_CODES for proofs in PROOFS]


def did_all_steps(proofs: Proofs) -> bool:
    """Return whether all ranks had reported the last step before the stop."""
    return proofs.startswith("all steps")


def succeeds(exit_code: int, proofs: Proofs) -> bool:
    """Return whether a stopped program has succeeded all the same."""
    return exit_code == 0 and proofs == "all steps"


def stop_world(folder: Path, stop: Stop, exit_code: int, proofs: Proofs) -> World:
    """A world in which the run is stopped so; its launchers need only drive it."""
    training = Training(
        kind="command",
        seconds=3000.0,
        steps=STEPS,
        checkpoint_every=10,
        stopped=lambda outcome: _outcome(outcome, exit_code, proofs),
    )
    spec = command_job(success=PROOFS[proofs], limits=_limits(stop))
    world = World(folder, training=training, spec=spec)
    asked_at = world.clock.now() + 60
    if stop == "user":
        world.user_requests.at = {asked_at: UserRequest.STOP}
    if stop == "batch":
        _prune_at(world, asked_at)
    return world


def _limits(stop: Stop) -> Limits:
    if stop == "time":
        return Limits(hours=0.05, usd=30.0)
    return Limits(hours=5.0, usd=0.1) if stop == "money" else LIMITS


def _prune_at(world: World, asked_at: float) -> None:
    sleep = world.clock.sleep

    def heard(seconds: float) -> None:
        sleep(seconds)
        if world.clock.now() >= asked_at and world.ledger.runs():
            pruning = Pruning(run=RUN_ID, reason="it is behind")
            prune(world.ledger, world.run(), pruning, world.clock.now())

    world.clock.sleep = heard  # type: ignore[method-assign]


def _outcome(outcome: Outcome, exit_code: int, proofs: Proofs) -> Outcome:
    """What a supervisor writes of a program that exited so after SIGTERM."""
    success, done = PROOFS[proofs], did_all_steps(proofs)
    checks = []
    if success.files:
        checks.append(Check(name="files", holds=proofs == "file", text="a.pt"))
    if success.steps is not None:
        checks.append(Check(name="steps", holds=done, text="steps"))
    if success.exit_code is not None:
        checks.append(Check(name="exit_code", holds=exit_code == 0, text="exit codes of the ranks"))
    return replace(
        outcome,
        kind="command",
        reason="finished" if exit_code == 0 and done else "stopped",
        ranks=tuple(RankEnd(rank=rank, exit_code=exit_code) for rank in range(RANKS)),
        stop_sent_at=outcome.ended_at - 2,
        stop_sent_step=STEPS if done else outcome.steps_done,
        checks=tuple(checks),
    )


def claims_to_have_finished(training: Training) -> Training:
    """The same box, whose record names no stop as the reason: its program exited 0."""
    inner = training.stopped
    assert inner is not None
    return replace(training, stopped=lambda outcome: replace(inner(outcome), reason="finished"))
