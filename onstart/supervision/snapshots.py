"""Snapshots: all that a user's program wrote, as it was at one moment, stored in `run/checkpoints`.

A snapshot is a folder with `files/` (paths relative to the box), `state.json` and a manifest, like a
checkpoint of the onboard trainer. Unchanged files are links to those of the snapshot before. Linux, standard
library only.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import ENOENT
from pathlib import Path, PurePosixPath
from stat import S_IMODE, S_ISDIR, S_ISLNK

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import (
    FILES,
    STATE,
    CheckpointFolder,
    checksum_file,
    name_of,
    newest_first,
    step_of,
)
from vastrun.contract.job import Job, JobCheckpoints, matching_paths
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.contract.texts import how_many
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision.download_order import download_order, named_files
from vastrun.onstart.supervision.folder_watch import (
    CHANGE_ALWAYS,
    COMPANIONS,
    Files,
    FileState,
    FolderWatch,
    Look,
    series_of,
)
from vastrun.onstart.supervision.processes import stopped_program
from vastrun.onstart.supervision.program_files import printable

POLL_S = 2.0
_SCAN_SHARE = 0.05
"""Maximum share of a processor that looking at the files takes: the pause grows with their number."""
_CHUNK = 1 << 20
_CHECKPOINT_SHARE = 0.1
"""A checkpoint has at least this share of the bytes of the largest one; a smaller match lies beside them."""
_TRACKER_BYTES, _TRACKERS = 1 << 16, 100
"""Maximum bytes of a file that is searched for names of others, and number of such files, the newest ones."""


class NoSnapshotError(Exception):
    """This is no moment for a snapshot; the text says why."""


@dataclass(kw_only=True)
class Snapshots:
    """Stores a snapshot of one program when one is due and the moment is right."""

    box: Path
    job: Job
    settings: JobCheckpoints
    say: Callable[[str], None]
    is_stopping: Callable[[], bool] = lambda: False
    """Return True to interrupt a snapshot in progress."""
    half_written: tuple[str, ...] = ()
    """Files that a killed program may not have finished."""
    is_torn: bool = False
    """True when the program was killed while it saved, as far as could be seen."""
    pause_s: float = POLL_S
    """Seconds until the next look."""
    _calm_files: Files = field(default_factory=dict)
    """At the last look between two saves."""
    _known: Files = field(default_factory=dict)
    """Of the newest snapshot, or of the beginning: what differs from it is news."""
    _stored: dict[str, tuple[FileState, str]] = field(default_factory=dict)
    """Checksums of the newest snapshot's files."""
    _linked: dict[int, dict[str, tuple[FileState, str]]] = field(default_factory=dict)
    """By snapshot: files of which it has links, which change where the program overwrites one in place."""
    _stored_at: float = float("-inf")
    _due_since: float | None = None
    _step: int = -1
    _calm_step: int = -1
    """Of the newest snapshot between two saves, which is kept."""
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=400))
    """The program's step at the last looks."""
    _reported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.watch = FolderWatch(
            box=self.box, job=self.job, every_s=self.settings.every_s, report=self._report_once
        )

    @property
    def folder(self) -> CheckpointFolder:
        path, kept = self.box / layout.CHECKPOINTS, frozenset((self._calm_step, self._step))
        return CheckpointFolder(path=path, keep=2, keep_steps=kept)

    def begin(self, *, is_restored: bool = False, unread: Iterable[str] = ()) -> None:
        """Record the files before the program starts: they are no news.

        A snapshot that was restored is as good as a new one: the next is due `every_s` later. `unread`: files
        whose times will show that they were read.
        """
        self._stored_at = math.inf if is_restored else self._stored_at
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.remove_parts()
        self.watch.begin()
        self.watch.unread = {*unread}
        self._calm_files = self.watch.last.files
        self._known = _without_folders(self._calm_files)
        self.half_written, self.is_torn = (), False

    def poll(self, now: float) -> None:
        """Look once, and store a snapshot if one is due. `now`: monotonic seconds."""
        began = time.monotonic()
        self._stored_at = min(self._stored_at, now)
        look = self.watch.look(self._known, now)
        self._remove_overwritten(look.files)
        self._calm_files = self._calm_files if look.why else look.files
        self._steps.append((time.time(), self._reported_step()))
        self.pause_s = max(POLL_S, (time.monotonic() - began) / _SCAN_SHARE)
        is_news = self._is_news(look.files)
        # One that was late is followed by one between two saves, also where the program saves no more.
        is_wanted = is_news or self._calm_step < self._step
        if not is_wanted or now - self._stored_at < self.settings.every_s:
            self._due_since = None
            return
        self._due_since = self._due_since or now
        is_late = is_news and now - self._due_since >= self.settings.every_s
        try:
            self._store(self.watch.late(look) if look.why and is_late else look, is_calm=not look.why)
            self._stored_at, self._due_since = now, None
            if look.why:
                self._report_once(f"snapshot: none was possible between two saves: {printable(look.why)}")
        except NoSnapshotError as error:
            self.pause_s = max(self.pause_s, time.monotonic() - began)  # it may have copied a lot for nothing
            if is_late:
                self._report_once(f"snapshot: waits, {printable(str(error))}")

    def final_poll(self, *, ended_well: bool, was_stopped: bool = False, was_killed: bool = False) -> None:
        """Store a last snapshot once the program has ended: if that was in a save, as it was before."""
        last, files = self.watch.last, self.watch.scan()
        self._remove_overwritten(files)
        calm, late = self._calm_files, self.watch.changed_since(last.files, files)
        recent = self.watch.changed_since(calm, files)
        unfinished = {name for name in recent if not self.watch.was_renamed(name)}
        if was_killed:
            self.half_written = tuple(sorted(unfinished & (late | last.written)))
            self.is_torn = bool(self.half_written or (not late and self.watch.was_in_save()))
        if not self._is_news(files) or (ended_well and self.settings.files is None):
            return
        left, is_calm = set[str](), True
        # A program that fails may do so within a save, too.
        if self.is_torn or not (was_killed or was_stopped or ended_well or unfinished.isdisjoint(late)):
            is_calm = self._is_news(calm) and calm.keys() <= files.keys() and recent.isdisjoint(calm)
            left = files.keys() - calm.keys() if is_calm else unfinished if was_killed else left
            which = "that of the moment before" if is_calm else "the last one to be put back"
            self.say(f"snapshot: the program ended in a save; the next one is {which}")
        try:
            self._store(Look(files=files, ways=dict.fromkeys(left, "skip")), is_calm=is_calm)
        except NoSnapshotError as error:
            self._report_once(f"snapshot: the last one failed: {printable(str(error))}")

    def newest_checkpoint(self) -> str:
        """Return the path of the newest match of `checkpoints.files`, relative to the box; or nothing."""
        return self._hinted(self.watch.last.files, self.watch.last.files)[1]

    def _is_news(self, files: Files) -> bool:
        return _without_folders(files) != self._known

    def _store(self, look: Look, *, is_calm: bool) -> None:
        """Store a snapshot of these files. Raises NoSnapshotError; other snapshots are unchanged then."""
        if look.why:
            raise NoSnapshotError(look.why)
        present = {n: state for n, state in look.files.items() if look.ways.get(n) != "skip"}
        old, resume, older = self._hinted(present, present if is_calm else self._calm_files)
        files = {n: state for n, state in present.items() if state.is_file and n not in old}
        others = {n: state for n, state in present.items() if not state.is_file}
        size = sum(state.size for state in files.values())
        if not files:
            raise NoSnapshotError("no file is complete")
        max_gb = self.settings.max_gb or (math.inf if self.settings.files else self.job.outputs_gb)
        if size > max_gb * 1e9:
            text = f"the program's files have {size / 1e9:.1f} GB, and a snapshot has at most {max_gb:g}"
            self._report_once(f"no snapshot: {text}; name its checkpoints, or raise limits.snapshot_gb")
            raise NoSnapshotError(text)
        step, folder = self._next_step(resume), self.folder
        part = folder.part(step)
        shutil.rmtree(part, ignore_errors=True)
        try:
            linked = self._take(files, look, part)
            self._check_unchanged(look)
            for name in [n for n in look.ways if n in files and not os.path.lexists(f"{part}/{FILES}/{n}")]:
                del files[name]  # a journal ends with its transaction
            sums = {n: self._sum(n, state, part, linked) for n, state in files.items()}
            named = named_files(files, self._small_texts(files, look, part))
            older = (older & files.keys()) - named
            self._write_state(part, files, others, resume, is_calm=is_calm, older=len(older))
            in_order = download_order(files, named, older)
            folder.commit(step, [checksum_file(part / STATE), *(sums[name] for name in in_order)])
        except (NoSnapshotError, OSError) as error:
            folder.discard(step)
            # Without a number: a file changed meanwhile.
            if isinstance(error, OSError) and error.errno not in (None, ENOENT):
                self._report_once(f"snapshot: cannot be stored: {error}")
            raise NoSnapshotError(str(error)) from error
        self._step, self._calm_step = step, step if is_calm else self._calm_step
        self.watch.unread.clear()  # they were read for their checksums
        self._known = _without_folders(look.files)
        found = {n: (files[n], each.sha256) for n, each in sums.items()}
        self._stored = {n: pair for n, pair in found.items() if look.ways.get(n) != "mapped"}
        self._linked[step] = {n: found[n] for n in linked}
        self.say(f"snapshot {name_of(step)}: {how_many(len(sums), 'file')}, {size / 1e6:.1f} MB")

    def _take(self, files: dict[str, FileState], look: Look, part: Path) -> set[str]:
        """Link or copy each file into the part, unchanged ones from the newest snapshot; return the links."""
        former, held, linked = f"{self.folder.path / name_of(self._step)}/{FILES}", [], set[str]()
        for folder in {name.rpartition("/")[0] for name in files}:
            (part / FILES / folder).mkdir(parents=True, exist_ok=True)
        for name, state in files.items():
            source, target = f"{self.box}/{name}", f"{part}/{FILES}/{name}"
            known, way = self._stored.get(name), look.ways.get(name)
            if known is not None and known[0] == state and _link(f"{former}/{name}", target):
                if name in self._linked.get(self._step, {}):
                    linked.add(name)
            elif way == "database":
                held += [name.removesuffix("-wal").removesuffix("-journal")]
            elif (way == "link" or (way is None and not self.watch.is_rewritten(name, state))) and _link(
                source, target
            ):
                linked.add(name)
            else:
                self._copy(source, target, state.size)
        if held:
            # A journal that was not there at the look belongs to it, too.
            names = [main + end for main in sorted(set(held)) for end in ("", *COMPANIONS[:2])]
            with stopped_program():
                for name in names:
                    with suppress(FileNotFoundError):
                        shutil.copyfile(f"{self.box}/{name}", part / FILES / name)
                        files[name] = FileState.of((part / FILES / name).stat())
        return linked

    def _copy(self, source: str, target: str, size: int) -> None:
        """Copy that many bytes: a log may be longer by now."""
        with Path(source).open("rb") as read, Path(target).open("wb") as sink:
            while size > 0 and (chunk := read.read(min(_CHUNK, size))):
                if self.is_stopping():
                    raise NoSnapshotError("its time is over")
                sink.write(chunk)
                size -= len(chunk)

    def _check_unchanged(self, look: Look) -> None:
        """Raise NoSnapshotError unless a second scan sees the same files: then they are of one moment."""
        files, now = look.files, self.watch.scan()
        for name in files.keys() | now.keys():
            may_change = look.ways.get(name) in CHANGE_ALWAYS or name.endswith(COMPANIONS)
            if not may_change and files.get(name) != now.get(name):
                raise NoSnapshotError(f"{name} changed meanwhile")

    def _sum(self, name: str, state: FileState, part: Path, linked: set[str]) -> FileChecksum:
        """Return the checksum of a stored file."""
        known = self._stored.get(name)
        if self.is_stopping():
            raise NoSnapshotError("its time is over")
        if known is not None and known[0] == state:
            return FileChecksum(path=f"{FILES}/{name}", size=state.size, sha256=known[1])
        path = f"{part}/{FILES}/{name}"
        found = replace(checksum_file(path), path=f"{FILES}/{name}")
        if name in linked and FileState.of(os.stat(path)) != state:  # noqa: PTH116
            self.watch.in_place.add(series_of(name))
            raise NoSnapshotError(f"{name} changed meanwhile")
        return found

    def _small_texts(self, files: Files, look: Look, part: Path) -> Iterator[bytes]:
        """Yield the content of the newest small files but logs: one may name the newest checkpoint."""
        small = [n for n, state in files.items() if state.size <= _TRACKER_BYTES]
        for name in sorted(small, key=lambda n: files[n].mtime_ns)[-_TRACKERS:]:
            if look.ways.get(name) not in CHANGE_ALWAYS:
                yield (part / FILES / name).read_bytes()

    def _write_state(
        self, part: Path, files: Files, others: Files, resume: str, *, is_calm: bool, older: int
    ) -> None:
        least = _CHECKPOINT_SHARE * max((state.size for state in files.values()), default=0)
        # What is small is written at other steps, too.
        saved_at = max((state.mtime_ns for state in files.values() if state.size >= least), default=0) / 1e9
        parents = {name.rpartition("/")[0] for name in (*files, *others)}
        links = [name for name, state in others.items() if S_ISLNK(state.mode)]
        state = {
            "made_by": {"run_id": self.job.run_id},
            "at": time.time(),
            "is_calm": is_calm,
            "older": older,
            "step": max((step for at, step in self._steps if at <= saved_at), default=0),
            "resume": resume,
            "files": {name: [S_IMODE(state.mode), state.mtime_ns // 1000] for name, state in files.items()},
            "links": {name: str((self.box / name).readlink()) for name in links},
            "folders": [n for n, state in others.items() if S_ISDIR(state.mode) and n not in parents],
        }
        write_json(part / STATE, state)

    def _hinted(self, files: Files, whole: Files) -> tuple[set[str], str, set[str]]:
        """Return files of checkpoints too old to keep, the newest one's path in the box, files of older ones.

        `whole`: the files between two saves; the newest checkpoint has to be as it is there.
        """
        if self.settings.files is None:
            return set(), "", set()
        root, own = self.settings.folder(self.box), self.box.resolve()
        matches = matching_paths(root, self.settings.pattern)
        names = {path.relative_to(own).as_posix() for path in matches if path.is_relative_to(own)}
        if not names and any(state.is_file for state in files.values()):
            self._report_once(f"so far nothing matches checkpoints: {printable(self.settings.files)}")
        parts = defaultdict[str, list[str]](list)
        for name in (name for name, state in files.items() if state.is_file):
            for place in {name, *map(str, PurePosixPath(name).parents)} & names:
                parts[place].append(name)
        sizes = {place: sum(files[name].size for name in of) for place, of in parts.items()}
        least = _CHECKPOINT_SHARE * max(sizes.values(), default=0)
        found = sorted(
            (place for place in parts if sizes[place] >= least),
            key=lambda place: (max(files[name].mtime_ns for name in parts[place]), place),
            reverse=True,
        )
        usable = [at for at in found if all(n in whole and whole[n] == files[n] for n in parts[at])]
        kept = {name for place in (*found[: self.settings.keep], *usable[:1]) for name in parts[place]}
        old = {name for place in found for name in parts[place]} - kept
        resume = usable[0] if usable else ""
        return old, resume, kept - {*parts.get(resume, kept)}

    def _next_step(self, resume: str) -> int:
        """Return the last number in a checkpoint's name, or the program's step, but more than all before."""
        folders = (self.folder.path, self.box / layout.RESUME)
        steps = [step_of(path) for folder in folders for path in newest_first(folder)[:1]]
        path = PurePosixPath(resume)
        numbers = re.findall(r"\d+", path.name if (self.box / resume).is_dir() else path.stem)
        named = int(numbers[-1]) if numbers and len(numbers[-1]) < 10 else self._reported_step()
        return max(named, max([*steps, self._step]) + 1)

    def _reported_step(self) -> int:
        return number_in(self.box / layout.STATUS, "step") or 0

    def _remove_overwritten(self, files: Files) -> None:
        """Remove snapshots with links to files that the program overwrote in place since."""
        now = {state.inode: state for state in files.values() if state.is_file}
        there = {step_of(path) for path in newest_first(self.folder.path)}
        self._linked = {step: self._linked[step] for step in there & self._linked.keys()}
        for step, links in list(self._linked.items()):
            changed = [name for name, (state, _) in links.items() if now.get(state.inode, state) != state]
            self.watch.in_place.update(map(series_of, changed))
            place = self.folder.path / name_of(step) / FILES
            lost = [name for name in changed if not _keep_beginning(place / name, *links.pop(name))]
            if not lost:
                continue
            self.folder.remove_damaged(step)
            del self._linked[step]
            if step == self._step:
                self._stored, self._stored_at = {}, float("-inf")
                self._known = {name: key for name, key in self._known.items() if name not in lost}
            self.say(f"snapshot {name_of(step)} is removed: {printable(lost[0])} was overwritten in place")

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self.say(text)


def _without_folders(files: Files) -> dict[str, FileState]:
    """Return the files and links: a new folder alone is no news."""
    return {name: state for name, state in files.items() if not S_ISDIR(state.mode)}


def _link(source: str, target: str) -> bool:
    """Make a hard link; return False on a disk without them, or another disk."""
    with suppress(OSError):
        os.link(source, target)
        return True
    return False


def _keep_beginning(link: Path, state: FileState, sha256: str) -> bool:
    """Replace the link to a file that grew by a copy of what it was; return False if it was overwritten."""
    part = link.with_name(".beginning.part")
    with suppress(OSError):
        shutil.copyfile(link, part)
        os.truncate(part, state.size)
        if checksum_file(part).sha256 == sha256:
            part.replace(link)
            return True
    part.unlink(missing_ok=True)
    return False
