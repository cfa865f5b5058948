"""One rank as a process: started, logged, watched to its end. Standard library only.

`vastrun.trainer.supervision.rank_process PARENT` runs the job's program, with stdout and stderr in
`run/raw/rank-N.log`, and leaves as the program left. The onboard trainer runs in a copy that the fork server
makes, where there is one; everything else is the only child. The record says when and how the program ended,
to the millisecond; the launch agent cannot: it looks ten times a second and counts whole seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NoReturn, Protocol

from vastrun.contract import layout
from vastrun.contract.job import Job, working_folder
from vastrun.contract.records import read_json, read_small, write_atomically
from vastrun.contract.resume_command import RESUME, with_resume
from vastrun.trainer.distributed.exit import last_raised, reason_of_text
from vastrun.trainer.supervision.core_file import allow_core
from vastrun.trainer.supervision.fork_server import ADDRESS, Copy
from vastrun.trainer.supervision.processes import die_with_parent, send

VICTIM_S = 10.0
"""How long a rank that lost another waits for that one's own words."""
_LOOK_EVERY_S = 0.1
_CANNOT_RUN = 127
_RECORD = re.compile(r"rank-\d+\.process\.json")
"""The name of the file with a rank's record."""
_WIDTH = 255
_MOST = 4096
_DEFAULT_AGAIN = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, kw_only=True)
class RankProcess:
    """The record of one rank's process."""

    rank: int
    pid: int
    """Of the program itself."""
    started_at: float
    exit_code: int | None = None
    """None while it runs; negative: minus the signal's number."""
    ended_at: float | None = None
    peak_bytes: int | None = None
    """Most memory that one process of the program had at once; None: it runs, or it is not known."""


def read_processes(box: Path) -> tuple[RankProcess, ...]:
    """List the ranks that were started so far, in order."""
    with contextlib.suppress(FileNotFoundError):
        paths = [path for path in (box / layout.RANKS).iterdir() if _RECORD.fullmatch(path.name)]
        records = (_record_of(read_small(path, _MOST)) for path in paths)
        return tuple(sorted(records, key=lambda record: record.rank))
    return ()


# It changes once, when the rank ends, and is read many times a second.
@lru_cache(maxsize=1024)
def _record_of(line: bytes) -> RankProcess:
    record: RankProcess = read_json(RankProcess, line)
    return record


class Program(Protocol):
    """The program of a rank, started."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Return the exit code once it has ended; negative: minus the signal's number."""
        ...


def main() -> NoReturn:
    """Run the job's program and leave as it left."""
    die_with_parent(int(sys.argv[1]))
    box = Path(os.environ["VASTRUN_BOX"])
    server, job = os.environ.pop(ADDRESS, None), Job.read(box)
    if job.is_diloco:
        os.environ.update(among_all(job.nodes, os.environ))
    environment = dict(os.environ)
    if job.command is not None:
        allow_core(box, job.ranks, environment)
    own = partial(Child.start, partial(_become, program_of(job, environment), environment))
    run(box, int(os.environ["RANK"]), own if server is None else partial(_copy_or, own, server, box))


def program_of(job: Job, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line of a rank, with `{resume}` filled in where the job names checkpoints."""
    path = environment.get(RESUME, "")
    return job.program if job.checkpoints is None else with_resume(job.program, path)


def among_all(nodes: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the number of a rank among those of all nodes: to its agent only those of its node are known."""
    here, node = int(environ["WORLD_SIZE"]), int(environ["VASTRUN_NODE"])
    return {"RANK": str(node * here + int(environ["RANK"])), "WORLD_SIZE": str(nodes * here)}


def run(box: Path, rank: int, start: Callable[[], Program]) -> NoReturn:
    """Start the rank's program and leave as it left."""
    _log_into(box / layout.RAW_LOGS / f"rank-{rank}.log")
    os.chdir(working_folder(box))
    program = start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, partial(_leave_it_to, program))
    code = _watch(box, rank, program)
    if code > 0 and is_victim(box, rank):
        _let_another_speak(box, rank)
    _leave_alike(code)


def is_victim(box: Path, rank: int) -> bool:
    """Tell whether the rank's program failed because it lost others, as its log says."""
    raised = last_raised(box / layout.RAW_LOGS / f"rank-{rank}.log")
    return raised is not None and reason_of_text(raised.exception) == "communication"


def _let_another_speak(box: Path, rank: int) -> None:
    """Wait until another rank has ended, too. Once this process leaves, the agent ends the others, also that
    which failed first, and may have closed its connections before it says why."""
    deadline = time.monotonic() + VICTIM_S
    while time.monotonic() < deadline:
        others = (process for process in read_processes(box) if process.rank != rank)
        if any(process.exit_code is not None for process in others):
            return
        time.sleep(_LOOK_EVERY_S)


def _copy_or(own: Callable[[], Program], server: str, box: Path) -> Program:
    """Fork a copy of the server's; without an answer from it the rank starts as any other program does."""
    try:
        return Copy.ask_for(server, os.environ, working_folder(box))
    except OSError as error:
        os.write(2, f"this rank imports torch by itself: {error}\n".encode())
        return own()


@dataclass(frozen=True)
class Child:
    """A child of this process. It is in its process group: a signal to the group reaches both."""

    pid: int

    @classmethod
    def start(cls, become: Callable[[], NoReturn]) -> Child:
        """Fork; the child runs `become`, which never returns."""
        watcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(watcher)
            become()
        return cls(pid)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _watch(box: Path, rank: int, program: Program) -> int:
    process = RankProcess(rank=rank, pid=program.pid, started_at=time.time())
    path = box / layout.RANKS / f"rank-{process.rank}.process.json"
    write_atomically(path, _line(process), durable=False)
    record = os.open(path, os.O_WRONLY)
    code = program.wait()
    # In place: the rank may have ended because the disk is full.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10 or None
    ended = replace(process, exit_code=code, ended_at=time.time(), peak_bytes=peak)
    os.pwrite(record, _line(ended).encode(), 0)
    return code


def _line(process: RankProcess) -> str:
    """Write it always as long, so that the end overwrites the beginning."""
    return f"{json.dumps(asdict(process)):<{_WIDTH}}\n"


def _become(program: tuple[str, ...], environment: Mapping[str, str]) -> NoReturn:
    for number in _DEFAULT_AGAIN:  # Python ignores these; a program expects them as they were
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environment)
    except OSError as error:
        os.write(2, f"cannot run {program[0]}: {_why_not(program[0], error)}\n".encode())
        os._exit(_CANNOT_RUN)


def _why_not(program: str, error: OSError) -> str:
    """Say why the kernel did not run a program: of a script that is there, its interpreter is not."""
    path = shutil.which(program)
    if error.errno != errno.ENOENT or path is None:
        return error.strerror or str(error)
    with contextlib.suppress(OSError):
        first = read_small(path, _WIDTH).partition(b"\n")[0]
        if first.endswith(b"\r"):
            return "its first line ends with a carriage return (a Windows line ending); save it with LF alone"
        if first.startswith(b"#!"):
            interpreter = first[2:].decode("utf-8", "replace").strip()
            return f"its interpreter was not found: {interpreter}"
    return error.strerror or str(error)


def _log_into(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _leave_it_to(program: Program, number: int, _frame: object) -> None:
    """Let the program decide. A child has had the signal, as one of this group; a copy has not."""
    if isinstance(program, Copy):
        send(program.pid, number)


def _leave_alike(code: int) -> NoReturn:
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core is of use, ours is not
    with contextlib.suppress(OSError):  # SIGKILL cannot be reset, and need not be
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


if __name__ == "__main__":
    main()
