"""Scores by name, as the final record has them, in words: a model's never without the floor under it.

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
"""What predicts without having learned anything, and how it is called."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What a score must be below to be worth anything."""

    name: str
    value: float


def named(by_task: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """`task.name`; the scores of a single task need no more than their names."""
    if len(by_task) == 1:
        return dict(*by_task.values())
    return {f"{task}.{name}": value for task, scores in by_task.items() for name, value in scores.items()}


def lowest_floor(scores: Mapping[str, float]) -> Floor | None:
    """The best of what has not learned anything; None: none is among the scores of this one task."""
    known = {told: scores.get(f"{name}_nrmse") for name, told in FLOORS.items()}
    floors = [Floor(name=told, value=value) for told, value in known.items() if value is not None]
    return min(floors, key=lambda floor: floor.value, default=None)


def beside(score: float, floor: Floor) -> str:
    """`0.0717, 12.9x better than persistence (0.9279)`"""
    if score >= floor.value:
        return f"{score:.4g}, NO better than {floor.name} ({floor.value:.4g})"
    times = f"{floor.value / score:.1f}x" if score else "infinitely"
    return f"{score:.4g}, {times} better than {floor.name} ({floor.value:.4g})"


def lines_of(scores: Mapping[str, float]) -> list[str]:
    """A line for each task, by name where there are several; of scores that are not the trainer's own, one
    line with all of them."""
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
    score, blind = scores.get("rollout_nrmse"), scores.get("blind_nrmse")
    if score is None:
        lost = scores.get("rollout_diverged", 0)
        return f"rollout nRMSE is infinite, {lost:g} rollouts ran away; {floor.name} has {floor.value:.4g}"
    without = "" if blind is None else f"; without the sample's parameter: {blind:.4g}"
    return f"rollout nRMSE {beside(score, floor)}{without}{_upon(scores)}"


def _upon(scores: Mapping[str, float]) -> str:
    """Of a stage after the operator: what that has alone."""
    alone = scores.get("operator_nrmse")
    if alone is None:
        return ""
    return f"; the operator alone has {alone:.4g}" + ("" if scores["stage_helps"] else ": no help")


def _by_task(scores: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """As before `named`; a single task has no name."""
    tasks: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        task, _, name = key.rpartition(".")
        tasks.setdefault(task, {})[name] = value
    return tasks
