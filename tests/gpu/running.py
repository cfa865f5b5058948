"""Running: every check in a process of its own, ended at its limit; all of them within a limit together."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NoReturn

from tests.gpu.check import Broken, Check, Place, Result, Seen, State, concluded
from trainer.supervision.processes import adopt_orphans, die_with_parent, kill_descendants

_PRELOADED = "tests.trainer.preloaded"
_KILL_S = 10.0
_LEAST_S = 5.0
"""A check is not begun for less."""


def run_all(
    checks: Mapping[str, Check],
    place: Place,
    *,
    within_s: float,
    log: Path,
    tell: Callable[[Result], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> list[Result]:
    """Do the checks one by one, and tell of each as it ends; those for which no time is left are not run."""
    deadline = now() + within_s
    results = []
    for name, check in checks.items():
        left_s = deadline - now()
        if why := check.lacks(place) or (
            "" if left_s > _LEAST_S else f"the {within_s / 60:g} minutes are over"
        ):
            result = Result(name=name, text=check.text, state=State.NOT_RUN, why=why)
        else:
            result = run_one(name, check, place, within_s=min(check.seconds, left_s), log=log)
        tell(result)
        results.append(result)
    return results


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
    return Result(name=name, text=check.text, state=State.FAILED, why=answer, seconds=seconds)


def _forking() -> ForkServerContext:
    """Make processes from a server that has imported torch, once, and has opened no GPU."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def _answer(pipe: Connection, within_s: float) -> Seen | str:
    """Return what was seen, or what is amiss."""
    if not pipe.poll(within_s):
        return f"it was not done within {within_s:.0f} s"
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
    kill_descendants(within_s=_KILL_S)
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
