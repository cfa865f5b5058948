"""The job of every ride: a program that prints lines which cannot be taken for each other."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.chaos.plans import Plan

LINES = 200
LINE = re.compile(r"^\S+ rank0 (line (\d+) x*)$", re.MULTILINE)
"""As it stands in the log; the text and the number."""
PROGRAM = "chatter.py"
RESULT = "42\n"

_JOB = """\
name: chaos
resources: {{gpus: 0}}
ranks: 1
limits: {{hours: {hours}, usd: 1, collect_s: {collect_s}, stall_s: 60}}
code: {{path: code}}
command: python {program}
success: {{files: result.txt, log: "line {last} "}}
outputs: result.txt
"""
_CHATTER = f"""\
import subprocess
import time
from pathlib import Path

if Path("deceit.sh").exists():
    subprocess.run(["bash", "code/deceit.sh"], cwd="..", check=True)
for number in range({LINES}):
    print(f"line {{number:03}} " + "x" * (1 + number * 37 % 100), flush=True)
    time.sleep(0.02)
if Path("stays").exists():
    time.sleep(9999)
Path("result.txt").write_text({RESULT!r})
"""


def line_of(number: int) -> str:
    """What the program prints."""
    return f"line {number:03} " + "x" * (1 + number * 37 % 100)


def write_job(plan: Plan, folder: Path) -> Path:
    """The job file, with its code beside it."""
    code = folder / "code"
    code.mkdir()
    (code / PROGRAM).write_text(_CHATTER)
    if plan.deceit:
        (code / "deceit.sh").write_text(plan.deceit.script)
        if plan.deceit.holds:
            (code / "stays").touch()
    job = folder / "job.yaml"
    text = _JOB.format(hours=plan.life_s / 3600, collect_s=plan.collect_s, program=PROGRAM, last=LINES - 1)
    job.write_text(text)
    return job
