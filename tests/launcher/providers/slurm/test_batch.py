"""What sbatch is given: limits, shares, the user's own options and lines, containers."""

from typing import Any

import pytest

from tests.offers import rental_order, rtx_4090
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.providers.slurm.batch import JobOrder, batch_script, sbatch_options
from vastrun.launcher.providers.slurm.offers import NodeShare

ID = "calm-heron-3f1a.1a2b3c4d.0a0b0c0d"


def batch(*, image: str | None = None, gpus: int = 0, **settings: Any) -> JobOrder:
    share = NodeShare(partition="gpu", minutes=62, cores=8, memory_mb=64000, gpus=gpus, kind="a100")
    label = "vastrun-calm-heron-3f1a.1a2b3c4d"
    return JobOrder(
        ids=(ID,),
        order=rental_order(rtx_4090(gpus, id=str(share)), label=label, image=image),
        share=share,
        folder="/home/al ice/boxes",
        python="/opt/python",
        settings=SlurmSettings(**settings),
    )


def test_a_job_bears_its_label_is_warned_before_its_end_and_is_never_begun_anew() -> None:
    options = sbatch_options(batch(gpus=2))
    assert "--comment=vastrun-calm-heron-3f1a.1a2b3c4d" in options
    assert f"--job-name=vastrun-{ID}" in options
    assert {"--signal=B:TERM@90", "--no-requeue", "--gres=gpu:a100:2", "--mem=64000M"} <= set(options)


def test_the_user_s_own_options_come_last_and_their_lines_first() -> None:
    own = batch(sbatch=("--account=lab", "--qos=low"), setup=("module load cuda",))
    assert sbatch_options(own)[-2:] == ("--account=lab", "--qos=low")
    script = batch_script(own)
    assert script.index("module load cuda") < script.index("server_pid=$!")


@pytest.mark.parametrize(
    ("container", "image", "begins"),
    [
        (
            "apptainer",
            "pytorch/pytorch:2",
            "apptainer exec --nv --bind '/home/al ice/boxes:/home/al ice/boxes' docker://pytorch/pytorch:2",
        ),
        (
            "apptainer",
            "/images/torch.sif",
            "apptainer exec --nv --bind '/home/al ice/boxes:/home/al ice/boxes' /images/torch.sif",
        ),
        ("pyxis", "pytorch/pytorch:2", "srun --overlap --ntasks=1 --container-image=pytorch/pytorch:2"),
        (None, "pytorch/pytorch:2", ")"),
        ("apptainer", None, ")"),
    ],
)
def test_the_sites_runtime_runs_a_jobs_image(container: str | None, image: str | None, begins: str) -> None:
    script = batch_script(batch(container=container, image=image, gpus=1))
    assert script.partition("\naround=(")[2].startswith(begins)
