"""What can be wrong between the fields of the `train:` section. No torch: the launcher asks, too."""

from __future__ import annotations

import sys

from trainer.config import PARAMETERS, DataConfig, ModelConfig, TrainConfig

_Check = tuple[bool, str, str]
"""Whether it is a fault, its key, its text."""

_LEARNED = ("advection", "burgers")
"""Those of our own tasks whose fields the models take."""


def faults_of(config: TrainConfig, world_size: int) -> list[tuple[str, str]]:
    """What is wrong between fields: (key, fault) pairs, keys relative to `train`."""
    checks = [
        *_data_checks(config.data),
        *_batch_checks(config, world_size),
        *_engine_checks(config, world_size),
        *_model_checks(config),
    ]
    return [(key, fault) for wrong, key, fault in checks if wrong]


def _data_checks(data: DataConfig) -> list[_Check]:
    if data.task not in PARAMETERS:
        return []
    read = PARAMETERS[data.task]
    usual = DataConfig()
    return [
        (
            data.task not in _LEARNED,
            "data.task",
            f"expected {' or '.join(_LEARNED)}: no model learns {data.task} yet, its data can be made",
        ),
        *(
            (
                key != read and getattr(data, key) != getattr(usual, key),
                f"data.{key}",
                f"means nothing to {data.task}" + (f", which reads {read}" if read else ""),
            )
            for key in PARAMETERS.values()
            if key is not None
        ),
    ]


def _batch_checks(config: TrainConfig, world_size: int) -> list[_Check]:
    share, rest = divmod(config.batch, world_size)
    size = config.micro_batch or 1
    data = config.data
    # Of our own set the job alone says how large it is.
    files = len(data.parameters_of(data.task)) if data.task in PARAMETERS else sys.maxsize
    trajectories = data.train * files
    windows = trajectories * max(1, config.data.frames - config.unroll)
    return [
        (rest > 0, "batch", f"expected a multiple of the {world_size} ranks, got {config.batch}"),
        (
            config.batch > windows,
            "batch",
            f"expected at most the {windows} windows of the set, got {config.batch}",
        ),
        (
            rest == 0 and share % size > 0,
            "micro_batch",
            f"expected a divisor of a rank's {share} windows, got {size}",
        ),
        (
            config.remainder == "drop" and config.batch > trajectories,
            "remainder",
            f"drop leaves nothing of {trajectories} trajectories: a batch is more",
        ),
    ]


def _engine_checks(config: TrainConfig, world_size: int) -> list[_Check]:
    alone = world_size == 1 and config.strategy in ("auto", "single")
    graphs = config.cuda_graphs
    return [
        (
            config.strategy == "single" and world_size > 1,
            "strategy",
            f"expected one rank for single, got {world_size}",
        ),
        (
            graphs and config.compile == "off",
            "cuda_graphs",
            "expected compile to be blocks or whole, got off",
        ),
        (
            config.out_of_memory == "retry" and (config.strategy == "fsdp2" or graphs),
            "out_of_memory",
            "retry is for single and ddp, without cuda_graphs",
        ),
        (graphs and not alone, "cuda_graphs", "expected the strategy single, with one rank"),
        (
            config.fsdp2.cpu_offload and config.precision == "fp16",
            "precision",
            "expected bf16 or fp32 with fsdp2.cpu_offload: whether fp16 overflowed is agreed on by GPUs",
        ),
    ]


def _model_checks(config: TrainConfig) -> list[_Check]:
    data, model = config.data, config.model
    return [
        *(_fno_checks(model, data.points) if model.name == "fno" else _latent_checks(model, data.points)),
        (
            config.unroll >= data.frames,
            "unroll",
            f"expected less than data.frames ({data.frames}), got {config.unroll}",
        ),
    ]


def _fno_checks(model: ModelConfig, points: int) -> list[_Check]:
    return [
        (
            2 * model.modes > points,
            "model.modes",
            f"expected at most half of data.points ({points}), got {model.modes}",
        )
    ]


def _latent_checks(model: ModelConfig, points: int) -> list[_Check]:
    tokens, rest = divmod(points, model.patch)
    grids = [tokens / 2**level for level in range(model.levels)]
    return [
        (rest > 0, "model.patch", f"expected a divisor of data.points ({points}), got {model.patch}"),
        (
            model.dim % model.heads > 0,
            "model.heads",
            f"expected a divisor of model.dim ({model.dim}), got {model.heads}",
        ),
        (
            model.core == "unet" and rest == 0 and grids[-1] % 1 > 0,
            "model.levels",
            f"expected {tokens} tokens to be halved {model.levels - 1} times without remainder",
        ),
        (
            model.core == "unet" and rest == 0 and any(grid % min(model.window, grid) > 0 for grid in grids),
            "model.window",
            f"expected a divisor of the tokens of each level ({', '.join(f'{grid:g}' for grid in grids)}), "
            f"got {model.window}",
        ),
    ]
