"""How long a training stands still for a checkpoint written beside it, and for one that it waits for."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.box import RANKS, environment
from benchmarks.figures import Pair, show
from benchmarks.saves import BYTES

ROUNDS = 6
MOST_S = 0.1
"""For each 250 MB, and of a durable save."""
STRATEGIES = ("ddp", "fsdp2")


def run() -> None:
    """Two lines a strategy."""
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as root:
            rounds = _rounds(Path(root), strategy)
        column = {name: [record[name] for record in rounds] for name in rounds[0]}
        pair = Pair(ours=column["stall_s"], theirs=column["durable_s"])
        size = statistics.median(pair.ours) / BYTES * 250e6
        verdict = f"{size:.3f} s for 250 MB, {pair.ratio:.3f} of a durable save (at most {MOST_S} each)"
        show(f"stall, {strategy} x{RANKS}", pair, "s", verdict, theirs="durable")
        steps = Pair(ours=column["step_meanwhile_s"], theirs=column["step_s"])
        show("  a step meanwhile", steps, "s", f"{steps.ratio:.2f} times as long", theirs="alone")


def _rounds(box: Path, strategy: str) -> list[dict[str, float]]:
    """Without the first round, which gets the memory for the copies."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    program = ["-m", "benchmarks.saves", strategy, "0", str(ROUNDS + 1)]
    done = subprocess.run(
        [sys.executable, *command, *program],
        env=environment(box),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][1:]
