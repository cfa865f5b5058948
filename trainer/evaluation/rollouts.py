"""Rollouts: runs every predictor over a test set, and measures its errors in physical units, on all ranks."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from vastrun.trainer.data.gas import GAMMA
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.metrics import MEASURES, FieldMetrics
from vastrun.trainer.evaluation.planes import planes_of
from vastrun.trainer.evaluation.predictors import PREDICTORS, Prior, SampleBatch
from vastrun.trainer.models.operator import Operator

_MAX_BATCH_VALUES = 1 << 20


Densities = Callable[[Tensor], Tensor]
"""Maps fields (B, K, *X) in physical units to as many conserved densities."""


def of_gas(fields: Tensor) -> Tensor:
    """Map density, pressure and velocities of a gas to the densities of mass, energy and momentum."""
    density, pressure, velocity = fields[:, :1], fields[:, 1:2], fields[:, 2:]
    energy = pressure / (GAMMA - 1) + 0.5 * density * velocity.square().sum(dim=1, keepdim=True)
    return torch.cat([density, energy, density * velocity], dim=1)


CONSERVED: dict[str, Densities] = {
    "compressible_1d": of_gas,
    "compressible_2d": of_gas,
    "compressible_3d": of_gas,
}
"""Densities by task; of all other tasks the fields themselves are compared."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Errors, spectra and examples of a test set, the same on every rank."""

    sizes: Tensor
    """(N, T, K): mean squares of the targets."""
    errors: dict[str, Tensor]
    """Errors by predictor, (M, N, T, K): see `metrics.MEASURES`."""
    spectra: Tensor
    """(3, K, R): mean amplitude by ring in the last frame: of truth, rollout and difference."""
    examples: tuple[Tensor, ...]
    """(E, T, K, *P) by plane: rollouts of the requested samples, cut to the planes that are shown."""
    ms: dict[str, float]
    """Milliseconds of a rollout by predictor: the mean over a batch, on one rank."""


class EvaluationStopped(Exception):
    """Raised on all ranks at the same frame when one of them was asked to stop."""


def beat_with_stop_vote(
    ranks: Ranks, beat: Callable[[], None], stop_asked: Callable[[], bool]
) -> Callable[[], None]:
    """Return a heartbeat function that also votes: EvaluationStopped on all ranks when one is to stop."""

    def beat_and_vote() -> None:
        beat()
        [stop] = ranks.all_reduce_max(float(stop_asked()))
        if stop:
            raise EvaluationStopped

    return beat_and_vote


def roll_out(
    operator: Operator,
    task: int,
    test: Trajectories,
    prior: Prior,
    ranks: Ranks,
    beat: Callable[[], None],
    *,
    predictors: Sequence[str],
    examples: Sequence[int] = (),
    conserved: Densities | None = None,
) -> Rollouts:
    """Roll out all of `test`: every rank a share, then the results are summed over the ranks.

    The shares have the same size, so that all ranks take part in the same gathers of weights: short shares
    are padded with the last trajectory, which counts once. `conserved`: the densities whose means are
    compared; None: the fields themselves.
    """
    rank, world_size = ranks.rank.rank, ranks.rank.world_size
    total = world_size * math.ceil(len(test) / world_size)
    accumulator = _Accumulator(test, total, predictors, examples, conserved)
    size = max(1, min(256, _MAX_BATCH_VALUES // test.fields[0, 0].numel()))
    # Shapes differ from those of training: compiling for them takes longer than it saves.
    with _eval_mode(operator), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for rows in torch.arange(rank, total, world_size).split(size):
            chosen = rows.clamp_max(len(test) - 1).to(test.fields.device)
            case = SampleBatch(operator=operator, task=task, conditions=test.conditions[chosen], prior=prior)
            accumulator.add(rows, test.fields[chosen], case, beat)
    return accumulator.reduce(ranks)


@contextmanager
def _eval_mode(operator: Operator) -> Iterator[None]:
    before = operator.training
    operator.eval()
    try:
        yield
    finally:
        operator.train(before)


class _Accumulator:
    """Measurements of one rank; zero at the places of other ranks."""

    def __init__(
        self,
        test: Trajectories,
        total: int,
        predictors: Sequence[str],
        examples: Sequence[int],
        conserved: Densities | None,
    ) -> None:
        self._count, self._predictors, self._conserved = len(test), tuple(predictors), conserved
        self._metrics = FieldMetrics(test.grid, test.fields.device)
        self._device = test.fields.device
        self._seconds = dict.fromkeys(self._predictors, 0.0)
        self._moving = slice(test.channels - test.static)
        each = (total, test.frames - 1, test.channels - test.static)
        self._sizes = torch.zeros(each, dtype=torch.float64)
        self._errors = torch.zeros(len(predictors), len(MEASURES), *each, dtype=torch.float64)
        self._spectra = torch.zeros(3, each[2], self._metrics.rings.count, dtype=torch.float64)
        # Whole fields with three axes would take gigabytes, and be sent between the ranks.
        self._planes = planes_of(tuple(test.grid))
        self._examples = [
            torch.zeros(len(examples), *each[1:], *(test.grid[axis] for axis in plane.shown))
            for plane in self._planes
        ]
        self._places = {row: place for place, row in enumerate(examples)}

    def add(self, rows: Tensor, fields: Tensor, case: SampleBatch, beat: Callable[[], None]) -> None:
        """Predict the samples `rows` frame by frame, and record the errors."""
        predictions = dict.fromkeys(self._predictors, fields[:, 0])
        whole = {}
        for name in self._predictors:
            if name in case.prior.rollouts:
                with self._timed(name):
                    whole[name] = case.prior.rollouts[name](fields[:, 0], case.conditions)
        for frame, (before, target) in enumerate(
            zip(fields[:, :-1].unbind(1), fields[:, 1:].unbind(1), strict=True)
        ):
            beat()
            moving = target[:, self._moving]
            self._sizes[rows, frame] = moving.double().square().flatten(2).mean(2).cpu()
            for place, name in enumerate(self._predictors):
                with self._timed(name):
                    own = predictions[name]
                    predictions[name] = (
                        whole[name][:, frame + 1] if name in whole else PREDICTORS[name](case, own, before)
                    ).float()
                rolled = predictions[name][:, self._moving]
                measures = self._metrics.measure(rolled - moving)
                if self._conserved is not None:
                    made, true = (self._conserved(fields.double()) for fields in (rolled, moving))
                    measures[MEASURES.index("mean")] = (made - true).flatten(2).mean(dim=2)
                self._errors[place, :, rows, frame] = measures.cpu()
            for row, field in zip(rows.tolist(), predictions["rollout"][:, self._moving], strict=True):
                if row in self._places:
                    for plane, example in zip(self._planes, self._examples, strict=True):
                        example[self._places[row], frame] = plane.cut(field).cpu()
        self._add_spectra(rows, moving, predictions["rollout"][:, self._moving])

    def reduce(self, ranks: Ranks) -> Rollouts:
        """Sum over all ranks, without the padding."""
        errors = ranks.all_reduce_sum(self._errors)[:, :, : self._count]
        seconds = torch.tensor([*self._seconds.values()], dtype=torch.float64) / len(self._sizes)
        return Rollouts(
            sizes=ranks.all_reduce_sum(self._sizes)[: self._count],
            errors=dict(zip(self._predictors, errors, strict=True)),
            spectra=ranks.all_reduce_sum(self._spectra) / self._count,
            examples=tuple(ranks.all_reduce_sum(each) for each in self._examples),
            ms=dict(zip(self._predictors, (1000 * ranks.all_reduce_sum(seconds)).tolist(), strict=True)),
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds[name] += time.perf_counter() - begin

    def _add_spectra(self, rows: Tensor, target: Tensor, prediction: Tensor) -> None:
        once = (rows < self._count).to(target.device)
        for place, fields in enumerate((target, prediction, prediction - target)):
            power = self._metrics.rings.power(fields[once].double())
            self._spectra[place] += power.sqrt().sum(0).cpu()
