"""`python -m vastrun.trainer.workload`: read a query from stdin, write the answer to stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from vastrun.contract.errors import DataError
from vastrun.contract.records import read_json
from vastrun.contract.workload import WorkloadQuery


def main() -> int:
    """Print the workloads as JSON and return 0; on an error, print it to stderr and return 1."""
    query = read_json(WorkloadQuery, sys.stdin.read())
    # After the query is parsed: an error in it is reported without waiting for torch.
    from vastrun.trainer.workload.estimator import estimate_workloads

    try:
        workloads = estimate_workloads(query)
    except DataError as error:
        print(f"workload: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(workloads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
