"""Reports: every few steps average loss and gradient norm over all ranks, and write metrics on rank 0.

No rank waits for the device: on CUDA the values of a report arrive one report later, with the time of their
computation, and at the latest before a checkpoint, so that no diverged training is saved.
"""

import math
import time
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from vastrun.trainer.distributed.clock import record_cuda_event
from vastrun.trainer.engine.session import Session
from vastrun.trainer.errors import DivergedError
from vastrun.trainer.stages.objective import term_names
from vastrun.trainer.telemetry.figures import Figures, Instruments
from vastrun.trainer.telemetry.metrics import Metrics, MetricsPoint


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values of one step."""

    step: int
    values: list[float]
    at_s: float
    """Monotonic seconds of the host at which the device had computed them."""


class CpuTransfers:
    """Transfers of a CPU, whose values are available at once."""

    late = False

    def __init__(self) -> None:
        self.began_s = time.monotonic()

    def send(self, values: Tensor) -> tuple[list[float], float]:
        """Return the values and the time."""
        return values.tolist(), time.monotonic()

    def receive(self, sent: tuple[list[float], float]) -> tuple[list[float], float]:
        """Return the values and the time of `send`."""
        return sent


class CudaTransfers:
    """Copies to pinned memory; events on the device time each copy, independently of the host."""

    late = True

    def __init__(self) -> None:
        self._event = record_cuda_event()
        self._event.synchronize()
        self.began_s = self._at_s = time.monotonic()

    def send(self, values: Tensor) -> tuple[Tensor, torch.cuda.Event]:
        """Queue a copy, and an event after it."""
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        return copy, record_cuda_event()

    def receive(self, sent: tuple[Tensor, torch.cuda.Event]) -> tuple[list[float], float]:
        """Wait for the copy."""
        copy, event = sent
        had_passed = event.query()
        event.synchronize()
        now_s = time.monotonic()
        # An event that was waited for passes now, which also corrects a drift between the two clocks.
        since_last_s = self._event.elapsed_time(event) / 1000
        self._at_s = min(now_s, self._at_s + since_last_s) if had_passed else now_s
        self._event = event
        return copy.tolist(), self._at_s


class Readings:
    """The readings of one device: on CUDA each arrives one report later, on a CPU at once."""

    def __init__(self, transfers: CpuTransfers | CudaTransfers) -> None:
        self._transfers = transfers
        self._sent: tuple[int, Any] | None = None

    @classmethod
    def of(cls, device: torch.device) -> Self:
        """Return the readings of a device. Waits for it once."""
        return cls(_TRANSFERS[device.type]())

    @property
    def began_s(self) -> float:
        """Monotonic seconds of the host from which on values could be sent."""
        return self._transfers.began_s

    def after(self, step: int, values: Tensor) -> Reading | None:
        """Send a vector of `values`; return the reading that has arrived."""
        earlier = self.arrived() if self._transfers.late else None
        self._sent = (step, self._transfers.send(values))
        return earlier if self._transfers.late else self.arrived()

    def arrived(self) -> Reading | None:
        """Wait for the last reading, before a checkpoint and at the end. None: it was returned before."""
        if self._sent is None:
            return None
        step, sent = self._sent
        self._sent = None
        values, at_s = self._transfers.receive(sent)
        return Reading(step=step, values=values, at_s=at_s)


_TRANSFERS: dict[str, type[CpuTransfers] | type[CudaTransfers]] = {"cpu": CpuTransfers, "cuda": CudaTransfers}


class TaskLosses:
    """Sum of the losses of each task since the last report, on the device."""

    def __init__(self, session: Session) -> None:
        self._schedule, self._tasks = session.task_schedule, len(session.tasks)
        self._masks: dict[tuple[int, ...], Tensor] = {}
        """Ones where a turn is of a task, (tasks, turns), by the tasks of a step's turns."""
        self._sums: Tensor | None = None
        self._turns = [0] * self._tasks

    def add(self, step: int, losses: Tensor) -> None:
        """Add the turns of step number `step`; their losses are the last numbers, or the only one."""
        tasks, turns = self._schedule.tasks_of(step), self._schedule.turns
        mask = self._masks.get(tasks)
        if mask is None:
            ones = torch.tensor([[float(task == turn) for turn in tasks] for task in range(self._tasks)])
            mask = self._masks[tasks] = ones.to(losses.device)
        own = losses[:1] if turns == 1 else losses[-turns:]
        sums = (mask * own).sum(dim=1)
        self._sums = sums if self._sums is None else self._sums + sums
        for task in tasks:
            self._turns[task] += 1

    def take(self) -> tuple[Tensor, list[int]]:
        """Return the sum of each task, (tasks,), and its number of turns, and reset both."""
        sums, turns = self._sums, self._turns
        assert sums is not None, "a report follows at least one step"
        self._sums, self._turns = None, [0] * self._tasks
        return sums, turns


class Reports:
    """The reports of one training, on each of its ranks. `metrics`: on rank 0."""

    def __init__(self, session: Session, metrics: Metrics | None, readings: Readings) -> None:
        self._session = session
        self._metrics = metrics
        self._instruments = Instruments(session, readings.began_s) if metrics else None
        self._readings = readings
        self._figures: dict[int, Figures] = {}
        self._task_losses = TaskLosses(session)
        self._turns: dict[int, list[int]] = {}
        """Turns of each task since the report before, by the step of the report."""
        self._terms = term_names(session.config.objective)
        self._tasks = [data.task for data in session.config.data]
        self.loss = session.loss
        """The last mean loss over all ranks."""

    def add(self, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Add the loss of each task in step number `step`, counted from 0, to the next report."""
        self._task_losses.add(step, losses[0])

    def report(self, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Send the values after `step` steps. Raises DivergedError on all ranks."""
        if self._instruments:
            self._figures[step] = self._instruments.read(step)
        sums, self._turns[step] = self._task_losses.take()
        own = losses[0][: 1 + len(self._terms)]
        self._process(self._readings.after(step, self._session.ranks.mean(own, sums, losses[1])))

    def flush(self) -> None:
        """Wait for the pending report. Raises DivergedError on all ranks."""
        self._process(self._readings.arrived())

    def check_finite(self, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Check that the values of `step` are finite before a save. Raises DivergedError on all ranks."""
        loss, *_, grad_norm = self._session.ranks.mean_of(*losses)
        self._check_finite_values(step, loss, grad_norm)

    def _process(self, reading: Reading | None) -> None:
        if reading is None:
            return
        self.loss, *values, grad_norm = reading.values
        turns = self._turns.pop(reading.step)
        if self._metrics and self._instruments:
            terms = dict(zip(self._terms, values, strict=False))
            sums = dict(zip(self._tasks, zip(values[len(terms) :], turns, strict=True), strict=True))
            point = MetricsPoint(
                step=reading.step,
                loss=self.loss,
                terms=terms,
                task_losses={task: total / count for task, (total, count) in sums.items() if count},
                grad_norm=grad_norm,
                at_s=reading.at_s,
                throughput=self._instruments.throughput(reading.step, reading.at_s),
                figures=self._figures.pop(reading.step),
            )
            self._metrics.add(point)
        self._check_finite_values(reading.step, self.loss, grad_norm)

    def _check_finite_values(self, step: int, loss: float, grad_norm: float) -> None:
        session = self._session
        step, figures = session.stage.run_step(step), {"loss": loss}
        if not session.scaler.is_enabled():  # the scaler skips a step whose gradient overflows fp16
            figures["gradient"] = grad_norm
        fault = next(
            (f"the {name} is {value}" for name, value in figures.items() if not math.isfinite(value)), None
        )
        if fault is None:
            return
        session.checkpoints.wait()
        good = session.checkpoints.step
        saved = "no checkpoint was saved" if good is None else f"the last good checkpoint is of step {good}"
        raise DivergedError(
            f"{fault} at step {step}; {saved}", reported_elsewhere=not session.ranks.rank.is_first
        )
