"""Checkpoint watcher: stores complete checkpoints of a user's program in `run/checkpoints`.

A stored checkpoint is a folder with `files/` (the program's files at their relative paths), `state.json` and
a manifest, like one of the onboard trainer. Hard links keep the files during a download, so that the program
may remove its own. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import CheckpointFolder, checksum_file, name_of, newest_first, step_of
from vastrun.contract.job import JobCheckpoints
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.onstart.supervision.checkpoint_entries import (
    Entry,
    EntryFile,
    FileId,
    completeness,
    entry_at,
    find_entries,
    open_for_writing,
)

FILES = "files"
"""Folder within a checkpoint for the program's files."""
STATE = "state.json"
POLL_S = 2.0
_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20
"""Bytes that a copy leaves free on the disk."""
_MAX_DIGITS = 9

Signature = tuple[tuple[str, int, int, FileId], ...]
"""Name, size, time of the last write and inode of each file."""


class InterruptedCopyError(Exception):
    """The time for storing a checkpoint is over, or the program changed its files meanwhile."""


@dataclass(frozen=True, kw_only=True)
class EntryObservation:
    """The state of an entry at one poll while the program ran."""

    signature: Signature
    since: float
    """Time of the first poll with this signature at which no process had it open."""
    at: float
    """Time of the last poll."""
    was_open: bool


@dataclass(kw_only=True)
class CheckpointWatcher:
    """Polls the program's files and stores the newest complete checkpoint."""

    box: Path
    run_id: str
    settings: JobCheckpoints
    say: Callable[[str], None]
    is_stopping: Callable[[], bool] = lambda: False
    """Return True to interrupt the copy in progress."""
    incomplete: tuple[str, ...] = ()
    """Names of the entries that were incomplete at the final poll."""
    _known: dict[str, Signature] = field(default_factory=dict)
    _observations: Mapping[str, EntryObservation] = field(default_factory=dict)
    _stored: dict[int, Entry] = field(default_factory=dict)
    """Entries of the stored checkpoints by step."""
    _newest_ns: int = 0
    _stored_at: float = float("-inf")
    _overwrites: bool = False
    """True once the program wrote into files that it had saved before."""
    _linked: set[FileId] = field(default_factory=set)
    """Files that had a hard link here: adding or removing it changes their ctime, as a rename does."""
    _last_step: int = -1
    _reported: set[str] = field(default_factory=set)

    @property
    def folder(self) -> CheckpointFolder:
        path = self.box / layout.CHECKPOINTS
        return CheckpointFolder(path=path, keep=self.settings.keep, keep_best=False)

    @property
    def root(self) -> Path:
        return self.settings.folder(self.box)

    def begin(self) -> None:
        """Record the existing entries before the program starts: they are no checkpoints of this start."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.remove_parts()
        self._known = {entry.name: signature_of(entry) for entry in self._entries()}
        self._observations, self.incomplete = {}, ()

    def poll(self, now: float) -> None:
        """Poll once, and store the newest complete entry if one is due. `now`: monotonic seconds."""
        self._remove_damaged()
        entries = self._changed()
        written = open_for_writing(self.root) if entries else frozenset[FileId]()
        before = self._observations
        self._observations = {
            entry.name: _observe(entry, before.get(entry.name), now, written) for entry in entries
        }
        if now - self._stored_at < self.settings.every_s:
            return
        for entry in entries:
            if self._is_complete(entry, before.get(entry.name)) and self._store(entry):
                self._stored_at = now
                return

    def final_poll(self, *, ended_well: bool) -> None:
        """Store the newest entries once the program has ended.

        After a failure, a closed file is not enough: the entry was closed before the end, renamed into place,
        or its framework or format shows that it is complete.
        """
        self._remove_damaged()
        ready: list[Entry] = []
        incomplete: list[str] = []
        for entry in self._changed():
            if len(ready) == self.settings.keep:
                break
            mark = completeness(entry)
            is_evident = mark or self._was_renamed(entry) or ended_well or self._was_complete(entry)
            if mark is not False and is_evident:
                ready.append(entry)
            else:
                incomplete.append(entry.name)
        self.incomplete = tuple(incomplete)
        for entry in reversed(ready):
            self._store(entry)

    def _is_complete(self, entry: Entry, before: EntryObservation | None) -> bool:
        observation = self._observations[entry.name]
        mark = completeness(entry)
        if observation.was_open or mark is False:
            return False
        is_still = before is not None and not before.was_open and before.signature == observation.signature
        if entry.is_folder and mark:  # other ranks may add their files after the mark
            return is_still
        if mark or self._was_renamed(entry):
            return True
        return is_still and observation.at - observation.since >= entry.quiet_s

    def _was_renamed(self, entry: Entry) -> bool:
        return entry.was_renamed and self._linked.isdisjoint(file.id for file in entry.files)

    def _was_complete(self, entry: Entry) -> bool:
        """Tell whether it was closed and unchanged for long enough while the program still ran."""
        seen = self._observations.get(entry.name)
        if seen is None or seen.was_open or seen.signature != signature_of(entry):
            return False
        return seen.at > seen.since and seen.at - seen.since >= entry.quiet_s

    def _changed(self) -> list[Entry]:
        """Return the entries that were saved since the newest stored checkpoint, the newest first."""
        return [
            entry
            for entry in self._entries()
            if entry.modified_ns >= self._newest_ns and self._known.get(entry.name) != signature_of(entry)
        ]

    def _entries(self) -> Sequence[Entry]:
        listing = find_entries(self.root, self.settings.pattern)
        for name in listing.outside:
            self._report_once(f"checkpoints: {name} is a link out of the program's folder and is not stored")
        for name in listing.unprintable:
            self._report_once(f"checkpoints: {name} has control characters in its name and is not stored")
        if listing.is_cut:
            self._report_once("checkpoints: too many files match; only the newest are checked")
        return listing.entries

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self.say(text)

    def _store(self, entry: Entry) -> bool:
        """Store the entry as a checkpoint. Return False when that failed; other checkpoints are unchanged."""
        step, folder = self._next_step(entry), self.folder
        part = folder.part(step)
        try:
            shutil.rmtree(part, ignore_errors=True)
            linked = self._should_link(entry)
            sums = [self._store_file(file, part, linked) for file in entry.files]
            now = entry_at(f"{self.root}/{entry.name}", self.root)
            if now is None or signature_of(now) != signature_of(entry):
                raise InterruptedCopyError
            made_by, program = {"run_id": self.run_id}, {"path": entry.name}
            write_json(part / STATE, {"made_by": made_by, "program": program, "at": time.time()})
            folder.commit(step, None, [*sums, checksum_file(part / STATE)])
        except (InterruptedCopyError, FileNotFoundError):
            folder.discard(step)
            return False
        except OSError as error:
            folder.discard(step)
            self._report_once(f"checkpoint {entry.name} cannot be stored: {error}")
            return False
        self._known[entry.name] = signature_of(entry)
        self._newest_ns, self._last_step = entry.modified_ns, step
        self._stored[step] = entry
        self.say(f"checkpoint {entry.name} stored as {name_of(step)}, {entry.size / 1e6:.1f} MB")
        return True

    def _should_link(self, entry: Entry) -> bool:
        """Tell whether to link instead of copy: a file that will be overwritten needs a copy."""
        rewritten = self._overwrites or not re.search(r"\d", Path(entry.name).stem)
        return not rewritten or shutil.disk_usage(self.box).free < entry.size + _SPARE_BYTES

    def _store_file(self, file: EntryFile, part: Path, linked: bool) -> FileChecksum:
        """Link or copy a file into the part of a checkpoint and return its checksum."""
        target = part / FILES / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if linked:
            self._linked.add(file.id)
            with suppress(OSError):  # a disk without hard links, or another disk
                os.link(file.source, target)
        digest, size = hashlib.sha256(), 0
        is_copy = not target.exists()
        with file.source.open("rb") as source, (target if is_copy else Path(os.devnull)).open("ab") as sink:
            while chunk := source.read(_CHUNK):
                if self.is_stopping():
                    raise InterruptedCopyError
                digest.update(chunk)
                size += len(chunk)
                if is_copy:
                    sink.write(chunk)
        return FileChecksum(path=f"{FILES}/{file.name}", size=size, sha256=digest.hexdigest())

    def _next_step(self, entry: Entry) -> int:
        """Return the last number in its name if it exceeds all earlier steps, else the highest plus one."""
        folders = (self.folder.path, self.box / layout.RESUME)
        steps = [step_of(path) for folder in folders for path in newest_first(folder)[:1]]
        last = max([*steps, self._last_step])
        name = Path(entry.name)
        numbers = re.findall(r"\d+", name.name if entry.is_folder else name.stem)
        named = int(numbers[-1]) if numbers and len(numbers[-1]) <= _MAX_DIGITS else 0
        return max(named, last + 1)

    def _remove_damaged(self) -> None:
        """Remove checkpoints that the program overwrote, or that were stored before they were complete."""
        for step, entry in list(self._stored.items()):
            checkpoint = self.folder.path / name_of(step)
            if not checkpoint.exists():
                del self._stored[step]
            elif not all(_is_unchanged(file, checkpoint) for file in entry.files):
                self._overwrites = True
                self._remove_stored(step, "was overwritten in place")
            elif entry.is_folder and self._has_grown(entry):
                self._remove_stored(step, "was stored before it was complete")

    def _has_grown(self, entry: Entry) -> bool:
        now = entry_at(f"{self.root}/{entry.name}", self.root)
        return now is not None and set(signature_of(entry)) < set(signature_of(now))

    def _remove_stored(self, step: int, why: str) -> None:
        entry = self._stored.pop(step)
        self.folder.remove_damaged(step)
        self._newest_ns = max((other.modified_ns for other in self._stored.values()), default=0)
        self.say(f"checkpoint {entry.name} {why}: {name_of(step)} is removed")


def signature_of(entry: Entry) -> Signature:
    """Return a value that changes when the program writes to the entry."""
    return tuple((file.name, file.size, file.modified_ns, file.id) for file in entry.files)


def _observe(
    entry: Entry, before: EntryObservation | None, now: float, written: frozenset[FileId]
) -> EntryObservation:
    signature, was_open = signature_of(entry), any(file.id in written for file in entry.files)
    is_still = before is not None and before.signature == signature and not before.was_open
    since = before.since if before is not None and is_still else now
    return EntryObservation(signature=signature, since=since, at=now, was_open=was_open)


def _is_unchanged(file: EntryFile, checkpoint: Path) -> bool:
    """Return False if the program changed the file since. It cannot change a copy."""
    try:
        stat = (checkpoint / FILES / file.name).stat()
    except OSError:
        return False
    is_copy = (stat.st_dev, stat.st_ino) != file.id
    return is_copy or (stat.st_size, stat.st_mtime_ns) == (file.size, file.modified_ns)
