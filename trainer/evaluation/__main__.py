"""`python -m vastrun.trainer.evaluation`: evaluate a checkpoint, as at the end of its training.

In a box (VASTRUN_BOX, or --box) it needs no options; elsewhere --checkpoints, --data and --out give the
folders. A task or model in your own code runs only if the box's job, --task or --model names it: its name in
a checkpoint is not enough. It runs as one process, or on any number of ranks started by `torchrun`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.trainer.checkpoints.export import parse_checkpoint_name
from vastrun.trainer.distributed.exit import exit_code_of, reason_of
from vastrun.trainer.distributed.group import join
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.errors import ConfigError, DataError
from vastrun.trainer.evaluation.model_loader import load_model
from vastrun.trainer.evaluation.report import evaluate_all
from vastrun.trainer.job.config import TrainConfig, config_of

_STAGE_TIMEOUT_S = 600.0
_SINGLE_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def run(arguments: Sequence[str]) -> NoReturn:
    """Evaluate, and end the process."""
    status = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: gloo's threads may abort the process while the interpreter is being taken down.
    os._exit(status)


def main(arguments: Sequence[str]) -> int:
    """Evaluate a checkpoint.

    Returns the exit status: 0; 1: error; 2: usage error; 76: out of memory.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    box = options.box
    places = (options.checkpoints, options.data, options.out)
    if box is None and None in places:
        parser.error("outside of a box --checkpoints, --data and --out are needed")
    try:
        _evaluate(options, box or Path())
    except (ConfigError, DataError, OSError, MemoryError, torch.OutOfMemoryError) as error:
        if not (isinstance(error, ConfigError) and error.reported_elsewhere):
            print(f"evaluation: {error}", file=sys.stderr)
        return exit_code_of(reason_of(error))
    return 0


def _evaluate(options: argparse.Namespace, box: Path) -> None:
    trusted, out = _box_job(), options.out or box / layout.EVALUATION
    torch.set_num_threads(options.threads)
    # Started by hand, without torchrun, this is the only rank.
    os.environ.update({name: value for name, value in _SINGLE_RANK.items() if "RANK" not in os.environ})
    os.environ.setdefault("VASTRUN_BOX", str(out))
    rank, gpus = Rank.of_environment(), torch.cuda.device_count()
    job = Job(
        run_id="",
        ranks=1,
        gpus=gpus,
        program=ProgramSpec(kind="train"),
        stall_s=_STAGE_TIMEOUT_S,
        start_s=_STAGE_TIMEOUT_S,
    )
    ranks = join(rank, job)
    found, trained = load_model(
        ranks,
        options.checkpoints or box / layout.CHECKPOINTS,
        options.checkpoint,
        options.data or box / layout.DATA,
        options.code or box / layout.CODE,
        (*options.task, *(data.task for data in trusted.data)),
        (*options.model, trusted.model.name),
    )
    summary = evaluate_all(trained, beat=_no_heartbeat)
    if rank.is_first:
        summary.print_lines()
    run = found.state.made_by.get("run_id", "a checkpoint")
    title, plots = f"{run}, step {found.state.step}", trained.config.plots
    summary.write(out, title, ranks, plots=plots, beat=_no_heartbeat)
    if rank.is_first:
        print(f"report written to {out}")


def _no_heartbeat() -> None:
    """Do nothing: there is no supervisor that could take a pause for a hang."""


def _box_job() -> TrainConfig:
    """Return the training of the box's own job; the defaults outside of one.

    Any other folder may come from a stranger.
    """
    if "VASTRUN_BOX" not in os.environ:
        return TrainConfig()
    return config_of(Job.read(Path(os.environ["VASTRUN_BOX"])))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vastrun.trainer.evaluation", description=__doc__)
    box = os.environ.get("VASTRUN_BOX")
    parser.add_argument("--box", type=Path, default=Path(box) if box else None, help="folder of a box")
    parser.add_argument("--checkpoints", type=Path, help="folder of the checkpoints")
    parser.add_argument(
        "--checkpoint",
        type=parse_checkpoint_name,
        default="latest",
        help="latest, best, or a step; default latest",
    )
    parser.add_argument("--data", type=Path, help="folder of the training data")
    parser.add_argument("--code", type=Path, help="folder of your code, for a task or model of your own")
    parser.add_argument(
        "--task", action="append", default=[], help="module:function, a task of your own to run"
    )
    parser.add_argument(
        "--model", action="append", default=[], help="module:attribute, a model of your own to run"
    )
    parser.add_argument("--out", type=Path, help="folder for the report")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a rank; default 1")
    return parser


if __name__ == "__main__":
    run(sys.argv[1:])
