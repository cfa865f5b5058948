"""Traced steps: a few steps of a session with fake tensors, with the work and the memory of each part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

import torch

from vastrun.contract.workload import PeakBytes
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import forward_backward, optimizer_step
from vastrun.trainer.job.config import MODELS, TrainConfig
from vastrun.trainer.workload.fakes import NullHeartbeat, fake_windows
from vastrun.trainer.workload.tensors import TensorCounter

_DEPTHS = (2, 3)
"""Blocks that are traced: with one, the first block would be the last one, too."""
FIRST, MIDDLE, LAST = ", first block", ", middle block", ", last block"
_MIN_DEPTH = 6
"""Models with fewer blocks are traced as they are."""


class TracedSteps:
    """Runs the steps of one session and records the work of each part."""

    def __init__(self, session: Session, tensors: TensorCounter) -> None:
        self._session = session
        self._tensors = tensors
        self._micro_batch_work: dict[int, Work] = {}
        """Work of a micro-batch, by task."""
        self._optimizer_work = Work(0.0, 0.0, 0.0)
        self._micro_batch = ""
        """Name of the micro-batch, which is that of its phases."""
        self._pass = 0
        """Number of the backward pass through all blocks."""

    def train(self) -> None:
        """Run steps until each task had a turn."""
        # From here on: the set-up of a GPU's rank takes main memory.
        self._tensors.begin_phase("optimiser's state")
        # A training has the optimiser's state from its second step on.
        optimizer = self._session.optimizer
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        with self._tensors.counted_as("optimiser"):
            for parameter in learned:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        optimizer.zero_grad()
        blocks = self._session.objective.learner.blocks
        hooks = [
            block.register_forward_hook(partial(self._after_forward, block_position(number, len(blocks))))
            for number, block in enumerate(blocks)
        ]
        for step in range(8):
            session, tensors = self._session, self._tensors
            with tensors.counted_as("activations"):
                forward_backward(session, step, self._micro_batches(step), NullHeartbeat())
            parameters = list(session.model.parameters())
            tensors.recount_as("gradients", (p.grad for p in parameters if p.grad is not None))
            before = self._work_so_far()
            tensors.begin_phase(f"step {step}, optimiser")
            with tensors.counted_as("optimiser"):
                optimizer_step(session, step, NullHeartbeat())
            self._optimizer_work = self._work_so_far() - before
            if len(self._micro_batch_work) == len(self._session.tasks):
                break
        for hook in hooks:
            hook.remove()

    def _after_forward(self, position: str, _: Any, __: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.register_hook(lambda _: self._reach(position))

    def _reach(self, position: str) -> None:
        """Begin the phase of a block in the backward pass; of an unrolled model there are several passes."""
        self._pass += position == LAST
        self._tensors.begin_phase(f"{self._micro_batch}, pass {self._pass}{position}")

    def work_per_step(self, accumulation: int) -> Work:
        """Return the work of a step, mean over the tasks, with `accumulation` micro-batches per turn."""
        schedule = self._session.task_schedule
        known = [
            self._micro_batch_work[task] for task in schedule.mix.cycle if task in self._micro_batch_work
        ]
        count = accumulation * schedule.turns
        parts = zip(zip(*known, strict=True), self._optimizer_work, strict=True)
        return Work(*(count * mean(work) + update for work, update in parts))

    def _micro_batches(self, step: int) -> Iterator[Windows]:
        schedule = self._session.task_schedule
        prefetched: deque[Windows] = deque()
        for number in range(schedule.micro_batches):
            place = schedule.place(step, number)
            task = place.task
            config = self._session.config
            self._micro_batch, self._pass = f"step {step}, micro-batch {number}", 0
            self._tensors.begin_phase(self._micro_batch)
            # Prefetched micro-batches are on the device, too, when they come from files.
            waiting = 0 if config.data[task].keep == "device" else config.loader.prefetch
            while len(prefetched) <= waiting:
                prefetched.append(fake_windows(self._session, task))
            windows = prefetched.popleft()
            if place.number + 1 < schedule.accumulation:
                # It only has to leave gradients: the last one is added to them, and is what counts.
                windows = fake_windows(self._session, task, unroll=1)
            before = self._work_so_far()
            yield windows
            self._micro_batch_work[task] = self._work_so_far() - before

    def _work_so_far(self) -> Work:
        tensors = self._tensors
        return Work(tensors.flops, tensors.traffic_bytes, tensors.operations)


class Work(NamedTuple):
    """Work done so far, or between two moments: FLOPs, bytes moved, operations."""

    flops: float
    traffic_bytes: float
    operations: float

    def __sub__(self, other: Work) -> Work:
        return Work(*(end - start for end, start in zip(self, other, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Figures of a step of one depth."""

    work: Work
    peaks: Mapping[str, PeakBytes]
    """Peak of each phase, by name."""

    @property
    def peak(self) -> PeakBytes:
        """Return the peak of the step."""
        return max(self.peaks.values(), key=lambda peak: peak.total)


def traced_depths(config: TrainConfig, strategy: str, world_size: int) -> tuple[int, ...]:
    """Return the depths to trace: two small ones, or the model's own where its blocks say too little."""
    # Muon gathers as many sharded matrices at once as there are ranks: its memory is not linear in the depth.
    is_grouped = config.optim.name == "muon" and strategy == "fsdp2" and world_size > 1
    if config.model.name not in MODELS or config.model.depth < _MIN_DEPTH or is_grouped:
        return (config.model.depth,)
    return _DEPTHS


def with_depth(config: TrainConfig, depth: int) -> TrainConfig:
    """Return the job with another number of blocks."""
    return replace(config, model=replace(config.model, depth=depth))


def block_position(number: int, blocks: int) -> str:
    """Return the position of a block by its number: the first, the last, or one in between."""
    return FIRST if number == 0 else LAST if number == blocks - 1 else MIDDLE


def extrapolate(traces: Mapping[int, Trace], depth: int) -> Trace:
    """Return the figures of a depth from those of itself, or of two and three blocks."""
    if depth in traces:
        return traces[depth]
    low, high = (traces[each] for each in _DEPTHS)
    more = depth - _DEPTHS[1]
    work = (end + more * (end - begin) for begin, end in zip(low.work, high.work, strict=True))
    peaks = {
        phase: _plus(peak, low.peaks[phase], peak, more)
        for phase, peak in high.peaks.items()
        if phase in low.peaks
    }
    for phase in high.peaks.keys() - low.peaks.keys():
        # A block in the middle: the one that is reached next after the last block, and next before the first.
        for end in (LAST, FIRST):
            like = phase.replace(MIDDLE, end)
            peaks[f"{phase} like {end}"] = _plus(high.peaks[phase], low.peaks[like], high.peaks[like], more)
    return Trace(work=Work(*work), peaks=peaks)


def _plus(peak: PeakBytes, low: PeakBytes, high: PeakBytes, blocks: int) -> PeakBytes:
    """Return a peak with that many blocks more, each of which adds the difference of two others."""
    return PeakBytes(
        **{
            each.name: getattr(peak, each.name)
            + blocks * (getattr(high, each.name) - getattr(low, each.name))
            for each in fields(PeakBytes)
        }
    )
