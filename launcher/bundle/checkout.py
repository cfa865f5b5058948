"""The user's code: which files of a folder are shipped, and at which commit they stand."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from vastrun.launcher.core.errors import JobValueError, UsageError

LIMIT_BYTES = 500 * 10**6
_MAX_CODE_BYTES = 1 << 20
"""Maximum size of a file that is read as code; larger ones are data or generated."""

_GIT_TIMEOUT_S = 120
_GIT_NO_HOOKS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options that keep git from running programs named in a repository's settings: they may be another
person's.
"""
_GIT_ENVIRONMENT = frozenset({"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER", "XDG_CONFIG_HOME"})

_IGNORED_FOLDERS = {
    *(".git", ".hg", ".svn", ".tox", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    *("__pycache__", "node_modules", "runs", "venv", "wandb"),
}
"""Folders that are never code, unless git tracks them."""

MACOS_METADATA = ".DS_Store"
"""File that macOS Finder writes into every folder that it shows."""


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """Files of a folder that are shipped."""

    root: Path
    paths: tuple[str, ...]
    """Files and links, relative to `root`, sorted."""
    commit: str | None
    """Commit; None outside of git."""
    dirty: bool
    """Something is not committed."""


def worktree(folder: str, exclude: Sequence[str] = (), include: Sequence[str] = ()) -> Worktree:
    """Return the files to ship: in a git checkout what git tracks or would track. Raises UsageError.

    `include` adds files that would be left out; `exclude` removes files, these too.
    """
    root = _root_of(folder)
    if not root.is_dir():
        raise JobValueError(f"code.path: no folder {root}")
    in_git = _in_git(root)
    listed = [*(_git_listed(root) if in_git else _walked(root)), *_included(root, include)]
    paths = tuple(sorted({path for path in listed if not _excluded(path, exclude)}))
    if not paths:
        hint = "git ignores everything in it" if in_git else ""
        raise JobValueError(f"code.path: {root} has no file to upload", hint=hint)
    # A data set that lies in the checkout is reported here, not after an hour of upload.
    _check_size(root, paths)
    commit, dirty = commit_of(root)
    return Worktree(root=root, paths=paths, commit=commit, dirty=dirty)


def code_of(path: Path) -> bytes:
    """Return the content of a file of code; empty if it is too large for one, or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_CODE_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def ignored_by_git(tree: Worktree) -> list[str]:
    """Return the files below its root that git ignores and that are not shipped, without caches.

    Empty outside of git. Raises UsageError.
    """
    if not _in_git(tree.root):
        return []
    listed = _git(tree.root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard").split("\0")
    shipped = frozenset(tree.paths)
    return [
        path
        for path in filter(None, listed)
        if path not in shipped and _IGNORED_FOLDERS.isdisjoint(PurePosixPath(path).parts)
    ]


def why_not_shipped(
    path: str, folder: str, exclude: Sequence[str] = (), include: Sequence[str] = ()
) -> str | None:
    """Say why a file of the folder is not shipped; None where it is, or where there is no such file.

    `path`: from the folder, of any origin.
    """
    root = _root_of(folder)
    inner = PurePosixPath(path)
    try:
        if inner.is_absolute() or ".." in inner.parts or not (root / inner).is_file():
            return None
        if str(inner) in worktree(folder, exclude, include).paths:
            return None
    except (OSError, ValueError, UsageError):
        return None
    if _excluded(str(inner), exclude):
        return "named by code.exclude"
    return "ignored by git" if _in_git(root) else "left out, as caches are"


def _root_of(folder: str) -> Path:
    home_known = os.path.expanduser(folder)  # noqa: PTH111 (Path raises RuntimeError on an unknown ~user)
    return Path(home_known).resolve()


def commit_of(root: Path) -> tuple[str | None, bool]:
    """Return the commit, and whether something below `root` is not committed; no commit outside of git."""
    if not _in_git(root):
        return None, False
    commit = _run_git(root, "rev-parse", "--verify", "-q", "HEAD").stdout.strip() or None
    return commit, bool(_git(root, "status", "--porcelain", "--ignore-submodules=dirty", "--", "."))


def inner_target(root: Path, path: str) -> str | None:
    """Return where a link points, relative to itself; None for a file. Raises UsageError outside `root`."""
    link = root / path
    if not link.is_symlink():
        return None
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(root):
        hint = f"replace the link with the file it points to, or leave it out: code.exclude: [{path}]"
        raise UsageError(f"{link} points out of the code folder, to {target}", hint=hint)
    return os.path.relpath(target, os.path.realpath(link.parent))


def _in_git(root: Path) -> bool:
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return False
    try:
        return _git(root, "rev-parse", "--is-inside-work-tree").strip() == "true"
    except FileNotFoundError:
        return False


def _git_listed(root: Path) -> Iterator[str]:
    tracked = _git(root, "ls-files", "-z", "--cached").split("\0")
    untracked_paths = _git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    untracked = [path for path in untracked_paths if _IGNORED_FOLDERS.isdisjoint(PurePosixPath(path).parts)]
    for path in filter(None, [*tracked, *untracked]):
        full = root / path
        if full.is_dir() and not full.is_symlink():
            yield from _nested_files(path, full)
        elif os.path.lexists(full):
            yield path


def _nested_files(path: str, full: Path) -> Iterator[str]:
    """The files of a submodule, or of a checkout inside this one; none when it was never filled."""
    if (full / ".git").exists():
        yield from (str(PurePosixPath(path) / inner) for inner in _git_listed(full))


def _git(root: Path, *words: str) -> str:
    asked = _run_git(root, *words)
    if asked.returncode:
        raise UsageError(f"git cannot read {root}: {asked.stderr.strip()}")
    return asked.stdout


def _run_git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git without hooks and without the user's keys in its environment."""
    environment = {name: value for name, value in os.environ.items() if name in _GIT_ENVIRONMENT}
    try:
        return subprocess.run(
            # Without optional locks `git status` leaves the index alone: the user may commit meanwhile.
            ["git", "--no-optional-locks", *_GIT_NO_HOOKS, "-C", str(root), *words],
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"git {words[0]} takes more than {_GIT_TIMEOUT_S} s in {root}") from error


def _walked(root: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        here = Path(folder)
        links = [name for name in subfolders if (here / name).is_symlink()]
        subfolders[:] = [s for s in subfolders if s not in links and not _is_left_out(here / s)]
        for name in [*names, *links]:
            path = here / name
            if _is_file_or_link(path):
                yield path.relative_to(root).as_posix()


def _included(root: Path, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the files that the globs name, and those in folders that they name."""
    for pattern in patterns:
        if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
            raise JobValueError(f"code.include: {pattern} is not within {root}")
        matches = list(root.glob(pattern.rstrip("/") or "*"))
        files = [file for match in matches for file in [match, *match.rglob("*")] if _is_file_or_link(file)]
        if not files:
            raise JobValueError(f"code.include: no file in {root} matches {pattern}")
        yield from (file.relative_to(root).as_posix() for file in files)


def _is_file_or_link(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _is_left_out(folder: Path) -> bool:
    """True also for a virtual environment, and for a folder that tells git to ignore all of it."""
    ignore = folder / ".gitignore"
    ignored = (
        ignore.is_file() and ignore.stat().st_size < 9 and ignore.read_text(errors="replace").strip() == "*"
    )
    return ignored or folder.name in _IGNORED_FOLDERS or (folder / "pyvenv.cfg").exists()


def _excluded(path: str, patterns: Sequence[str]) -> bool:
    """True when a pattern fits the path, a folder that it lies in, or the name of either."""
    pure = PurePosixPath(path)
    if pure.name == MACOS_METADATA:
        return True
    lineage = [str(p) for p in (pure, *pure.parents) if p.name]
    return any(
        fnmatchcase(subject, pattern.rstrip("/"))
        for pattern in patterns
        for ancestor in lineage
        for subject in (ancestor, PurePosixPath(ancestor).name)
    )


def _check_size(root: Path, paths: Sequence[str]) -> None:
    sizes: Counter[str] = Counter()
    for path in paths:
        try:
            sizes[path.split("/", 1)[0]] += (root / path).lstat().st_size
        except OSError as error:
            raise UsageError(f"cannot read {root / path}: {error.strerror}") from error
    if sizes.total() > LIMIT_BYTES:
        largest, size = sizes.most_common(1)[0]
        raise UsageError(
            f"the code in {root} is {sizes.total() / 1e6:.0f} MB, more than {LIMIT_BYTES / 1e6:.0f} MB; "
            f"the largest part is {largest} with {size / 1e6:.0f} MB",
            hint=f"leave it out: code.exclude: [{largest}]",
        )
