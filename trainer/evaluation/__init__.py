"""Evaluation: full rollouts of the test set in physical units, beside the floors that they must be under.

`python -m trainer.evaluation` does it alone, for a checkpoint. What the scores mean: docs/evaluation.md.
"""

from trainer.evaluation import report
from trainer.evaluation.evaluation import Evaluation, evaluate, flat

__all__ = ["Evaluation", "evaluate", "flat", "report"]
