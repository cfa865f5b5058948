"""Remote checkpoints: access a folder of checkpoints at any URL that fsspec supports (s3://bucket/path)."""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vastrun.contract.checkpoint_folder import LATEST
from vastrun.contract.texts import hide_forms

_NAME = re.compile(r"step-(\d{6,18})", re.ASCII)
_CHUNK = 8 << 20
_MAX_LATEST_BYTES = 4 << 10
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "oss"}
"""Protocols without folders: creating a folder could create a bucket for a mistyped name."""


class TooLargeError(ValueError):
    """A file at a URL exceeds its size limit."""


class RemoteCheckpoints:
    """A folder of checkpoints at a URL. Its methods raise one of `transfer_errors()`."""

    def __init__(self, url: str) -> None:
        """Open the folder. Raises ImportError without fsspec, or its package for the protocol."""
        # Imported here: a box that pushes nothing does not need fsspec.
        from fsspec.core import url_to_fs

        self._files, self._root = url_to_fs(url)

    def checkpoints(self) -> list[str]:
        """Return the names of all checkpoints there, complete or not, oldest first."""
        # fsspec may otherwise return a cached listing.
        self._files.invalidate_cache()
        try:
            paths = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in paths)
        return sorted((name for name in names if step_of(name) >= 0), key=step_of)

    def latest(self) -> str | None:
        """Return the name of the newest complete checkpoint from `latest.json`; None when there is none."""
        try:
            with self._files.open(f"{self._root}/{LATEST}", "rb") as file:
                return str(json.loads(file.read(_MAX_LATEST_BYTES))["path"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write_latest(self, name: str) -> None:
        """Write `latest.json` with the name of a checkpoint."""
        latest = {"step": step_of(name), "path": name}
        self._files.pipe_file(f"{self._root}/{LATEST}", (json.dumps(latest) + "\n").encode())

    def write(self, path: str, source: BinaryIO) -> None:
        """Upload all of the source to a path relative to the folder."""
        with self._files.open(self._place(path), "wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)

    def copy(self, source: str, target: str) -> bool:
        """Copy a file within the folder, without its bytes passing here; return False where that fails."""
        with suppress(*transfer_errors(), NotImplementedError):
            self._files.cp_file(f"{self._root}/{source}", self._place(target))
            return True
        return False

    def _place(self, path: str) -> str:
        """Return the full path of a file to be written, in a folder that exists."""
        target = f"{self._root}/{path}"
        protocols = self._files.protocol
        if _OBJECT_STORES.isdisjoint([protocols] if isinstance(protocols, str) else protocols):
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        return target

    def fetch(self, path: str, target: Path, max_bytes: int) -> None:
        """Download the file at a path relative to the folder.

        Raises FileNotFoundError, and TooLargeError after more than `max_bytes`.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        left = max_bytes
        with self._files.open(f"{self._root}/{path}", "rb") as source, target.open("wb") as sink:
            while chunk := source.read(min(_CHUNK, left + 1)):
                left -= len(chunk)
                if left < 0:
                    raise TooLargeError(f"{path} is larger than {max_bytes} bytes")
                sink.write(chunk)

    def remove(self, name: str) -> None:
        self._files.rm(f"{self._root}/{name}", recursive=True)


def step_of(name: str) -> int:
    """Return the step in a checkpoint's name; -1 when it is not the name of a checkpoint."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else -1


def transfer_errors() -> tuple[type[BaseException], ...]:
    """Return the errors of a missing package, network, bucket or key, for an `except`.

    Errors of botocore are no OSErrors. They can only be raised after it was imported.
    """
    botocore = sys.modules.get("botocore.exceptions")
    known = (OSError, ImportError, ValueError)
    return known if botocore is None else (*known, botocore.BotoCoreError, botocore.ClientError)


def say(text: str) -> None:
    """Print a line; a URL in it may hold a key."""
    print(hide_forms(text), flush=True)


def in_one_line(error: BaseException) -> str:
    """Return an error's text in one line, cut to 300 characters; for a missing package, with advice."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return f"{text} (setup: [pip install s3fs] in the job file)" if isinstance(error, ImportError) else text
