"""Program files: find the files that a user's program wrote, by comparison with those before its start.

Standard library only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import write_json

MAX_ENTRIES = 200_000
"""Maximum files and folders of one search, which takes about two seconds."""
_CACHES = frozenset(
    (
        *("__pycache__", ".git", ".hg", ".svn", ".cache", ".ipynb_checkpoints", ".pytest_cache"),
        *(".mypy_cache", ".ruff_cache", ".tox", ".nox", ".eggs", ".triton", ".nv", ".npm"),
        *("node_modules", "triton_cache", "torch_extensions"),
    )
)
_CACHE_NAMES = re.compile(r"(torchinductor_|(models|datasets|spaces)--).*|.*\.egg-info")
"""Folders of compiled kernels, of the Hugging Face hub, and of packages installed in place."""
_CACHE_VARIABLES = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE"),
    *("TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    *("CUDA_CACHE_PATH", "PIP_CACHE_DIR", "XDG_CACHE_HOME"),
)
"""Variables with the cache folders of tools."""


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file that the program wrote."""

    path: Path
    """Path below the box; a part of it may be a link to another folder of the machine."""
    size: int


@dataclass(frozen=True, kw_only=True)
class FilesBefore:
    """The files that existed before the program started."""

    noted: Mapping[str, tuple[int, int]]
    """Size and time of the last write of each file, by its path below the code folder."""
    is_cut: bool
    """True when there were more files than recorded: for others the time of their last change counts."""
    at_ns: int
    """Time of the record by the disk's clock; nanoseconds."""

    @classmethod
    def read(cls, box: Path) -> FilesBefore | None:
        """Read the record; None when no program was started."""
        path = box / layout.FILES_BEFORE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            at_ns = path.stat().st_mtime_ns
            noted = {name: (int(size), int(time_ns)) for name, (size, time_ns) in found["files"].items()}
            return cls(noted=noted, is_cut=bool(found["is_cut"]), at_ns=at_ns)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def is_new(self, stat: os.stat_result) -> bool:
        """Tell by its times whether a file was created or changed since."""
        return stat.st_ctime_ns > self.at_ns

    def has_changed(self, name: str, stat: os.stat_result) -> bool:
        """Tell whether a file of the code folder was created or changed since."""
        known = self.noted.get(name)
        if known is None:
            return not self.is_cut or self.is_new(stat)
        return known != (stat.st_size, stat.st_mtime_ns)


def note_files(box: Path, job: Job) -> None:
    """Record the files in the code folder before the program starts. Raises OSError."""
    search = walk(box / layout.CODE, box, job)
    noted = {
        name: (stat.st_size, stat.st_mtime_ns) for name, stat in search.files() if not S_ISLNK(stat.st_mode)
    }
    write_json(box / layout.FILES_BEFORE, {"files": noted, "is_cut": search.is_cut}, durable=False)


@dataclass(kw_only=True)
class ProgramFileSearch:
    """Finds the files that the program wrote in a folder of the box, also behind links to other folders."""

    box: Path
    job: Job
    before: FilesBefore
    max_entries: int = MAX_ENTRIES
    """Maximum entries of a folder, and of all folders behind links."""
    cut: list[Path] = field(default_factory=list)
    """Folders whose search was cut off."""
    followed: set[Path] = field(default_factory=set)
    """Links behind which the program wrote files."""
    _left_behind_links: int | None = None

    def below(self, folder: str) -> Iterator[WrittenFile]:
        """Yield the written files of the code folder, or those behind links in the folder for outputs."""
        search = walk(self.box / folder, self.box, self.job, self.max_entries)
        for name, stat in search.files():
            path = search.root / name
            if S_ISLNK(stat.st_mode):
                yield from self._behind_link(path)
            elif folder == layout.CODE and S_ISREG(stat.st_mode) and self.before.has_changed(name, stat):
                yield WrittenFile(path=path, size=stat.st_size)
        self.cut += [search.root] if search.is_cut else []

    def _behind_link(self, link: Path) -> Iterator[WrittenFile]:
        """Yield the new files behind a link, unless the search finds them without the link."""
        target = Path(os.path.realpath(link))
        if any(target.is_relative_to(self.box / own) for own in (layout.CODE, layout.RUN)):
            return
        try:
            stat = target.stat()
        except OSError:
            return
        left = self.max_entries if self._left_behind_links is None else self._left_behind_links
        search = walk(target, self.box, self.job, left)
        is_other_folder = S_ISDIR(stat.st_mode) and not self.box.is_relative_to(target)
        for name, found in search.files() if is_other_folder else [("", stat)]:
            if S_ISREG(found.st_mode) and self.before.is_new(found):
                self.followed.add(link)
                yield WrittenFile(path=link / name, size=found.st_size)
        self._left_behind_links = search.left
        self.cut += [link] if search.is_cut else []


def walk(folder: Path, box: Path, job: Job, left: int = MAX_ENTRIES) -> FolderWalk:
    """Return a walk through a folder of the box without the caches that the job names."""
    named = [job.env[name] for name in _CACHE_VARIABLES if job.env.get(name)]
    caches = frozenset(os.path.normpath(box / layout.CODE / name) for name in named)
    return FolderWalk(root=folder, caches=caches, left=left)


@dataclass(kw_only=True)
class FolderWalk:
    """Walks a folder without its caches; links are not followed."""

    root: Path
    caches: Collection[str]
    """Folders that the job names as caches, absolute."""
    left: int
    is_cut: bool = False

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path below the folder and the state of each file and link."""
        return (found for found in self.entries() if not S_ISDIR(found[1].st_mode))

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path below the folder and the state of each file, link and folder."""
        waiting = [""]
        while waiting:
            below = waiting.pop()
            try:
                with os.scandir(f"{self.root}/{below}") as found:
                    entries = sorted(islice(found, self.left), key=lambda entry: entry.name)
                    self.left -= len(entries)
                    self.is_cut = self.is_cut or next(found, None) is not None
            except OSError:  # removed meanwhile, or not readable
                continue
            if below and any(entry.name == "pyvenv.cfg" for entry in entries):  # a virtual environment
                continue
            for entry in entries:
                name = below + entry.name
                if entry.name.endswith(".pyc"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    is_cache = entry.name in _CACHES or entry.path in self.caches
                    if is_cache or _CACHE_NAMES.fullmatch(entry.name):
                        continue
                    waiting.append(f"{name}/")
                with suppress(OSError):  # removed meanwhile
                    yield name, entry.stat(follow_symlinks=False)


def printable(name: str) -> str:
    """Return the name with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name)
