"""Left-out files in text: the largest with size and reason, the number and total size of all."""

from __future__ import annotations

from vastrun.launcher.core import LeftOutFiles
from vastrun.launcher.core.left_out import bytes_text

_MAX_LINES = 20


def left_out_lines(left_out: LeftOutFiles) -> str:
    """Write a line for each of the first files, and one for the rest; empty without files."""
    if not left_out.count:
        return ""
    shown = left_out.files[:_MAX_LINES]
    sizes = [bytes_text(file.size) if file.size else "" for file in shown]
    width = max((len(size) for size in sizes), default=0)
    files = "1 file" if left_out.count == 1 else f"{left_out.count} files"
    lines = [f"{files}, {bytes_text(left_out.bytes)}, not downloaded"]
    lines += [f"{size:>{width}}  {file.path} ({file.why})" for size, file in zip(sizes, shown, strict=True)]
    if left_out.count > len(shown):
        lines.append(f"{'':>{width}}  and {left_out.count - len(shown)} more")
    return "\n".join(lines)
