"""Scores: flatten the scores of the final record and format each with its floor. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLOORS = {
    "persistence": "persistence",
    "spatial_mean": "the mean over space",
    "linear_map": "the best linear map",
    "nearest": "the nearest training trajectory",
    "interpolation": "interpolation between training trajectories",
    "solver_half": "our solver on half the points",
    "solver_quarter": "our solver on a quarter of the points",
    "solver_eighth": "our solver on an eighth of the points",
}
"""Predictions without a network, each with its name in texts."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The score of a prediction without a network: a model is useful only below it."""

    name: str
    value: float


def flatten_scores(by_task: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Flatten the scores of all tasks to `task.name`; those of a single task to `name`."""
    if len(by_task) == 1:
        return dict(*by_task.values())
    return {f"{task}.{name}": value for task, scores in by_task.items() for name, value in scores.items()}


def lowest_floor(scores: Mapping[str, float], part: str = "") -> Floor | None:
    """Return the lowest floor among the scores of one task; None when they hold none.

    `part`: `unseen_` for those at parameters that were not trained.
    """
    floors = [
        Floor(name=text, value=value)
        for name, text in FLOORS.items()
        if (value := scores.get(f"{part}{name}_nrmse")) is not None
    ]
    return min(floors, key=lambda floor: floor.value, default=None)


def compare_with_floor(score: float, floor: Floor) -> str:
    """Format a score compared with its floor: `0.0717, 12.9x better than persistence (0.9279)`."""
    times = f"{floor.value / score:.1f}x" if score else "infinitely"
    better = "NO better than" if score >= floor.value else f"{times} better than"
    return f"{score:.4g}, {better} {floor.name} ({floor.value:.4g})"


def scores_by_task(scores: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Undo `flatten_scores`: return the scores of each task by name; a single task has the name ""."""
    tasks: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        task, _, name = key.rpartition(".")
        tasks.setdefault(task, {})[name] = value
    return tasks


def score_lines(scores: Mapping[str, float]) -> list[str]:
    """Return a line for each task, with its name where there are several.

    When a task has no floor, as with the scores of a user's program, one line holds all scores.
    """
    by_task = scores_by_task(scores)
    lines = []
    for task, own in by_task.items():
        line = _task_line(own)
        if line is None:
            return (
                [", ".join(f"{name} {value:.4g}" for name, value in sorted(scores.items()))] if scores else []
            )
        lines.append(f"{task}: {line}" if task else line)
    return lines


def _task_line(scores: Mapping[str, float]) -> str | None:
    floor = lowest_floor(scores)
    if floor is None:  # the validation of a steady problem
        return f"rollout nRMSE {scores['rollout_nrmse']:.4g}" if scores.keys() == {"rollout_nrmse"} else None
    # A rollout that diverged has no finite error, and JSON no infinity: the record lacks the score.
    score, blind = scores.get("rollout_nrmse"), scores.get("blind_nrmse")
    if score is None:
        diverged = scores.get("rollout_diverged", 0)
        return (
            f"rollout nRMSE is infinite, {diverged:g} rollouts diverged; {floor.name} has {floor.value:.4g}"
        )
    without = "" if blind is None else f"; without the sample's parameter: {blind:.4g}"
    comparison = compare_with_floor(score, floor)
    alone = "; a one-parameter set, which carries no claim" if scores.get("one_parameter_set") else ""
    return f"rollout nRMSE {comparison}{alone}{_unseen_part(scores)}{without}{_operator_part(scores)}"


def _unseen_part(scores: Mapping[str, float]) -> str:
    """Format the score at parameters that were not trained; empty when there are none."""
    unseen, floor = scores.get("unseen_nrmse"), lowest_floor(scores, "unseen_")
    if unseen is None or floor is None:
        return ""
    return f"; at parameters that were not trained: {compare_with_floor(unseen, floor)}"


def _operator_part(scores: Mapping[str, float]) -> str:
    """Format the operator's score without the later stage; empty when there is no later stage."""
    alone = scores.get("operator_nrmse")
    if alone is None:
        return ""
    # A box may omit `stage_helps`: then the text makes no claim.
    helps = scores.get("stage_helps", 1.0)
    return f"; the operator alone has {alone:.4g}" + ("" if helps else ": no help")
