"""The keys `checkpoints` of a command and `train.activation_checkpointing`: their forms, and their faults."""

import pytest

from tests.launcher.config.job_files import faults, load
from vastrun.launcher.core.job import Checkpoints

OWN = "name: own\ncommand: python train.py {resume:--from}\nsuccess: {exit_code: 0}\n"


def test_checkpoints_of_a_command_are_a_glob_or_a_section_and_the_command_line_adds_to_both() -> None:
    short = load(OWN + "checkpoints: ckpt/*")
    assert short.checkpoints == Checkpoints(files="ckpt/*", keep=2, every_s=60.0)
    assert short.command == ("python", "train.py", "{resume:--from}")
    pushed = load(OWN + "checkpoints: ckpt/*", "checkpoints.push=s3://b/x")
    assert pushed.checkpoints == Checkpoints(files="ckpt/*", push="s3://b/x")
    whole = load(OWN + "checkpoints: {files: ckpt/*, keep: 3, every_s: 5}")
    assert whole.checkpoints == Checkpoints(files="ckpt/*", keep=3, every_s=5)
    load(OWN + "checkpoints: $VASTRUN_OUTPUTS/checkpoint-*")


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        (
            "name: t\ntrain: {}\ncheckpoints: ckpt/*",
            "checkpoints.files: is for command only: the onboard trainer saves on its own",
        ),
        (OWN + "checkpoints: ../ckpt/*", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: ckpt/*\nnodes: 2", "checkpoints.files: needs one machine, got nodes: 2"),
        (OWN + "checkpoints: '**.pt'", "checkpoints.files: expected ** between slashes only"),
        (OWN + "checkpoints: $HOME/ckpt", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: .", "checkpoints.files: expected a path inside the code folder"),
        (OWN + "checkpoints: {keep: 3}", "checkpoints.keep: needs checkpoints.files"),
        (OWN, "command: {resume:...} needs checkpoints"),
        (OWN + "checkpoints: 5", "checkpoints: expected a section, got 5"),
    ],
)
def test_checkpoints_that_cannot_be_kept_are_told(job: str, fault: str) -> None:
    assert any(fault in told for told in faults(job))


@pytest.mark.parametrize("mode", ["off", "selective", "full"])
def test_activation_checkpointing_has_three_modes(mode: str) -> None:
    job = f"name: a\ntrain: {{activation_checkpointing: {mode}}}\n"
    train = load(job).train
    assert train and train.activation_checkpointing == mode


def test_a_misspelt_mode_of_activation_checkpointing_is_told_with_all_of_them() -> None:
    (fault,) = faults("name: a\ntrain: {activation_checkpointing: selectiv}\n")
    assert fault.endswith("expected one of off, selective, full, got 'selectiv'; did you mean selective?")
