"""What a program logs to TensorBoard or W&B becomes lines of metrics, unless it beats them itself."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.curve_programs import event, framed, frames, history
from tests.onstart.supervision.launches import Launcher
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.launcher.gate import caps
from vastrun.onstart.supervision.curve_formats import TensorBoardFile, WandbFile
from vastrun.onstart.supervision.logged_curves import MAX_BYTES, CurveMerge, LoggedCurves

EVENTS = "events.out.tfevents.1795727392.host.7.0"


class Logging:
    """A box whose program's files a test writes, and what reads them."""

    def __init__(self, box: Path) -> None:
        self.box = box
        (box / layout.CODE).mkdir(parents=True)
        (box / layout.RUN).mkdir()
        self.said: list[str] = []
        self.curves = LoggedCurves(box=box, say=self.said.append, is_on=True)
        self.curves.begin()

    def log(self, folder: str, *points: tuple[int, str, float], name: str = EVENTS) -> None:
        """Add points to an event file."""
        path = self.box / layout.CODE / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.writelines(framed(event(step, tag.encode(), value)) for step, tag, value in points)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines after another look."""
        self.curves.poll(is_last=True)
        path = self.box / layout.METRICS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def logging(tmp_path: Path) -> Logging:
    return Logging(tmp_path)


def test_points_of_one_step_are_one_line_and_later_ones_are_added(logging: Logging) -> None:
    logging.log("runs", (1, "acc", 0.25), (1, "lr", 0.5), (2, "acc", 0.5))
    first = logging.metrics()
    logging.log("runs", (3, "acc", 0.75))
    assert first == [{"step": 1, "acc": 0.25, "lr": 0.5}, {"step": 2, "acc": 0.5}]
    assert logging.metrics() == [*first, {"step": 3, "acc": 0.75}]
    assert logging.said == [f"curves are read from code/runs/{EVENTS}"]


def test_two_folders_with_one_tag_are_told_apart_as_tensorboard_does(logging: Logging) -> None:
    logging.log("logs/train", (1, "accuracy", 0.5))
    logging.log("logs/validation", (1, "accuracy", 0.25))
    assert logging.metrics() == [{"step": 1, "accuracy": 0.5, "validation/accuracy": 0.25}]


def test_two_files_of_one_folder_are_one_curve_by_step(logging: Logging) -> None:
    logging.log("runs", (1, "acc", 0.5), (2, "acc", 0.5))
    logging.log("runs", (1, "acc", 0.125), (3, "acc", 0.25), name=f"{EVENTS[:-1]}1")
    assert [(line["step"], line["acc"]) for line in logging.metrics()] == [(1, 0.5), (2, 0.5), (3, 0.25)]


def test_values_without_a_step_are_numbered(logging: Logging) -> None:
    logging.log("runs", (0, "acc", 0.5), (0, "acc", 0.25), (0, "acc", 0.125))
    assert [(line["step"], line["acc"]) for line in logging.metrics()] == [(0, 0.5), (1, 0.25), (2, 0.125)]


@pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("Loss/train", "loss"),
        ("train/loss", "loss"),
        ("train_loss_step", "loss"),
        ("training loss", "loss"),
        ("eval/loss", "validation_loss"),
        ("val_loss", "validation_loss"),
        ("trainable_loss", None),
        ("loss_scale", None),
    ],
)
def test_a_loss_by_a_usual_name_also_has_vastruns_name(tag: str, shown: str | None, logging: Logging) -> None:
    logging.log("runs", (1, tag, 0.5))
    assert logging.metrics() == [{"step": 1, tag: 0.5} | ({shown: 0.5} if shown else {})]


def test_a_name_of_vastrun_s_own_is_not_mixed_with_another_one(logging: Logging) -> None:
    logging.log("runs", (1, "train_loss", 0.5), (1, "loss/train", 0.25), (2, "loss", 0.125))
    logging.log("runs", (3, "train_loss", 4.0))
    losses = [line["loss"] for line in logging.metrics() if "loss" in line]
    assert losses == [0.5, 0.125]


def test_metrics_of_beat_come_before_those_of_files(logging: Logging) -> None:
    logging.log("runs", (1, "acc", 0.5))
    (logging.box / layout.METRICS).write_text('{"step": 1, "loss": 7.0}\n')
    assert logging.metrics() == [{"step": 1, "loss": 7.0}]
    logging.log("runs", (2, "acc", 0.5))
    assert logging.metrics() == [{"step": 1, "loss": 7.0}]
    assert logging.said[-1] == "curves: the program writes metrics itself; logged curves are no longer added"


def test_a_start_that_goes_back_to_a_checkpoint_tells_its_steps_again(logging: Logging) -> None:
    logging.log("first", (1, "acc", 0.5), (2, "acc", 0.5))
    logging.metrics()
    logging.curves.begin()
    logging.log("second", (2, "acc", 0.25))
    assert [line["step"] for line in logging.metrics()] == [1, 2, 2]


def test_no_more_is_added_than_a_launcher_takes(logging: Logging) -> None:
    logging.curves._left = 100
    logging.log("runs", *((step, "acc", 0.5) for step in range(1, 50)))
    lines = logging.metrics()
    assert lines and (logging.box / layout.METRICS).stat().st_size <= 100
    assert logging.said[-1] == f"curves: more than {MAX_BYTES >> 20} MiB; further values are skipped"


def test_half_of_the_metrics_that_a_launcher_accepts_is_left_to_the_program() -> None:
    assert caps.SMALL_FILES[layout.METRICS] >= 2 * MAX_BYTES


def test_a_closed_file_that_appears_later_is_found_by_the_next_search(logging: Logging) -> None:
    def found() -> list[str]:
        logging.curves.poll()
        return logging.said

    assert found() == []
    logging.log("later", (1, "acc", 0.25))
    assert eventually(found) == [f"curves are read from code/later/{EVENTS}"]


def test_a_broken_file_is_named_once_and_others_are_read(logging: Logging) -> None:
    broken = logging.box / layout.CODE / f"{EVENTS}\x1b[2J"
    broken.write_bytes(b"no events" * 100)
    logging.log("runs", (1, "acc", 0.5))
    assert logging.metrics() == [{"step": 1, "acc": 0.5}]
    logging.metrics()
    said = [line for line in logging.said if "cannot be read" in line]
    assert len(said) == 1 and "\x1b" not in said[0]


def test_wandb_and_tensorboard_together_show_a_name_once(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_bytes(framed(event(1, b"acc", 0.5)) + framed(event(2, b"acc", 0.25)))
    (tmp_path / "run-a.wandb").write_bytes(frames(history(1, acc="0.5"), history(3, acc="0.125")))
    merge = CurveMerge()
    for file in (TensorBoardFile(tmp_path / EVENTS), WandbFile(tmp_path / "run-a.wandb")):
        merge.add(file, time.monotonic() + 60)
    assert [(line["step"], line["acc"]) for line in merge.take()] == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_a_closed_file_of_a_living_process_counts_if_it_is_of_rank_0(logging: Logging) -> None:
    writers = [subprocess.Popen(["sleep", "600"], env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
    try:
        for rank, writer in enumerate(writers):
            logging.log("runs", (1, "acc", rank + 0.5), name=f"events.out.tfevents.1.host.{writer.pid}.0")
        assert logging.metrics() == [{"step": 1, "acc": 0.5}]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


LOGS = """
    import os, sys, time
    sys.path.insert(0, "ROOT")
    from tests.onstart.supervision.curve_programs import event, framed
    rank = os.environ["RANK"]
    os.makedirs("FOLDER", exist_ok=True)
    name = f"events.out.tfevents.1795727392.host.{os.getpid()}.{rank}"
    with open(f"FOLDER/{name}", "ab", buffering=0) as file:
        for step in range(1, 6):
            file.write(framed(event(step, b"train/loss", 1.0 + int(rank))))
            while step == WAITS_AT and not os.path.exists("go"):
                time.sleep(0.05)
""".replace("ROOT", str(Path(__file__).parents[3]))


def test_a_supervised_program_of_two_ranks_shows_the_curve_of_rank_0(launch: Launcher) -> None:
    launched = launch(LOGS.replace("FOLDER", "runs").replace("WAITS_AT", "0"), beating=False)
    outcome = launched.outcome()
    lines = [json.loads(line) for line in (launched.box / layout.METRICS).read_text().splitlines()]
    assert lines == [{"step": step, "train/loss": 1.0, "loss": 1.0} for step in range(1, 6)]
    assert (outcome.reason, outcome.last_loss, outcome.steps_done) == ("finished", 1.0, 5)


def test_a_file_anywhere_is_read_during_the_run_and_proves_no_step(tmp_path: Path, launch: Launcher) -> None:
    program = LOGS.replace("FOLDER", str(tmp_path / "elsewhere")).replace("WAITS_AT", "3")
    success = {"steps": 5, "files": [], "log": None, "exit_code": None}
    launched = launch(program, beating=False, success=success)
    box = launched.box
    eventually(lambda: (box / layout.METRICS).exists() and '"step": 3' in (box / layout.METRICS).read_text())
    (box / layout.CODE / "go").touch()

    outcome = launched.outcome()

    lines = [json.loads(line) for line in (box / layout.METRICS).read_text().splitlines()]
    assert {line["loss"] for line in lines} == {1.0}, "of rank 0 alone"
    assert [check.holds for check in outcome.checks] == [False]
    assert "reported a step" in outcome.checks[0].text
