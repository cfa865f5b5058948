"""The copy of a box's metrics, which grows while it trains: its size says how far an earlier look came."""

from __future__ import annotations

from pathlib import Path

from launcher.core.errors import BoxError
from launcher.gate import caps
from launcher.outputs.folder import place_of
from launcher.outputs.logcopy import OVERLAP
from launcher.outputs.storing import need_space, stored, write
from launcher.ports import Remote
from trainer.contract import layout

_LIMIT = caps.METRICS_SLICE_BYTES
_MOST = caps.SMALL_FILES[layout.METRICS]


def grow_metrics(out: Path, remote: Remote) -> int:
    """Append whole lines that are new, from one read of the box or two; return how many bytes.

    A training that is started again on its machine cuts the file back to its checkpoint: then the copy
    begins anew, too. Raises BoxError when the box gives more than metrics take.
    """
    place = place_of(out, layout.METRICS)
    held = place.stat().st_size if place.is_file() else 0
    last = _last(place, held)
    seen = remote.read(layout.METRICS, offset=held - len(last), limit=len(last) + _LIMIT)
    if seen.startswith(last):
        return _append(place, held, _whole_lines(seen[len(last) :]))
    anew = _whole_lines(remote.read(layout.METRICS, limit=_LIMIT))
    need_space(out, len(anew))
    stored(place, anew)  # at once: whoever reads it finds the old ones or the new ones
    return len(anew)


def _last(place: Path, held: int) -> bytes:
    if not held:
        return b""
    with place.open("rb") as copy:
        copy.seek(max(0, held - OVERLAP))
        return copy.read(OVERLAP)


def _whole_lines(new: bytes) -> bytes:
    """The last line may still be written. Raises BoxError for one that has no end."""
    whole = new[: new.rfind(b"\n") + 1]
    if not whole and len(new) >= _LIMIT:
        raise BoxError(f"a line of the metrics is longer than {_LIMIT} bytes")
    return whole


def _append(place: Path, held: int, lines: bytes) -> int:
    if held + len(lines) > _MOST:
        raise BoxError(f"the metrics are larger than {_MOST >> 20} MB")
    if lines:
        need_space(place.parent, len(lines))
        with place.open("ab", buffering=0) as copy:
            write(copy.fileno(), lines)
    return len(lines)
