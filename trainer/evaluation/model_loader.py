"""Model loader: loads a checkpoint for evaluation, without the optimiser, on any number of ranks."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from vastrun.contract.checkpoint_folder import name_of
from vastrun.contract.records import read_as
from vastrun.trainer import data, stages, user_code
from vastrun.trainer.checkpoints.contents import EMA, MODEL
from vastrun.trainer.checkpoints.disk import Disk, find_disk
from vastrun.trainer.checkpoints.reader import FoundCheckpoint, found_at, load_tensors, newest_intact
from vastrun.trainer.checkpoints.scored_folder import best_of
from vastrun.trainer.data import Task
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.session_builder import domains_of
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import MODELS, TrainConfig
from vastrun.trainer.job.data_config import PARAMETERS
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.models.precision import autocast
from vastrun.trainer.strategies import STRATEGIES


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """Model from a checkpoint."""

    config: TrainConfig
    ranks: Ranks
    tasks: Sequence[Task]
    operator: Operator
    ema: Ema | None

    def autocast(self) -> AbstractContextManager:
        return autocast(self.config.precision, self.ranks.device)

    def ema_weights(self) -> AbstractContextManager:
        return self.ema.average_parameters() if self.ema else nullcontext()


def load_model(
    ranks: Ranks,
    checkpoints: Path,
    which: str,
    data_folder: Path,
    code: Path,
    user_tasks: Collection[str] = (),
    user_models: Collection[str] = (),
) -> tuple[FoundCheckpoint, LoadedModel]:
    """Load the checkpoint `latest`, `best`, or of a step. Raises ConfigError, DataError.

    `user_tasks` and `user_models`: the tasks `module:function` and models `module:attribute` that may be
    imported. A checkpoint may come from a stranger's machine: on its own it can name built-in ones only.
    """
    disk = find_disk(checkpoints, ranks)
    found = _find_checkpoint(checkpoints, which, disk)
    config: TrainConfig = read_as(TrainConfig, found.state.config)
    for each in config.data:
        if each.task not in PARAMETERS and each.task not in user_tasks:
            text = f"the checkpoint was trained on {each.task!r}, user code: --task with its name runs it"
            raise ConfigError(text, reported_elsewhere=not ranks.rank.is_first)
    if config.model.name not in (*MODELS, *user_models):
        text = f"the checkpoint is of {config.model.name!r}, user code: --model with its name runs it"
        raise ConfigError(text, reported_elsewhere=not ranks.rank.is_first)
    user_code.add_to_path(code)
    tasks = [data.make_task(each, data_folder, code) for each in config.data]
    for task in tasks:
        task.place(ranks.device)
    with torch.device("meta"):
        objective = stages.make(config, domains_of(config, tasks))
    sharded = config.strategy == "fsdp2" and ranks.rank.world_size > 1
    STRATEGIES["fsdp2" if sharded else "single"].wrap(objective, config, ranks.device)
    operator = objective.operator
    ema = Ema(operator, config.ema) if config.ema else None
    tensors = {f"{MODEL}{name}": tensor for name, tensor in get_model_state_dict(operator).items()}
    averages = {f"{EMA}{name}": tensor for name, tensor in (ema.state_dict() if ema else {}).items()}
    load_tensors(found.path, tensors | averages, disk)
    return found, LoadedModel(config=config, ranks=ranks, tasks=tasks, operator=operator, ema=ema)


def _find_checkpoint(checkpoints: Path, which: str, disk: Disk) -> FoundCheckpoint:
    if which != "latest":
        return found_at(checkpoints / disk.ranks.broadcast_object(_name_of(checkpoints, which)), disk)
    found = newest_intact([checkpoints], disk)
    if found is None:
        raise ConfigError(f"{checkpoints}: no checkpoint", reported_elsewhere=not disk.ranks.rank.is_first)
    return found


def _name_of(checkpoints: Path, which: str) -> str:
    if which != "best":
        return name_of(int(which))
    best = best_of(checkpoints)
    return best.path if best else "the best"
