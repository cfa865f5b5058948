"""What a launch continues from: another run's checkpoints at home, those it pushed, or those at any URL."""

import shutil
from pathlib import Path

import pytest

from tests.launcher.terminal import Terminal
from vastrun.launcher.config import read_job


def start_of_last(terminal: Terminal) -> str | None:
    return read_job(terminal.ledger.runs()[0].spec_json).checkpoints.start_from


def test_a_url_to_continue_from_is_part_of_the_job(terminal: Terminal) -> None:
    assert terminal.launch("--from-url", "s3://models/demo/otter").exit_code == 0
    assert start_of_last(terminal) == "s3://models/demo/otter"


def test_a_run_of_which_nothing_came_home_is_continued_from_what_it_pushed(terminal: Terminal) -> None:
    terminal.launch("--set", "checkpoints.push=s3://models/demo/")
    (first,) = terminal.ledger.runs()
    terminal.launch("--from", first.id)
    assert start_of_last(terminal) is None
    shutil.rmtree(Path(first.out_dir) / "checkpoints")
    terminal.launch("--from", first.id)
    assert start_of_last(terminal) == f"s3://models/demo/{first.id}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "last", "--from-url", "s3://models/demo/otter"), "exclude each other"),
        (("--from-url", "s3://key:secret@models"), "without a key in it"),
        (("--set", "train.freeze=codec"), "train.freeze needs a checkpoint to start from"),
        (("--set", "train.stage=refine"), "train.stage needs a checkpoint to start from"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_rented(
    terminal: Terminal, options: tuple[str, ...], said: str
) -> None:
    end = terminal.launch(*options)
    assert (end.exit_code, said in end.stderr) == (2, True), end.output
    assert not terminal.ledger.runs()
