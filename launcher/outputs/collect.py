"""Collect: download every file that the box lists and check it against its checksum."""

from __future__ import annotations

import shutil
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum
from vastrun.launcher.core import CollectResult
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate.box_reader import fetch_small_file, parse_evidence, parse_exit_code
from vastrun.launcher.gate.caps import ExchangeBudget, ExchangeBudgetError
from vastrun.launcher.gate.manifest import INCOMING, parse_manifest
from vastrun.launcher.outputs import disk
from vastrun.launcher.outputs.checkpoints import LATEST, MANIFEST, prune
from vastrun.launcher.outputs.folder import lost_metrics, place_of, read_small_file, renamed_files
from vastrun.launcher.ports import Remote

_WITHOUT_CHECKSUM = (
    layout.MANIFEST,
    layout.LEASE_LOG,
    layout.EXIT,
    layout.OUTCOME,
    layout.STEPS,
    layout.STATUS,
    layout.FINAL,
    layout.METRICS,
)
"""Taken as they are when the manifest does not name them; a box that died early has nothing else."""
_NO_MANIFEST = f"{layout.MANIFEST}: the machine left no list of its outputs"
"""The reason why no output was downloaded; the machine's disk may be full."""
IgnoresCase = Callable[[Path], bool]


def collect(
    out: Path, remote: Remote, disk_ignores_case: IgnoresCase, disk_bytes: float, budget: ExchangeBudget
) -> CollectResult:
    """Download all but the log, which is pumped. `disk_bytes`: of the machine's disk, where its files fit."""
    # Read first: a box writes it after its manifest, and may end between the two.
    has_ended = bool(remote.read(layout.EXIT, limit=1))
    manifest = fetch_small_file(remote, layout.MANIFEST, budget=budget)
    listing = parse_manifest(manifest, disk_bytes, budget)
    listed_files = local_paths(out, listing.files, disk_ignores_case)
    unlisted = [path for path in _WITHOUT_CHECKSUM if place_of(out, path) not in listed_files]
    too_large = []
    for path in unlisted:
        try:
            disk.fetch_whole(place_of(out, path), path, remote, budget)
        except ExchangeBudgetError:
            raise
        except BoxError as error:
            too_large.append(str(error))
    damaged = [*download_files(out, listed_files, remote, budget), *listing.rejected, *too_large]
    shutil.rmtree(out / INCOMING, ignore_errors=True)
    if has_ended and not manifest:
        damaged += [_NO_MANIFEST]
    # Only when all came whole: an older copy here may be the last intact checkpoint.
    if not damaged:
        prune(out, listed_files)
    named = {*listed_files, *(place_of(out, path) for path in (*unlisted, layout.LOG))}
    home = [place for place in named if place.is_file()]
    evidence = parse_evidence(
        read_small_file(out, layout.OUTCOME),
        read_small_file(out, layout.STEPS),
        parse_exit_code(read_small_file(out, layout.EXIT)),
        damaged=tuple(damaged),
    )
    return CollectResult(
        evidence=replace(evidence, left_out=listing.left_out, lost_metrics=lost_metrics(out)),
        files=len(home),
        bytes=sum(place.stat().st_size for place in home),
        renamed=renamed_files(out, listed_files),
    )


def download_files(
    out: Path,
    requested: Mapping[Path, FileChecksum],
    remote: Remote,
    budget: ExchangeBudget,
    incoming: str = INCOMING,
) -> list[str]:
    """Download the files that are not here yet; return the paths of those that could not be had whole.

    `incoming`: the folder of their parts. Only the run's launcher uses INCOMING, and removes what is in it.
    """
    missing = {
        place: file for place, file in requested.items() if not disk.is_complete(place, file, budget.check)
    }
    if missing:
        held = sum(disk.bytes_held(disk.part_path(out, file, incoming)) for file in missing.values())
        disk.need_space(out, sum({file.sha256: file.size for file in missing.values()}.values()) - held)
    # A machine may be lost in between: a checkpoint counts by its manifest, which comes after its files. The
    # file that names the newest one comes after that.
    in_order = sorted(missing.items(), key=lambda item: (item[0].name == LATEST, item[0].name == MANIFEST))
    # A snapshot has the same files as the outputs, and as the snapshot before: each content comes once.
    here: dict[str, Path | None] = {
        file.sha256: place for place, file in requested.items() if place not in missing
    }
    damaged = []
    for place, file in in_order:
        budget.spend(items=1)
        part, twin = disk.part_path(out, file, incoming), here.get(file.sha256, place)
        is_new = twin is not None and not (twin != place and disk.link_into(twin, part, place, out))
        if twin is None or (is_new and not _download_checked(out, place, part, file, remote, budget)):
            damaged.append(file.path)
            here.setdefault(file.sha256, None)  # a box that lies about a content is asked for it once
        here.setdefault(file.sha256, place)
    with suppress(OSError):  # it has the parts of other files
        (out / incoming).rmdir()
    return damaged


def _download_checked(
    out: Path, place: Path, part: Path, file: FileChecksum, remote: Remote, budget: ExchangeBudget
) -> bool:
    """The file lies at `place` and its checksum holds; tried twice."""
    for _ in range(2):
        try:
            disk.extend_part(part, file, remote, budget, limit=file.size)
        except ExchangeBudgetError:
            raise
        except BoxError:  # it is no file there, or not the one that was listed
            pass
        if disk.is_complete(part, file, budget.check) and disk.move_into(part, place, out):
            return True
        part.unlink(missing_ok=True)  # another command may be downloading the same file
    return False


def ignores_case(folder: Path) -> bool:
    """Tell whether the disk takes `a` and `A` for one name, as those of Macs do. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="a") as file:
        path = Path(file.name)
        return path.with_name(path.name.upper()).exists()


def local_paths(
    out: Path, files: Sequence[FileChecksum], disk_ignores_case: IgnoresCase
) -> dict[Path, FileChecksum]:
    """Map each file to its local path, except the log, which is downloaded apart and grows after the
    manifest.

    The second of two that the disk does not tell apart gets a number; so does `code/x` beside
    `run/outputs/x`, and a file beside a folder of its name.
    """
    log = place_of(out, layout.LOG)
    listed_files = [(place_of(out, file.path), file) for file in files if file.path != layout.LOG]
    folded = [_folded(place) for place in (log, *(place for place, _ in listed_files))]
    different = len(set(folded)) == len(folded) and not _folders(folded)
    # The disk is tried only where it matters: few boxes list two names that fold into one.
    name_of = str if different or not disk_ignores_case(out) else _folded
    own_names = [name_of(log), *(name_of(place) for place, _ in listed_files)]
    names, numbers = set(own_names), Counter[str]()
    found: dict[Path, FileChecksum] = {}
    used = {name_of(log), *_folders(own_names)}
    for place, file in listed_files:
        own = place if name_of(place) not in used else _numbered(place, name_of, names, numbers)
        names.add(name_of(own))
        used.add(name_of(own))
        found[own] = file
    return found


def _folded(place: Path) -> str:
    """Return the name as a case-insensitive disk compares it."""
    return unicodedata.normalize("NFC", str(place).casefold())


def _folders(names: Sequence[str]) -> set[str]:
    """Return those names that are folders of others."""
    in_order = sorted(name + "/" for name in names)  # so that what lies in a folder follows it at once
    return {one[:-1] for one, other in pairwise(in_order) if one != other and other.startswith(one)}


def _numbered(place: Path, name_of: Callable[[Path], str], names: set[str], numbers: Counter[str]) -> Path:
    """Return the path with the first free number; `numbers`: last number tried, by name."""
    name, own = name_of(place), place
    while name_of(own) in names:
        numbers[name] += 1
        own = place.with_name(f"{place.name}.{numbers[name]}")
    return own
