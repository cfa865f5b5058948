"""What a user may have meant by the name of a job file that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from launcher.shipped import configs_dir

_SUFFIXES = (".yaml", ".yml")
_MOST_NAMED = 5
_MOST_LOOKED_AT = 1000
_EXAMPLES = ("quickstart.yaml", "own_script.yaml")
_WRITE_ONE = f"vastrun init train.py writes a job file for your program; an example: {' or '.join(_EXAMPLES)}"


def advice_for_missing(path: Path) -> str:
    """Say what to type instead: the file with a name like it, else those beside it, else how to make one."""
    files = list(islice(_candidates(path), _MOST_LOOKED_AT))
    stems = difflib.get_close_matches(path.stem, [file.stem for file in files], n=1)
    near = [file for file in files if file.stem in stems]
    if near:
        return max(near, key=lambda file: _likeness(path, file)).as_posix()
    if not files:
        return _WRITE_ONE
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    are = "is" if len(files) == 1 else "are"
    return f"there {are} {', '.join(file.as_posix() for file in files[:_MOST_NAMED])}{more}"


def _likeness(path: Path, file: Path) -> float:
    return difflib.SequenceMatcher(None, path.as_posix(), file.as_posix()).ratio()


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the YAML files beside the path; where its folder is not there, those of the folders beside it."""
    if path.parent.is_dir():
        yield from _yaml_files(path.parent)
    else:
        for folder in sorted(_entries(path.parent.parent)):
            yield from _yaml_files(folder)
    if path.parent == Path():
        # An example is found by its name alone.
        near = difflib.get_close_matches(path.stem, [file.stem for file in _yaml_files(configs_dir())], n=1)
        yield from (Path(f"{stem}.yaml") for stem in near)


def _yaml_files(folder: Path) -> Iterator[Path]:
    yield from (entry for entry in sorted(_entries(folder)) if entry.suffix in _SUFFIXES)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from islice(folder.iterdir(), _MOST_LOOKED_AT)
    except OSError:
        return
