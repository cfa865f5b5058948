"""Running: every check in a process of its own, ended at its limit; all of them within a limit together."""

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NoReturn

from tests.gpu.check import Broken, Check, Place, Result, Seen, State, concluded
from vastrun.onstart.supervision.processes import adopt_orphans, die_with_parent, kill_descendants

_PRELOADED = "tests.trainer.preloaded"
_ON_A_BUSY_COMPUTER_S = 600.0
"""Limit of each check on a CPU: how fast it is, nobody knows."""
_MIN_S = 5.0
"""Seconds that must be left to begin a check, where it is not known how long one takes."""
_AT_ONCE = 8
"""Checks that share a GPU: those that measure nothing wait for the host most of the time."""


def run_all(
    checks: Mapping[str, Check],
    place: Place,
    *,
    within_s: float,
    logs: Path,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Result]:
    """Do the checks in their order and yield each result as it is there: what must be alone first.

    A check that does not fit into the time that is left is not begun; shorter ones after it may be.
    """
    deadline = now() + within_s

    def done(name: str) -> Result:
        check, left_s = checks[name], deadline - now()
        if why := check.lacks(place):
            return Result(name=name, text=check.text, state=State.NOT_RUN, why=why)
        needed_s = check.expected_s if place.gpus else _MIN_S
        if left_s < needed_s:
            why = f"takes about {needed_s:.0f} s, and {max(0.0, left_s):.0f} of {within_s:.0f} s were left"
            return Result(name=name, text=check.text, state=State.LEFT, why=why)
        limit_s = min(check.limit_s if place.gpus else _ON_A_BUSY_COMPUTER_S, left_s)
        result = run_one(name, check, place, within_s=limit_s, log=logs / f"{name}.txt")
        if result.timed_out and limit_s == left_s:
            why = f"the {within_s:.0f} s were over after {limit_s:.0f} s of it"
            return replace(result, state=State.LEFT, why=why)
        return result

    alone = [name for name, check in checks.items() if check.alone]
    yield from map(done, alone)
    # Not as a context: an interrupt would wait for all that was submitted.
    pool = ThreadPoolExecutor(_AT_ONCE if place.gpus else 1)
    try:
        others = [pool.submit(done, name) for name in checks if name not in alone]
        yield from (future.result() for future in as_completed(others))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def start() -> None:
    """Load what all checks import, before any time is measured."""
    process = _forking().Process(target=_nothing)
    process.start()
    process.join()


def _nothing() -> None:
    pass


def run_one(name: str, check: Check, place: Place, *, within_s: float, log: Path) -> Result:
    """Do one check in a process of its own. What it prints goes to `log`; nothing of it is left."""
    context, began = _forking(), time.monotonic()
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="vastrun-gpu-", ignore_cleanup_errors=True) as folder:
        work = (there, check.run, place, Path(folder), log)
        process = context.Process(target=_do, args=work)
        process.start()
        there.close()
        try:
            answer = _answer(here, within_s)
        finally:
            process.kill()
            process.join()
            _end_session(process.pid)
    seconds = time.monotonic() - began
    if isinstance(answer, Seen):
        return concluded(name, check, answer, seconds)
    why = f"it was not done within {within_s:.0f} s" if answer is None else answer
    failed = Result(name=name, text=check.text, state=State.FAILED, why=why, seconds=seconds)
    return replace(failed, timed_out=answer is None)


def _forking() -> ForkServerContext:
    """Make processes from a server that has imported torch, once, and has opened no GPU."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def _answer(pipe: Connection, within_s: float) -> Seen | str | None:
    """Return what was seen, or what is amiss; None: it was not done in time."""
    if not pipe.poll(within_s):
        return None
    try:
        answer: Seen | str = pickle.loads(pipe.recv_bytes())
    except EOFError:
        return "its process died without a word"
    return answer


def _do(
    pipe: Connection, run: Callable[[Place, Path], Seen], place: Place, folder: Path, log: Path
) -> NoReturn:
    """Be the process of a check."""
    os.setsid()
    die_with_parent(os.getppid())
    adopt_orphans()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        answer: Seen | str = run(place, folder)
    except Broken as broken:
        answer = str(broken)
    except BaseException as error:  # noqa: BLE001 - a program that is called may leave by SystemExit
        print(traceback.format_exc(), file=sys.stderr, flush=True)
        answer = "".join(traceback.format_exception_only(error)).strip()
    kill_descendants(within_s=10.0)
    sys.stdout.flush()  # whoever has the answer kills this process
    pipe.send_bytes(pickle.dumps(answer))
    os._exit(0)


def _end_session(leader: int | None) -> None:
    """Kill what a check that was ended has left: all of its session."""
    for pid in _session(leader):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def _session(leader: int | None) -> Iterator[int]:
    for pid in _pids():
        try:
            if os.getsid(pid) == leader and pid != os.getpid():
                yield pid
        except ProcessLookupError:
            continue


def _pids() -> Iterable[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
