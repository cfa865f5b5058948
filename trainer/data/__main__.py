"""`python -m trainer.data generate|check`: make a box's data, or see whether the trainer can read them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainer import data, layout
from trainer.data.faults import DataError
from trainer.rank import read_job

_USAGE = "usage: python -m trainer.data generate|check   (in a box: VASTRUN_BOX is its folder)"


def main(arguments: list[str]) -> int:
    """The exit status: 0, 1 when the data are wrong, 2 when the call is."""
    box = os.environ.get("VASTRUN_BOX")
    if arguments not in (["generate"], ["check"]) or not box:
        print(_USAGE, file=sys.stderr)
        return 2
    train = read_job(Path(box)).train
    if train is None:
        print("the job brings its own program: no data to make")
        return 0
    folder, code = Path(box) / layout.DATA, Path(box) / layout.CODE
    try:
        if arguments == ["generate"]:
            lines = data.generate(train.data, folder, code)
        else:
            task = data.make(train.data, folder, code)
            lines = [
                f"{train.data.task}: {len(task.train)} trajectories to train on, {len(task.test)} to test on"
            ]
    except (DataError, OSError) as error:
        print(f"data: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines) or f"{train.data.task}: makes no files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
