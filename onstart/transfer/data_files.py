"""Data files: download what the job's `data:` names to the data folder, before the ranks start.

Standard library only. `python -m vastrun.onstart.transfer.data_files` is a step of a run, whose output is
unbuffered. A file that is there already, in the folder of a rehearsal, is compared and kept. On a held
machine the files come from its cache (data_cache.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.data_cache import DataCache, megabytes, new_hash
from vastrun.contract.data_files import EXIT_OF_BLAME, HUB_ENDPOINT, JobDataFile, hub_address, path_fault
from vastrun.contract.job import Job
from vastrun.onstart.transfer.download import FileDownload, hash_into
from vastrun.onstart.transfer.sources import DataFileError, HttpSource, ObjectSource, disk_error


def main() -> int:
    """Download all files. Return 0, or the exit code that tells who is to blame."""
    box = Path(os.environ["VASTRUN_BOX"])
    folder = Path(os.environ.get("VASTRUN_DATA") or box / layout.DATA)
    shared = os.environ.get("VASTRUN_SHARED_DATA")
    cache = DataCache(Path(shared)) if shared else None
    try:
        for file in Job.read(box).data:
            provide(file, folder, cache, os.environ)
    except DataFileError as error:
        print(error)
        return EXIT_OF_BLAME[error.blame]
    return 0


def provide(file: JobDataFile, folder: Path, cache: DataCache | None, environ: Mapping[str, str]) -> None:
    """Put a file into the data folder. Raises DataFileError."""
    target = _target(file, folder)
    if _is_there(file, target):
        return
    part = target.with_name(f".{target.name}.part")
    source = source_of(file, environ)
    try:
        if cache is None or not _through_cache(file, source, part, cache):
            _download(file, source, part)
        part.replace(target)
    except OSError as error:
        located = disk_error(error)
        raise DataFileError(located.blame, f"{file.path}: {located}") from error


def source_of(file: JobDataFile, environ: Mapping[str, str]) -> HttpSource | ObjectSource:
    """Return the place that a file's URL names."""
    scheme = file.url.partition("://")[0]
    if scheme == "hf":
        address = hub_address(file.url, environ.get("HF_ENDPOINT") or HUB_ENDPOINT)
        advice = "; a private file needs secrets: [HF_TOKEN] in the job file"
        return HttpSource(address, token=environ.get("HF_TOKEN", ""), advice=advice)
    return HttpSource(file.url) if scheme in ("http", "https") else ObjectSource(file.url)


def _target(file: JobDataFile, folder: Path) -> Path:
    """Return the path of a file and make its folder. Raises DataFileError if it leads elsewhere."""
    target, fault = folder / file.path, path_fault(file.path)
    if fault is not None:
        raise DataFileError("job", f"data: path: {fault}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # `setup` may have left a link there.
        if folder.resolve() not in (target.resolve(), *target.resolve().parents) or target.is_dir():
            raise DataFileError("job", f"{file.path}: in $VASTRUN_DATA it is a folder, or leads out of it")
    except (OSError, RuntimeError) as error:
        raise DataFileError("host", f"{file.path}: this machine cannot store it: {error}") from error
    return target


def _is_there(file: JobDataFile, target: Path) -> bool:
    """Tell whether the file is there, as the job describes it. Another one of its name is removed."""
    try:
        size = target.stat().st_size
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataFileError("host", f"{file.path}: this machine cannot read it: {error}") from error
    is_same, how = size == file.size if file.size is not None else size <= file.max_bytes, "the size"
    if is_same and file.checksum is not None:
        how, total = file.checksum[0], new_hash(file.checksum[0])
        with suppress(OSError):
            hash_into(total, target)
        is_same = total.hexdigest() == file.checksum[1]
    if is_same:
        print(f"{file.path}: already there, {megabytes(size)}; {how} matches")
    else:
        print(f"{file.path}: another file of this name is there; it is replaced")
        target.unlink()
    return is_same


def _through_cache(
    file: JobDataFile, source: HttpSource | ObjectSource, part: Path, cache: DataCache
) -> bool:
    """Copy the file from the machine's cache to `part`, after a download into it if need be.

    False: the disk has no room for both. Raises DataFileError, OSError.
    """
    size = file.size or file.max_bytes
    # By its checksum, else by its URL and size.
    identity = file.checksum or (file.url, str(file.size or file.max_bytes))
    with cache.entry("\n".join(identity), file.path, file.checksum) as cached:
        if cached.exists:
            cache.make_room(size)
            if cached.copy(part):
                print(f"{file.path}: copied from this machine's cache, {megabytes(part.stat().st_size)}")
                return True
        if not cache.make_room(2 * size - cached.downloaded):
            print(f"{file.path}: the disk has no room for a copy in this machine's cache")
            cached.part.unlink(missing_ok=True)
            return False
        cached.keep(_download(file, source, cached.part, " to this machine's cache"))
        return cached.copy(part)


def _download(file: JobDataFile, source: HttpSource | ObjectSource, part: Path, where: str = "") -> str:
    """Download a file to `part` and return its digest. Raises DataFileError, OSError."""
    began_at = time.monotonic()
    print(f"{file.path}: downloading from {source.server}{where}")
    digest, size = FileDownload(file, source, part).run(), part.stat().st_size
    seconds = time.monotonic() - began_at
    speed = megabytes(size / max(seconds, 0.001))
    ended = f"{file.path}: {megabytes(size)} in {seconds:.0f} s ({speed}/s)"
    if file.checksum is None:
        print(f"{ended}; not compared: the job file has no checksum (sha256: {digest})")
    else:
        print(f"{ended}; {file.checksum[0]} matches")
    return digest


if __name__ == "__main__":
    sys.exit(main())
