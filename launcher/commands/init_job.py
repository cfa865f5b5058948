"""Init: write a first job file for a program, with the schema that editors read."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vastrun.launcher.commands.setup_command import installs_folder, setup_command, setup_notes
from vastrun.launcher.config.job_template import (
    SCHEMA_FILE,
    UserProgram,
    job_name,
    program_job,
    read_program,
    trainer_job,
)
from vastrun.launcher.config.program_report import ProgramReport, report_of
from vastrun.launcher.config.rules import NAME, NAME_EXPECTED
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import schemas

_USUAL_PROGRAMS = ("train.py", "main.py", "run.py", "finetune.py")
_SHELL_SUFFIXES = (".sh", ".bash", ".zsh", ".slurm", ".sbatch")
_PYTHON_FILES = re.compile(r"(?<![\w/.-])[\w./-]+\.py(?![\w/])")
"""Names of Python files in a shell script."""
_MAX_PROGRAM_CHARACTERS = 2_000_000
"""Characters of a program that is read."""


@dataclass(frozen=True, kw_only=True)
class WrittenJobFile:
    """A job file that was written."""

    job_file: Path
    program: UserProgram | None
    """Program that it runs; None: the onboard trainer."""
    spawns: bool = False
    """True for a program that starts its processes itself."""


def write_job_file(
    folder: Path, script: str | None, job_file: Path, *, name: str | None, force: bool
) -> WrittenJobFile:
    """Write a job file for `script`, for the usual one of the folder, or for the onboard trainer.

    `folder`: of the code, in which the job file comes to lie. Raises UsageError.
    """
    if job_file.exists() and not force:
        raise UsageError(f"{job_file} exists already", hint="name another file with --output, or use --force")
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f"--name: {NAME_EXPECTED}, got {name!r}")
    path = script or next((usual for usual in _USUAL_PROGRAMS if (folder / usual).is_file()), None)
    program, report = (None, ProgramReport()) if path is None else _read(folder, path)
    name = name or job_name(folder.resolve().name if program is None else _stem(folder, program))
    if program is None:
        text = trainer_job(name)
    else:
        setup = setup_command(folder, program)
        notes = setup_notes(folder)
        text = program_job(program, report, name=name, setup=setup, setup_notes=notes)
    schema = job_file.parent / SCHEMA_FILE
    try:
        schema.parent.mkdir(exist_ok=True)
        schema.write_bytes(schemas()["job"].read_bytes())
        job_file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or job_file}: {error.strerror or error}") from error
    return WrittenJobFile(job_file=job_file, program=program, spawns=report.spawn != "")


def _read(folder: Path, path: str) -> tuple[UserProgram, ProgramReport]:
    relative = _relative_path(folder, path)
    if relative.endswith(".ipynb"):
        script = PurePosixPath(relative).with_suffix(".py")
        hint = f"jupyter nbconvert --to script '{relative}', then: vastrun init '{script}'"
        raise UsageError(f"{path}: is a notebook, which Python cannot run", hint=hint)
    if relative.endswith(_SHELL_SUFFIXES):
        raise UsageError(f"{path}: is a shell script", hint=_hint_of_shell_script(folder, relative))
    try:
        text = read_source(folder / relative)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UsageError(f"{path}: {reason}", hint="name a Python program") from error
    except SyntaxError as error:
        raise UsageError(f"{path}: {error.msg}", hint="name a Python program") from error
    if len(text) > _MAX_PROGRAM_CHARACTERS:
        raise UsageError(f"{path}: is too large for a program", hint="name a Python program")
    try:
        modules = own_modules(folder, relative, ast.parse(text))
    except SyntaxError as error:
        text = f"{path}:{error.lineno or 1}: is not a Python program: {error.msg}"
        raise UsageError(
            text, hint="name a Python program, or write a job file with a command by hand"
        ) from None  # the text has all of it
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not a Python program: {error}") from error
    needs_folder = _imports_from(folder, relative, modules)
    return read_program(relative, modules, needs_folder=needs_folder), report_of(modules)


def _hint_of_shell_script(folder: Path, script: str) -> str:
    """Return the command for the first Python program of the folder that a script names."""
    with suppress(OSError):
        text = (folder / script).read_bytes()[:_MAX_PROGRAM_CHARACTERS].decode(errors="replace")
        for program in _PYTHON_FILES.findall(text):
            if (folder / program).is_file():
                return f"name the program that it starts: vastrun init {program}"
    return f"name the Python program that it starts, or write `command: bash {script}` in a job file"


def _imports_from(folder: Path, program: str, modules: Mapping[str, ast.Module]) -> bool:
    """Tell whether Python must look for modules in the folder, and not only next to the program."""
    here = (folder / program).parent
    if here == folder:
        return False
    is_installed = installs_folder(folder)
    for tree in modules.values():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            )
            for top in {name.partition(".")[0] for name in names}:
                # setuptools finds what has an __init__.py.
                is_package = is_installed and (folder / top / "__init__.py").is_file()
                if _has_module(folder, top) and not _has_module(here, top) and not is_package:
                    return True
    return False


def _has_module(folder: Path, name: str) -> bool:
    package = folder / name
    return (folder / f"{name}.py").is_file() or (
        package.is_dir() and next(package.glob("*.py"), None) is not None
    )


def read_source(path: Path) -> str:
    """Return the text of a Python program, decoded as Python does: by a BOM or a coding line, else as UTF-8.

    Raises OSError, UnicodeDecodeError, and SyntaxError for an encoding that does not exist.
    """
    with tokenize.open(path) as file:
        return file.read()


def _relative_path(folder: Path, path: str) -> str:
    """Return the path from the folder: only what lies in it is shipped. Raises UsageError."""
    try:
        return (folder / path).resolve().relative_to(folder.resolve()).as_posix()
    except ValueError as error:
        hint = "run vastrun init in the folder of your code"
        raise UsageError(f"{path}: is not in {folder.resolve()}", hint=hint) from error


def _stem(folder: Path, program: UserProgram) -> str:
    """Return a word for the program: of `train.py`, which half of all are called, that of its folder."""
    path = PurePosixPath(program.path)
    return folder.resolve().name if path.name in _USUAL_PROGRAMS else path.stem


_MAX_FILES = 30
_MAX_FILE_BYTES = 500_000
_MAX_BYTES = 3_000_000


def own_modules(folder: Path, program: str, tree: ast.Module) -> dict[str, ast.Module]:
    """Return the program and the modules of the folder that it imports, by path; at most 30 files.

    A module that cannot be read or parsed is left out.
    """
    root = folder.resolve()
    found = {program: tree}
    waiting, left = [program], _MAX_BYTES
    while waiting:
        path = waiting.pop(0)
        for module in _imported(root, path, found[path]):
            if len(found) >= _MAX_FILES or module in found:
                continue
            source = root / module
            try:
                size = source.stat().st_size
                if size > min(left, _MAX_FILE_BYTES):
                    continue
                with tokenize.open(source) as file:
                    found[module] = ast.parse(file.read())
            except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            left -= size
            waiting.append(module)
    return found


def _imported(root: Path, path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the paths of the modules of the folder that a file imports, from the folder."""
    here = (root / path).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, places = [alias.name for alias in node.names], [here, root]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]
            places = [here, root] if not node.level else [here, *here.parents][node.level - 1 : node.level]
        else:
            continue
        for name in filter(None, names):
            yield from _files(root, places, name)


def _files(root: Path, places: list[Path], name: str) -> Iterator[str]:
    parts = name.split(".")
    for place in places:
        base = place.joinpath(*parts)
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            resolved = file.resolve()
            if resolved.is_file() and resolved.is_relative_to(root):
                yield resolved.relative_to(root).as_posix()
                return
