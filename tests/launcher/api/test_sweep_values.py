"""Whether the program of a batch uses what the batch varies."""

from __future__ import annotations

from pathlib import Path

import pytest

from vastrun.launcher.api.sweep_values import check_values_used
from vastrun.launcher.config import load_job
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec

OWN = "name: own\nresources: {gpus: 0}\ncommand: python train.py\nsuccess: {exit_code: 0}\n"


def job(folder: Path, program: str) -> JobSpec:
    """One whose code is that program, beside a large file and a link that leads nowhere."""
    (folder / "train.py").write_text(program)
    (folder / "data.txt").write_text("VASTRUN_PARAM_LR\n" * 100_000)
    (folder / "gone").symlink_to(folder / "nowhere")
    return load_job(OWN + "code: {path: .}\n", "job.yaml", [], str(folder))


@pytest.mark.parametrize(
    "program",
    [
        'lr = float(os.environ["VASTRUN_PARAM_LR"])',
        'own = {k: v for k, v in os.environ.items() if k.startswith("VASTRUN_PARAM_")}',
        'lr = float(os.environ[f"VASTRUN_PARAM_{name}"])',
    ],
)
def test_a_program_that_reads_the_variable_or_all_of_them_uses_it(tmp_path: Path, program: str) -> None:
    check_values_used(job(tmp_path, program), {"lr"})


def test_what_no_program_reads_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(JobValueError) as caught:
        check_values_used(job(tmp_path, 'os.environ["VASTRUN_PARAM_LRS"]'), {"lr", "batch-size"})
    assert str(caught.value).startswith(
        "the batch varies batch-size, lr, which neither the command, `env:` nor the code of the job uses"
    )
    assert (
        caught.value.hint == "write {batch-size} in command:, or read VASTRUN_PARAM_BATCH_SIZE in the program"
    )


def test_a_job_without_code_must_use_it_in_its_command(tmp_path: Path) -> None:
    alone = load_job(OWN, "job.yaml", [], str(tmp_path))
    check_values_used(alone, set())
    with pytest.raises(JobValueError, match="the batch varies lr"):
        check_values_used(alone, {"lr"})
