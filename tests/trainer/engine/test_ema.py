"""EMA: its decay rises, so that a short training is not averaged with the weights that it began with."""

import pytest
import torch
from torch import nn

from vastrun.trainer.engine.ema import Ema

pytestmark = pytest.mark.torch


def averaged(decay: float, steps: int) -> float:
    """The average of a weight that is 5 at first, and 1 after every step."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 5.0)
    ema = Ema(model, decay)
    with torch.no_grad():
        model.weight.fill_(1.0)
    for step in range(steps):
        ema.update(step)
    with ema.average_parameters():
        return float(model.weight.detach())


def test_the_first_weights_are_soon_forgotten() -> None:
    # After the first step their share is 1/10, then 1/10 of 2/11, of 3/12 and so on.
    assert averaged(0.9999, 1) == pytest.approx(1 + 4 / 10)
    assert averaged(0.9999, 2) == pytest.approx(1 + 4 / 10 * 2 / 11)
    assert averaged(0.9999, 50) == pytest.approx(1.0, abs=1e-6)


def test_the_decay_is_never_above_that_of_the_job() -> None:
    assert averaged(0.15, 3) == pytest.approx(1 + 4 * 0.1 * 0.15**2)
