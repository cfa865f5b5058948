"""`python -m trainer.workload`: a query on the standard input, the answer on the standard output, in JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from trainer.contract.errors import DataError
from trainer.contract.records import read_json
from trainer.contract.workload import WorkloadQuery


def main() -> int:
    """Return 0 with the answer, 1 with a line on the standard error."""
    query = read_json(WorkloadQuery, sys.stdin.read())
    # After the query: a fault in it is told at once.
    from trainer.workload.foretelling import foretell

    try:
        workloads = foretell(query)
    except DataError as error:
        print(f"workload: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(workloads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
