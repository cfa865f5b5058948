"""Exit: how a rank ends; it writes the reason to its own file and ends at once, with a matching exit code."""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NoReturn

from trainer.contract import layout
from trainer.contract.errors import (
    ConfigError,
    DataError,
    DivergedError,
    SaveError,
    UnsavedError,
    WorkerDiedError,
)
from trainer.contract.reasons import REASONS, Reason
from trainer.contract.records import write_json
from trainer.distributed.devices import FAILED_DEVICE, DeviceError, is_out_of_memory
from trainer.distributed.rank import Rank
from trainer.heartbeat import Heartbeat

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RankExit:
    """A context around everything that a rank does: however that ends, the process ends here."""

    def __init__(self, rank: Rank, heart: Heartbeat) -> None:
        self.reason: Reason = "error"
        self.asked: Callable[[], bool] = lambda: False
        """Tells whether this very rank got SIGTERM."""
        self._rank = rank
        self._heart = heart

    def __enter__(self) -> RankExit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> NoReturn:
        if error is not None:
            self.reason = reason_of(error)
            _tell(error)
        self._leave(self.reason, error)

    def give_up(self) -> NoReturn:
        """End the process from another thread: the rank was asked to stop and could not save in time."""
        error = UnsavedError(f"asked to stop in step {self._heart.step}: left without saving")
        print(_one_line(error), file=sys.stderr)
        self._leave("stopped", error)

    def _leave(self, reason: Reason, error: BaseException | None) -> NoReturn:
        exit_code = exit_code_of(reason)
        try:
            write_json(
                self._rank.box / layout.RANKS / f"rank-{self._rank.rank}.json",
                {
                    "reason": reason,
                    "step": self._heart.step,
                    "exit_code": exit_code,
                    "asked": self.asked(),
                    "exception": None if error is None else _one_line(error),
                    "traceback": None if error is None else "".join(traceback.format_exception(error)),
                    "at": time.time(),
                },
            )
        except OSError as fault:
            print(f"cannot write why this rank ends ({reason}): {fault}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: gloo's threads may abort the process while the interpreter is being taken down.
        os._exit(exit_code)


def exit_code_of(reason: Reason) -> int:
    """Return the exit code of a rank that ends for `reason`; several reasons share the code 1."""
    return REASONS[reason].rank_exit_code


def reason_of(error: BaseException) -> Reason:
    """Return the reason for an error: that of the first error in its chain that has one, or "error"."""
    for link in _chain(error):
        # Our own errors first: they were raised where the reason was known, torch's are read from their text.
        if isinstance(link, DataError):
            return "data"
        if isinstance(link, WorkerDiedError):
            return "signal"
        if isinstance(link, DivergedError):
            return "diverged"
        if isinstance(link, OSError) and link.errno in _FULL:
            return "disk"
        if _is_failed_device(link):
            return "device"
        if is_out_of_memory(link):
            return "oom"
        if _is_communication(link):
            return "communication"
    return "error"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what caused it, and so on."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _is_failed_device(error: BaseException) -> bool:
    failed = isinstance(error, RuntimeError) and FAILED_DEVICE.search(str(error))
    return isinstance(error, DeviceError) or bool(failed)


def _is_communication(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    # gloo has no error type of its own either; its messages begin with the place in its source.
    return isinstance(error, torch.distributed.DistError) or (
        isinstance(error, RuntimeError) and "gloo/" in str(error)
    )


def _tell(error: BaseException) -> None:
    """Print an error on stderr: in one line what the user can correct, anything else with its traceback.

    Nothing is printed when another rank prints the same.
    """
    if isinstance(error, (ConfigError, DivergedError)) and error.told_elsewhere:
        return
    if isinstance(error, (DataError, WorkerDiedError, ConfigError, DivergedError, SaveError)):
        print(_one_line(error), file=sys.stderr)
    else:
        traceback.print_exception(error)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
