"""Strategies: every one that a job file may name is there."""

from inspect import signature
from typing import get_args, get_type_hints

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.strategies import STRATEGIES, without_buffer_sync


def test_every_strategy_of_the_job_file_is_in_the_registry() -> None:
    assert set(get_args(get_type_hints(TrainConfig)["strategy"])) == {"auto", *STRATEGIES}


class _Older(nn.Module):
    """DDP of a torch before 2.13."""

    def __init__(self, module: nn.Module, broadcast_buffers: bool = True) -> None:
        super().__init__()


class _Newer(nn.Module):
    """DDP since torch 2.13, which warns of the older name."""

    def __init__(
        self,
        module: nn.Module,
        broadcast_buffers: bool | None = None,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()


def test_ddp_leaves_the_buffers_alone_by_the_name_that_the_option_has_in_its_torch() -> None:
    assert without_buffer_sync(_Older) == {"broadcast_buffers": False}
    assert without_buffer_sync(_Newer) == {"forward_sync_buffers": False}
    [option] = without_buffer_sync(DistributedDataParallel)
    assert option in signature(DistributedDataParallel).parameters
