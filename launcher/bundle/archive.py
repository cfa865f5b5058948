"""Archive: a tar.gz whose bytes depend on nothing but names, contents and modes; and the store of code.

The store keeps the code of jobs as it was submitted, packed once, by the digest of its files. Each point of a
batch, a retry and a resume ship what was submitted, whatever the folder holds by then.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Self, cast

from vastrun.contract.records import RecordError, as_json, read_json
from vastrun.launcher.bundle.checkout import Worktree, origin_of
from vastrun.launcher.bundle.outgoing import OutgoingFile
from vastrun.launcher.config.command import script_of
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.runs import CodeFile, CodeRecord

_FRESH_S = 86400.0
"""Seconds for which code is kept that no run needs: its run may not be in the ledger yet."""


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


class CodeStore:
    """Keeps packed code in a folder. `needed` returns the digests of all that may be shipped again."""

    def __init__(self, folder: Path, needed: Callable[[], Collection[str]]) -> None:
        self._folder, self._needed = folder, needed

    def add(self, tree: Worktree, hide: Callable[[str], str]) -> str:
        """Keep the files, and return their digest. `hide`: masks secrets in the patch.

        Raises UsageError, OSError.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="new-") as scratch:
            packed, record = Path(scratch) / "code", Path(scratch) / "record"
            with Archive(packed) as archive:
                files = {
                    file.name: archive.add_file(file.name, file.path)
                    if file.target is None
                    else archive.add_link(file.name, file.target)
                    for file in tree.files
                }
            digest = hashlib.sha256(as_json(files).encode()).hexdigest()
            found = self.record(digest)
            # The same files may have been committed before: that says more than a patch.
            if found is None or found.origin.dirty or found.origin.commit is None:
                origin, patch = origin_of(tree.root, files)
                origin = replace(origin, remote=origin.remote and hide(origin.remote))
                found = CodeRecord(digest=digest, origin=origin, files=files)
                if patch:
                    self._path(digest, "patch").write_bytes(hide(patch).encode(errors="surrogateescape"))
            record.write_text(as_json(found), encoding="ascii")
            record.replace(self._path(digest, "json"))
            is_new = not self.archive(digest).exists()
            packed.replace(self.archive(digest))
        if is_new:
            needed, before = set(self._needed()), time.time() - _FRESH_S
            for path in self._folder.iterdir():
                with suppress(OSError):
                    if path.name.partition(".")[0] not in needed and path.stat().st_mtime < before:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return digest

    def archive(self, digest: str) -> Path:
        """Return the path of the packed code, which may be gone."""
        return self._path(digest, "tar.gz")

    def patch(self, digest: str) -> bytes:
        """Return what makes the files out of the commit's, for `git apply`; empty where there is none."""
        with suppress(OSError):
            return self._path(digest, "patch").read_bytes()
        return b""

    def _path(self, digest: str, suffix: str) -> Path:
        return self._folder / f"{digest}.{suffix}"

    def record(self, digest: str | None) -> CodeRecord | None:
        """Return what is known of the code; None: nothing."""
        if digest is not None:
            with suppress(OSError, RecordError):
                found: CodeRecord = read_json(CodeRecord, self._path(digest, "json").read_bytes())
                return found
        return None


def changed_files(record: CodeRecord, tree: Worktree) -> list[str]:
    """Return the names of the files that are not as they were, are new or are gone."""
    then, now = record.files, {file.name: file for file in tree.files}
    return sorted(
        name
        for name in then.keys() | now.keys()
        if name not in then or name not in now or not _is_same(then[name], now[name])
    )


def _is_same(then: CodeFile, now: OutgoingFile) -> bool:
    if then.target is not None or now.target is not None:
        return then.target == now.target
    try:
        if then.size != now.size:
            return False
        with now.path.open("rb") as file:
            return then.sha256 == hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return False
