"""A box that trains and saves checkpoints, and the folder to which they are downloaded."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.fakebox import manifest_of
from tests.launcher.outputs.boxes import ReadOnlyBox, run_in
from vastrun.contract import layout
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import CheckpointCopy, CommandResult
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.ports import Remote

ALL = 1 << 30


class TrainingBox(ReadOnlyBox):
    """A Remote that only reads, of a box that saves checkpoints and keeps the last two."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        """Path and size of each answer that was not empty."""
        self.cut = False
        self.has_links = True
        """Its disk knows hard links."""

    def save(self, step: int, files: dict[str, bytes], *, sums: dict[str, bytes] | None = None) -> None:
        """A checkpoint, whose manifest names `files`, or what `sums` says."""
        folder = f"{layout.CHECKPOINTS}/step-{step:06d}"
        self.files |= {f"{folder}/{name}": content for name, content in files.items()}
        self.files[f"{folder}/manifest.json"] = manifest_of(sums or files, step=step)
        latest = {"step": step, "path": f"step-{step:06d}"}
        self.files[f"{layout.CHECKPOINTS}/latest.json"] = (json.dumps(latest) + "\n").encode()

    def drop(self, step: int) -> None:
        """The checkpoint is removed to make room."""
        folder = f"{layout.CHECKPOINTS}/step-{step:06d}/"
        self.files = {path: content for path, content in self.files.items() if not path.startswith(folder)}

    def end(self) -> None:
        """The run is over: everything is listed for collection."""
        listed = {path: self.files[path] for path in sorted(self.files) if path.startswith("run/")}
        self.files[layout.MANIFEST] = manifest_of(listed)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        if self.cut:
            raise UnreachableError("cable pulled")
        content = self.files.get(path, b"")[offset : offset + limit]
        if content:
            self.asked.append((path, len(content)))
        return content

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        self.files = {path: content for path, content in self.files.items() if not path.startswith("outbox/")}
        linked = re.search(r"cp -rl run/checkpoints/(\S+) outbox/$", command)
        if linked and self.has_links:
            folder = f"{layout.CHECKPOINTS}/{linked[1]}/"
            for path in [path for path in self.files if path.startswith(folder)]:
                self.files[path.replace(layout.CHECKPOINTS, "outbox", 1)] = self.files[path]
        return CommandResult(exit_code=0 if self.has_links else 1, stdout="", stderr="")


class Home:
    """The folder of one run, and a new launcher for each call, as after a kill."""

    def __init__(self, folder: Path, box: Remote, spec: JobSpec | None = None) -> None:
        self.folder = folder
        self.box = box
        self._run = run_in(folder)
        if spec is not None:
            self._run = replace(self._run, spec_json=dump_job(spec))
        FolderStore().check(self._run)

    def save(self, limit: int = ALL, now: Callable[[], float] = time.monotonic) -> CheckpointCopy | None:
        return FolderStore(now=now).download_checkpoint(self._run, self.box, limit=limit)

    def collect(self) -> tuple[str, ...] | None:
        """Paths of what is damaged."""
        return FolderStore().collect(self._run, self.box).evidence.damaged

    def files(self) -> dict[str, bytes]:
        """What lies below `checkpoints/`."""
        root = self.folder / "checkpoints"
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def steps(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").glob("*") if path.is_dir())

    def latest(self) -> str:
        name: str = json.loads(self.files()["latest.json"])["path"]
        return name
