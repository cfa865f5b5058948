"""A run's outputs on this computer: where each file lies, and what the evidence among them says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum, Outcome
from vastrun.contract.records import read_json
from vastrun.launcher.core import LeftOutFile, LeftOutFiles, Run, StepEnd
from vastrun.launcher.core.runs import CodeRecord
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_outcome, parse_step_ends
from vastrun.launcher.gate.manifest import parse_left_out
from vastrun.launcher.gate.metrics import lost_names, parse_point, parse_records

CHUNK = 1 << 20
OWN, DETAILS = "outputs", "details"
"""Folders here: the user's own files, and everything that only a search for a fault needs."""
TRANSCRIPT = "transcript.jsonl"
"""Record of the launchers' calls and decisions. No file of a box is stored under this name."""
CODE_RECORD, CODE_PATCH = "code.json", "code.patch"
"""Record of the code that was shipped, and its changes since the commit."""
START_SCRIPT = "onstart.sh"
"""Script that the machine runs at each start, unpacked; not a file of the box either."""
_FILES: Mapping[str, str] = {
    layout.LOG: "log.txt",
    layout.METRICS: "metrics.jsonl",
    layout.LEASE_LOG: f"{DETAILS}/lease.log",
}
_FOLDERS: Mapping[str, str] = {
    layout.CHECKPOINTS: "checkpoints",
    layout.EVALUATION: "report",
    layout.PROFILES: "profile",
    layout.OUTPUTS: OWN,
    layout.RUN: DETAILS,  # after those which lie in it
}
OVERLAP = 256
"""Bytes that are read again, to see that what follows belongs to what was read or is held."""
_POINTS_PER_STEP_RATIO = 1000
"""Points lie at least this part of their step apart. So a curve of 100,000 steps takes some 6,000 points,
and the value that is known at a step is at most a thousandth of it old, early and late alike."""


def place_of(folder: Path, box_path: str) -> Path:
    """Return where a file or folder of the box lies in a run's folder on this computer."""
    return folder / name_of(box_path)


@lru_cache(maxsize=1024)
def name_of(box_path: str) -> PurePosixPath:
    """Return the path below a run's folder: what the user wants on top, the rest in `details`.

    Files that the job's `outputs` name lie beside those in `$VASTRUN_OUTPUTS`, both by their own names.
    """
    path = PurePosixPath(box_path)  # not the text: `run//etc/x` less `run/` would be absolute
    if str(path) in _FILES:
        return PurePosixPath(_FILES[str(path)])
    for box_folder, here in _FOLDERS.items():
        if path.is_relative_to(box_folder):
            return here / path.relative_to(box_folder)
    is_code = len(path.parts) > 1 and path.parts[0] == layout.CODE
    return PurePosixPath(OWN, *path.parts[is_code:])


def renamed_files(folder: Path, files: Mapping[Path, FileChecksum]) -> dict[str, str]:
    """Return the paths on the box of files that have another place here, with that place below the folder."""
    moved = ((place, file.path) for place, file in files.items() if place != place_of(folder, file.path))
    return {path: str(place.relative_to(folder)) for place, path in moved}


def read_small_file(folder: Path, box_path: str) -> bytes:
    """Return a downloaded file, up to its size limit; empty where it was not downloaded. Raises OSError."""
    place = place_of(folder, box_path)
    if not place.is_file():
        return b""
    with place.open("rb") as file:
        return file.read(caps.SMALL_FILES[box_path])


class Outputs:
    """The folder of one run."""

    def __init__(self, run: Run) -> None:
        self.folder = Path(run.out_dir)
        self._curves: dict[str, CurveReader] = {}

    def path(self, box_path: str) -> Path:
        """Return the local path of a file of the box."""
        return place_of(self.folder, box_path)

    @property
    def log(self) -> Path:
        """The merged log; it grows while a launcher drives the run."""
        return self.path(layout.LOG)

    @property
    def transcript(self) -> Path:
        """Path of the transcript; it may include earlier runs that downloaded nothing here."""
        return self.folder / TRANSCRIPT

    @property
    def start_script(self) -> Path:
        """Return the text that the machine was sent to run at each start; missing where there is none."""
        return self.folder / START_SCRIPT

    @property
    def checkpoints(self) -> Path | None:
        """The folder of checkpoints; None if no complete one was downloaded."""
        folder = self.path(layout.CHECKPOINTS)
        return folder if (folder / "latest.json").is_file() else None

    def code(self) -> CodeRecord | None:
        """Read the record of the code that was shipped; None where there is none."""
        try:
            found: CodeRecord = read_json(CodeRecord, (self.folder / CODE_RECORD).read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def outcome(self) -> Outcome | None:
        """Read the box's own evidence; None when it was not downloaded or cannot be read."""
        try:
            return parse_outcome(self._content(layout.OUTCOME))
        except ValueError:
            return None

    def steps(self) -> tuple[StepEnd, ...]:
        """Read how the steps on the box ended; none when that was not downloaded."""
        return parse_step_ends(self._content(layout.STEPS))

    def left_out(self) -> LeftOutFiles:
        """Read which files of the program are not here, as the box listed them; none when it did not."""
        left_out = parse_left_out(self._content(layout.MANIFEST))
        return left_out.without({file.path for file in left_out.files if self._is_here(file)})

    def _is_here(self, file: LeftOutFile) -> bool:
        """Tell whether it was downloaded later (`vastrun pull RUN PATH`)."""
        path = PurePosixPath(file.path)
        if not file.size or path.is_absolute() or ".." in path.parts:
            return False
        try:
            return self.path(file.path).stat().st_size == file.size
        except (OSError, ValueError):
            return False

    def curve(self, metric: str) -> Sequence[tuple[int, float]]:
        """Return the steps and values of a metric, as far as they were downloaded.

        NaN where it was no number. Keep this object: a later call reads only what is new.
        """
        if metric not in self._curves:
            self._curves[metric] = CurveReader(self.path(layout.METRICS), metric)
        return self._curves[metric].points()

    def newest_metrics(self) -> Mapping[str, float]:
        """Return the newest downloaded line of the metrics, each finite number by its name."""
        line = GrowingFile(self.path(layout.METRICS), last_lines=1).more()
        records = parse_records([line.encode()])
        return records[-1] if records else {}

    def _content(self, box_path: str) -> bytes:
        with suppress(OSError):
            return read_small_file(self.folder, box_path)
        return b""


def lost_metrics(folder: Path) -> tuple[str, ...]:
    """Return the names of the metrics in a folder of outputs that end in no finite number."""
    lines = GrowingFile(place_of(folder, layout.METRICS), last_lines=1000).more()
    return lost_names(line.encode() for line in lines.splitlines())


class GrowingFile:
    """A text file that another process appends to."""

    def __init__(self, path: Path, *, last_lines: int | None = None) -> None:
        """Starts at the beginning, or at the last lines only."""
        self._path = path
        self.at = 0 if last_lines is None else _start_of_last(path, last_lines)
        """Number of bytes read."""

    def more(self) -> str:
        """Return whole lines that are new since the last call; empty when there are none, or no such file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.at)
                return self.take(file.read(CHUNK))
        except OSError:
            return ""

    def take(self, new: bytes) -> str:
        """Return the whole lines of what follows `at`; of a line longer than a chunk, the chunk."""
        end = new.rfind(b"\n") + 1 or (len(new) if len(new) >= CHUNK else 0)
        self.at += end
        return new[:end].decode("utf-8", "replace")


def _start_of_last(path: Path, lines: int) -> int:
    """Return the offset of the last `lines` lines of a file, by its last chunk."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - CHUNK))
            end = file.read()
    except OSError:
        return 0
    if not lines:
        return size
    parts = end.removesuffix(b"\n").rsplit(b"\n", lines)
    return size - len(end) + (len(parts[0]) + 1 if len(parts) > lines else 0)


class CurveReader:
    """The curve of one metric in a file that grows. Each call of `points` reads only what is new."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._restart()

    def points(self) -> Sequence[tuple[int, float]]:
        """Return steps, rising, and values: the newest and, of those before, as many as are worth keeping.

        Where a training resumed from a checkpoint, its earlier values of later steps do not count.
        """
        try:
            with self._path.open("rb") as file:
                self._read(file)
        except OSError:  # not downloaded yet, or not again
            pass
        return tuple(self._points)

    def _restart(self) -> None:
        self._at = 0
        self._last = b""
        self._points: list[tuple[int, float]] = []

    def _read(self, file: BinaryIO) -> None:
        file.seek(self._at - len(self._last))
        if file.read(len(self._last)) != self._last:  # the file is another one: it was cut, or started again
            self._restart()
            file.seek(0)
        while chunk := file.read(CHUNK):
            # A line that fills a chunk is not one that vastrun writes: its pieces are skipped.
            end = chunk.rfind(b"\n") + 1 or (len(chunk) if len(chunk) == CHUNK else 0)
            if not end:
                break
            for line in chunk[:end].split(b"\n"):
                if point := parse_point(line, self._metric):
                    self._append_thinned(*point)
            self._at += end
            self._last = (self._last + chunk[:end])[-OVERLAP:]
            file.seek(self._at)

    def _append_thinned(self, step: int, value: float) -> None:
        points = self._points
        while points and points[-1][0] >= step:
            points.pop()
        if len(points) > 1 and (points[-1][0] - points[-2][0]) * _POINTS_PER_STEP_RATIO < points[-1][0]:
            points.pop()  # the newest is always kept, so it was not asked before
        points.append((step, value))
