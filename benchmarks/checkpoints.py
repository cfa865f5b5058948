"""How long a training stands still for a checkpoint written beside it, and for one that it waits for."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.box import RANKS, environment
from benchmarks.figures import Claim, Pair, max_limit, show, show_alone
from benchmarks.saves import BYTES

STARTS = 3
ROUNDS = 3
"""Of a start."""
FIRST_S = max_limit(0.05)
LATER_S = max_limit(0.1)
"""These two for each 250 MB."""
OF_DURABLE = max_limit(0.1)
STRATEGIES = ("ddp", "fsdp2")

Round = Mapping[str, float]


def run() -> bool:
    """Print three lines a strategy."""
    results = [_run(strategy) for strategy in STRATEGIES]
    return all(results)


def _run(strategy: str) -> bool:
    with tempfile.TemporaryDirectory() as root:
        starts = [_rounds(Path(root) / str(number), strategy) for number in range(STARTS)]
    first, later = [rounds[0] for rounds in starts], [each for rounds in starts for each in rounds[1:]]
    steps = Pair(candidate=_column(later, "step_meanwhile_s"), baseline=_column(later, "step_s"))
    return all(
        [
            _show_first(strategy, _column(first, "stall_s")),
            _show_later(
                strategy, Pair(candidate=_column(later, "stall_s"), baseline=_column(later, "durable_s"))
            ),
            show("  a step meanwhile", steps, "s", Claim(steps.ratio, "of one alone"), baseline="alone"),
        ]
    )


def _show_first(strategy: str, stalls_s: Sequence[float]) -> bool:
    claim = Claim(_for_250_mb(stalls_s), "s for 250 MB", FIRST_S)
    return show_alone(f"{strategy} x{RANKS}, first stall", stalls_s, "s", claim)


def _show_later(strategy: str, pair: Pair) -> bool:
    claims = [
        Claim(_for_250_mb(pair.candidate), "s for 250 MB", LATER_S),
        Claim(pair.ratio, "of a durable save", OF_DURABLE),
    ]
    return show(f"{strategy} x{RANKS}, later stalls", pair, "s", *claims, baseline="durable")


def _for_250_mb(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) / BYTES * 250e6


def _column(rounds: Sequence[Round], name: str) -> list[float]:
    return [each[name] for each in rounds]


def _rounds(box: Path, strategy: str) -> list[Round]:
    """Of one start."""
    box.mkdir()
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    program = ["-m", "benchmarks.saves", strategy, "0", str(ROUNDS)]
    done = subprocess.run(
        [sys.executable, *command, *program],
        env=environment(box),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
