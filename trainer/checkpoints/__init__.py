"""Checkpoints: sharded, written during the training, atomic, and loadable on any number of ranks.

A checkpoint is a folder with the files of `torch.distributed.checkpoint`, `state.json` (everything but
tensors) and `manifest.json`, which has the size and checksum of every file.
"""

from vastrun.contract.checkpoint_folder import DamagedError, verify
from vastrun.trainer.checkpoints.checkpointer import Checkpointer
from vastrun.trainer.checkpoints.contents import TrainerState, tensors_of
from vastrun.trainer.checkpoints.scored_folder import ScoredFolder

__all__ = ["Checkpointer", "DamagedError", "ScoredFolder", "TrainerState", "tensors_of", "verify"]
