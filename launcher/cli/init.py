"""`vastrun init`: write a first job file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click

from vastrun.launcher.bundle.checkout import code_of
from vastrun.launcher.cli.options import FILE
from vastrun.launcher.cli.output import note, say
from vastrun.launcher.config.command import ProgramImports, imports_of, parse_program
from vastrun.launcher.config.job_template import SCHEMA_FILE, UserProgram, job_name, kind_job, program_job
from vastrun.launcher.config.json_schema import PAGES, file_schema, to_text
from vastrun.launcher.config.program_kinds import all_kinds
from vastrun.launcher.config.rules import NAME, NAME_EXPECTED
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.package_files import page

_USUAL_PROGRAMS = ("train.py", "main.py", "run.py", "finetune.py")
_PACKAGES = ("pyproject.toml", "setup.py")
"""Files of a folder that pip installs."""
_DEPENDENCIES = ("install_requires", "dependencies", "requirements")
"""Words of these files that say that they name packages, too."""
_OWN_FOLDER = re.compile(r"(?m)^[ \t]*(?:-e[ \t]+|--editable[ \t=]+)?\.(?:/|\[[^\]\n]*\])?[ \t]*$")
"""The line of a requirements.txt that installs its own folder."""
_TORCH_VERSION = r"(torch(?:vision|audio)?[ \t]*(?:===?|~=|<=?)[ \t]*[\w.+*-]+)"
"""A torchvision or torchaudio needs one version of torch, too."""
_PINNED_TORCH = {
    "requirements.txt": re.compile(rf"(?m)^[ \t]*{_TORCH_VERSION}"),
    "pyproject.toml": re.compile(rf"[\"']{_TORCH_VERSION}"),
}
"""Files that name a program's packages: the first that exists is installed."""
_PYTHON_RANGE = re.compile(
    r"(?<![\w-])(?:requires-python|python_requires|python)\s*=\s*[\"']([^\"'\n]{1,50})[\"']"
)
"""The versions of Python that a package allows, in pyproject.toml (also Poetry's) and in setup.py."""
_HIGHEST_PYTHON = re.compile(r"(?:<|==|~)=?\s*3\.(\d{1,2})")
_IMAGE_PYTHON = 11
"""The images of vastrun have Python 3.11 or newer."""
_INSTALLED_WITH_TORCH = ("torchvision", "torchaudio")
"""Packages that a requirements.txt may leave out: its author installed them together with torch."""


@click.command("init")
@click.argument("script", metavar="[SCRIPT.py]", required=False)
@click.option(
    "--output",
    metavar="FILE",
    default="job.yaml",
    show_default=True,
    type=FILE,
    help="Job file to write.",
)
@click.option("--name", help="Name of the job [the folder's or the script's].")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def command(script: str | None, output: Path, name: str | None, force: bool) -> None:
    """Write a commented job file for your own program, in the folder of its code.

    It says what the imports of the program, requirements.txt and pyproject.toml tell; no code is executed.
    What the program writes is shown by `vastrun rehearse`. Read the file before you launch it.
    Without SCRIPT, it is for train.py, main.py, run.py or finetune.py if one exists, else for the onboard
    trainer.
    """
    program = write_job_file(output.parent, script, output, name=name, force=force)
    job, what = shlex.quote(str(output)), "the onboard trainer; name a script to run your own program"
    if program is not None:
        what = one_line(program.path)
    note(
        f"wrote {job}: {what}\n"
        f"read it, then see here what it does and writes: vastrun rehearse {job}\n"
        f"the same without a GPU:                         vastrun rehearse {job} --set resources.gpus=0\n"
        f"show offers and costs:                          vastrun plan {job} --provider vast"
    )
    say(str(output))


def write_job_file(
    folder: Path, script: str | None, job_file: Path, *, name: str | None, force: bool
) -> UserProgram | None:
    """Write a job file for `script`, for the usual one of the folder, or for the onboard trainer.

    `folder`: of the code, in which the job file comes to lie. Returns the program; None: the onboard trainer.
    Raises UsageError.
    """
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f"--name: {NAME_EXPECTED}, got {name!r}")
    try:
        path = script or next((usual for usual in _USUAL_PROGRAMS if (folder / usual).is_file()), None)
        program = None if path is None else _program(folder, path)
        if job_file.exists() and not force:
            hint = "name another file with --output, or use --force"
            raise UsageError(f"{job_file} exists already", hint=hint)
        if program is None:
            text = kind_job(all_kinds()[0], name or job_name(folder.resolve().name))
        else:
            text = program_job(
                program,
                name=name or job_name(_stem(folder, program)),
                setup=setup_command(folder, program),
                setup_notes=list(setup_notes(folder)),
            )
        schema = job_file.parent / SCHEMA_FILE
        _refuse_odd_targets(schema.parent, schema, schema.parent / ".gitignore", job_file)
        schema.parent.mkdir(exist_ok=True)
        (schema.parent / ".gitignore").write_text("*\n")
        schema.write_text(to_text(file_schema("job", page(PAGES["job"]))), encoding="utf-8")
        job_file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or job_file}: {error.strerror or error}") from error
    return program


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
    if relative.endswith((".sh", ".bash", ".zsh", ".slurm", ".sbatch")):
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


def setup_command(folder: Path, program: UserProgram) -> str | None:
    """Return the command that installs what the program needs; None where the image has it all."""
    places = {folder, (folder / program.path).parent}
    found = [entry for place in places for entry in place.iterdir()]
    packages = program.packages({entry.stem for entry in found if entry.suffix == ".py" or entry.is_dir()})
    if (folder / "requirements.txt").is_file():
        named = _text(folder / "requirements.txt").lower()
        beside = [name for name in _INSTALLED_WITH_TORCH if name in packages and name not in named]
        return " ".join(["pip install -r requirements.txt", *beside])
    if installs_folder(folder):
        is_named = any(word in _text(folder / file) for file in _PACKAGES for word in _DEPENDENCIES)
        return " ".join(["pip install .", *([] if is_named else packages)])
    return f"pip install {' '.join(packages)}" if packages else None


def installs_folder(folder: Path) -> bool:
    """Tell whether the setup command installs the folder itself."""
    if (folder / "requirements.txt").is_file():
        return _OWN_FOLDER.search(_text(folder / "requirements.txt")) is not None
    return any((folder / file).is_file() for file in _PACKAGES)


def setup_notes(folder: Path) -> Iterator[str]:
    """Yield sentences about what the setup command does not find in the image, or replaces there."""
    if pinned := _pinned_torch(folder):
        yield f"{pinned} replaces the torch of the image: each machine downloads gigabytes."
        yield "Leave it out there, or name an image that has it: `image:`."
    if installs_folder(folder) and (python := _older_python(folder)):
        yield f"{python}; the image has 3.{_IMAGE_PYTHON} or newer."
        yield "Allow that there, or name an image with another Python: `image:`."


def _older_python(folder: Path) -> str:
    """Return which versions of Python the package allows, where they are older than the image's."""
    for name in _PACKAGES:
        for found in _PYTHON_RANGE.finditer(_text(folder / name)):
            highest = _HIGHEST_PYTHON.search(found[1])
            if highest is None:
                continue
            is_excluded = highest[0].startswith("<") and not highest[0].startswith("<=")
            if int(highest[1]) - is_excluded < _IMAGE_PYTHON:
                return f"{name} allows Python {found[1]} only"
    return ""


def _pinned_torch(folder: Path) -> str:
    """Return what replaces the image's torch: `torch==2.0.1 of requirements.txt`; empty: nothing does."""
    for name, pattern in _PINNED_TORCH.items():
        if text := _text(folder / name):
            pinned = pattern.search(text)
            return f"{pinned[1]} of {name}" if pinned else ""
    return ""


def _text(path: Path) -> str:
    """Return the text of a file; empty where it cannot be read, or is no plain file or too large."""
    return code_of(path).decode(errors="replace")
