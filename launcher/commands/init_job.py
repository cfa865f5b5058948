"""Init: write a first job file for a program, with the schema that editors read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vastrun.launcher.commands.setup_command import installs_folder, setup_command, setup_notes
from vastrun.launcher.config.job_template import (
    SCHEMA_FILE,
    UserProgram,
    job_name,
    program_job,
    trainer_job,
)
from vastrun.launcher.config.json_schema import PAGES, file_schema, to_text
from vastrun.launcher.config.program_imports import ProgramImports, imports_of, parse_program
from vastrun.launcher.config.rules import NAME, NAME_EXPECTED
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.package_files import page

_USUAL_PROGRAMS = ("train.py", "main.py", "run.py", "finetune.py")
_SHELL_SUFFIXES = (".sh", ".bash", ".zsh", ".slurm", ".sbatch")


@dataclass(frozen=True, kw_only=True)
class WrittenJobFile:
    """A job file that was written."""

    job_file: Path
    program: UserProgram | None
    """Program that it runs; None: the onboard trainer."""


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
    try:
        path = script or next((usual for usual in _USUAL_PROGRAMS if (folder / usual).is_file()), None)
        program = None if path is None else _program(folder, path)
        if program is None:
            text = trainer_job(name or job_name(folder.resolve().name))
        else:
            text = program_job(
                program,
                name=name or job_name(_stem(folder, program)),
                setup=setup_command(folder, program),
                setup_notes=list(setup_notes(folder)),
            )
        schema = job_file.parent / SCHEMA_FILE
        _refuse_odd_targets(schema.parent, schema, job_file)
        schema.parent.mkdir(exist_ok=True)
        schema.write_text(to_text(file_schema("job", page(PAGES["job"]))), encoding="utf-8")
        job_file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or job_file}: {error.strerror or error}") from error
    return WrittenJobFile(job_file=job_file, program=program)


def _refuse_odd_targets(schema_folder: Path, *files: Path) -> None:
    """Raise UsageError where a link would be written through, or something that is no file replaced."""
    for path in (schema_folder, *files):
        is_odd = path.exists() and not (path.is_dir() if path == schema_folder else path.is_file())
        if path.is_symlink() or is_odd:
            raise UsageError(f"{path}: is a link, or no file that could be replaced", hint="move it away")


def _program(folder: Path, path: str) -> UserProgram:
    relative = _relative_path(folder, path)
    shown = one_line(path)
    if relative.endswith(".ipynb"):
        script = PurePosixPath(relative).with_suffix(".py")
        hint = f"jupyter nbconvert --to script '{relative}', then: vastrun init '{script}'"
        raise UsageError(f"{shown}: is a notebook, which Python cannot run", hint=hint)
    if relative.endswith(_SHELL_SUFFIXES):
        hint = f"name the Python program that it starts, or write `command: bash {relative}` in a job file"
        raise UsageError(f"{shown}: is a shell script", hint=hint)
    try:
        imports = imports_of(parse_program(folder / relative))
    except UsageError as error:
        hint = "name a Python program, or write a job file with a command by hand"
        raise UsageError(f"{shown}: {error}", hint=hint) from error
    return UserProgram(path=relative, imports=imports, needs_folder=_imports_from(folder, relative, imports))


def _imports_from(folder: Path, program: str, imports: ProgramImports) -> bool:
    """Tell whether Python must look for modules in the folder, and not only next to the program."""
    here = (folder / program).parent
    if here == folder:
        return False
    is_installed = installs_folder(folder)
    for top in {name.partition(".")[0] for name in imports.needed | imports.optional}:
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


def _relative_path(folder: Path, path: str) -> str:
    """Return the path from the folder: only what lies in it is shipped. Raises UsageError."""
    try:
        relative = (folder / path).resolve().relative_to(folder.resolve()).as_posix()
        relative.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{one_line(path)}: its name is not UTF-8", hint="rename it") from error
    except (ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        hint = "run vastrun init in the folder of your code"
        raise UsageError(f"{one_line(path)}: is not in {folder.resolve()}", hint=hint) from error
    return relative


def _stem(folder: Path, program: UserProgram) -> str:
    """Return a word for the program: of `train.py`, which half of all are called, that of its folder."""
    path = PurePosixPath(program.path)
    return folder.resolve().name if path.name in _USUAL_PROGRAMS else path.stem
