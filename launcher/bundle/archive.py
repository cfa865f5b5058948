"""Archive, and the script in it: a tar.gz whose bytes depend on nothing but names, contents and modes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, cast

from vastrun.launcher.config.command import script_of
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.runs import CodeFile


class Archive:
    """Writes one archive. Owner and time of every entry are zero; entries come in the order they are added.

    Raises UsageError when a file to be added cannot be read, OSError when the archive cannot be written.
    """

    def __init__(self, path: Path, *, compression: int = 6) -> None:
        self._raw = path.open("wb")
        self._zip = gzip.GzipFile(
            filename="", mode="wb", compresslevel=compression, fileobj=self._raw, mtime=0
        )
        self._tar = tarfile.open(fileobj=self._zip, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._tar.close()
                self._zip.close()
                self._raw.flush()
        finally:
            for file in (self._zip, self._raw):
                with suppress(OSError):
                    file.close()

    def add_bytes(self, name: str, content: bytes) -> None:
        """Add a file from memory."""
        info = _entry(name, 0o644)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))

    def add_file(self, name: str, path: Path, *, mode: int | None = None) -> CodeFile:
        """Add a file from disk; without a mode, it is executable when its owner may execute it."""
        with _Source(path) as source:
            info = _entry(name, mode or (0o755 if source.mode & stat.S_IXUSR else 0o644))
            info.size = source.size
            self._tar.addfile(info, cast("IO[bytes]", source))
            return CodeFile(
                mode=f"{stat.S_IFREG | info.mode:o}", size=info.size, sha256=source.digest.hexdigest()
            )

    def add_link(self, name: str, target: str) -> CodeFile:
        """Add a symbolic link."""
        info = _entry(name, 0o777)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(info)
        return CodeFile(mode=f"{stat.S_IFLNK:o}", target=target)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = mode
    return info


def must_be_readable(path: Path) -> None:
    """Raise UsageError when the file cannot be opened."""
    with _Source(path):
        return


class _Source:
    """A file to pack. Its own errors are the user's, and are kept apart from those of the archive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # It may have become a link or a pipe since it was chosen.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._file = os.fdopen(os.open(path, flags), "rb")
        except OSError as error:
            hint = "make it readable, or leave it out with code.exclude"
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
        found = os.fstat(self._file.fileno())
        self.size, self.mode = found.st_size, found.st_mode
        if not stat.S_ISREG(self.mode):
            self._file.close()
            raise UsageError(f"cannot read {path}: it is not a file", hint="leave it out with code.exclude")
        self._left = self.size
        self.digest = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror}") from error
        self._left -= len(data)
        self.digest.update(data)
        if len(data) < size and self._left:
            raise UsageError(
                f"{self._path} changed while it was being packed",
                hint="try again when no program is writing to it",
            )
        return data


def check_script(spec: JobSpec) -> None:
    """Raise JobValueError when bash cannot parse the script; skip the check without bash."""
    script = script_of(spec.command or ())
    if script is None:
        return
    try:
        # -n: nothing of it is run.
        read = subprocess.run(
            ["bash", "--noprofile", "--norc", "-n", "-s"],
            input=script.encode(),
            capture_output=True,
            env={"PATH": os.defpath},
            timeout=10.0,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if read.returncode:
        lines = read.stderr.decode(errors="replace").strip().splitlines()
        fault = lines[0].removeprefix("bash: ") if lines else f"exit code {read.returncode}"
        raise JobValueError(
            f"command: bash cannot read the script: {fault}",
            hint="quote what is meant literally; a list is run without a shell: [python, a.py]",
        )
