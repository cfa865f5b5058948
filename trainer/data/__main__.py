"""`python -m vastrun.trainer.data generate|check|info`: make, check or describe data.

In a box (VASTRUN_BOX is its folder) for its job; with --folder anywhere, for what the options say.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.config import PARAMETERS, DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer import data
from vastrun.trainer.data.inspection import check, info
from vastrun.trainer.data.making import ProgressBar
from vastrun.trainer.distributed.rank import read_job


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DataRequest:
    """What the data are to be, and where."""

    configs: Sequence[DataConfig]
    folder: Path
    code: Path | None
    jobs: int | None
    quick: bool


def main(arguments: Sequence[str]) -> int:
    """Make, check or describe data.

    Returns the exit status: 0, 1 when the data are wrong, 2 when the call is.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.folder is None and "VASTRUN_BOX" not in os.environ:
        parser.error("--folder is needed outside of a box")
    request = _request(options)
    if request is None:
        print("the job brings its own program: no data to make")
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
            made = data.generate(config, request.folder, request.code, jobs=request.jobs, watch=bar.show)
        lines += made or [f"{config.task}: makes no files"]
    return lines


def _check_one(request: _DataRequest, config: DataConfig) -> Sequence[str]:
    if config.task in PARAMETERS:
        return check(config, request.folder, quick=request.quick)
    if request.quick:
        return [f"{config.task}: is read by code of its own, when the training begins"]
    task = data.make(config, request.folder, request.code)
    return [f"{config.task}: {len(task.train)} trajectories to train on, {len(task.test)} to test on"]


_VERBS: dict[str, Callable[[_DataRequest], Sequence[str]]] = {
    "generate": _generate,
    "check": lambda asked: [line for config in asked.configs for line in _check_one(asked, config)],
    "info": lambda asked: info(asked.folder, asked.configs),
}


def _request(options: argparse.Namespace) -> _DataRequest | None:
    """Return what is asked for; None: the box's job has no data of ours."""
    if options.folder is not None:
        given = {key: getattr(options, key) for key in _SETTABLE if getattr(options, key) is not None}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        config = dataclasses.replace(DataConfig(), **{**given, **lists})
        asked = [config] if given or options.verb != "info" else []
        return _DataRequest(
            configs=asked, folder=options.folder, code=None, jobs=options.jobs, quick=options.quick
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


_OF_TRAINING = ("keep", "patch", "validation")
_SETTABLE = [field.name for field in dataclasses.fields(DataConfig) if field.name not in _OF_TRAINING]
_LEAST = {"seed": 0, "points": 16, "frames": 2}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vastrun.trainer.data", description=__doc__)
    parser.add_argument("verb", choices=_VERBS)
    parser.add_argument("--folder", type=Path, help="where the files are")
    parser.add_argument(
        "--jobs", type=_processes, default=1, help="processes that solve; auto: as it is worth"
    )
    parser.add_argument("--quick", action="store_true", help="check: two samples of each split, and no sums")
    usual = DataConfig()
    for key in _SETTABLE:
        value = getattr(usual, key)
        told = f"train.data.{key} of a job file; default {value}"
        if key == "task":
            parser.add_argument("--task", choices=PARAMETERS, help=told)
        elif isinstance(value, tuple):
            parser.add_argument(f"--{key}", type=_positive, nargs="+", help=told)
        elif isinstance(value, float):
            parser.add_argument(f"--{key}", type=_positive, help=told)
        else:
            parser.add_argument(f"--{key}", type=_whole(_LEAST.get(key, 1)), help=told)
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def _processes(text: str) -> int | None:
    return None if text == "auto" else _whole(1)(text)


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text}")
        return int(text)

    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
