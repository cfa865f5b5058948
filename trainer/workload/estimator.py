"""Foretelling: a few steps of a job are done with tensors that hold nothing, and counted."""

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
from vastrun.trainer.engine.memory.retry import average
from vastrun.trainer.engine.plan import Plan, fitting
from vastrun.trainer.engine.session import Session, build_session, domains_of
from vastrun.trainer.engine.step import forward_backward, optimizer_step
from vastrun.trainer.models.precision import scaler_of
from vastrun.trainer.models.weights import size_of
from vastrun.trainer.workload.fakes import (
    WORKSPACE_BYTES,
    NullCheckpointer,
    NullHeartbeat,
    compute_as_cuda,
    fake_task,
    fake_windows,
    make_fake_ranks,
)
from vastrun.trainer.workload.micro_batch_search import largest_fitting_batch
from vastrun.trainer.workload.tensors import TensorCount

_JOB = TrainJob(run_id="", name="", gpus=0, stall_s=0.0, start_s=0.0)
_MOST_STEPS = 8
_MOST_ACCUMULATED = 2
"""Micro-batches of a turn that are done: those after the second meet the same gradients."""


@dataclass(frozen=True)
class Work:
    """What was done up to a moment, or from one to another."""

    flops: float
    traffic_bytes: float
    operations: float

    def __sub__(self, other: Work) -> Work:
        return Work(*(ours - theirs for ours, theirs in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.flops, self.traffic_bytes, self.operations


def estimate_workloads(query: WorkloadQuery) -> Workloads:
    """Return what a step takes of a rank, by strategy and micro-batch. Raises DataError."""
    began = time.monotonic()
    config, world_size = without_gpu_options(query.train), query.world_size
    ranks = make_fake_ranks(world_size)
    if query.room is not None:
        share = _largest_share(ranks, config, query.room, gpus=query.gpus)
        config = replace(config, batch=world_size * share)
    parameters = _parameters(config)
    workloads = [
        estimate_workload(ranks, config, strategy, size, gpus=query.gpus)
        for strategy in strategies_of(config, world_size, parameters, gpus=query.gpus)
        for size in _sizes(config, world_size)
    ]
    return Workloads(
        parameters=parameters,
        workloads=tuple(workloads),
        torch=torch.__version__,
        seconds=time.monotonic() - began,
    )


def without_gpu_options(config: TrainConfig) -> TrainConfig:
    """Return the job without what needs a GPU, and changes neither sizes nor work."""
    return replace(config, compile="off", cuda_graphs=False, fsdp2=replace(config.fsdp2, cpu_offload=False))


def estimate_workload(
    ranks: Ranks, config: TrainConfig, strategy: str, micro_batch: int, *, gpus: bool = False
) -> Workload:
    """Do a few steps of one strategy and one micro-batch, as the first of so many ranks.

    With `gpus` they keep what a step on a GPU keeps.
    """
    world_size = ranks.rank.world_size
    accumulation = config.global_batch // world_size // micro_batch
    few = min(accumulation, _MOST_ACCUMULATED)
    config = replace(config, batch=world_size * micro_batch * few, micro_batch=micro_batch)
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        TensorCount() as tensors,
    ):
        steps = _Steps(_session(ranks, config, strategy, tensors, gpus=gpus), tensors)
        tensors.forget_peak()  # the set-up of a GPU's rank takes main memory
        steps.train()
    work, peak = steps.work_of_a_step(accumulation), tensors.peak
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
    """Return the most windows that a rank computes at once within that room. Raises DataError."""
    world_size = ranks.rank.world_size
    config = replace(config, batch=world_size)
    strategy, _ = strategy_for(
        config, world_size=world_size, parameters=_parameters(config), memory=room.gpu_bytes
    )

    @cache
    def peak_bytes(size: int) -> int:
        alone = replace(config, batch=world_size * size)
        return estimate_workload(ranks, alone, strategy, size, gpus=gpus).peak.total

    found = largest_fitting_batch(largest_batch(config) // world_size, room.tensor_bytes, peak_bytes)
    if found is None:
        raise DataError(
            f"train.batch: one window at once takes {peak_bytes(1) / 1e9:.3g} GB of tensors ({strategy}), "
            f"and there is room for {room.tensor_bytes / 1e9:.3g}; resources.gpu_memory_gb asks for more"
        )
    return found


def _tasks(config: TrainConfig) -> tuple[Task, ...]:
    # Of the class that trains, whose part is a `Source` by more than its type says.
    return tuple(cast(Task, fake_task(data)) for data in config.data)


def _parameters(config: TrainConfig) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return size_of(stages.make(config, domains_of(config, _tasks(config))).operator)


def _sizes(config: TrainConfig, world_size: int) -> list[int]:
    """Return the largest micro-batch, and the smallest that the memory probe, or a restart, may come to."""
    share = config.global_batch // world_size
    return sorted({fitting(share, min(config.micro_batch or share, share)), 1}, reverse=True)


def _session(
    ranks: Ranks, config: TrainConfig, strategy: str, tensors: TensorCount, *, gpus: bool
) -> Session:
    """Set up as `engine.session.set_up` does, without what is not here."""
    share, micro_batch = config.global_batch // ranks.rank.world_size, config.micro_batch or 1
    plan = Plan(
        strategy=strategy,
        reason="",
        world_size=ranks.rank.world_size,
        micro_batch=micro_batch,
        accumulation=share // micro_batch,
        precision=config.precision,
    )
    with tensors.making("other"):
        tasks = _tasks(config)
    with tensors.making("parameters"):
        # Not on the meta device, from where fake tensors cannot be moved.
        objective = stages.make(config, domains_of(config, tasks))
        if gpus:
            compute_as_cuda(objective)
        session = build_session(ranks, _JOB, config, plan, tasks, objective, NullCheckpointer())
    if isinstance(session.model, DistributedDataParallel):
        session.model.register_comm_hook(None, lambda _, bucket: _unsent(bucket))
    # A scale that falls where a gradient overflows reads values, and there are none.
    return replace(session, scaler=scaler_of("fp32", ranks.device))


class _Steps:
    """The steps of one session, and what each part of them took."""

    def __init__(self, session: Session, tensors: TensorCount) -> None:
        self._session = session
        self._tensors = tensors
        self._of_micro_batch: dict[int, Work] = {}
        """By task."""
        self._of_update = Work(0.0, 0.0, 0.0)

    def train(self) -> None:
        """Train until each task had its turn."""
        self._give_the_optimiser_its_state()
        for step in range(_MOST_STEPS):
            self._step(step)
            if len(self._of_micro_batch) == len(self._session.tasks):
                break

    def work_of_a_step(self, accumulation: int) -> Work:
        """Return the mean over the tasks' turns, of so many micro-batches each."""
        schedule = self._session.task_schedule
        known = [self._of_micro_batch[task] for task in schedule.mix.cycle if task in self._of_micro_batch]
        count = accumulation * schedule.turns
        return Work(
            *(
                count * mean(work) + update
                for work, update in zip(
                    zip(*(work.parts for work in known), strict=True), self._of_update.parts, strict=True
                )
            )
        )

    def _give_the_optimiser_its_state(self) -> None:
        """Take a step of no length: a training has that state from its second step on."""
        optimizer = self._session.optimizer
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        with self._tensors.making("optimiser"):
            for parameter in learned:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        optimizer.zero_grad()

    def _step(self, step: int) -> None:
        session, tensors = self._session, self._tensors
        with tensors.making("activations"):
            forward_backward(session, step, self._micro_batches(step), NullHeartbeat())
            if session.config.out_of_memory == "retry":
                average(session)
        parameters = list(session.model.parameters())
        tensors.are("gradients", (p.grad for p in parameters if p.grad is not None))
        before = self._done()
        with tensors.making("optimiser"):
            optimizer_step(session, step, NullHeartbeat())
        self._of_update = self._done() - before

    def _micro_batches(self, step: int) -> Iterator[Windows]:
        schedule = self._session.task_schedule
        ahead: deque[Windows] = deque()
        for number in range(schedule.micro_batches):
            task = schedule.place(step, number).task
            config = self._session.config
            # The next ones are on the device, too, where they come from files.
            waiting = 0 if config.data[task].keep == "device" else config.loader.prefetch
            while len(ahead) <= waiting:
                ahead.append(fake_windows(self._session, task))
            before = self._done()
            yield ahead.popleft()
            self._of_micro_batch[task] = self._done() - before

    def _done(self) -> Work:
        tensors = self._tensors
        return Work(tensors.flops, tensors.traffic_bytes, tensors.operations)


def _unsent(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Answer for the other ranks: DDP expects their gradients."""
    answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    answer.set_result(bucket.buffer())
    return answer
