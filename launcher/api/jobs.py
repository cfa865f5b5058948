"""Jobs as arguments: a file, YAML text, a mapping or a JobSpec, all validated like a job file; values of a
batch that no code reads.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from vastrun.launcher.bundle.checkout import code_of, code_tree
from vastrun.launcher.config.command import is_read_in, script_of, variable_of
from vastrun.launcher.config.schema import job_fields
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.package_files import configs_dir
from vastrun.launcher.ports import Packer

JobSource = str | os.PathLike[str] | Mapping[str, Any] | JobSpec
"""A path; YAML text, which has several lines or begins with `{`; a mapping; or a JobSpec."""
Overrides = Mapping[str, Any] | Iterable[str]
"""Values by their dotted keys, `{"limits.usd": 5}`, or as for --set, `["limits.usd=5"]`."""
_MAX_TOTAL_BYTES = 64 << 20
_MAX_CHARACTERS = 4 << 20
"""Maximum characters of a file, since PyYAML reads 200 kB a second."""


@dataclass(frozen=True, kw_only=True)
class JobText:
    """The text of a job or of a batch."""

    text: str
    name: str
    """Name for messages."""
    folder: Path
    """Folder that its relative paths start from."""
    file: Path | None = None
    """Its file; None for text, a mapping or a JobSpec."""


def source_of(job: JobSource, what: str = "job") -> JobText:
    """Return the text of a job, or of a batch in one of the same forms.

    Raises UsageError if its file cannot be read, or a mapping has values that YAML cannot hold.
    """
    if isinstance(job, JobSpec):
        # Files of this computer are measured anew: a launch sends what is there then.
        data = [file if file.url else replace(file, sha256=None, size=None) for file in job.data]
        values = asdict(replace(job, data=tuple(data)))
        text = json.dumps({field.name: values[field.name] for field in job_fields(job)})
    elif isinstance(job, Mapping):
        text = to_yaml(job, what)
    elif isinstance(job, str) and ("\n" in job or job.lstrip().startswith("{")):
        text = job
    else:
        path = file_or_example(Path(job))
        return JobText(text=read_source(path), name=str(path), folder=path.resolve().parent, file=path)
    return JobText(text=text, name=what, folder=Path.cwd())


def load(
    source: JobText, overrides: Overrides = (), name: str | None = None, *, now: datetime | None = None
) -> JobSpec:
    """Parse the job with the overrides; a deadline without a date is the next one after `now`.

    Raises JobFileError with every fault.
    """
    from vastrun.launcher.config.job_loader import load_job  # slow to import: pydantic, yaml

    sets = [*to_set_options(overrides), *([f"name={json.dumps(name)}"] if name else [])]
    spec = load_job(source.text, source.name, sets, str(source.folder), now)
    return spec if source.file is None else replace(spec, job_file=str(source.file))


def to_set_options(overrides: Overrides) -> list[str]:
    """Return overrides as for --set. Raises UsageError for a value that YAML cannot hold."""
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={to_yaml(value, key)}" for key, value in overrides.items()]
    return list(overrides)


def to_yaml(value: Any, what: str) -> str:
    """Return a value as one line of YAML; a path is a string. Raises UsageError if YAML cannot hold it."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{what}: {error}", hint="text, numbers, booleans, None, and lists and dicts of these"
        ) from error


def _plain(value: Any) -> Any:
    """Convert a path, a mapping, or a number or array of numpy for JSON."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected plain values, got {type(value).__name__}")


def read_source(path: Path, named_in: str = "") -> str:
    """Return a file's text. `named_in`: the file that refers to it.

    Raises UsageError if it cannot be read, with suggestions if it does not exist.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = suggest_files(path) if isinstance(error, FileNotFoundError) else ""
        place = f"{named_in}: " if named_in else ""
        raise UsageError(f"{place}cannot read {path}: {reason}", hint=hint) from error
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(f"{path} has more than {_MAX_CHARACTERS >> 20} MB of text")
    return text


def file_or_example(path: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """Return the path; if there is no such file but an example of that name, return its path, with a note."""
    example = configs_dir() / path
    if path.exists() or not example.is_file():
        return path
    note(f"{path} was not found; using vastrun's example")
    return example


def check_upload(
    packer: Packer, spec: JobSpec, folder: Path | None, note: Callable[[str], None] = lambda _: None
) -> JobSpec:
    """Check the files that the job uploads, before anything is rented; return the job with their size.

    Raises UsageError. `folder`: the folder of the job file; None for the job of an earlier run.
    """
    spec = packer.check(spec, is_own_job=folder is not None)
    if spec.command is None or spec.code is not None:
        return spec
    note("the job has no code: nothing is uploaded besides the command")
    if folder is None:
        return spec
    words = (script_of(spec.command) or " ".join(spec.command)).split()
    script = next((word for word in words if _is_in(folder, word)), None)
    if script is not None:
        raise JobValueError(
            f"command: {script} is next to the job file, but without code: nothing is uploaded",
            hint="add to the job file: code: {path: .}",
        )
    return spec


def _is_in(folder: Path, word: str) -> bool:
    try:
        return not word.startswith(("/", "~")) and (folder / word).is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def name_in_errors(source: JobText) -> Iterator[None]:
    """Add the source's name to an error about one of its values."""
    try:
        yield
    except JobValueError as error:
        raise JobValueError(f"{source.name}: {error}", hint=error.hint) from error


_EXAMPLES = ("quickstart.yaml", "own_script.yaml")
_WRITE_ONE = f"vastrun init train.py writes a job file for your program; an example: {' or '.join(_EXAMPLES)}"


def suggest_files(path: Path) -> str:
    """Suggest the file with the most similar name, else the YAML files nearby, else how to write one."""
    folder = path.parent if path.parent.is_dir() else Path()
    files = sorted(file for file in folder.glob("*.y*ml") if file.suffix in (".yaml", ".yml"))
    # An example needs no folder.
    known = [*files, *(Path(name) for name in _EXAMPLES if path.parent == Path())]
    stems = difflib.get_close_matches(path.stem, [file.stem for file in known], n=1)
    if stems:
        return next(file for file in known if file.stem in stems).as_posix()
    return f"one of {', '.join(file.as_posix() for file in files[:5])}" if files else _WRITE_ONE


def check_values_used(spec: JobSpec, names: Collection[str]) -> None:
    """Search the code for the variables of these values, which the command and `env:` do not mention.

    Raises JobValueError for values that the code does not read either: all points would do the same.
    """
    unused = set(names)
    for text in _code_of(spec) if unused else ():
        unused = {name for name in unused if not is_read_in(text, name)}
        if not unused:
            break
    if unused:
        first, all_of_them = min(unused), ", ".join(sorted(unused))
        raise JobValueError(
            f"the batch varies {all_of_them}, which neither the command, `env:` nor the code of the job uses",
            hint=f"write {{{first}}} in command:, or read {variable_of(first)} in the program",
        )


def _code_of(spec: JobSpec) -> Iterator[str]:
    """Yield the text of each file to upload, up to a limit."""
    if spec.code is None:
        return
    tree, left = code_tree(spec), _MAX_TOTAL_BYTES
    for path in tree.paths:
        content = code_of(tree.root / path)
        left -= len(content)
        if left < 0:
            return
        yield content.decode("latin-1")
