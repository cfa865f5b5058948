"""Workload estimator: runs a few steps of a job with fake tensors, and counts memory and operations."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from vastrun.contract.config import TrainConfig
from vastrun.contract.config_checks import largest_batch
from vastrun.contract.errors import DataError
from vastrun.contract.strategy import strategies_of, strategy_for
from vastrun.contract.workload import MemoryBudget, Workload, WorkloadQuery, Workloads
from vastrun.trainer import stages
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import TrainJob
from vastrun.trainer.engine.memory.retry import all_reduce_gradients
from vastrun.trainer.engine.plan import Plan, largest_divisor
from vastrun.trainer.engine.session import Session, build_session, domains_of
from vastrun.trainer.engine.step import forward_backward, optimizer_step
from vastrun.trainer.models.own_model import OwnModel
from vastrun.trainer.models.precision import make_scaler
from vastrun.trainer.models.weights import count_parameters
from vastrun.trainer.workload.fakes import (
    WORKSPACE_BYTES,
    NullCheckpointer,
    NullHeartbeat,
    fake_task,
    fake_windows,
    make_fake_ranks,
    save_tensors_as_cuda,
)
from vastrun.trainer.workload.micro_batch_search import largest_micro_batch
from vastrun.trainer.workload.tensors import TensorCounter

_JOB = TrainJob(run_id="", name="", gpus=0, stall_s=0.0, start_s=0.0)
_MAX_STEPS = 8
_MAX_ACCUMULATED = 2
"""Micro-batches of a turn that are run: after the second, gradients are allocated and the work repeats."""


@dataclass(frozen=True)
class Work:
    """Work done so far, or between two moments: FLOPs, bytes moved, operations."""

    flops: float
    traffic_bytes: float
    operations: float

    def __sub__(self, other: Work) -> Work:
        return Work(*(end - start for end, start in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.flops, self.traffic_bytes, self.operations


def estimate_workloads(query: WorkloadQuery) -> Workloads:
    """Estimate the workload of a step on a rank, by strategy and micro-batch.

    Raises DataError, and ConfigError for a model of the user's code.
    """
    started_at = time.monotonic()
    if query.train.model.is_own:
        _check_options(query)
    config, world_size = without_gpu_options(query.train), query.world_size
    ranks = make_fake_ranks(world_size)
    if query.room is not None:
        share = _largest_share(ranks, config, query.room, gpus=query.gpus)
        config = replace(config, batch=world_size * share)
    parameters = _count_parameters(config)
    workloads = [
        estimate_workload(ranks, config, strategy, size, gpus=query.gpus)
        for strategy in strategies_of(config, world_size, parameters, gpus=query.gpus)
        for size in _micro_batch_sizes(config, world_size)
    ]
    return Workloads(
        parameters=parameters,
        workloads=tuple(workloads),
        torch=torch.__version__,
        seconds=time.monotonic() - started_at,
    )


def without_gpu_options(config: TrainConfig) -> TrainConfig:
    """Return the job without the options that need a GPU but change neither sizes nor work."""
    return replace(config, compile="off", cuda_graphs=False, fsdp2=replace(config.fsdp2, cpu_offload=False))


def estimate_workload(
    ranks: Ranks, config: TrainConfig, strategy: str, micro_batch: int, *, gpus: bool = False
) -> Workload:
    """Run a few steps of one strategy and one micro-batch as rank 0.

    With `gpus` a step saves the tensors that it would save on a GPU.
    """
    world_size = ranks.rank.world_size
    accumulation = config.global_batch // world_size // micro_batch
    accumulated = min(accumulation, _MAX_ACCUMULATED)
    config = replace(config, batch=world_size * micro_batch * accumulated, micro_batch=micro_batch)
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        TensorCounter() as tensors,
    ):
        steps = _Steps(_session(ranks, config, strategy, tensors, gpus=gpus), tensors)
        tensors.reset_peak()  # the set-up of a GPU's rank takes main memory
        steps.train()
    work, peak = steps.work_per_step(accumulation), tensors.peak
    if gpus:
        peak = replace(peak, other=peak.other + WORKSPACE_BYTES)
    return Workload(
        strategy=strategy,
        micro_batch=micro_batch,
        flops=work.flops,
        traffic_bytes=work.traffic_bytes,
        operations=int(work.operations),
        peak=peak,
    )


def _largest_share(ranks: Ranks, config: TrainConfig, room: MemoryBudget, *, gpus: bool) -> int:
    """Return the largest number of windows per forward pass that fits into `room`. Raises DataError."""
    world_size = ranks.rank.world_size
    config = replace(config, batch=world_size)
    strategy, _ = strategy_for(
        config, world_size=world_size, parameters=_count_parameters(config), memory=room.gpu_bytes
    )

    @cache
    def peak_bytes(size: int) -> int:
        one_step_config = replace(config, batch=world_size * size)
        return estimate_workload(ranks, one_step_config, strategy, size, gpus=gpus).peak.total

    found = largest_micro_batch(largest_batch(config) // world_size, room.tensor_bytes, peak_bytes)
    if found is None:
        raise DataError(
            f"train.batch: one window at once takes {peak_bytes(1) / 1e9:.3g} GB of tensors ({strategy}), "
            f"and there is room for {room.tensor_bytes / 1e9:.3g}; resources.gpu_memory_gb asks for more"
        )
    return found


def _fake_tasks(config: TrainConfig) -> tuple[Task, ...]:
    # TrajectoryTask satisfies the protocol, but its attribute's declared type is narrower than `Source`.
    return tuple(cast(Task, fake_task(data)) for data in config.data)


def _count_parameters(config: TrainConfig) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return count_parameters(stages.make(config, domains_of(config, _fake_tasks(config))).operator)


def _check_options(query: WorkloadQuery) -> None:
    """Raise ConfigError for an option that does not work with a model of the user's code."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        operator = stages.make(query.train, domains_of(query.train, _fake_tasks(query.train))).operator
    if isinstance(operator, OwnModel):
        operator.check_options(query.train, query.world_size)


def _micro_batch_sizes(config: TrainConfig, world_size: int) -> list[int]:
    """Return the largest micro-batch, and 1: the smallest that the memory probe or a restart may choose."""
    share = config.global_batch // world_size
    return sorted({largest_divisor(share, min(config.micro_batch or share, share)), 1}, reverse=True)


def _session(
    ranks: Ranks, config: TrainConfig, strategy: str, tensors: TensorCounter, *, gpus: bool
) -> Session:
    """Build the session as `engine.session.set_up` does, with fakes."""
    share, micro_batch = config.global_batch // ranks.rank.world_size, config.micro_batch or 1
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
            save_tensors_as_cuda(objective)
        session = build_session(ranks, _JOB, config, plan, tasks, objective, NullCheckpointer())
    if isinstance(session.model, DistributedDataParallel):
        session.model.register_comm_hook(None, lambda _, bucket: _skip_all_reduce(bucket))
    # An fp16 scaler reads values, and fake tensors have none.
    return replace(session, scaler=make_scaler("fp32", ranks.device))


class _Steps:
    """Runs the steps of one session and records the work of each part."""

    def __init__(self, session: Session, tensors: TensorCounter) -> None:
        self._session = session
        self._tensors = tensors
        self._micro_batch_work: dict[int, Work] = {}
        """Work of a micro-batch, by task."""
        self._optimizer_work = Work(0.0, 0.0, 0.0)

    def train(self) -> None:
        """Run steps until each task had a turn."""
        self._create_optimizer_state()
        for step in range(_MAX_STEPS):
            self._step(step)
            if len(self._micro_batch_work) == len(self._session.tasks):
                break

    def work_per_step(self, accumulation: int) -> Work:
        """Return the work of a step, mean over the tasks, with `accumulation` micro-batches per turn."""
        schedule = self._session.task_schedule
        known = [
            self._micro_batch_work[task] for task in schedule.mix.cycle if task in self._micro_batch_work
        ]
        count = accumulation * schedule.turns
        return Work(
            *(
                count * mean(work) + update
                for work, update in zip(
                    zip(*(work.parts for work in known), strict=True), self._optimizer_work.parts, strict=True
                )
            )
        )

    def _create_optimizer_state(self) -> None:
        """Take a step with zero gradients: a training has the optimiser's state from its second step on."""
        optimizer = self._session.optimizer
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        with self._tensors.counted_as("optimiser"):
            for parameter in learned:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        optimizer.zero_grad()

    def _step(self, step: int) -> None:
        session, tensors = self._session, self._tensors
        with tensors.counted_as("activations"):
            forward_backward(session, step, self._micro_batches(step), NullHeartbeat())
            if session.config.out_of_memory == "retry":
                all_reduce_gradients(session)
        parameters = list(session.model.parameters())
        tensors.recount_as("gradients", (p.grad for p in parameters if p.grad is not None))
        before = self._work_so_far()
        with tensors.counted_as("optimiser"):
            optimizer_step(session, step, NullHeartbeat())
        self._optimizer_work = self._work_so_far() - before

    def _micro_batches(self, step: int) -> Iterator[Windows]:
        schedule = self._session.task_schedule
        prefetched: deque[Windows] = deque()
        for number in range(schedule.micro_batches):
            task = schedule.place(step, number).task
            config = self._session.config
            # Prefetched micro-batches are on the device, too, when they come from files.
            waiting = 0 if config.data[task].keep == "device" else config.loader.prefetch
            while len(prefetched) <= waiting:
                prefetched.append(fake_windows(self._session, task))
            before = self._work_so_far()
            yield prefetched.popleft()
            self._micro_batch_work[task] = self._work_so_far() - before

    def _work_so_far(self) -> Work:
        tensors = self._tensors
        return Work(tensors.flops, tensors.traffic_bytes, tensors.operations)


def _skip_all_reduce(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Return the rank's own gradients as the reduced ones: the fake group has no other ranks."""
    answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    answer.set_result(bucket.buffer())
    return answer
