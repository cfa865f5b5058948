"""Checkpoints: sharded, written while training goes on, there whole or not at all, for any number of ranks.

A checkpoint is a folder of the files of `torch.distributed.checkpoint`, `state.json` (all that is no tensor)
and `manifest.json`, which proves every file by its size and checksum.
"""

from vastrun.contract.checkpoint_folder import CheckpointFolder, DamagedError, verify
from vastrun.trainer.checkpoints.contents import TrainerState, tensors_of
from vastrun.trainer.checkpoints.saving import Checkpointer

__all__ = ["CheckpointFolder", "Checkpointer", "DamagedError", "TrainerState", "tensors_of", "verify"]
