"""Index: contents of a run's folder, listed once its outputs were downloaded, and the files of its report."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from vastrun.contract import layout
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Run
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.manifest import parse_latest_checkpoint
from vastrun.launcher.gate.metrics import Series, parse_series
from vastrun.launcher.gate.pictures import Picture, parse_picture
from vastrun.launcher.outputs.folder import CHUNK, Outputs

_LAST_BYTES = 1 << 14
_LINE_BYTES = caps.LINE_CHARACTERS
_OFFLINE = re.compile(r"offline-run-\d{8}_\d{6}-[\w.-]{1,128}", re.ASCII)
"""Folders that W&B makes. No other name is shown: it would become part of a command."""


@dataclass(frozen=True, kw_only=True)
class FolderContents:
    """Contents of a run's folder."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Local path below the folder, by path on the box."""
    newest: str | None = None
    """Name of the newest checkpoint."""
    best: str | None = None
    can_export: bool = False
    """There is a checkpoint, and the program has a module that writes its weights to one file."""
    wandb: tuple[str, ...] = ()
    """Folders of W&B runs that were not sent, relative to the run's."""
    wandb_url: str = ""
    """W&B's address of the run; empty: it was not sent."""
    scores: Mapping[str, float] = field(default_factory=dict)
    has_transcript: bool = False
    has_start_script: bool = False


def contents_of(run: Run, paths: Iterable[str]) -> FolderContents:
    """List what was downloaded of the run; `paths`: those on the box whose places are named.

    Raises OSError.
    """
    outputs = Outputs(run)
    outcome, newest = outputs.outcome(), _checkpoint(outputs, "latest.json")
    local_paths = {path: outputs.path(path) for path in paths}
    offline = sorted(
        p for p in outputs.path(layout.WANDB_FILES).glob("offline-run-*") if _OFFLINE.fullmatch(p.name)
    )
    return FolderContents(
        names={
            path: place.relative_to(outputs.folder).as_posix()
            for path, place in local_paths.items()
            if place.exists()
        },
        newest=newest,
        best=_checkpoint(outputs, "best.json"),
        can_export=newest is not None and bool(program_of(read_job(run.spec_json)).export_module),
        wandb=tuple(p.relative_to(outputs.folder).as_posix() for p in offline[-caps.WANDB_FOLDERS :]),
        wandb_url=(outcome.wandb.url if outcome and outcome.wandb else None) or "",
        scores=(outcome.scores if outcome else None) or {},
        has_transcript=outputs.transcript.is_file(),
        has_start_script=outputs.start_script.is_file(),
    )


def _checkpoint(outputs: Outputs, name: str) -> str | None:
    """The checkpoint that such a file names, if it is here."""
    folder = outputs.path(layout.CHECKPOINTS)
    if not (folder / name).is_file():
        return None
    with (folder / name).open("rb") as file:
        named = parse_latest_checkpoint(file.read(caps.SMALL_FILES[f"{layout.CHECKPOINTS}/latest.json"]))
    return named if named is not None and (folder / named).is_dir() else None


def metric_lines(path: Path, max_lines: int = caps.METRICS_LINES) -> Iterator[bytes]:
    """Yield the lines of the metrics, or about `max_lines` spread over all of them.

    Reads each byte twice at most, however long or short its lines are. Raises OSError.
    """
    with path.open("rb") as file:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        size = file.tell()
        file.seek(0)
        yield from file if lines <= max_lines else _spread(file, size, max_lines)


def _spread(file: BinaryIO, size: int, max_lines: int) -> Iterator[bytes]:
    """Yield lines at even distances in bytes, and the last ones.

    Not every N-th line: where one in N tells of a validation, that would be all of these or none.
    """
    end = max(0, size - _LAST_BYTES)
    for start in range(0, end, math.ceil(size / max_lines)):
        if start >= file.tell():
            file.seek(start)
            file.readline(_LINE_BYTES)  # the rest of the line that it fell into
        yield file.readline(_LINE_BYTES)
    file.seek(end)
    yield from file.read(_LAST_BYTES).split(b"\n")[1:]


def series_in(
    *attempts: Outputs, names: Collection[str] | None = None, max_lines: int = caps.SERIES_LINES
) -> tuple[Series, ...]:
    """Return the series of a run's attempts, or those of `names`; empty where no metrics were downloaded.

    Of a step that two attempts made, the value of the later one counts.
    """

    def lines() -> Iterator[bytes]:
        for outputs in attempts:
            with suppress(OSError):
                yield from metric_lines(outputs.path(layout.METRICS), max_lines // len(attempts))

    return parse_series(lines(), names)


def pictures_in(outputs: Outputs) -> Mapping[str, Picture]:
    """Return the pictures of the evaluation by the names of their files, at most `caps.PICTURES`."""
    found: dict[str, Picture] = {}
    with suppress(OSError):
        for path in sorted(outputs.path(layout.EVALUATION).glob("*.png"))[: 4 * caps.PICTURES]:
            picture = parse_picture(_start(path, caps.PICTURE_BYTES + 1))
            if picture is not None and len(found) < caps.PICTURES:
                found[path.name] = picture
    return found


def log_head(outputs: Outputs) -> str:
    """Return whole lines from the begin of the log."""
    return _whole_lines(_start(outputs.log, 1 << 16))


def log_tail(outputs: Outputs) -> str:
    """Return whole lines from the end of the log."""
    with suppress(OSError), outputs.log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - CHUNK))
        end = file.read(CHUNK)
        return _whole_lines(end if size <= CHUNK else end[end.find(b"\n") + 1 :])
    return ""


def stack_in(outputs: Outputs, rank: int) -> str:
    """Return the stack of a rank that hung; empty if none was downloaded."""
    return _start(outputs.path(f"{layout.STACKS}/rank-{rank}.txt"), 1 << 16).decode("utf-8", "replace")


def _start(path: Path, size: int) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(size)
    return b""


def _whole_lines(content: bytes) -> str:
    return content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
