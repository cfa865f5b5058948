"""Reports: every few steps all ranks agree on loss and gradient norm, and rank 0 tells what is known.

Nobody waits for the device: on CUDA a report comes through one report later, and at the latest before a
checkpoint, so that none is saved of a training that has diverged.
"""

from __future__ import annotations

import math

from torch import Tensor

from trainer.contract.errors import DivergedError
from trainer.engine.session import Session
from trainer.stages.objective import terms_of
from trainer.telemetry.figures import Figures, Instruments
from trainer.telemetry.metrics import Metrics, MetricsPoint
from trainer.telemetry.readings import Reading, Readings


class Reports:
    """The reports of one training, on each of its ranks. `metrics`: on rank 0."""

    def __init__(self, session: Session, metrics: Metrics | None, readings: Readings) -> None:
        self._session = session
        self._metrics = metrics
        self._instruments = Instruments(session, readings.began_s) if metrics else None
        self._readings = readings
        self._figures: dict[int, Figures] = {}
        self.loss = session.loss
        """The last mean over all ranks that came through."""

    def report(self, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Send off what is known after `step` steps. Raises DivergedError on all ranks alike."""
        if self._instruments:
            self._figures[step] = self._instruments.read(step)
        self._tell(self._readings.after(step, self._session.ranks.mean(*losses)))

    def settle(self) -> None:
        """Wait for all that was on its way. Raises DivergedError on all ranks alike."""
        self._tell(self._readings.arrived())

    def must_be_sound(self, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Check that what was learned in `step` may be saved. Raises DivergedError on all ranks alike."""
        loss, *_, grad_norm = self._session.ranks.mean_of(*losses)
        self._must_be_finite(step, loss, grad_norm)

    def _tell(self, reading: Reading | None) -> None:
        if reading is None:
            return
        self.loss, *values, grad_norm = reading.values
        if self._metrics and self._instruments:
            terms = dict(zip(terms_of(self._session.config.objective), values, strict=True))
            point = MetricsPoint(
                step=reading.step,
                loss=self.loss,
                terms=terms,
                grad_norm=grad_norm,
                at_s=reading.at_s,
                throughput=self._instruments.throughput(reading.step, reading.at_s),
                figures=self._figures.pop(reading.step),
            )
            self._metrics.add(point)
        self._must_be_finite(reading.step, self.loss, grad_norm)

    def _must_be_finite(self, step: int, loss: float, grad_norm: float) -> None:
        session = self._session
        figures = {"loss": loss}
        if not session.scaler.is_enabled():  # which leaves out a step whose gradient is too large for fp16
            figures["gradient"] = grad_norm
        fault = next(
            (f"the {name} is {value}" for name, value in figures.items() if not math.isfinite(value)), None
        )
        if fault is None:
            return
        session.checkpoints.wait()
        good = session.checkpoints.step
        kept = "no checkpoint was saved" if good is None else f"the last good checkpoint is of step {good}"
        raise DivergedError(f"{fault} at step {step}; {kept}", told_elsewhere=not session.ranks.rank.is_first)
