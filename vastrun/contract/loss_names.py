"""Loss names: usual names of losses in loggers, and vastrun's name of each. Standard library only."""

from __future__ import annotations

import re

TASK_LOSS = "loss."
"""Prefix of the name under which the metrics hold the mean loss of a task."""
_LOSS = re.compile(r"train(?:ing)?_loss(?:_step)?|loss_train(?:ing)?|epoch_loss")
_VALIDATION_LOSS = re.compile(r"(?:val|valid|validation|eval)_loss|loss_(?:val|valid|validation|eval)")


def common_loss_name(name: str) -> str | None:
    """Return vastrun's name of a loss, where the name is a usual one of loggers; None for other names."""
    plain = re.sub(r"[^a-z]+", "_", name.lower())
    if _LOSS.fullmatch(plain):
        return "loss"
    return "validation_loss" if _VALIDATION_LOSS.fullmatch(plain) else None
