"""vastrun: the functions that a training program imports, and the Python API of the launcher.

On every box, for a training program: `from vastrun import beat`, which needs the standard library only and
does nothing outside a run; `vastrun.sampler` shares out the data to the ranks.

Where the launcher is installed, on your own computer, the functions of the commands, too: `launch`, `plan`,
`run`, `runs`, `batch`, `sweep`, `batches` and `find_batch`, with the types that they return and the errors
that they raise in `vastrun.errors`. They are imported when they are first used, and never on a box.

    run = vastrun.launch("job.yaml", provider="vast", set={"limits.usd": 5})
    print(run.wait().verdict)
"""

from __future__ import annotations

import os
import time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, get_args

# `import *` works on a box, too, so that it imports only names that exist there.
__all__ = ["Activity", "beat"]

if TYPE_CHECKING:
    from vastrun import errors
    from vastrun.launcher.api import public as _public
    from vastrun.launcher.api.public import *  # noqa: F403

    __all__ += _public.__all__
    __all__ += ["errors"]

_LAUNCHER_NAMES = (
    *("launch", "plan", "run", "runs", "batch", "sweep", "batches", "find_batch"),
    *("RunHandle", "RunStatus", "RunResult", "LogLine", "Verdict", "Cause", "Phase", "MachineState"),
    *("BatchHandle", "BatchStatus", "PointRow", "BatchResults", "JobSpec", "LaunchPlan"),
)
"""Names that the launcher exports. Listed here, so that looking up any other name imports nothing."""

Activity = Literal["step", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint"]
"""Activity of a rank. Compiling, evaluating and saving have longer time limits than a step."""

_HEARTBEAT_BYTES = 64
"""Bytes of a heartbeat, as in `contract/reports.py`, which this module does not import."""


def beat(step: int, activity: Activity = "step", /, **metrics: SupportsFloat) -> None:
    """Report that this rank is in `activity` of `step`, and what it measured: `beat(step, loss=loss)`.

    A beat costs one write. Metrics are numbers, or tensors of one number; those of rank 0 become a line of
    `metrics.jsonl`, from which the curves are drawn. Reading a tensor waits for its GPU, so give metrics only
    every few steps. Raises ValueError for an unknown activity, the error of `float` for a metric that is not
    a number, and OSError when the file cannot be written.
    """
    if activity not in get_args(Activity):
        raise ValueError(f"beat: unknown activity {activity!r}; use one of {', '.join(get_args(Activity))}")
    folder, rank = os.environ.get("VASTRUN_RUN"), os.environ.get("RANK", "0")
    if folder is None:
        return
    line = f"{int(step)} {activity} {time.time():.3f} {os.getpid()}"
    heartbeat = _open_once(f"{folder}/heartbeat/rank-{rank}", os.O_WRONLY | os.O_CREAT)
    os.pwrite(
        heartbeat, f"{line:<{_HEARTBEAT_BYTES - 1}}\n".encode(), 0
    )  # in place, so that it is read whole
    # Metrics of other ranks are not even read: to read a tensor would make them wait for their GPU.
    if metrics and rank == "0":
        from json import dumps  # here: the command line imports this module, too, and starts faster

        # `float` of a loss itself warns.
        numbers = {name: float(v.item() if hasattr(v, "item") else v) for name, v in metrics.items()}
        record = {"step": int(step)} | numbers
        journal = _open_once(f"{folder}/metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(journal, f"{dumps(record)}\n".encode())


@cache
def _open_once(path: str, flags: int) -> int:
    """Open a file, once per process, and return its descriptor."""
    from pathlib import Path  # here for the same reason

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o644)


if not TYPE_CHECKING:  # a type checker would conclude that every name exists

    def __getattr__(name: str) -> Any:
        """Import a name of the launcher when it is first used.

        Raises ImportError where the launcher is not installed, as on a box.
        """
        if name == "errors":
            return import_module("vastrun.errors")
        if name not in _LAUNCHER_NAMES:
            raise AttributeError(f"module 'vastrun' has no attribute {name!r}")
        try:
            launcher = import_module("vastrun.launcher.api.public")
        except ModuleNotFoundError as error:
            raise ImportError(
                f"vastrun.{name} needs the launcher, but vastrun is not installed in this Python"
            ) from error
        value = globals()[name] = getattr(launcher, name)
        return value


def __dir__() -> list[str]:
    """List the names that can be imported here, for the completion of names."""
    available = [*_LAUNCHER_NAMES, "errors"] if find_spec("vastrun.launcher") else []
    return sorted({*globals(), *available})
