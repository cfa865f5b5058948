"""`python -m vastrun.trainer.data generate|check`: make or check data.

In a box (VASTRUN_BOX is its folder) it uses the job's data; elsewhere --folder and --data describe the data.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import RecordError, parse_json, read_as
from vastrun.trainer import data
from vastrun.trainer.data.sample_writer import progress_lines
from vastrun.trainer.data.samples import ranges, rows_at_once
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.config import config_of
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig


def main(arguments: Sequence[str]) -> int:
    """Make or check data.

    Returns the exit status: 0; 1 for wrong data; 2 for a usage error.
    """
    parser = argparse.ArgumentParser(prog="python -m vastrun.trainer.data", description=__doc__)
    parser.add_argument("verb", choices=("generate", "check"))
    parser.add_argument("--folder", type=Path, help="folder of the files")
    parser.add_argument(
        "--jobs", type=_parse_jobs, default=1, help="number of solver processes; auto: as many as pay off"
    )
    parser.add_argument("--quick", action="store_true", help="check only two samples of each split")
    parser.add_argument(
        "--data",
        type=_parse_data,
        default=DataConfig(),
        help="train.data of a job file, as JSON; what is not given has its default",
    )
    options = parser.parse_args(arguments)
    if options.folder is None and "VASTRUN_BOX" not in os.environ:
        parser.error("--folder is needed outside of a box")
    configs: Sequence[DataConfig] = [options.data]
    folder, code = options.folder, None
    if folder is None:
        box = Path(os.environ["VASTRUN_BOX"])
        configs, folder, code = config_of(Job.read(box)).data, box / layout.DATA, box / layout.CODE
    lines: list[str] = []
    try:
        for config in configs:
            if options.verb == "check":
                lines += _check_one(config, folder, code, quick=options.quick)
                continue
            progress = progress_lines(sys.stderr)
            made = data.generate(config, folder, code, jobs=options.jobs, on_progress=progress)
            lines += made or [f"{config.task}: makes no files"]
    except (DataError, OSError) as error:
        print(f"data: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def _check_one(config: DataConfig, folder: Path, code: Path | None, *, quick: bool) -> Sequence[str]:
    if config.task in PARAMETERS:
        return check(config, folder, quick=quick)
    if quick:
        return [f"{config.task}: your code reads its data when the training starts"]
    task = data.make_task(config, folder, code)
    return [f"{config.task}: {len(task.train)} trajectories to train on, {len(task.test)} to test on"]


def check(config: DataConfig, folder: Path, *, quick: bool = False) -> list[str]:
    """Read every sample of a built-in task, or only the first and last one of each split. Raises DataError.

    Returns lines for the user.
    """
    splits, unseen = data.splits(config, folder), data.unseen(config, folder)
    for split in (*splits.all, *(() if unseen is None else (unseen,))):
        last = len(split) - 1
        size = rows_at_once(prod(split.shape), max_rows=64)
        for numbers in (range(1), range(last, last + 1)) if quick else ranges(len(split), size):
            split.read(numbers)
    kind = "steady problems" if splits.train.steady else "trajectories"
    return [
        f"{config.task}: {len(splits.train)} {kind} to train on, {len(splits.test)} to test on",
        *([] if unseen is None else [f"  {len(unseen)} to test on at parameters that are not trained"]),
        *(
            f"  {path.name}: {stride} are read"
            for path, stride in splits.train.strides.items()
            if not stride.is_everything
        ),
    ]


def _parse_data(text: str) -> DataConfig:
    try:
        values = parse_json(text)
        config: DataConfig = read_as(DataConfig, values)
    except RecordError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if unknown := values.keys() - vars(config).keys():
        raise argparse.ArgumentTypeError(f"unknown key {min(unknown)}")
    return config


def _parse_jobs(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected auto or a whole number of at least 1, got {text}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
