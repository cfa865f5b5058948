"""Amounts: durations, dollars, times and sizes of left-out files as text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from vastrun.contract.errors import how_many
from vastrun.launcher.core import LeftOutFiles
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.decisions.estimates import usd as usd


def duration(seconds: float) -> str:
    """Write seconds as `4.2s`, `1m 32s`, `2h 05m`, `3d 04h`."""
    seconds = max(0.0, seconds)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}h"


def rough(seconds: float) -> str:
    """Write approximate seconds: `40s`, `12m`, `2h 05m`, `3d 04h`."""
    if seconds < 57.5:
        return f"{max(5, round(seconds / 5) * 5)}s"
    return f"{round(seconds / 60)}m" if seconds < 3570 else duration(seconds)


def usd_sum(amounts: Iterable[float]) -> str:
    """Write the sum of the amounts as shown, each rounded to a tenth of a cent, so that it adds up."""
    return f"${sum(map(_mills, amounts)) / 1000:.3f}"


def usd_parts(parts: Sequence[float], usd: float | None = None) -> list[float]:
    """Round the parts to a tenth of a cent so that they add up to their sum as it is shown.

    Uses the method of the largest remainders. `usd`: the sum to reach, if it is the sum of other parts, too.
    """
    whole = [math.floor(part * 1000) for part in parts]
    lacking = max(0, _mills(sum(parts) if usd is None else usd) - sum(whole))
    by_cut = sorted(range(len(parts)), key=lambda n: whole[n] - parts[n] * 1000)
    for number in by_cut[:lacking]:
        whole[number] += 1
    return [mills / 1000 for mills in whole]


def _mills(amount: float) -> int:
    return round(amount * 1000)


def moment(at: float) -> str:
    """Write the local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def left_out_lines(left_out: LeftOutFiles) -> str:
    """Write a line for each of the first files, and one for the rest; empty without files."""
    if not left_out.count:
        return ""
    shown = left_out.files[:20]
    sizes = [bytes_text(file.size) if file.size else "" for file in shown]
    width = max((len(size) for size in sizes), default=0)
    files = how_many(left_out.count, "file")
    size_text = f", {bytes_text(left_out.bytes)}" if left_out.bytes else ""
    lines = [f"{files}{size_text}, not downloaded"]
    lines += [f"{size:>{width}}  {file.path} ({file.why})" for size, file in zip(sizes, shown, strict=True)]
    if left_out.count > len(shown):
        lines.append(f"{'':>{width}}  and {left_out.count - len(shown)} more")
    return "\n".join(lines)
