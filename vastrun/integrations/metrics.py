"""Metrics: choose what a framework logs that becomes a line of `metrics.jsonl`. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

from vastrun.contract.scores import common_loss_name

_RESERVED = frozenset({"", "step", "at"})


def numbers_of(logged: Mapping[str, Any], exclude: Iterable[str] = ()) -> dict[str, SupportsFloat]:
    """Return the numbers of what was logged, by name, without those of `exclude`.

    A loss by a usual name (`train_loss`, `eval_loss`) is also returned as `loss` or `validation_loss`.
    """
    left_out = _RESERVED.union(exclude)
    found = {name: value for name, value in logged.items() if name not in left_out and _is_number(value)}
    for name in tuple(found):
        common = common_loss_name(name)
        if common is not None:
            found.setdefault(common, found[name])
    return found


def _is_number(value: Any) -> bool:
    """Tell whether it is a number, or a tensor or array of one number."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    size = getattr(value, "numel", None)
    count = size() if callable(size) else getattr(value, "size", None)
    return count == 1 and hasattr(value, "item")
