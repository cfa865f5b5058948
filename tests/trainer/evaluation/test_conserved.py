"""Conserved densities of flows: those that their solver conserves, and scored as such."""

import numpy as np
import torch

from vastrun.trainer.data import gas
from vastrun.trainer.evaluation.rollouts import CONSERVED
from vastrun.trainer.job.data_config import PARAMETERS


def test_every_compressible_flow_is_compared_by_the_densities_that_its_solver_conserves() -> None:
    tasks = {task for task in PARAMETERS if task.startswith("compressible_")}
    assert CONSERVED.keys() == tasks
    for axes in (1, 2, 3):
        state = gas.draw(2, axes, np.random.default_rng(axes))(8, 0.5)
        found = CONSERVED[f"compressible_{axes}d"](torch.from_numpy(state))
        np.testing.assert_allclose(found, gas.conserved(state), rtol=1e-14)
