"""Runs as a program launches, waits for, reads and stops them, on a fake market."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.api.notebook import JOB, Notebook
from tests.launcher.terminal import CRASH, segfault
from tests.waiting import LONGEST_S
from vastrun.contract.outcome import Outcome
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.config import read_job
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Cause, Phase, Verdict, errors

LONG = Training(seconds=600.0)


def test_a_launch_returns_at_once_and_its_launcher_does_the_rest(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    assert run.status().phase is Phase.PLAN and run.status().is_driven
    assert notebook.started == [Target("run", run.id)] and notebook.market.rentals == 0
    result = run.wait()
    assert (result.verdict, result.cause, result.exit_code, result.succeeded) == (
        Verdict.SUCCEEDED,
        None,
        0,
        True,
    )
    assert result.outputs == notebook.folder / "runs" / run.id and (result.outputs / "result.json").is_file()
    assert result.checkpoint == result.outputs / "checkpoints"
    assert 0 < result.usd == result.cost.usd < 3
    assert all(proof.holds for proof in result.proofs) and result.proofs
    assert (notebook.machines(), run.status().is_driven) == (0, False)
    assert run.result() == result


def test_the_result_says_what_the_command_line_says(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    result = run.wait()
    (row,) = notebook.document("status")["runs"]
    assert (row["id"], row["verdict"], row["usd"]) == (run.id, result.verdict, result.usd)
    assert run.why() == notebook.type("why", run.id).stdout.removesuffix("\n")


@pytest.mark.parametrize("form", ["a path", "its name", "text", "a dict", "a JobSpec"])
def test_a_job_may_be_a_file_text_a_dict_or_a_spec(form: str, notebook: Notebook) -> None:
    text = notebook.job.read_text()
    job = {
        "a path": notebook.job,
        "its name": "job.yaml",
        "text": text,
        "a dict": JOB,
        "a JobSpec": load_job(text, "job.yaml", (), str(notebook.folder)),
    }[form]
    run = notebook.client.launch(job)
    expected = load_job(text, "job.yaml", (), str(notebook.folder))
    found = read_job(notebook.ledger.get(run.id).spec_json)
    assert found.job_file == (str(job) if form in ("a path", "its name") else None)
    assert replace(found, job_file=None) == expected


@pytest.mark.parametrize(
    "changes", [{"train.steps": 7, "limits.usd": 1e-1}, ["train.steps=7", "limits.usd=.1"]]
)
def test_dotted_keys_change_values(changes: dict[str, float] | list[str], notebook: Notebook) -> None:
    plan = notebook.client.plan(JOB, set=changes)
    assert plan.spec.train is not None
    assert (plan.spec.train.steps, plan.spec.limits.usd) == (7, 0.1)
    assert plan.worst_case_usd <= 0.1 and not notebook.ledger.runs()


def test_a_name_and_a_folder_are_as_on_the_command_line(notebook: Notebook) -> None:
    result = notebook.client.launch(JOB, name="other", out="there").wait()
    assert result.outputs == notebook.folder / "there"
    assert notebook.ledger.get(result.id).job == "other"


def test_all_faults_of_a_job_are_raised_before_anything_is_begun(notebook: Notebook) -> None:
    with pytest.raises(errors.JobFileError) as caught:
        notebook.client.launch({**JOB, "limit": {"usd": 3}, "train": {"steps": "many"}})
    assert len(caught.value.faults) == 2
    assert "limit: unknown key; did you mean limits?" in caught.value.faults[0]
    assert not notebook.ledger.runs() and not notebook.started


def test_a_value_that_yaml_cannot_hold_and_a_file_that_is_not_there_are_told(notebook: Notebook) -> None:
    with pytest.raises(errors.UsageError, match="job: expected plain values, got object"):
        notebook.client.launch({**JOB, "env": {"A": object()}})
    with pytest.raises(errors.UsageError, match=r"cannot read nowhere\.yaml: No such file"):
        notebook.client.launch("nowhere.yaml")


def test_a_training_that_failed_is_a_result_and_no_exception(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, CRASH)
    result = notebook.client.launch(JOB, out=tmp_path / "out").wait()
    assert (result.verdict, result.cause, result.exit_code) == (Verdict.FAILED, Cause.SIGNAL, 5)
    assert "rank 1 was killed by SIGSEGV" in result.detail and not result.succeeded


def test_a_handle_follows_the_attempts_of_its_run(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, CRASH, Training())
    run = notebook.client.launch({**JOB, "retry": {"signal": 1}}, out=tmp_path / "out")
    result = run.wait()
    assert result.verdict is Verdict.SUCCEEDED
    assert result.attempts == (run.id, result.id) and result.id != run.id
    assert result.usd > result.cost.usd > 0
    assert run.status().verdict is Verdict.SUCCEEDED
    assert len(notebook.started) == 1


@pytest.mark.slow
def test_a_wait_has_an_end_and_the_run_goes_on(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    run = notebook.client.launch(JOB, out=tmp_path / "out")
    with pytest.raises(TimeoutError, match=rf"run {run.id} has not ended within 150 s"):
        run.wait(timeout=150)
    status = run.status()
    assert (status.phase, status.verdict, status.steps) == (Phase.TRAIN, None, 10)
    assert status.usd > 0 and status.usd_per_hour == 3.6
    assert run.result().exit_code is None
    assert repr(run).startswith(f"<run {run.id}: train, step ")
    assert run.wait().succeeded


def test_a_stop_saves_and_brings_the_outputs_home(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    run = notebook.client.launch(JOB, out=tmp_path / "out")
    with pytest.raises(TimeoutError):
        run.wait(timeout=60)
    run.stop(reason="seen enough")
    result = run.wait()
    assert (result.verdict, result.exit_code) == (Verdict.STOPPED, 3)
    assert notebook.machines() == 0
    assert "the user requested a stop: seen enough" in notebook.type("status", run.id).stdout
    with pytest.raises(errors.UsageError, match="has already ended"):
        run.stop()


def test_a_stop_now_destroys_the_machine_without_its_outputs(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    run = notebook.client.launch(JOB, out=tmp_path / "out")
    with pytest.raises(TimeoutError):
        run.wait(timeout=60)
    run.stop(now=True)
    result = run.wait()
    assert result.verdict is Verdict.STOPPED and result.checkpoint is None
    assert "destroyed immediately" in result.detail


def test_what_a_launcher_cannot_go_on_with_is_raised_where_its_run_is_waited_for(notebook: Notebook) -> None:
    notebook.troubles = [errors.StorageError("cannot write here", hint="free some space")]
    run = notebook.client.launch(JOB)
    with pytest.raises(errors.StorageError, match="cannot write here") as caught:
        run.wait()
    assert caught.value.hint == "free some space"
    assert run.wait().succeeded  # another launcher takes it up
    assert len(notebook.started) == 2


def test_a_launcher_that_was_killed_is_no_reason_to_follow_a_log_for_ever(notebook: Notebook) -> None:
    notebook.troubles = [errors.StorageError("gone")]
    run = notebook.client.launch(JOB)
    with pytest.raises(errors.StorageError):
        list(run.logs(follow=True))


def test_what_a_box_says_of_its_end_cannot_steer_a_terminal(tmp_path: Path) -> None:
    def says(outcome: Outcome) -> Outcome:
        return replace(segfault(outcome), detail="rank 1 \x1b[2J\u202edied")

    notebook = Notebook(tmp_path, Training(outcome=says, exit_code=1))
    run = notebook.client.launch(JOB, out=tmp_path / "out")
    texts = [run.wait().detail, run.why(), *(proof.text for proof in run.result().proofs)]
    assert texts[0] == "rank 1 died"
    assert all(text.replace("\n", "").isprintable() for text in texts)


@pytest.mark.slow
def test_a_run_that_no_launcher_drives_is_taken_up(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    assert notebook.launch("-d").exit_code == 0
    run = notebook.client.run("last")
    assert not run.status().is_driven and notebook.machines() == 1
    run.resume()
    assert run.status().is_driven
    assert run.wait().succeeded and notebook.machines() == 0


@pytest.mark.slow
def test_a_run_that_another_launcher_took_is_followed(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    run = notebook.client.launch(JOB, out=tmp_path / "out")
    with pytest.raises(TimeoutError):
        run.wait(timeout=LONGEST_S)
    notebook.troubles = [errors.HeldError("another launcher drives it")]
    assert notebook.client.run(run.id).wait().succeeded
    assert len(notebook.started) == 1


def test_a_run_whose_machine_stays_is_told_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    notebook.market.deaf = True
    result = notebook.client.launch(JOB, out=tmp_path / "out").wait()
    assert (result.verdict, result.exit_code) == (None, 11)
    notebook.market.deaf = False
    assert notebook.client.run("last").wait().exit_code == 0


def test_a_run_continues_from_the_checkpoint_of_another(notebook: Notebook) -> None:
    first = notebook.client.launch(JOB)
    first.wait()
    second = notebook.client.launch(JOB, set={"train.steps": 20}, continues=first)
    assert notebook.ledger.get(second.id).parent == first.id
    second.wait()
    assert first.result().attempts == (first.id,)
    with pytest.raises(errors.NoSuchRunError):
        notebook.client.launch(JOB, continues="nobody")


def test_the_log_is_read_line_by_line_and_cannot_steer_a_terminal(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    result = run.wait()
    (result.outputs / "log.txt").write_bytes(
        b"1800000000.000 supervisor starting\n1800000001.500 rank0 \x1b[2Jhi\n"
        b"1800000002.000 rank1 ho\nno line\n"
    )
    lines = list(run.logs())
    assert [(line.at, line.source) for line in lines] == [
        (1800000000.0, "supervisor"),
        (1800000001.5, "rank0"),
        (1800000002.0, "rank1"),
    ]
    assert "\x1b" not in lines[1].text and lines[1].text.endswith("hi")
    assert [line.text for line in run.logs(rank=1)] == ["ho"]
    assert [line.source for line in run.logs(tail=1)] == ["rank1"]
    assert [line.source for line in run.logs(follow=True)] == ["supervisor", "rank0", "rank1"]


def test_metrics_are_numbers_by_name_whatever_the_box_wrote(notebook: Notebook) -> None:
    run = notebook.client.launch(JOB)
    assert run.metrics() == []
    result = run.wait()
    lines = [
        json.dumps({"step": 1, "loss": 0.5, "lr": 1}),
        json.dumps({"step": 2, "loss": float("nan"), "ok": True, "text": "x", "\x1b[2J": 1, "n" * 300: 1}),
        json.dumps({"step": -1, "loss": 1.0}),
        json.dumps({"loss": 1.0}),
        json.dumps({"step": 3, "loss": 1e300, "far": [1]}),
        "[" * 100_000,
        "{",
    ]
    (result.outputs / "metrics.jsonl").write_text("\n".join(lines))
    assert run.metrics() == [{"step": 1, "loss": 0.5, "lr": 1.0}, {"step": 2}, {"step": 3}]


def test_runs_are_listed_open_ones_first_and_found_by_the_start_of_an_id(notebook: Notebook) -> None:
    ended = notebook.client.launch(JOB)
    ended.wait()
    last = notebook.client.launch(JOB)
    assert [run.id for run in notebook.client.runs()] == [last.id, ended.id]
    assert notebook.client.run("last").id == last.id
    assert notebook.client.run(ended.id[:-2]).id == ended.id
    with pytest.raises(errors.NoSuchRunError):
        notebook.client.run("nobody")
