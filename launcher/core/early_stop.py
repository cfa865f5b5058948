"""Early stop: which rule ends the runs of a batch that fall behind, as `early_stop:` of its file says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, MinLen

Goal = Literal["min", "max"]
"""Which end of a metric is best."""


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """When a run of a batch is pruned. `goal` is the batch's, of its `objective`."""

    rule: Literal["asha", "median"] = "asha"
    metric: Annotated[str, MinLen(1)] = "loss"
    """A name in `metrics.jsonl`."""
    min_steps: Annotated[int, Ge(1)]
    """No run is judged before it has done so many steps. With asha the first rung; the next are this times
    `factor`, `factor` squared, and so on."""
    factor: Annotated[int, Ge(2)] = 3
    """asha: of the runs that reached a rung, one in so many goes on."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A run to prune now."""

    run: str
    """Its id."""
    reason: str
    """In words, for its diary and its verdict."""
