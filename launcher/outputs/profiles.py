"""Profiles: files of one profile, downloaded while the run continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.core import Run
from launcher.core.errors import BoxError
from launcher.outputs.folder import Outputs
from launcher.outputs.incoming import CHUNK, held
from launcher.outputs.storing import is_home, moved, need_space, storing, write
from launcher.ports import Remote
from trainer.contract.outcome import FileSum


def download(run: Run, remote: Remote, file: FileSum, check: Callable[[], None]) -> Path:
    """Bring the file to its place among the run's outputs, and return that.

    `check` is called before each read, and ends the download by what it raises. Raises BoxError when the file
    is not what its checksum says, NoRoomError and StorageError.
    """
    outputs = Outputs(run)
    place = outputs.path(file.path)
    # Not in `.incoming`: whoever collects the run meanwhile empties that.
    part = place.with_name(f".{place.name}.part")
    with storing(outputs.folder):
        need_space(outputs.folder, file.size)
        if not place.parent.resolve().is_relative_to(outputs.folder.resolve()):
            raise BoxError(f"{place.parent} leads out of {outputs.folder}")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            _fetch(part, file, remote, check)
            if not is_home(part, file, check) or not moved(part, place, outputs.folder):
                raise BoxError(f"{file.path} is not what the machine's checksum says")
        finally:
            part.unlink(missing_ok=True)
    return place


def _fetch(part: Path, file: FileSum, remote: Remote, check: Callable[[], None]) -> None:
    part.unlink(missing_ok=True)
    with part.open("wb", buffering=0) as target:
        while (offset := held(part)) < file.size:
            check()
            new = remote.read(file.path, offset=offset, limit=min(CHUNK, file.size - offset))
            if not new:
                return
            write(target.fileno(), new)
