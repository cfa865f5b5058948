"""Latent writer: encodes the training frames of a task; the ranks of a machine share the missing files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.contract.config import ModelConfig
from vastrun.contract.data_config import DataConfig
from vastrun.contract.errors import ConfigError, DataError
from vastrun.trainer.checks.agreement import digest
from vastrun.trainer.data import Task
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.latents.files import LatentFiles, Tokens, TokensShape
from vastrun.trainer.models.codec import PatchEncoder
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Scale
from vastrun.trainer.sampling.windows import WindowSpace, full_trajectories

_GIB = 1 << 30
_MIN_FREE_BYTES = _GIB
"""Disk space, in bytes, that is left free for checkpoints and logs."""
_SAMPLED_TRAJECTORIES = 32
"""Number of trajectories whose values identify the data."""


@dataclass(frozen=True, kw_only=True)
class LatentWriter:
    """Token files of one task, and the encoder that fills them."""

    files: LatentFiles
    task: Task
    space: WindowSpace
    encoder: FrozenEncoder

    @classmethod
    def of(cls, session: Session, number: int, folder: Path) -> LatentWriter:
        """Prepare the tokens of a task, in a folder named after everything they depend on.

        All ranks call this together.
        """
        operator, config = session.operator, session.config
        assert isinstance(operator, LatentOperator)
        task, space, data = (
            session.tasks[number],
            session.task_schedule.sample_plans[number].space,
            config.data[number],
        )
        encoder = FrozenEncoder(operator, number, config.model, session.ranks.device)
        shape = TokensShape(
            trajectories=space.trajectories,
            frames=space.frames - 1,
            tokens=len(encoder.encoder.position),
            dim=config.model.dim,
        )
        about = {
            "data": _data_key(data),
            "sample": _sample_digest(task, space),
            "encoder": encoder.digest(),
            "shape": asdict(shape),
        }
        path = folder / f"{data.task.replace(':', '.')}-{digest(about)}"
        return cls(files=LatentFiles(path, shape, about), task=task, space=space, encoder=encoder)

    def run(self, ranks: Ranks, beat: Callable[[], None]) -> None:
        """Write all missing files; the ranks of a machine share the work. Raises OSError."""
        place = ranks.rank.local_rank
        [last] = ranks.all_reduce_max(place)
        # All ranks list the missing files before the first one cleans up: the lists must be the same.
        own = [number for number in self.files.missing() if number % (int(last) + 1) == place]
        ranks.wait_for_all()
        if place == 0:
            self.files.prepare_folder()
        ranks.wait_for_all()
        for number in own:
            beat()
            self.files.write(number, self._tokens(self.files.trajectory_range(number)))
        ranks.wait_for_all()
        if left := self.files.missing():
            raise DataError(f"{self.files.folder}: {len(left)} of the files just written are missing")

    def _tokens(self, trajectories: Sequence[int]) -> Tokens:
        """Return the tokens (N, T - 1, S, D)."""
        made: list[Tokens] = []
        for rows in ranges(len(trajectories), _trajectories_at_once(self.space)):
            fields = _fields(self.task, trajectories[rows.start : rows.stop], self.space)[:, :-1]
            fields = fields.to(self.encoder.scale.mean.device)
            tokens: Tensor = self.encoder(fields.flatten(0, 1)).unflatten(0, fields.shape[:2])
            made.append(tokens.cpu().numpy())
        return np.concatenate(made)


def check_disk_space(ranks: Ranks, folder: Path, needed: int) -> None:
    """Raise ConfigError, on all ranks, when the disk of one of them has less than `needed` bytes to spare."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    short = needed > max(0, free - _MIN_FREE_BYTES)
    for rank, (is_short, free_there) in enumerate(ranks.all_gather_objects((short, free))):
        if is_short:
            raise ConfigError(
                f"train.latents: the tokens take {needed / _GIB:.1f} GiB, but {folder} has "
                f"{free_there / _GIB:.1f} free, of which 1 must stay free; set latents: off",
                reported_elsewhere=rank != ranks.rank.rank,
            )


def _data_key(data: DataConfig) -> dict[str, Any]:
    """Return the options of the data section that the training values depend on."""
    return {key: value for key, value in asdict(data).items() if key not in ("keep", "test")}


def _sample_digest(task: Task, space: WindowSpace) -> str:
    """Hash the values of a few trajectories: a data file may have been replaced."""
    chosen = np.unique(np.linspace(0, space.trajectories - 1, _SAMPLED_TRAJECTORIES).astype(int))
    hasher = hashlib.sha256()
    for rows in ranges(len(chosen), _trajectories_at_once(space)):
        values = _fields(task, chosen[rows.start : rows.stop].tolist(), space)
        hasher.update(values.cpu().contiguous().numpy())
    return hasher.hexdigest()


def _trajectories_at_once(space: WindowSpace) -> int:
    return rows_at_once(space.frames * space.channels * prod(space.grid), space.trajectories)


def _fields(task: Task, trajectories: Sequence[int], space: WindowSpace) -> Tensor:
    """Return the fields (N, T, K, *X)."""
    return task.batch(0, full_trajectories(trajectories, space)).fields


class FrozenEncoder(nn.Module):
    """Copy of the encoder of one task, and of the scale before it. All ranks build theirs together."""

    def __init__(
        self, operator: LatentOperator, task: int, config: ModelConfig, device: torch.device
    ) -> None:
        super().__init__()
        domain = operator.domains[task]
        with torch.device("meta"):
            self.scale = Scale(domain)
            self.encoder = PatchEncoder(config, domain)
        for copy, original in ((self.scale, operator.scale(task)), (self.encoder, operator.encoders[task])):
            state = {name: _full_tensor(tensor, device) for name, tensor in original.state_dict().items()}
            copy.load_state_dict(state, assign=True)

    @torch.no_grad()
    def forward(self, fields: Tensor) -> Tensor:
        """Encode fields (B, K, *X) in physical units as tokens (B, S, D), in fp32."""
        tokens: Tensor = self.encoder(self.scale.normalise(fields))
        return tokens

    def digest(self) -> str:
        """Hash everything the tokens of a field depend on: grid, patches, units and weights."""
        hasher = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            hasher.update(tensor.cpu().contiguous().numpy())
        return hasher.hexdigest()


def _full_tensor(tensor: Tensor, device: torch.device) -> Tensor:
    # Move to the device first: offloaded shards cannot be gathered.
    there = tensor.detach().to(device)
    return there.full_tensor() if isinstance(there, DTensor) else there
