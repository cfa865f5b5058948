"""MLflow's file store of a box, read by MLflow's own client."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vastrun.contract import layout


def client_of(box: Path) -> Any:
    """MLflow's client of the box's store."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    return mlflow.MlflowClient(tracking_uri=(box / layout.MLFLOW_FILES).as_uri())


def recorded_runs(box: Path, experiment: str = "vastrun") -> Sequence[Any]:
    """The runs of an experiment, newest first."""
    client = client_of(box)
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else client.search_runs([found.experiment_id])
