"""Git reader: the files and the commit of a checkout, without the repository's own settings.

A repository may be another person's, and git runs the programs that its settings name: filters, hooks, a
monitor of files and others with each version. So git gets a scratch folder in place of `.git`, with links to
the index and the objects, and the few settings that are allowed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vastrun.launcher.bundle.outgoing import entries
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.runs import CodeFile, CodeOrigin

_ALLOWED = r"^(core\.(filemode|ignorecase|precomposeunicode|symlinks)|extensions\.(objectformat|refstorage))$"
"""Settings of a repository that say how its files are stored; each value is a plain word."""
_LINKED = ("objects", "refs", "packed-refs", "reftable", "info/exclude")
"""Data that the checkouts of a repository share."""
_USER_ENVIRONMENT = frozenset({"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER", "XDG_CONFIG_HOME"})
_NO_SETTINGS = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` leaves the index alone: the user may commit meanwhile
    "GIT_TERMINAL_PROMPT": "0",
}
_TIMEOUT_S = 120.0
_USUAL_S = 1.0
"""Seconds after which git is searched for a file that it waits for."""
_MAX_MEMORY_BYTES = 256 << 20
"""Max. memory of git, which an index or a list of ignored files may be made to exhaust."""
_MAX_RULES_BYTES = 1 << 20
_MAX_PATCH_BYTES = 4 << 20
"""Max. size of the files that a patch is made of."""
_SUBMODULE = "160000"
"""Mode of a submodule, whose files have a commit of their own."""
_RULES = (".gitignore", ".gitattributes")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A checkout that git can be asked about."""

    top: Path
    """Folder that holds `.git`."""
    git_dir: Path
    """Scratch folder that replaces its `.git`."""
    ignore_file: str
    """The user's own list of ignored files; empty: the usual one."""

    def listed(self, folder: Path) -> Iterator[tuple[str, bool]]:
        """Yield the files below a folder that git tracks or would track, and whether it tracks them.

        Names are relative to the folder and may be anything. Raises UsageError.
        """
        listing = self._git(folder, "ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
        for line in re.finditer(r"([^\0]) ([^\0]+)", listing):
            yield line[2], line[1] != "?"

    def ignored(self, folder: Path) -> list[str]:
        """Return the files below a folder that git ignores. Raises UsageError."""
        listing = self._git(folder, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
        return list(filter(None, listing.split("\0")))

    def commit(self, folder: Path) -> tuple[str | None, bool]:
        """Return the commit, and whether something below the folder is not committed. Raises UsageError."""
        words = ("--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty", "--", ".")
        is_dirty = bool(self._git(folder, "status", *words))
        commit = self._git(folder, "rev-parse", "--verify", "-q", "HEAD", ok=1).strip()
        return commit or None, is_dirty

    def origin(self, folder: Path, files: Mapping[str, CodeFile]) -> tuple[CodeOrigin, str]:
        """Return where the files that are shipped from a folder come from, and their patch.

        The patch makes them out of the commit's; it is empty where it is not needed, or too large. Raises
        UsageError.
        """
        commit, dirty = self.commit(folder)
        settings = str(self.git_dir / "settings")
        of_remote = ("config", "--file", settings, "--no-includes", "--get", "remote.origin.url")
        head = _read(self.git_dir / "HEAD").decode(errors="replace").strip()
        remote = self._git(folder, *of_remote, ok=1).strip() or None
        branch = head.partition("ref: refs/heads/")[2] or None
        origin = CodeOrigin(commit=commit, branch=branch, remote=remote, dirty=dirty)
        with suppress(UsageError):  # objects of a partial clone are missing, for example
            return origin, self._patch(folder, files, "0" * len(commit)) if commit and dirty else ""
        return origin, ""

    def _patch(self, folder: Path, files: Mapping[str, CodeFile], no_object: str) -> str:
        """Make the patch, by an index of its own: that of the user stays as it is."""
        listed = self._git(folder, "ls-tree", "-r", "-z", "--full-tree", "HEAD").split("\0")
        committed = {
            path: mode.split()[0] for mode, _, path in (line.partition("\t") for line in listed) if path
        }
        inner = "" if folder == self.top else f"{folder.relative_to(self.top).as_posix()}/"
        differs = set(
            filter(None, self._git(self.top, "diff-index", "--name-only", "-z", "HEAD").split("\0"))
        )
        shipped = {f"{inner}{name}": file for name, file in files.items()}
        new = {
            path: file
            for path, file in shipped.items()
            if (path in differs or path not in committed)
            and not any(committed.get(str(parent)) == _SUBMODULE for parent in PurePosixPath(path).parents)
        }
        if sum(file.size for file in new.values()) > _MAX_PATCH_BYTES or any("\n" in path for path in new):
            return ""
        gone = [path for path in differs if path.startswith(inner) and not os.path.lexists(self.top / path)]
        with tempfile.TemporaryDirectory(prefix="vastrun-git-") as scratch:
            own = {
                "GIT_INDEX_FILE": f"{scratch}/index",
                "GIT_OBJECT_DIRECTORY": scratch,
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.git_dir / "objects"),
            }
            self._git(self.top, "read-tree", "HEAD", own=own)
            lines = [f"0 {no_object}\t{path}\0" for path in gone]
            plain = [path for path, file in new.items() if file.target is None]
            written = self._git(
                *(self.top, "hash-object", "-w", "--no-filters", "--stdin-paths"),
                own=own,
                text="".join(f"{path}\n" for path in plain),
            )
            lines += [
                f"{new[path].mode} {blob}\t{path}\0"
                for path, blob in zip(plain, written.split(), strict=True)
            ]
            for path, file in new.items():
                if file.target is not None:
                    blob = self._git(
                        self.top, "hash-object", "-w", "--stdin", own=own, text=file.target
                    ).strip()
                    lines.append(f"{file.mode} {blob}\t{path}\0")
            self._git(self.top, "update-index", "-z", "--index-info", own=own, text="".join(lines))
            form = ("--binary", "--full-index", "--no-renames", "--no-ext-diff")
            return self._git(self.top, "diff-index", "--cached", *form, "HEAD", own=own)

    def _git(
        self, folder: Path, *words: str, ok: int = 0, own: Mapping[str, str] | None = None, text: str = ""
    ) -> str:
        user_rules = ("-c", f"core.excludesFile={self.ignore_file}") if self.ignore_file else ()
        places = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.top)}
        environment = {**_environment(), **_NO_SETTINGS, **places, **(own or {})}
        return _output_of(self.top, folder, environment, *user_rules, *words, ok=ok, text=text)


@contextmanager
def repository_of(folder: Path) -> Iterator[Repository | None]:
    """Open the checkout that a folder lies in; None outside of git, or without git. Raises UsageError."""
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)
    if top is None or shutil.which("git") is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="vastrun-git-"))
            _fill(Path(scratch), top)
            words = ("config", "--type=path", "--default=", "--get", "core.excludesFile")
            of_user = _output_of(top, Path(scratch), {**_environment(), "GIT_DIR": scratch}, *words)
        except OSError as error:
            raise UsageError(f"git cannot read {top}: {error.strerror or error}") from error
        yield Repository(top=top, git_dir=Path(scratch), ignore_file=of_user.rstrip("\n"))


def _fill(git_dir: Path, top: Path) -> None:
    """Make `git_dir` a repository with the data of the one at `top`, and only allowed settings."""
    private = _target(top / ".git", "gitdir: ")
    shared = _target(private / "commondir", "") if (private / "commondir").exists() else private
    (git_dir / "HEAD").write_bytes(_read(private / "HEAD"))
    (git_dir / "info").mkdir()
    inner = [(name, shared / name) for name in _LINKED]
    # Of the parts of a split index git touches the one in use; others are of the past.
    split = sorted(private.glob("sharedindex.*"), key=lambda path: path.lstat().st_mtime)[-10:]
    inner += [(path.name, path) for path in (private / "index", *split)]
    for name, path in inner:
        if path.is_file() or path.is_dir():
            (git_dir / name).symlink_to(path.resolve())
    settings = git_dir / "settings"
    settings.write_bytes(_read(shared / "config") if (shared / "config").exists() else b"")
    words = ("config", "--file", str(settings), "--no-includes", "-z", "--get-regexp", _ALLOWED)
    # 1: it has none of them.
    allowed = _output_of(
        top, git_dir, {**_environment(), **_NO_SETTINGS, "GIT_DIR": str(git_dir)}, *words, ok=1
    )
    # Threads need much of the memory that git may take.
    lines = ["[core]", "repositoryformatversion = 1", "bare = false", "preloadIndex = false"]
    for setting in filter(None, allowed.split("\0")):
        key, _, value = setting.partition("\n")
        section, _, name = key.partition(".")
        lines += [f"[{section}]", f"{name} = {value}"] if re.fullmatch(r"[A-Za-z0-9]+", value) else []
    (git_dir / "config").write_text("\n".join(lines) + "\n", encoding="ascii")


def _target(path: Path, prefix: str) -> Path:
    """Return the folder that a file of git names; the path itself where it is a folder."""
    if path.is_dir():
        return path
    return path.parent / os.fsdecode(_read(path).strip()).removeprefix(prefix)


def _read(path: Path) -> bytes:
    """Return a small file of git. Raises UsageError."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(_MAX_RULES_BYTES)
    except OSError as error:
        raise UsageError(f"git cannot read {path}: {error.strerror}") from error
    raise UsageError(f"git cannot read {path.parent}: {path.name} is not a file")


def _environment() -> dict[str, str]:
    """Return the environment without the user's keys."""
    return {name: value for name, value in os.environ.items() if name in _USER_ENVIRONMENT}


def _output_of(
    top: Path, folder: Path, environment: dict[str, str], *words: str, ok: int = 0, text: str = ""
) -> str:
    """Run git in a folder, with `text` as its input. Raises UsageError, and FileNotFoundError without git."""
    with subprocess.Popen(
        ["git", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            if sys.platform == "linux":
                import resource

                limits = (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES)
                with suppress(OSError, ValueError):  # its limit is lower already
                    resource.prlimit(process.pid, resource.RLIMIT_DATA, limits)
            try:
                output, errors = process.communicate(os.fsencode(text), timeout=_USUAL_S)
            except subprocess.TimeoutExpired:
                _refuse_odd_files(top)
                output, errors = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"git takes more than {_TIMEOUT_S:.0f} s in {folder}") from error
        finally:
            process.kill()
    if process.returncode not in (0, ok):
        raise UsageError(f"git cannot read {top}: {errors.decode(errors='replace').strip()[-300:]}")
    return output.decode(errors="surrogateescape")


def _refuse_odd_files(top: Path) -> None:
    """Raise UsageError for a file that holds git for ever: a pipe, or rules without end."""
    for name, entry in entries(top, is_strict=False):
        is_rules = entry.name in _RULES
        if entry.is_symlink() or not (is_rules or ".git" in name.split("/")):
            continue
        if not entry.is_file() or (is_rules and len(_read(top / name)) == _MAX_RULES_BYTES):
            raise UsageError(f"git cannot read {top / name}: it is not a file, or larger than 1 MB")
