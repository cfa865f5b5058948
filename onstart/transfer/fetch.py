"""Fetch: download the newest complete checkpoint that earlier runs pushed to a URL, to continue from it.

`python -m vastrun.onstart.transfer.fetch` runs before the ranks start. An uploaded checkpoint stays when it
is newer. A checkpoint of a later run always counts as newer: a run of another stage counts its steps from
zero.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import LATEST, MANIFEST, DamagedError, checksum_file, read_manifest
from vastrun.contract.data_cache import FREE_BYTES
from vastrun.contract.job import Job
from vastrun.contract.records import write_json
from vastrun.onstart.transfer import remote_checkpoints


def main() -> int:
    """Return 1 when the job must start from a URL and it has no complete checkpoint, else 0."""
    box = Path(os.environ["VASTRUN_BOX"])
    job, target = Job.read(box), box / layout.RESUME
    # The last run comes first; an earlier one is tried only where the URLs before have nothing newer.
    for url in job.pushed:
        if fetch_newest(url, target):
            return 0
    if job.start_from is None or newest_step(target) >= 0:
        return 0
    # A URL in `pushed` has been tried above.
    if job.start_from not in job.pushed and fetch_newest(job.start_from, target):
        return 0
    remote_checkpoints.say(f"{job.start_from} has no complete checkpoint to start from")
    return 1


def fetch_newest(url: str, target: Path) -> bool:
    """Download the newest complete checkpoint at the URL into `target`. Return True if there was one.

    Only checkpoints that are newer than all in `target` count. For an unreachable URL, print a line and
    return False.
    """
    try:
        remote = remote_checkpoints.RemoteCheckpoints(url)
        min_step = -1 if _is_of_later_run(url, target) else newest_step(target)
        newer = [name for name in remote.checkpoints() if remote_checkpoints.step_of(name) > min_step]
        # The newest first: if it is damaged or incomplete, the next older one is tried.
        return any(_fetch_verified(remote, name, url, target) for name in reversed(newer))
    except remote_checkpoints.transfer_errors() as error:
        remote_checkpoints.say(
            f"no checkpoint was downloaded from {url}: {remote_checkpoints.in_one_line(error)}"
        )
        return False


def newest_step(folder: Path) -> int:
    """Return the highest step of the checkpoints in a folder; -1 when there is none."""
    return max((remote_checkpoints.step_of(path.name) for path in folder.glob("step-*")), default=-1)


def _is_of_later_run(url: str, target: Path) -> bool:
    """Tell whether the URL belongs to a later run than the uploaded checkpoints.

    The job's URLs are those of that run and of later runs; each ends with the run's id.
    """
    try:
        newest = max(target.glob("step-*"), key=lambda path: remote_checkpoints.step_of(path.name))
        run: str = json.loads((newest / "state.json").read_text(encoding="utf-8"))["made_by"]["run_id"]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or a user's program stored it
        return False
    return url.rstrip("/").rpartition("/")[2] != run


def _fetch_verified(remote: remote_checkpoints.RemoteCheckpoints, name: str, url: str, target: Path) -> bool:
    """Download and verify one checkpoint. Print a line and return False if it does not match its manifest."""
    # Under a temporary name until it is complete: the ranks load any folder `step-*`.
    part = target / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        size = _download(remote, name, part)
    except DamagedError as error:
        remote_checkpoints.say(f"checkpoint {name} at {url} is incomplete ({error}); it is skipped")
        return False
    else:
        # Checkpoints of an earlier stage may have higher steps, and would count as newer.
        for path in target.glob("step-*"):
            if remote_checkpoints.step_of(path.name) >= remote_checkpoints.step_of(name):
                shutil.rmtree(path)
        part.rename(target / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    write_json(target / LATEST, {"step": remote_checkpoints.step_of(name), "path": name})
    remote_checkpoints.say(f"checkpoint {name} fetched from {url}, {size / 1e6:.1f} MB")
    return True


def _download(remote: remote_checkpoints.RemoteCheckpoints, name: str, part: Path) -> int:
    """Download and verify every file of a checkpoint. Return the bytes. Raises DamagedError."""
    try:
        remote.fetch(f"{name}/{MANIFEST}", part / MANIFEST, max_bytes=32 << 20)
        files = read_manifest(part, remote_checkpoints.step_of(name)).files
        # Before the first byte: a part of a checkpoint is useless, and a full disk ends the run.
        size, free = sum(file.size for file in files), shutil.disk_usage(part).free
        if size + FREE_BYTES > free:
            raise DamagedError(
                f"its manifest lists {size / 1e6:.1f} MB, but the disk has {free / 1e6:.1f} MB free"
            )
        for file in files:
            remote.fetch(f"{name}/{file.path}", part / file.path, file.size)
            if replace(checksum_file(part / file.path), path=file.path) != file:
                raise DamagedError(f"{file.path} does not match its checksum")
    except FileNotFoundError as error:
        raise DamagedError(f"a file is missing: {error}") from error
    except remote_checkpoints.transfer_errors() as error:  # of this one: an older one may be whole
        raise DamagedError(remote_checkpoints.in_one_line(error)) from error
    return sum(file.size for file in files)


if __name__ == "__main__":
    sys.exit(main())
