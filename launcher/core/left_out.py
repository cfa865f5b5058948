"""Left out files: written by a run's program and not downloaded, as the machine lists them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from vastrun.contract.checkpoint_folder import looks_like_weights
from vastrun.contract.outcome import Bytes
from vastrun.contract.records import Text


class KeepAnswer(StrEnum):
    """The user's answer for a machine on which files are left that look like weights."""

    DOWNLOAD = "download"
    """Download them all."""
    GIVE_BACK = "give_back"
    """Destroy the machine now, without them."""
    WAIT = "wait"


@dataclass(frozen=True, kw_only=True)
class LeftOutFile:
    """A file that is not downloaded."""

    path: Annotated[str, Text(300)]
    """From the box, in printable characters."""
    why: Annotated[str, Text(300)]
    size: Bytes = 0
    """Bytes; 0 where it is not known."""
    named: bool = True
    """True if the job lists it as an output, or its program wrote it to the folder for outputs."""

    @property
    def is_weights(self) -> bool:
        """Return True for a model's weights or a checkpoint, by its name and size."""
        return looks_like_weights(self.path, self.size)


@dataclass(frozen=True, kw_only=True)
class LeftOutFiles:
    """Files that are not downloaded."""

    files: tuple[LeftOutFile, ...] = ()
    """Some of them where there are many: weights first, then the largest."""
    count: int = 0
    """Number of all."""
    bytes: int = 0
    """Sum of all sizes."""

    @property
    def weights(self) -> tuple[LeftOutFile, ...]:
        """Return the files that look like weights."""
        return tuple(file for file in self.files if file.is_weights)

    def without(self, here: set[str]) -> LeftOutFiles:
        """Return the rest, without the files at these paths, which are on this computer by now."""
        came = [file for file in self.files if file.path in here]
        return LeftOutFiles(
            files=tuple(file for file in self.files if file.path not in here),
            count=max(0, self.count - len(came)),
            bytes=max(0, self.bytes - sum(file.size for file in came)),
        )


NONE_LEFT_OUT = LeftOutFiles()


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
