"""Machine loss: watches a rehearsed program, which is killed after a snapshot and started again from it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import (
    FILES,
    MIN_BYTES,
    DamagedError,
    SnapshotState,
    newest_first,
    read_manifest,
    step_of,
)
from vastrun.contract.job import JobCheckpoints, matching_paths
from vastrun.launcher.decisions import resumption
from vastrun.launcher.gate.metrics import parse_record

EVERY_S = 5.0
"""Seconds between two snapshots of a rehearsal."""
SNAPSHOT_S = 300.0
"""Maximum seconds until the first snapshot, and until it is known whether the program continued."""
_END_S = 60.0
"""Seconds after which a program that was started again is stopped: a shorter one is judged by its end."""
_NEXT_SAVE_S = 30.0
"""Seconds to wait for a large file after small ones that change from save to save."""
_READ_S = 2.0
"""Seconds in which a program that has begun to read its checkpoint reads the rest of it."""
_LINE = 1 << 16
_TAIL = 256
_NOATIME = 1024
"""Flag of a file system that does not record when a file is read; Linux."""
_WHY_NONE = re.compile(r"^\S+ supervisor (?:no )?snapshot: (.*)", re.MULTILINE)
"""Line of the log in which the supervisor says why it took no snapshot."""


@dataclass(kw_only=True)
class MachineLoss:
    """Observations of a program before its machine was lost, and afterwards."""

    box: Path
    now: Callable[[], float]
    to_end: bool
    """Let the program end by itself within a minute, so that it can be judged."""
    named: str | None = None
    """Pattern of checkpoints that the job names."""
    is_again: bool = False
    """True once the program was started again."""
    was_killed: bool = False
    was_stopped: bool = False
    failure: str = ""
    """Why its last start failed."""
    saves: dict[str, resumption.Save] = field(default_factory=dict)
    """Its snapshots by name, the newest last."""
    _read: set[str] = field(default_factory=set)
    _began: float = 0.0
    _saved_at: float = 0.0
    """Time of the first save after the first step: a program that begins with it can be told from others."""
    _known_at: float = 0.0
    """Time at which it was known what the program did with its snapshot."""
    _killed_at: int | None = None
    _first_step: int | None = None
    _why: str = ""
    """Why there is no snapshot, as the supervisor logs it."""

    def begin(self) -> None:
        """Note that the program is started, again with the snapshot that is restored."""
        self._began, self.is_again = self.now(), self.was_killed
        while self.saves and next(reversed(self.saves.values())) is not self._restored:
            self.saves.popitem()

    @property
    def can_resume(self) -> bool:
        """True: there is a snapshot, and a file in it that may be a checkpoint."""
        named = any(save.named for save in self.saves.values())
        return named or self._pattern() is not None or self._has_large_file()

    @property
    def has_ended(self) -> bool:
        """True: the last start of the program ended by itself."""
        return not (self.was_stopped if self.is_again else self.was_killed)

    def should_kill(self, log: str) -> bool:
        """Tell whether enough was seen of the first start. `log`: new lines of it."""
        now, (self._first_step, last) = self.now(), _metric_steps(self.box)
        self._why = next(iter(_WHY_NONE.findall(log)[-1:]), self._why)
        self._note_saves(last or 0)
        usable = [save for save in self.saves.values() if save.step > (self._first_step or -1)]
        self._saved_at = self._saved_at or (now if usable else 0.0)
        # What is small may be written at the start, or at each step, and the checkpoint later.
        is_enough = self._has_large_file() or now - self._saved_at > _NEXT_SAVE_S
        is_sure = any(save.named for save in usable) or (self._pattern() is not None and is_enough)
        is_seen = any(save.is_calm for save in usable) and is_sure
        self.was_killed = is_seen or now - self._began > SNAPSHOT_S
        self._killed_at = last
        return self.was_killed

    def should_stop(self, _log: str) -> bool:
        """Tell whether it is known what the program did with its snapshot, or it takes too long."""
        now, after = self.now(), _metric_steps(self.box)[0]
        # A disk records the first access after a write.
        found, saves = set(), [*self.saves.values()]
        for name in resumption.files_to_continue(saves) if self._restored else ():
            with suppress(OSError):
                stat = (self.box / name).stat()
                if saves[-1].files[name][1] == stat.st_mtime_ns // 1000 < stat.st_atime_ns // 1000:
                    found.add(name)
        self._read |= found
        is_known = self._has_saved() if self._first_step is None else after is not None
        if is_known or now - self._began > SNAPSHOT_S:
            self._known_at = min(self._known_at or now, now)
        elif self._first_step is None and self._read:
            self._known_at = self._known_at or now + _READ_S
        is_over = bool(self._known_at) and now >= self._known_at
        self.was_stopped = is_over and (not self.to_end or now - self._began > _END_S)
        return self.was_stopped

    def result(self) -> resumption.Resumption:
        """Return what the program did."""
        answer: resumption.Answer
        after, restored = None, self._restored
        if not self.was_killed:
            answer, text = "too_short", f"the program ended after {self.now() - self._began:.0f} s, before "
            text += f"it could be killed: {self.failure or 'give it more steps with --set'}"
        elif restored is None or not self.can_resume:
            answer, text = "no_snapshot", f"no checkpoint within {SNAPSHOT_S:.0f} s: "
            text += "only small files" if restored else self._why or "the program wrote no file"
        else:
            after = _metric_steps(self.box)[0]
            shows_reads = not os.statvfs(self.box).f_flag & _NOATIME
            steps = (self._first_step, after)
            answer, text = resumption.judge(
                restored, steps, self._read, self.failure, shows_reads=shows_reads
            )
        return resumption.Resumption(
            answer=answer,
            detail=text,
            killed_at=self._killed_at if self.was_killed else None,
            snapshot_step=restored.step or None if restored else None,
            first_step=after,
            read=tuple(sorted(self._read)),
            files=resumption.written_files(restored) if restored else (),
            checkpoints=self._pattern(),
        )

    def _has_large_file(self) -> bool:
        return any(size >= MIN_BYTES for save in self.saves.values() for size, _ in save.files.values())

    def _pattern(self) -> str | None:
        return resumption.checkpoint_pattern([*self.saves.values()], self._read)

    @property
    def _restored(self) -> resumption.Save | None:
        """The snapshot that a machine restores: the newest one between two saves, if there is one."""
        newest_last = sorted(self.saves.values(), key=lambda save: save.is_calm)
        return newest_last[-1] if newest_last else None

    def _note_saves(self, step: int) -> None:
        """Read new snapshots. `step`: the last one that was reported as a metric."""
        for path in reversed(newest_first(self.box / layout.CHECKPOINTS)):
            if path.name in self.saves:
                continue
            with suppress(OSError, ValueError, DamagedError):  # it was removed meanwhile
                sizes = {file.path: file.size for file in read_manifest(path, step_of(path)).files}
                state, last = SnapshotState.of(path), path.with_name(next(reversed(self.saves), "none"))
                files = {name: (sizes.get(f"{FILES}/{name}", 0), of[1]) for name, of in state.files.items()}
                logs = {name for name in files if _only_grew(last / FILES / name, path / FILES / name)}
                self.saves[path.name] = resumption.Save(
                    step=state.step or step,
                    is_calm=state.is_calm,
                    files=files,
                    logs=frozenset(logs),
                    named=state.resume,
                )

    def _has_saved(self) -> bool:
        """Tell whether the program that was started again has saved a checkpoint."""
        named = JobCheckpoints(files=self.named or self._pattern())
        found = [*matching_paths(named.folder(self.box), named.pattern)] if named.files else []
        files = self._restored.files if self._restored else {}
        of_save = resumption.files_to_continue([*self.saves.values()]) if files else set()
        min_size = max((files[name][0] for name in of_save), default=0) / 10  # logs beside it are smaller
        found += [self.box / name for name in of_save]
        with suppress(OSError):
            for path in (each for place in found for each in (place, *place.glob("**/*"))):
                stat = path.stat()
                if path.is_file() and stat.st_mtime > self._began and stat.st_size >= min_size:
                    return True
        return False


def _metric_steps(box: Path) -> tuple[int | None, int | None]:
    """Return the first and the last step that the program reported with a metric."""
    with suppress(OSError), (box / layout.METRICS).open("rb") as file:
        first = file.readline(_LINE)
        file.seek(max(len(first), file.seek(0, 2) - _LINE))
        steps = [parse_record(line).get("step") for line in (first, *file.read().splitlines())]
        known = [step for step in steps if isinstance(step, int)]
        return (known[0], known[-1]) if known else (None, None)
    return None, None


def _only_grew(before: Path, after: Path) -> bool:
    """Tell whether the file is longer, and ends as before where it ended before: it is a log."""
    with suppress(OSError), before.open("rb") as old, after.open("rb") as new:
        size = old.seek(0, 2)
        old.seek(max(0, size - _TAIL))
        new.seek(old.tell())
        return old.read() == new.read(min(size, _TAIL)) and bool(new.read(1))
    return False
