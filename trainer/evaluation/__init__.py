"""Evaluation: full rollouts of the test set in physical units, beside the floors that they must be under.

`python -m vastrun.trainer.evaluation` evaluates a checkpoint. docs/evaluation.md explains the scores.
"""

from vastrun.trainer.evaluation import report
from vastrun.trainer.evaluation.evaluation import Evaluation, evaluate, flat

__all__ = ["Evaluation", "evaluate", "flat", "report"]
