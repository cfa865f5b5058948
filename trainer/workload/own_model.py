"""Own model: build and call a model of the user's code once, before the data are made.

python -m vastrun.trainer.workload.own_model     in a box, with the variables of a step
"""

import os
import sys
import time
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.trainer import user_code
from vastrun.trainer.errors import ConfigError, DataError
from vastrun.trainer.job.config import TrainConfig, config_of
from vastrun.trainer.job.data_config import PARAMETERS

_WINDOWS = 2


def main() -> int:
    """Try the model of the job. Return the exit status of the onstart step 35-check-model."""
    box = Path(os.environ["VASTRUN_BOX"])
    train = config_of(Job.read(box))
    if not train.model.is_own:
        print("the job has no model of its own")
        return 0
    user_code.add_to_path(box / layout.CODE)
    try:
        print(try_model(train))
    except (ConfigError, DataError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def try_model(train: TrainConfig) -> str:
    """Build the model, call it and compute gradients, on a GPU if there is one; return a line for the log.

    Raises ConfigError, DataError. The shapes of a user's task are known only when its data are read.
    """
    # Imported here: for our own models the step needs no torch.
    import torch

    from vastrun.trainer import data
    from vastrun.trainer.models.operator import Domain
    from vastrun.trainer.models.own_model import OwnModel, find

    name, task = train.model.name, train.data[0]
    if task.task not in PARAMETERS:
        find(name)
        return f"{name} is in the job's code; it is built when the data of {task.task} are read"
    sizes, began = data.data_sizes(task), time.monotonic()
    _, channels, *grid = sizes.frame_shape
    domain = Domain(
        grid=tuple(grid),
        channels=channels,
        static=sizes.static,
        conditions=sizes.conditions,
        steady=sizes.steady,
    )
    torch.manual_seed(train.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = OwnModel(train.model, [domain])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with user_code.ExplainedErrors("train.model", f"{name} failed when it was called"):
        model.to(device)
        fields = torch.randn(_WINDOWS, channels, *grid, device=device)
        conditions = torch.zeros(_WINDOWS, sizes.conditions, device=device)
        result = model(fields, conditions)
    if not result.requires_grad:
        raise ConfigError(f"train.model.name: the result of {name} does not depend on its parameters")
    with user_code.ExplainedErrors("train.model", f"{name} failed in its backward pass"):
        result.square().mean().backward()
    seconds = time.monotonic() - began
    return (
        f"{name}: {parameters:,} parameters, {len(model.blocks)} blocks; built and called in {seconds:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
