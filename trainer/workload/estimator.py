"""Workload estimator: runs a few steps of a job with fake tensors, and counts memory and operations."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.contract.workload import Workload, Workloads
from vastrun.trainer import stages
from vastrun.trainer.data import Task
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.plan import Plan, largest_divisor
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import build_session, domains_of
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.workload import WorkloadQuery, strategies_of
from vastrun.trainer.models.own_model import OwnModel
from vastrun.trainer.models.precision import make_scaler
from vastrun.trainer.models.weights import count_parameters
from vastrun.trainer.workload import fakes
from vastrun.trainer.workload.tensors import TensorCounter
from vastrun.trainer.workload.traced_steps import Trace, TracedSteps, extrapolate, traced_depths, with_depth

_JOB = Job(run_id="", ranks=1, program=ProgramSpec(kind="train"), stall_s=0.0, start_s=0.0)
_MAX_ACCUMULATED = 2
"""Micro-batches of a turn that are run: after the second, gradients are allocated and the work repeats."""


def estimate_workloads(query: WorkloadQuery) -> Workloads:
    """Estimate the workload of a step on a rank, by strategy and micro-batch.

    Raises ConfigError for a model of the user's code.
    """
    started_at = time.monotonic()
    if query.train.model.is_own:
        with FakeTensorMode(allow_non_fake_inputs=True):
            operator = stages.make(query.train, domains_of(query.train, _fake_tasks(query.train))).operator
        if isinstance(operator, OwnModel):
            operator.check_options(query.train, query.world_size)
    config, world_size = without_gpu_options(query.train), query.world_size
    ranks = fakes.make_fake_ranks(world_size)
    stage_configs = [config.of_stage(span.name) for span in config.stage_spans]
    parameters = max(map(_count_parameters, stage_configs))
    workloads = [
        combine_stages(
            [estimate_workload(ranks, each, strategy, size, gpus=query.gpus) for each in stage_configs],
            [each.steps for each in stage_configs],
        )
        for strategy in strategies_of(stage_configs[0], world_size, parameters, gpus=query.gpus)
        for size in _micro_batch_sizes(stage_configs[0], world_size)
    ]
    return Workloads(
        parameters=parameters,
        workloads=tuple(workloads),
        torch=torch.__version__,
        seconds=time.monotonic() - started_at,
    )


def combine_stages(workloads: Sequence[Workload], steps: Sequence[int]) -> Workload:
    """Return the workload of a job from those of its stages: the mean step, and the memory of the largest."""
    total = sum(steps)

    def mean_step(values: Iterable[float]) -> float:
        return sum(value * count for value, count in zip(values, steps, strict=True)) / total

    largest = max(workloads, key=lambda workload: workload.peak.total)
    if len(workloads) == 1:
        return largest
    return replace(
        largest,
        flops=mean_step(workload.flops for workload in workloads),
        traffic_bytes=mean_step(workload.traffic_bytes for workload in workloads),
        operations=round(mean_step(workload.operations for workload in workloads)),
    )


def without_gpu_options(config: TrainConfig) -> TrainConfig:
    """Return the job without the options that need a GPU but change neither sizes nor work."""
    return replace(config, compile="off", cuda_graphs=False, fsdp2=replace(config.fsdp2, cpu_offload=False))


def estimate_workload(
    ranks: Ranks, config: TrainConfig, strategy: str, micro_batch: int, *, gpus: bool = False
) -> Workload:
    """Run a few steps of one strategy and one micro-batch as rank 0; of a deep model fewer blocks of it.

    With `gpus` a step saves the tensors that it would save on a GPU.
    """
    depths = traced_depths(config, strategy, ranks.rank.world_size)
    traces = {
        depth: trace_step(ranks, with_depth(config, depth), strategy, micro_batch, gpus=gpus)
        for depth in depths
    }
    return workload_of(extrapolate(traces, config.model.depth), strategy, micro_batch, gpus=gpus)


def workload_of(trace: Trace, strategy: str, micro_batch: int, *, gpus: bool) -> Workload:
    """Return the figures of a traced step."""
    work, peak = trace.work, trace.peak
    if gpus:
        peak = replace(peak, other=peak.other + fakes.WORKSPACE_BYTES)
    return Workload(
        strategy=strategy,
        micro_batch=micro_batch,
        flops=work.flops,
        traffic_bytes=work.traffic_bytes,
        operations=int(work.operations),
        peak=peak,
    )


def trace_step(
    ranks: Ranks, config: TrainConfig, strategy: str, micro_batch: int, *, gpus: bool = False
) -> Trace:
    """Run a few steps of all blocks with fake tensors."""
    world_size = ranks.rank.world_size
    accumulation = config.batch // world_size // micro_batch
    accumulated = min(accumulation, _MAX_ACCUMULATED)
    config = replace(config, batch=world_size * micro_batch * accumulated, micro_batch=micro_batch)
    with FakeTensorMode(allow_non_fake_inputs=True), TensorCounter() as tensors:
        steps = TracedSteps(_session(ranks, config, strategy, tensors, gpus=gpus), tensors)
        steps.train()
    return Trace(work=steps.work_per_step(accumulation), peaks=tensors.peaks())


def _fake_tasks(config: TrainConfig) -> tuple[Task, ...]:
    # TrajectoryTask satisfies the protocol, but its attribute's declared type is narrower than `Source`.
    return tuple(cast(Task, fakes.fake_task(data)) for data in config.data)


def _count_parameters(config: TrainConfig) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return count_parameters(stages.make(config, domains_of(config, _fake_tasks(config))).operator)


def _micro_batch_sizes(config: TrainConfig, world_size: int) -> list[int]:
    """Return the largest micro-batch, and 1: the smallest that a restart may choose."""
    share = config.batch // world_size
    return sorted({largest_divisor(share, min(config.micro_batch or share, share)), 1}, reverse=True)


def _session(
    ranks: Ranks, config: TrainConfig, strategy: str, tensors: TensorCounter, *, gpus: bool
) -> Session:
    """Build the session as `engine.session.set_up` does, with fakes."""
    share, micro_batch = config.batch // ranks.rank.world_size, config.micro_batch or 1
    plan = Plan(
        strategy=strategy,
        reason="",
        world_size=ranks.rank.world_size,
        micro_batch=micro_batch,
        accumulation=share // micro_batch,
        precision=config.precision,
    )
    with tensors.counted_as("other"):
        tasks = _fake_tasks(config)
    with tensors.counted_as("parameters"):
        # Not on the meta device, from where fake tensors cannot be moved.
        objective = stages.make(config, domains_of(config, tasks))
        if gpus:
            fakes.save_tensors_as_cuda(objective)
        session = build_session(ranks, _JOB, config, plan, tasks, objective, fakes.NullCheckpointer())
    if isinstance(session.model, DistributedDataParallel):
        session.model.register_comm_hook(None, lambda _, bucket: _skip_all_reduce(bucket))
    # An fp16 scaler reads values, and fake tensors have none.
    return replace(session, scaler=make_scaler("fp32", ranks.device))


def _skip_all_reduce(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Return the rank's own gradients as the reduced ones: the fake group has no other ranks."""
    answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    answer.set_result(bucket.buffer())
    return answer
