"""Checkpoint restore: put the newest intact checkpoint of a program back before it starts.

Standard library only.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import (
    DamagedError,
    Manifest,
    checksum_file,
    is_inside,
    newest_first,
    verify,
)
from vastrun.contract.job import Job, JobCheckpoints
from vastrun.contract.records import parse_json, read_small
from vastrun.contract.resume_command import plain_name
from vastrun.contract.stop_budget import CHECKPOINT_S
from vastrun.onstart.supervision.checkpoint_entries import is_sidecar, printable
from vastrun.onstart.supervision.checkpoint_watcher import FILES, POLL_S, STATE, CheckpointWatcher
from vastrun.onstart.supervision.program_files import FilesBefore, unmatched_weights
from vastrun.onstart.supervision.rank_process import read_processes
from vastrun.onstart.supervision.stop import StopRequest

FINAL_POLL_S = 300.0
"""Maximum seconds to store the last checkpoint after the end: the machine costs money meanwhile."""

ASIDE_FOLDER = "tmp/incomplete"
"""Folder for incomplete entries, and for those that a restored checkpoint replaces."""
_MAX_STATE_BYTES = 1 << 16
_RUN_BY_NAME = re.compile(r"^__pycache__$|\.(py[cdw]?|so|dylib|sh)$", re.IGNORECASE)
"""Names of files and folders that a program in their folder may run without naming them."""
_MAX_PAUSE_S = 600.0
"""Maximum seconds between two searches for weights that do not match `checkpoints`."""


def restore_newest(box: Path, settings: JobCheckpoints, say: Callable[[str], None]) -> str:
    """Put the newest intact checkpoint back and return its path; empty when there is none.

    Checkpoints of this run come first, then those that were uploaded with the job. Raises DamagedError when
    there are checkpoints and none is intact.
    """
    damaged = 0
    for folder in (box / layout.CHECKPOINTS, box / layout.RESUME):
        for checkpoint in newest_first(folder):
            try:
                path = _restore(checkpoint, verify(checkpoint), box, settings, say)
            except DamagedError as error:
                say(f"checkpoint {checkpoint.name} is damaged and is skipped: {error}")
                damaged += 1
                continue
            say(f"checkpoint {checkpoint.name} is restored: VASTRUN_RESUME={os.path.relpath(path, box)}")
            return str(path)
    if damaged:
        raise DamagedError(f"none of {damaged} checkpoint(s) is intact")
    return ""


def move_aside(names: Sequence[str], root: Path, box: Path, say: Callable[[str], None]) -> None:
    """Move entries of the program's folder `root` away, so that the program does not load them."""
    for name in names:
        place = _free_path(box / ASIDE_FOLDER / name)
        with suppress(OSError):  # it is gone, or on another disk
            place.parent.mkdir(parents=True, exist_ok=True)
            (root / name).rename(place)
            say(f"{name} is not the complete checkpoint; it was moved to {os.path.relpath(place, box)}")


def _free_path(place: Path) -> Path:
    number = 1
    free = place
    while free.exists():
        number += 1
        free = place.with_name(f"{place.name}.{number}")
    return free


def _restore(
    checkpoint: Path, manifest: Manifest, box: Path, settings: JobCheckpoints, say: Callable[[str], None]
) -> Path:
    """Return the path for the program: the original one in plain characters, else the stored one.

    Raises DamagedError when only a path is left that a shell could run.
    """
    stored = _name_of(checkpoint)
    if stored is None:
        return checkpoint  # of the onboard trainer, or stored by the program itself
    root, name, shown = settings.folder(box), plain_name(stored), printable(stored)
    source, target = checkpoint / FILES / stored, root / name
    why = _why_not_restored(source, target, box, settings, stored)
    if why is not None and name != stored:
        raise DamagedError(f"{shown} {why}, and its name is not plain")
    if why is not None:
        say(f"checkpoint {checkpoint.name}: {shown} {why}; it is left where it is")
        return source
    if name != stored:
        say(f"checkpoint {checkpoint.name}: {shown} becomes {name}: a shell could run its name")
    if _is_restored(target, stored, manifest):
        return target
    if os.path.lexists(target):
        move_aside([name], root, box, say)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(".restored.part")
    _remove(part)
    if source.is_dir():
        shutil.copytree(source, part, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, part)
    part.rename(target)
    return target


def _name_of(checkpoint: Path) -> str | None:
    """Return the path of a program's checkpoint relative to the program's folder; None for other ones."""
    try:
        name = parse_json(read_small(checkpoint / STATE, _MAX_STATE_BYTES))["program"]["path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_stored = isinstance(name, str) and is_inside(name) and (checkpoint / FILES / name).exists()
    return name if is_stored else None


def _why_not_restored(
    source: Path, target: Path, box: Path, settings: JobCheckpoints, name: str
) -> str | None:
    """Return why a checkpoint is not put at its place: it may come from an untrusted machine. None: it is."""
    root, pattern = settings.folder(box), settings.pattern
    if not fnmatch(name, pattern.replace("**/", "*")) or not target.parent.resolve().is_relative_to(root):
        return f"does not match {settings.files}"
    if name == pattern:  # the job names this very place
        return None
    parts = target.relative_to(root).parts
    is_text = source.is_file() and is_sidecar(target.name, pattern)
    if is_text or any(map(_RUN_BY_NAME.search, parts)) or any(source.glob("__init__.*")):
        return "has the name of code, not of a checkpoint"
    if not all(map(layout.should_download, parts)):
        return "has a name of version control"
    found = _file_in_the_way(target, box)
    return None if found is None else f"would replace {found}, which the program did not write"


def _file_in_the_way(target: Path, box: Path) -> str | None:
    """Return a file above the path, or one at or below it that was there before the program started."""
    for path in target.parents:
        if path.is_file():
            return printable(path.name)
    before, code = FilesBefore.read(box), (box / layout.CODE).resolve()
    if before is not None and target.is_relative_to(code):
        for path in (target, *target.rglob("*")):
            if path.is_symlink() or path.is_file():
                name, stat = path.relative_to(code).as_posix(), path.lstat()
                if not (before.is_new(stat) and before.has_changed(name, stat)):
                    return printable(name)
    return None


def _is_restored(target: Path, name: str, manifest: Manifest) -> bool:
    """Tell whether the program's folder has exactly these files."""
    place = f"{FILES}/{name}"
    stored = {file.path.removeprefix(place): file for file in manifest.files if file.path.startswith(place)}
    found = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    sums = {str(path)[len(str(target)) :]: path for path in found}
    if set(sums) != set(stored) or target.is_symlink():
        return False
    return all(replace(checksum_file(sums[key]), path=file.path) == file for key, file in stored.items())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(kw_only=True)
class ProgramCheckpoints:
    """The checkpoints of one supervised program; does nothing where the job has no `checkpoints`."""

    box: Path
    job: Job
    say: Callable[[str], None]
    watcher: CheckpointWatcher | None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _is_late: Callable[[], bool] = lambda: False
    """Return True once the time of the final poll is over."""

    @classmethod
    def of(cls, box: Path, job: Job, say: Callable[[str], None]) -> ProgramCheckpoints:
        """Return the checkpoints of the job's program."""
        own = cls(box=box, job=job, say=say, watcher=None)
        if job.checkpoints is not None:
            own.watcher = CheckpointWatcher(
                box=box,
                run_id=job.run_id,
                settings=job.checkpoints,
                say=say,
                is_stopping=lambda: own._stopping.is_set() or own._is_late(),
            )
        return own

    def restore(self) -> str:
        """Restore the newest checkpoint and return its path; empty on a fresh start. Raises DamagedError."""
        if self.watcher is None:
            return ""
        move_aside(self.watcher.incomplete, self.watcher.root, self.box, self.say)
        path = restore_newest(self.box, self.watcher.settings, self.say)
        self.watcher.begin()
        return path

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for new checkpoints in a separate thread while all ranks of the program live."""
        if self.watcher is None:
            yield
            return
        self._stopping.clear()
        thread = threading.Thread(target=self._watch, args=(self.watcher,), name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def final_poll(self, stop: StopRequest, *, ended_well: bool) -> None:
        """Store the last checkpoints of the program, within the remaining time of a stop."""
        if self.watcher is None:
            return
        deadline = time.monotonic() + FINAL_POLL_S
        self._stopping.clear()
        self._is_late = lambda: time.monotonic() > deadline or stop.waited_s > CHECKPOINT_S
        self.watcher.final_poll(ended_well=ended_well)
        self._is_late = lambda: False

    def _watch(self, watcher: CheckpointWatcher) -> None:
        pause_s = watcher.settings.every_s
        search_at = time.monotonic() + pause_s
        while not self._stopping.wait(min(POLL_S, watcher.settings.every_s)):
            if any(process.exit_code for process in read_processes(self.box)):
                # A file that a killed rank left half written does not change either: the final poll decides.
                return
            try:
                watcher.poll(time.monotonic())
                if time.monotonic() >= search_at:
                    pause_s = math.inf if self._report_unmatched() else min(2 * pause_s, _MAX_PAUSE_S)
                    search_at = time.monotonic() + pause_s
            except OSError as error:  # a full disk, a folder that is removed meanwhile
                self.say(f"checkpoints: {error}")

    def _report_unmatched(self) -> bool:
        """Say which weights the program wrote while nothing matches `checkpoints`. False: it wrote none."""
        weights = unmatched_weights(self.box, self.job)
        if weights and self.job.checkpoints is not None:
            self.say(
                f"checkpoints: so far nothing matches {self.job.checkpoints.files}, and the program wrote "
                f"{weights}; if that is its checkpoint, name it in the job: a restart would begin at step 0"
            )
        return bool(weights)
