"""Rank process: starts the program of one rank, logs it and records its end. Standard library only.

`vastrun.onstart.supervision.rank_process PARENT` runs the job's program, with stdout and stderr in
`run/raw/rank-N.log`, and exits as the program exited. A program that is preloaded runs in a fork of the fork
server, where there is one; any other program is the only child. The record has the end of the program to the
millisecond; the launch agent polls ten times a second and counts whole seconds.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NoReturn

from vastrun.contract import layout
from vastrun.contract.job import Job, working_folder
from vastrun.contract.program import RESUME, with_resume
from vastrun.contract.records import read_json, read_small, write_atomically
from vastrun.contract.reports import read_rank_record
from vastrun.onstart.supervision.core_file import allow_core
from vastrun.onstart.supervision.environment import wandb_variables
from vastrun.onstart.supervision.failure_causes import UNCAUGHT, uncaught_folder, uncaught_of
from vastrun.onstart.supervision.fork_server import ADDRESS, ForkedProgram
from vastrun.onstart.supervision.processes import die_with_parent, send

FAILED_GRACE_S = 4.0
"""Seconds until the other ranks are killed when one has failed by itself."""
VICTIM_WAIT_S = 10.0
"""Seconds that a rank which lost a connection waits for the failure of another rank."""
_RECORD = re.compile(r"rank-\d+\.process\.json")
"""Name of the file with a rank's record."""
_RECORD_BYTES = 255


@dataclass(frozen=True, kw_only=True)
class RankProcess:
    """The record of one rank's process."""

    rank: int
    pid: int
    """Pid of the program itself."""
    started_at: float
    exit_code: int | None = None
    """Exit code; negative: minus the signal's number; None while it runs."""
    ended_at: float | None = None
    peak_bytes: int | None = None
    """Peak memory of one process of the program; None while it runs, or unknown."""


def read_processes(box: Path) -> tuple[RankProcess, ...]:
    """Return the records of the ranks that were started so far, by rank."""
    with contextlib.suppress(FileNotFoundError):
        paths = [path for path in (box / layout.RANKS).iterdir() if _RECORD.fullmatch(path.name)]
        records = (_record_of(read_small(path, 4096)) for path in paths)
        return tuple(sorted(records, key=lambda record: record.rank))
    return ()


# The record changes once, when the rank ends, and is read many times a second.
@lru_cache(maxsize=1024)
def _record_of(line: bytes) -> RankProcess:
    return read_json(RankProcess, line)


def main() -> NoReturn:
    """Run the job's program and exit as it exited."""
    die_with_parent(int(sys.argv[1]))
    box = Path(os.environ["VASTRUN_BOX"])
    server, job = os.environ.pop(ADDRESS, None), Job.read(box)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ[UNCAUGHT] = str(uncaught_folder(box, rank))
    environment = {**os.environ, **wandb_variables(job, rank, world_size, os.environ)}
    if not job.program.keeps_records:
        allow_core(box, job.ranks, environment)
    start_child = partial(Child.start, partial(_exec_program, program_of(job, environment), environment))
    run(box, rank, start_child if server is None else partial(_fork_or_start, start_child, server, box))


def program_of(job: Job, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line of a rank, with `{resume}` replaced where the job has checkpoints."""
    path = environment.get(RESUME, "")
    has_checkpoints = job.checkpoints is not None and job.checkpoints.files is not None
    return with_resume(job.rank_command, path) if has_checkpoints else job.rank_command


def run(box: Path, rank: int, start: Callable[[], Child | ForkedProgram]) -> NoReturn:
    """Start the rank's program and exit as it exited."""
    path = box / layout.RAW_LOGS / f"rank-{rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(working_folder(box))
    program = start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, partial(_forward_signal, program))
    process = _watch(box, rank, program)
    code = process.exit_code or 0
    if code > 0 and is_victim(box, process):
        _wait_for_other_failure(box, rank)
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # only the program's core is useful
    with contextlib.suppress(OSError):  # SIGKILL cannot be reset
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def is_victim(box: Path, process: RankProcess) -> bool:
    """Tell whether the rank's program failed because it lost a connection."""
    raised = uncaught_of(box, process.rank, process.pid, process.ended_at or time.time())
    own = read_rank_record(box, process.rank).reason
    return "communication" in (own, None if raised is None else raised.reason)


def failure_grace_s(box: Path, processes: Iterable[RankProcess]) -> float:
    """Return the seconds from the failure of a rank until the other ranks are killed.

    Longer while all failed ranks only lost a connection: the rank that caused it has not ended yet.
    """
    failed = [process for process in processes if process.exit_code]
    victims = bool(failed) and all(is_victim(box, process) for process in failed)
    return FAILED_GRACE_S + (VICTIM_WAIT_S if victims else 0.0)


def _wait_for_other_failure(box: Path, rank: int) -> None:
    """Wait until another rank has ended, too. When this process exits, the agent ends the other ranks, also
    the first failed one, which may close its connections before it records its error."""
    deadline = time.monotonic() + VICTIM_WAIT_S
    while time.monotonic() < deadline:
        other_ranks = (process for process in read_processes(box) if process.rank != rank)
        if any(process.exit_code is not None for process in other_ranks):
            return
        time.sleep(0.1)


def _fork_or_start(start_child: Callable[[], Child], server: str, box: Path) -> Child | ForkedProgram:
    """Request a fork from the server; without its response, start the rank like any other program."""
    try:
        return ForkedProgram.request(server, os.environ, working_folder(box))
    except OSError as error:
        os.write(2, f"this rank imports torch itself, without the fork server: {error}\n".encode())
        return start_child()


@dataclass(frozen=True)
class Child:
    """A child of this process in the same process group: a signal to the group reaches both."""

    pid: int

    @classmethod
    def start(cls, run_program: Callable[[], NoReturn]) -> Child:
        """Fork; the child calls `run_program`, which never returns."""
        watcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(watcher)
            run_program()
        return cls(pid)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _watch(box: Path, rank: int, program: Child | ForkedProgram) -> RankProcess:
    process = RankProcess(rank=rank, pid=program.pid, started_at=time.time())
    path = box / layout.RANKS / f"rank-{process.rank}.process.json"
    write_atomically(path, _line(process), durable=False)
    record = os.open(path, os.O_WRONLY)
    code = program.wait()
    # In place: the rank may have ended because the disk is full.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10 or None
    ended = replace(process, exit_code=code, ended_at=time.time(), peak_bytes=peak)
    os.pwrite(record, _line(ended).encode(), 0)
    return ended


def _line(process: RankProcess) -> str:
    """Pad the record to a fixed length, so that the final record overwrites the first one."""
    return f"{json.dumps(asdict(process)):<{_RECORD_BYTES}}\n"


def _exec_program(program: tuple[str, ...], environment: Mapping[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; a program expects the defaults
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environment)
    except OSError as error:
        os.write(2, f"cannot run {program[0]}: {_why_not(program[0], error)}\n".encode())
        os._exit(127)  # as a shell does


def _why_not(program: str, error: OSError) -> str:
    """Return why the kernel did not run a program: for an existing script, its interpreter is missing."""
    path = shutil.which(program) if error.errno == errno.ENOENT else None
    with contextlib.suppress(OSError):
        first = read_small(path, _RECORD_BYTES).partition(b"\n")[0] if path else b""
        if first.endswith(b"\r"):
            return "its first line ends with a carriage return (a Windows line ending); save it with LF alone"
        if first.startswith(b"#!"):
            interpreter = first[2:].decode("utf-8", "replace").strip()
            return f"its interpreter was not found: {interpreter}"
    return error.strerror or str(error)


def _forward_signal(program: Child | ForkedProgram, number: int, _frame: object) -> None:
    """Pass a signal on to a fork. A child has received it already, as a member of this process group."""
    if isinstance(program, ForkedProgram):
        send(program.pid, number)


if __name__ == "__main__":
    main()
