"""Exit: determine why a rank ends, from its error, and end it with the reason's exit code.

The rank writes the reason to its record file and exits at once. Standard library only: torch's errors are
recognised by type where torch is loaded, and by their text elsewhere.
"""

import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from vastrun.contract.outcome import REASONS, Reason
from vastrun.contract.records import write_json
from vastrun.contract.reports import RankRecord, rank_record_path
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.errors import (
    ConfigError,
    DataError,
    DeviceError,
    DivergedError,
    SaveError,
    StoppedWithoutSaveError,
    WorkerDiedError,
)

_FAILED_DEVICE = re.compile(
    r"uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error|driver initialization failed"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|system not yet initialized|Hardware stack error"
)
"""Matches an error of torch that a failed GPU causes; the supervisor asks the GPUs before it blames them."""
_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|_ALLOC_FAILED\b|is killed by signal: (Killed|Bus error)"
)
"""Matches an error of torch without memory. A DataLoader worker is killed when main memory is full, and
receives SIGBUS when /dev/shm is."""


class RankExit:
    """A context around the whole work of a rank; its exit ends the process."""

    def __init__(self, box: Path, rank: int, heart: Heartbeat) -> None:
        self.reason: Reason = "error"
        """Reason that is written if no error was raised."""
        self.asked: Callable[[], bool] = lambda: False
        """Return True if this rank received SIGTERM."""
        self._path = rank_record_path(box, rank)
        self._heart = heart

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> NoReturn:
        if error is not None:
            self.reason = reason_of(error)
            # Nothing is printed when another rank prints the same; an error that the user can correct gets
            # one line.
            if not (isinstance(error, (ConfigError, DivergedError)) and error.reported_elsewhere):
                if isinstance(error, (DataError, WorkerDiedError, ConfigError, DivergedError, SaveError)):
                    print(_one_line(error), file=sys.stderr)
                else:
                    traceback.print_exception(error)
        self._leave(self.reason, error)

    def abort(self) -> NoReturn:
        """End the process from another thread: after a stop request the rank did not save in time."""
        error = StoppedWithoutSaveError(f"asked to stop in step {self._heart.step}: left without saving")
        print(_one_line(error), file=sys.stderr)
        self._leave("stopped", error)

    def _leave(self, reason: Reason, error: BaseException | None) -> NoReturn:
        exit_code = exit_code_of(reason)
        record = RankRecord(
            reason=reason,
            step=self._heart.step,
            exit_code=exit_code,
            asked=self.asked(),
            exception=None if error is None else _one_line(error),
            traceback=None if error is None else "".join(traceback.format_exception(error)),
            at=time.time(),
        )
        try:
            write_json(self._path, asdict(record))
        except OSError as fault:
            print(f"cannot write the reason of this rank's exit ({reason}): {fault}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: gloo's threads may abort the process during the shutdown of the interpreter.
        os._exit(exit_code)


def exit_code_of(reason: Reason) -> int:
    """Return the exit code of a rank that ends for `reason`; several reasons share the code 1."""
    return REASONS[reason].rank_exit_code


def reason_of(error: BaseException) -> Reason:
    """Return the reason for an error: that of the first error in its chain that has one, or "error"."""
    for link in _chain(error):
        # The trainer's errors first: they know their reason, torch's are recognised by their text.
        if isinstance(link, DataError):
            return "data"
        if isinstance(link, WorkerDiedError):
            return "signal"
        if isinstance(link, DivergedError):
            return "diverged"
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return "disk"
        failed = isinstance(link, RuntimeError) and _FAILED_DEVICE.search(str(link))
        if failed or isinstance(link, DeviceError):
            return "device"
        if is_out_of_memory(link):
            return "oom"
        if _is_communication(link):
            return "communication"
    return "error"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its cause, and so on."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _is_communication(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    # gloo has no error type; its messages begin with the place in its source.
    return isinstance(error, torch.distributed.DistError) or (
        isinstance(error, RuntimeError) and "gloo/" in str(error)
    )


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means too little memory, on the device or in main memory."""
    # Not imported: a program that has not loaded torch cannot have raised an error of torch.
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # The CPU's allocator and GPU libraries have no error type for it.
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None
