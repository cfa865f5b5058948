"""Exit: determine why a rank ends, from its error or its log, and end it with the reason's exit code.

The rank writes the reason to its record file and exits at once. Standard library only: torch's errors are
recognised by type where torch is loaded, and by their text elsewhere.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, cast

from vastrun.contract import layout
from vastrun.contract.errors import (
    ConfigError,
    DataError,
    DeviceError,
    DivergedError,
    SaveError,
    StoppedWithoutSaveError,
    WorkerDiedError,
)
from vastrun.contract.outcome import REASONS, EpochSeconds, ExitCode, Line, Lines, Reason, Step
from vastrun.contract.records import read_json, write_json
from vastrun.trainer.heartbeat import Heartbeat

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_FAILED_DEVICE = re.compile(
    r"\bDeviceError\b|uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|CUDA driver initialization failed|system not yet initialized|Hardware stack error"
)
"""Matches the text of an error of a failed device, without errors that a faulty kernel may cause as well (a
launch failure)."""

_NO_MEMORY = re.compile(
    r"\bOutOfMemoryError\b|^MemoryError\b|CUDA (error: )?out of memory|can't allocate memory"
    r"|\b(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b"
    r"|DataLoader worker \(pid \d+\) is killed by signal: (Killed|Bus error)"
)
"""Matches the text of an out-of-memory error of torch or another library. A DataLoader worker is killed when
main memory is full, and receives SIGBUS when /dev/shm is."""

_IN_WORKER = re.compile(r"Caught \w+ in (.+)\.$")
"""Torch's message for the exception of a worker; the worker's traceback follows it."""
_WORKER_GONE = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly$")
_WORKER_KILLED = re.compile(r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: .+")

_TAIL = 1 << 16
_HEADER = "Traceback (most recent call last):"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""Prefix that torch adds to each line of a traceback once a process group exists."""
_BARE_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)(: .*)?$")

_REASON_OF_TEXT: Mapping[Reason, re.Pattern[str]] = {
    "device": _FAILED_DEVICE,
    "oom": _NO_MEMORY,
    "signal": re.compile(
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (is killed by signal: \w|exited unexpectedly$)"
    ),
    "disk": re.compile(r"\[Errno 28\]|No space left on device|Disk quota exceeded"),
    "communication": re.compile(
        r"\bDist(Backend|Network|Store)Error\b|\bgloo\b|\bNCCL\b|\bnccl[A-Z]\w+"
        r"|\bcollective (operation )?timeout\b|\bProcessGroupNCCL watchdog\b"
    ),
}

_WATCHDOG = (
    re.compile(r"Process group watchdog thread terminated with exception: (.+)"),
    re.compile(r"(Terminating the process after attempting to dump debug info, due to .+)"),
)
"""Messages of torch's NCCL threads before they abort the process: the watchdog prints its error, which may be
a CUDA error, too; the watchdog's monitor only prints that it terminates the process."""


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """The record that a rank writes before it exits: `run/ranks/rank-N.json`."""

    reason: Line | None = None
    step: Step = 0
    exit_code: ExitCode | None = None
    asked: bool = False
    """True when the rank itself received SIGTERM."""
    exception: Line | None = None
    """Type and message of its error in one line."""
    traceback: Lines | None = None
    at: EpochSeconds = 0.0


def read_rank_record(box: Path, rank: int) -> RankRecord:
    """Read the record of a rank; an empty record if it is missing or malformed."""
    try:
        return cast(RankRecord, read_json(RankRecord, _record_path(box, rank).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return RankRecord()


def _record_path(box: Path, rank: int) -> Path:
    return box / layout.RANKS / f"rank-{rank}.json"


class RankExit:
    """A context around the whole work of a rank; its exit ends the process."""

    def __init__(self, box: Path, rank: int, heart: Heartbeat) -> None:
        self.reason: Reason = "error"
        """Reason that is written if no error was raised."""
        self.asked: Callable[[], bool] = lambda: False
        """Return True if this rank received SIGTERM."""
        self._path = _record_path(box, rank)
        self._heart = heart

    def __enter__(self) -> RankExit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> NoReturn:
        if error is not None:
            self.reason = reason_of(error)
            _print_error(error)
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
        if isinstance(link, OSError) and link.errno in _DISK_FULL:
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


def _print_error(error: BaseException) -> None:
    """Print an error to stderr: in one line if the user can correct it, else with its traceback.

    Nothing is printed when another rank prints the same.
    """
    if isinstance(error, (ConfigError, DivergedError)) and error.reported_elsewhere:
        return
    if isinstance(error, (DataError, WorkerDiedError, ConfigError, DivergedError, SaveError)):
        print(_one_line(error), file=sys.stderr)
    else:
        traceback.print_exception(error)


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


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An uncaught exception."""

    exception: str
    """Type and message in one line."""
    traceback: str


def last_raised(log: Path) -> Raised | None:
    """Return the last exception in a program's log; None when there is none."""
    return parse_raised(_tail(log))


def last_abort(log: Path) -> Raised | None:
    """Return from a program's log why NCCL's watchdog aborted it; None when it did not."""
    text = _tail(log)
    found = next((met for pattern in _WATCHDOG if (met := pattern.search(text))), None)
    return Raised(exception=found[1].strip(), traceback=found[0].strip()) if found else None


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return file.read().decode("utf-8", errors="replace")


def parse_raised(text: str) -> Raised | None:
    """Return the last exception in a text; of a chain, the exception that was raised last."""
    lines = _RANK_PREFIX.sub("", text).split("\n")
    headers = [number for number, line in enumerate(lines) if line == _HEADER]
    if not headers:
        bare = next((line for line in reversed(lines) if _BARE_ERROR.match(line)), None)
        return Raised(exception=bare, traceback=bare) if bare else None
    start = headers[-1]
    end = _end_of_stack(lines, start)
    if end is None:
        return None
    return _of_worker(lines, start, end) or Raised(
        exception=lines[end].rstrip(), traceback="\n".join(lines[start : end + 1])
    )


def _end_of_stack(lines: Sequence[str], start: int) -> int | None:
    """Return the number of the line with the exception, of a stack whose header is line `start`."""
    return next((n for n in range(start + 1, len(lines)) if not lines[n].startswith((" ", "\t"))), None)


def _of_worker(lines: Sequence[str], start: int, end: int) -> Raised | None:
    """Return the error of a worker process, or the signal that killed it; None: it is not about a worker.

    torch re-raises the worker's exception with "Caught X in DataLoader worker process 0." as its message. For
    a killed worker it may name the signal only in an exception that a second one follows.
    """
    if caught := _IN_WORKER.search(lines[end]):
        inner = end + 1
        its_end = _end_of_stack(lines, inner) if lines[inner : inner + 1] == [f"Original {_HEADER}"] else None
        if its_end is not None:
            text = "\n".join(lines[start : its_end + 1])
            return Raised(exception=f"{lines[its_end]} (in {caught[1]})", traceback=text)
    if _WORKER_GONE.search(lines[end]):
        killed = next((line for line in reversed(lines[:start]) if _WORKER_KILLED.match(line)), None)
        if killed is not None:
            return Raised(exception=killed.strip(), traceback="\n".join([killed, *lines[start : end + 1]]))
    return None


def reason_of_text(exception: str) -> Reason:
    """Return the reason for an exception by its type and message."""
    return next((reason for reason, pattern in _REASON_OF_TEXT.items() if pattern.search(exception)), "error")


def reason_of_abort(exception: str) -> Reason:
    """Return the reason for a process that aborted: why NCCL's watchdog did it, or "signal"."""
    reason = reason_of_text(exception)
    return "signal" if reason == "error" else reason
