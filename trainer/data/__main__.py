"""`python -m vastrun.trainer.data generate|check`: make or check data.

In a box (VASTRUN_BOX is its folder) it uses the job's data; elsewhere --folder and options describe the data.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.data_config import PARAMETERS, DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer import data
from vastrun.trainer.data.inspection import check
from vastrun.trainer.data.sample_writer import ProgressBar
from vastrun.trainer.distributed.rank import read_job


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DataRequest:
    """Data to make or check, and their place."""

    configs: Sequence[DataConfig]
    folder: Path
    code: Path | None
    jobs: int | None
    quick: bool


def main(arguments: Sequence[str]) -> int:
    """Make or check data.

    Returns the exit status: 0; 1 for wrong data; 2 for a usage error.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.folder is None and "VASTRUN_BOX" not in os.environ:
        parser.error("--folder is needed outside of a box")
    request = _request(options)
    if request is None:
        print("the job runs its own program; there are no data to make")
        return 0
    try:
        lines = _VERBS[options.verb](request)
    except (DataError, OSError) as error:
        print(f"data: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def _generate(request: _DataRequest) -> Sequence[str]:
    lines: list[str] = []
    for config in request.configs:
        with ProgressBar(sys.stderr) as bar:
            made = data.generate(
                config, request.folder, request.code, jobs=request.jobs, on_progress=bar.show
            )
        lines += made or [f"{config.task}: makes no files"]
    return lines


def _check_one(request: _DataRequest, config: DataConfig) -> Sequence[str]:
    if config.task in PARAMETERS:
        return check(config, request.folder, quick=request.quick)
    if request.quick:
        return [f"{config.task}: your code reads its data when the training starts"]
    task = data.make_task(config, request.folder, request.code)
    return [f"{config.task}: {len(task.train)} trajectories to train on, {len(task.test)} to test on"]


_VERBS: dict[str, Callable[[_DataRequest], Sequence[str]]] = {
    "generate": _generate,
    "check": lambda request: [line for config in request.configs for line in _check_one(request, config)],
}


def _request(options: argparse.Namespace) -> _DataRequest | None:
    """Return the request; None when the box's job has no `train` section."""
    if options.folder is not None:
        values = {key: getattr(options, key) for key in _OPTIONS if getattr(options, key) is not None}
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        config = dataclasses.replace(DataConfig(), **{**values, **lists})
        return _DataRequest(
            configs=[config], folder=options.folder, code=None, jobs=options.jobs, quick=options.quick
        )
    box = Path(os.environ["VASTRUN_BOX"])
    train = read_job(box).train
    if train is None:
        return None
    return _DataRequest(
        configs=train.data,
        folder=box / layout.DATA,
        code=box / layout.CODE,
        jobs=options.jobs,
        quick=options.quick,
    )


_TRAINING_ONLY = ("keep", "patch", "validation", "ranges", "range_values", "unseen")
_OPTIONS = [field.name for field in dataclasses.fields(DataConfig) if field.name not in _TRAINING_ONLY]
_MIN_VALUES = {"seed": 0, "points": 16, "frames": 2}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vastrun.trainer.data", description=__doc__)
    parser.add_argument("verb", choices=_VERBS)
    parser.add_argument("--folder", type=Path, help="folder of the files")
    parser.add_argument(
        "--jobs", type=_parse_jobs, default=1, help="number of solver processes; auto: as many as pay off"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check only two samples of each split and all conditions",
    )
    defaults = DataConfig()
    for key in _OPTIONS:
        value = getattr(defaults, key)
        help_text = f"train.data.{key} of a job file; default {value}"
        if key == "task":
            parser.add_argument("--task", choices=PARAMETERS, help=help_text)
        elif isinstance(value, tuple):
            parser.add_argument(f"--{key}", type=_parse_positive, nargs="+", help=help_text)
        elif isinstance(value, float):
            parser.add_argument(f"--{key}", type=_parse_positive, help=help_text)
        else:
            parser.add_argument(f"--{key}", type=_parse_count(_MIN_VALUES.get(key, 1)), help=help_text)
    return parser


def _parse_positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def _parse_jobs(text: str) -> int | None:
    return None if text == "auto" else _parse_count(1)(text)


def _parse_count(min_value: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < min_value:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {min_value}, got {text}")
        return int(text)

    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
