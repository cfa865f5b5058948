"""Logged error: find in a program's log the exception that ended it, and its reason by its text.

Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.errors import FAILED_DEVICE, NO_MEMORY
from vastrun.contract.outcome import Reason

_IN_WORKER = re.compile(r"Caught \w{1,80} in (.{1,200})\.$")
"""Torch's message for the exception of a worker; the worker's traceback follows it."""
_WORKER_GONE = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly$")
_WORKER_KILLED = re.compile(r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: .+")

_NCCL_LAST = "Last error:"
_NCCL_LINES = 6
"""Lines below an error of NCCL in which its reason is looked for."""

_HEADER = "Traceback (most recent call last):"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""Prefix that torch adds to each line of a traceback once a process group exists."""
_BARE_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)(: .*)?$")

_REASON_OF_TEXT: Mapping[Reason, re.Pattern[str]] = {
    # The program asked for what cannot work: on another machine it would fail again.
    "error": re.compile(r"NCCL built in|Duplicate GPU detected"),
    "device": FAILED_DEVICE,
    "oom": NO_MEMORY,
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
class Raised:
    """An uncaught exception."""

    exception: str
    """Type and message in one line."""
    traceback: str


def last_raised(log: Path) -> Raised | None:
    """Return the last exception in a program's log; None when there is none."""
    return parse_raised(_end_of(log))


def last_abort(log: Path) -> Raised | None:
    """Return from a program's log why NCCL's watchdog aborted it; None when it did not."""
    text = _end_of(log)
    found = next((met for pattern in _WATCHDOG if (met := pattern.search(text))), None)
    return Raised(exception=found[1].strip(), traceback=found[0].strip()) if found else None


def _end_of(log: Path) -> str:
    return read_end(log, 1 << 16).decode("utf-8", errors="replace")


def read_end(path: Path, max_bytes: int) -> bytes:
    """Return the last bytes of a file; empty where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read(max_bytes)
    return b""


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
    return (
        _of_worker(lines, start, end)
        or _of_nccl(lines, start, end)
        or Raised(exception=lines[end].rstrip(), traceback="\n".join(lines[start : end + 1]))
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


def _of_nccl(lines: Sequence[str], start: int, end: int) -> Raised | None:
    """Return an error of NCCL with the reason that NCCL gave last; None: it is none, or has no such reason.

    torch writes it below the exception: `ncclInvalidUsage: ...`, `Last error:` and the reason.
    """
    below = lines[end + 1 : end + 1 + _NCCL_LINES]
    if "NCCL error in" not in lines[end] or _NCCL_LAST not in below[:-1]:
        return None
    last = below.index(_NCCL_LAST) + 1
    text = "\n".join(lines[start : end + 2 + last])
    return Raised(exception=f"{lines[end].rstrip()}: {below[last].strip()}", traceback=text)


def reason_of_text(exception: str) -> Reason:
    """Return the reason for an exception by its type and message."""
    return next((reason for reason, pattern in _REASON_OF_TEXT.items() if pattern.search(exception)), "error")


def reason_of_abort(exception: str) -> Reason:
    """Return the reason for a process that aborted: why NCCL's watchdog did it, or "signal"."""
    reason = reason_of_text(exception)
    return "signal" if reason == "error" else reason
