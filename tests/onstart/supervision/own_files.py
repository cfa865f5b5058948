"""A program's folder with snapshots of it, by a clock of its own, and a process that writes a file."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.onstart.supervision.launches import job_of
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.contract.job import Job
from vastrun.onstart.supervision.program_files import note_files
from vastrun.onstart.supervision.snapshot_restore import ProgramSnapshots
from vastrun.onstart.supervision.snapshots import Snapshots

WEIGHTS = bytes(range(256))


@dataclass(kw_only=True)
class Watching:
    """A box with a program's folder, and the snapshots of it."""

    box: Path
    pattern: str | None = "checkpoints/*"
    keep: int = 2
    every_s: float = 10.0
    max_gb: float | None = None
    shipped: tuple[str, ...] = ()
    """Files that came with the job."""
    said: list[str] = field(default_factory=list)
    now: float = 1000.0
    starts: int = 0

    def __post_init__(self) -> None:
        self.code.mkdir(parents=True)
        for name in self.shipped:
            self.path(name).write_text("ours")
        settings: dict[str, Any] = {"files": self.pattern, "keep": self.keep, "every_s": self.every_s}
        settings |= {"max_gb": self.max_gb}
        (self.box / layout.JOB).write_text(json.dumps(job_of(checkpoints=settings)))
        job = Job.read(self.box)
        note_files(self.box, job)
        self.program = ProgramSnapshots(box=self.box, job=job, say=self.said.append)
        self.watcher.begin()

    @property
    def watcher(self) -> Snapshots:
        assert self.program.watcher is not None
        return self.program.watcher

    @property
    def code(self) -> Path:
        return self.box / layout.CODE

    def path(self, name: str) -> Path:
        """A place below the program's folder, whose parent is there."""
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def save(self, name: str, content: bytes = WEIGHTS, *, age_s: float = 10.0) -> Path:
        """Write the file as a program did, so long ago."""
        path = self.path(name)
        path.write_bytes(content)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        return path

    def poll(self, times: int = 2, *, is_due: bool = True) -> None:
        """Look several times, two seconds apart; `is_due`: the next snapshot is due by now."""
        self.now += self.every_s * is_due
        for _ in range(times):
            self.now += 2.0
            self.watcher.poll(self.now)

    def save_and_poll(self, name: str, content: bytes = WEIGHTS) -> Path:
        """Write the file as a program did, and look twice once a snapshot is due."""
        path = self.save(name, content)
        self.poll()
        return path

    def taken(self) -> list[str]:
        """The names of the snapshots, the newest first."""
        return [path.name for path in newest_first(self.box / layout.CHECKPOINTS)]

    def content(self, name: str) -> bytes:
        """Of the newest snapshot's file."""
        return (newest_first(self.box / layout.CHECKPOINTS)[0] / "files/code" / name).read_bytes()

    def files(self) -> dict[str, bytes]:
        """The files of the program's folder, and their content."""
        return {
            path.relative_to(self.code).as_posix(): path.read_bytes()
            for path in self.code.rglob("*")
            if path.is_file()
        }

    def next_machine(self) -> "Watching":
        """Another box whose job came with the snapshots of this one, before its first start."""
        box = self.box.with_name(f"{self.box.name}-next")
        box.mkdir()
        (self.box / layout.CHECKPOINTS).rename(box / layout.RESUME)
        return Watching(box=box, pattern=self.pattern, shipped=self.shipped)

    def restore(self) -> str:
        """Restore as before the next start; the path to continue from, relative to the box."""
        path = self.program.restore(self.starts)
        self.starts += 1
        return os.path.relpath(path, self.box) if path else ""


WRITES = 'exec 3>"$1"; printf half >&3; echo open; while read _; do printf " whole" >&3; echo; done'
MAPS = """
import mmap, sys
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
print("open", flush=True)
input()
"""


class Writer:
    """A child of this process that has a file open for writing, or mapped, until it is told to go on."""

    def __init__(self, path: Path, *, is_mapped: bool = False) -> None:
        program = (sys.executable, "-c", MAPS) if is_mapped else ("sh", "-c", WRITES, "sh")
        self._process = subprocess.Popen([*program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"open\n"

    def go_on(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def finish(self) -> None:
        self._process.communicate(b"\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
