"""`python -m benchmarks.team_vastrun ...`: the command `vastrun` on a computer whose clock is wrong.

In: the command line, and CLOCK_AHEAD_S. What it writes to PostgreSQL bears its process number.
"""

from __future__ import annotations

import os
import time

VARIABLE = "CLOCK_AHEAD_S"


def main() -> None:
    """The program."""
    ahead_s, right = float(os.environ[VARIABLE]), time.time
    time.time = lambda: right() + ahead_s
    os.environ["PGAPPNAME"] = str(os.getpid())

    from vastrun.launcher.cli import main as vastrun

    vastrun()


if __name__ == "__main__":
    main()
