"""Outgoing files: which files of a folder may leave this computer, and which of them hold credentials."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vastrun.contract.texts import SECRET, hide_forms, is_secret_name
from vastrun.launcher.core.errors import JobValueError, UsageError

_MAX_BYTES = 1 << 16
"""Files of credentials are small."""
_FOLDERS = frozenset((".aws", ".azure", ".docker", ".gnupg", ".kaggle", ".kube", ".ssh"))
_NAMES = re.compile(
    r"\.env(?!.*(example|sample|template)).*|[._]netrc|\.pgpass|\.git-credentials|kaggle\.json"
)
_CODE = frozenset(
    (".c", ".cc", ".cpp", ".cu", ".h", ".ipynb", ".js", ".jl", ".md", ".py", ".r", ".rs", ".rst", ".ts")
)
"""Without it the program does not run, or nothing is gained: it is shipped, whatever it holds."""
_ASSIGNED = re.compile(r"""(?<![\w-])([\w-]{1,64})["']? {0,8}[:=] {0,8}["']?([\w+/=.-]{20,200})""")
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, kw_only=True)
class OutgoingFile:
    """A file of a folder, or a link within it."""

    name: str
    """From the folder, with `/`."""
    path: Path
    target: str | None
    """Target of a link, relative to the link; None for a file."""
    size: int
    """Bytes."""


def outgoing_files(root: Path, names: Iterable[str]) -> Iterator[OutgoingFile]:
    """Yield those of the names that are a file of the folder or a link within it.

    `root`: a path without links. `names`: of any origin. Left out is what is missing, is no plain file or
    lies behind a link, where it has another name. Raises UsageError for what leads out of the folder.
    """
    is_plain: dict[str, bool] = {}
    for name in names:
        _check_name(root, name)
        path, folder = f"{root}/{name}", name.rpartition("/")[0]
        if folder not in is_plain:
            is_plain[folder] = _is_plain(f"{root}/{folder}".rstrip("/"))
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
        is_link = stat.S_ISLNK(found.st_mode)
        if is_plain[folder] and (is_link or stat.S_ISREG(found.st_mode)):
            target = _inner_target(root, Path(path)) if is_link else None
            yield OutgoingFile(name=name, path=Path(path), target=target, size=found.st_size)


def is_inner_folder(root: Path, name: str) -> bool:
    """Return whether the name is that of a folder below `root`, without links. Raises UsageError."""
    _check_name(root, name)
    path = f"{root}/{name}"
    return os.path.isdir(path) and _is_plain(path)  # noqa: PTH112 (a Path for each file takes longer)


def _check_name(root: Path, name: str) -> None:
    # An empty part also begins an absolute path.
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise JobValueError(f"code.path: {name!r} is not within {root}")


def _is_plain(path: str) -> bool:
    return os.path.realpath(path) == path


def walk(root: Path, *, skip: Callable[[Path], bool] = lambda _: False) -> Iterator[str]:
    """Yield the files and links below a folder, relative to it; none of folders to skip.

    Raises UsageError for a folder that cannot be read.
    """
    for name, entry in entries(root, skip=skip):
        if entry.is_symlink() or entry.is_file():
            yield name


def entries(
    root: Path, *, skip: Callable[[Path], bool] = lambda _: False, is_strict: bool = True
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all but folders below a folder, at any depth, with their names relative to it.

    Raises UsageError for a folder that cannot be read, which is passed over where `is_strict` is false.
    """
    waiting = [""]  # os.walk recurses before Python 3.12
    while waiting:
        folder = waiting.pop()
        try:
            found = list(os.scandir(root / folder))
        except OSError as error:
            if is_strict:
                raise UsageError(f"cannot read {root / folder}: {error.strerror}") from error
            continue
        for entry in found:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield name, entry
            elif not skip(root / name):
                waiting.append(name)


def _inner_target(root: Path, link: Path) -> str:
    """Return where a link points, relative to itself. Raises UsageError outside `root`."""
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(root):
        name = link.relative_to(root).as_posix()
        hint = (
            f"replace the link with the file it points to, or leave it out (of code: code.exclude: [{name}])"
        )
        raise UsageError(f"{link} points out of its folder, to {target}", hint=hint)
    return os.path.relpath(target, os.path.realpath(link.parent))


def holds_credentials(file: OutgoingFile) -> bool:
    """Tell by its place, the forms of known tokens, or long random values under secret names."""
    path = PurePosixPath(file.name)
    if not _FOLDERS.isdisjoint(path.parts) or _NAMES.fullmatch(path.name):
        return True
    if path.suffix.lower() in _CODE or b"\0" in (content := _head(file)):
        return False
    # The query and the fragment of a link name files, checksums and places, too: only a name tells.
    text = re.sub("[?#]", " ", content.decode(errors="replace"))
    return SECRET in hide_forms(text) or any(
        is_secret_name(name)
        and re.search(r"\d", value) is not None
        and re.search(r"[a-zA-Z]", value) is not None
        for name, value in _ASSIGNED.findall(text)
    )


def is_lfs_pointer(file: OutgoingFile) -> bool:
    """Tell whether it stands for a file that git LFS has not fetched."""
    return _head(file).startswith(_LFS)


def _head(file: OutgoingFile) -> bytes:
    """Return the content of a small file; nothing of a larger one, a link, or one that cannot be read."""
    if file.target is None and 0 < file.size <= _MAX_BYTES:
        with suppress(OSError):
            return file.path.read_bytes()
    return b""
