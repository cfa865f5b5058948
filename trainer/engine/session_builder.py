"""Session builder: makes all that a rank trains with, in the one order that works."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.trainer import data, stages, user_code
from vastrun.trainer.checkpoints import Checkpointer, ScoredFolder
from vastrun.trainer.data import Source, Task
from vastrun.trainer.distributed.clock import StepClock
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.engine.current_stage import CurrentStage
from vastrun.trainer.engine.determinism import use_deterministic_kernels
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.optimiser import LearningRateSchedule, make_optimizer
from vastrun.trainer.engine.plan import Plan, PlanInputs, make_plan
from vastrun.trainer.engine.session import Session
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.loading import make_loader
from vastrun.trainer.loading.training_set import parameters_of, read_groups
from vastrun.trainer.models.operator import Domain, Operator
from vastrun.trainer.models.own_model import OwnModel
from vastrun.trainer.models.precision import make_scaler, set_tf32, supports_bf16
from vastrun.trainer.models.spectral_operator import SpectralOperator
from vastrun.trainer.models.weights import count_parameters
from vastrun.trainer.sampling.mix import Mix
from vastrun.trainer.sampling.task_schedule import TaskSchedule, seed_of_task
from vastrun.trainer.sampling.windows import SamplePlan, WindowSpace
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies import STRATEGIES, Strategy

_aten = torch.ops.aten
_SAVED_OPERATIONS = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
]
"""Operations whose outputs `selective` keeps. Fourier transforms are left out: their outputs are as large as
their inputs, and keeping them takes more memory than no checkpointing at all."""
_save_matmuls = partial(create_selective_checkpoint_contexts, _SAVED_OPERATIONS)


def set_up(ranks: Ranks, job: Job, config: TrainConfig, stage: CurrentStage | None = None) -> Session:
    """Build the session of this rank, before any checkpoint is loaded (`resume`).

    `config`: the options of `stage`, the current one of several; None: the job has only one. The device comes
    before the groups, the seed before the model.
    """
    torch.set_num_threads(config.threads)
    if config.deterministic:
        use_deterministic_kernels()
    # The same seed on all ranks: each draws the whole model, whichever part it keeps.
    torch.manual_seed(config.seed)
    box = ranks.rank.box
    user_code.add_to_path(box / layout.CODE)
    tasks = tuple(data.make_task(each, box / layout.DATA, box / layout.CODE) for each in config.data)
    try:
        with torch.device("meta"):  # the strategy decides which rank holds what
            objective = stages.make(config, domains_of(config, tasks))
    except ConfigError as error:  # of a user's model: one rank prints it
        error.reported_elsewhere = not ranks.rank.is_first
        raise
    plan = _plan(ranks, config, tasks, objective.operator)
    set_tf32(plan.precision, ranks.device)
    for task in tasks:
        task.place(ranks.device)
    stage = stage or CurrentStage.only(config)
    folder = ScoredFolder(
        path=box / layout.CHECKPOINTS,
        keep=config.keep_checkpoints,
        keep_best=config.keep_best,
        keep_steps=frozenset(span.end_step for span in stage.spans),
        first_step=stage.span.first_step,
    )
    checkpoints = Checkpointer(folder, ranks, sharded=STRATEGIES[plan.strategy].sharded)
    session = build_session(ranks, job, config, plan, tasks, objective, checkpoints, stage)
    for task, network in zip(tasks, objective.networks, strict=False):
        fit(task, network)
    return session


def fit(task: Task, network: nn.Module) -> None:
    """Fit what takes no steps, the linear part of a spectral operator, to at most 2^25 values."""
    if isinstance(network, SpectralOperator) and not task.train.steady:
        parameters = parameters_of(task.train)
        network.fit(parameters, read_groups(task, parameters, values=1 << 25, beat=lambda: None))


def build_session(
    ranks: Ranks,
    job: Job,
    config: TrainConfig,
    plan: Plan,
    tasks: tuple[Task, ...],
    objective: Objective,
    checkpoints: Checkpointer,
    stage: CurrentStage | None = None,
) -> Session:
    """Build the session that the plan describes. The tasks are already on their device.

    The order matters: activation checkpointing before compilation, both before the wrapper, the wrapper
    before the optimiser (one made earlier would train parameters that the model no longer uses).
    """
    model = _wrap_model(objective, config, STRATEGIES[plan.strategy], tasks, ranks.device)
    task_schedule = _task_schedule(config, plan, spaces_of(config, tasks), ranks.rank)
    return Session(
        job=job,
        config=config,
        plan=plan,
        ranks=ranks,
        tasks=tasks,
        task_schedule=task_schedule,
        loader=make_loader(tasks, task_schedule, config, ranks.device),
        objective=objective,
        model=model,
        strategy=STRATEGIES[plan.strategy],
        optimizer=make_optimizer(objective.learner, config.optim),
        schedule=LearningRateSchedule(config.optim, config.steps),
        scaler=make_scaler(plan.precision, ranks.device),
        ema=Ema(objective.operator, config.ema) if config.ema else None,
        checkpoints=checkpoints,
        clock=StepClock(ranks.device),
        wandb_id=job.run_id,
        stage=stage or CurrentStage.only(config),
    )


def spaces_of(config: TrainConfig, tasks: Sequence[Task]) -> list[WindowSpace]:
    """Return the space of windows of each task."""
    return [space_of(task.train, config.unroll, augment=config.augment) for task in tasks]


def space_of(source: Source, unroll: int, *, augment: bool = True) -> WindowSpace:
    """Return the space of windows of a training set."""
    return WindowSpace(
        trajectories=len(source),
        frames=source.frames,
        grid=tuple(source.grid),
        channels=source.channels,
        symmetry=source.symmetry if augment else "none",
        unroll=1 if source.steady else unroll,
    )


def domains_of(config: TrainConfig, tasks: Sequence[Task]) -> list[Domain]:
    """Return the domain of each task."""
    return [domain_of(task.train, data.patch) for task, data in zip(tasks, config.data, strict=True)]


def domain_of(source: Source, patch: int | None = None) -> Domain:
    """Return the domain of a training set: grid, channels, conditions, and whether it has walls."""
    return Domain(
        grid=tuple(source.grid),
        channels=source.channels,
        # A task in a user's code may be older than static channels.
        static=getattr(source, "static", 0),
        conditions=source.conditions.shape[1],
        periodic=source.symmetry == "shift",
        steady=source.steady,
        patch=patch,
    )


def _task_schedule(
    config: TrainConfig, plan: Plan, spaces: Sequence[WindowSpace], rank: Rank
) -> TaskSchedule:
    sample_plans = [
        SamplePlan(
            seed=seed_of_task(config.seed, data.task, number),
            batch=config.batch,
            # The later stages scale the noise themselves, and need it at unit deviation.
            noise=config.noise if config.stage == "operator" else 1.0,
            space=space,
            remainder=config.remainder,
            rank=rank.rank,
            world_size=plan.world_size,
            accumulation=plan.accumulation,
        )
        for number, (data, space) in enumerate(zip(config.data, spaces, strict=True))
    ]
    sizes = [space.trajectories for space in spaces]
    mix = Mix.of(sizes, seed=config.seed, mixing=config.mixing, temperature=config.temperature)
    return TaskSchedule(mix=mix, sample_plans=tuple(sample_plans), turns=config.turns or len(spaces))


def _plan(ranks: Ranks, config: TrainConfig, tasks: Sequence[Task], operator: Operator) -> Plan:
    """Make the plan, the same on all ranks. If one cannot, all raise the error and one of them prints it."""
    device = ranks.device
    inputs = PlanInputs(
        world_size=ranks.rank.world_size,
        device=device.type,
        memory=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None,
        bf16=supports_bf16(device),
        parameters=count_parameters(operator),
        windows=min(space.windows for space in spaces_of(config, tasks)),
        micro_batch_cap=ranks.rank.micro_batch_cap,
    )
    try:
        if isinstance(operator, OwnModel):
            operator.check_options(config, inputs.world_size)
        found: Plan | ConfigError = make_plan(config, inputs)
    except ConfigError as error:
        found = error
    gathered = ranks.all_gather_objects(found)
    for rank, result in enumerate(gathered):
        if isinstance(result, ConfigError):
            # One rank prints it, the others exit silently: eight copies of a line hide the rest of the log.
            result.reported_elsewhere = rank != ranks.rank.rank
            raise result
    return gathered[0]


def _wrap_model(
    objective: Objective, config: TrainConfig, strategy: Strategy, tasks: Sequence[Task], device: torch.device
) -> nn.Module:
    """Draw the weights, move them to the device, wrap the model and set its scales."""
    checkpoint_and_compile(objective, config)
    model = strategy.wrap(objective, config, device)
    for number, task in enumerate(tasks):
        moments = task.train.moments()
        for network in objective.networks:
            network.scale(number).set(*moments)
    return model


def checkpoint_and_compile(objective: Objective, config: TrainConfig) -> None:
    """Wrap and compile the blocks in place, before the model is wrapped.

    A compiled part compiles at its first use.
    """
    networks = objective.networks
    if config.activation_checkpointing != "off":
        # Not torch's own `noop_context_fn` with full: Dynamo cannot trace it.
        selective = {"context_fn": _save_matmuls} if config.activation_checkpointing == "selective" else {}
        blocks = objective.learner.blocks
        for number, block in enumerate(blocks):
            # Nothing in our blocks is random, so that their second pass needs no state of the generator.
            blocks[number] = checkpoint_wrapper(block, preserve_rng_state=config.model.is_own, **selective)
    all_blocks = [block for network in networks for block in network.blocks]
    parts: dict[str, list[nn.Module]] = {
        "off": [],
        "blocks": all_blocks,
        "whole": [*networks],
        "max-autotune": all_blocks,
    }
    mode = "reduce-overhead" if config.cuda_graphs else None
    if config.compile == "max-autotune":
        mode = "max-autotune" if config.cuda_graphs else "max-autotune-no-cudagraphs"
    for part in parts[config.compile]:
        # Not `part.compile()`: that would compile the wrappers' hooks with it.
        part.forward = torch.compile(part.forward, mode=mode)
