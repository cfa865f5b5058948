"""Resumption: whether a program that lost its machine continued, and what its checkpoints are. Pure."""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vastrun.contract import layout
from vastrun.contract.job import OUTPUTS_PREFIXES

Answer = Literal["continued", "read", "started_over", "failed", "unknown", "no_snapshot", "too_short"]
GOOD: tuple[Answer, ...] = ("continued", "read", "unknown")
"""Answers with which the step `resume` does not fail."""
_LARGE_SHARE = 0.1
"""A part of a checkpoint has at least this share of the bytes of its largest file, as for snapshots."""


@dataclass(frozen=True, kw_only=True)
class Save:
    """A snapshot: the step at which the program saved, and what it has."""

    step: int
    is_calm: bool
    files: Mapping[str, tuple[int, int]]
    """Bytes, and time of the last write in microseconds, of each file by its path in the box."""
    logs: frozenset[str] = frozenset()
    """Files that only became longer since the snapshot before."""
    named: str = ""
    """Path of the newest checkpoint that the job names; empty: it names none, or none was saved."""


@dataclass(frozen=True, kw_only=True)
class WrittenFiles:
    """Files that a program wrote, whose names differ in numbers only."""

    name: str
    count: int
    size: int
    """Bytes of all of them."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """What a program did when it was killed, and started again with its snapshot on an empty machine."""

    answer: Answer
    detail: str
    killed_at: int | None = None
    """Step at which it was killed; null: it reports none."""
    snapshot_step: int | None = None
    """Last step that was seen before the program saved what the snapshot has."""
    first_step: int | None = None
    """First step that it reported when it was started again."""
    read: tuple[str, ...] = ()
    """Files of its checkpoint that it read then."""
    files: tuple[WrittenFiles, ...] = ()
    """The largest files of its newest snapshot."""
    checkpoints: str | None = None
    """Pattern of what it saved again each time, for `checkpoints`; null: none was seen twice."""


def written_files(save: Save) -> tuple[WrittenFiles, ...]:
    """Return the files of a snapshot, the largest first."""
    rows = [
        WrittenFiles(name=name, count=len(names), size=sum(save.files[each][0] for each in names))
        for name, names in by_pattern(save.files).items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.size, row.name))[:10])


def resaved_files(saves: Sequence[Save]) -> set[str]:
    """Return the files of the newest snapshot that changed from save to save.

    They were rewritten, or are the next of a series; logs do not count.
    """
    newest, earlier = saves[-1].files, [save.files for save in saves[:-1]]
    logs = frozenset[str]().union(*(save.logs for save in saves))
    known = {_series(name) for files in earlier for name in files}
    return {
        name
        for name, state in newest.items()
        if any(
            files.get(name, state) != state or (name not in files and _series(name) in known)
            for files in earlier
        )
    } - logs


def checkpoint_pattern(saves: Sequence[Save], read: Collection[str] = ()) -> str | None:
    """Return the pattern of the checkpoints; None where fewer than two saves were seen.

    `read`: what the program read when it was started again. Of large files, these come first.
    """
    if not saves:
        return None
    newest, changed = saves[-1].files, resaved_files(saves)
    large = changed & _large(newest)
    if not (found := large & {*read} or large or changed & {*read}):
        return None
    largest = max(found, key=lambda name: (newest[name][0], name))
    names = {name for save in saves for name in save.files if _series(name) == _series(largest)}
    parts = next(iter(by_pattern(names))).split("/")
    # A folder with a number is a checkpoint as a whole.
    numbered = next((at for at, part in enumerate(parts[:-1]) if "*" in part), len(parts) - 1)
    return "/".join(parts[: numbered + 1])


def files_to_continue(saves: Sequence[Save]) -> set[str]:
    """Return the files of which a program that continues reads some, as far as that was seen."""
    newest, named = saves[-1].files, saves[-1].named
    of_named = {name for name in newest if named and f"{name}/".startswith(f"{named}/")}
    return resaved_files(saves) | of_named or _large(newest)


def outputs_of(paths: Iterable[str], checkpoints: object) -> list[str]:
    """Return patterns of these files of a program: of a folder all files, else each with its numbers open.

    Left out are the checkpoints, which are downloaded anyway, as is all that is in the folder for outputs.
    """
    own = [path for path in paths if path.startswith(f"{layout.CODE}/")]
    names = {f"{glob.escape(name.split('/')[0])}/**/*" if "/" in name else name for name in by_pattern(own)}
    return sorted(names - {str(checkpoints)} - {f"{str(checkpoints).rpartition('/')[0]}/**/*"})


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """Group paths of a box by the pattern that a job would name them with: `*` where numbers differ."""
    series = defaultdict[str, list[str]](list)
    for name in sorted(names):
        series[_series(name)].append(name)
    return {_pattern(group): group for group in series.values()}


def _pattern(names: Sequence[str]) -> str:
    columns = zip(*(re.split(r"(\d+)", name) for name in names), strict=True)
    parts = [glob.escape(column[0]) if len(set(column)) == 1 else "*" for column in columns]
    return named_in_job("".join(parts))


def named_in_job(path: str) -> str:
    """Return the path as a job names it: from the code folder, or from the one for outputs."""
    if path.startswith(f"{layout.OUTPUTS}/"):
        return OUTPUTS_PREFIXES[0] + path.removeprefix(f"{layout.OUTPUTS}/")
    return path.removeprefix(f"{layout.CODE}/")


def _series(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _large(files: Mapping[str, tuple[int, int]]) -> set[str]:
    min_size = _LARGE_SHARE * max((size for size, _ in files.values()), default=0)
    return {name for name, (size, _) in files.items() if size >= min_size}


def judge(
    save: Save,
    steps: tuple[int | None, int | None],
    read: Collection[str],
    failure: str,
    *,
    shows_reads: bool,
) -> tuple[Answer, str]:
    """Return whether the program continued from this snapshot, and a sentence about it.

    `steps`: the first one that it reported, on the first machine and on the next one. `failure`: why it
    failed there. `shows_reads`: the disk records when a file is read.
    """
    before, after = steps
    by_size = sorted(save.files, key=lambda name: (-save.files[name][0], name))
    names = ", ".join([named_in_job(name) for name in by_size if name in read][:1])
    names += f" and {len(read) - 1} more" if len(read) > 1 else ""
    if before is not None and after is not None:
        if after > before:
            return "continued", f"it continued at step {after}" + (f", and read {names}" if names else "")
        ignored = f", although it read {names}" if names else ": it did not read its checkpoint"
        return "started_over", f"it started over at step {after}{ignored if names or shows_reads else ''}"
    if failure:
        return "failed", f"it failed when it was started again: {failure}"
    if read:
        return "read", f"it read {names}; at which step it continued, only its log shows"
    if shows_reads:
        expected = named_in_job(save.named or by_size[0])
        return "started_over", f"it started over: it did not read its checkpoint, such as {expected}"
    return "unknown", "whether it continued, only its log shows: it reports no step, and this disk no reads"
