"""`python -m vastrun.trainer.workload`: read a query from stdin, write the answer to stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from vastrun.contract.errors import DataError
from vastrun.contract.records import read_json
from vastrun.contract.workload import WorkloadQuery


def main() -> int:
    """Return 0 with the answer, 1 with a line on the standard error."""
    query = read_json(WorkloadQuery, sys.stdin.read())
    # After the query: a fault in it is told at once.
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
