"""Fetch: download the newest whole checkpoint that earlier runs pushed to a URL, to continue from it.

`python -m vastrun.trainer.transfer.fetch` runs before the ranks start. A checkpoint that came with the bundle
stays when it is newer. One of a later run always counts as newer: a run that began another stage counts its
steps from zero.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path, PurePosixPath

from vastrun.contract import layout
from vastrun.contract.checksum import sha256_of
from vastrun.contract.job import Job
from vastrun.contract.outcome import FileChecksum, FileList
from vastrun.contract.records import read_json, write_json
from vastrun.trainer.transfer.remote_checkpoints import (
    LATEST,
    RemoteCheckpoints,
    TooLargeError,
    faults,
    in_one_line,
    step_of,
)

_MANIFEST = "manifest.json"
_STATE = "state.json"
_MAX_MANIFEST_BYTES = 32 << 20
_MAX_FILES = 100_000
_FREE_BYTES = 50 * 10**6
"""Bytes that stay free on the disk, for the log."""


def main() -> int:
    """Return 1 when the job must start from a URL and there is no whole checkpoint at it, else 0."""
    box = Path(os.environ["VASTRUN_BOX"])
    job, target = Job.read(box), box / layout.RESUME
    # The last run comes first; an earlier one is tried only where that one's URL has nothing newer.
    for url in job.pushed:
        if bring(url, target):
            return 0
    if job.start_from is None or newest_step(target) >= 0:
        return 0
    # A URL that is in `pushed` too has been tried above.
    if job.start_from not in job.pushed and bring(job.start_from, target):
        return 0
    print(f"there is no whole checkpoint at {job.start_from} to start from", flush=True)
    return 1


def bring(url: str, target: Path) -> bool:
    """Download the newest whole checkpoint at the URL into the folder `target`. Return whether there was one.

    Only those count that are newer than all in `target`. A URL out of reach is reported in a line, as False.
    """
    try:
        remote, least = (
            RemoteCheckpoints.at(url),
            -1 if _is_of_a_nearer_run(url, target) else newest_step(target),
        )
        newer = [name for name in remote.checkpoints() if step_of(name) > least]
        # The newest first: where one is damaged or half pushed, the next older one is tried.
        return any(_bring_whole(remote, name, url, target) for name in reversed(newer))
    except faults() as error:
        print(f"no checkpoint was downloaded from {url}: {in_one_line(error)}", flush=True)
        return False


def newest_step(folder: Path) -> int:
    """Return the highest step of the checkpoints in a folder; -1 when there is none."""
    return max((step_of(path.name) for path in folder.glob("step-*")), default=-1)


def _is_of_a_nearer_run(url: str, target: Path) -> bool:
    """Tell whether the URL is of a later run than the one whose checkpoints came with the bundle.

    The job's URLs are those of that run and of the runs since, each with the run's id at its end.
    """
    try:
        newest = max(target.glob("step-*"), key=lambda path: step_of(path.name))
        run: str = json.loads((newest / _STATE).read_text(encoding="utf-8"))["made_by"]["run_id"]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or a user's own program made it
        return False
    return url.rstrip("/").rpartition("/")[2] != run


def _bring_whole(remote: RemoteCheckpoints, name: str, url: str, target: Path) -> bool:
    """Download and check one checkpoint. Return False, after a line, if it does not match its manifest."""
    # Under a name of its own until it is whole: the ranks load whatever is called `step-*`.
    part = target / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        size = _download(remote, name, part)
    except DamagedDownloadError as error:
        print(f"checkpoint {name} at {url} is not whole ({error}); it is skipped", flush=True)
        return False
    else:
        # Checkpoints of an earlier stage may have higher steps, and would be taken for newer ones.
        for path in target.glob("step-*"):
            if step_of(path.name) >= step_of(name):
                shutil.rmtree(path)
        part.rename(target / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    write_json(target / LATEST, {"step": step_of(name), "path": name})
    print(f"checkpoint {name} fetched from {url}, {size / 1e6:.1f} MB", flush=True)
    return True


class DamagedDownloadError(Exception):
    """A checkpoint at a URL is not, or not yet, what its manifest says."""


def _download(remote: RemoteCheckpoints, name: str, part: Path) -> int:
    """Download and check every file of a checkpoint. Return their bytes. Raises DamagedDownloadError."""
    try:
        remote.fetch(f"{name}/{_MANIFEST}", part / _MANIFEST, _MAX_MANIFEST_BYTES)
        files = _listed(part / _MANIFEST)
        # Before its first byte: half a checkpoint is of no use, and a full disk ends the run.
        size, free = sum(file.size for file in files), shutil.disk_usage(part).free
        if size + _FREE_BYTES > free:
            raise DamagedDownloadError(
                f"its manifest lists {size / 1e6:.1f} MB, and the disk has {free / 1e6:.1f} MB free"
            )
        for file in files:
            remote.fetch(f"{name}/{file.path}", part / file.path, file.size)
            _check(part / file.path, file)
    except FileNotFoundError as error:
        raise DamagedDownloadError(f"a file is missing: {error}") from error
    except TooLargeError as error:
        raise DamagedDownloadError(str(error)) from error
    return sum(file.size for file in files)


def _listed(manifest: Path) -> tuple[FileChecksum, ...]:
    """Read a manifest. Raises DamagedDownloadError, also for a path that leads out of the checkpoint."""
    try:
        listed: FileList = read_json(FileList, manifest.read_bytes())
    except ValueError as error:
        raise DamagedDownloadError(f"its manifest cannot be read: {error}") from error
    if len(listed.files) > _MAX_FILES:
        raise DamagedDownloadError(f"its manifest lists more than {_MAX_FILES} files")
    if len({file.path for file in listed.files}) < len(listed.files):
        raise DamagedDownloadError("its manifest lists a file twice")
    for file in listed.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts:
            raise DamagedDownloadError(f"its manifest leads elsewhere: {file.path}")
    return listed.files


def _check(path: Path, file: FileChecksum) -> None:
    with path.open("rb") as content:
        digest = sha256_of(content)
    if (path.stat().st_size, digest) != (file.size, file.sha256):
        raise DamagedDownloadError(f"{file.path} is not what was saved")


if __name__ == "__main__":
    sys.exit(main())
