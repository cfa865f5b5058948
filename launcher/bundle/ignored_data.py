"""Ignored data: files that git ignores, so that they are not uploaded, and that the uploaded code names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from vastrun.launcher.bundle.checkout import Worktree, code_of, ignored_by_git, worktree
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec

_CODE = frozenset((".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini"))
_WRITTEN = frozenset((".pt", ".pth", ".ckpt", ".safetensors", ".log", ".out", ".err", ".png", ".pdf", ".svg"))
"""Suffixes of what an earlier run of the program on this computer has probably written."""
_MAX_CODE_BYTES = 16 << 20
_WORD = re.compile(rb"[\w.-]+")


def ignored_data(spec: JobSpec) -> list[str]:
    """Return the ignored files whose names the code or the command has, from the code folder, sorted.

    Without those that the job names as outputs, checkpoints or proofs, or that look like output. It only
    helps: where the folder cannot be read, the upload says why.
    """
    if spec.code is None or spec.command is None:
        return []
    try:
        tree = worktree(spec.code.path, spec.code.exclude, spec.code.include)
        ignored = ignored_by_git(tree)
    except (UsageError, OSError):
        return []
    candidates = [path for path in ignored if _may_be_data(path, spec)]
    if not candidates:
        return []
    words = {word for text in _texts(tree, spec) for word in _WORD.findall(text)}
    return sorted(path for path in candidates if PurePosixPath(path).name.encode(errors="replace") in words)


def _may_be_data(path: str, spec: JobSpec) -> bool:
    pure = PurePosixPath(path)
    proofs = spec.success.files if spec.success is not None else ()
    written = (spec.checkpoints.files or "", *proofs, *spec.outputs)
    return (
        pure.suffix not in {"", *_WRITTEN}
        and not pure.name.startswith(".")
        and not any(fnmatchcase(path, pattern.lstrip("!")) for pattern in written)
    )


def _texts(tree: Worktree, spec: JobSpec) -> Iterator[bytes]:
    yield " ".join(spec.command or ()).encode(errors="replace")
    left = _MAX_CODE_BYTES
    for path in map(Path, tree.paths):
        if path.suffix not in _CODE:
            continue
        content = code_of(tree.root / path)
        left -= len(content)
        if left < 0:
            return
        yield content
