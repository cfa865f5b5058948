"""Receive: put the files that the launcher sends from the user's computer into the data folder.

Standard library only. `python -m vastrun.onstart.transfer.receive` stores the pack that has arrived, if any,
and prints what is missing, as `fetch_receipt` reads it. A pack is a line of JSON with the index of
a content, an offset and a size for each of its pieces, and then their bytes. Safe to repeat: a piece has its
own place, and a file gets its name once its checksum matches. On a held machine one run receives for all.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import sha256_of
from vastrun.contract.data_cache import DataCache, has_room, megabytes
from vastrun.contract.data_files import EXIT_OF_BLAME, DataReceipt, SentFile, contents_of
from vastrun.contract.records import as_json
from vastrun.onstart.optional_files import size_of
from vastrun.onstart.transfer.sources import DataFileError, disk_error

_COPY_S = 20.0
"""Seconds for copies from the cache, after which the launcher asks again."""
_SILENT_S = 60.0
"""Seconds without a byte after which another run of the machine may receive instead."""


def main() -> int:
    """Print what is missing. Return 0, or the exit code that tells who is to blame."""
    shared = os.environ.get("VASTRUN_SHARED_DATA")
    try:
        print(as_json(Receiver(Path(os.environ["VASTRUN_BOX"]), Path(shared) if shared else None).run()))
    except (DataFileError, OSError) as error:
        located = disk_error(error) if isinstance(error, OSError) else error
        print(located, file=sys.stderr)
        return EXIT_OF_BLAME[located.blame]
    return 0


class Receiver:
    """Stores what arrives in the box. `shared`: the folder that all slots of a held machine share."""

    def __init__(self, box: Path, shared: Path | None) -> None:
        self._data, self._pack, self._shared = box / layout.DATA, box / layout.DATA_PACK, shared
        self._cache = DataCache(shared) if shared else None
        with (box / layout.DATA_LIST).open(encoding="ascii") as lines:
            self._files = [SentFile(**json.loads(line)) for line in lines]
        self._contents = contents_of(self._files)

    def run(self) -> DataReceipt:
        """Store the pack, and return what is missing. Raises DataFileError, OSError."""
        self._pack.parent.mkdir(parents=True, exist_ok=True)
        os.utime(self._pack.parent)  # the lease sees that the launcher is there
        damaged = self._store_pack()
        missing = [i for i, files in enumerate(self._contents) if not self._is_there(files[0])]
        is_copied = self._copy_from_cache(missing)
        missing = [i for i in missing if not self._is_there(self._contents[i][0])]
        waits = bool(missing) and not (is_copied and self._may_receive())
        at = 0
        if not missing:
            self._finish()
        elif not waits:
            at = size_of(self._part(missing[0]))
            needed = sum(self._contents[i][0].size for i in missing) - at
            # Before the first byte: a part of the files is useless.
            if not (self._cache.make_room(needed) if self._cache else has_room(self._pack.parent, needed)):
                free = shutil.disk_usage(self._pack.parent).free
                text = f"the files need {megabytes(needed)}, and the disk has {megabytes(free)} free"
                raise DataFileError("disk", text)
        return DataReceipt(missing=tuple(missing), at=at, waits=waits, damaged=damaged)

    def _is_there(self, file: SentFile) -> bool:
        return size_of(self._data / file.path) == file.size

    def _part(self, index: int) -> Path:
        return self._pack.with_name(f"{index}.part")

    def _store_pack(self) -> int | None:
        """Put the pieces of the pack into their files. Return a content with another checksum; None: none."""
        damaged = None
        with suppress(FileNotFoundError), self._pack.open("rb") as source:
            for index, offset, size in json.loads(source.readline()):
                end = source.tell() + size
                files = self._contents[index]
                if not self._is_there(files[0]):
                    part = self._part(index)
                    with open(os.open(part, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as sink:  # noqa: PTH123
                        sink.seek(offset)
                        while chunk := source.read(min(end - source.tell(), 1 << 20)):
                            sink.write(chunk)
                    if offset + size == files[0].size and not self._place(part, files):
                        damaged = index
                source.seek(end)
        self._pack.unlink(missing_ok=True)
        return damaged

    def _place(self, part: Path, files: list[SentFile]) -> bool:
        """Give a complete content its names; False: its checksum differs, and it is removed."""
        with part.open("rb") as content:
            if sha256_of(content) != files[0].sha256:
                part.unlink()
                return False
        # The first one says that all are there, so it comes last.
        for file in files[:0:-1]:
            shutil.copyfile(part, copy := part.with_name("copy"))
            self._rename(copy, file)
        self._rename(part, files[0])
        if self._cache is not None and not self._cache.has(_key(files[0])):
            with self._cache.entry(_key(files[0]), files[0].path) as cached:
                cached.keep_copy(self._data / files[0].path)
        return True

    def _rename(self, content: Path, file: SentFile) -> None:
        target = self._data / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        content.chmod(0o755 if file.executable else 0o644)
        content.replace(target)

    def _copy_from_cache(self, missing: list[int]) -> bool:
        """Copy what the machine has; False: not all of it, as that takes long."""
        until = time.monotonic() + _COPY_S
        for index in missing:
            files = self._contents[index]
            if self._cache is not None and self._cache.has(_key(files[0])):
                if time.monotonic() > until:
                    return False
                with self._cache.entry(_key(files[0]), files[0].path, ("sha256", files[0].sha256)) as cached:
                    if cached.exists and cached.copy(self._part(index)):
                        self._place(self._part(index), files)
        return True

    def _may_receive(self) -> bool:
        """Tell whether this run receives for the machine; False while another one does."""
        if self._shared is None:
            return True
        self._shared.mkdir(parents=True, exist_ok=True, mode=0o700)
        own = str(self._pack.parent)
        with (self._shared / "receiver").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            receiver = Path(file.read() or own)
            if str(receiver) != own and _changed_at(receiver) > time.time() - _SILENT_S:
                return False
            file.truncate(0)
            file.write(own)
        return True

    def _finish(self) -> None:
        """Make the links and the empty files, and remove what is left of the transfer."""
        for file in self._files:
            target = self._data / file.path
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if file.target is None:
                    target.touch(0o755 if file.executable else 0o644)
                else:
                    target.symlink_to(file.target)
        shutil.rmtree(self._pack.parent)
        self._pack.parent.mkdir()  # its time is that of the end, from which the lease counts


def _key(file: SentFile) -> str:
    """Return the key of a content in the cache, which is that of a download with this checksum."""
    return f"sha256\n{file.sha256}"


def _changed_at(folder: Path) -> float:
    """Return when a run last received something; 0: it has all, or is gone."""
    with suppress(OSError):
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
