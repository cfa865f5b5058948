"""Summary: evaluation of a trained model on all tasks, and comparison of a stage with its operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.scores import score_lines
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation import comparison, report
from vastrun.trainer.evaluation.comparison import StageComparison
from vastrun.trainer.evaluation.evaluation import Evaluation, TrainedModel, evaluate, final_scores


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
        """Write the report; return the paths of the pictures. All ranks call this."""
        return report.write(folder, self.evaluations, title, self.lines, ranks, plots=plots, beat=beat)


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
