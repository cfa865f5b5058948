"""Scores: the numbers of the final record by name, and their text, in which a floor stands beside each score.

Standard library only: the launcher reads them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLOORS = {
    "persistence": "persistence",
    "spatial_mean": "the mean over space",
    "training_mean": "the training mean",
}
"""Predictions that need no learning, each with its name in texts."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A score of a prediction that learned nothing: a model must be below it to be worth anything."""

    name: str
    value: float


def named(by_task: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Join the scores of all tasks, by `task.name`; those of a single task by `name` alone."""
    if len(by_task) == 1:
        return dict(*by_task.values())
    return {f"{task}.{name}": value for task, scores in by_task.items() for name, value in scores.items()}


def lowest_floor(scores: Mapping[str, float]) -> Floor | None:
    """Return the lowest floor among the scores of one task; None when they hold none."""
    known = {told: scores.get(f"{name}_nrmse") for name, told in FLOORS.items()}
    floors = [Floor(name=told, value=value) for told, value in known.items() if value is not None]
    return min(floors, key=lambda floor: floor.value, default=None)


def beside(score: float, floor: Floor) -> str:
    """Return a score beside its floor in words: `0.0717, 12.9x better than persistence (0.9279)`."""
    if score >= floor.value:
        return f"{score:.4g}, NO better than {floor.name} ({floor.value:.4g})"
    times = f"{floor.value / score:.1f}x" if score else "infinitely"
    return f"{score:.4g}, {times} better than {floor.name} ({floor.value:.4g})"


def lines_of(scores: Mapping[str, float]) -> list[str]:
    """Return a line for each task, with its name where there are several.

    When a task has no floor, as with the scores of a user's own program, one line holds all scores.
    """
    by_task = _by_task(scores)
    lines = []
    for task, own in by_task.items():
        line = _line_of(own)
        if line is None:
            return (
                [", ".join(f"{name} {value:.4g}" for name, value in sorted(scores.items()))] if scores else []
            )
        lines.append(f"{task}: {line}" if task else line)
    return lines


def _line_of(scores: Mapping[str, float]) -> str | None:
    floor = lowest_floor(scores)
    if floor is None:
        return None
    # A rollout that ran away has no finite error, and JSON no infinity: the score is left out of the record.
    score, blind = scores.get("rollout_nrmse"), scores.get("blind_nrmse")
    if score is None:
        lost = scores.get("rollout_diverged", 0)
        return f"rollout nRMSE is infinite, {lost:g} rollouts ran away; {floor.name} has {floor.value:.4g}"
    without = "" if blind is None else f"; without the sample's parameter: {blind:.4g}"
    return f"rollout nRMSE {beside(score, floor)}{without}{_upon(scores)}"


def _upon(scores: Mapping[str, float]) -> str:
    """Return what the operator scores without the stage built upon it; empty: there is no such stage."""
    alone = scores.get("operator_nrmse")
    if alone is None:
        return ""
    # A box may leave out whether the stage helps: then nothing is said about it.
    helps = scores.get("stage_helps", 1.0)
    return f"; the operator alone has {alone:.4g}" + ("" if helps else ": no help")


def _by_task(scores: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Undo `named`: return the scores of each task; a single task is called ""."""
    tasks: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        task, _, name = key.rpartition(".")
        tasks.setdefault(task, {})[name] = value
    return tasks
