"""Machine loss: watches a rehearsed program, which is killed after a snapshot and started again from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import utime
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import DamagedError, newest_first, read_manifest, step_of
from vastrun.contract.records import parse_json, read_small
from vastrun.contract.snapshot_state import FILES, SnapshotState
from vastrun.launcher.decisions.resumption import (
    Answer,
    Resumption,
    Save,
    checkpoint_pattern,
    files_to_continue,
    judge,
    written_files,
)
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.metrics import parse_record

EVERY_S = 5.0
"""Seconds between two snapshots of a rehearsal."""
SNAPSHOT_S = 300.0
"""Maximum seconds until the first snapshot, and until it is known whether the program continued."""
_END_S = 60.0
"""Seconds after which a program that was started again is stopped: a shorter one is judged by its end."""
_NEXT_SAVE_S = 10.0
"""Minimum seconds to wait for another save, which shows what changes from save to save."""
_READ_S = 2.0
"""Seconds in which a program that has begun to read its checkpoint reads the rest of it."""
_LINE = 1 << 16
_TAIL = 256
_WHY_NONE = re.compile(r"^\S+ supervisor (?:no )?snapshot: (.*)", re.MULTILINE)
"""Line of the log in which the supervisor says why it took no snapshot."""


@dataclass(kw_only=True)
class MachineLoss:
    """What was seen of a program before its machine was lost, and afterwards."""

    box: Path
    now: Callable[[], float]
    to_end: bool
    """Let the program end by itself within a minute, so that it can be judged."""
    was_killed: bool = False
    was_stopped: bool = False
    _saves: list[Save] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    """Names of the snapshots that were read."""
    _newest: Path = Path("/nonexistent")
    """Files of the last one of them."""
    _read: set[str] = field(default_factory=set)
    _began: float = 0.0
    _saved_at: float = 0.0
    """Time of the first save that is later than the first step: a start without it can be told."""
    _read_at: float = 0.0
    _killed_at: int | None = None
    _first_step: int | None = None
    _why: str = ""
    """Why there is no snapshot, as the supervisor logs it."""
    _is_known: bool = False

    def begin(self) -> None:
        """Note the time at which the program is started."""
        self._began = self.now()

    def should_kill(self, log: str) -> bool:
        """Tell whether enough was seen of the first start. `log`: new lines of it."""
        self._first_step, last = _metric_steps(self.box)
        self._why = next(iter(_WHY_NONE.findall(log)[-1:]), self._why)
        for save in self._new_saves():
            self._saves.append(replace(save, step=save.step or last or 0))
        now = self.now()
        usable = [save for save in self._saves if save.step > (self._first_step or -1)]
        if usable and not self._saved_at:
            self._saved_at = now
        is_seen = any(save.is_calm for save in usable) and checkpoint_pattern(self._saves) is not None
        patience_s = max(_NEXT_SAVE_S, self._saved_at - self._began)
        is_over = now - (self._saved_at or now) > patience_s or now - self._began > SNAPSHOT_S
        self.was_killed = is_seen or is_over
        self._killed_at = self._status_step() or last
        return self.was_killed

    @property
    def has_snapshot(self) -> bool:
        return bool(self._saves)

    def should_stop(self, _log: str) -> bool:
        """Tell whether it is known what the program did with its snapshot, or it takes too long."""
        read, passed_s = self._read_files(), self.now() - self._began
        # A snapshot reads all files, too.
        has_saved = any((self.box / layout.CHECKPOINTS).glob("*step-*"))
        if not self._is_known and not has_saved:
            self._read |= read
        self._read_at = self._read_at or (self.now() if self._read else 0.0)
        is_answered = _metric_steps(self.box)[0] is not None
        if self._first_step is None:  # it reports none
            is_answered = bool(self._read) and self.now() - self._read_at > _READ_S
        self._is_known = self._is_known or has_saved or is_answered or passed_s > SNAPSHOT_S
        self.was_stopped = self._is_known and (not self.to_end or passed_s > _END_S)
        return self.was_stopped

    def result(self, failure: str) -> Resumption:
        """Return what the program did. `failure`: why it failed when it was started again."""
        if not self.was_killed:
            text = (
                f"the program ended after {self.now() - self._began:.0f} s, before it could be killed: give "
            )
            text += "it more steps with --set, so that it goes on after its first checkpoint"
            return self._answer("too_short", text)
        if not self._saves:
            text = f"no snapshot within {SNAPSHOT_S:.0f} s: {self._why or 'the program wrote no file'}"
            return self._answer("no_snapshot", text)
        after = _metric_steps(self.box)[0]
        answer, text = judge(
            self._restored,
            before=self._first_step,
            after=after,
            read=self._read,
            shows_reads=_shows_reads(self.box),
            failure=failure,
        )
        return self._answer(answer, text, first_step=after)

    def _answer(self, answer: Answer, detail: str, *, first_step: int | None = None) -> Resumption:
        return Resumption(
            answer=answer,
            detail=detail,
            killed_at=self._killed_at if self.was_killed else None,
            snapshot_step=self._restored.step or None if self._saves else None,
            first_step=first_step,
            read=tuple(sorted(self._read)),
            files=written_files(self._saves[-1]) if self._saves else (),
            checkpoints=checkpoint_pattern(self._saves, self._read),
        )

    @property
    def _restored(self) -> Save:
        """The snapshot that a machine restores: the newest one between two saves, if there is one."""
        return next((save for save in reversed(self._saves) if save.is_calm), self._saves[-1])

    def _new_saves(self) -> Iterator[Save]:
        for path in reversed(newest_first(self.box / layout.CHECKPOINTS)):
            if path.name in self._taken:
                continue
            with suppress(OSError, ValueError, DamagedError):  # it was removed meanwhile
                sizes = {file.path: file.size for file in read_manifest(path, step_of(path)).files}
                state = SnapshotState.of(path)
                files = {name: (sizes.get(f"{FILES}/{name}", 0), of[1]) for name, of in state.files.items()}
                logs = frozenset(
                    name for name in files if _only_grew(self._newest / name, path / FILES / name)
                )
                self._newest = path / FILES
                self._taken.add(path.name)
                yield Save(step=state.step, is_calm=state.is_calm, files=files, logs=logs)

    def _read_files(self) -> set[str]:
        """Return the restored files that were read since: a disk records the first access after a write."""
        found = set()
        for name in files_to_continue(self._saves):
            with suppress(OSError):
                stat = (self.box / name).stat()
                if stat.st_mtime_ns // 1000 == self._restored.files[name][1] < stat.st_atime_ns // 1000:
                    found.add(name)
        return found

    def _status_step(self) -> int | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            step: Any = parse_json(read_small(self.box / layout.STATUS, caps.SMALL_FILES[layout.STATUS]))[
                "step"
            ]
            return step if isinstance(step, int) and step else None
        return None


def _metric_steps(box: Path) -> tuple[int | None, int | None]:
    """Return the first and the last step that the program reported with a metric."""
    with suppress(OSError), (box / layout.METRICS).open("rb") as file:
        first = file.readline(_LINE)
        file.seek(max(len(first), file.seek(0, 2) - _LINE))
        lines = (first, *file.read().splitlines())
        steps = [step for step in (parse_record(line).get("step") for line in lines) if isinstance(step, int)]
        return (steps[0], steps[-1]) if steps else (None, None)
    return None, None


def _only_grew(before: Path, after: Path) -> bool:
    """Tell whether the file is longer, and ends as before where it ended before: it is a log."""
    with suppress(OSError), before.open("rb") as old, after.open("rb") as new:
        size = old.seek(0, 2)
        old.seek(max(0, size - _TAIL))
        new.seek(old.tell())
        return old.read() == new.read(min(size, _TAIL)) and bool(new.read(1))
    return False


def _shows_reads(box: Path) -> bool:
    """Tell whether the disk records when a file is read."""
    probe = box / "tmp" / "read-probe"
    with suppress(OSError):
        probe.parent.mkdir(exist_ok=True)
        probe.write_bytes(b"x")
        utime(probe, (1, 1))
        probe.read_bytes()
        return probe.stat().st_atime > 1
    return False
