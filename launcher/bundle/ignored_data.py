"""Ignored data: files that git ignores, so that they are not uploaded, and that the uploaded code names, or
whose folder it names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from vastrun.launcher.bundle import checkout
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec

_CODE = frozenset((".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini"))
_WRITTEN = frozenset((".pt", ".pth", ".ckpt", ".safetensors", ".log", ".out", ".err", ".png", ".pdf", ".svg"))
"""Suffixes of what an earlier run of the program on this computer has probably written."""
_MAX_CODE_BYTES = 16 << 20
_WORD = re.compile(rb"[\w.-]+")
_PATH = re.compile(rb"(?<![\w.-])[\w.-]*/[\w./-]*")
_OUTPUT_FOLDER = re.compile(
    r"(?:.*_)?(?:ckpt|checkpoint|snapshot|log|out|output|result|fig|figure|plot|run|sample|save|exp|experiment"
    r"|weight|model|wandb)s?",
    re.IGNORECASE,
)
"""Names of folders to which an earlier run of the program has probably written."""


def ignored_data(spec: JobSpec) -> list[str]:
    """Return the ignored files and folders that the code or the command names, from the code folder, sorted.

    A folder ends in a slash. Left out is what the job names as outputs, checkpoints or proofs, or looks like
    output. It only helps: where the folder cannot be read, the upload says why.
    """
    if spec.code is None or spec.command is None:
        return []
    sent = checkout.data_in_code(spec)
    try:
        tree = checkout.code_tree(spec)
        ignored = [
            path
            for path in checkout.ignored_by_git(tree)
            if not any(checkout.is_below(path, one) for one in sent)
        ]
    except (UsageError, OSError):
        return []
    candidates = [path for path in ignored if not _is_output(path, spec)]
    if not candidates:
        return []
    words, folders = set[bytes](), set[str]()
    for text in _texts(tree, spec):
        words.update(_WORD.findall(text))
        folders.update(str(PurePosixPath(path.decode(errors="replace"))) for path in _PATH.findall(text))
    paths = list(map(PurePosixPath, candidates))
    files = [
        path
        for path in paths
        if path.suffix not in {"", *_WRITTEN} and path.name.encode(errors="replace") in words
    ]
    folders -= {str(folder) for path in files for folder in path.parents}
    named = {f"{folder}/" for path in paths if (folder := _folder_of(path, folders))}
    return sorted({*map(str, files), *named})


def _folder_of(path: PurePosixPath, folders: Collection[str]) -> str:
    """Return the deepest of the folders in which the file lies; empty where that is one for output."""
    found = next((folder for folder in path.parents[:-1] if str(folder) in folders), None)
    return "" if found is None or any(map(_OUTPUT_FOLDER.fullmatch, found.parts)) else str(found)


def _is_output(path: str, spec: JobSpec) -> bool:
    proofs = spec.success.files if spec.success is not None else ()
    written = (spec.checkpoints.files or "", *proofs, *spec.outputs)
    is_named = any(fnmatchcase(path, pattern.lstrip("!")) for pattern in written)
    return is_named or PurePosixPath(path).name.startswith(".")


def _texts(tree: checkout.Worktree, spec: JobSpec) -> Iterator[bytes]:
    yield " ".join(spec.command or ()).encode(errors="replace")
    left = _MAX_CODE_BYTES
    for path in map(Path, tree.paths):
        if path.suffix not in _CODE:
            continue
        content = checkout.code_of(tree.root / path)
        left -= len(content)
        if left < 0:
            return
        yield content
