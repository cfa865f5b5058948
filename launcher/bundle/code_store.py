"""Code store: the code of jobs as it was submitted, packed once and kept by the digest of its files.

Each point of a batch, a retry and a resume ship what was submitted, whatever the folder holds by then.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.contract.records import RecordError, as_json, read_json
from vastrun.launcher.bundle.archive import Archive
from vastrun.launcher.bundle.checkout import Worktree, origin_of
from vastrun.launcher.bundle.outgoing import OutgoingFile
from vastrun.launcher.core.runs import CodeFile, CodeRecord

_FRESH_S = 86400.0
"""Seconds for which code is kept that no run needs: its run may not be in the ledger yet."""


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
