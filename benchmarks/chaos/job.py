"""The job of every launch: a program that prints lines which cannot be taken for each other."""

import re
from pathlib import Path

from benchmarks.chaos.plans import Plan
from tests.torch_builds import STUB_TORCH

LINES = 200
LINE = re.compile(r"^\S+ rank0 (line (\d+) x*)$", re.MULTILINE)
"""As it stands in the log; the text and the number."""
PROGRAM = "chatter.py"
RESULT = "42\n"

_JOB = """\
name: chaos
resources: {{gpus: {gpus}, interruptible: {interruptible}}}
ranks: 1
limits: {{hours: {hours}, usd: {usd}, collect_s: {collect_s}, stall_s: 60}}
code: {{path: code}}
command: python {program}
success: {{files: result.txt, log: "line {last} "}}
outputs: result.txt
"""
_STUB_TORCH = f'env: {{PYTHONPATH: "{STUB_TORCH}"}}\n'
"""Has the emulated GPUs, which real torch does not find."""
_RETRY = "retry: {lost: 2, preempted: 2, signal: 1, host: 1}\n"
_BIDS = ("outbid", "bid_rejected", "bid_pending", "bid_never")
"""Faults that only a machine with a bid meets."""
_CHATTER = f"""\
import subprocess
import time
from pathlib import Path

if Path("deceit.sh").exists():
    subprocess.run(["bash", "code/deceit.sh"], cwd="..", check=True)
for number in range({LINES}):
    print(f"line {{number:03}} " + "x" * (1 + number * 37 % 100), flush=True)
    time.sleep(0.02)
until = time.monotonic() + float(Path("minutes").read_text()) * 60
while time.monotonic() < until:
    print("still at work", flush=True)
    time.sleep(5)
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
    (code / "minutes").write_text(str(plan.minutes))
    if plan.holds_on:
        (code / "stays").touch()
    gpus = int(plan.has_fault("gpu_memory_used"))
    text = _JOB.format(
        hours=plan.hours,
        usd=plan.limit_usd,
        gpus=gpus,
        collect_s=plan.collect_s,
        interruptible=str(any(map(plan.has_fault, _BIDS))).lower(),
        program=PROGRAM,
        last=LINES - 1,
    )
    parts = {_RETRY: plan.retries, _STUB_TORCH: gpus}
    job = folder / "job.yaml"
    job.write_text(text + "".join(part for part, is_included in parts.items() if is_included))
    return job
