"""Left-out files in one line: how many, how large, the first of them and why. Pure."""

from __future__ import annotations

from launcher.core import LeftOutFile, LeftOutFiles

_MAX_NAMED = 5
"""Number of files that are named."""


def left_out_text(left_out: LeftOutFiles) -> str:
    """Say what was not downloaded; empty: nothing is known to be missing.

    It is a warning where an output of the job is missing, or something that looks like weights.
    """
    if not left_out.count:
        return ""
    is_missing = any(file.named or file.is_weights for file in left_out.files)
    sum_text = f" ({bytes_text(left_out.bytes)})" if left_out.bytes else ""
    named = ", ".join(file_text(file) for file in left_out.files[:_MAX_NAMED])
    more = ", ..." if left_out.count > _MAX_NAMED else ""
    return f"{'WARNING: ' if is_missing else ''}{left_out.count} not downloaded{sum_text}: {named}{more}"


def file_text(file: LeftOutFile) -> str:
    """Return a file's path, size and why it is not downloaded."""
    return f"{file.path} ({f'{bytes_text(file.size)}, ' if file.size else ''}{file.why})"


def bytes_text(size: int) -> str:
    """Write a number of bytes as `512 B`, `4.8 MB`, `1.6 GB`."""
    if size < 1000:
        return f"{size} B"
    for factor, unit in ((1e3, "kB"), (1e6, "MB"), (1e9, "GB")):
        if size < 999.5 * factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e12:.1f} TB"
