"""Stages in text: a line for each of several stages, with its steps, time, cost and score."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.contract.scores import score_lines
from vastrun.launcher.decisions.stages import StageCost
from vastrun.launcher.ui.render.amounts import duration, usd


def stage_lines(stages: Sequence[StageCost], run_id: str) -> str:
    """Write a line for each stage of run `run_id`; empty where it has only one."""
    width = max((len(stage.name) for stage in stages), default=0)
    return "\n".join(f"{stage.name:<{width}}  {_words(stage, run_id)}" for stage in stages)


def _words(stage: StageCost, run_id: str) -> str:
    parts = [
        f"{stage.steps_done} of {stage.steps_planned} steps",
        f"{duration(stage.seconds)}, {usd(stage.usd)}" if stage.seconds else "",
        stage_result(stage, run_id),
    ]
    return "  ".join(filter(None, parts))


def stage_result(stage: StageCost, run_id: str) -> str:
    """Write how a stage of run `run_id` ended, and its score; empty: it did not come to its end."""
    parts = [
        f"done by {stage.run_id}" if stage.run_id not in (None, run_id) else "",
        "MISSED its gate" if stage.missed else "",
        # Of several tasks the first: the rest is in the report.
        next((line.partition("; ")[0] for line in score_lines(stage.scores or {})), ""),
    ]
    return "  ".join(filter(None, parts))
