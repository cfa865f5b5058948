"""How long `vastrun --help` takes, beside a click program that does nothing."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Claim, in_turns, max_limit, show

ROUNDS = 15
SLOWEST = max_limit(1.1)

BARE = """\
import click


@click.group()
def main():
    "Nothing."


main()
"""


def run() -> bool:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        vastrun = Path(sys.executable).with_name("vastrun")
        pair = in_turns(
            lambda: _seconds([str(vastrun), "--help"]),
            lambda: _seconds([sys.executable, str(bare), "--help"]),
            ROUNDS,
        )
    claim = Claim(pair.ratio, "of a bare click program's time", SLOWEST)
    return show("vastrun --help", pair, "s", claim)


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
