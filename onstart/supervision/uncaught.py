"""Uncaught: the exceptions and signals that ended processes of a rank, and the reasons that they give.

`python_startup/sitecustomize.py` records them in each Python process below a rank. What a program only prints
is no evidence. Standard library only.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import Reason
from vastrun.contract.records import read_json, read_small

UNCAUGHT = "VASTRUN_UNCAUGHT"
"""Variable with the folder of the records, for all processes below a rank."""
RECENT_S = 120.0
"""Seconds within which the end of one process may end another."""
SLACK_S = 5.0
"""Seconds by which a fact may be recorded after the end that it caused."""
_MAX_RECORDS, _MAX_RECORD_BYTES = 64, 1 << 18
_SIGNALS = {
    **{-number: number for number in range(1, 65)},
    **{code: number for number in (4, 6, 7, 8, 9, 11, 15) for code in (128 + number, 256 - number)},
}
"""Signals by the exit codes that name them: -9 of a process; and, of signals that end programs, 128 + 9 of a
shell and 256 - 9 of a Python that exits with the code of its child."""

_REASON_OF_ERRNO: Mapping[int, Reason] = {errno.ENOMEM: "oom", errno.ENOSPC: "disk", errno.EDQUOT: "disk"}
_REASON_OF_NAME: Mapping[str, Reason] = {
    "MemoryError": "oom",
    "OutOfMemoryError": "oom",
    "DistError": "communication",
    "DistBackendError": "communication",
}
"""Reasons by the name of a class or of one of its bases."""
_NETWORK_NAME = re.compile(r"[Cc]onnect|[Tt]imeout|gaierror|URLError")
_OF_A_PROCESS = re.compile(r"\bexit ?(?:code|status)\b|\bProcess\w*Exception\b", re.IGNORECASE)
"""Matches type and text of an error about the end of another process; ProcessRaisedException is torch's."""
_REASON_OF_TEXT: Mapping[Reason, re.Pattern[str]] = {
    # The program asked for what cannot work: on another machine it would fail again.
    "error": re.compile(r"\binvalid usage\b"),
    "oom": re.compile(r"out of memory|can't allocate memory|ALLOC_FAILED|RESOURCE_EXHAUSTED|MemoryError\b"),
    "disk": re.compile(r"No space left on device|Disk quota exceeded"),
    "communication": re.compile(r"\bgloo\b|NCCL error"),
}
"""Reasons by the text of a raised exception: libraries in C++ have no types, and the exception of a wrapper
has that of its child in its text."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One exception of a chain."""

    names: tuple[str, ...]
    """Names of its class and of its bases."""
    errno: int | None
    text: str
    """Type and message, as Python prints them."""

    @property
    def reason(self) -> Reason | None:
        """Return the reason that it gives; None: it may have any."""
        if _REASON_OF_TEXT["error"].search(self.text):
            return "error"
        by_name = (_REASON_OF_NAME[name] for name in self.names if name in _REASON_OF_NAME)
        by_text = (reason for reason, pattern in _REASON_OF_TEXT.items() if pattern.search(self.text))
        return _REASON_OF_ERRNO.get(self.errno or 0) or next(by_name, None) or next(by_text, None)


@dataclass(frozen=True, kw_only=True)
class Uncaught:
    """An exception that ended a process, or a child of it that a signal may have ended."""

    pid: int
    at: float
    """Epoch seconds."""
    traceback: str = ""
    chain: tuple[Link, ...] = ()
    """From the first exception, which caused the others."""
    module: str = ""
    """Name of the module that raised the first exception."""
    torch_cuda: str | None = None
    """CUDA version of the torch that the process used; None: it used none, or one without CUDA."""
    child: int = 0
    """Pid of the child; 0: it was an exception."""
    exit_code: int | None = None
    """Exit code of the child."""
    limits: str = ""
    """What the process used of its limits."""

    @property
    def signal(self) -> str | None:
        """Return the name of the signal that ended the child; None: no signal did."""
        return signal_of(self.exit_code)

    @property
    def reason(self) -> Reason:
        """Return the reason that the first of its exceptions with one gives."""
        if self.signal:
            return "signal"
        return next((link.reason for link in self.chain if link.reason), "error")

    @property
    def is_of_the_network(self) -> bool:
        """Tell whether a connection failed, or a name did not resolve."""
        return any(_NETWORK_NAME.search(name) for link in self.chain for name in link.names)

    @property
    def line(self) -> str:
        """Return the type and the first and last line of the message in one line."""
        if self.signal:
            return f"process {self.child} was killed by {self.signal}"
        lines = [line for line in self.chain[-1].text.splitlines() if any(map(str.isalnum, line))]
        first = next((line for line in lines if not line.startswith(" ")), "")
        last = lines[-1].strip() if lines else ""
        return first if last in first else f"{first.rstrip(' .:')}: {last}"


def uncaught_folder(box: Path, rank: int) -> Path:
    """Return the folder of the records of a rank's processes."""
    return box / layout.RANKS / f"rank-{rank}.uncaught"


def uncaught_of(box: Path, rank: int, pid: int, ended_at: float) -> Uncaught | None:
    """Return what explains the end of a rank, whose program had that pid; None: nothing was recorded.

    The exception of the rank's own program, unless it is about the end of another process, or there is none:
    then what ended the process that failed first. One that lost a connection is a victim of another.
    """
    records = (each for each in records_in(uncaught_folder(box, rank)) if each.child != pid)
    recent = [each for each in records if abs(ended_at - each.at) <= RECENT_S]
    told = [_told(each, recent) for each in recent]
    own = next((each for each in told if each.pid == pid and not each.child), None)
    others = [each for each in told if each is not own]
    if own is not None and not (others and _OF_A_PROCESS.search(own.chain[-1].text)):
        return own
    # Of two records of one signal, that with the traceback of who met it.
    return min(others, key=lambda e: (e.reason == "communication", e.at, not e.traceback), default=own)


def _told(raised: Uncaught, recent: list[Uncaught]) -> Uncaught:
    """Return the signal that just then ended a child of the process which raised it; else the exception."""
    ends = (each for each in recent if each.child and each.pid == raised.pid)
    near = next((end for end in ends if abs(end.at - raised.at) <= SLACK_S), None)
    if near is None or raised.reason not in ("error", "communication"):
        return raised
    return replace(near, traceback=raised.traceback)


def records_in(folder: Path) -> Iterator[Uncaught]:
    """Yield the records of a rank's processes."""
    with suppress(FileNotFoundError):
        for path in sorted(folder.glob("*.json"))[:_MAX_RECORDS]:
            with suppress(OSError, ValueError):
                record = read_json(Uncaught, read_small(path, _MAX_RECORD_BYTES))
                if record.chain or record.signal:
                    yield record


def signal_of(code: int | None) -> str | None:
    """Return the name of the signal that an exit code names; None: it names none."""
    number = _SIGNALS.get(code or 0)
    names = (each.name for each in signal.Signals if each == number)
    return next(names, f"signal {number}") if number else None
