"""Processes: find, signal, stop and reap descendants, and see what they write to.

Ties a process to its parent, too. Linux, standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.outcome import LeftProcess
from vastrun.onstart.optional_files import read_text

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
ZOMBIE = b"Z"
"""State of a process that has ended and was not reaped yet."""
_WAIT_FLAGS = os.WEXITED | os.WNOHANG | os.WNOWAIT
_FILTERS = frozenset(
    {"awk", "cat", "cut", "fold", "gawk", "grep", "egrep", "fgrep", "head", "less", "logger", "mawk", "more"}
    | {"nl", "pv", "rg", "sed", "sort", "tail", "tee", "tr", "ts", "uniq", "wc"}
)
"""Programs that only copy their input: they end when the program that writes to them does."""
_CONTINUE = 'while read -r pid; do all="$all $pid"; done; kill -CONT $all'
"""Shell that lets the processes go on when its input ends, also if the supervisor is killed meanwhile."""

FileId = tuple[int, int]
"""Device and inode."""


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when the thread that started it ends; at once if `parent` is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that they can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start_logged(
    command: Sequence[str], log: Path, env: Mapping[str, str], *, cwd: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, and add what it prints to a log. Raises OSError."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdin=stdin, stdout=sink, stderr=sink, start_new_session=True
        )


def descendants(pid: int) -> list[int]:
    """List living processes below `pid`, children first."""
    table, children, below = process_table(), defaultdict(list), [pid]
    for child, (_, parent, *_) in table.items():
        children[int(parent)].append(child)
    for parent_pid in below:  # grows meanwhile
        below += children[parent_pid]
    return [child for child in below[1:] if table[child][0] != ZOMBIE]


def program_processes(variable: str) -> list[LeftProcess]:
    """List living processes below this one that have the variable."""
    table = process_table()
    found = [pid for pid in descendants(os.getpid()) if pid in table and variable in environ_of(pid)]
    return [LeftProcess(pid=pid, parent=int(table[pid][1]), name=name_of(pid)) for pid in found]


def environ_of(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started; empty if it cannot be read."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)
    return {}


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the number and the path of each file that a process has open; none of another user's."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 (a name is all that is needed)
            with suppress(OSError):
                yield number, os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115


def ranks_below(pid: int) -> dict[str, set[str]]:
    """Return the ranks that a program of several processes gave these, by the variable that holds them.

    Each launcher has a name of its own for it: LOCAL_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID.
    """
    own, found = environ_of(pid), defaultdict(set)
    for child in descendants(pid):
        for name, value in environ_of(child).items():
            if name.endswith(("RANK", "PROCID")) and value != own.get(name):
                found[name].add(value)
    return {name: values for name, values in found.items() if len(values | {own.get(name)} - {None}) > 1}


def innermost_program(pid: int) -> int:
    """Return the program that a shell waits for; the process itself if it is no shell or has several.

    A filter after the program in a pipeline does not count.
    """
    children = _programs_of_shell(pid)
    return innermost_program(children[0]) if len(children) == 1 else pid


def stop_signal_targets(pid: int) -> set[int]:
    """Return the processes that must receive a SIGTERM to stop this one.

    SIGTERM ends a shell at once without its children: they receive it instead, and the shell, too, if it has
    a trap, which it runs afterwards. A filter after the program (`python x.py | tee log`) does not: without
    its reader the program would fail at its next line of output.
    """
    targets = set().union(*map(stop_signal_targets, _programs_of_shell(pid)))
    return targets | {pid} if not targets or _traps(pid, signal.SIGTERM) else targets


def _programs_of_shell(pid: int) -> list[int]:
    """List living children of a shell, started or adopted, without filters; none of another program."""
    if name_of(pid) not in ("bash", "sh", "dash", "ash", "zsh"):
        return []
    table = process_table().items()
    children = (child for child, (state, parent, *_) in table if int(parent) == pid and state != ZOMBIE)
    return sorted(child for child in children if not _is_filter(child))


def _is_filter(pid: int) -> bool:
    """Tell whether it is a filter that reads from a pipe."""
    try:
        return name_of(pid) in _FILTERS and str(Path(f"/proc/{pid}/fd/0").readlink()).startswith("pipe:")
    except OSError:
        return False


def name_of(pid: int) -> str:
    """Return the name of the program of a process; empty if it has ended."""
    return read_text(Path(f"/proc/{pid}/comm")).strip()


def _traps(pid: int, number: int) -> bool:
    status = read_text(Path(f"/proc/{pid}/status")).splitlines()
    caught = next((line.split()[1] for line in status if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def kill_descendants(*, within_s: float, exclude: int | None = None) -> None:
    """Kill all descendants of this process except `exclude`, and wait for their ends."""
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in descendants(os.getpid()) if pid != exclude]:
        for pid in alive:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def reap_orphans(*, exclude: int) -> None:
    """Reap adopted processes that have ended; `exclude` is left to its parent object."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, _WAIT_FLAGS)) is not None and ended.si_pid != exclude:
            os.waitpid(ended.si_pid, os.WNOHANG)


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def process_table() -> dict[int, list[bytes]]:
    """Map the pid of every process to its fields in /proc, from its state's letter and its parent on."""
    table = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                table[int(entry.name)] = stat_fields(entry.path)
    return table


def stat_fields(folder: Path | str) -> list[bytes]:
    """Return the state, the parent and what follows, of a process or thread in /proc. Raises OSError."""
    with open(f"{folder}/stat", "rb") as file:  # noqa: PTH123
        # The name, in parentheses, may hold anything; the fields after the last one are plain.
        return file.read().rpartition(b")")[2].split()


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    """Files below the box that processes of this run may write to."""

    written: frozenset[FileId]
    appended: frozenset[FileId]
    """Opened to append only."""
    mapped: frozenset[FileId]
    """Mapped, shared and writable: their times do not show every write."""

    @classmethod
    def of_descendants(cls, box: Path) -> OpenFiles:
        """Read what all processes below this one have open. Those of other users are passed over."""
        written, appended, mapped = set[FileId](), set[FileId](), set[FileId]()
        inside = f"{box}/"
        for pid in descendants(os.getpid()):
            process = Path(f"/proc/{pid}")
            for number in (number for number, path in open_files(pid) if path.startswith(inside)):
                with suppress(OSError, LookupError, ValueError):
                    lines = (process / "fdinfo" / number).read_text().splitlines()
                    flags = int(next(one for one in lines if one.startswith("flags:")).split()[1], 8)
                    if flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR):
                        found = (process / "fd" / number).stat()
                        group = appended if flags & os.O_APPEND else written
                        group.add((found.st_dev, found.st_ino))
            with suppress(OSError):
                mapped |= set(_mapped(process, inside))
        return cls(written=frozenset(written), appended=frozenset(appended), mapped=frozenset(mapped))


def _mapped(process: Path, inside: str) -> Iterator[FileId]:
    for line in (process / "maps").read_text(errors="replace").splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[1][1] == "w" and parts[1][3] == "s" and parts[5].startswith(inside):
            with suppress(OSError):
                found = Path(parts[5]).stat()
                yield found.st_dev, found.st_ino


@contextmanager
def stopped_program() -> Iterator[None]:
    """Stop all processes below this one for as long as the block runs; a write that has begun ends first.

    Raises TimeoutError, an OSError, when one does not stop.
    """
    guard = subprocess.Popen(
        ["sh", "-c", _CONTINUE], stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
    )
    assert guard.stdin is not None
    held: list[int] = [guard.pid]
    deadline = time.monotonic() + 0.5
    try:
        # They may start others meanwhile.
        while new := [pid for pid in descendants(os.getpid()) if pid not in held]:
            for pid in new:
                held.append(pid)
                guard.stdin.write(f"{pid}\n")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            while not all(map(_is_stopped, held[1:])):
                if time.monotonic() > deadline:
                    raise TimeoutError("a process of the program does not stop: it waits for its disk")
                time.sleep(0.0005)
        yield
    finally:
        for pid in held[1:]:
            send(pid, signal.SIGCONT)
        guard.stdin.close()
        guard.wait()


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if stat_fields(task)[0] not in b"TtZX":
                return False
    return True
