"""A success needs every proof; what is missing is UNKNOWN, what contradicts is shown."""

from dataclasses import replace

import pytest

from tests.jobs import command_job, train_job
from tests.launcher.decisions.outcomes import GOOD, STOPS, evidence, good
from vastrun.contract.outcome import (
    Check,
    CheckpointEnd,
    FileSystem,
    MachineReading,
    Outcome,
    RankEnd,
    Reason,
    RestoredSnapshot,
    StageEnd,
    StartRecord,
)
from vastrun.contract.records import read_as
from vastrun.launcher.core import Cause, Evidence, LeftOutFile, LeftOutFiles
from vastrun.launcher.core.job import Checkpoints
from vastrun.launcher.core.left_out import file_text
from vastrun.launcher.decisions.run_assessment import STOP_CAUSES, assess_run
from vastrun.launcher.gate.box_reader import parse_evidence
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.onstart.supervision.stop import STOP_TEXTS
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import GateConfig

ENDS = (
    RankEnd(rank=0, exit_code=0),
    RankEnd(rank=1, exit_code=-11, signal="SIGSEGV"),
    RankEnd(rank=2, exit_code=3),
    RankEnd(rank=3, exit_code=None),
)


def test_each_proof_of_a_success_says_what_was_found() -> None:
    assessment = assess_run(evidence(GOOD), train_job())

    assert (assessment.cause, assessment.detail) == (None, "")
    assert {proof.name: proof.text for proof in assessment.proofs} == {
        "ranks": "2 of 2 ranks exited 0",
        "exit": "the exit code of the run is 0",
        "record": "the final record was written",
        "steps": "10 of 10 steps were done",
        "loss": "the last loss is 0.1",
        "checkpoint": "the checkpoint of step 10 is intact",
        "outputs": "all outputs downloaded, checksums match",
    }


def saved(*, step: int, intact: bool) -> CheckpointEnd:
    return CheckpointEnd(step=step, path="a/b", intact=intact)


@pytest.mark.parametrize(
    ("found", "proof", "cause", "text"),
    [
        (good(ranks=ENDS[:1]), "ranks", Cause.CONTRADICTION, "1 of 2 ranks exited 0"),
        (
            good(ranks=(*GOOD.ranks, RankEnd(rank=1, exit_code=1))),
            "ranks",
            Cause.CONTRADICTION,
            "2 of 2 ranks exited 0; ended: rank 1 by exit code 1",
        ),
        (
            good(ranks=(*GOOD.ranks, RankEnd(rank=2, exit_code=0))),
            "ranks",
            Cause.CONTRADICTION,
            "3 of 2 ranks exited 0",
        ),
        (
            good(ranks=ENDS),
            "ranks",
            Cause.CONTRADICTION,
            "1 of 2 ranks exited 0; "
            "ended: rank 1 by SIGSEGV, rank 2 by exit code 3, rank 3 by an unknown cause",
        ),
        (evidence(GOOD, exit_code=1), "exit", Cause.CONTRADICTION, "the exit code of the run is 1"),
        (evidence(GOOD, exit_code=None), "exit", Cause.UNPROVEN, "the run left no exit code"),
        (good(final_record=False), "record", Cause.CONTRADICTION, "the trainer wrote no final record"),
        (good(steps_done=9), "steps", Cause.CONTRADICTION, "9 of 10 steps were done"),
        (good(steps_done=0), "steps", Cause.CONTRADICTION, "0 of 10 steps were done"),
        (good(loss_finite=None), "loss", Cause.UNPROVEN, "no loss was recorded"),
        (good(loss_finite=False, last_loss=None), "loss", Cause.CONTRADICTION, "the loss is not finite"),
        (good(checkpoint=None), "checkpoint", Cause.UNPROVEN, "there is no checkpoint"),
        (
            good(checkpoint=saved(step=10, intact=False)),
            "checkpoint",
            Cause.CONTRADICTION,
            "the checksum of a/b does not match",
        ),
        (
            good(checkpoint=saved(step=5, intact=True)),
            "checkpoint",
            Cause.CONTRADICTION,
            "the newest checkpoint is of step 5, not 10; it is intact",
        ),
        (
            evidence(GOOD, damaged=("a", "b", "c", "d")),
            "outputs",
            Cause.UNPROVEN,
            "missing or damaged after the download: a, b, c",
        ),
        (evidence(None), "outcome", Cause.UNPROVEN, "the machine wrote no outcome.json"),
    ],
)
def test_one_proof_that_fails_is_never_a_success_and_says_what_was_found(
    found: Evidence, proof: str, cause: Cause, text: str
) -> None:
    assessment = assess_run(found, train_job())
    assert assessment.cause is cause
    assert [(each.name, each.text) for each in assessment.proofs if not each.holds] == [(proof, text)]


CHECKS = (
    Check(name="log", holds=False, text="no line says done"),
    Check(name="files", holds=False, text="no file matches *.npz"),
    Check(name="exit", holds=True, text="it exited 0"),
)
EXITED = (Check(name="exit_code", holds=True, text="exit code 0"),)
OF_A_COMMAND = replace(GOOD, kind="command", final_record=False, checkpoint=None, steps_planned=None)


@pytest.mark.parametrize(
    ("found", "cause", "detail"),
    [
        (
            evidence(replace(GOOD, steps_done=9), exit_code=1),
            Cause.CONTRADICTION,
            "it reports success, but the exit code of the run is 1; 9 of 10 steps were done",
        ),
        (good(loss_finite=None, checkpoint=None), Cause.UNPROVEN, "missing proof: loss, checkpoint"),
        (evidence(None), Cause.UNPROVEN, "no evidence of what happened"),
        (evidence(None, exit_code=137), Cause.HOST, "the run on the machine was killed by something else"),
        (
            evidence(None, nonsense="world_size is -1"),
            Cause.HOST,
            "the machine sent invalid evidence: world_size is -1",
        ),
    ],
)
def test_the_detail_of_a_training_says_why(found: Evidence, cause: Cause, detail: str) -> None:
    assessment = assess_run(found, train_job())
    assert (assessment.cause, assessment.detail) == (cause, detail)


@pytest.mark.parametrize(
    ("checks", "cause", "detail"),
    [
        (
            CHECKS,
            Cause.USER_ERROR,
            "a success condition of the job is not met: no line says done; no file matches *.npz",
        ),
        (CHECKS[2:], None, ""),
        ((), Cause.UNPROVEN, "missing proof: success"),
    ],
)
def test_the_detail_of_a_command_names_the_conditions_that_are_not_met(
    checks: tuple[Check, ...], cause: Cause | None, detail: str
) -> None:
    assessment = assess_run(evidence(replace(OF_A_COMMAND, checks=checks)), command_job())
    assert (assessment.cause, assessment.detail) == (cause, detail)


def record(reason: Reason, detail: str) -> StartRecord:
    return StartRecord(reason=reason, detail=detail, world_size=2, started_at=0.0, ended_at=1.0)


@pytest.mark.parametrize("reasons", [("signal", "finished"), ("finished", "signal", "finished")])
def test_a_success_says_what_it_survived_and_a_new_stage_is_no_restart(reasons: tuple[Reason, ...]) -> None:
    starts = tuple(record(reason, f"detail of {reason}") for reason in reasons)
    assessment = assess_run(good(starts=starts), train_job())
    assert assessment.cause is None
    assert [proof.text for proof in assessment.proofs if proof.name == "restarts"] == [
        "the ranks were restarted once, after: detail of signal"
    ]


@pytest.mark.parametrize(
    ("step", "first", "read", "text"),
    [
        (20, 21, "", "restored at step 20, and the program began at step 21"),
        (20, 1, "a.pt", "WARNING: restored at step 20, and the program began at step 1"),
        (20, None, None, None),
        (0, 21, None, None),
        (0, 21, "code/a.pt", "the program read code/a.pt"),
        (20, None, "", "WARNING: the program read no restored file before its next snapshot"),
    ],
)
def test_a_restored_command_that_began_anew_has_a_warning(
    step: int, first: int | None, read: str | None, text: str | None
) -> None:
    restored = RestoredSnapshot(step=step, first_step=first, read=read)
    found = good(kind="command", restored=restored, checkpoint=None, checks=EXITED)
    spec = replace(command_job(), checkpoints=Checkpoints(files="ckpt/*"), ranks=2)
    assessment = assess_run(found, spec)
    proofs = {proof.name: proof.text for proof in assessment.proofs}
    assert assessment.cause is None
    assert proofs.get("continued") == text
    assert proofs["snapshot"] == "WARNING: no snapshot was taken, although checkpoints names ckpt/*"


def test_a_command_that_declared_checkpoints_and_left_none_has_no_proof_of_its_snapshot() -> None:
    spec = replace(command_job(), checkpoints=Checkpoints(files="ckpt/*"), ranks=2)
    found = assess_run(good(kind="command", checkpoint=None, checks=EXITED), spec)
    assert (found.cause, found.proofs[-1].name) == (Cause.CONTRADICTION, "outputs")
    assert "no snapshot was taken, although checkpoints names ckpt/*" in found.detail


def test_a_snapshot_proves_nothing_where_the_disk_was_full_and_the_program_printed_tracebacks() -> None:
    full = FileSystem(path="the disk", size=10, free=5, full_at=9.0)
    found = good(kind="command", checks=EXITED, reading=MachineReading(at=10.0, file_systems=(full,)))
    spec = replace(command_job(), ranks=2)
    assert assess_run(found, spec).cause is None
    assert found.outcome is not None
    printed = replace(found, outcome=replace(found.outcome, printed_errors=("rank 0 printed 3 tracebacks",)))
    assessment = assess_run(printed, spec)
    assert assessment.cause is Cause.CONTRADICTION
    assert "may lack what the program could not write: the disk was full" in assessment.detail


def test_tracebacks_and_lost_metrics_of_a_command_that_succeeded_are_warnings() -> None:
    found = good(kind="command", checks=EXITED, printed_errors=("rank 0 printed 3 tracebacks",))
    assert found.outcome is not None
    found = replace(found, outcome=replace(found.outcome, nested_ranks="rank 0 started ranks"))
    assessment = assess_run(replace(found, lost_metrics=("loss",)), replace(command_job(), ranks=2))
    assert assessment.cause is None
    texts = {proof.name: proof.text for proof in assessment.proofs}
    assert texts["errors"].startswith("WARNING: rank 0")
    assert texts["launcher"] == "WARNING: rank 0 started ranks"
    assert texts["metrics"] == "WARNING: not a finite number at the end: loss"


def test_a_training_that_went_on_with_fewer_ranks_is_whole_and_one_that_lost_some_is_not() -> None:
    fewer = replace(GOOD, world_size=1, ranks=GOOD.ranks[:1])
    survived = (record("device", "rank 1 failed: GPU 1 is lost"), record("finished", ""))
    assert assess_run(evidence(replace(fewer, starts=survived)), train_job()).cause is None
    assert assess_run(evidence(replace(fewer, starts=survived[1:])), train_job()).cause is Cause.CONTRADICTION


@pytest.mark.parametrize(("said", "cause"), [*STOPS, (None, Cause.STOPPED)])
def test_a_stop_is_told_apart_by_who_asked(said: str | None, cause: Cause) -> None:
    outcome = replace(GOOD, reason="stopped", stop_cause=said)
    assert assess_run(evidence(outcome, exit_code=143), train_job()).cause is cause


def test_the_box_knows_every_stop_that_the_launcher_tells_apart() -> None:
    assert set(STOP_CAUSES) == set(STOP_TEXTS)


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "train"}', "null"])
def test_exit_code_0_with_an_outcome_that_no_honest_box_writes_is_the_hosts_fault(text: str) -> None:
    assessment = assess_run(parse_evidence(text.encode(), b"", 0, damaged=()), train_job())
    assert assessment.cause is Cause.HOST
    assert "run/outcome.json" in assessment.detail


HELD = Outcome(
    kind="hold",
    reason="finished",
    detail="no slot was requested for 120 s",
    started_at=0.0,
    ended_at=1.0,
    world_size=0,
    ranks=(),
)
HOLD = hold_spec(train_job(), slots=2, hours=1.0, usd=1.0, idle_s=120.0)


def test_a_machine_that_was_held_until_nobody_wanted_it_is_a_success() -> None:
    assessment = assess_run(evidence(HELD), HOLD)
    assert assessment.cause is None
    assert "held until: no slot was requested for 120 s" in [proof.text for proof in assessment.proofs]


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (evidence(replace(HELD, reason="stopped", stop_cause="stopped"), exit_code=143), Cause.STOPPED),
        (evidence(replace(HELD, reason="stopped", stop_cause="time_limit")), Cause.TIME_LIMIT),
        (evidence(HELD, exit_code=137), Cause.CONTRADICTION),
        (evidence(HELD, damaged=("run/outcome.json",)), Cause.UNPROVEN),
        (evidence(replace(GOOD, ranks=())), Cause.UNPROVEN),
        (evidence(None), Cause.UNPROVEN),
        (evidence(None, exit_code=137), Cause.HOST),
    ],
)
def test_a_machine_that_was_held_otherwise_is_not(found: Evidence, cause: Cause) -> None:
    assert assess_run(found, HOLD).cause is cause


def test_outputs_that_were_not_downloaded_are_named_in_their_proof() -> None:
    file = LeftOutFile(path="run/outputs/model.pt", why="a link out of the box, to /mnt/model.pt")
    link = file_text(file)
    assessment = assess_run(evidence(GOOD, left_out=LeftOutFiles(files=(file,) * 9, count=40)), train_job())
    assert assessment.cause is None
    (proof,) = [proof for proof in assessment.proofs if proof.name == "outputs"]
    assert proof.holds is True
    assert proof.text.startswith(f"outputs downloaded, checksums match; WARNING: 40 not downloaded: {link}, ")
    assert proof.text.endswith(", ...")
    assert proof.text.count("model.pt (") == 5
    damaged = assess_run(
        evidence(GOOD, damaged=("x",), left_out=LeftOutFiles(files=(file,), count=1)), train_job()
    )
    assert "missing or damaged after the download: x; WARNING: 1 not downloaded" in damaged.detail + str(
        damaged.proofs
    )


STAGES = ("operator", "refine")
TWO_STAGES = replace(
    train_job(),
    train=read_as(TrainConfig, {"stages": [*STAGES], "steps": 6, "stage_options": {"refine": {"steps": 4}}}),
)
OPERATOR = StageEnd(name="operator", steps_done=6, steps_planned=6, scores={}, run_id="calm-heron-3f1a")
REFINE = StageEnd(name="refine", steps_done=4, steps_planned=4, scores={}, run_id="calm-heron-3f1b")


def test_a_run_of_several_stages_has_a_proof_for_each() -> None:
    assessment = assess_run(evidence(replace(GOOD, stages=(OPERATOR, REFINE))), TWO_STAGES)
    assert assessment.cause is None
    assert [(proof.name, proof.holds) for proof in assessment.proofs if proof.name.startswith("stage")] == [
        ("stage.operator", True),
        ("stage.refine", True),
    ]
    assert "gate" not in "".join(proof.text for proof in assessment.proofs)


def test_a_gate_that_passed_is_named_with_its_stage() -> None:
    train = TWO_STAGES.train
    assert train is not None
    gated = replace(TWO_STAGES, train=replace(train, gate=GateConfig(rollout_nrmse=0.5)))
    texts = [
        proof.text for proof in assess_run(evidence(replace(GOOD, stages=(OPERATOR, REFINE))), gated).proofs
    ]
    assert "6 of 6 steps; it was scored, its gate passed" in texts


@pytest.mark.parametrize(
    ("stages", "cause"),
    [
        ((OPERATOR,), Cause.UNPROVEN),
        ((), Cause.UNPROVEN),
        ((OPERATOR, replace(REFINE, run_id=None)), Cause.UNPROVEN),
        ((OPERATOR, replace(REFINE, steps_done=3)), Cause.CONTRADICTION),
        ((OPERATOR, replace(REFINE, missed="rollout_nrmse is 2")), Cause.CONTRADICTION),
    ],
)
def test_a_stage_without_its_end_is_no_success(stages: tuple[StageEnd, ...], cause: Cause) -> None:
    assert assess_run(evidence(replace(GOOD, stages=stages)), TWO_STAGES).cause is cause


def test_a_missed_gate_is_the_cause_and_later_stages_were_not_begun() -> None:
    missed = replace(OPERATOR, missed="rollout_nrmse is 0.3, the gate allows 0.2")
    outcome = replace(
        GOOD,
        reason="gate_missed",
        detail="stage operator missed its gate: rollout_nrmse is 0.3, the gate allows 0.2",
        steps_done=6,
        stages=(missed, replace(REFINE, steps_done=0, scores=None, run_id=None)),
    )

    assessment = assess_run(evidence(outcome), TWO_STAGES)

    assert (assessment.cause, assessment.detail) == (Cause.GATE_MISSED, outcome.detail)
    texts = {proof.name: (proof.holds, proof.text) for proof in assessment.proofs}
    assert texts["stage.operator"] == (False, f"6 of 6 steps; gate missed: {missed.missed}")
    assert texts["stage.refine"] == (None, "it was not started: 0 of 4 steps")
