"""A success needs every proof; what is missing is UNKNOWN, what contradicts is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.jobs import command_job, train_job
from vastrun.contract.config import DilocoConfig, TrainConfig
from vastrun.contract.data_files import EXIT_OF_BLAME
from vastrun.contract.outcome import Check, CheckpointEnd, Outcome, RankEnd, Reason, StageEnd, StartRecord
from vastrun.contract.records import read_as
from vastrun.contract.stage_config import GateConfig
from vastrun.launcher.core import Cause, Evidence, LeftOutFile, LeftOutFiles, StepEnd
from vastrun.launcher.core.left_out import file_text
from vastrun.launcher.decisions.run_assessment import CAUSE_OF_STEP, STOP_CAUSES, assess_run
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_evidence, parse_step_ends
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.trainer.supervision.stop import STOP_TEXTS

GOOD = Outcome(
    kind="train",
    reason="finished",
    detail="",
    started_at=0.0,
    ended_at=1.0,
    world_size=2,
    ranks=(RankEnd(rank=0, exit_code=0), RankEnd(rank=1, exit_code=0)),
    final_record=True,
    steps_done=10,
    steps_planned=10,
    last_loss=0.1,
    loss_finite=True,
    checkpoint=CheckpointEnd(step=10, path="run/checkpoints/step-000010", files=(), intact=True),
)


def evidence(outcome: Outcome | None, **changes: object) -> Evidence:
    whole = Evidence(outcome=outcome, exit_code=0, damaged=())
    return replace(whole, **changes)  # type: ignore[arg-type]


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


def test_a_start_that_finished_a_stage_is_no_restart() -> None:
    begun = {"world_size": 2, "started_at": 0.0, "ended_at": 1.0}
    starts = [
        StartRecord(reason=reason, detail=f"detail of {reason}", **begun)  # type: ignore[arg-type]
        for reason in ("finished", "signal", "finished")
    ]

    proofs = assess_run(evidence(replace(GOOD, starts=tuple(starts))), train_job()).proofs

    assert [proof.text for proof in proofs if proof.name == "restarts"] == [
        "the ranks were restarted once, after: detail of signal"
    ]


def test_all_proofs_together_are_a_success() -> None:
    assert assess_run(evidence(GOOD), train_job()).cause is None


@pytest.mark.parametrize(
    ("spoil", "proof", "cause"),
    [
        (lambda o: replace(o, final_record=False), "record", Cause.CONTRADICTION),
        (lambda o: replace(o, steps_done=9), "steps", Cause.CONTRADICTION),
        (lambda o: replace(o, steps_done=0), "steps", Cause.CONTRADICTION),
        (lambda o: replace(o, loss_finite=False, last_loss=None), "loss", Cause.CONTRADICTION),
        (lambda o: replace(o, loss_finite=None), "loss", Cause.UNPROVEN),
        (lambda o: replace(o, checkpoint=None), "checkpoint", Cause.UNPROVEN),
        (
            lambda o: replace(o, checkpoint=replace(o.checkpoint, intact=False)),
            "checkpoint",
            Cause.CONTRADICTION,
        ),
        (lambda o: replace(o, checkpoint=replace(o.checkpoint, step=5)), "checkpoint", Cause.CONTRADICTION),
        (lambda o: replace(o, ranks=o.ranks[:1]), "ranks", Cause.CONTRADICTION),
        (lambda o: replace(o, ranks=(*o.ranks, RankEnd(rank=1, exit_code=1))), "ranks", Cause.CONTRADICTION),
        (lambda o: replace(o, ranks=(*o.ranks, RankEnd(rank=2, exit_code=0))), "ranks", Cause.CONTRADICTION),
        (
            lambda o: replace(o, ranks=(o.ranks[0], RankEnd(rank=1, exit_code=-11, signal="SIGSEGV"))),
            "ranks",
            Cause.CONTRADICTION,
        ),
    ],
)
def test_one_spoilt_proof_is_never_a_success(
    spoil: Callable[[Outcome], Outcome], proof: str, cause: Cause
) -> None:
    assessment = assess_run(evidence(spoil(GOOD)), train_job())

    assert assessment.cause is cause
    assert [p.name for p in assessment.proofs if not p.holds] == [proof]


def test_each_proof_of_a_success_says_what_was_found() -> None:
    assert {proof.name: proof.text for proof in assess_run(evidence(GOOD), train_job()).proofs} == {
        "ranks": "2 of 2 ranks exited 0",
        "exit": "the exit code of the run is 0",
        "record": "the final record was written",
        "steps": "10 of 10 steps were done",
        "loss": "the last loss is 0.1",
        "checkpoint": "the checkpoint of step 10 is intact",
        "outputs": "all outputs downloaded, checksums match",
    }


ENDS = (
    RankEnd(rank=0, exit_code=0),
    RankEnd(rank=1, exit_code=-11, signal="SIGSEGV"),
    RankEnd(rank=2, exit_code=3),
    RankEnd(rank=3, exit_code=None),
)


@pytest.mark.parametrize(
    ("found", "proof", "text"),
    [
        (
            evidence(replace(GOOD, ranks=ENDS)),
            "ranks",
            "1 of 2 ranks exited 0; "
            "ended: rank 1 by SIGSEGV, rank 2 by exit code 3, rank 3 by an unknown cause",
        ),
        (evidence(GOOD, exit_code=1), "exit", "the exit code of the run is 1"),
        (evidence(GOOD, exit_code=None), "exit", "the run left no exit code"),
        (evidence(replace(GOOD, final_record=False)), "record", "the trainer wrote no final record"),
        (evidence(replace(GOOD, steps_done=9)), "steps", "9 of 10 steps were done"),
        (evidence(replace(GOOD, loss_finite=None)), "loss", "no loss was recorded"),
        (evidence(replace(GOOD, loss_finite=False, last_loss=None)), "loss", "the loss is not finite"),
        (evidence(replace(GOOD, checkpoint=None)), "checkpoint", "there is no checkpoint"),
        (
            evidence(replace(GOOD, checkpoint=CheckpointEnd(step=10, path="a/b", files=(), intact=False))),
            "checkpoint",
            "the checksum of a/b does not match",
        ),
        (
            evidence(replace(GOOD, checkpoint=CheckpointEnd(step=5, path="a/b", files=(), intact=True))),
            "checkpoint",
            "the newest checkpoint is of step 5, not 10; it is intact",
        ),
        (
            evidence(GOOD, damaged=("a", "b", "c", "d")),
            "outputs",
            "missing or damaged after the download: a, b, c",
        ),
        (evidence(None), "outcome", "the machine wrote no outcome.json"),
    ],
)
def test_a_proof_that_fails_says_what_was_found_instead(found: Evidence, proof: str, text: str) -> None:
    proofs = {each.name: each for each in assess_run(found, train_job()).proofs}
    assert (proofs[proof].text, bool(proofs[proof].holds)) == (text, False)


CHECKS = (
    Check(name="log", holds=False, text="no line says done"),
    Check(name="files", holds=False, text="no file matches *.npz"),
    Check(name="exit", holds=True, text="it exited 0"),
)
OF_A_COMMAND = replace(GOOD, kind="command", final_record=False, checkpoint=None, steps_planned=None)


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        (evidence(GOOD), ""),
        (
            evidence(replace(GOOD, steps_done=9), exit_code=1),
            "it reports success, but the exit code of the run is 1; 9 of 10 steps were done",
        ),
        (evidence(replace(GOOD, loss_finite=None, checkpoint=None)), "missing proof: loss, checkpoint"),
        (evidence(None), "no evidence of what happened"),
        (evidence(None, exit_code=137), "the run on the machine was killed by something else"),
        (evidence(None, nonsense="world_size is -1"), "the machine sent invalid evidence: world_size is -1"),
    ],
)
def test_the_detail_of_a_training_says_why(found: Evidence, detail: str) -> None:
    assert assess_run(found, train_job()).detail == detail


@pytest.mark.parametrize(
    ("checks", "detail"),
    [
        (CHECKS, "a success condition of the job is not met: no line says done; no file matches *.npz"),
        (CHECKS[2:], ""),
        ((), "missing proof: success"),
    ],
)
def test_the_detail_of_a_command_names_the_conditions_that_are_not_met(
    checks: tuple[Check, ...], detail: str
) -> None:
    assessment = assess_run(evidence(replace(OF_A_COMMAND, checks=checks)), command_job())
    assert assessment.detail == detail


def record(reason: Reason, detail: str) -> StartRecord:
    return StartRecord(reason=reason, detail=detail, world_size=2, started_at=0.0, ended_at=1.0)


def test_a_success_says_what_it_survived() -> None:
    starts = (record("signal", "rank 1 was killed by SIGSEGV"), record("finished", ""))

    assessment = assess_run(evidence(replace(GOOD, starts=starts)), train_job())

    assert assessment.cause is None
    proof = next(p for p in assessment.proofs if p.name == "restarts")
    assert proof.text == "the ranks were restarted once, after: rank 1 was killed by SIGSEGV"


def test_a_training_that_went_on_with_fewer_ranks_is_whole_and_one_that_lost_some_is_not() -> None:
    fewer = replace(GOOD, world_size=1, ranks=GOOD.ranks[:1])
    survived = (record("device", "rank 1 failed: GPU 1 is lost"), record("finished", ""))

    assert assess_run(evidence(replace(fewer, starts=survived)), train_job()).cause is None
    assert assess_run(evidence(replace(fewer, starts=survived[1:])), train_job()).cause is Cause.CONTRADICTION


def test_a_box_that_exits_1_although_its_outcome_says_finished_is_a_contradiction() -> None:
    assert assess_run(evidence(GOOD, exit_code=1), train_job()).cause is Cause.CONTRADICTION


def test_outputs_that_did_not_come_home_intact_leave_a_success_unproven() -> None:
    assessment = assess_run(evidence(GOOD, damaged=("run/checkpoints/step-000010/state.pt",)), train_job())

    assert assessment.cause is Cause.UNPROVEN
    assert "outputs" in assessment.detail


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("oom", Cause.OUT_OF_MEMORY),
        ("signal", Cause.SIGNAL),
        ("communication", Cause.COMMUNICATION),
        ("data", Cause.DATA),
        ("disk", Cause.DISK),
        ("diverged", Cause.DIVERGED),
        ("hang", Cause.HANG),
        ("error", Cause.USER_ERROR),
    ],
)
def test_each_reason_has_its_cause_and_keeps_its_detail(reason: str, cause: Cause) -> None:
    outcome = replace(GOOD, reason=reason, detail="rank 1: so it was")  # type: ignore[arg-type]

    assessment = assess_run(evidence(outcome, exit_code=1), train_job())

    assert (assessment.cause, assessment.detail) == (cause, "rank 1: so it was")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("stopped", Cause.STOPPED),
        ("pruned", Cause.PRUNED),
        ("time_limit", Cause.TIME_LIMIT),
        ("money_limit", Cause.MONEY_LIMIT),
        ("slow", Cause.SLOW),
        (None, Cause.STOPPED),
    ],
)
def test_a_stop_is_told_apart_by_who_asked(said: str | None, cause: Cause) -> None:
    outcome = replace(GOOD, reason="stopped", stop_cause=said)

    assert assess_run(evidence(outcome, exit_code=143), train_job()).cause is cause


def test_the_box_knows_every_stop_that_the_launcher_tells_apart() -> None:
    assert set(STOP_CAUSES) == set(STOP_TEXTS)


def test_without_an_outcome_the_failed_step_tells() -> None:
    steps = b'{"step": "10-check-gpu", "exit_code": 0}\n{"step": "30-unpack", "exit_code": 2}\n'

    assessment = assess_run(evidence(None, steps=parse_step_ends(steps), exit_code=2), train_job())

    assert assessment.cause is Cause.SETUP
    assert assessment.detail == "unpack failed with exit code 2"


def test_no_more_steps_are_read_than_a_start_may_have() -> None:
    line = b'{"step":"unpack","exit_code":0,"seconds":0.1,"last_line":""}\n'
    assert len(parse_step_ends(line * caps.BOOT_STEPS)) == caps.BOOT_STEPS
    assert len(parse_step_ends((line * (caps.BOOT_STEPS + 1)).rstrip())) == caps.BOOT_STEPS


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"torch is built for the CPU only: take an image with CUDA",) * 2,
        (rb"\u001b[31mno GPU\u001b[0m\u202e", b"no GPU"),
        (b"", b"with exit code 78"),
        (b"\xff", "\ufffd".encode()),
    ],
)
def test_a_failed_step_tells_its_cause_not_its_number(said: bytes, shown: bytes) -> None:
    line = b'{"step":"20-check-comm","exit_code":78,"seconds":0.1,"last_line":"%s"}\n' % said

    assessment = assess_run(evidence(None, steps=parse_step_ends(line), exit_code=78), train_job())

    assert assessment.cause is Cause.SETUP
    assert assessment.detail.removeprefix("check-comm failed").lstrip(": ") == shown.decode()


@pytest.mark.parametrize(("exit_code", "cause"), [(1, Cause.HOST), (78, Cause.SETUP)])
def test_ranks_that_cannot_talk_are_the_hosts_fault_unless_the_image_is_to_blame(
    exit_code: int, cause: Cause
) -> None:
    steps = (StepEnd(step="20-check-comm", exit_code=exit_code, seconds=1.0),)

    assert assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job()).cause is cause


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (EXIT_OF_BLAME["job"], Cause.USER_ERROR),
        (EXIT_OF_BLAME["server"], Cause.DATA),
        (EXIT_OF_BLAME["disk"], Cause.DISK),
        (EXIT_OF_BLAME["host"], Cause.HOST),
        (1, Cause.DATA),
        (137, Cause.DATA),
    ],
)
def test_a_download_that_fails_blames_the_job_the_server_the_disk_or_the_host(
    exit_code: int, cause: Cause
) -> None:
    steps = (StepEnd(step="38-download", exit_code=exit_code, seconds=1.0, last_line="a.h5: why"),)
    assessment = assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job())
    assert (assessment.cause, assessment.detail) == (cause, "download failed: a.h5: why")
    other = (StepEnd(step="40-data", exit_code=exit_code, seconds=1.0),)
    assert assess_run(evidence(None, steps=other, exit_code=exit_code), train_job()).cause is Cause.DATA


def test_nodes_that_reach_each_other_too_slowly_are_no_single_hosts_fault() -> None:
    said = "all-reduce 2 nodes nccl 16 MB: only 400 Mbit/s between the nodes, expected at least 1000"
    steps = (StepEnd(step="22-check-nodes", exit_code=1, seconds=1.0, last_line=said),)

    assessment = assess_run(evidence(None, steps=steps, exit_code=1), train_job(nodes=2))

    assert (assessment.cause, assessment.detail) == (Cause.COMMUNICATION, f"check-nodes failed: {said}")


@pytest.mark.parametrize(
    ("cause", "judged"),
    [
        ("stopped", Cause.STOPPED),
        ("pruned", Cause.PRUNED),
        ("time_limit", Cause.TIME_LIMIT),
        ("money_limit", Cause.MONEY_LIMIT),
        ("slow", Cause.SLOW),
        ("because I say so", Cause.DATA),
    ],
)
def test_a_step_that_a_stop_ended_is_nobodys_fault(cause: str, judged: Cause) -> None:
    steps = parse_step_ends(
        b'{"step":"40-data","exit_code":143,"seconds":2.0,"stop":"%s"}\n' % cause.encode()
    )
    assert assess_run(evidence(None, steps=steps, exit_code=143), train_job()).cause is judged


def test_a_step_that_failed_before_it_was_stopped_is_judged_by_its_failure() -> None:
    steps = (
        StepEnd(step="30-unpack", exit_code=2, seconds=1.0),
        StepEnd(step="40-data", exit_code=143, seconds=1.0, stop="stopped"),
    )
    assert assess_run(evidence(None, steps=steps, exit_code=2), train_job()).cause is Cause.SETUP


def test_every_step_before_the_training_has_its_cause() -> None:
    steps = {path.stem for path in (onstart_dir() / "steps.d").glob("*.sh")}
    # onstart/environment.sh reports a step of its own, before the first file.
    assert set(CAUSE_OF_STEP) == steps - {"50-train"} | {"00-environment"}


_OLD_PYTHON = "cannot read job.json with /usr/bin/python3: TypeError: 'type' object is not subscriptable"


@pytest.mark.parametrize(
    ("exit_code", "said", "detail"),
    [
        (78, _OLD_PYTHON, f"environment failed: {_OLD_PYTHON}"),
        (78, "", "environment failed with exit code 78"),
        (1, "", "environment failed with exit code 1"),
        (137, "killed", "environment failed: killed"),
    ],
)
def test_a_machine_without_a_fit_python_is_a_matter_of_its_setup(
    exit_code: int, said: str, detail: str
) -> None:
    line = {"step": "00-environment", "exit_code": exit_code, "seconds": 0.1, "last_line": said}
    steps = parse_step_ends(json.dumps(line).encode() + b"\n")

    assessment = assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job())

    assert (assessment.cause, assessment.detail) == (Cause.SETUP, detail)


def test_a_run_killed_from_outside_is_the_hosts_fault() -> None:
    assert assess_run(evidence(None, exit_code=137), train_job()).cause is Cause.HOST


def test_exit_code_0_without_an_outcome_is_unproven() -> None:
    assert assess_run(evidence(None), train_job()).cause is Cause.UNPROVEN


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "train"}', "null"])
def test_exit_code_0_with_an_outcome_that_no_honest_box_writes_is_the_hosts_fault(text: str) -> None:
    assessment = assess_run(parse_evidence(text.encode(), b"", 0, damaged=()), train_job())

    assert assessment.cause is Cause.HOST
    assert "run/outcome.json" in assessment.detail


def test_a_supervisor_that_was_killed_is_a_signal_and_no_fault_of_ours() -> None:
    steps = (StepEnd(step="50-train", exit_code=137, seconds=3.0),)
    assessment = assess_run(evidence(None, exit_code=137, steps=steps), train_job())
    assert assessment.cause is Cause.SIGNAL
    assert assessment.detail == "50-train was killed by SIGKILL and left no evidence"


def test_a_command_without_any_checked_condition_is_unproven() -> None:
    outcome = replace(GOOD, kind="command", final_record=False, checkpoint=None, steps_planned=None)

    assert assess_run(evidence(outcome), command_job()).cause is Cause.UNPROVEN


def test_a_command_whose_condition_fails_is_the_users_error_and_says_which() -> None:
    checks = (
        Check(name="log", holds=True, text="the log says done"),
        Check(name="files", holds=False, text="no file matches results/*.npz"),
    )
    outcome = replace(GOOD, kind="command", checks=checks)

    assessment = assess_run(evidence(outcome), command_job())

    assert assessment.cause is Cause.USER_ERROR
    assert "results/*.npz" in assessment.detail


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


@pytest.mark.parametrize(
    ("good", "holds"), [((0, 1), True), ((0, 1, 2), True), ((2, 3), False), ((0,), False)]
)
def test_nodes_that_train_apart_prove_enough_with_node_0_and_the_least(
    good: tuple[int, ...], holds: bool
) -> None:
    train = replace(train_job().train, strategy="diloco", diloco=DilocoConfig(min_nodes=1))
    outcome = replace(GOOD, world_size=4, ranks=tuple(RankEnd(rank=rank, exit_code=0) for rank in good))
    assessment = assess_run(evidence(outcome), train_job(nodes=2, train=train))
    assert (assessment.cause is None) == holds, assessment


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
