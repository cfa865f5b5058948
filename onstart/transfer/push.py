"""Push: upload finished checkpoints to any URL that fsspec supports (s3://bucket/path).

`python -m vastrun.onstart.transfer.push PARENT` uploads each checkpoint while the process PARENT lives; with
the argument `once`, only the newest checkpoint. A failure is logged in one line and ends nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vastrun.contract import checkpoint_folder, layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import FileChecksum
from vastrun.onstart.supervision.processes import die_with_parent
from vastrun.onstart.transfer.remote_checkpoints import (
    RemoteCheckpoints,
    in_one_line,
    say,
    step_of,
    transfer_errors,
)


def main(arguments: list[str]) -> int:
    """Upload each new checkpoint of this box until the process is killed, or once, with a second argument.

    Return the exit status.
    """
    parent, *once = arguments
    die_with_parent(int(parent))
    box = Path(os.environ["VASTRUN_BOX"])
    job = Job.read(box)
    if job.push is None:
        return 0
    ends = tuple(checkpoint_folder.name_of(span.end_step) for span in job.program.stages)
    push = Push(box / layout.CHECKPOINTS, f"{job.push.rstrip('/')}/{job.run_id}", keep=ends)
    if once:
        return push.push_newest()
    tried: str | None = None
    while True:
        newest = _newest(push.folder)
        if newest != tried:  # after a failure, it waits for a newer one
            tried = newest
            push.push_newest()
        time.sleep(2.0)


@dataclass
class Push:
    """Uploads the checkpoints of one run to its URL."""

    folder: Path
    url: str
    keep: tuple[str, ...]
    """Checkpoints, the ends of stages, that are uploaded, and kept there in addition to the newest."""

    def push_newest(self) -> int:
        """Upload the newest checkpoint, and the ends of stages before it, unless they exist there.

        Return 0; 1 after a line on the failure.
        """
        try:
            remote = RemoteCheckpoints(self.url)
            latest = remote.latest()
            for name in self._missing(latest, _newest(self.folder)):
                self._upload(remote, self.folder / name, former=latest)
                say(f"checkpoint {name} pushed to {self.url}")
                latest = name
        except transfer_errors() as error:
            say(f"cannot push checkpoints to {self.url}: {in_one_line(error)}")
            return 1
        return 0

    def _missing(self, latest: str | None, newest: str | None) -> list[str]:
        """List the checkpoints to upload, in the order of their steps. `latest`: the newest at the URL."""
        if newest is None or newest == latest:
            return []
        # They are uploaded in order: one before the latest is complete.
        done = -1 if latest is None else step_of(latest)
        ends = [
            name
            for name in self.keep
            if done < step_of(name) < step_of(newest)
            and (self.folder / name / checkpoint_folder.MANIFEST).is_file()
        ]
        return [*ends, newest]

    def _upload(self, remote: RemoteCheckpoints, checkpoint: Path, *, former: str | None) -> None:
        """Upload a checkpoint, then name it in `latest.json`, then remove all but the newest two and `keep`.

        In this order `latest.json` never names an incomplete checkpoint. Files that are as in the `former`
        one are copied there.
        """
        if not (checkpoint / checkpoint_folder.MANIFEST).is_file():
            raise FileNotFoundError(f"{checkpoint.name} was removed meanwhile")
        tmp = checkpoint.parents[2] / "tmp"
        tmp.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=tmp, prefix="pushing-") as held:
            # Linked first: the training may remove the checkpoint during the upload.
            copy = shutil.copytree(checkpoint, Path(held) / checkpoint.name, copy_function=_link)
            before = _files_of(checkpoint.with_name(former)) if former else frozenset[FileChecksum]()
            unchanged = {file.path for file in before & _files_of(copy)}
            for path in sorted(path for path in copy.rglob("*") if path.is_file()):
                name = path.relative_to(copy).as_posix()
                target = f"{copy.name}/{name}"
                if name not in unchanged or not remote.copy(f"{former}/{name}", target):
                    with path.open("rb") as source:
                        remote.write(target, source)
        remote.write_latest(checkpoint.name)
        # Of others' objects with higher steps none counts, and none is removed.
        own = [name for name in remote.checkpoints() if step_of(name) <= step_of(checkpoint.name)]
        for older in own[:-2]:
            if older not in self.keep:
                remote.remove(older)


def _files_of(checkpoint: Path) -> frozenset[FileChecksum]:
    """Return the files of a checkpoint with their checksums; none of one that is no longer here."""
    with suppress(OSError, ValueError, checkpoint_folder.DamagedError):
        return frozenset(checkpoint_folder.read_manifest(checkpoint, step_of(checkpoint.name)).files)
    return frozenset()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a disk without links
        shutil.copyfile(source, target)


def _newest(folder: Path) -> str | None:
    """Return the name of the newest complete checkpoint; None when there is none yet."""
    return next((path.name for path in checkpoint_folder.newest_first(folder)), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
