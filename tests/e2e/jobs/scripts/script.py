"""Passes, raises, exits 3, says nothing of success, or waits: whatever its argument says."""

import os
import subprocess
import sys
import time
from pathlib import Path

from trainer.heartbeat import Heartbeat


def passes():
    Path("result.txt").write_text("42\n")
    print("all is well")


def raises():
    if os.environ["RANK"] == "1":
        raise ValueError("the grid has no points")
    time.sleep(60)


def exits_3():
    sys.exit(3)


def says_nothing():
    pass


def fills_the_disk():
    with Path("result.txt").open("wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def waits():
    heart = Heartbeat.of_this_rank()
    subprocess.Popen(["setsid", "sleep", "300"])
    step = 0
    while True:
        step += 1
        heart.beat(step)
        print("step", step, flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
