"""Files to download, and what downloads them: the step of a boot, or one download without its pauses."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.boxes import run_module, write_job
from vastrun.contract import layout
from vastrun.contract.data_files import JobDataFile
from vastrun.onstart.transfer.download import FileDownload
from vastrun.onstart.transfer.sources import DataFileError, HttpSource, ObjectSource

MEGABYTE = 1 << 20
CONTENT = bytes(range(256)) * (4 * MEGABYTE // 256) + b"the end"


def described(url: str, content: bytes = CONTENT, **changes: Any) -> JobDataFile:
    fields: dict[str, Any] = {
        "url": url,
        "path": "set/file.bin",
        "size": len(content),
        "max_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return JobDataFile(**{**fields, **changes})


def download(
    file: JobDataFile,
    folder: Path,
    *,
    source: HttpSource | ObjectSource | None = None,
    sleep: Callable[[float], None] = lambda _seconds: None,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Download without its pauses; return the digest."""
    source = source or HttpSource(file.url)
    return FileDownload(file, source, folder / "part", sleep=sleep, now=now).run()


def failure(file: JobDataFile, folder: Path, **options: Any) -> tuple[str, str]:
    """Who is to blame that the file cannot be downloaded, and why."""
    with pytest.raises(DataFileError) as raised:
        download(file, folder, **options)
    return raised.value.blame, str(raised.value)


def step(box: Path, files: list[dict[str, Any]], **environ: str) -> tuple[int, list[str]]:
    """Exit code and lines of the step."""
    (box / layout.DATA).mkdir(parents=True, exist_ok=True)
    write_job(box, data=files)
    done = run_module(box, "transfer.data_files", **{"VASTRUN_DATA": str(box / layout.DATA), **environ})
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def as_json(file: JobDataFile) -> dict[str, Any]:
    return dict(vars(file))
