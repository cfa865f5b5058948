"""`vastrun rehearse`: the steps of a box, here, each with its exit code."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.documents import hold_to_schema
from tests.e2e.terminal import STUB_TORCH
from tests.jobs import train_job
from vastrun.launcher.app import App
from vastrun.launcher.cli import cli
from vastrun.launcher.commands.rehearse import select_steps
from vastrun.launcher.core.errors import UsageError

TRAINING = "{steps: 4, batch: 8, data: {train: 8, test: 2}, model: {dim: 16, depth: 1}}"


class Desk:
    """Somebody with a job file, who types `rehearse`."""

    def __init__(self, folder: Path) -> None:
        self.job = folder / "job.yaml"
        self.box = folder / "box"
        self._environ = {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
        }

    def writes(self, *lines: str) -> None:
        self.job.write_text("\n".join(["name: demo", "resources: {gpus: 0}", "limits: {hours: 1}", *lines]))

    def types(self, *words: str) -> Result:
        arguments = ["rehearse", str(self.job), "--box", str(self.box), *words]
        end = CliRunner().invoke(cli, arguments, obj=App(self._environ))
        hold_to_schema(arguments, end.stdout)
        return end

    def plans(self) -> str:
        """Show what `plan` says of the job."""
        arguments = ["plan", str(self.job), "--provider", "local", "--set", "resources.disk_gb=8"]
        return CliRunner().invoke(cli, arguments, obj=App(self._environ)).output

    def document(self, *words: str) -> Any:
        return json.loads(self.types(*words, "--json").stdout)

    def steps(self, *words: str) -> list[tuple[str, int]]:
        """What was done, and how it ended."""
        return [(step["step"], step["exit_code"]) for step in self.document(*words)["steps"]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_steps_are_those_of_a_box_in_their_order_and_all_are_in_the_help() -> None:
    steps = select_steps((), train_job())
    assert steps[:3] == ["config", "check-gpu", "check-comm"]
    assert steps[-3:] == ["train", "evaluate", "report"]
    assert select_steps(("train", "data"), train_job()) == ["data", "train"]
    with pytest.raises(UsageError):
        select_steps(("date",), train_job())
    told = "".join(CliRunner().invoke(cli, ["rehearse", "--help"]).stdout.split())  # lines end at hyphens
    assert all(step in told for step in steps)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The user's code, a git checkout that ignores data."""
    code = tmp_path / "code"
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    (code / ".gitignore").write_text("*.bin\n")
    return code


def test_data_that_git_ignores_are_told_as_by_a_launch(desk: Desk, code: Path) -> None:
    (code / "train.bin").write_text("x")
    (code / "train.py").write_text('open("train.bin")\n')
    desk.writes("code: {path: code}", "command: python train.py", "ranks: 1", "success: {exit_code: 0}")
    assert "warning: train.bin: ignored by git" in desk.types("config").stderr


FAILURES = {
    "a file that was not shipped": (
        "open('table.bin')",
        "table.bin is ignored by git, so it was not uploaded; add it to code.include, then: {again}",
    ),
    "a known error": (
        "raise RuntimeError('Weights only load failed')",
        "torch.load reads only tensors since torch 2.6: save tensors and plain values alone, or allow "
        "your classes with torch.serialization.add_safe_globals (weights_only=False runs whatever a machine "
        "put into the file); then: {again}",
    ),
    "another error": ("raise ValueError('x')", "fix the program or the job file, then: {again}"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_program_is_answered_as_by_a_launch(desk: Desk, code: Path, case: str) -> None:
    program, advice = FAILURES[case]
    (code / "table.bin").write_text("x")
    (code / "train.py").write_text(program)
    desk.writes(
        "code: {path: code}",
        "command: python train.py",
        "ranks: 1",
        "success: {exit_code: 0}",
        f"env: {{PYTHONPATH: {STUB_TORCH}}}",
    )
    expected = advice.format(again=f"vastrun rehearse {desk.job}")
    assert json.loads(desk.types("unpack", "train", "report", "--json").stdout)["next"] == expected
    assert f"next     {expected}" in desk.types("report").stdout


def test_a_rehearsal_that_succeeds_needs_no_advice(desk: Desk) -> None:
    desk.writes("command: 'true'", "ranks: 1", "success: {exit_code: 0}")
    assert json.loads(desk.types("train", "report", "--json").stdout)["next"] == "nothing to do"


@pytest.mark.slow
def test_the_data_of_a_job_are_made_and_looked_at_alone_and_stay(desk: Desk) -> None:
    desk.writes(f"train: {TRAINING}")
    assert desk.steps("data", "check-data") == [("config", 0), ("data", 0), ("check-data", 0)]
    end = desk.types("check-data", "--set", "train.data.points=48")
    assert end.exit_code == 5
    assert "42-check-data data: " in end.stderr
    assert "check-data exit code 1" in end.stderr
    assert "expected 48 points along each axis or a multiple of them, `tensor` has 64" in end.stderr
    assert desk.types("check-data", "--set", "train.data.points=32").exit_code == 0


def test_a_step_that_fails_is_the_last_and_a_faulty_job_file_has_none(desk: Desk) -> None:
    desk.writes("setup: ['exit 3']", "command: 'true'", "success: {exit_code: 0}")
    assert desk.steps("unpack", "fetch", "report") == [("config", 0), ("unpack", 1)]
    assert desk.steps("config") == [("config", 0)]
    end = desk.types("config", "--set", "ranks=none")
    assert (end.exit_code, desk.box.joinpath("run").exists()) == (2, True)
    assert "ranks" in end.stderr


def test_a_job_for_more_gpus_than_are_here_is_answered_with_how_to_try_it_without(desk: Desk) -> None:
    desk.writes("command: 'true'", "success: {exit_code: 0}")
    end = desk.types("check-gpu", "--set", "resources.gpus=64")
    assert end.exit_code == 5
    assert f"try:   vastrun rehearse {desk.job} --set 'resources={{gpus: 0}}' --set ranks=1" in end.stderr


def test_a_program_is_run_and_reported_on_and_its_report_can_be_had_again(desk: Desk) -> None:
    program = ["python", "-c", "import os; print('all is well', os.environ['MOOD'])"]
    desk.writes(
        f"command: {json.dumps(program)}",
        "success: {log: all is well fine}",
        "ranks: 1",
        f"env: {{PYTHONPATH: {STUB_TORCH}, MOOD: fine}}",
    )
    end = desk.types("train", "report")
    assert (end.exit_code, "SUCCEEDED" in end.stdout) == (0, True), end.output
    assert "rank0 all is well fine" in end.stderr
    assert desk.steps("report") == [("config", 0), ("report", 0)]
    assert desk.types("train", "report", "--set", "env.MOOD=bad").exit_code == 5
    assert "verdict  FAILED" in desk.types("report").stdout


@pytest.mark.slow
def test_what_only_an_earlier_rehearsal_installed_is_removed(desk: Desk) -> None:
    code = desk.job.parent / "code"
    code.mkdir()

    def rehearse(setup: str, requirements: str) -> None:
        (code / "requirements.txt").write_text(requirements)
        lines = ("command: 'true'", "success: {exit_code: 0}", "ranks: 1", "code: {path: code}")
        desk.writes(*lines, f"setup: {setup}")
        end = desk.types("unpack")
        assert end.exit_code == 0, end.output

    def installed() -> list[str]:
        return sorted(path.name for path in (desk.box / "python").glob("of *"))

    rehearse("touch $VIRTUAL_ENV/'of one'", "a")
    (desk.box / "python" / "of a user").touch()
    rehearse("touch $VIRTUAL_ENV/'of one'", "a")
    assert installed() == ["of a user", "of one"]
    rehearse("touch $VIRTUAL_ENV/'of one'", "b")
    assert installed() == ["of one"]
    rehearse("touch $VIRTUAL_ENV/'of two'", "b")
    assert installed() == ["of two"]


@pytest.mark.slow
def test_files_that_would_not_be_downloaded_are_shown_and_a_plan_shows_them_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    program = "mkdir -p w; head -c 2000000 /dev/zero >w/m.pt; echo 1 >metrics.csv"
    desk.writes(f"command: {program!r}", "success: {exit_code: 0}", "outputs: '*.csv'")
    desk.box = tmp_path / "cache" / "vastrun" / "rehearsals" / "demo"
    end = desk.types("unpack", "train", "report", "--json")
    left_out = json.loads(end.stdout)["left_out"]
    assert left_out["files"] == [
        {"path": "code/w/m.pt", "why": "not named in outputs", "size": 2_000_000, "named": False}
    ]
    shown = "1 file, 2.0 MB, not downloaded"
    text = desk.types("unpack", "train", "report").stdout
    assert shown in text
    assert "download  1 file of the program, 2 B" in text
    assert shown in desk.plans()
    desk.writes(f"command: {program!r}", "success: {exit_code: 0}")
    assert "left out" not in desk.plans()


def test_a_folder_that_is_no_box_is_left_as_it_is(desk: Desk) -> None:
    desk.writes("command: 'true'", "success: {exit_code: 0}", "ranks: 1")
    mine = desk.box / "code" / "mine.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    end = desk.types("unpack")
    assert (end.exit_code, mine.is_file()) == (2, True)
    assert "contains files that are not from a rehearsal" in end.stderr


SAVES = """
import os, sys, time
from glob import glob
from vastrun import beat
os.makedirs("ckpt", exist_ok=True)
step, found = 0, sorted(glob("ckpt/step_*.bin"), key=os.path.getmtime)
if found and {looks}:
    step = int(open(found[-1], "rb").read().split()[0])
while step < {steps}:
    time.sleep(0.2)
    step += 1
    {report}
    print("step", step, flush=True)
    with open("log.txt", "a") as log:
        log.write("a line\\n")
    if {saves} and step % 25 == 0:
        with open(f"ckpt/step_{{step}}.bin", "wb") as file:
            file.write(b"%d " % step + bytes(2_000_000))
open("result.txt", "w").write("done")
"""


def saving(desk: Desk, *lines: str, **changes: object) -> None:
    """Write the job of a program that saves every 25 of its steps, each of which takes 0.2 s."""
    options = {"looks": True, "steps": 2000, "report": "beat(step, loss=1 / step)", "saves": True} | changes
    code = desk.job.parent / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(SAVES.format(**options))
    env = f"env: {{PYTHONPATH: {STUB_TORCH}}}"
    desk.writes("code: {path: code}", "command: python train.py", "success: {files: result.txt}", env, *lines)


@pytest.mark.slow
def test_a_program_that_continues_on_another_machine_is_said_to(desk: Desk) -> None:
    saving(desk)
    document = desk.document("resume")
    resume = document["resume"]
    assert [(step["step"], step["exit_code"]) for step in document["steps"]] == [
        *(("config", 0), ("unpack", 0), ("train", 0), ("resume", 0)),
    ]
    assert resume["answer"] == "continued"
    assert resume["killed_at"] >= resume["first_step"] - 1 >= resume["snapshot_step"] > 1
    assert resume["read"] == [f"code/ckpt/step_{resume['first_step'] - 1}.bin"]
    assert resume["checkpoints"] == "ckpt/step_*.bin"
    assert [row["name"] for row in resume["files"]] == ["ckpt/step_*.bin", "log.txt"]
    assert document["next"] is None
    assert desk.job.read_text().count("checkpoints") == 0


@pytest.mark.slow
def test_a_program_that_begins_anew_is_advised_and_the_job_file_gets_the_rest(
    desk: Desk,
) -> None:
    saving(desk, "# the end", looks=False)
    before = desk.job.read_text()
    end = desk.types("resume", "--write")
    assert end.exit_code == 5
    assert "it started over at step 1: it did not read its checkpoint" in end.stdout
    assert "command: ... {resume:--resume} and checkpoints: ckpt/step_*.bin" in end.stdout
    assert desk.job.read_text() == f'{before}\ncheckpoints: "ckpt/step_*.bin"\n'
    assert desk.types("config").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("looks", "answer", "exit_code"), [(True, "read", 0), (False, "started_over", 1)])
def test_of_a_program_without_steps_is_seen_whether_it_read_its_checkpoint(
    desk: Desk, looks: bool, answer: str, exit_code: int
) -> None:
    saving(desk, looks=looks, report="pass")
    document = desk.document("resume")
    assert (document["resume"]["answer"], document["steps"][-1]["exit_code"]) == (answer, exit_code)


@pytest.mark.slow
def test_a_short_program_loses_its_machine_too_and_is_judged_by_its_end(desk: Desk) -> None:
    saving(desk, steps=110)
    document = desk.document("--write")
    assert document["resume"]["answer"] == "continued"
    assert document["verdict"] == "SUCCEEDED"
    proofs = {proof["name"]: proof["text"] for proof in document["assessment"]["proofs"]}
    assert proofs["continued"].endswith(f"and the program began at step {document['resume']['first_step']}")
    assert desk.job.read_text().endswith(
        '\ncheckpoints: "ckpt/step_*.bin"\noutputs: ["log.txt", "result.txt"]\n'
    )


def test_a_program_that_ends_at_once_is_judged_and_cannot_be_killed_before(desk: Desk) -> None:
    saving(desk, steps=1)
    document = desk.document()
    assert (document["verdict"], document["resume"]["answer"]) == ("SUCCEEDED", "too_short")
    assert "before it could be killed" in document["resume"]["detail"]
