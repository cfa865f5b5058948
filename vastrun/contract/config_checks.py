"""Config checks: faults between fields of the `train:` section. No torch: the launcher uses it, too."""

from __future__ import annotations

import sys

from vastrun.contract.config import PARAMETERS, DataConfig, ModelConfig, TrainConfig
from vastrun.contract.config_effects import data_without_effect, without_effect

_Check = tuple[bool, str, str]
"""Whether there is a fault, its key relative to `train`, its text."""


def faults_of(config: TrainConfig, world_size: int) -> list[tuple[str, str]]:
    """Return all faults between fields as (key, fault) pairs, with keys relative to `train`."""
    checks = [
        *_tasks_checks(config),
        *_batch_checks(config, world_size),
        *_objective_checks(config),
        *_frozen_checks(config),
        *_validation_checks(config),
        *_engine_checks(config, world_size),
        *(_deterministic_checks(config) if config.deterministic else ()),
        *_profile_checks(config),
        *(_diloco_checks(config) if config.strategy == "diloco" else ()),
        *_model_checks(config),
        *_stage_checks(config),
    ]
    return [
        *((key, fault) for wrong, key, fault in checks if wrong),
        *without_effect(config),
        *(fault for key, data in _each(config) for fault in data_without_effect(key, config, data)),
    ]


def _tasks_checks(config: TrainConfig) -> list[_Check]:
    tasks = [data.task for data in config.data]
    return [
        (
            data.task in tasks[:number],
            f"{key}.task",
            f"{data.task} is given twice: one entry may list several parameters",
        )
        for number, (key, data) in enumerate(_each(config))
    ]


def _each(config: TrainConfig) -> list[tuple[str, DataConfig]]:
    """Return the tasks with their keys; a single one has no number, since it may be given without a list."""
    if len(config.data) == 1:
        return [("data", config.data[0])]
    return [(f"data[{number}]", data) for number, data in enumerate(config.data)]


def _batch_checks(config: TrainConfig, world_size: int) -> list[_Check]:
    # A rank's share means nothing while the batch itself does not fit, so that only the cause is reported.
    # The least that `auto` can come to is a window a rank.
    batch = world_size if config.batch == "auto" else config.batch
    share, rest = divmod(batch, world_size)
    size = config.micro_batch or 1
    return [
        (rest > 0, "batch", f"expected a multiple of the {world_size} ranks, got {batch}"),
        *(check for key, data in _each(config) for check in _size_checks(config, batch, key, data)),
        (
            rest == 0 and share % size > 0 and config.batch != "auto",
            "micro_batch",
            f"expected a divisor of a rank's {share} windows, got {size}",
        ),
    ]


def largest_batch(config: TrainConfig) -> int:
    """Return the most windows that a turn may have, whatever memory there is."""
    sizes = [_sizes(config, data) for data in config.data]
    # `drop` leaves nothing of a set that does not fill one batch.
    return min(trajectories if config.remainder == "drop" else windows for trajectories, windows in sizes)


def _sizes(config: TrainConfig, data: DataConfig) -> tuple[int, int]:
    """Return the trajectories and the windows of a task's training set.

    The size of a user's own data set is known only once it is read: here it counts as large enough.
    """
    files = len(data.parameters_of(data.task)) if data.task in PARAMETERS else sys.maxsize
    trajectories = (data.train - data.validation) * files
    return trajectories, trajectories * (1 if data.steady else max(1, data.frames - config.unroll))


def _size_checks(config: TrainConfig, batch: int, at: str, data: DataConfig) -> list[_Check]:
    trajectories, windows = _sizes(config, data)
    return [
        (
            batch > windows,
            "batch",
            f"expected at most the {windows} windows of {at}, got {batch}",
        ),
        (
            config.remainder == "drop" and batch > trajectories,
            "remainder",
            f"drop leaves nothing of the {trajectories} trajectories of {at}: a batch is more",
        ),
        (
            not data.steady and config.unroll >= data.frames,
            "unroll",
            f"expected less than {at}.frames ({data.frames}), got {config.unroll}",
        ),
    ]


def _validation_checks(config: TrainConfig) -> list[_Check]:
    every, saved = config.evaluate_every, config.checkpoint_every
    return [
        (
            every is not None and every % saved > 0 and saved % every > 0,
            "evaluate_every",
            f"expected a divisor or a multiple of checkpoint_every ({saved}), got {every}",
        ),
        *(check for key, data in _each(config) for check in _kept_back_checks(key, data, every)),
    ]


def _kept_back_checks(at: str, data: DataConfig, every: int | None) -> list[_Check]:
    return [
        (
            data.validation >= data.train,
            f"{at}.validation",
            f"expected less than {at}.train ({data.train}), got {data.validation}",
        ),
        (
            every is not None and not data.validation,
            f"{at}.validation",
            "expected at least 1, which evaluate_every rolls out, got 0",
        ),
        (
            every is None and data.validation > 0,
            f"{at}.validation",
            f"expected evaluate_every, or these {data.validation} are of no use",
        ),
    ]


def _objective_checks(config: TrainConfig) -> list[_Check]:
    return [
        (
            config.objective.conservation > 0 and all(data.steady for data in config.data),
            "objective.conservation",
            "expected a task with time: a steady problem has nothing to keep",
        )
    ]


def _frozen_checks(config: TrainConfig) -> list[_Check]:
    # Tokens are made once for all steps, so neither the encoder nor the frames that it reads may change.
    cached = config.latents != "off"
    return [
        (
            config.freeze != "off" and config.model.name != "latent",
            "freeze",
            f"expected the model latent, got {config.model.name}, which has no codec",
        ),
        (cached and config.freeze != "codec", "latents", "expected freeze: codec: tokens would change"),
        (cached and config.noise > 0, "noise", f"expected 0 with latents, got {config.noise:g}"),
        (
            cached and config.augment,
            "augment",
            "expected false with latents, which are of the fields as they are",
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
            "expected compile to be blocks, whole or max-autotune, got off",
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


def _deterministic_checks(config: TrainConfig) -> list[_Check]:
    # `restart` is allowed: the plan, the evidence and a warning of the next start have the new micro-batch.
    return [
        (
            config.probe == "on",
            "probe",
            "expected auto or off with deterministic, got on: free memory would decide the order of sums; "
            "give a micro_batch instead",
        ),
        (
            config.out_of_memory == "retry",
            "out_of_memory",
            "expected restart or fail with deterministic, got retry: a resumed run would not retry at the "
            "same step",
        ),
        (
            config.compile == "max-autotune",
            "compile",
            "expected off, blocks or whole with deterministic, got max-autotune: a resumed run may choose "
            "other kernels",
        ),
        (
            config.cuda_graphs,
            "cuda_graphs",
            "expected false with deterministic: a resumed run would record its kernels at another step",
        ),
        (
            config.strategy == "diloco",
            "strategy",
            "expected auto, single, ddp or fsdp2 with deterministic, got diloco: its result depends on which "
            "nodes are there when they exchange weights",
        ),
    ]


def _profile_checks(config: TrainConfig) -> list[_Check]:
    if config.profile is None or config.profile.step is None:
        return []
    first, steps = config.profile.step, config.profile.steps
    return [
        (
            first + steps > config.steps,
            "profile.step",
            f"expected profile.step + profile.steps to be at most train.steps ({config.steps}), "
            f"got {first} + {steps}",
        )
    ]


def _diloco_checks(config: TrainConfig) -> list[_Check]:
    every, evaluated = config.diloco.every, config.evaluate_every
    # Only then do all nodes hold the weights that are saved, scored or taken home.
    multiple = f"expected a multiple of diloco.every ({every}), got"
    return [
        (config.steps % every > 0, "steps", f"{multiple} {config.steps}"),
        (config.checkpoint_every % every > 0, "checkpoint_every", f"{multiple} {config.checkpoint_every}"),
        (evaluated is not None and evaluated % every > 0, "evaluate_every", f"{multiple} {evaluated}"),
        (config.precision == "fp16", "precision", "expected bf16, tf32 or fp32 with diloco, got fp16"),
        (config.ema is not None, "ema", "expected none with diloco: each node would average its own weights"),
        (config.stage != "operator", "stage", f"expected operator with diloco, got {config.stage}"),
        (config.freeze != "off", "freeze", f"expected off with diloco, got {config.freeze}"),
        (config.out_of_memory == "retry", "out_of_memory", "retry is for single and ddp, not for diloco"),
    ]


def _model_checks(config: TrainConfig) -> list[_Check]:
    model = config.model
    if model.name == "fno":
        several = len(config.data) > 1
        return [
            (several, "model.name", f"fno learns one task, got {len(config.data)}; latent learns several"),
            *_fno_checks(model, config.data[0].points),
        ]
    return [
        (
            model.dim % model.heads > 0,
            "model.heads",
            f"expected a divisor of model.dim ({model.dim}), got {model.heads}",
        ),
        *(_patch_check(model, key, data) for key, data in _each(config)),
    ]


def _stage_checks(config: TrainConfig) -> list[_Check]:
    sampler = config.sampler
    # Without a temperature only `steady` draws from noise; the default of the other stages is 0.
    still = sampler.temperature == 0 or (sampler.temperature is None and config.stage != "steady")
    if config.stage == "operator":
        return []
    own = [data for data in config.data if data.task in PARAMETERS]
    return [
        (
            config.model.name != "latent",
            "model.name",
            f"expected latent with the stage {config.stage}, got {config.model.name}",
        ),
        (
            config.stage == "steady" and not all(data.steady for data in own),
            "stage",
            "steady is for problems without time, such as darcy",
        ),
        (
            sampler.draws > 1 and still,
            "sampler.draws",
            "all draws are identical without a sampler.temperature above 0",
        ),
        (
            config.stage == "distill" and (sampler.steps or 1) > 2,
            "sampler.steps",
            f"expected 1 or 2 with the stage distill, got {sampler.steps}",
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


def _patch_check(model: ModelConfig, at: str, data: DataConfig) -> _Check:
    patch = data.patch or model.patch
    return (
        data.points % patch > 0,
        f"{at}.patch" if data.patch else "model.patch",
        f"expected a divisor of {at}.points ({data.points}), got {patch}",
    )
