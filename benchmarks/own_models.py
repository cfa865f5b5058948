"""`python -m benchmarks.own_models`: the models of examples/own_model beside ours, after equal steps.

Prints the table of docs/own-model.md: one rank with one thread, seconds of its processor. The model of the
package neuraloperator is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist

from vastrun.contract import layout
from vastrun.contract.heartbeat import Heartbeat
from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.contract.records import read_as
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import set_up
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.evaluation.report import evaluate_all
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.weights import count_parameters

CODE = Path(__file__).parents[1] / "examples" / "own_model"
STEPS = 600
SIZES = {"width": 32, "depth": 2}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "`latent`, patches of 4 points": {"name": "latent", "dim": 32, "depth": 2, "heads": 2, "patch": 4},
    "`transformer:Transformer`, patches of 4 points": {
        "name": "transformer:Transformer",
        "options": {**SIZES, "heads": 2},
    },
    "`fno`, 12 frequencies": {"name": "fno", "dim": 32, "depth": 2},
    "`neuraloperator_fno:Net`, 12 frequencies": {
        "name": "neuraloperator_fno:Net",
        "options": {**SIZES, "modes": 12},
    },
}


def main() -> None:
    """Train each model, and print a row for it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_models", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default {STEPS}")
    steps = parser.parse_args().steps
    print("| model | parameters | seconds | error |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        box = Path(folder)
        (box / layout.CODE).symlink_to(CODE)
        ranks = _only_rank(box)
        for name, model in MODELS.items():
            if "neuraloperator" in name and find_spec("neuralop") is None:
                continue
            parameters, seconds, error = _train(ranks, model, steps)
            print(f"| {name} | {parameters:,} | {seconds:.1f} | {error:.3f} |", flush=True)


def _only_rank(box: Path) -> Ranks:
    store = torch_dist.FileStore(str(box / "store"), 1)
    torch_dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    rank = Rank(rank=0, local_rank=0, world_size=1, box=box)
    return Ranks(rank=rank, device=torch.device("cpu"), control=torch_dist.new_group(backend="gloo"))


def _train(ranks: Ranks, model: Mapping[str, Any], steps: int) -> tuple[int, float, float]:
    """Return the parameters of a model, the seconds of its steps, and the nRMSE of its rollouts."""
    settings = {
        "steps": steps,
        "batch": 16,
        "data": {"betas": [1.0], "train": 128, "test": 32},
        "model": model,
        "wandb": {"mode": "off"},
    }
    config: TrainConfig = read_as(TrainConfig, settings)
    box = ranks.rank.box
    data.generate(config.data[0], box / layout.DATA)
    job = Job(run_id="", program=ProgramSpec(kind="train"), ranks=1, gpus=0, stall_s=600.0, start_s=600.0)
    session = set_up(ranks, job, config)
    heart = Heartbeat(box / layout.HEARTBEATS / "rank-0")
    began = time.process_time()
    _take_steps(session, steps, heart)
    seconds = time.process_time() - began
    session.loader.close()
    scores = evaluate_all(session, beat=lambda: None).scores
    return count_parameters(session.operator), seconds, scores["rollout_nrmse"]


def _take_steps(session: Session, steps: int, heart: Heartbeat) -> None:
    for step in range(steps):
        session, _ = train_step(session, step, heart)


if __name__ == "__main__":
    main()
