"""Compilation of blocks: what Inductor is asked for."""

from typing import Any, Literal

import pytest

from vastrun.trainer import stages
from vastrun.trainer.engine.session_builder import checkpoint_and_compile
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.models.operator import Domain

pytestmark = pytest.mark.torch


def options_of(compiled: Literal["off", "blocks", "whole", "max-autotune"], *, cuda_graphs: bool) -> Any:
    """Options of Inductor with which the model's only block is compiled; None: it is not compiled."""
    model = ModelConfig(name="latent", dim=16, depth=1, heads=2)
    config = TrainConfig(model=model, compile=compiled, cuda_graphs=cuda_graphs)
    objective = stages.make(config, [Domain(grid=(16,), conditions=1)])
    checkpoint_and_compile(objective, config)
    (block,) = objective.operator.blocks
    return block.forward.get_compiler_config() if hasattr(block.forward, "get_compiler_config") else None


@pytest.mark.parametrize("cuda_graphs", [False, True])
@pytest.mark.parametrize(("compiled", "autotunes"), [("blocks", False), ("max-autotune", True)])
def test_cuda_graphs_and_autotuning_are_chosen_apart(
    compiled: Literal["blocks", "max-autotune"], autotunes: bool, cuda_graphs: bool
) -> None:
    options = options_of(compiled, cuda_graphs=cuda_graphs)
    assert (options["max_autotune"], options["triton.cudagraphs"]) == (autotunes, cuda_graphs)


def test_ranks_autotune_alone_and_in_their_own_process() -> None:
    options = options_of("max-autotune", cuda_graphs=False)
    assert not options["autotune_in_subproc"]
    assert not options["autotune_multi_device"]
    assert not options["distributed_max_autotune_gemm"]
