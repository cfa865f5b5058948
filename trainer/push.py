"""Push: finished checkpoints leave the box for any URL that fsspec knows, such as s3://bucket/path.

`python -m trainer.push PARENT` follows the training while that process lives; `once` after it: the newest is
brought away, no more. A failure is one line of the log and hurts nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer import layout
from trainer.job import Job
from trainer.supervision.processes import die_with_parent

_LOOK_S = 2.0
_LATEST = "latest.json"
_MANIFEST = "manifest.json"
_KEPT = 2
_CHUNK = 8 << 20
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "oss"}
"""They have no folders, and asked for one they may make a bucket whose name was mistyped."""


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
            files, root = _file_system(self.url)
            newest = _newest(self.folder)
            if newest is not None and newest != _newest_there(files, root):
                _upload(files, root, self.folder / newest)
                print(f"checkpoint {newest} pushed to {self.url}", flush=True)
        except _faults() as error:
            print(f"checkpoints are not pushed to {self.url}: {_one_line(error)}", flush=True)
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


def _upload(files: Any, root: str, checkpoint: Path) -> None:
    """The checkpoint is there, then `latest.json` names it; of older ones, one stays."""
    names = sorted(path.relative_to(checkpoint).as_posix() for path in _files_of(checkpoint))
    with ExitStack() as stack:
        # Opened first: the training may remove it meanwhile.
        sources = {name: stack.enter_context((checkpoint / name).open("rb")) for name in names}
        for name, source in sources.items():
            target = f"{root}/{checkpoint.name}/{name}"
            if _OBJECT_STORES.isdisjoint(_protocols(files)):
                files.makedirs(target.rpartition("/")[0], exist_ok=True)
            with files.open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, _CHUNK)
    latest = {"step": int(checkpoint.name.removeprefix("step-")), "path": checkpoint.name}
    files.pipe_file(f"{root}/{_LATEST}", (json.dumps(latest) + "\n").encode())
    for older in _there(files, root)[:-_KEPT]:
        files.rm(older, recursive=True)


def _files_of(checkpoint: Path) -> Iterator[Path]:
    """All of a checkpoint that is complete."""
    if not (checkpoint / _MANIFEST).is_file():
        raise FileNotFoundError(f"{checkpoint.name} was removed meanwhile")
    yield from (path for path in checkpoint.rglob("*") if path.is_file())


def _newest(folder: Path) -> str | None:
    try:
        name = json.loads((folder / _LATEST).read_text(encoding="utf-8"))["path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(name)


def _newest_there(files: Any, root: str) -> str | None:
    try:
        return str(json.loads(files.cat_file(f"{root}/{_LATEST}"))["path"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _there(files: Any, root: str) -> list[str]:
    """Checkpoints at the URL, oldest first."""
    files.invalidate_cache()
    steps = [str(path) for path in files.ls(root, detail=False) if "/step-" in str(path)]
    return sorted(steps, key=lambda path: int(path.rstrip("/").rpartition("-")[2]))


def _file_system(url: str) -> tuple[Any, str]:
    """Imported here: a box may do without either."""
    from fsspec.core import url_to_fs

    files, root = url_to_fs(url)
    return files, root


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _faults() -> tuple[type[BaseException], ...]:
    """What a box without a package, a network, a bucket or a key raises."""
    botocore = sys.modules.get("botocore.exceptions")
    known = (OSError, ImportError, ValueError)
    return known if botocore is None else (*known, botocore.BotoCoreError, botocore.ClientError)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return f"{text} (setup: [pip install s3fs] in the job file)" if isinstance(error, ImportError) else text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
