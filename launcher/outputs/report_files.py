"""Report files: series, pictures, parts of the log and a stack from a run's folder, of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.pictures import Picture, parse_picture
from vastrun.launcher.gate.series import Series, parse_series
from vastrun.launcher.outputs.folder import CHUNK, Outputs
from vastrun.launcher.outputs.index import metric_lines

_HEAD_BYTES = 1 << 16
_STACK_BYTES = 1 << 16


def series_in(
    outputs: Outputs, names: Collection[str] | None = None, max_lines: int = caps.SERIES_LINES
) -> tuple[Series, ...]:
    """Return the run's series, or those of `names`; empty where no metrics were downloaded."""
    try:
        return parse_series(metric_lines(outputs.path(layout.METRICS), max_lines), names)
    except OSError:
        return ()


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
    return _whole_lines(_start(outputs.log, _HEAD_BYTES))


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
    return _start(outputs.path(f"{layout.STACKS}/rank-{rank}.txt"), _STACK_BYTES).decode("utf-8", "replace")


def _start(path: Path, size: int) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(size)
    return b""


def _whole_lines(content: bytes) -> str:
    return content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
