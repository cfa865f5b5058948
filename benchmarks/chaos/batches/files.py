"""The files of a batch under chaos: the job, its program, and the batch with its points."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.batches.plans import BatchPlan, PointPlan
from benchmarks.chaos.job import PROGRAM

NAME = "chaos"
BATCH_FILE, EDITED_FILE = "batch.yaml", "edited.yaml"
LINES = 60
RESULT = "result.txt"

_JOB = f"""\
name: chaos
resources: {{gpus: 0}}
ranks: 1
limits: {{hours: %(hours)s, usd: %(usd)s, collect_s: 120, stall_s: 90}}
code: {{path: code}}
command: python {PROGRAM} {{n}} {{ending}}
success: {{files: {RESULT}, log: "line {LINES - 1:03} "}}
outputs: {RESULT}
"""
_BATCH = f"""\
name: {NAME}
job: job.yaml
list: %(points)s
limits: {{usd: %(usd)s, parallel: %(parallel)d, stop: {{same_cause: %(same_cause)d}}}}
"""
_CHATTER = f"""\
import sys
import time
from pathlib import Path

n, ending = sys.argv[1:]
for number in range({LINES}):
    print(f"line {{number:03}} " + "x" * (1 + number * 37 % 100), flush=True)
    time.sleep(0.02)
if ending == "fails":
    raise SystemExit(3)
if ending == "stays":
    time.sleep(9999)
Path("{RESULT}").write_text(n)
"""


def write_files(plan: BatchPlan, folder: Path) -> None:
    """Write the job with its code, the batch file, and the one that it is after its edit."""
    code = folder / "code"
    code.mkdir()
    (code / PROGRAM).write_text(_CHATTER)
    (folder / "job.yaml").write_text(_JOB % {"hours": plan.run_hours, "usd": plan.run_usd})
    (folder / BATCH_FILE).write_text(_batch(plan, plan.points))
    (folder / EDITED_FILE).write_text(_batch(plan, plan.edited))


def _batch(plan: BatchPlan, points: Sequence[PointPlan]) -> str:
    return _BATCH % {
        "points": json.dumps([point.values for point in points]),
        "usd": plan.budget_usd,
        "parallel": plan.parallel,
        "same_cause": plan.same_cause,
    }
