"""The user's code: which files of a folder are shipped, where they come from, and ignored files it names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath

from vastrun.launcher.bundle.git_reader import Repository, repository_of
from vastrun.launcher.bundle.outgoing import (
    OutgoingFile,
    holds_credentials,
    is_inner_folder,
    outgoing_files,
    walk,
)
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.runs import CodeFile, CodeOrigin

LIMIT_BYTES = 500 * 10**6
_MAX_CODE_BYTES = 1 << 20
"""Maximum size of a file that is read as code; larger ones are data or generated."""

_IGNORED_FOLDERS = {
    *(".git", ".hg", ".svn", ".tox", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    *("__pycache__", "node_modules", "runs", "venv", "wandb"),
}
"""Folders that are never code, unless git tracks them."""

MACOS_METADATA = ".DS_Store"
"""File that macOS Finder writes into every folder that it shows."""
_CODE = frozenset((".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini"))
_WRITTEN = frozenset((".pt", ".pth", ".ckpt", ".safetensors", ".log", ".out", ".err", ".png", ".pdf", ".svg"))
"""Suffixes of what an earlier run of the program on this computer has probably written."""
_MAX_SEARCHED_BYTES = 16 << 20
_WORD = re.compile(rb"[\w.-]+")
_PATH = re.compile(rb"(?<![\w.-])[\w.-]*/[\w./-]*")
_OUTPUT_FOLDER = re.compile(
    r"(?:.*_)?(?:ckpt|checkpoint|snapshot|log|out|output|result|fig|figure|plot|run|sample|save|exp|experiment"
    r"|weight|model|wandb)s?",
    re.IGNORECASE,
)
"""Names of folders to which an earlier run of the program has probably written."""


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """Files of a folder that are shipped."""

    root: Path
    files: tuple[OutgoingFile, ...]
    """Sorted by name."""
    withheld: tuple[str, ...] = ()
    """Files that are left out since they hold credentials."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the names of the files, relative to `root`."""
        return tuple(file.name for file in self.files)


def code_tree(spec: JobSpec) -> Worktree:
    """Return the files of the job's code to ship, without its data. Raises UsageError."""
    assert spec.code is not None
    return worktree(spec.code.path, spec.code.exclude, spec.code.include, without=data_in_code(spec))


def data_in_code(spec: JobSpec) -> dict[str, str]:
    """Return the local data that lie in the code folder, by their path there, with their names as data."""
    local = {_absolute(file.path or ""): file.target for file in spec.data if file.url is None}
    folder = _absolute(spec.code.path if spec.code else os.devnull)
    return {str(path.relative_to(folder)): name for path, name in local.items() if folder in path.parents}


def data_entry(name: str, spec: JobSpec) -> str:
    """Return the entry of `data:` for a path in the code folder, from the job file if it is above."""
    path = _absolute(spec.code.path if spec.code else "") / name
    folder = Path.cwd().joinpath(spec.job_file or "job.yaml").parent
    return f"{{path: {path.relative_to(folder) if path.is_relative_to(folder) else path}}}"


def _absolute(path: str) -> Path:
    """Return the path without `..`; a link in it stays, since the program sees it by that name."""
    return Path(os.path.normpath(os.path.expanduser(path)))  # noqa: PTH111


def worktree(
    folder: str, exclude: Sequence[str] = (), include: Sequence[str] = (), *, without: Collection[str] = ()
) -> Worktree:
    """Return the files to ship: in a git checkout what git tracks or would track. Raises UsageError.

    `include` adds files that would be left out; `exclude` removes files, these too. `without`: paths that are
    left out.
    """
    root = _root_of(folder)
    if not root.is_dir():
        raise JobValueError(f"code.path: no folder {root}")
    with repository_of(root) as repository:
        listed = _listed(root, repository) if repository else walk(root, skip=_is_left_out)
        included = list(_included(root, include))
        names = (
            name
            for name in chain(listed, included)
            if not _excluded(name, exclude) and not any(is_below(name, path) for path in without)
        )
        found = {file.name: file for file in outgoing_files(root, names)}
        withheld = {name for name in found.keys() - set(included) if holds_credentials(found[name])}
        files = tuple(found[name] for name in sorted(found.keys() - withheld))
        if not files:
            hint = "git ignores everything in it" if repository else ""
            raise JobValueError(f"code.path: {root} has no file to upload", hint=hint)
        # A data set that lies in the checkout is reported here, not after an hour of upload.
        _check_size(root, files)
    return Worktree(root=root, files=files, withheld=tuple(sorted(withheld)))


def secret_files(spec: JobSpec) -> Callable[[Path], bool]:
    """Return a test whether a file holds the job's secrets, or is a link to one that does."""
    named = [text for each in spec.secrets for text in (each.file, each.env_file) if text is not None]
    held = {Path(os.path.realpath(os.path.expanduser(text))) for text in named}  # noqa: PTH111

    def is_secret(path: Path) -> bool:
        may_be = any(path.name == other.name for other in held) or (bool(held) and path.is_symlink())
        return may_be and path.resolve() in held

    return is_secret


def is_below(name: str, folder: str) -> bool:
    """Return whether a name is that of the folder, or of something in it."""
    return name == folder or name.startswith(f"{folder}/")


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
    with repository_of(tree.root) as repository:
        listed = repository.ignored(tree.root) if repository else []
    shipped, left_out = frozenset(tree.paths), cache(lambda folder: _is_left_out(tree.root / folder))

    def is_cache(path: str) -> bool:
        """Outputs of earlier runs lie in a folder that ignores itself, as caches of many tools do."""
        return _is_in_ignored_folder(path) or any(map(left_out, PurePosixPath(path).parents))

    return [path for path in listed if path not in shipped and not is_cache(path)]


def why_not_shipped(path: str, spec: JobSpec) -> tuple[str, str] | None:
    """Return what of a path in the code folder is here and not shipped, a folder with a slash, and why.

    `path`: from the folder, of any origin. None: it is shipped, or there is no such file or folder.
    """
    inner = PurePosixPath(path)
    if spec.code is None or inner.is_absolute() or ".." in inner.parts:
        return None
    root = _root_of(spec.code.path)
    try:
        lineage = [str(one) for one in (inner, *inner.parents) if one.name and (root / one).exists()]
        tree = code_tree(spec) if lineage else Worktree(root=root, files=())
        sent = (*tree.paths, *data_in_code(spec))
        while lineage and any(is_below(name, lineage[-1]) or is_below(lineage[-1], name) for name in sent):
            lineage.pop()
        if not lineage:
            return None
        found = lineage[-1]
        name = f"{found}/" if (root / found).is_dir() else found
        if found in tree.withheld:
            return name, "left out, since it holds credentials"
        if _excluded(found, spec.code.exclude):
            return name, "named by code.exclude"
        with repository_of(root) as repository:
            return name, "ignored by git" if repository else "left out, as caches are"
    except (OSError, ValueError, UsageError):
        return None


def commit_of(root: Path) -> tuple[str | None, bool]:
    """Return the commit, and whether something below `root` is not committed; no commit outside of git."""
    with repository_of(root) as repository:
        return repository.commit(root) if repository else (None, False)


def origin_of(root: Path, files: Mapping[str, CodeFile]) -> tuple[CodeOrigin, str]:
    """Return where these files below `root` come from, and their patch. Raises UsageError."""
    with repository_of(root) as repository:
        return repository.origin(root, files) if repository else (CodeOrigin(), "")


def _root_of(folder: str) -> Path:
    home_known = os.path.expanduser(folder)  # noqa: PTH111 (Path raises RuntimeError on an unknown ~user)
    return Path(home_known).resolve()


def _listed(root: Path, top: Repository) -> Iterator[str]:
    """Yield what git lists, and the files of submodules and of checkouts inside this one."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with repository_of(root / prefix) if prefix else nullcontext(top) as repository:
            for inner, is_tracked in repository.listed(root / prefix) if repository else ():
                name = f"{prefix}{inner}".rstrip("/")
                if _is_in_ignored_folder(name) and (not is_tracked or ".git" in name.lower().split("/")):
                    continue
                yield name
                # A submodule that was never filled has no files of its own.
                if is_inner_folder(root, name) and (root / name / ".git").exists():
                    waiting.append(f"{name}/")


def _is_in_ignored_folder(name: str) -> bool:
    return not _IGNORED_FOLDERS.isdisjoint(name.split("/"))


def _included(root: Path, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the files that the globs name, and those in folders that they name."""
    for pattern in patterns:
        if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
            raise JobValueError(f"code.include: {pattern} is not within {root}")
        try:
            matches = [path.relative_to(root).as_posix() for path in root.glob(pattern.rstrip("/") or "*")]
        except RecursionError:
            raise JobValueError(f"code.include: too many folders in each other for {pattern}") from None
        folders = [name for name in matches if is_inner_folder(root, name)]
        below = (f"{name}/{inner}" for name in folders for inner in walk(root / name))
        names = [file.name for file in outgoing_files(root, (*matches, *below))]
        if not names:
            raise JobValueError(f"code.include: no file in {root} matches {pattern}")
        yield from names


def _is_left_out(folder: Path) -> bool:
    """True also for a virtual environment, and for a folder that tells git to ignore all of it."""
    ignore = folder / ".gitignore"
    ignored = (
        ignore.is_file() and ignore.stat().st_size < 9 and ignore.read_text(errors="replace").strip() == "*"
    )
    return ignored or folder.name in _IGNORED_FOLDERS or (folder / "pyvenv.cfg").exists()


def _excluded(path: str, patterns: Sequence[str]) -> bool:
    """True when a pattern fits the path, a folder that it lies in, or the name of either."""
    if path.rpartition("/")[2] == MACOS_METADATA:
        return True
    if not patterns:
        return False
    pure = PurePosixPath(path)
    lineage = [str(p) for p in (pure, *pure.parents) if p.name]
    return any(
        fnmatchcase(subject, pattern.rstrip("/"))
        for pattern in patterns
        for ancestor in lineage
        for subject in (ancestor, PurePosixPath(ancestor).name)
    )


def _check_size(root: Path, files: Sequence[OutgoingFile]) -> None:
    sizes: Counter[str] = Counter()
    for file in files:
        sizes[file.name.split("/", 1)[0]] += file.size
    if sizes.total() > LIMIT_BYTES:
        largest, size = sizes.most_common(1)[0]
        raise UsageError(
            f"the code in {root} is {sizes.total() / 1e6:.0f} MB, more than {LIMIT_BYTES / 1e6:.0f} MB; "
            f"the largest part is {largest} with {size / 1e6:.0f} MB",
            hint=f"if the program reads it: data: [{{path: {largest}}}], else: code.exclude: [{largest}]",
        )


def ignored_data(spec: JobSpec) -> list[str]:
    """Return the ignored files and folders that the code or the command names, from the code folder, sorted.

    A folder ends in a slash. Left out is what the job names as outputs, checkpoints or proofs, or looks like
    output. It only helps: where the folder cannot be read, the upload says why.
    """
    if spec.code is None or spec.command is None:
        return []
    sent = data_in_code(spec)
    try:
        tree = code_tree(spec)
        ignored = [path for path in ignored_by_git(tree) if not any(is_below(path, one) for one in sent)]
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


def _texts(tree: Worktree, spec: JobSpec) -> Iterator[bytes]:
    yield " ".join(spec.command or ()).encode(errors="replace")
    left = _MAX_SEARCHED_BYTES
    for path in map(Path, tree.paths):
        if path.suffix not in _CODE:
            continue
        content = code_of(tree.root / path)
        left -= len(content)
        if left < 0:
            return
        yield content
