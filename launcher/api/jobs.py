"""Jobs as a program gives them: a file, YAML text, a mapping or a JobSpec, all checked as a job file is."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from vastrun.launcher.config import load_job
from vastrun.launcher.config.schema import given
from vastrun.launcher.config.shell import script_of
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Packer
from vastrun.launcher.shipped import configs_dir

JobSource = str | os.PathLike[str] | Mapping[str, Any] | JobSpec
"""A path; YAML text: several lines, or what begins with `{`; the same as a mapping; or a job already read."""
Overrides = Mapping[str, Any] | Iterable[str]
"""Values by their dotted keys, `{"limits.usd": 5}`, or as given to --set, `["limits.usd=5"]`."""


@dataclass(frozen=True, kw_only=True)
class JobText:
    """The text of a job or of a batch."""

    text: str
    name: str
    """As messages call it."""
    folder: Path
    """What paths in it are relative to."""
    file: Path | None = None
    """None: it lies in no file."""


def source_of(job: JobSource, what: str = "job") -> JobText:
    """Return the text of a job, or of a batch that is given in the same way.

    Raises UsageError when its file cannot be read, or a mapping holds what YAML cannot.
    """
    if isinstance(job, JobSpec):
        return JobText(text=_written(job), name=what, folder=Path.cwd())
    if isinstance(job, Mapping):
        return JobText(text=as_yaml(job, what), name=what, folder=Path.cwd())
    if isinstance(job, str) and ("\n" in job or job.lstrip().startswith("{")):
        return JobText(text=job, name=what, folder=Path.cwd())
    path = file_or_example(Path(job))
    return JobText(text=text_in(path), name=str(path), folder=path.resolve().parent, file=path)


def _written(job: JobSpec) -> str:
    """Return the job as a file would have it: without what no file may say."""
    values = asdict(job)
    return json.dumps({field.name: values[field.name] for field in given(JobSpec)})


def load(
    source: JobText, overrides: Overrides = (), name: str | None = None, *, now: datetime | None = None
) -> JobSpec:
    """Return the job, with some of its values changed, its deadline the next one after `now`.

    Raises JobFileError with every fault.
    """
    sets = [*as_sets(overrides), *([f"name={json.dumps(name)}"] if name else [])]
    spec = load_job(source.text, source.name, sets, str(source.folder), now)
    return spec if source.file is None else replace(spec, job_file=str(source.file))


def as_sets(overrides: Overrides) -> list[str]:
    """Return overrides as given to --set. Raises UsageError for a value that YAML cannot hold."""
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={as_yaml(value, key)}" for key, value in overrides.items()]
    return list(overrides)


def as_yaml(value: Any, what: str) -> str:
    """Return a value as YAML in one line; a path is a string. Raises UsageError for what YAML cannot hold."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{what}: {error}", hint="text, numbers, booleans, None, and lists and dicts of these"
        ) from error


def _plain(value: Any) -> Any:
    """Return what JSON does not know as what it knows: a path, a mapping, numpy's numbers and arrays."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected plain values, got {type(value).__name__}")


def text_in(path: Path, named_in: str = "") -> str:
    """Return a file's text. `named_in`: the file that names it.

    Raises UsageError when it cannot be read, with what to type instead where it is not there.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = advice_for_missing(path) if isinstance(error, FileNotFoundError) else ""
        place = f"{named_in}: " if named_in else ""
        raise UsageError(f"{place}cannot read {path}: {reason}", hint=hint) from error


def file_or_example(path: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """Return the path; if there is no such file but an example of that name, return its path, with a note."""
    example = configs_dir() / path
    if path.exists() or not example.is_file():
        return path
    note(f"{path} was not found; using vastrun's example")
    return example


def check_upload(
    packer: Packer, spec: JobSpec, folder: Path | None, note: Callable[[str], None] = lambda _: None
) -> None:
    """Check the files that the job uploads, before anything is rented. Raises UsageError.

    `folder`: the folder of the job file; None for the job of an earlier run.
    """
    packer.check(spec)
    if spec.command is None or spec.code is not None:
        return
    note("the job has no code: nothing is uploaded besides the command")
    if folder is None:
        return
    words = (script_of(spec.command) or " ".join(spec.command)).split()
    script = next((word for word in words if _is_in(folder, word)), None)
    if script is not None:
        raise JobValueError(
            f"command: {script} is next to the job file, but without code: nothing is uploaded",
            hint="add to the job file: code: {path: .}",
        )


def _is_in(folder: Path, word: str) -> bool:
    try:
        return not word.startswith(("/", "~")) and (folder / word).is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def about(source: JobText) -> Iterator[None]:
    """Name the source in an error about one of its values."""
    try:
        yield
    except JobValueError as error:
        raise JobValueError(f"{source.name}: {error}", hint=error.hint) from error


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
