"""Push: finished checkpoints leave the box for any URL that fsspec knows, such as s3://bucket/path.

`python -m trainer.transfer.push PARENT` follows the training while that process lives; `once` after it:
the newest is brought away, no more. A failure is one line of the log and hurts nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.supervision.processes import die_with_parent
from trainer.transfer.remote_checkpoints import LATEST, RemoteCheckpoints, faults, in_one_line

_LOOK_S = 2.0
_MANIFEST = "manifest.json"
_KEPT = 2


def main(arguments: list[str]) -> int:
    parent, *once = arguments
    die_with_parent(int(parent))
    box = Path(os.environ["VASTRUN_BOX"])
    job = Job.read(box)
    if job.push is None:
        return 0
    push = Push(box / layout.CHECKPOINTS, f"{job.push.rstrip('/')}/{job.run_id}")
    return push.once() if once else push.until_killed()


@dataclass
class Push:
    """The checkpoints of one run, and where they go."""

    folder: Path
    url: str

    def once(self) -> int:
        """The newest checkpoint is there, whole: 0. Or a line says why it is not: 1."""
        try:
            remote = RemoteCheckpoints.at(self.url)
            newest = _newest(self.folder)
            if newest is not None and newest != remote.latest():
                _upload(remote, self.folder / newest)
                print(f"checkpoint {newest} pushed to {self.url}", flush=True)
        except faults() as error:
            print(f"checkpoints are not pushed to {self.url}: {in_one_line(error)}", flush=True)
            return 1
        return 0

    def until_killed(self) -> int:
        """Each new checkpoint is there soon. Tries again only when there is a newer one."""
        tried: str | None = None
        while True:
            newest = _newest(self.folder)
            if newest != tried:
                tried = newest
                self.once()
            time.sleep(_LOOK_S)


def _upload(remote: RemoteCheckpoints, checkpoint: Path) -> None:
    """The checkpoint is there, then `latest.json` names it; of older ones, one stays."""
    names = sorted(path.relative_to(checkpoint).as_posix() for path in _files_of(checkpoint))
    with ExitStack() as stack:
        # Opened first: the training may remove it meanwhile.
        sources = {name: stack.enter_context((checkpoint / name).open("rb")) for name in names}
        for name, source in sources.items():
            remote.write(f"{checkpoint.name}/{name}", source)
    remote.name_latest(checkpoint.name)
    for older in remote.checkpoints()[:-_KEPT]:
        remote.remove(older)


def _files_of(checkpoint: Path) -> Iterator[Path]:
    """All of a checkpoint that is complete."""
    if not (checkpoint / _MANIFEST).is_file():
        raise FileNotFoundError(f"{checkpoint.name} was removed meanwhile")
    yield from (path for path in checkpoint.rglob("*") if path.is_file())


def _newest(folder: Path) -> str | None:
    try:
        name = json.loads((folder / LATEST).read_text(encoding="utf-8"))["path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
