"""A table of verdicts: what a stop, an exit code and proofs make together."""

from dataclasses import dataclass, replace

import pytest

from tests.jobs import command_job, train_job
from tests.launcher.decisions.outcomes import GOOD, good
from vastrun.contract.outcome import Check, Outcome, RankEnd
from vastrun.launcher.core import Evidence
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import VERDICT_OF, Verdict
from vastrun.launcher.decisions.run_assessment import STOP_CAUSES, assess_run

STEPS = 600
VERDICT_OF_STOP = {
    "stopped": Verdict.STOPPED,
    "pruned": Verdict.PRUNED,
    "time_limit": Verdict.LIMIT,
    "money_limit": Verdict.LIMIT,
    "preempted": Verdict.PREEMPTED,
}
"""Verdict of a program that a stop ended."""


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """What the box found when the program had exited."""

    name: str
    step_at_stop: int | None = 99
    """The step that all ranks had reported when SIGTERM was sent; None: the record does not say."""
    steps: int | None = STEPS
    """`success.steps` of the job."""
    steps_hold: bool = False
    file_holds: bool = True
    damaged: tuple[str, ...] = ()
    succeeds: bool = False
    """True: a program that exits 0 has succeeded all the same."""


PROOFS = (
    Proofs(name="only the file, which is there", steps=None),
    Proofs(name="only the file, which is missing", steps=None, file_holds=False),
    Proofs(name="stopped before the last step"),
    Proofs(name="steps went on after the stop and reached the last", steps_hold=True),
    Proofs(name="no step is known", step_at_stop=None, steps_hold=True),
    Proofs(name="all steps before the stop", step_at_stop=STEPS, steps_hold=True, succeeds=True),
    Proofs(name="more steps than asked for", step_at_stop=STEPS + 1, steps_hold=True, succeeds=True),
    Proofs(name="all steps, but no file", step_at_stop=STEPS, steps_hold=True, file_holds=False),
    Proofs(name="all steps, but a damaged output", step_at_stop=STEPS, steps_hold=True, damaged=("a.pt",)),
)
EXITS = {0: "exited 0", 1: "raised", 143: "was ended by SIGTERM", 137: "was killed"}


def job(proofs: Proofs) -> JobSpec:
    spec = command_job()
    assert spec.success is not None
    return replace(spec, success=replace(spec.success, steps=proofs.steps, files=("a.pt",)))


def evidence(stop: str, exit_code: int, proofs: Proofs, *, said: str) -> Evidence:
    """What a box writes whose program exited so after a stop; `said`: the reason that it names."""
    checks = [Check(name="files", holds=proofs.file_holds, text="a.pt")]
    if proofs.steps is not None:
        checks.append(Check(name="steps", holds=proofs.steps_hold, text="steps"))
    outcome = Outcome(
        kind="command",
        reason=said,  # type: ignore[arg-type]
        detail="all ranks exited in time",
        started_at=1000.0,
        ended_at=1090.0,
        world_size=job(proofs).world_size,
        ranks=tuple(RankEnd(rank=r, exit_code=exit_code) for r in range(job(proofs).world_size)),
        stop_cause=stop,
        stop_sent_at=1074.0,
        stop_sent_step=proofs.step_at_stop,
        checks=tuple(checks),
    )
    run_exit = 0 if said == "finished" else 143
    return Evidence(outcome=outcome, exit_code=run_exit, damaged=proofs.damaged)


@pytest.mark.parametrize("proofs", PROOFS, ids=lambda proofs: proofs.name)
@pytest.mark.parametrize("exit_code", EXITS, ids=lambda code: EXITS[code])
@pytest.mark.parametrize("stop", STOP_CAUSES)
def test_a_stopped_program_succeeds_only_by_steps_that_it_did_before_the_stop(
    stop: str, exit_code: int, proofs: Proofs
) -> None:
    # A box names `finished` when all ranks exited 0, or sees by the steps that a stop ended them: both count.
    for said in ("finished", "stopped") if exit_code == 0 and not proofs.succeeds else ("stopped",):
        assessment = assess_run(evidence(stop, exit_code, proofs, said=said), job(proofs))
        assert VERDICT_OF[assessment.cause] is VERDICT_OF_STOP[stop], said
        assert assessment.cause is STOP_CAUSES[stop]
    if exit_code == 0 and proofs.succeeds:
        assessment = assess_run(evidence(stop, exit_code, proofs, said="finished"), job(proofs))
        assert VERDICT_OF[assessment.cause] is Verdict.SUCCEEDED


@pytest.mark.parametrize(
    ("proofs", "holds", "text"),
    [
        (PROOFS[0], False, "SIGTERM was sent 74 s after the start (time limit), at step 99"),
        (PROOFS[2], False, "SIGTERM was sent 74 s after the start (time limit), at step 99 of 600"),
        (PROOFS[4], False, "SIGTERM was sent 74 s after the start (time limit)"),
        (PROOFS[5], True, "SIGTERM was sent 74 s after the start (time limit), at step 600 of 600"),
    ],
)
def test_the_proofs_say_when_a_stop_was_sent(proofs: Proofs, holds: bool, text: str) -> None:
    judged = assess_run(evidence("time_limit", 0, proofs, said="finished"), job(proofs)).proofs
    [stop] = [proof for proof in judged if proof.name == "stop"]
    assert (stop.holds, stop.text) == (holds, text)


def test_a_record_of_an_older_box_has_no_proof_of_a_stop() -> None:
    older = evidence("time_limit", 0, PROOFS[0], said="finished")
    assert older.outcome is not None
    text = replace(older.outcome, stop_sent_at=None, stop_sent_step=None, stop_cause=None).to_json()
    fields = {"stop_sent_at", "stop_sent_step"}
    lines = [line for line in text.splitlines() if not any(f'"{name}"' in line for name in fields)]
    outcome = Outcome.from_json("\n".join(lines))
    assessment = assess_run(replace(older, outcome=outcome), job(PROOFS[0]))
    assert assessment.cause is None
    assert not [proof for proof in assessment.proofs if proof.name == "stop"]


def test_the_onboard_trainer_that_finished_in_spite_of_a_stop_has_succeeded() -> None:
    spec = train_job()
    assert spec.train is not None
    assert GOOD.steps_done == spec.train.steps
    found = good(stop_cause="time_limit", stop_sent_at=0.9, stop_sent_step=spec.train.steps - 1)
    assert assess_run(found, spec).cause is None
