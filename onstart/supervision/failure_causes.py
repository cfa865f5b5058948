"""Failure causes: what the processes of a rank raised, what its machine measured, and the line on its end.

`python_startup/sitecustomize.py` records exceptions and signals in each Python process below a rank. A row of
`MEASURED` proves its reason by what was measured, together with what the program raised; a text that was
printed proves nothing. Where no row fits, the exit code, the signal and the raised exception say the reason
(`diagnosis.reason_of_end`). `contract/outcome.REASONS` says what each reason allows. Standard library only.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.outcome import MachineReading, RankEnd, Reason
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
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in [^\n]*(?:\n    (\S[^\n]*))?', re.MULTILINE)
"""A frame of a traceback: its file, its line and, where the file was readable, the code."""


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


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The end of a rank, what it raised, and the measurements of its machine."""

    end: RankEnd
    at: float
    """Epoch seconds."""
    raised: Uncaught | None
    reading: MachineReading

    def is_recent(self, at: float | None) -> bool:
        """Tell whether something that happened then may have ended the rank."""
        return at is not None and at - SLACK_S <= self.at <= at + RECENT_S


def _memory_kill(failure: Failure) -> str:
    reading, end = failure.reading, failure.end
    if end.signal not in (None, "SIGKILL"):
        return ""
    is_killed = end.signal == "SIGKILL" or (failure.raised is not None and failure.raised.reason == "signal")
    # Of a kill that is counted for the whole computer, the program must have noticed one itself.
    if not failure.is_recent(reading.memory_killed_at) and not (reading.memory_killed and is_killed):
        return ""
    who = "it" if end.signal == "SIGKILL" else "one of its processes"
    return f"the kernel killed {who}: out of memory" + (f", {reading.memory}" if reading.memory else "")


def _full(failure: Failure, *, in_memory: bool) -> str:
    disks = failure.reading.file_systems
    full = [disk for disk in disks if failure.is_recent(disk.full_at)]
    if full:
        found = next((disk for disk in full if disk.in_memory is in_memory), None)
        return f"{found.path} ({found.size / 1e9:.3g} GB) was full" if found else ""
    if not disks or failure.raised is None or failure.raised.reason != "disk":
        return ""
    # What filled it has been removed since.
    found = min(disks, key=lambda disk: disk.free)
    room = f"{found.free / 1e9:.3g} of {found.size / 1e9:.3g} GB"
    return f"{found.path} has the least room, {room}" if found.in_memory is in_memory else ""


def _old_driver(failure: Failure) -> str:
    driver, raised = failure.reading.driver_cuda, failure.raised
    needed = (raised and raised.torch_cuda) or ""
    major = needed.partition(".")[0]
    if raised is None or not raised.module.startswith("torch.cuda") or not driver or not major.isdigit():
        return ""
    # Within a major version newer programs run on older drivers.
    is_older = int(driver.partition(".")[0]) < int(major)
    return f"the driver supports CUDA {driver}, and this torch needs {needed}" if is_older else ""


def _no_network(failure: Failure) -> str:
    reading, raised = failure.reading, failure.raised
    if reading.reachable or not reading.unreachable or (raised is not None and not raised.is_of_the_network):
        return ""
    return f"this machine no longer reaches {', '.join(reading.unreachable)}, which it did at the start"


MEASURED: tuple[tuple[Reason, Callable[[Failure], str]], ...] = (
    ("oom", _memory_kill),
    ("oom", partial(_full, in_memory=True)),
    ("disk", partial(_full, in_memory=False)),
    ("device", lambda failure: "; ".join(failure.reading.gpu_faults or ())),
    ("device", _old_driver),
    ("network", _no_network),
)
"""Reasons with what proves each, the surest first; a proof returns what it measured, or an empty text."""


def measured_cause(failure: Failure) -> tuple[Reason | None, str]:
    """Return the reason that the measurements prove, and what was measured; None: they prove none."""
    proofs = ((reason, prove(failure)) for reason, prove in MEASURED)
    return next(((reason, text) for reason, text in proofs if text), (None, ""))


def failure_line(end: RankEnd, reason: Reason, *, training: bool, crash: str = "") -> str:
    """Return a line on the failure of a rank. `training`: it ran the onboard trainer.

    `crash`: the place of a crash in native code.
    """
    where, who = where_text(end.step, end.activity), f"rank {end.rank}"
    raised, last_line = _raised(end), _last_line_text(end)
    if end.signal:
        # The exit code of a shell, or of the program's own launcher, names the signal that ended its child.
        code = f" (exit code {end.exit_code})" if (end.exit_code or 0) > 0 else ""
        cause = f": {end.exception}" if end.exception else crash and f" {crash}"
        return f"{who} was killed by {end.signal}{code}{where}{cause}"
    if end.exception and end.reason is None:
        return f"{who} exited with code {end.exit_code}{where} after it printed {raised}{last_line}"
    if end.exception and reason == "error" and not training:
        return f"your program raised {raised} ({who}{where}){last_line}"
    if end.exception:
        return f"{who} failed{where}: {raised}"
    if end.exit_code == 0:
        return f"{who} exited with code 0{where} before the training was done"
    return f"{who} exited with code {end.exit_code}{where}{last_line}"


def _raised(end: RankEnd) -> str:
    """Return the exception; one without a message with the line of code that raised it."""
    exception = end.exception or ""
    frames = [] if ":" in exception else _FRAME.findall(end.traceback or "")
    if not frames:
        return exception
    path, line, code = frames[-1]
    return f"{exception} at {PurePosixPath(path).name}:{line}" + (f": {code}" if code else "")


def _last_line_text(end: RankEnd) -> str:
    last = (end.last_lines or "").rpartition("\n")[2].strip()
    return f"; last line: {last}" if last and last not in (end.exception or "") else ""


def where_text(step: int, activity: str) -> str:
    """Format the step and the activity of a rank; empty where neither is known."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")
