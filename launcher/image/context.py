"""The build context: the files that `.dockerignore` lets in, and the wheels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from launcher.bundle.archive import Archive
from launcher.core.errors import ImageError

_HASH_LETTERS = 12


def files_of(root: Path) -> list[str]:
    """The paths of the context, relative to `root`, sorted."""
    from docker.utils.build import exclude_paths

    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    return sorted(path for path in exclude_paths(str(root), patterns) if (root / path).is_file())


def fingerprint(root: Path, paths: Iterable[str], arguments: Mapping[str, str]) -> str:
    """Of all that goes into an image: names, contents and whether it is a program; and the arguments."""
    total = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode())
    try:
        for path in paths:
            content, mode = (root / path).read_bytes(), (root / path).stat().st_mode
            executable = bool(mode & 0o100)
            total.update(f"\0{path}\0{executable}\0{hashlib.sha256(content).hexdigest()}".encode())
    except OSError as error:
        raise ImageError(f"cannot read {error.filename}: {error.strerror}") from error
    return total.hexdigest()[:_HASH_LETTERS]


def write_context(archive_path: Path, root: Path, paths: Iterable[str], wheels: Path) -> None:
    """One archive of the files, with the wheels beside them. Raises ImageError when there is no room."""
    try:
        # Wheels are compressed already.
        with Archive(archive_path, compression=0) as archive:
            for path in paths:
                archive.add_file(path, root / path)
            for wheel in sorted(wheels.glob("*.whl")):
                archive.add_file(f"wheels/{wheel.name}", wheel)
    except OSError as error:
        raise ImageError(f"cannot write {archive_path}: {error.strerror}", hint="export TMPDIR=…") from error
