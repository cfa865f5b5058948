"""Report: writes an evaluation as `scores.json`, `report.md` and pictures."""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vastrun.contract.records import write_atomically, write_json
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.evaluation import comparison
from vastrun.trainer.evaluation.comparison import StageComparison
from vastrun.trainer.evaluation.evaluation import WHOLE, Evaluation, TrainedModel, evaluate, final_scores
from vastrun.trainer.evaluation.predictors import LABELS
from vastrun.trainer.evaluation.scores import Scores
from vastrun.trainer.job.scores import score_lines

SCORES, REPORT = "scores.json", "report.md"
_MAX_DRAWING_RANKS = 4
"""Largest number of ranks that draw; a task has at most four pictures."""


def preload_plots(rank: Rank) -> None:
    """Import matplotlib in a thread, which takes a second, while the GPU evaluates."""
    if _draws(rank):
        threading.Thread(target=_import_plots, name="plots", daemon=True).start()


def _import_plots() -> None:
    with suppress(ImportError):  # `_draw` reports it
        import vastrun.trainer.evaluation.plots  # noqa: F401


def _draws(rank: Rank) -> bool:
    return rank.rank < _drawing_ranks(rank)


def _drawing_ranks(rank: Rank) -> int:
    """Return the number of ranks that draw: only those on rank 0's machine, where the report is."""
    return min(_MAX_DRAWING_RANKS, rank.local_world_size or rank.world_size)


def _draw(
    folder: Path, evaluations: Sequence[Evaluation], rank: Rank, beat: Callable[[], None]
) -> dict[str, list[Path]]:
    """Draw this rank's share of the pictures; return the paths of all of them, by task."""
    if not _draws(rank):
        return {}
    try:
        from vastrun.trainer.evaluation.plots import draw
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        if rank.is_first:
            print("no pictures of the scores: the package matplotlib is not installed", flush=True)
        return {}
    return draw(folder, evaluations, beat, part=rank.rank, of=_drawing_ranks(rank))


def _record(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "samples": evaluation.samples,
        "steady": evaluation.steady,
        "ms": dict(evaluation.ms),
        "parts": {
            part: {predictor: _numbers(own) for predictor, own in scores.items()}
            for part, scores in evaluation.scores.items()
        },
    }


def _numbers(scores: Scores) -> dict[str, Any]:
    curve = [value if math.isfinite(value) else None for value in scores.nrmse_by_frame]
    return {**scores.numbers(), "nrmse_by_frame": curve}


def _table_of_measures(evaluation: Evaluation) -> list[str]:
    """Make a table with a column for each predictor, so that each score stands next to its baselines."""
    scores = evaluation.scores[WHOLE]
    names = [field.name for field in fields(Scores) if field.name != "nrmse_by_frame"]
    rows = [
        [
            name.replace("nrmse", "nRMSE").replace("rmse", "RMSE").replace("_", " "),
            *(_cell(getattr(own, name)) for own in scores.values()),
        ]
        for name in names
    ]
    rows.append(["ms a rollout", *(_cell(evaluation.ms.get(name, math.nan)) for name in scores)])
    kind = "problems" if evaluation.steady else "trajectories"
    return _table([f"{evaluation.samples} {kind}", *(LABELS[name] for name in scores)], rows)


def _table_of_parts(evaluation: Evaluation) -> list[str]:
    """Make a table with a row for each parameter: three scores of the model, and the baselines' nRMSE."""
    parts = {part: scores for part, scores in evaluation.scores.items() if part != WHOLE}
    if not parts:
        return []
    baselines = [name for name in evaluation.scores[WHOLE] if name != "rollout"]
    rows = [
        [
            part,
            *(_cell(getattr(scores["rollout"], name)) for name in ("nrmse", "nrmse_median", "nrmse_pooled")),
            *(_cell(scores[name].nrmse) for name in baselines),
        ]
        for part, scores in parts.items()
    ]
    return _table(["nRMSE", "rollout", "median", "pooled", *(LABELS[name] for name in baselines)], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"


@dataclass(frozen=True, kw_only=True)
class EvaluationSummary:
    """Evaluations and comparisons of all tasks, the same on every rank."""

    evaluations: Sequence[Evaluation]
    comparisons: Sequence[StageComparison]

    @property
    def scores(self) -> dict[str, float]:
        """Scores by name, as in the final record."""
        return final_scores(self.evaluations) | comparison.final_scores(self.comparisons)

    @property
    def lines(self) -> list[str]:
        """Summary for the log and the top of the report."""
        warnings = [
            f"{each.task}: {line}" for each in self.evaluations if each.seen for line in each.seen.lines
        ]
        return [*score_lines(self.scores), *map(str, self.comparisons), *warnings]

    def print_lines(self) -> None:
        for line in self.lines:
            print(line, flush=True)

    def write(
        self, folder: Path, title: str, ranks: Ranks, *, plots: bool, beat: Callable[[], None]
    ) -> list[Path]:
        """Write the report into `folder`; return the paths of the pictures.

        All ranks call this. The ranks of rank 0's machine share the drawing, rank 0 writes the rest. Without
        matplotlib a line is printed instead of the pictures.
        """
        evaluations = self.evaluations
        if ranks.rank.is_first:
            write_json(folder / SCORES, {each.task: _record(each) for each in evaluations})
        pictures: dict[str, list[Path]] = _draw(folder, evaluations, ranks.rank, beat) if plots else {}
        if plots:
            ranks.wait_for_all()
        if ranks.rank.is_first:
            text = [f"# {title}", "", *(f"- {line}" for line in self.lines), ""]
            for each in evaluations:
                text += [f"## {each.task}", "", *_table_of_measures(each), "", *_table_of_parts(each), ""]
                text += [f"![{path.stem}]({path.name})\n" for path in pictures.get(each.task, [])]
            text.append("Each score and column is explained in docs/evaluation.md of vastrun.")
            write_atomically(folder / REPORT, "\n".join(text) + "\n")
        return [picture for each in pictures.values() for picture in each]


def evaluate_all(trained: TrainedModel, beat: Callable[[], None]) -> EvaluationSummary:
    """Evaluate the model on all test sets. All ranks take part; returns when all are done."""
    with trained.ema_weights(), trained.autocast():
        evaluations = [
            evaluate(trained.operator, number, data, task, trained.ranks, beat)
            for number, (data, task) in enumerate(zip(trained.config.data, trained.tasks, strict=True))
        ]
        comparisons = comparison.compare(trained, evaluations, beat)
    trained.ranks.wait_for_all()
    return EvaluationSummary(evaluations=evaluations, comparisons=comparisons)
