"""Snapshot restore: put what a program wrote back before it starts, as the newest intact snapshot has it.

A snapshot may come from a stranger's machine: nothing in it replaces what came with the job, leads out of the
folders of the program, or has a name under which code is found. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import (
    FILES,
    DamagedError,
    Manifest,
    SnapshotState,
    is_inside,
    newest_first,
    verify,
)
from vastrun.contract.job import Job, JobCheckpoints
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.program import plain_name
from vastrun.contract.stop_budget import CHECKPOINT_S
from vastrun.contract.texts import how_many
from vastrun.onstart.supervision.program_files import FilesBefore, printable
from vastrun.onstart.supervision.rank_process import read_processes
from vastrun.onstart.supervision.snapshots import Snapshots
from vastrun.onstart.supervision.stop import StopRequest

FINAL_POLL_S = 300.0
"""Maximum seconds to store the last snapshot after the end: the machine costs money meanwhile."""
ASIDE_FOLDER = "tmp/incomplete"
"""Folder for half-written files, and for those that a restored snapshot replaces."""
_CODE = re.compile(r"\.(py[cdw]?|so|dylib|sh)$", re.IGNORECASE)


def newest_intact(folders: Sequence[Path], say: Callable[[str], None]) -> tuple[Path, Manifest] | None:
    """Return the newest intact snapshot of the first folder that has one; one between two saves comes first.

    Raises DamagedError when there are snapshots and none is intact.
    """
    damaged = 0
    for folder in folders:
        for checkpoint in sorted(newest_first(folder), key=lambda path: not SnapshotState.of(path).is_calm):
            try:
                return checkpoint, verify(checkpoint)
            except DamagedError as error:
                say(f"checkpoint {checkpoint.name} is damaged and is skipped: {error}")
                damaged += 1
    if damaged:
        raise DamagedError(f"none of {how_many(damaged, 'checkpoint')} is intact")
    return None


@dataclass(kw_only=True)
class Restore:
    """Puts one intact snapshot back into the folders of a box."""

    box: Path
    settings: JobCheckpoints
    checkpoint: Path
    manifest: Manifest
    say: Callable[[str], None]
    _left: dict[str, str] = field(default_factory=dict)
    """Why a name was not restored."""

    def __post_init__(self) -> None:
        self.state = SnapshotState.of(self.checkpoint)
        self._before = FilesBefore.read(self.box)
        listed, start = self.manifest.files, f"{FILES}/"
        self.files = {file.path.removeprefix(start): file for file in listed if file.path.startswith(start)}
        """The files by their paths relative to the box."""

    @property
    def resume(self) -> str:
        """Return the path of the newest checkpoint: its own place, or in the snapshot where that was refused.

        Empty: the snapshot names none.
        """
        name = self.state.resume
        if not name or not is_inside(name) or not (self.checkpoint / FILES / name).exists():
            return ""
        if name not in self._left and (self.box / name).exists():
            return str(self.box / name)
        return str(self.checkpoint / FILES / name)

    def put_back(self, written: Sequence[str]) -> None:
        """Restore all files. `written`: what is there; of it, what the snapshot has not is moved aside."""
        for name in (name for name in written if name not in self.files):
            move_aside(self.box, name, self.say)
        for name, file in self.files.items():
            self._file(name, file)
        for name in self.state.folders:
            if self._may_restore(name):
                with suppress(OSError):  # a file is there
                    (self.box / name).mkdir(parents=True, exist_ok=True)
        for name, target in self.state.links.items():
            self._link(name, target)
        for why in sorted(set(self._left.values())):
            left = [printable(name) for name, text in self._left.items() if text == why]
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            self.say(f"snapshot: {', '.join(left[:3])}{more} not restored: {why}")

    def unread(self) -> list[str]:
        """Return the restored files whose access times will show that they were read; none where none do."""
        probe = self.box / ".read.part"
        with suppress(OSError):
            probe.write_bytes(b"x")
            os.utime(probe, ns=(0, 0))
            is_noted = probe.read_bytes() and probe.stat().st_atime_ns
            probe.unlink()
            stats = {name: (self.box / name).lstat() for name in self.files if name not in self._left}
            return [n for n, stat in stats.items() if is_noted and stat.st_atime_ns == stat.st_mtime_ns]
        return []

    def _file(self, name: str, file: FileChecksum) -> None:
        target, source = self.box / name, self.checkpoint / file.path
        if not self._may_restore(name) or _begins_with(target, file):
            return
        if os.path.lexists(target):
            move_aside(self.box, name, self.say)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            self._left[name] = "a file is in the place of its folder"
            return
        part = target.with_name(".restored.part")
        part.unlink(missing_ok=True)
        shutil.copyfile(source, part)
        mode, written_us = (*self.state.files.get(name, ()), 0o644, time.time_ns() // 1000)[:2]
        part.chmod(mode & 0o777)
        os.utime(part, ns=(written_us * 1000, written_us * 1000))
        part.rename(target)

    def _link(self, name: str, target: str) -> None:
        place = self.box / name
        end = os.path.normpath(place.parent / target)
        if os.path.lexists(place) or not self._may_restore(name):
            return
        if _folder_of(self.box, os.path.relpath(end, self.box)) is None:
            self._left[name] = "a link out of the program's folders"
            return
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)

    def _may_restore(self, name: str) -> bool:
        """Tell whether the name may be put back, and note why not."""
        folder = _folder_of(self.box, name)
        if folder is None or not (self.box / name).parent.resolve().is_relative_to(folder.resolve()):
            self._left[name] = "it leads out of the program's folders"
        elif not all(map(layout.should_download, PurePosixPath(name).parts)):
            self._left[name] = "a name of version control"
        elif name == f"{layout.CODE}/{self.settings.pattern}":  # the job names this very place
            return True
        elif _is_code(name):
            self._left[name] = "a name of code, which the program might run"
        elif self._is_shipped(name):
            self._left[name] = "it came with the job"
        return name not in self._left

    def _is_shipped(self, name: str) -> bool:
        target, before = self.box / name, self._before
        if not name.startswith(f"{layout.CODE}/") or not os.path.lexists(target):
            return False
        own = name.removeprefix(f"{layout.CODE}/")
        return before is None or before.is_cut or target.is_symlink() or own in before.noted


def _folder_of(box: Path, name: str) -> Path | None:
    """Return the folder of the program in which the name lies; None: it is in none, or leads out."""
    if not is_inside(name):
        return None
    folders = (box / layout.CODE, box / layout.OUTPUTS)
    return next((folder for folder in folders if (box / name).is_relative_to(folder)), None)


def _is_code(name: str) -> bool:
    """Tell whether an import, or a script that looks for a helper, may find the file by its name.

    A module's folders have names of Python; `checkpoint-500/model.py` is only run by who names that path.
    """
    path = PurePosixPath(name)
    place = layout.OUTPUTS if path.is_relative_to(layout.OUTPUTS) else layout.CODE
    folders = path.relative_to(place).parts[:-1]
    return _CODE.search(path.name) is not None and all(map(str.isidentifier, folders))


def _begins_with(target: Path, file: FileChecksum) -> bool:
    """Tell whether the file is there, or is there and was continued, as a log is."""
    if target.is_symlink() or not target.is_file() or target.stat().st_size < file.size:
        return False
    digest, left = hashlib.sha256(), file.size
    with target.open("rb") as content:
        while chunk := content.read(min(1 << 20, left)):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest() == file.sha256


def move_aside(box: Path, name: str, say: Callable[[str], None]) -> None:
    """Move a file of the box away, so that the program does not load it."""
    place = box / ASIDE_FOLDER / name
    number = 1
    while os.path.lexists(place):
        number += 1
        place = place.with_name(f"{PurePosixPath(name).name}.{number}")
    with suppress(OSError):  # it is gone, or on another disk
        place.parent.mkdir(parents=True, exist_ok=True)
        (box / name).rename(place)
        say(f"{printable(name)} was moved to {printable(os.path.relpath(place, box))}")


@dataclass(kw_only=True)
class ProgramSnapshots:
    """The snapshots of one supervised program; does nothing where the job has none."""

    box: Path
    job: Job
    say: Callable[[str], None]
    watcher: Snapshots | None = None
    restored_step: int | None = None
    """The program's step in the snapshot that was put back before its first start, 0 if unknown; None: none
    was."""
    are_reads_seen: bool = False
    """True when a program that reads what was put back before its first start is seen to do so."""
    _bases: tuple[str | None, ...] = ()
    """The newest calm snapshot at each start so far; None: there was none."""

    def __post_init__(self) -> None:
        if self.job.checkpoints is not None:
            self.watcher = Snapshots(box=self.box, job=self.job, settings=self.job.checkpoints, say=self.say)

    def restore(self, start: int) -> str:
        """Put the program's files back, and return the path of its newest checkpoint; empty: it has none.

        Before the first start of the ranks, and after they were killed in a save, the whole snapshot. Before
        another restart nothing: the program finds what it left. After a start that saved nothing the whole
        snapshot again, since what the program finds may be what it fails on. Raises DamagedError.
        """
        watcher = self.watcher
        if watcher is None:
            return ""
        folders, stored, found = (self.box / layout.CHECKPOINTS, self.box / layout.RESUME), "", None
        unread = list[str]()
        calm = [path for folder in folders for path in newest_first(folder) if SnapshotState.of(path).is_calm]
        base = str(calm[0]) if calm else None
        if watcher.is_torn or not self._bases or base == self._bases[-1]:
            found = newest_intact(folders, self.say)
        self._bases = (*self._bases, base)
        if found is not None:
            own = Restore(
                box=self.box, settings=watcher.settings, checkpoint=found[0], manifest=found[1], say=self.say
            )
            written = watcher.watch.scan() if start else {}
            own.put_back([name for name, state in written.items() if state.is_file])
            stored = own.resume
            step = own.state.step
            if not start:
                unread = own.unread() if stored in ("", f"{self.box / own.state.resume}") else []
                self.restored_step, self.are_reads_seen = step, bool(unread)
            saved = f", saved at step {step}" if step else ""
            self.say(f"snapshot {found[0].name} is restored: {how_many(len(own.files), 'file')}{saved}")
        for name in watcher.half_written if found is None else ():
            move_aside(self.box, name, self.say)
        watcher.begin(is_restored=found is not None, unread=unread)
        newest = watcher.newest_checkpoint()
        return self._resume(stored or (str(self.box / newest) if newest else ""), found)

    def _resume(self, path: str, found: tuple[Path, Manifest] | None) -> str:
        """Return the path from which the program continues, in characters that no shell reads as more."""
        if not path and found is not None and not (found[0] / FILES).is_dir():
            path = str(found[0])  # of the onboard trainer, or stored by the program itself
        name = os.path.relpath(path, self.box) if path else ""
        if plain_name(name) != name:
            plain = self.box / "tmp/restored" / plain_name(PurePosixPath(name).name)
            plain.parent.mkdir(parents=True, exist_ok=True)
            plain.unlink(missing_ok=True)
            plain.symlink_to(path)
            shown = os.path.relpath(plain, self.box)
            self.say(f"a shell could run the name {printable(name)}: the program gets {shown}, a link to it")
            path = str(plain)
        if path:
            self.say(f"VASTRUN_RESUME={os.path.relpath(path, self.box)}")
        return path

    def read_file(self) -> str | None:
        """Return the largest restored file that the program has read; empty: it read none; None: unknown."""
        read = self.watcher.watch.read if self.watcher is not None else ()
        sizes = {name: (self.box / name).stat().st_size for name in read if (self.box / name).exists()}
        return printable(max(sizes, key=sizes.__getitem__, default="")) if self.are_reads_seen else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take snapshots in a separate thread while all ranks of the program live."""
        if self.watcher is None:
            yield
            return
        stopping = threading.Event()
        self.watcher.is_stopping = stopping.is_set
        args = (self.watcher, stopping)
        thread = threading.Thread(target=self._watch, args=args, name="snapshots", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def final_poll(self, stop: StopRequest, exit_codes: Sequence[int | None]) -> None:
        """Store the last snapshot of the program, within the remaining time of a stop."""
        if self.watcher is None:
            return
        deadline = time.monotonic() + FINAL_POLL_S
        self.watcher.is_stopping = lambda: time.monotonic() > deadline or stop.waited_s > CHECKPOINT_S
        self.watcher.final_poll(
            ended_well=bool(exit_codes) and not any(exit_codes),
            was_stopped=stop.cause is not None,
            was_killed=any(code is None or code < 0 for code in exit_codes),
        )

    def _watch(self, watcher: Snapshots, stopping: threading.Event) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not stopping.wait(min(watcher.pause_s, watcher.settings.every_s)):
            if any(process.exit_code for process in read_processes(self.box)):
                # A file that a killed rank left half written does not change either: the final look decides.
                return
            try:
                watcher.poll(time.monotonic())
            except OSError as error:  # a full disk, a folder that is removed meanwhile
                self.say(f"snapshot: {error}")
