"""Evaluation: full rollouts of the test set in physical units, next to the baselines they must beat.

`python -m vastrun.trainer.evaluation` evaluates a checkpoint. docs/evaluation.md explains the scores.
"""

from vastrun.trainer.evaluation import report
from vastrun.trainer.evaluation.evaluation import Evaluation, evaluate, final_scores

__all__ = ["Evaluation", "evaluate", "final_scores", "report"]
