"""Predictors: the model, used in several ways, and baselines.

The prior of a sample is known from the training set and the sample's conditions alone.

Shapes, here and in the whole package: B samples, N of the test set, T frames to predict, K channels, X points
by axis, C conditions, R rings of wavenumbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from vastrun.trainer import data
from vastrun.trainer.data import Task
from vastrun.trainer.evaluation.learned_baselines import find_neighbours, fit_baseline
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.scores import FLOORS
from vastrun.trainer.loading.training_set import parameters_of
from vastrun.trainer.models.linear_map import LinearMap
from vastrun.trainer.models.modes import resampling
from vastrun.trainer.models.operator import Operator

WholeRollout = Callable[[Tensor, Tensor], Tensor]
"""Maps first frames (B, K, *X) and conditions (B, C) to whole trajectories (B, T, K, *X)."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Statistics of the training set of one task."""

    mean_conditions: Tensor
    """(C,): mean of the conditions."""
    conditions_differ: bool
    parameters: Tensor
    """(G, C): the different conditions, or only their mean when there are too many."""
    linear_map: LinearMap | None = None
    """Map that was fitted to the training set at each of `parameters`; None: not fitted."""
    rollouts: Mapping[str, WholeRollout] = field(default_factory=dict)
    """Floors that predict whole trajectories, by name."""
    one_parameter: bool = False
    """The inputs of the training set have one degree of freedom."""

    def mapped(self, u: Tensor, conditions: Tensor) -> Tensor:
        """Return the linear map's next frames of fields `u` (B, K, *X) at these conditions."""
        assert self.linear_map is not None, "a predictor that needs the map is not applicable without it"
        return self.linear_map.predict(u, conditions)


def compute_prior(task: Task, device: torch.device) -> Prior:
    """Compute a task's prior."""
    conditions = task.train.conditions.to(device)
    return Prior(
        mean_conditions=conditions.mean(dim=0),
        conditions_differ=bool((conditions != conditions[0]).any()),
        parameters=parameters_of(task.train).to(device),
    )


def with_baseline(prior: Prior, task: Task, beat: Callable[[], None]) -> Prior:
    """Return the prior with a baseline that is fitted to the training set. All ranks fit the same one."""
    return replace(prior, linear_map=fit_baseline(task, prior.parameters, beat))


def with_rollouts(prior: Prior, task: Task, config: DataConfig, beat: Callable[[], None]) -> Prior:
    """Return the prior with the floors that predict whole trajectories. All ranks beat equally often."""
    neighbours = find_neighbours(task, prior.parameters.device, beat)
    rollouts: dict[str, WholeRollout] = {NEAREST: partial(neighbours.predict, order=1)}
    if neighbours.order is not None:
        rollouts[INTERPOLATION] = partial(neighbours.predict, order=neighbours.order)
    solver = data.coarse_solver(config)
    for name, times in SOLVERS.items():
        if solver and all(points % times == 0 and points // times >= _MIN_CELLS for points in task.test.grid):
            rollouts[name] = partial(_solve_coarsely, solver, times, task.train.symmetry == "shift", beat)
    return replace(prior, rollouts=rollouts, one_parameter=neighbours.order == 2)


def _solve_coarsely(
    solver: data.CoarseSolver,
    times: int,
    periodic: bool,
    beat: Callable[[], None],
    u: Tensor,
    conditions: Tensor,
) -> Tensor:
    """Solve from fields on a grid with every `times`-th point along an axis, and return it on theirs."""
    grid = tuple(u.shape[2:])
    coarse = tuple(points // times for points in grid)
    up, down = (
        resampling(*pair, periodic=periodic).to(u.device) for pair in ((coarse, grid), (grid, coarse))
    )
    # Cells between walls may hold jumps, of which waves would overshoot.
    first = down(u.movedim(1, -1)).movedim(-1, 1) if periodic else _POOL[len(grid)](u, times)
    solved = []
    for rows in torch.arange(len(u)).split(_SOLVED_AT_ONCE):
        beat()
        trajectories = torch.empty(0)
        for values in conditions[rows].unique(dim=0):
            same = (conditions[rows] == values).all(dim=1)
            found = torch.from_numpy(solver(first[rows][same].double().cpu().numpy(), values.tolist())).to(u)
            if not len(trajectories):
                trajectories = found.new_empty(len(rows), *found.shape[1:])
            trajectories[same] = found
        solved.append(trajectories)
    fields = torch.cat(solved)
    return up(fields.flatten(0, 1).movedim(1, -1)).movedim(-1, 1).unflatten(0, fields.shape[:2])


_POOL = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_MIN_CELLS = 8
_SOLVED_AT_ONCE = 16
"""Rollouts between two beats."""


@dataclass(frozen=True, kw_only=True)
class SampleBatch:
    """Batch of samples of one task."""

    operator: Operator
    task: int
    conditions: Tensor
    """(B, C)"""
    prior: Prior

    def predict(self, u: Tensor, conditions: Tensor) -> Tensor:
        """Return the model's prediction from fields (B, K, *X)."""
        prediction: Tensor = self.operator(u, conditions, self.task)
        return prediction


Predict = Callable[[SampleBatch, Tensor, Tensor], Tensor]
"""Predicts the next frame from the predictor's own previous frame, and from the true previous frame."""


NEAREST, INTERPOLATION = "nearest", "interpolation"
SOLVERS = {"solver_half": 2, "solver_quarter": 4, "solver_eighth": 8}
"""Our solver on coarser grids, each with the factor between the points along an axis."""

PREDICTORS: dict[str, Predict] = {
    "rollout": lambda case, own, _: case.predict(own, case.conditions),
    "one_step": lambda case, _, before: case.predict(before, case.conditions),
    "persistence": lambda _, own, __: own,
    "one_step_persistence": lambda _, __, before: before,
    "spatial_mean": lambda _, own, __: own.mean(dim=tuple(range(2, own.ndim)), keepdim=True).expand_as(own),
    "linear_map": lambda case, own, _: case.prior.mapped(own, case.conditions),
    "blind": lambda case, own, _: case.predict(own, case.prior.mean_conditions.expand_as(case.conditions)),
}
"""rollout  each frame from the model's own prediction of the previous frame
one_step    each frame from the true previous frame
blind       as rollout, with the training set's mean conditions instead of the sample's own
The others are baselines: see docs/evaluation.md."""

LABELS = {
    "rollout": "rollout",
    "one_step": "one step",
    "one_step_persistence": "persistence, one step",
    "blind": "without the sample's parameter",
    **{name: text.removeprefix("the ").removeprefix("our ") for name, text in FLOORS.items()},
}
"""Name of each predictor in tables and pictures."""


def applicable_predictors(prior: Prior, *, steady: bool) -> tuple[str, ...]:
    """Return the predictors that make sense here: a steady problem has a single step, and no persistence."""
    return tuple(
        name
        for name in PREDICTORS
        if (name in ("rollout", "blind") or not steady)
        and (prior.linear_map is not None or name != "linear_map")
        and (prior.conditions_differ or name != "blind")
    ) + tuple(prior.rollouts)
