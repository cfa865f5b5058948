"""A box to measure in: a folder with a job and its data, and the two ways to train there."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.programs import program_spec
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig

RANKS = 2
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def prepare(
    folder: Path,
    config: TrainConfig,
    *,
    ranks: int = RANKS,
    gpus: int = 0,
    nodes: int = 1,
    made: Sequence[DataConfig] | None = None,
) -> Path:
    """The box's folder, with job.json and data. `made`: the data that the files have; None: the job's."""
    folder.mkdir(parents=True)
    job = {
        "run_id": folder.name if nodes == 1 else folder.parent.name,
        "name": "bench",
        "ranks": ranks,
        "nodes": nodes,
        "gpus": gpus,
        "program": asdict(program_spec(config, gpus=gpus)),
        "stall_s": 120,
        "start_s": 120,
        "setup": [],
        "env": {},
        "success": None,
        "outputs": [],
    }
    (folder / layout.JOB).write_text(json.dumps(job))
    for task in config.data if made is None else made:
        data.generate(task, folder / layout.DATA)
    return folder


def config(steps: int) -> TrainConfig:
    """The quickstart's model with a batch that makes a step long enough to measure."""
    return TrainConfig(steps=steps, batch=128, log_every=10, model=ModelConfig(name="latent"))


def environment(box: Path) -> dict[str, str]:
    """What both ways get."""
    return {**os.environ, **QUIET, "VASTRUN_BOX": str(box), "PYTHONPATH": str(Path.cwd())}


def supervised() -> list[str]:
    """Return the command that trains in a box, with all that is on by default."""
    return [sys.executable, "-m", "vastrun.onstart.supervise"]


def by_torchrun(box: Path, program: str) -> list[str]:
    """Return the command that trains in a box with another loop."""
    ranks = json.loads((box / layout.JOB).read_text())["ranks"]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [sys.executable, *launcher, "-m", program]


def train_with_vastrun(box: Path) -> list[dict[str, float]]:
    """Under the supervisor. Step and time of each metric."""
    subprocess.run(supervised(), check=True, env=environment(box), stdout=subprocess.DEVNULL)
    return records_of((box / layout.METRICS).read_text())


def train_by_hand(box: Path, program: str = "benchmarks.bare") -> list[dict[str, float]]:
    """Another loop under torchrun. Step and time of each printed line; the last has its memory's peak."""
    done = subprocess.run(by_torchrun(box, program), env=environment(box), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program} failed:\n{done.stderr[-3000:]}")
    return records_of(done.stdout)


def records_of(text: str) -> list[dict[str, float]]:
    """Return the lines of JSON in what was printed, or in a file; the last line may not be whole yet."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line[0] + line[-1] == "{\n"]
