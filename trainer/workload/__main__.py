"""`python -m vastrun.trainer.workload`: read a query from stdin, write the answer to stdout."""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from vastrun.contract.records import read_json
from vastrun.contract.workload import WRONG_MODEL
from vastrun.trainer import user_code
from vastrun.trainer.errors import ConfigError, DataError
from vastrun.trainer.job.workload import WorkloadQuery


def main() -> int:
    """Print the workloads as JSON and return 0; on an error, print it to stderr.

    Returns 1 then, or WRONG_MODEL when the user's model could not be trained elsewhere either.
    """
    query = read_json(WorkloadQuery, sys.stdin.read())
    # After the query is parsed: an error in it is reported without waiting for torch.
    from vastrun.trainer.workload.estimator import estimate_workloads

    if query.code is not None:
        user_code.add_to_path(Path(query.code).expanduser())
    try:
        # Fake tensors have no values: what a model does with these may fail here, and not on a machine.
        with (
            user_code.ExplainedErrors("train.model", "no estimate without values")
            if query.code
            else nullcontext()
        ):
            workloads = estimate_workloads(query)
    except (ConfigError, DataError) as error:
        print(f"workload: {error}", file=sys.stderr)
        # Where the user's code itself raised an error, this computer may be the reason.
        return WRONG_MODEL if isinstance(error, ConfigError) and error.__cause__ is None else 1
    print(json.dumps(asdict(workloads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
