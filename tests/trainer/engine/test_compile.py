"""torch.compile: what Inductor is asked for, and under every strategy the losses without it."""

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.engine.test_several_tasks import TASKS
from vastrun.trainer import stages
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session_builder import checkpoint_and_compile
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.models.operator import Domain

pytestmark = pytest.mark.torch

TINY: dict[str, Any] = {"unroll": 1, "model": {"dim": 32, "depth": 1, "heads": 2, "patch": 4}}
ALONE = {
    "off": {"micro_batch": 4, **TINY},
    "blocks": {"micro_batch": 4, "compile": "blocks", **TINY},
    "whole": {"micro_batch": 4, "compile": "whole", **TINY},
    "max-autotune": {"micro_batch": 4, "compile": "max-autotune", **TINY},
    "full": {"micro_batch": 4, "compile": "blocks", "activation_checkpointing": "full", **TINY},
    "selective": {"micro_batch": 4, "compile": "blocks", "activation_checkpointing": "selective", **TINY},
}
SPREAD = {
    "off": {"strategy": "ddp", **TINY},
    "ddp blocks": {"strategy": "ddp", "compile": "blocks", **TINY},
    "ddp whole": {"strategy": "ddp", "compile": "whole", **TINY},
    "fsdp2 blocks": {"strategy": "fsdp2", "compile": "blocks", **TINY},
    "fsdp2 whole": {"strategy": "fsdp2", "compile": "whole", **TINY},
    "fsdp2 max-autotune": {"strategy": "fsdp2", "compile": "max-autotune", **TINY},
    "fsdp2 selective": {
        "strategy": "fsdp2",
        "compile": "blocks",
        "activation_checkpointing": "selective",
        **TINY,
    },
}
SEVERAL = {
    "off": {"strategy": "ddp", **TASKS},
    "fsdp2 blocks": {"strategy": "fsdp2", "compile": "blocks", **TASKS},
}


def compiled(ranks: Ranks, box: Path, jobs: dict[str, dict[str, Any]]) -> dict[str, tuple[list[float], int]]:
    """Losses, and how many functions were compiled."""
    import torch._dynamo.utils
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # no pool of workers that each import torch
    found = {}
    for name, settings in jobs.items():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        losses = sessions.curve(ranks, box, settings).losses
        found[name] = losses, torch._dynamo.utils.counters["frames"]["ok"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)  # without its cache, a C++ compiler runs some forty times
@pytest.mark.needs("g++")
@pytest.mark.parametrize(
    ("ranks", "trainings"),
    [(1, ALONE), (2, SPREAD), (2, SEVERAL)],
    ids=["one rank", "two ranks", "several tasks"],
)
def test_a_compiled_model_learns_along_the_same_curve(
    ranks: int, trainings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    box = sessions.prepare(tmp_path / "box", **(TASKS if trainings is SEVERAL else {}))
    first = together(compiled, ranks, box, trainings, within_s=600)[0]
    expected, none = first.pop("off")
    assert none == 0
    assert expected[-1] < 0.9 * expected[0]
    for name, (losses, functions) in first.items():
        assert losses == pytest.approx(expected, abs=1e-5), name
        assert functions > 0, name


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
