"""Curves: a metric over the steps, read as its lines come home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from launcher.gate.metrics import point_of

_CHUNK = 1 << 20
_OVERLAP = 256
"""Bytes that are read again, to see that what follows belongs to what was read."""
_RELATIVE = 1000
"""Points lie at least this part of their step apart. So a curve of 100,000 steps takes some 6,000 points,
and the value that is known at a step is at most a thousandth of it old, early and late alike."""


class CurveReader:
    """The curve of one metric in a file that grows. Each call of `points` reads only what is new."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._begin_anew()

    def points(self) -> Sequence[tuple[int, float]]:
        """Return steps, rising, and values: the newest and, of those before, as many as are worth keeping.

        Where a training began again at a checkpoint, what it told of later steps before counts no more.
        """
        try:
            with self._path.open("rb") as file:
                self._read(file)
        except OSError:  # it has not come home yet, or not again
            pass
        return tuple(self._points)

    def _begin_anew(self) -> None:
        self._at = 0
        self._last = b""
        self._points: list[tuple[int, float]] = []

    def _read(self, file: BinaryIO) -> None:
        file.seek(self._at - len(self._last))
        if file.read(len(self._last)) != self._last:  # the file is another one: it was cut, or begun anew
            self._begin_anew()
            file.seek(0)
        while chunk := file.read(_CHUNK):
            # A line that fills a chunk is none of ours: its pieces are skipped.
            end = chunk.rfind(b"\n") + 1 or (len(chunk) if len(chunk) == _CHUNK else 0)
            if not end:
                break
            for line in chunk[:end].split(b"\n"):
                if point := point_of(line, self._metric):
                    self._append_thinned(*point)
            self._at += end
            self._last = (self._last + chunk[:end])[-_OVERLAP:]
            file.seek(self._at)

    def _append_thinned(self, step: int, value: float) -> None:
        points = self._points
        while points and points[-1][0] >= step:
            points.pop()
        if len(points) > 1 and (points[-1][0] - points[-2][0]) * _RELATIVE < points[-1][0]:
            points.pop()  # the newest is always kept, so it was not asked before
        points.append((step, value))
