"""A folder of checkpoints at any URL that fsspec knows, such as s3://bucket/path."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

LATEST = "latest.json"
_CHUNK = 8 << 20
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "oss"}
"""They have no folders, and asked for one they may make a bucket whose name was mistyped."""


@dataclass(frozen=True)
class RemoteCheckpoints:
    """One such folder. Whatever goes wrong with it raises one of `faults()`."""

    files: Any
    root: str

    @classmethod
    def at(cls, url: str) -> Self:
        """Imported here: a box may do without fsspec."""
        from fsspec.core import url_to_fs

        return cls(*url_to_fs(url))

    def checkpoints(self) -> list[str]:
        """The names of those that are there, whole or not, oldest first."""
        self.files.invalidate_cache()
        try:
            paths = self.files.ls(self.root, detail=False)
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in paths)
        return sorted((name for name in names if step_of(name) >= 0), key=step_of)

    def latest(self) -> str | None:
        """The name of the newest that is whole."""
        try:
            return str(json.loads(self.files.cat_file(f"{self.root}/{LATEST}"))["path"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def name_latest(self, name: str) -> None:
        latest = {"step": step_of(name), "path": name}
        self.files.pipe_file(f"{self.root}/{LATEST}", (json.dumps(latest) + "\n").encode())

    def write(self, path: str, source: BinaryIO) -> None:
        """All of the source is at that path."""
        target = f"{self.root}/{path}"
        if _OBJECT_STORES.isdisjoint(self._protocols()):
            self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
        with self.files.open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)

    def fetch(self, path: str, target: Path) -> None:
        """The file at that path is here. Raises FileNotFoundError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.files.open(f"{self.root}/{path}", "rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)

    def remove(self, name: str) -> None:
        """That checkpoint is gone."""
        self.files.rm(f"{self.root}/{name}", recursive=True)

    def _protocols(self) -> tuple[str, ...]:
        protocol = self.files.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def step_of(name: str) -> int:
    """The step of a checkpoint, by its name; -1 for anything else."""
    digits = name.removeprefix("step-")
    return int(digits) if digits != name and digits.isdecimal() else -1


def faults() -> tuple[type[BaseException], ...]:
    """What a box without a package, a network, a bucket or a key raises."""
    botocore = sys.modules.get("botocore.exceptions")
    known = (OSError, ImportError, ValueError)
    return known if botocore is None else (*known, botocore.BotoCoreError, botocore.ClientError)


def in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return f"{text} (setup: [pip install s3fs] in the job file)" if isinstance(error, ImportError) else text
