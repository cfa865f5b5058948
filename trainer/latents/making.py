"""Making: what the tokens of a task follow from, and how the ranks make the files that are missing."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.contract.config import DataConfig, ModelConfig
from vastrun.contract.errors import ConfigError, DataError
from vastrun.trainer.checks.agreement import digest
from vastrun.trainer.data import Task
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.latents.files import LatentFiles, Tokens, TokensShape
from vastrun.trainer.models.codec import PatchEncoder
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Scale
from vastrun.trainer.sampling.windows import Space, whole_trajectories

_GIB = 1 << 30
_SPARED_BYTES = _GIB
"""Left on the disk for checkpoints and logs."""
_SAMPLED = 32
"""Trajectories whose values stand for those of all."""


@dataclass(frozen=True, kw_only=True)
class Making:
    """The files of one task, and what fills them."""

    files: LatentFiles
    task: Task
    space: Space
    encoder: FrozenEncoder

    @classmethod
    def of(cls, session: Session, number: int, folder: Path) -> Making:
        """Prepare the tokens of a task, in a folder that is named after what they follow from.

        All ranks call it at once.
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
            "data": _origin(data),
            "sample": _sample(task, space),
            "encoder": encoder.digest(),
            "shape": asdict(shape),
        }
        path = folder / f"{data.task.replace(':', '.')}-{digest(about)}"
        return cls(files=LatentFiles(path, shape, about), task=task, space=space, encoder=encoder)

    def run(self, ranks: Ranks, beat: Callable[[], None]) -> None:
        """Make every file. The ranks of a machine, whose disk is one, share the work. Raises OSError."""
        place = ranks.rank.local_rank
        [last] = ranks.all_reduce_max(place)
        # All ranks have looked before the first cleans up: they share out one and the same list.
        mine = [number for number in self.files.missing() if number % (int(last) + 1) == place]
        ranks.wait_for_all()
        if place == 0:
            self.files.begin()
        ranks.wait_for_all()
        for number in mine:
            beat()
            self.files.write(number, self._tokens(self.files.trajectories_of(number)))
        ranks.wait_for_all()
        if left := self.files.missing():
            raise DataError(f"{self.files.folder}: {len(left)} files that were written are not there")

    def _tokens(self, trajectories: Sequence[int]) -> Tokens:
        """Return the tokens (N, T - 1, S, D)."""
        fields = _fields(self.task, trajectories, self.space)[:, :-1].to(self.encoder.scale.mean.device)
        tokens: Tensor = self.encoder(fields.flatten(0, 1)).unflatten(0, fields.shape[:2])
        made: Tokens = tokens.cpu().numpy()
        return made


def check_room(ranks: Ranks, folder: Path, needed: int) -> None:
    """Raise ConfigError, on all ranks, where the disk of one of them has no room for so many bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    short = needed > max(0, free - _SPARED_BYTES)
    for rank, (theirs, there) in enumerate(ranks.all_gather_objects((short, free))):
        if theirs:
            raise ConfigError(
                f"train.latents: the tokens take {needed / _GIB:.1f} GiB, and {folder} has "
                f"{there / _GIB:.1f}, of which one stays free; off needs none",
                reported_elsewhere=rank != ranks.rank.rank,
            )


def _origin(data: DataConfig) -> dict[str, Any]:
    """Return all of the section but what changes no value to train on."""
    return {key: value for key, value in asdict(data).items() if key not in ("keep", "test")}


def _sample(task: Task, space: Space) -> str:
    """Digest the values of a few trajectories: a file may have been replaced by another."""
    chosen = np.unique(np.linspace(0, space.trajectories - 1, _SAMPLED).astype(int))
    values = _fields(task, chosen.tolist(), space).cpu().contiguous().numpy()
    return hashlib.sha256(values).hexdigest()


def _fields(task: Task, trajectories: Sequence[int], space: Space) -> Tensor:
    """Return the fields (N, T, K, *X)."""
    return task.batch(0, whole_trajectories(trajectories, space)).fields


class FrozenEncoder(nn.Module):
    """A copy of the encoder of one task, and of the scale before it. All ranks make theirs at once."""

    def __init__(
        self, operator: LatentOperator, task: int, config: ModelConfig, device: torch.device
    ) -> None:
        super().__init__()
        domain = operator.domains[task]
        with torch.device("meta"):
            self.scale = Scale(domain)
            self.encoder = PatchEncoder(config, domain)
        for copy, original in ((self.scale, operator.scale(task)), (self.encoder, operator.encoders[task])):
            state = {name: _whole(tensor, device) for name, tensor in original.state_dict().items()}
            copy.load_state_dict(state, assign=True)

    @torch.no_grad()
    def forward(self, fields: Tensor) -> Tensor:
        """Encode fields (B, K, *X) in physical units as tokens (B, S, D), in fp32."""
        tokens: Tensor = self.encoder(self.scale.into(fields))
        return tokens

    def digest(self) -> str:
        """Make a name for what it makes of a field: its grid, patches, units and weights."""
        told = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            told.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            told.update(tensor.cpu().contiguous().numpy())
        return told.hexdigest()


def _whole(tensor: Tensor, device: torch.device) -> Tensor:
    # On the device first: shards that were offloaded have no way to each other.
    there = tensor.detach().to(device)
    return there.full_tensor() if isinstance(there, DTensor) else there
