"""Fetching: one file or folder that a program wrote, from a machine that still runs, each file checked."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path, PurePosixPath

from launcher.core import Fetched
from launcher.core.errors import BoxError
from launcher.gate import caps
from launcher.gate.budget import ExchangeBudget
from launcher.gate.manifest import listed
from launcher.gate.reading import small_file
from launcher.outputs.collecting import bring
from launcher.outputs.folder import place_of
from launcher.outputs.places import IgnoresCase, places
from launcher.outputs.storing import is_home
from launcher.ports import Remote
from trainer.contract import layout
from trainer.contract.outcome import FileSum

_MAX_NUMBER = 100
_LIST_S = 1800.0
"""Limit for the checksums of what is fetched."""


def fetch(
    out: Path,
    remote: Remote,
    path: str | None,
    disk_ignores_case: IgnoresCase,
    disk_bytes: float,
    budget: ExchangeBudget,
) -> Fetched:
    """Download what lies at a path of the box; None: all that its manifest leaves out.

    Raises BoxError when the box cannot list it.
    """
    name = f"{layout.PULL}/{secrets.token_hex(8)}.json"
    words = [name] if path is None else [name, path]
    command = f"bash onstart/trainer.sh transfer.chosen {' '.join(map(shlex.quote, words))}"
    done = remote.run(command, timeout_s=_LIST_S)
    if done.exit_code != 0:
        raise BoxError(f"the machine cannot list {path or 'its files'}: {done.stderr.strip()[-200:]!r}")
    manifest = small_file(remote, name, caps.SMALL_FILES[layout.MANIFEST], budget)
    listing = listed(manifest, disk_bytes, budget)
    files = [file for file in listing.files if _is_program_file(file)]
    # Nothing else may be replaced here: evidence, checkpoints, the log.
    rejected = [file.path for file in listing.files if not _is_program_file(file)]
    requested = {
        _own_place(out, place, file, budget): file
        for place, file in places(out, files, disk_ignores_case).items()
    }
    damaged = [*bring(out, requested, remote, budget, sweep=False), *listing.refused, *rejected]
    home = [place for place in requested if place.is_file()]
    return Fetched(
        files=len(home),
        bytes=sum(place.stat().st_size for place in home),
        damaged=tuple(damaged),
        renamed={
            file.path: str(place.relative_to(out))
            for place, file in requested.items()
            if place != place_of(out, file.path)
        },
        left_out=listing.left_out,
    )


def _own_place(out: Path, place: Path, file: FileSum, budget: ExchangeBudget) -> Path:
    """Return a place with a number where one of the downloaded outputs has the file's place.

    Before those are downloaded, what lies there is an earlier state of the same file.
    """
    if not place_of(out, layout.MANIFEST).is_file():
        return place
    numbered = (place.with_name(f"{place.name}.{number}") for number in range(1, _MAX_NUMBER))
    free = (one for one in (place, *numbered) if not one.exists() or is_home(one, file, budget.check))
    return next(free, place)


def _is_program_file(file: FileSum) -> bool:
    path = PurePosixPath(file.path)
    return any(path.is_relative_to(root) for root in (layout.CODE, layout.OUTPUTS))
