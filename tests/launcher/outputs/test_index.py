"""What a report shows of a run's folder: bounded, whatever lies there."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.lies import PNG
from tests.jobs import command_job
from tests.launcher.outputs.boxes import OUTCOME
from vastrun.contract import layout
from vastrun.contract.outcome import WandbRun
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Run
from vastrun.launcher.gate import caps
from vastrun.launcher.outputs import index
from vastrun.launcher.outputs.folder import CHUNK, Outputs


@pytest.fixture
def outputs(run: Run) -> Outputs:
    found = Outputs(run)
    for path in (layout.EVALUATION, layout.STACKS):
        found.path(path).mkdir(parents=True)
    return found


def test_a_folder_without_anything_shows_nothing(run: Run) -> None:
    outputs = Outputs(run)
    assert not index.series_in(outputs)
    assert not index.pictures_in(outputs)
    assert (index.log_head(outputs), index.log_tail(outputs), index.stack_in(outputs, 0)) == ("", "", "")


PATHS = (layout.CHECKPOINTS, layout.METRICS, layout.OUTPUTS, layout.WANDB_FILES, layout.RUN)


def test_the_contents_of_a_folder_are_what_was_downloaded(run: Run) -> None:
    outputs = Outputs(run)
    assert index.contents_of(run, PATHS) == index.FolderContents()
    checkpoints, offline = outputs.path(layout.CHECKPOINTS), outputs.path(layout.WANDB_FILES)
    for name in ("step-000010", "step-000008"):
        (checkpoints / name).mkdir(parents=True)
    (checkpoints / "latest.json").write_text('{"step": 10, "path": "step-000010"}')
    (checkpoints / "best.json").write_text('{"step": 8, "path": "step-000008"}')
    for name in ("offline-run-20260801_101112-calm", "run-20260801_101112-calm"):
        (offline / name).mkdir(parents=True)
    outputs.path(layout.METRICS).write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    wandb = WandbRun(id="calm", mode="online", state="finished", url="https://wandb.ai/me/calm")
    outcome = replace(OUTCOME, scores={"rollout_nrmse": 0.1}, wandb=wandb)
    outputs.path(layout.OUTCOME).write_text(outcome.to_json())
    found = index.contents_of(run, PATHS)
    assert found == index.FolderContents(
        names={
            "run/checkpoints": "checkpoints",
            "run/metrics.jsonl": "metrics.jsonl",
            "run/wandb": "details/wandb",
            "run": "details",
        },
        newest="step-000010",
        best="step-000008",
        can_export=True,
        wandb=("details/wandb/offline-run-20260801_101112-calm",),
        wandb_url="https://wandb.ai/me/calm",
        scores={"rollout_nrmse": 0.1},
    )
    outputs.transcript.touch()
    assert index.contents_of(run, PATHS) == replace(found, has_transcript=True)
    outputs.start_script.touch()
    assert index.contents_of(run, PATHS) == replace(found, has_transcript=True, has_start_script=True)
    own = replace(run, spec_json=dump_job(command_job()))
    assert not index.contents_of(own, PATHS).can_export


def test_a_checkpoint_that_is_named_and_not_there_is_none(run: Run) -> None:
    folder = Outputs(run).path(layout.CHECKPOINTS)
    folder.mkdir(parents=True)
    (folder / "latest.json").write_text('{"step": 10, "path": "step-000010"}')
    (folder / "best.json").write_text("{}")
    assert (index.contents_of(run, PATHS).newest, index.contents_of(run, PATHS).best) == (None, None)


def test_of_many_lines_some_of_each_part_are_read_and_the_last_one_is(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    records = [
        {"step": step, "validation_nrmse": 0.5}
        if step % 6 == 0
        else {"step": step, "loss": 1 / step, "lr": 0.1}
        for step in range(1, 60_001)
    ]
    file.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    read = [json.loads(line) for line in index.metric_lines(file, 3000) if line]
    steps = [record["step"] for record in read]
    assert 2000 <= len(read) <= 4000
    assert steps == sorted(steps) and steps[-1] == 60_000
    assert max(later - step for step, later in itertools.pairwise(steps)) < 60
    assert sum("validation_nrmse" in record for record in read) >= 300


@pytest.mark.parametrize("content", [b"\n" * (4 << 20), b"x" * (4 << 20), (b"y" * 70_000 + b"\n") * 60, b""])
def test_lines_of_any_length_are_read_at_once(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(content)
    assert sum(map(len, index.metric_lines(file, 50))) <= 2 * len(content)


def test_only_so_many_pictures_are_shown(outputs: Outputs) -> None:
    folder = outputs.path(layout.EVALUATION)
    (folder / "0.png").write_bytes(b"<svg/>")
    (folder / "0.svg").write_bytes(PNG)
    for number in range(caps.PICTURES + 9):
        (folder / f"a{number:02}.png").write_bytes(PNG)
    assert list(index.pictures_in(outputs)) == [f"a{number:02}.png" for number in range(caps.PICTURES)]


def test_of_a_long_log_whole_lines_of_both_ends_are_shown(outputs: Outputs) -> None:
    lines = [f"1.000 rank0 line {number}\n" for number in range(100_000)]
    outputs.log.write_text("".join(lines) + "1.000 rank0 half")
    head, tail = index.log_head(outputs), index.log_tail(outputs)
    assert "".join(lines).startswith(head) and head.endswith("\n")
    assert "".join(lines).endswith(tail) and len(tail) <= CHUNK
    assert tail.startswith("1.000 rank0 line ")


def test_a_stack_is_cut(outputs: Outputs) -> None:
    outputs.path(f"{layout.STACKS}/rank-3.txt").write_text("x" * 1_000_000)
    assert len(index.stack_in(outputs, 3)) == 1 << 16
