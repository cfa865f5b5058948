"""What the files of a training prove, and what they do not."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import concluded, exits, outcome
from tests.onstart.supervision.forked import Train
from tests.onstart.supervision.launches import job_of
from tests.trainer.telemetry.wandb_server import WandbServer
from vastrun.contract import layout
from vastrun.contract.job import Job, JobSuccess
from vastrun.contract.outcome import Check, Outcome, RankEnd, WandbRun
from vastrun.onstart.supervision.evidence import Stamp, finish_wandb_run, read_final, run_checks, stamp_files

pytestmark = pytest.mark.torch

RUN = "calm-heron-3f1a"
KILLED = {"what": "SIGKILL once tracked", "where": "forward", "step": 13, "rank": 0}

NEVER_BEGAN = {"what": "exception", "where": "setup", "rank": 1}

STATE = b"weights"
DONE = exits(0, 0)


class TrainingBox:
    """A box in which two ranks trained 20 steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(layout.JOB, job_of(train={"steps": 20}, command=None, success=None))
        self.write(layout.FINAL, {"step": 20, "steps": 20, "loss": 0.5, "scores": {"rollout_nrmse": 0.1}})
        self.write(f"{layout.CHECKPOINTS}/latest.json", {"step": 20, "path": "step-000020"})
        sums = {"path": "state.pt", "size": len(STATE), "sha256": hashlib.sha256(STATE).hexdigest()}
        self.write(f"{layout.CHECKPOINTS}/step-000020/manifest.json", {"step": 20, "files": [sums]})
        self.state.write_bytes(STATE)
        for rank in range(2):
            self.write(f"{layout.RANKS}/rank-{rank}.json", {"reason": "finished", "step": 20})

    @property
    def state(self) -> Path:
        return self.path / layout.CHECKPOINTS / "step-000020/state.pt"

    def write(self, path: str, value: Any) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(json.dumps(value))

    def outcome(self) -> Outcome:
        """As a reader of the file gets it."""
        return Outcome.from_json(concluded(self.path, DONE).to_json())


@pytest.fixture
def box(tmp_path: Path) -> TrainingBox:
    return TrainingBox(tmp_path)


def test_a_whole_training_leaves_every_proof(box: TrainingBox) -> None:
    outcome = box.outcome()
    assert (outcome.kind, outcome.reason) == ("train", "finished")
    assert (outcome.final_record, outcome.steps_done, outcome.steps_planned) == (True, 20, 20)
    assert (outcome.last_loss, outcome.loss_finite) == (0.5, True)
    assert outcome.scores == {"rollout_nrmse": 0.1}
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.step, outcome.checkpoint.intact) == (20, True)


def test_a_checkpoint_whose_file_is_changed_or_gone_is_not_intact(box: TrainingBox) -> None:
    for change in (lambda: box.state.write_bytes(b"Weights"), box.state.unlink):
        change()
        checkpoint = box.outcome().checkpoint
        assert checkpoint and not checkpoint.intact


def test_without_a_checkpoint_there_is_none(box: TrainingBox) -> None:
    (box.path / layout.CHECKPOINTS / "latest.json").unlink()
    assert box.outcome().checkpoint is None


@pytest.mark.parametrize("loss", [None, float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_told_as_not_finite(box: TrainingBox, loss: float | None) -> None:
    box.write(layout.FINAL, {"step": 20, "steps": 20, "loss": loss, "scores": {"rollout_nrmse": loss}})
    outcome = box.outcome()
    assert (outcome.last_loss, outcome.loss_finite) == (None, False)
    assert outcome.scores == {}


def test_without_a_final_record_the_last_metrics_give_the_loss(box: TrainingBox) -> None:
    (box.path / layout.FINAL).unlink()
    (box.path / layout.METRICS).write_text('{"step": 9, "loss": 0.9}\n{"step": 10, "loss": 0.8}\n{"step": 1')
    outcome = box.outcome()
    assert not outcome.final_record
    assert (outcome.last_loss, outcome.loss_finite) == (0.8, True)


@pytest.mark.parametrize(("after", "loss"), [(10_000, 0.7), (20_000, None)])
def test_only_the_last_16_kib_of_the_metrics_are_read_for_the_loss(
    box: TrainingBox, after: int, loss: float | None
) -> None:
    (box.path / layout.FINAL).unlink()
    (box.path / layout.METRICS).write_text('{"step": 1, "loss": 0.7}\n' + '{"step": 2}\n' * (after // 12))
    assert box.outcome().last_loss == loss


def test_the_rank_that_did_the_fewest_steps_counts(box: TrainingBox) -> None:
    box.write(f"{layout.RANKS}/rank-1.json", {"reason": "finished", "step": 19})
    assert box.outcome().steps_done == 19


def test_a_training_that_did_nothing_proves_nothing(tmp_path: Path) -> None:
    told = outcome(tmp_path, DONE, train={"steps": 20}, command=None, success=None)
    assert (told.reason, told.final_record, told.steps_done) == ("finished", False, 0)
    assert (told.last_loss, told.loss_finite, told.checkpoint) == (None, None, None)


@pytest.mark.parametrize(
    ("written", "told"), [("finished", "finished"), ("failed", "failed"), ("running", "crashed")]
)
def test_a_wandb_run_that_was_never_finished_has_crashed(box: TrainingBox, written: str, told: str) -> None:
    box.write(layout.WANDB, {"id": "calm-heron-3f1a", "mode": "offline", "state": written, "url": None})
    wandb = box.outcome().wandb
    assert wandb is not None
    assert (wandb.mode, wandb.state) == ("offline", told)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / layout.CODE).mkdir()
    return tmp_path / layout.CODE


def checked(
    success: JobSuccess, box: Path, ranks: Sequence[RankEnd] = (), before: Mapping[Path, Stamp] | None = None
) -> Check:
    """The only condition of a job."""
    (check,) = run_checks(success, box, ranks, before or {})
    return check


CRASHED = WandbRun(id="calm-heron-3f1a", mode="offline", state="crashed", url=None)


@pytest.mark.parametrize(
    ("run", "exit_code", "state"),
    [
        (None, 1, None),
        (replace(CRASHED, mode="off"), 1, "crashed"),
        (replace(CRASHED, state="finished"), 0, "finished"),
        (replace(CRASHED, state="failed"), 1, "failed"),
        (replace(CRASHED, mode="online", state="failed"), 143, "failed"),
        # `wandb sync` takes a run without an end for a failed one.
        (CRASHED, 1, "failed"),
    ],
)
def test_a_wandb_run_with_the_right_state_is_not_ended_again(
    box: TrainingBox, run: WandbRun | None, exit_code: int, state: Any
) -> None:
    outcome = replace(box.outcome(), wandb=run)
    ended = finish_wandb_run(box.path, Job.read(box.path), outcome, exit_code)
    assert ended == replace(outcome, wandb=None if run is None else replace(run, state=state))
    assert not (box.path / layout.RAW_LOGS / "wandb.log").exists(), "no process was started"


@pytest.mark.parametrize(
    ("before", "holds"), [(0, True), (8188, True), (8189, False), (8191, False), (8192, True)]
)
def test_a_log_line_is_searched_in_pieces_of_8192_bytes(tmp_path: Path, before: int, holds: bool) -> None:
    log = tmp_path / layout.RAW_LOGS / "rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("x" * before + "done" + "y" * 100)
    check = checked(JobSuccess(log="done"), tmp_path)
    assert check.holds is holds
    log.write_text("z" * 300 + "done\n")
    check = checked(JobSuccess(log="done"), tmp_path)
    assert check.text == f"rank 0 printed: {'z' * 200}"


@pytest.mark.parametrize(
    ("final", "step", "loss"),
    [
        ({"step": 20, "loss": 0.5}, 20, 0.5),
        ({"step": 20}, 20, 0.8),
        ({"step": "20", "loss": 0.5}, None, None),
        ([20], None, None),
    ],
)
def test_a_final_record_without_a_loss_has_that_of_the_metrics(
    box: TrainingBox, final: Any, step: int | None, loss: float | None
) -> None:
    (box.path / layout.METRICS).write_text('{"step": 10, "loss": 0.8}\n')
    box.write(layout.FINAL, final)
    record = read_final(box.path)
    found = (None, None) if record is None else (record.step, record.loss.value)
    assert found == (step, loss)


@pytest.mark.parametrize(
    ("success", "name", "holds", "text"),
    [
        (JobSuccess(files=("results/*.npz",)), "files", True, "results/*.npz has 1 file, 7 bytes"),
        (JobSuccess(files=("results/*.np?",)), "files", True, "results/*.np? has 2 files, 10 bytes"),
        (
            JobSuccess(files=("results/*.txt",)),
            "files",
            False,
            "no file matches results/*.txt in the code folder or in $VASTRUN_OUTPUTS",
        ),
        (JobSuccess(files=("results/*",)), "files", False, "a file that matches results/* is empty"),
        (JobSuccess(log=r"nRMSE 0\.\d+"), "log", True, "rank 0 printed: nRMSE 0.03"),
        (JobSuccess(log="rollout done"), "log", False, "rank 0 printed nothing that matches rollout done"),
        (
            JobSuccess(log="("),
            "log",
            False,
            "( is not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        (JobSuccess(steps=7), "steps", True, "every rank reached step 7 of 7"),
        (JobSuccess(steps=8), "steps", False, "every rank reached step 7 of 8"),
        (JobSuccess(exit_code=0), "exit_code", True, "exit codes of the ranks: 0"),
        (JobSuccess(exit_code=3), "exit_code", False, "exit codes of the ranks: 0"),
    ],
)
def test_a_condition_of_the_job_holds_or_not(
    tmp_path: Path, success: JobSuccess, name: str, holds: bool, text: str
) -> None:
    results = tmp_path / layout.CODE / "results"
    results.mkdir(parents=True)
    (results / "a.npz").write_bytes(b"numbers")
    (results / "b.npy").write_bytes(b"one")
    (results / "empty.csv").touch()
    log = tmp_path / layout.RAW_LOGS / "rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1\nnRMSE 0.03\n")
    ranks = [RankEnd(rank=0, exit_code=0, step=7), RankEnd(rank=1, exit_code=0, step=9)]
    check = checked(success, tmp_path, ranks)
    assert (check.name, check.holds, check.text) == (name, holds, text)


def test_a_job_without_conditions_has_none_checked_and_one_with_several_has_each(tmp_path: Path) -> None:
    every = JobSuccess(files=("*.a", "*.b"), log="done", steps=1, exit_code=0)
    names = ["files", "files", "log", "steps", "exit_code"]
    assert [check.name for check in run_checks(every, tmp_path, [], {})] == names
    assert run_checks(JobSuccess(), tmp_path, [], {}) == run_checks(None, tmp_path, [], {}) == ()


@pytest.mark.parametrize("pattern", ["*.csv", "$VASTRUN_OUTPUTS/*.csv", "${VASTRUN_OUTPUTS}/scores.csv"])
def test_a_file_may_lie_in_the_outputs(tmp_path: Path, pattern: str) -> None:
    outputs = tmp_path / layout.OUTPUTS
    outputs.mkdir(parents=True)
    success = JobSuccess(files=(pattern,))
    assert "no file matches" in checked(success, tmp_path).text
    (outputs / "scores.csv").write_text("1\n")
    assert checked(success, tmp_path).holds


@pytest.mark.parametrize("pattern", [".", "**.pt", "$VASTRUN_OUTPUTS/.", "$VASTRUN_OUTPUTS/**.pt"])
def test_a_pattern_that_cannot_be_searched_for_matches_nothing(pattern: str, tmp_path: Path) -> None:
    success = JobSuccess(files=(pattern,))
    assert stamp_files(success, tmp_path) == {}
    check = checked(success, tmp_path)
    assert (check.holds, f"no file matches {pattern}" in check.text) == (False, True)


def test_a_file_that_was_there_before_the_start_proves_nothing_until_it_is_written(
    tmp_path: Path, code: Path
) -> None:
    shipped = code / "result.txt"
    shipped.write_text("41\n")
    success = JobSuccess(files=("*.txt",))
    before = stamp_files(success, tmp_path)

    check = checked(success, tmp_path, before=before)
    assert not check.holds
    assert check.text == "code/result.txt existed before the start and was not written since: *.txt"
    shipped.write_text("42 at last\n")
    assert checked(success, tmp_path, before=before).holds


def test_a_link_does_not_lead_out_of_the_folders(tmp_path: Path, code: Path) -> None:
    (tmp_path / "elsewhere.txt").write_text("42\n")
    (code / "result.txt").symlink_to(tmp_path / "elsewhere.txt")
    assert not checked(JobSuccess(files=("*.txt",)), tmp_path).holds


@pytest.mark.parametrize(
    ("activities", "said"),
    [(("", ""), "no rank reported a step: "), (("step", ""), "rank 1 reported no step: ")],
)
def test_no_step_is_named_of_ranks_that_told_none(
    activities: tuple[str, str], said: str, tmp_path: Path
) -> None:
    steps = [7 if activity else 0 for activity in activities]
    ranks = [RankEnd(rank=n, exit_code=0, step=steps[n], activity=activities[n]) for n in range(2)]
    check = checked(JobSuccess(steps=7), tmp_path, ranks)
    assert not check.holds
    assert check.text.startswith(said)
    assert "step 0" not in check.text


def test_an_exit_code_that_differs_on_one_rank_breaks_the_condition(tmp_path: Path) -> None:
    ranks = [RankEnd(rank=0, exit_code=0), RankEnd(rank=1, exit_code=3)]
    check = checked(JobSuccess(exit_code=0), tmp_path, ranks)
    assert (check.holds, check.text) == (False, "exit codes of the ranks: 0, 3")


@pytest.mark.parametrize("name", ["a\tb.txt", "esc\x1b[31m.txt", "new\nline.txt"])
def test_a_file_that_is_not_downloaded_proves_nothing(tmp_path: Path, code: Path, name: str) -> None:
    success = JobSuccess(files=("*.txt",))
    (code / name).write_text("42\n")
    assert not checked(success, tmp_path).holds
    (code / "plain.txt").write_text("42\n")
    assert checked(success, tmp_path).text.startswith("*.txt has 1 file")


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "reason"), [(KILLED, "signal"), (NEVER_BEGAN, "error")])
def test_a_training_that_failed_is_failed_and_not_crashed(
    fault: dict[str, Any], reason: str, train: Train, wandb: WandbServer
) -> None:
    run = train(fault, restarts={"signal": 0}, train={"wandb": {"mode": "online"}}, env=wandb.environment)
    outcome = run.outcome()
    assert outcome.reason == reason, run.log()
    assert wandb.runs[RUN].state == "failed"
    assert outcome.wandb is not None
    assert (outcome.wandb.mode, outcome.wandb.state) == ("online", "failed")


@pytest.mark.slow
def test_a_training_that_began_again_is_one_run_that_finished(train: Train, wandb: WandbServer) -> None:
    run = train(KILLED, train={"wandb": {"mode": "online"}}, env=wandb.environment)
    outcome = run.outcome()
    assert outcome.reason == "finished", run.log()
    assert [start.reason for start in outcome.starts] == ["signal", "finished"]
    assert list(wandb.runs) == [RUN]
    assert wandb.runs[RUN].state == "finished"
    assert [point["step"] for point in wandb.runs[RUN].history][-10:] == list(range(11, 21))
    assert json.loads((run.box / layout.WANDB).read_text())["state"] == "finished"
