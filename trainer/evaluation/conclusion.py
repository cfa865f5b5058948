"""Conclusion: all tasks of a trained model evaluated, and a stage beside the operator that it builds upon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.scores import score_lines
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation import comparison, report
from vastrun.trainer.evaluation.comparison import StageComparison
from vastrun.trainer.evaluation.evaluation import Evaluation, TrainedModel, evaluate, flat


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The same on every rank."""

    evaluations: Sequence[Evaluation]
    comparisons: Sequence[StageComparison]

    @property
    def scores(self) -> dict[str, float]:
        """By name, as the final record has them."""
        return flat(self.evaluations) | comparison.flat(self.comparisons)

    @property
    def lines(self) -> list[str]:
        """All that there is to say in short."""
        return [*score_lines(self.scores), *map(str, self.comparisons)]

    def tell(self) -> None:
        for line in self.lines:
            print(line, flush=True)

    def write(
        self, folder: Path, title: str, ranks: Ranks, *, plots: bool, beat: Callable[[], None]
    ) -> list[Path]:
        """Write the report; return the pictures, if there are any. All ranks call this."""
        return report.write(folder, self.evaluations, title, self.lines, ranks, plots=plots, beat=beat)


def conclude(trained: TrainedModel, beat: Callable[[], None]) -> Conclusion:
    """Measure the model on the test sets. All ranks take part, and all know when all are done."""
    with trained.ema_weights(), trained.autocast():
        evaluations = [
            evaluate(trained.operator, number, data, task, trained.ranks, beat)
            for number, (data, task) in enumerate(zip(trained.config.data, trained.tasks, strict=True))
        ]
        comparisons = comparison.compare(trained, evaluations, beat)
    trained.ranks.wait_for_all()
    return Conclusion(evaluations=evaluations, comparisons=comparisons)
