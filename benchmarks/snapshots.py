"""Snapshots of a program that saves all the time: torn ones, many small files, the steps that it loses."""

import itertools
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

from benchmarks.figures import Claim, max_limit, show_alone
from benchmarks.memory import PeakWatch
from tests.onstart.supervision.own_files import Watching
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.contract.snapshot_state import SnapshotState

KINDS, TRIALS, FILES, BYTES = ("tracker", "rename", "pause", "none"), 200, 50_000, 2_000_000_000


def run() -> bool:
    """Print a line for each."""
    with ThreadPoolExecutor() as threads:
        unnamed = [*threads.map(_torn, KINDS)]
    with PeakWatch() as peak, ProcessPoolExecutor(1, get_context("spawn")) as process:
        first_s, again_s = process.submit(_many_files).result()
    rows: list[tuple[str, float, str, float]] = [
        (f"torn, not named: {kind}", torn, f"of {TRIALS}", 0.0)
        for kind, torn in zip(KINDS, unnamed, strict=True)
    ]
    rows += [(f"damaged database: {mode}", _torn(mode), f"of {TRIALS}", 0.0) for mode in ("WAL", "DELETE")]
    rows += [
        ("50,000 files", first_s, "s", 5.0),
        ("unchanged", again_s, "s", 1.0),
        ("memory", peak.mib, "MiB", 120.0),
    ]
    rows += [
        ("lost to 2 GB", statistics.median(_lost_steps() for _ in range(3)), "% of the steps in 60 s", 1.0)
    ]
    claims = [(name, at, of, Claim(at, of, max_limit(most))) for name, at, of, most in rows]
    shown = [show_alone(name, [at], of, claim) for name, at, of, claim in claims]
    return all(shown)


@contextmanager
def _program(kind: str) -> Iterator[tuple[Watching, "subprocess.Popen[str]"]]:
    with tempfile.TemporaryDirectory() as folder:
        watching = Watching(box=Path(folder) / "box", pattern=None, every_s=6.0)
        command = [sys.executable, "-m", __name__, kind, str(watching.code)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            yield watching, process
            process.kill()


def _torn(kind: str) -> int:
    """Take snapshots, four times as fast as on a machine; return how many are half a save, unmarked."""
    is_half, taken = Counter[bool](), 0
    with _program(kind) as (watching, process):
        assert process.stdout is not None
        while taken < TRIALS:
            time.sleep(0.5)
            watching.poll(1, after_s=2.0, is_due=False)
            if (count := sum("files, " in said for said in watching.said)) > taken:
                taken, newest = count, newest_first(watching.box / layout.CHECKPOINTS)[0]
                files = newest / "files/code"
                if kind in KINDS:
                    is_half[SnapshotState.of(newest).is_calm] += _is_half(files)
                else:
                    is_half[True] += _is_damaged(files)
                    assert process.poll() is None, "its database was locked"
        print(
            f"{kind}: {is_half[True]} torn and {is_half[False]} named of {taken}", process.stdout.readline()
        )
    return is_half[True]


def _is_damaged(files: Path) -> bool:
    with closing(sqlite3.connect(files / "study.db")) as base:
        return base.execute("PRAGMA integrity_check").fetchall() != [("ok",)]


def _is_half(files: Path) -> bool:
    found = [files, *sorted(files.glob("step_*"), key=lambda path: int(path.name[5:]))]
    saved = files / (files / "latest").read_text() if (files / "latest").exists() else found[-1]
    if saved == files:  # nothing was saved yet
        return False
    content = b"%08d" % int(saved.name[5:]) * 20_000
    return any(not (saved / name).exists() or (saved / name).read_bytes() != content for name in "GD")


def _many_files() -> tuple[float, float]:
    """Return the seconds of a processor for the first of three snapshots, and for a look without news."""
    with tempfile.TemporaryDirectory() as folder:
        watching, times = Watching(box=Path(folder) / "box", pattern=None), list[float]()
        for number in range(FILES):
            watching.save(f"cells/{number % 100}/{number}", b"%d" % number)
        for polls in (2, 1, 2, 2):
            began = time.process_time()
            watching.poll(polls)
            times.append(time.process_time() - began)
            if len(times) > 1:
                watching.save(f"cells/new-{len(times)}")
    return times[0], times[1]


def _lost_steps() -> float:
    """Return the percentage of its steps in a minute that a program loses to a snapshot."""
    with _program("steps") as (watching, process):
        steps, out = list[float](), process.stdout
        assert out is not None and out.readline()
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        reader = threading.Thread(target=lambda: steps.extend(map(float, out)))
        reader.start()
        watching.poll(1)
        time.sleep(20)
        first = time.monotonic()
        watching.poll(1)
        last = time.monotonic()
        time.sleep(20)
        process.kill()
        reader.join()
    spans = ((first - 19, first), (first, last), (last, last + 19))
    before, meanwhile, after = (sum(a <= at < b for at in steps) / (b - a) for a, b in spans)
    lost = 1 - meanwhile / ((before + after) / 2)
    print(f"{last - first:.2f} s; steps/s {before:.0f} before, {meanwhile:.0f} meanwhile, {after:.0f} after")
    return lost * (last - first) / 60 * 100


def _save(kind: str, folder: Path) -> None:
    """Save two files for ever: with a tracker, in a folder that is renamed, after a pause, without any."""
    for step in itertools.count(1):
        place = folder / f"{'part' if kind == 'rename' else 'step'}_{step}"
        place.mkdir()
        for name in "GD":
            (place / name).write_bytes(b"%08d" % step * 20_000)
            time.sleep(0.15)
        if kind == "rename":
            place.rename(folder / f"step_{step}")
        if kind == "tracker":
            (folder / "latest").write_text(f"step_{step}")
        shutil.rmtree(folder / f"step_{step - 3}", ignore_errors=True)
        time.sleep(0 if kind == "none" else 1)
        if step == 1:
            print(flush=True)


def _commit(mode: str, folder: Path) -> None:
    base = sqlite3.connect(folder / "study.db", timeout=0, isolation_level=None)
    base.execute(f"PRAGMA journal_mode={mode}")
    base.execute("CREATE TABLE pairs(one, other)")
    began = time.monotonic()
    for number in itertools.count(1):
        base.execute("INSERT INTO pairs VALUES(?, ?)", (number, number))
        time.sleep(max(0.0, began + number / 450 - time.monotonic()))
        if number == 10_000:
            print(f"{number / (time.monotonic() - began):.0f} commits/s", flush=True)


def _train(folder: Path) -> None:
    with (folder / "state").open("wb") as file:
        for _ in range(BYTES // 1_000_000):
            file.write(os.urandom(1_000_000))
    while True:
        print(time.monotonic(), flush=True)
        sum(range(100_000))


if __name__ == "__main__":
    kind, place = sys.argv[1], Path(sys.argv[2])
    if kind in KINDS:
        _save(kind, place)
    elif kind == "steps":
        _train(place)
    else:
        _commit(kind, place)
